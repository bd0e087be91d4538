/* cache/test_host.c - requests that are moved to host memory and back, without a scheduler.
 *
 *      1024 -> 1017 -> 1024 -> 1017     the free blocks of an engine with one request of 7 blocks
 *      storm                            prompts with hits, forks, moves and frees in any order, in
 *                                       a pool and a host buffer that are too small: a request
 *                                       that reads a value not its own has lost its blocks
 *
 *      cache_host [SEED]
 */
#include "cache/shadow.h"

#include "model/plain.h"

#if defined(MODEL_SLOW)
enum { STORM_STEPS = 1500 };
#else
enum { STORM_STEPS = 12000 };
#endif

static uint64_t seed;
static shadow *shade; /* too large for a stack */

static quire_cache_totals totals_of(const quire_cache *cache)
{
    quire_cache_totals totals = QUIRE_CACHE_TOTALS_INIT;
    assert_int_equal(quire_cache_get_totals(cache, &totals), QUIRE_OK);
    return totals;
}

/* ---- the way there and back ------------------------------------------------- */

static void out_and_in(void **state)
{
    (void)state;
    quire_group_config full = kit_full(16);
    quire_cache_config config = kit_config(&full, 1, 1025); /* and the null block */
    config.num_host_blocks = 2048;
    shadow_open(shade, &config, seed);
    shadow_seq *q = shadow_new(shade);
    shadow_prompt(shade, q, 0, 100);
    assert_int_equal(shadow_prefill(shade, q), QUIRE_OK);
    shadow_step(shade);
    assert_int_equal(quire_pool_get_num_free_blocks(shade->pool), 1017);
    assert_int_equal(quire_cache_get_location(shade->cache, q->r.seq), QUIRE_LOCATION_DEVICE);
    quire_cache_totals t = totals_of(shade->cache);
    assert_true(t.num_seqs == 1 && t.num_table_blocks == 7 && t.num_free_host_blocks == 2048);

    assert_int_equal(shadow_move_out(shade, q), QUIRE_OK);
    assert_int_equal(shade->num_moves, 7);
    assert_int_equal(quire_pool_get_num_free_blocks(shade->pool), 1024);
    assert_int_equal(quire_cache_get_location(shade->cache, q->r.seq), QUIRE_LOCATION_HOST);
    t = totals_of(shade->cache);
    assert_true(t.num_seqs == 0 && t.num_moved_out == 1 && t.num_table_blocks == 0);
    assert_true(t.num_host_blocks == 7 && t.num_free_host_blocks == 2041);
    uint32_t evicted = 0; /* else the prefix cache would bring six of them back */
    assert_int_equal(quire_pool_evict_cached(shade->pool, UINT32_MAX, &evicted), QUIRE_OK);
    assert_int_equal(evicted, 6);

    assert_int_equal(shadow_move_in(shade, q), QUIRE_OK);
    assert_int_equal(shade->num_moves, 14);
    assert_int_equal(quire_pool_get_num_free_blocks(shade->pool), 1017);
    assert_int_equal(quire_cache_get_location(shade->cache, q->r.seq), QUIRE_LOCATION_DEVICE);
    t = totals_of(shade->cache);
    assert_true(t.num_seqs == 1 && t.num_moved_out == 0 && t.num_table_blocks == 7);
    assert_true(t.num_host_blocks == 0 && t.num_free_host_blocks == 2048);
    shadow_verify(shade);
    shadow_close(shade);
}

/* What the prefix cache still has is shared, and not copied. */
static void a_hit_saves_copies(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    config.num_host_blocks = 8;
    shadow_open(shade, &config, seed);
    shadow_seq *q = shadow_new(shade);
    shadow_prompt(shade, q, 0, 14);
    assert_int_equal(shadow_prefill(shade, q), QUIRE_OK);
    shadow_step(shade);
    assert_int_equal(shadow_move_out(shade, q), QUIRE_OK);
    assert_int_equal(shade->num_moves, 4);
    assert_int_equal(shadow_move_in(shade, q), QUIRE_OK);
    assert_int_equal(shade->num_moves, 5); /* the block that is not full */
    shadow_verify(shade);
    shadow_close(shade);
}

