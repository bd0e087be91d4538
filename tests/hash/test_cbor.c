/* hash/test_cbor.c - byte for byte what cbor2 writes, by the rules of RFC 8949:
 *
 *      cbor2.dumps((b"parent", tokens, extra_keys), canonical=True).hex()
 */
#include "hash/cbor.h"

#include "hash/encoding.h"
#include "hash/hex.h"

static const char *const EXPECTED[NUM_ENCODING_CASES] = {
    [NO_TOKENS] = "8346706172656e7480f6",
    [ONE_TOKEN] = "8346706172656e748101f6",
    [TWO_TOKENS] = "8346706172656e74820102f6",
    [THREE_TOKENS] = "8346706172656e7483010203f6",
    [FOUR_TOKENS] = "8346706172656e748401020304f6",
    [LORA] = "8346706172656e748107816761646170746572",
    [SALT] = "8346706172656e748107816673616c742d31",
    [FEATURE] = "8346706172656e748107818267696d6167652d610a",
    [FEATURE_BEFORE] = "8346706172656e748107818267696d6167652d6125",
    [EMBEDS] = "8346706172656e748107814401020304",
    [TWO_KEYS] = "8346706172656e7481078267616461707465726673616c742d31",
    [THREE_KEYS] = "8346706172656e7481078367616461707465728267696d6167652d610a6673616c742d31",
    [FOUR_KEYS] =
        "8346706172656e7481078467616461707465728267696d6167652d610a6673616c742d314401020304",
    [FIVE_KEYS] =
        ("8346706172656e7481078567616461707465728267696d6167652d61008267696d6167652d621a00"
         "0111706673616c742d314401020304"),
    [SAME_TEXT] = "8346706172656e748107826473616d65826473616d650a",
    [EQUAL_TEXT] = "8346706172656e748107826473616d65826473616d650a",
    [EMPTY_TEXT] = "8346706172656e7481078160",
    [UTF8_TEXT] = "8346706172656e748107816668c3a9e282ac",
    [TEXT_255] = "sha256:3164adb1af2bb4d4283fd9e9ce880618cc516b39584dd6eab87025211eb8f7a8",
    [TEXT_256] = "sha256:eaa4bfab301b28e60d6fb7fe2ca62eab7bcdb0bfe260fb78aa31ac41d79552cd",
    [BYTES_255] = "sha256:1b259f349fa773c1e89b376b0f040f78596ef62193e2913cdd4368268635f245",
    [BYTES_256] = "sha256:999bf1c826c5cf4ebb484b0d2c4ea1a64927c46baa5e03e37ded5758060391e6",
};

static const char *const EXPECTED_INTS[NUM_ENCODING_INTS] = {
    "8346706172656e748100f6",
    "8346706172656e748101f6",
    "8346706172656e748117f6",
    "8346706172656e74811818f6",
    "8346706172656e748118fff6",
    "8346706172656e7481190100f6",
    "8346706172656e748119fffff6",
    "8346706172656e74811a00010000f6",
    "8346706172656e74811a7ffffffff6",
    "8346706172656e74811a80000000f6",
    "8346706172656e74811afffffffff6",
    "8346706172656e74811b0000000100000000f6",
    "8346706172656e74811b0000007ffffffffff6",
    "8346706172656e74811b0000008000000000f6",
    "8346706172656e74811b0000010000000000f6",
    "8346706172656e74811b0000800000000000f6",
    "8346706172656e74811b4000000000000000f6",
    "8346706172656e74811b7ffffffffffffffff6",
    "8346706172656e748120f6",
    "8346706172656e748137f6",
    "8346706172656e74813818f6",
    "8346706172656e748138fff6",
    "8346706172656e7481390100f6",
    "8346706172656e748139fffff6",
    "8346706172656e74813a00010000f6",
    "8346706172656e74813a7ffffffff6",
    "8346706172656e74813a80000000f6",
    "8346706172656e74813afffffffff6",
    "8346706172656e74813b0000000100000000f6",
    "8346706172656e74813b0000007ffffffffff6",
    "8346706172656e74813b0000008000000000f6",
    "8346706172656e74813b000000fffffffffff6",
    "8346706172656e74813b3ffffffffffffffff6",
    "8346706172656e74813b7ffffffffffffffff6",
};

static void small_keys(void **state)
{
    (void)state;
    encoding_assert_cases(qr_cbor_encode, EXPECTED);
}

static void integers_at_every_edge(void **state)
{
    (void)state;
    encoding_assert_ints(qr_cbor_encode, EXPECTED_INTS);
}

static void texts_alone(void **state)
{
    (void)state;
    unsigned char room[512];
    char long_text[300];
    memset(long_text, 'a', sizeof long_text);
    qr_message out = {.bytes = room};
    qr_cbor_encode_text(&out, (quire_bytes){"0", 1});
    assert_hex(out.bytes, out.len, "6130");
    qr_cbor_encode_text(&out, (quire_bytes){"", 0});
    assert_hex(out.bytes, out.len, "60");
    qr_cbor_encode_text(&out, (quire_bytes){long_text, sizeof long_text});
    assert_hex(out.bytes, out.len,
               "sha256:20ed5e0e8e519d6594de1f929a4b38cf74cffdeb2ee13fab78d88531d216bc74");
}

/* The head of an array of n, as RFC 8949 says: the shortest that holds n. */
static size_t array_head(size_t n, unsigned char *out)
{
    if (n < 24) {
        out[0] = (unsigned char)(0x80 | n);
        return 1;
    }
    size_t bytes = n <= 0xff ? 1 : n <= 0xffff ? 2 : 4;
    out[0] = bytes == 1 ? 0x98 : bytes == 2 ? 0x99 : 0x9a;
    for (size_t i = 0; i < bytes; i++)
        out[1 + i] = (unsigned char)(n >> 8 * (bytes - 1 - i));
    return 1 + bytes;
}

static void arrays_of_every_head(void **state)
{
    (void)state;
    static const size_t SIZES[] = {0, 23, 24, 255, 256, 65535, 65536};
    static int32_t zeros[65536];
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        qr_hash_input input = {.parent_len = 6, .tokens = zeros, .num_tokens = SIZES[i]};
        qr_message message = encoding_encode(qr_cbor_encode, input);
        unsigned char head[5];
        size_t head_len = array_head(SIZES[i], head);
        assert_int_equal(message.len, 8 + head_len + SIZES[i] + 1);
        assert_memory_equal(message.bytes, "\x83\x46parent", 8);
        assert_memory_equal(message.bytes + 8, head, head_len);
        assert_int_equal(message.bytes[message.len - 1], 0xf6);
    }
}

/* A negative id among others takes the slow way for all of them. */
static void one_negative_id_changes_no_other(void **state)
{
    (void)state;
    static const int32_t TOKENS[] = {0, 23, 24, 255, -1, 256, 65535, 65536, INT32_MAX, INT32_MIN};
    qr_hash_input input = {.parent_len = 6, .tokens = TOKENS, .num_tokens = COUNT(TOKENS)};
    qr_message message = encoding_encode(qr_cbor_encode, input);
    assert_hex(message.bytes, message.len,
               "8346706172656e748a0017181818ff2019010019ffff1a000100001a7fffffff3a7ffffffff6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_keys),
        cmocka_unit_test(integers_at_every_edge),
        cmocka_unit_test(texts_alone),
        cmocka_unit_test(arrays_of_every_head),
        cmocka_unit_test(one_negative_id_changes_no_other),
    };
    return cmocka_run_group_tests_name("hash_cbor", tests, NULL, NULL);
}
