/* hash/test_digest.c - SHA-256 and XXH3-128 against values of other implementations.
 *
 * Byte i of every message is i * 7 + 3. The lengths lie around the ends of SHA-256's blocks, where
 * its padding takes one block more, and of XXH3's cases. */
#include "hash/digest.h"

#include "hash/hex.h"

enum { LONGEST = 1000, PAD_ROOM = 72, GUARD = 0xc3 };

static const struct {
    size_t len;
    const char *sha256;
    const char *xxh3_128;
} VECTORS[] = {
    {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
     "99aa06d3014798d86001c324468d497f"},
    {1, "084fed08b978af4d7d196a7446a86b58009e636b611db16211b65a9aadff29c5",
     "22bbb76b211a39ba13e608bc156defed"},
    {55, "e7313d333c272e639f790978283f9eb392e843d0f29b7016828bb1daa4aac70b",
     "97d791af2eaadf0f2405b9f8188adba3"},
    {56, "4324d65f3c103567f5589c710bc08f8523f929a9272e3af36fc968e52abc6c27",
     "fbffc8cb78886b1eb270642c9264a1cc"},
    {63, "81c80242132f230c3bd41b3e63bbcff16107339549214a99614ff26664625055",
     "3fe3bc9cdc4ca070e9070987ed88500a"},
    {64, "39e3d7b6b5d075d37d053ad89b24b41bef4f3c29760c84447cab3f3be1882241",
     "fed953fe6a8b2b63aa549d72c69cd267"},
    {65, "aacca6ff74fdbb296d165a45cecfa04e5127bc008770fbbdd48006f2d2fae95e",
     "9f5580903f79bec343622ea01271a860"},
    {119, "9ce7368e4daf32341631b492e80359dc9f594b48453cd0dd5bf0b19279cc177e",
     "5434fa6631858448ad4d8e5daed8146b"},
    {120, "7836b787757e95e58b3ca5aec90b1b004e8deba1e50e9675af9cabf1a13a04b5",
     "ce4998ad5447e90cc9a992a0a962f5bb"},
    {1000, "1e9bc38cbf860b9ec31918b065f9b52476c549a782e0e7990bed8ce3868d2371",
     "6bcc7eff62da44c26c4f14bd97bd9e82"},
};

static void fill(unsigned char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        bytes[i] = (unsigned char)(i * 7 + 3);
}

static void sha256_of_known_messages(void **state)
{
    (void)state;
    unsigned char message[LONGEST];
    unsigned char digest[QR_SHA256_BYTES];
    fill(message, sizeof message);
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        qr_sha256(message, VECTORS[i].len, digest);
        assert_hex(digest, sizeof digest, VECTORS[i].sha256);
    }
}

static void padded_sha256_of_known_messages(void **state)
{
    (void)state;
    unsigned char message[LONGEST + PAD_ROOM];
    unsigned char digest[QR_SHA256_BYTES];
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        fill(message, sizeof message);
        qr_sha256_padded(message, VECTORS[i].len, digest);
        assert_hex(digest, sizeof digest, VECTORS[i].sha256);
    }
}

static void padded_equals_plain_at_every_length(void **state)
{
    (void)state;
    for (size_t len = 0; len <= 300; len++) {
        unsigned char message[300 + PAD_ROOM + 1];
        unsigned char plain[QR_SHA256_BYTES];
        unsigned char padded[QR_SHA256_BYTES];
        fill(message, sizeof message);
        qr_sha256(message, len, plain);
        memset(message + len, GUARD, sizeof message - len);
        qr_sha256_padded(message, len, padded);
        assert_memory_equal(padded, plain, sizeof plain);
        for (size_t i = len + PAD_ROOM; i < sizeof message; i++)
            assert_int_equal(message[i], GUARD); /* no more room was used than was promised */
        qr_sha256(message, len, plain);
        assert_memory_equal(padded, plain, sizeof plain); /* the message itself is unchanged */
    }
}

static void xxh3_128_of_known_messages(void **state)
{
    (void)state;
    unsigned char message[LONGEST];
    unsigned char digest[QR_XXH128_BYTES];
    fill(message, sizeof message);
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        qr_xxh3_128(message, VECTORS[i].len, digest);
        assert_hex(digest, sizeof digest, VECTORS[i].xxh3_128);
    }
}

static void xxh3_digest_may_lie_in_the_message(void **state)
{
    (void)state;
    unsigned char message[LONGEST];
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        if (VECTORS[i].len < QR_XXH128_BYTES)
            continue;
        fill(message, sizeof message);
        qr_xxh3_128(message, VECTORS[i].len, message);
        assert_hex(message, QR_XXH128_BYTES, VECTORS[i].xxh3_128);
    }
}

/* The secret that XXH3 is defined with when no other is given. */
static const unsigned char DEFAULT_SECRET[QR_XXH_SECRET_BYTES] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static void keyed_with_the_default_secret_is_plain(void **state)
{
    (void)state;
    unsigned char message[LONGEST];
    unsigned char digest[QR_XXH128_BYTES];
    fill(message, sizeof message);
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        qr_xxh3_128_keyed(message, VECTORS[i].len, DEFAULT_SECRET, digest);
        assert_hex(digest, sizeof digest, VECTORS[i].xxh3_128);
    }
}

static void keyed_depends_on_the_secret(void **state)
{
    (void)state;
    unsigned char message[LONGEST];
    unsigned char secret[QR_XXH_SECRET_BYTES];
    unsigned char one[QR_XXH128_BYTES];
    unsigned char other[QR_XXH128_BYTES];
    fill(message, sizeof message);
    fill(secret, sizeof secret);
    for (size_t i = 0; i < COUNT(VECTORS); i++) {
        qr_xxh3_128_keyed(message, VECTORS[i].len, DEFAULT_SECRET, one);
        qr_xxh3_128_keyed(message, VECTORS[i].len, secret, other);
        assert_memory_not_equal(one, other, sizeof one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_of_known_messages),
        cmocka_unit_test(padded_sha256_of_known_messages),
        cmocka_unit_test(padded_equals_plain_at_every_length),
        cmocka_unit_test(xxh3_128_of_known_messages),
        cmocka_unit_test(xxh3_digest_may_lie_in_the_message),
        cmocka_unit_test(keyed_with_the_default_secret_is_plain),
        cmocka_unit_test(keyed_depends_on_the_secret),
    };
    return cmocka_run_group_tests_name("hash_digest", tests, NULL, NULL);
}