/* A block that waits for its copy is read from where its content lies, and the copy is dropped. */
static void a_pending_copy_is_read_at_its_source(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, 20);
    config.num_host_blocks = 8;
    config.max_copies = 4;
    shadow_open(shade, &config, seed);
    shadow_seq *parent = shadow_new(shade);
    shadow_prompt(shade, parent, 0, 6);
    assert_int_equal(shadow_prefill(shade, parent), QUIRE_OK);
    shadow_step(shade);
    shadow_seq *child = shadow_new(shade);
    assert_int_equal(shadow_fork(shade, parent, child), QUIRE_OK);
    assert_int_equal(quire_cache_copy_on_write(shade->cache, child->r.seq, 5, 1), QUIRE_OK);
    assert_int_equal(totals_of(shade->cache).num_copies, 1);
    assert_int_equal(shadow_move_out(shade, child), QUIRE_OK);
    assert_int_equal(totals_of(shade->cache).num_copies, 0);
    assert_int_equal(shadow_move_in(shade, child), QUIRE_OK);
    shadow_verify(shade);
    shadow_close(shade);
}

/* ---- answers ---------------------------------------------------------------- */

/* A request of 6 computed tokens in blocks of 4, and so many blocks and slots. */
static shadow_seq *open_one(uint32_t num_blocks, uint32_t num_slots)
{
    quire_group_config full = kit_full(4);
    quire_cache_config config = kit_config(&full, 1, num_blocks);
    config.num_host_blocks = num_slots;
    config.max_requests = 2;
    shadow_open(shade, &config, seed);
    shadow_seq *q = shadow_new(shade);
    shadow_prompt(shade, q, 0, 6);
    assert_int_equal(shadow_prefill(shade, q), QUIRE_OK);
    shadow_step(shade);
    return q;
}

