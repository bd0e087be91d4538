/* base/test_hex.c - bytes to digits and back, and what is no digit. */
#include "base/hex.h"
#include "base/unit.h"

static void every_byte_comes_back(void **state)
{
    (void)state;
    unsigned char bytes[256];
    unsigned char same[256] = {0};
    char text[513];
    for (size_t i = 0; i < 256; i++)
        bytes[i] = (unsigned char)i;
    text[512] = 'x';
    assert_true(qr_hex_write(text, bytes, 256) == text + 512);
    assert_int_equal(text[512], 'x');
    assert_memory_equal(text, "000102", 6);
    assert_memory_equal(text + 508, "feff", 4);
    assert_true(qr_hex_read(text, same, 256));
    assert_memory_equal(same, bytes, 256);
}

static void other_digits_are_refused(void **state)
{
    (void)state;
    unsigned char bytes[2];
    static const char *const BAD[] = {"0A00", "g000", "00-0", "00 0", "000", "000:", "000`"};
    for (size_t i = 0; i < COUNT(BAD); i++)
        assert_false(qr_hex_read(BAD[i], bytes, 2));
    assert_true(qr_hex_read("", bytes, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_comes_back),
        cmocka_unit_test(other_digits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
