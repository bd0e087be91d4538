/* obs/test_residency_parity.c - the life of blocks, as vLLM's collector sees it.
 *
 *      program [FILE]      data/residency.txt, or a fresh one of record_residency.py
 *
 * The workload of record_residency.py over the real pool: each case ends with the histograms that
 * vLLM 0.20.0 had, bucket by bucket, and the same sums in nanoseconds.
 */
#include "base/unit.h"
#include "block/pool.h"

enum {
    SEATS = 8,
    MAX_BLOCKS = 512,
    MAX_HELD = 4096,
    MAX_KEYS = 1 << 14,
    KEY_BYTES = 32,
    RECENT = 32
};

static const char *data_path;

typedef struct seat {
    quire_block blocks[MAX_BLOCKS];
    uint32_t count;
    uint32_t num_cached;
    uint64_t family;
} seat;

typedef struct world {
    uint64_t random;
    uint32_t num_blocks;
    uint32_t pace;
    bool caching;
    quire_pool *pool;
    qr_metrics metrics;
    qr_residency residency;
    void *memory;
    seat seats[SEATS];
    uint64_t num_families;
    quire_block held[MAX_HELD];
    uint32_t num_held;
    unsigned char keys[MAX_KEYS][KEY_BYTES];
    uint32_t num_keys;
} world;

static void carve_world(world *w, qr_arena *arena, double rate)
{
    qr_metrics_shape shape = {.max_requests = 1, .max_model_len = 4096, .has_residency = true};
    qr_metrics_carve(&w->metrics, arena, &shape);
    qr_residency_carve(&w->residency, arena, w->num_blocks, rate);
}

static void open_world(world *w, uint64_t seed, double rate)
{
    quire_pool_config config = QUIRE_POOL_CONFIG_INIT;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    config.num_blocks = w->num_blocks;
    config.enable_caching = w->caching ? QUIRE_ON : QUIRE_OFF;
    assert_int_equal(quire_pool_create(&config, NULL, &w->pool), QUIRE_OK);
    qr_arena plan = qr_arena_plan();
    carve_world(w, &plan, rate);
    w->memory = aligned_alloc(64, plan.used);
    qr_arena arena = qr_arena_carve(w->memory, plan.used);
    carve_world(w, &arena, rate);
    qr_metrics_init(&w->metrics);
    qr_residency_init(&w->residency, &w->metrics, rate, (uint64_t[]){seed ^ 0x5eed, 7, 9});
    w->pool->residency = &w->residency;
    w->random = seed;
    for (uint32_t i = 0; i < SEATS; i++)
        w->seats[i].family = i;
    w->num_families = SEATS;
}

static void close_world(world *w)
{
    quire_pool_destroy(w->pool);
    free(w->memory);
}

/* ---- what a step does ------------------------------------------------------ */

static void free_seat(world *w, seat *s)
{
    qr_pool_free_row(w->pool, s->blocks, s->count);
    s->count = 0;
    s->num_cached = 0;
    s->family = w->num_families++;
}

static void free_held(world *w)
{
    for (uint32_t i = 0; i < w->num_held; i++)
        assert_int_equal(quire_pool_free_blocks(w->pool, &w->held[i], 1), QUIRE_OK);
    w->num_held = 0;
}

static void take(world *w, seat *s, uint32_t n)
{
    if (n > quire_pool_get_num_free_blocks(w->pool)) {
        free_seat(w, s);
        return;
    }
    assert_int_equal(quire_pool_get_new_blocks(w->pool, n, s->blocks + s->count), QUIRE_OK);
    s->count += n;
}

static void cache_seat(world *w, seat *s, uint64_t share)
{
    unsigned char keys[MAX_BLOCKS][KEY_BYTES] = {{0}};
    uint32_t full = s->num_cached + (uint32_t)(share % (s->count - s->num_cached + 1));
    if (full == s->num_cached || !w->caching)
        return;
    for (uint64_t i = 0; i < full; i++) {
        memcpy(keys[i], &s->family, 8);
        memcpy(keys[i] + 8, &i, 8);
    }
    quire_cache_full_params p = {.size = sizeof(quire_cache_full_params),
                                 .blocks = s->blocks,
                                 .num_cached_blocks = s->num_cached,
                                 .num_full_blocks = full,
                                 .hashes = keys,
                                 .hash_len = KEY_BYTES,
                                 .num_hashes = full,
                                 .block_size = 16};
    assert_int_equal(quire_pool_cache_full_blocks(w->pool, &p), QUIRE_OK);
    for (uint32_t i = s->num_cached; i < full; i++) {
        assert_true(w->num_keys < MAX_KEYS);
        memcpy(w->keys[w->num_keys++], keys[i], KEY_BYTES);
    }
    s->num_cached = full;
}

