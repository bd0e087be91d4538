/* tier/core/test_crc32c.c - CRC32C by the instruction and by the table: known answers, and a
 * naive one,
 * bit by bit, at all lengths and alignments around the borders of lanes. */
#include "base/unit.h"
#include "tier/core/crc32c.h"

#include <quire/tier.h>

enum { ROOM = 128 * 1024 };

static unsigned char bytes[ROOM];
static _Alignas(64) unsigned char copied[ROOM + 64];

/* As the polynomial says it. */
static uint32_t crc_by_bits(uint32_t crc, const unsigned char *data, size_t count)
{
    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) != 0 ? crc >> 1 ^ UINT32_C(0x82f63b78) : crc >> 1;
    }
    return ~crc;
}

static void check(const unsigned char *data, size_t count, uint32_t expected)
{
    assert_int_equal(quire_crc32c(0, data, count), expected);
    assert_int_equal(qr_crc32c_plain(0, data, count), expected);
    if (qr_crc32c_has_instruction())
        assert_int_equal(qr_crc32c_fast(0, data, count), expected);
    size_t place = count % 3 == 0 ? 16 : count % 9; /* aligned, and to nothing */
    for (int plain = 0; plain < 2; plain++) {
        memset(copied + place, 0x77, count + 16);
        uint32_t crc = plain ? qr_crc32c_copy_plain(copied + place, data, count)
                             : qr_crc32c_copy(copied + place, data, count);
        assert_int_equal(crc, expected);
        if (count > 0)
            assert_memory_equal(copied + place, data, count);
        for (size_t i = 0; i < 16; i++)
            assert_int_equal(copied[place + count + i], 0x77);
    }
}

/* The check value of the algorithm, and those of RFC 3720, B.4. */
static void known_answers(void **state)
{
    (void)state;
    unsigned char data[32];
    check((const unsigned char *)"123456789", 9, UINT32_C(0xe3069283));
    check(NULL, 0, 0);
    memset(data, 0, sizeof data);
    check(data, sizeof data, UINT32_C(0x8a9136aa));
    memset(data, 0xff, sizeof data);
    check(data, sizeof data, UINT32_C(0x62a8ab43));
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    check(data, sizeof data, UINT32_C(0x46dd794e));
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(31 - i);
    check(data, sizeof data, UINT32_C(0x113fdb5c));
}

static void short_lengths_at_all_alignments(void **state)
{
    (void)state;
    for (size_t start = 0; start < 16; start++) {
        uint32_t expected = 0;
        for (size_t count = 0; count <= 300; count++) {
            check(bytes + start, count, expected);
            expected = crc_by_bits(expected, bytes + start + count, 1);
        }
    }
}

/* A border of 3 lanes, short and long, once and several times, and what comes behind it. */
static void lengths_around_lanes(void **state)
{
    (void)state;
    static const size_t BORDERS[] = {3 * 2048,
                                     9 * 2048 + 1536,
                                     512,
                                     1024,
                                     1536,
                                     3072,
                                     3 * 8192,
                                     3 * 8192 + 512,
                                     3 * 8192 + 1536,
                                     6 * 8192,
                                     9 * 8192 + 7 * 1536};
    for (size_t i = 0; i < COUNT(BORDERS); i++)
        for (size_t start = 0; start < 8; start += 5) {
            size_t first = BORDERS[i] - 9;
            uint32_t expected = crc_by_bits(0, bytes + start, first);
            for (size_t count = first; count < BORDERS[i] + 9; count++) {
                check(bytes + start, count, expected);
                expected = crc_by_bits(expected, bytes + start + count, 1);
            }
        }
}

static void pieces_make_the_whole(void **state)
{
    uint64_t *random = *state;
    uint32_t whole = quire_crc32c(0, bytes, ROOM);
    assert_int_equal(whole, crc_by_bits(0, bytes, ROOM));
    for (int round = 0; round < 20; round++) {
        uint32_t crc = 0;
        for (size_t at = 0; at < ROOM;) {
            size_t count = unit_random_below(random, round < 10 ? 100 : 60000);
            if (count > ROOM - at)
                count = ROOM - at;
            crc = quire_crc32c(crc, bytes + at, count);
            at += count;
        }
        assert_int_equal(crc, whole);
    }
}

static void every_flipped_bit_shows(void **state)
{
    uint64_t *random = *state;
    uint32_t whole = quire_crc32c(0, bytes, ROOM);
    for (int i = 0; i < 500; i++) {
        uint32_t bit = unit_random_below(random, 8 * ROOM);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        assert_int_not_equal(quire_crc32c(0, bytes, ROOM), whole);
        bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    assert_int_equal(quire_crc32c(0, bytes, ROOM), whole);
}

int main(int argc, char **argv)
{
    uint64_t random = unit_seed(argc, argv, 1);
    for (size_t i = 0; i < ROOM; i++)
        bytes[i] = (unsigned char)unit_random(&random);
    printf("instruction: %s\n", qr_crc32c_has_instruction() ? "yes" : "no, the table alone");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(short_lengths_at_all_alignments),
        cmocka_unit_test(lengths_around_lanes),
        cmocka_unit_test_prestate(pieces_make_the_whole, &random),
        cmocka_unit_test_prestate(every_flipped_bit_shows, &random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
