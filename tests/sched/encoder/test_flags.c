/* sched/encoder/test_flags.c - chains of flags against plain arrays of bytes, and the walker. */
#include "base/unit.h"
#include "sched/encoder/flags.h"

enum { CHUNKS = 24, CHAINS = 5, MAX_FLAGS = CHUNKS * QR_FLAGS_IN_CHUNK, ROUNDS = 4000 };

static qr_flag_store store;
static qr_flag_chunk memory[CHUNKS];

/* A chain, and the same flags as bytes. */
typedef struct pair {
    qr_flag_chain chain;
    uint8_t bytes[MAX_FLAGS];
} pair;

static pair pairs[CHAINS];

static void open_store(void)
{
    memset(pairs, 0, sizeof pairs);
    store = (qr_flag_store){.chunks = memory, .num_chunks = CHUNKS};
    qr_flags_init(&store);
}

static uint32_t size_of(const pair *p)
{
    return p->chain.num_chunks * QR_FLAGS_IN_CHUNK;
}

static void check_all(void)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < CHAINS; i++) {
        assert_true(qr_flag_chain_is_valid(&store, &pairs[i].chain));
        used += pairs[i].chain.num_chunks;
    }
    assert_int_equal(used + store.num_free, CHUNKS);
    assert_true(qr_flags_are_valid(&store));
}

static void take(pair *p, uint32_t num_chunks)
{
    bool has_room = num_chunks <= store.num_free;
    if (p->chain.num_chunks > 0)
        return;
    assert_int_equal(qr_flags_take(&store, &p->chain, num_chunks), has_room);
    memset(p->bytes, 0, sizeof p->bytes); /* chunks that were used before are 0 again */
}

static void join(pair *p, pair *more)
{
    if (p == more)
        return;
    memcpy(p->bytes + size_of(p), more->bytes, size_of(more));
    qr_flags_join(&store, &p->chain, &more->chain);
    assert_int_equal(more->chain.num_chunks, 0);
}

static void write(pair *p, uint64_t *random)
{
    uint32_t first = unit_random_below(random, size_of(p) + 1);
    uint32_t n = unit_random_below(random, size_of(p) - first + 1);
    if (n > 1 && unit_random_below(random, 3) == 0)
        n = 1;
    static uint8_t from[MAX_FLAGS];
    for (uint32_t i = 0; i < n; i++) {
        from[i] = unit_random_below(random, 3) == 0 ? (uint8_t)(1 + i) : 0;
        p->bytes[first + i] |= from[i] != 0;
    }
    qr_flags_write(&store, &p->chain, first, from, n);
}

static void count(const pair *p, uint64_t *random)
{
    uint32_t first = unit_random_below(random, size_of(p) + 1);
    uint32_t n = unit_random_below(random, size_of(p) - first + 1);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < n; i++)
        expected += p->bytes[first + i];
    assert_int_equal(qr_flags_count(&store, &p->chain, first, n), expected);
}

static void chains_are_as_arrays_of_bytes(void **state)
{
    (void)state;
    uint64_t random = 5;
    open_store();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        pair *p = &pairs[unit_random_below(&random, CHAINS)];
        switch (unit_random_below(&random, 6)) {
        case 0:
            take(p, unit_random_below(&random, 8));
            break;
        case 1:
            join(p, &pairs[unit_random_below(&random, CHAINS)]);
            break;
        case 2:
            qr_flags_release(&store, &p->chain);
            assert_int_equal(p->chain.num_chunks, 0);
            break;
        case 3:
            write(p, &random);
            break;
        default:
            count(p, &random);
        }
        check_all();
    }
}

static void a_store_without_room_changes_nothing(void **state)
{
    (void)state;
    open_store();
    assert_true(qr_flags_take(&store, &pairs[0].chain, CHUNKS - 1));
    assert_false(qr_flags_take(&store, &pairs[1].chain, 2));
    assert_int_equal(pairs[1].chain.num_chunks, 0);
    check_all();
    assert_true(qr_flags_take(&store, &pairs[1].chain, 1));
    assert_true(qr_flags_take(&store, &pairs[2].chain, 0));
    assert_int_equal(store.num_free, 0);
    check_all();
}

static void the_walker_finds_damage(void **state)
{
    (void)state;
    open_store();
    assert_true(qr_flags_take(&store, &pairs[0].chain, 3));
    qr_flag_chain wrong = pairs[0].chain;
    wrong.num_chunks = 2;
    assert_false(qr_flag_chain_is_valid(&store, &wrong));
    wrong.num_chunks = 4;
    assert_false(qr_flag_chain_is_valid(&store, &wrong));
    wrong = (qr_flag_chain){.first = CHUNKS, .num_chunks = 1};
    assert_false(qr_flag_chain_is_valid(&store, &wrong));
    store.num_free--;
    assert_false(qr_flags_are_valid(&store));
    store.num_free += 2;
    assert_false(qr_flags_are_valid(&store));
    store.num_free = CHUNKS + 1;
    assert_false(qr_flags_are_valid(&store));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_as_arrays_of_bytes),
        cmocka_unit_test(a_store_without_room_changes_nothing),
        cmocka_unit_test(the_walker_finds_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
