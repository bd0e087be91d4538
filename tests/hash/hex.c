#include "hash/hex.h"

#include "hash/digest.h"

enum { MAX_BYTES = 256 };

static void print_hex(const unsigned char *bytes, size_t len, char *out)
{
    static const char DIGITS[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        *out++ = DIGITS[bytes[i] >> 4];
        *out++ = DIGITS[bytes[i] & 15];
    }
    *out = '\0';
}

void assert_hex(const void *bytes, size_t len, const char *expected)
{
    static const char BY_DIGEST[] = "sha256:";
    unsigned char digest[QR_SHA256_BYTES];
    char text[2 * MAX_BYTES + 1];
    if (strncmp(expected, BY_DIGEST, sizeof BY_DIGEST - 1) == 0) {
        qr_sha256(bytes, len, digest);
        bytes = digest;
        len = sizeof digest;
        expected += sizeof BY_DIGEST - 1;
    }
    assert_true(len <= MAX_BYTES);
    print_hex(bytes, len, text);
    assert_string_equal(text, expected);
}
