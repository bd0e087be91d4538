/* events/test_index.c - the router's index and a naive one, operation by operation.
 *
 *      program [SEED]
 */
#include "base/unit.h"

#include <quire/wire.h>

enum { WORKERS = 5, NUM_HASHES = 40, MOST = 4096, OPERATIONS = 30000, LONGEST = 100 };

static uint64_t first_seed;

/* ---- the naive one --------------------------------------------------------- */

typedef struct naive_block {
    uint32_t worker;
    uint32_t group;
    uint32_t medium; /* in media */
    uint32_t hash;   /* in hashes */
    uint32_t copies;
} naive_block;

typedef struct naive_index {
    naive_block blocks[MOST];
    uint32_t count;
    uint64_t max_blocks;
    bool counts_copies;
    quire_index_stats stats;
} naive_index;

static const quire_bytes media[] = {{"GPU", 3}, {"CPU", 3}, {NULL, 0}, {"", 0}, {"GPU2", 4}};
static const uint32_t groups[] = {0, 1, 7, QUIRE_INDEX_NO_GROUP};
static unsigned char bytes_of[NUM_HASHES][LONGEST];
static quire_wire_hash hashes[NUM_HASHES];

/* Numbers, and bytes of all lengths; some differ in the last byte or in the length alone. */
static void make_hashes(void)
{
    for (uint32_t i = 0; i < NUM_HASHES; i++) {
        memset(bytes_of[i], (int)(i / 4), LONGEST);
        hashes[i] = (quire_wire_hash){.number = i / 2 * (UINT64_C(1) << (i % 60))};
        if (i % 2 == 0)
            continue;
        size_t len = (size_t[]){0, 8, 16, 31, 32, 33, 64, LONGEST}[i / 2 % 8];
        if (len > 0)
            bytes_of[i][len - 1] = (unsigned char)i;
        hashes[i] = (quire_wire_hash){.bytes = {bytes_of[i], len}};
    }
}

static bool same_hash(const quire_wire_hash *a, const quire_wire_hash *b)
{
    if ((a->bytes.data == NULL) != (b->bytes.data == NULL))
        return false;
    if (a->bytes.data == NULL)
        return a->number == b->number;
    return a->bytes.len == b->bytes.len && memcmp(a->bytes.data, b->bytes.data, a->bytes.len) == 0;
}

static naive_block *naive_find(naive_index *n, const naive_block *wanted)
{
    for (uint32_t i = 0; i < n->count; i++) {
        naive_block *b = &n->blocks[i];
        if (b->worker == wanted->worker && b->group == wanted->group &&
            b->medium == wanted->medium && same_hash(&hashes[b->hash], &hashes[wanted->hash]))
            return b;
    }
    return NULL;
}

static void naive_store(naive_index *n, const naive_block *wanted)
{
    naive_block *b = naive_find(n, wanted);
    if (b == NULL && n->count == n->max_blocks) {
        n->stats.num_dropped++;
        return;
    }
    n->stats.num_stored++;
    if (b == NULL) {
        n->blocks[n->count] = *wanted;
        n->blocks[n->count++].copies = 1;
    } else if (n->counts_copies) {
        b->copies++;
    }
}

static void naive_remove(naive_index *n, const naive_block *wanted)
{
    naive_block *b = naive_find(n, wanted);
    n->stats.num_unknown += b == NULL;
    n->stats.num_removed += b != NULL;
    if (b != NULL && --b->copies == 0)
        *b = n->blocks[--n->count];
}

static void naive_clear(naive_index *n, uint32_t worker)
{
    for (uint32_t i = n->count; i > 0; i--) {
        if (n->blocks[i - 1].worker == worker)
            n->blocks[i - 1] = n->blocks[--n->count];
    }
}

