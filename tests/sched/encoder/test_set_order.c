/* sched/encoder/test_set_order.c - the orders here were printed by CPython 3.11. */
#include "sched/encoder/set_order.h"

#include "base/unit.h"

enum { MAX_NUMBERS = 1000, ROOM = 1 << 18 };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static qr_set_order make_set(uint32_t max_numbers)
{
    qr_arena arena = qr_arena_carve(memory, ROOM);
    qr_set_order set;
    qr_set_order_carve(&set, &arena, max_numbers, true);
    qr_set_order_begin(&set);
    return set;
}

/* A set of n numbers and their order. */
typedef struct known_order {
    uint32_t n;
    uint32_t added[8];
    uint32_t walked[8];
} known_order;

static const known_order KNOWN[] = {
    {0, {0}, {0}},
    {1, {5}, {5}},
    {2, {1, 8}, {8, 1}},
    {3, {0, 8, 16}, {0, 8, 16}},
    {4, {7, 15, 23, 31}, {31, 15, 23, 7}},
    {5, {1, 8, 9, 16, 17}, {1, 8, 9, 16, 17}},
    {6, {5, 13, 21, 29, 37, 45}, {37, 5, 13, 45, 21, 29}},
    {6, {31, 63, 95, 127, 159, 191}, {191, 31, 127, 63, 95, 159}},
    {7, {6, 14, 22, 30, 38, 46, 54}, {38, 6, 14, 46, 22, 54, 30}},
    {8, {3, 35, 67, 99, 131, 163, 195, 227}, {99, 35, 67, 3, 131, 163, 195, 227}},
    {8, {0, 16, 32, 48, 64, 80, 96, 112}, {0, 32, 64, 96, 16, 48, 80, 112}},
};

static void known_sets(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(KNOWN); k++) {
        qr_set_order set = make_set(8);
        for (uint32_t i = 0; i < KNOWN[k].n; i++)
            qr_set_order_add(&set, KNOWN[k].added[i]);
        assert_int_equal(set.used, KNOWN[k].n);
        const uint32_t *walked = qr_set_order_list(&set);
        for (uint32_t i = 0; i < KNOWN[k].n; i++)
            assert_int_equal(walked[i], KNOWN[k].walked[i]);
    }
}

static uint64_t mix(uint64_t hash, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++)
        hash = (hash ^ (value >> (8 * i) & 0xff)) * UINT64_C(0x100000001b3);
    return hash;
}

/* The numbers below n that leave the remainder first % step, from `first` on. */
static uint64_t mix_order(qr_set_order *set, uint64_t hash, uint32_t n, uint32_t step,
                          uint32_t first)
{
    qr_set_order_begin(set);
    for (uint32_t i = first; i < n; i += step)
        qr_set_order_add(set, i);
    const uint32_t *walked = qr_set_order_list(set);
    for (uint32_t i = 0; i < set->used; i++)
        hash = mix(hash, walked[i]);
    return mix(hash, UINT32_MAX);
}

/* One sum over 1,053 sets of up to 1,000 numbers; the same in Python gave this. */
static void all_orders_together(void **state)
{
    (void)state;
    static const uint32_t ENDS[] = {1, 5, 8, 20, 33, 64, 100, 300, 1000};
    static const uint32_t FIRSTS[] = {0, 1, 7};
    qr_set_order set = make_set(MAX_NUMBERS);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t e = 0; e < COUNT(ENDS); e++)
        for (uint32_t step = 1; step < 40; step++)
            for (size_t f = 0; f < COUNT(FIRSTS); f++)
                hash = mix_order(&set, hash, ENDS[e], step, FIRSTS[f]);
    assert_true(hash == UINT64_C(0xbff06524e7c6a928));
}

/* Numbers come and go: those below n, in an order that a simple generator draws. Of Python's sets
 *
 *      for n in NUMBERS:
 *          s, x = set(), n
 *          for _ in range(2000):
 *              x = (x * 1103515245 + 12345) % 2**31
 *              i = (x >> 8) % n
 *              s.discard(i) if i in s else s.add(i)
 *              s = s or set()
 *              for k in s: mix(k)
 *
 * gave the sum. */
static void marks_are_taken_again(void **state)
{
    (void)state;
    static const uint32_t NUMBERS[] = {1, 2, 4, 7, 8, 9, 16, 18, 40, 76, 100};
    static uint32_t table[1024];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t e = 0; e < COUNT(NUMBERS); e++) {
        uint32_t n = NUMBERS[e];
        bool has[100] = {false};
        qr_set_order set = make_set(n);
        qr_kept_set kept = {0};
        uint32_t x = n;
        for (uint32_t step = 0; step < 2000; step++) {
            x = (x * 1103515245u + 12345u) & 0x7fffffff;
            uint32_t i = (x >> 8) % n;
            qr_set_order_resume(&set, &kept, table);
            if (has[i])
                qr_set_order_discard(&set, i);
            else
                qr_set_order_add(&set, i);
            has[i] = !has[i];
            kept = qr_set_order_keep(&set);
            assert_true(qr_set_order_is_valid(&kept, table, set.max_slots, n));
            const uint32_t *walked = qr_set_order_list(&set);
            for (uint32_t k = 0; k < set.used; k++)
                hash = mix(hash, walked[k]);
        }
    }
    assert_true(hash == UINT64_C(0x966de9c5a5404af0));
}

/* Planned for n, it holds n, for every n. */
static void room_for_as_many_as_planned(void **state)
{
    (void)state;
    for (uint32_t n = 0; n <= MAX_NUMBERS; n++) {
        qr_set_order set = make_set(n);
        for (uint32_t i = 0; i < n; i++)
            qr_set_order_add(&set, i * 3);
        assert_int_equal(set.used, n);
        assert_true(set.mask < set.max_slots);
        (void)qr_set_order_list(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_sets),
        cmocka_unit_test(all_orders_together),
        cmocka_unit_test(marks_are_taken_again),
        cmocka_unit_test(room_for_as_many_as_planned),
    };
    return cmocka_run_group_tests_name("sched_set_order", tests, NULL, NULL);
}