static void hit(world *w, uint64_t place)
{
    quire_block block;
    if (w->num_keys == 0)
        return;
    uint32_t group = 0;
    uint32_t recent = w->num_keys < RECENT ? w->num_keys : RECENT;
    quire_bytes key = {w->keys[w->num_keys - recent + place % recent], KEY_BYTES};
    int found = quire_pool_get_cached_block(w->pool, key, &group, 1, &block);
    if (found != QUIRE_OK)
        return;
    assert_int_equal(quire_pool_touch(w->pool, &block, 1), QUIRE_OK);
    assert_true(w->num_held < MAX_HELD);
    w->held[w->num_held++] = block;
}

/* Each once, as in a set. */
static void evict(world *w, uint64_t n)
{
    quire_block blocks[3];
    uint32_t count = 0;
    for (uint64_t i = 0; i < n; i++) {
        quire_block block = 1 + unit_random_below(&w->random, w->num_blocks - 1);
        bool is_there = false;
        for (uint32_t k = 0; k < count; k++)
            is_there |= blocks[k] == block;
        blocks[count] = block;
        count += !is_there;
    }
    assert_int_equal(quire_pool_evict_blocks(w->pool, blocks, count), QUIRE_OK);
}

static void reset(world *w)
{
    for (uint32_t i = 0; i < SEATS; i++)
        free_seat(w, &w->seats[i]);
    free_held(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
}

static void step(world *w)
{
    uint64_t unit = 1;
    for (uint32_t scale = w->pace + unit_random_below(&w->random, 4); scale > 0; scale--)
        unit *= 10;
    w->metrics.now_ns += (1 + unit_random_below(&w->random, 1000)) * unit;
    uint32_t op = unit_random_below(&w->random, 20);
    seat *s = &w->seats[unit_random_below(&w->random, SEATS)];
    uint64_t n = unit_random(&w->random) >> 40;
    if (op < 7)
        take(w, s, 1 + (uint32_t)(n % 12));
    else if (op < 11)
        cache_seat(w, s, n);
    else if (op < 16)
        for (uint64_t i = 0; i < 1 + n % 4; i++)
            hit(w, n + i * i);
    else if (op < 17)
        free_seat(w, s);
    else if (op < 18)
        free_held(w);
    else if (op < 19)
        evict(w, 1 + n % 3);
    else if (n % 8 == 0)
        reset(w);
}

/* ---- cases ----------------------------------------------------------------- */

static uint64_t compare_histogram(FILE *file, const world *w, qr_metric metric)
{
    unsigned long long expected;
    uint64_t total = 0;
    assert_int_equal(fscanf(file, "%llu", &expected), 1);
    assert_true((double)expected == qr_metrics_sum(&w->metrics, metric));
    for (uint32_t i = 0; i <= w->metrics.count[metric]; i++) {
        assert_int_equal(fscanf(file, "%llu", &expected), 1);
        assert_int_equal(expected, qr_metrics_get(&w->metrics, metric, i));
        total += expected;
    }
    return total;
}

static void histograms_equal_vllms(void **state)
{
    (void)state;
    FILE *file = fopen(data_path, "r");
    assert_non_null(file);
    char line[256];
    while (fgetc(file) == '#')
        assert_non_null(fgets(line, sizeof line, file));
    fseek(file, -1, SEEK_CUR);
    world *w = malloc(sizeof *w);
    unsigned long long seed;
    double rate;
    unsigned caching;
    unsigned num_blocks;
    unsigned pace;
    unsigned steps;
    uint32_t cases = 0;
    uint64_t compared = 0;
    while (fscanf(file, " case %llu %u %lf %u %u %u", &seed, &num_blocks, &rate, &caching, &pace,
                  &steps) == 6) {
        memset(w, 0, sizeof *w);
        w->num_blocks = num_blocks;
        w->caching = caching != 0;
        w->pace = pace;
        open_world(w, seed, rate);
        for (uint32_t i = 0; i < steps; i++)
            step(w);
        compared += compare_histogram(file, w, QR_METRIC_BLOCK_LIFETIME);
        compared += compare_histogram(file, w, QR_METRIC_BLOCK_IDLE);
        compared += compare_histogram(file, w, QR_METRIC_BLOCK_REUSE_GAP);
        assert_int_equal(qr_metrics_get(&w->metrics, QR_METRIC_UNSAMPLED, 0), 0);
        close_world(w);
        cases++;
    }
    assert_true(feof(file));
    assert_true(cases > 0);
    printf("residency: %u cases, %llu observations, 0 differences\n", cases,
           (unsigned long long)compared);
    free(w);
    fclose(file);
}

int main(int argc, char **argv)
{
    data_path = argc > 1 ? argv[1] : QUIRE_OBS_DATA "/residency.txt";
    const struct CMUnitTest tests[] = {cmocka_unit_test(histograms_equal_vllms)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