static uint32_t naive_match(naive_index *n, const uint32_t *asked, uint32_t num_asked,
                            uint32_t worker, uint32_t group, uint32_t medium)
{
    for (uint32_t i = 0; i < num_asked; i++) {
        bool has = false;
        for (uint32_t k = 0; k < n->count && !has; k++) {
            const naive_block *b = &n->blocks[k];
            has = b->worker == worker && (b->group == group || b->group == QUIRE_INDEX_NO_GROUP) &&
                  (media[medium].data == NULL || b->medium == medium) &&
                  same_hash(&hashes[b->hash], &hashes[asked[i]]);
        }
        if (!has)
            return i;
    }
    return num_asked;
}

/* ---- both ------------------------------------------------------------------ */

typedef struct index_pair {
    uint64_t random;
    quire_index *index;
    naive_index *naive;
    uint32_t num_visited;
    uint32_t visited_worker;
} index_pair;

static uint32_t below(index_pair *p, uint32_t n)
{
    return unit_random_below(&p->random, n);
}

static void apply_random(index_pair *p)
{
    enum { MOST_IN_EVENT = 4 };
    naive_block b = {.worker = below(p, WORKERS),
                     .group = groups[below(p, COUNT(groups))],
                     .medium = below(p, COUNT(media))};
    quire_wire_hash listed[MOST_IN_EVENT];
    quire_wire_event e = {.size = sizeof(quire_wire_event),
                          .kind = below(p, 2) == 0 ? QUIRE_WIRE_STORED : QUIRE_WIRE_REMOVED,
                          .hashes = listed,
                          .num_hashes = below(p, MOST_IN_EVENT + 1),
                          .medium = media[b.medium],
                          .has_group = b.group != QUIRE_INDEX_NO_GROUP,
                          .group = b.group};
    for (uint32_t i = 0; i < e.num_hashes; i++) {
        b.hash = below(p, NUM_HASHES);
        listed[i] = hashes[b.hash];
        if (e.kind == QUIRE_WIRE_STORED)
            naive_store(p->naive, &b);
        else
            naive_remove(p->naive, &b);
    }
    assert_int_equal(quire_index_apply(p->index, b.worker, &e), QUIRE_OK);
}

static void clear_random(index_pair *p)
{
    uint32_t worker = below(p, WORKERS);
    quire_wire_event cleared = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_CLEARED};
    quire_wire_event other = {.size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_OTHER};
    naive_clear(p->naive, worker);
    if (below(p, 2) == 0)
        assert_int_equal(quire_index_clear(p->index, worker), QUIRE_OK);
    else
        assert_int_equal(quire_index_apply(p->index, worker, &cleared), QUIRE_OK);
    assert_int_equal(quire_index_apply(p->index, worker, &other), QUIRE_OK);
}

static void match_random(index_pair *p)
{
    enum { MOST_ASKED = 5 };
    uint32_t asked[MOST_ASKED];
    quire_wire_hash listed[MOST_ASKED];
    uint32_t num_blocks[WORKERS];
    uint32_t num_asked = below(p, MOST_ASKED + 1);
    uint32_t group = groups[below(p, COUNT(groups))];
    uint32_t medium = below(p, COUNT(media));
    for (uint32_t i = 0; i < num_asked; i++) {
        asked[i] = below(p, NUM_HASHES);
        listed[i] = hashes[asked[i]];
    }
    assert_int_equal(
        quire_index_match(p->index, listed, num_asked, group, media[medium], num_blocks), QUIRE_OK);
    for (uint32_t worker = 0; worker < WORKERS; worker++)
        assert_int_equal(num_blocks[worker],
                         naive_match(p->naive, asked, num_asked, worker, group, medium));
}

static uint32_t find_named(const quire_wire_hash *hash)
{
    uint32_t i = 0;
    while (i < NUM_HASHES && !same_hash(&hashes[i], hash))
        i++;
    assert_true(i < NUM_HASHES);
    return i;
}

static void compare_block(void *user, const quire_wire_hash *hash, uint32_t group,
                          quire_bytes medium, uint32_t copies)
{
    index_pair *p = user;
    uint32_t m = 0;
    while (m < COUNT(media) &&
           ((medium.data == NULL) != (media[m].data == NULL) || medium.len != media[m].len ||
            (medium.len > 0 && memcmp(medium.data, media[m].data, medium.len) != 0)))
        m++;
    assert_true(m < COUNT(media));
    naive_block wanted = {
        .worker = p->visited_worker, .group = group, .medium = m, .hash = find_named(hash)};
    const naive_block *b = naive_find(p->naive, &wanted);
    assert_non_null(b);
    assert_int_equal(b->copies, copies);
    p->num_visited++;
}