static void refusals_of_move_out(void **state)
{
    (void)state;
    const quire_block_move *moves = NULL;
    uint32_t n = 7;
    shadow_seq *q = open_one(10, 0);
    assert_int_equal(quire_cache_move_out(shade->cache, &q->r, &moves, &n), QUIRE_E_DISABLED);
    shadow_close(shade);
    q = open_one(10, 1);
    assert_int_equal(quire_cache_move_out(shade->cache, &q->r, &moves, &n), QUIRE_FULL);
    quire_cache_request r = q->r;
    r.num_computed_tokens = 0;
    assert_int_equal(quire_cache_move_out(shade->cache, &r, &moves, &n), QUIRE_MISS);
    r.num_computed_tokens = 9;
    assert_int_equal(quire_cache_move_out(shade->cache, &r, &moves, &n), QUIRE_E_RANGE);
    r = q->r;
    r.seq = 0;
    assert_int_equal(quire_cache_move_out(shade->cache, &r, &moves, &n), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_move_out(shade->cache, NULL, &moves, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_move_out(shade->cache, &q->r, NULL, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_move_out(shade->cache, &q->r, &moves, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_move_out(NULL, &q->r, &moves, &n), QUIRE_E_ARGUMENT);
    assert_true(moves == NULL && n == 7);
    assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
    shadow_verify(shade);
    shadow_close(shade);
}

static void refusals_of_move_in(void **state)
{
    (void)state;
    const quire_block_move *moves = NULL;
    uint32_t n = 7;
    shadow_seq *q = open_one(5, 2); /* 4 blocks */
    assert_int_equal(quire_cache_can_move_in(shade->cache, &q->r), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_move_in(shade->cache, &q->r, &moves, &n), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(shadow_move_out(shade, q), QUIRE_OK);
    quire_cache_request r = q->r;
    r.num_computed_tokens = 5;
    assert_int_equal(quire_cache_move_in(shade->cache, &r, &moves, &n), QUIRE_E_ARGUMENT);
    r = q->r;
    r.num_hashes = 0;
    assert_int_equal(quire_cache_move_in(shade->cache, &r, &moves, &n), QUIRE_E_RANGE);
    quire_block taken[4];
    assert_int_equal(quire_pool_get_new_blocks(shade->pool, 3, taken), QUIRE_OK);
    assert_int_equal(quire_cache_can_move_in(shade->cache, &q->r), QUIRE_NO_SPACE);
    assert_int_equal(quire_cache_move_in(shade->cache, &q->r, &moves, &n), QUIRE_NO_SPACE);
    assert_true(moves == NULL && n == 7);
    assert_int_equal(quire_cache_get_location(shade->cache, q->r.seq), QUIRE_LOCATION_HOST);
    assert_int_equal(quire_pool_free_blocks(shade->pool, taken, 3), QUIRE_OK);
    assert_int_equal(quire_cache_can_move_in(shade->cache, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_move_in(shade->cache, &q->r, NULL, &n), QUIRE_E_ARGUMENT);
    assert_int_equal(shadow_move_in(shade, q), QUIRE_OK);
    shadow_verify(shade);
    shadow_close(shade);
}

/* Two requests have the rows, a third is out. */
static void no_row_to_come_back_to(void **state)
{
    (void)state;
    shadow_seq *q = open_one(20, 2);
    assert_int_equal(shadow_move_out(shade, q), QUIRE_OK);
    for (uint32_t i = 1; i < 3; i++) {
        shadow_seq *other = shadow_new(shade);
        shadow_prompt(shade, other, i, 3);
        assert_int_equal(shadow_prefill(shade, other), QUIRE_OK);
    }
    assert_int_equal(shadow_move_in(shade, q), QUIRE_FULL);
    shadow_close(shade); /* frees the slots of q */
}

static void a_moved_request_has_no_blocks(void **state)
{
    (void)state;
    shadow_seq *q = open_one(10, 2);
    quire_seq on_device = q->r.seq;
    assert_int_equal(shadow_move_out(shade, q), QUIRE_OK);
    quire_block_span span;
    quire_token_place place;
    quire_cache_request child = {.num_tokens = 1};
    const quire_block_move *moves;
    uint32_t n;
    quire_allocate_params one = {.size = sizeof(quire_allocate_params), .num_new_tokens = 1};
    quire_cache *cache = shade->cache;
    assert_int_equal(quire_cache_get_location(cache, on_device), QUIRE_LOCATION_NONE);
    assert_int_equal(quire_cache_get_blocks(cache, q->r.seq, &span), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_find_token(cache, q->r.seq, 0, 0, &place), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_allocate_slots(cache, &q->r, &one, NULL), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_can_allocate(cache, &q->r, &one), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_move_out(cache, &q->r, &moves, &n), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_fork(cache, &q->r, &child), QUIRE_E_DISABLED);
    assert_int_equal(quire_cache_reset_prefix_cache(cache), QUIRE_BUSY);
    quire_cache_request stale = q->r;
    shadow_free(shade, q);
    assert_int_equal(totals_of(cache).num_free_host_blocks, 2);
    assert_int_equal(quire_cache_free(cache, &stale), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_can_move_in(cache, &stale), QUIRE_E_UNKNOWN_SEQ);
    assert_int_equal(quire_cache_reset_prefix_cache(cache), QUIRE_OK);
    shadow_close(shade);
}

static void where_it_is_refused(void **state)
{
    (void)state;
    quire_group_config groups[] = {kit_full(4), kit_mamba(4, QUIRE_MAMBA_MODE_NONE, 0)};
    quire_cache_config config = kit_config(groups, 1, 10);
    quire_cache *cache = NULL;
    config.num_host_blocks = 4;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(quire_cache_create(&config, NULL, &cache), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "num_host_blocks is 4"));
    config = kit_config(groups + 1, 1, 10);
    config.num_host_blocks = 4;
    assert_int_equal(quire_cache_create(&config, NULL, &cache), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), "num_host_blocks is 4"));
    assert_null(cache);
}

/* ---- storms ----------------------------------------------------------------- */

typedef struct weather {
    uint64_t outs;
    uint64_t ins;
    uint64_t no_slots;
    uint64_t no_space;
    uint64_t freed_outside;
} weather;

static uint32_t below(uint32_t n)
{
    return unit_random_below(&shade->random, n);
}

static void begin_seq(shadow_seq *q)
{
    memset(&q->r, 0, sizeof q->r);
    q->r.hashes = q->hashes;
    q->is_delayed = false;
    shadow_prompt(shade, q, below(3), 1 + below(24));
    (void)shadow_prefill(shade, q);
}

static void storm_on_moved(shadow_seq *q, weather *w)
{
    if (below(8) == 0) {
        shadow_free(shade, q);
        w->freed_outside++;
        return;
    }
    int status = shadow_move_in(shade, q);
    assert_true(status == QUIRE_OK || status == QUIRE_NO_SPACE || status == QUIRE_FULL);
    w->ins += status == QUIRE_OK;
    w->no_space += status == QUIRE_NO_SPACE;
}

static void storm_on(shadow_seq *q, weather *w)
{
    uint32_t dice = below(10);
    if (q->r.seq == 0) {
        begin_seq(q);
    } else if (!shadow_has_blocks(shade, q)) {
        storm_on_moved(q, w);
    } else if (q->num_planned > 0) {
        return; /* what is being computed is neither freed nor moved */
    } else if (dice < 2) {
        shadow_seq *child = shadow_new(shade);
        if (child != NULL)
            (void)shadow_fork(shade, q, child);
    } else if (dice < 5 && shadow_is_idle(shade)) { /* a hit may be computed in this step */
        int status = shadow_move_out(shade, q);
        assert_true(status == QUIRE_OK || status == QUIRE_FULL);
        w->outs += status == QUIRE_OK;
        w->no_slots += status == QUIRE_FULL;
    } else if (dice < 8 && q->r.num_computed_tokens < 60) {
        (void)shadow_extend(shade, q, 1 + below(5));
    } else {
        shadow_free(shade, q);
    }
}

static void storm(const quire_group_config *groups, uint32_t num_groups, uint32_t num_blocks,
                  uint32_t num_slots, weather *w)
{
    quire_cache_config config = kit_config(groups, num_groups, num_blocks);
    config.max_copies = 64;
    config.max_requests = 12;
    config.num_host_blocks = num_slots;
    shadow_open(shade, &config, seed + num_blocks);
    shade->has_delays = true;
    for (uint32_t step = 0; step < STORM_STEPS; step++) {
        for (uint32_t i = below(6); i > 0; i--)
            storm_on(&shade->seqs[below(14)], w);
        shadow_step(shade);
        shadow_verify(shade);
        assert_int_equal(quire_cache_check(shade->cache), QUIRE_OK);
    }
    shadow_close(shade);
}

static void storms(void **state)
{
    (void)state;
    const quire_group_config full[] = {kit_full(4)};
    const quire_group_config mixed[] = {kit_full(4), kit_window(4, 6)};
    const quire_group_config window[] = {kit_window(2, 5)};
    weather w = {0};
    storm(full, 1, 40, 30, &w);
    storm(full, 1, 100, 12, &w);
    storm(mixed, 2, 60, 40, &w);
    storm(window, 1, 50, 20, &w);
    printf("storms: %llu out, %llu in, %llu without slots, %llu without blocks, %llu freed there\n",
           (unsigned long long)w.outs, (unsigned long long)w.ins, (unsigned long long)w.no_slots,
           (unsigned long long)w.no_space, (unsigned long long)w.freed_outside);
    assert_true(w.outs > 0 && w.ins > 0 && w.no_slots > 0 && w.no_space > 0 && w.freed_outside > 0);
}

static int setup(void **state)
{
    (void)state;
    shade = calloc(1, sizeof *shade);
    return shade == NULL;
}

static int teardown(void **state)
{
    (void)state;
    free(shade);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_and_in),
        cmocka_unit_test(a_hit_saves_copies),
        cmocka_unit_test(a_pending_copy_is_read_at_its_source),
        cmocka_unit_test(refusals_of_move_out),
        cmocka_unit_test(refusals_of_move_in),
        cmocka_unit_test(no_row_to_come_back_to),
        cmocka_unit_test(a_moved_request_has_no_blocks),
        cmocka_unit_test(where_it_is_refused),
        cmocka_unit_test(storms),
    };
    seed = unit_seed(argc, argv, 1);
    return cmocka_run_group_tests_name("cache_host", tests, setup, teardown);
}