static void compare_all(index_pair *p)
{
    const quire_index_stats *stats = quire_index_get_stats(p->index);
    p->naive->stats.num_blocks = p->naive->count;
    assert_memory_equal(stats, &p->naive->stats, sizeof stats);
    p->num_visited = 0;
    for (p->visited_worker = 0; p->visited_worker < WORKERS; p->visited_worker++)
        quire_index_visit(p->index, p->visited_worker, compare_block, p);
    assert_int_equal(p->num_visited, p->naive->count);
}

static void run_pair(uint64_t seed, bool counts_copies, uint64_t max_blocks)
{
    static naive_index naive;
    index_pair p = {.random = seed, .naive = &naive};
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    memset(&naive, 0, sizeof naive);
    naive.counts_copies = counts_copies;
    naive.max_blocks = max_blocks;
    config.count_copies = counts_copies;
    config.max_blocks = max_blocks;
    config.max_workers = WORKERS;
    assert_int_equal(quire_index_create(&config, &p.index), QUIRE_OK);
    for (uint32_t i = 0; i < OPERATIONS; i++) {
        uint32_t choice = below(&p, 1000);
        if (choice < 600)
            apply_random(&p);
        else if (choice < 998)
            match_random(&p);
        else
            clear_random(&p);
        if (i % 64 == 0)
            compare_all(&p);
    }
    compare_all(&p);
    quire_index_destroy(p.index);
}

static void answers_as_a_naive_one(void **state)
{
    (void)state;
    make_hashes();
    run_pair(first_seed, true, MOST);
    run_pair(first_seed + 1, false, MOST);
    run_pair(first_seed + 2, true, 50); /* drops */
    run_pair(first_seed + 3, false, 1);
}

/* ---- size ------------------------------------------------------------------ */

/* Grows far beyond where it began; workers share most hashes and go one by one. */
static void grows_and_forgets(void **state)
{
    (void)state;
#if defined(QUIRE_HOSTILE)
    enum { BLOCKS = 3000, NUM_WORKERS = 4, FEWER = 50 };
#else
    enum { BLOCKS = 60000, NUM_WORKERS = 4, FEWER = 1000 };
#endif
    quire_index *index;
    uint32_t num_blocks[64];
    assert_int_equal(quire_index_create(NULL, &index), QUIRE_OK);
    static quire_wire_hash asked[BLOCKS];
    for (uint32_t i = 0; i < BLOCKS; i++)
        asked[i] = (quire_wire_hash){.number = (uint64_t)i << 40}; /* all alike in the low bits */
    quire_wire_event e = {.size = sizeof(quire_wire_event),
                          .kind = QUIRE_WIRE_STORED,
                          .hashes = asked,
                          .medium = {"GPU", 3}};
    for (uint32_t worker = 0; worker < NUM_WORKERS; worker++) {
        e.num_hashes = BLOCKS - worker * FEWER;
        assert_int_equal(quire_index_apply(index, worker, &e), QUIRE_OK);
    }
    for (uint32_t gone = 0; gone <= NUM_WORKERS; gone++) {
        uint64_t sum = 0;
        assert_int_equal(
            quire_index_match(index, asked, BLOCKS, 0, (quire_bytes){NULL, 0}, num_blocks),
            QUIRE_OK);
        for (uint32_t worker = 0; worker < NUM_WORKERS; worker++) {
            assert_int_equal(num_blocks[worker], worker < gone ? 0 : BLOCKS - worker * FEWER);
            sum += num_blocks[worker];
        }
        assert_int_equal(quire_index_get_stats(index)->num_blocks, sum);
        if (gone < NUM_WORKERS)
            assert_int_equal(quire_index_clear(index, gone), QUIRE_OK);
    }
    quire_index_destroy(index);
}

/* ---- limits ---------------------------------------------------------------- */

static void keeps_its_limits(void **state)
{
    (void)state;
    enum { TOO_LONG = 70000, MOST_BYTES = 4096 };
    static unsigned char bytes[TOO_LONG];
    static const size_t lengths[] = {MOST_BYTES, MOST_BYTES + 1, 65535, 65536, TOO_LONG};
    quire_index *index;
    quire_wire_hash hash = {0};
    quire_wire_event e = {.size = sizeof(quire_wire_event),
                          .kind = QUIRE_WIRE_STORED,
                          .hashes = &hash,
                          .num_hashes = 1};
    uint32_t num_blocks[64];
    assert_int_equal(quire_index_create(NULL, &index), QUIRE_OK);
    assert_int_equal(quire_index_apply(index, 0, &e), QUIRE_OK); /* a number, for all lengths */
    for (size_t i = 0; i < COUNT(lengths); i++) {
        hash.bytes = (quire_bytes){bytes, lengths[i]};
        assert_int_equal(quire_index_apply(index, 0, &e), QUIRE_OK);
        assert_int_equal(quire_index_match(index, &hash, 1, 0, e.medium, num_blocks), QUIRE_OK);
        assert_int_equal(num_blocks[0], lengths[i] <= MOST_BYTES);
        assert_int_equal(quire_index_get_stats(index)->num_dropped, i);
    }
    hash = (quire_wire_hash){.number = 1};
    for (uint32_t i = 0; i < 80; i++) { /* the absent one and 63 more are known */
        char name[8];
        int len = snprintf(name, sizeof name, "M%u", i);
        e.medium = (quire_bytes){name, (size_t)len};
        assert_int_equal(quire_index_apply(index, 1, &e), QUIRE_OK);
    }
    assert_int_equal(quire_index_get_stats(index)->num_dropped, 4 + 80 - 63);
    e.medium = (quire_bytes){bytes, 65};
    assert_int_equal(quire_index_apply(index, 1, &e), QUIRE_OK);
    assert_int_equal(quire_index_get_stats(index)->num_dropped, 5 + 80 - 63);
    quire_index_destroy(index);
}

static void refuses(void **state)
{
    (void)state;
    quire_index *index = NULL;
    quire_index_config config = QUIRE_INDEX_CONFIG_INIT;
    quire_wire_event e = {
        .size = sizeof(quire_wire_event), .kind = QUIRE_WIRE_STORED, .num_hashes = 1};
    uint32_t num_blocks[1];
    config.max_workers = 65536;
    assert_int_equal(quire_index_create(&config, &index), QUIRE_E_CONFIG);
    config.max_workers = 1;
    config.max_blocks = UINT64_C(1) << 40;
    assert_int_equal(quire_index_create(&config, &index), QUIRE_E_CONFIG);
    config.max_blocks = 0;
    assert_int_equal(quire_index_create(&config, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_index_create(&config, &index), QUIRE_OK);
    assert_int_equal(quire_index_apply(index, 0, &e), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_index_apply(index, 0, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_index_apply(NULL, 0, &e), QUIRE_E_ARGUMENT);
    e.num_hashes = 0;
    assert_int_equal(quire_index_apply(index, 1, &e), QUIRE_E_RANGE);
    assert_int_equal(quire_index_clear(index, 1), QUIRE_E_RANGE);
    assert_int_equal(quire_index_clear(NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_index_match(index, NULL, 1, 0, e.medium, num_blocks), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_index_match(index, NULL, 0, 0, e.medium, num_blocks), QUIRE_OK);
    assert_int_equal(num_blocks[0], 0);
    assert_null(quire_index_get_stats(NULL));
    quire_index_visit(NULL, 0, NULL, NULL);
    quire_index_destroy(index);
    quire_index_destroy(NULL);
}

int main(int argc, char **argv)
{
    first_seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_as_a_naive_one), cmocka_unit_test(grows_and_forgets),
        cmocka_unit_test(keeps_its_limits), cmocka_unit_test(refuses)};
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
