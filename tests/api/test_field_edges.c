/* Every field of the structs that calls on a live pool or cache take, at the edges of its range and
 * outside, one at a time and in pairs: no assertion, no wild access; after each call the walker
 * finds nothing; and a call that does not return QUIRE_OK has changed nothing.
 *
 * A count that says an array is longer than it is cannot be checked by any library: arrays here are
 * as long as the largest count that is accepted. */
#include "api/fields_kit.h"

#define N(name, least, most) ROW_NUMBER(TYPE, name, least, most)
#define R(name, least, most) ROW_REAL(TYPE, name, least, most)
#define F(name)              ROW_FLAG(TYPE, name)
#define A(name)              ROW_ANY(TYPE, name)

enum { LEN = 48, BLOCK = 4, DIGEST = 32 };

/* ---- the state of a pool and a cache, as far as it can be seen ---------------- */

enum { POOL_BLOCKS = 24, MOST_GROUPS = 2, NUM_SEQS = 3 };

typedef struct pool_state {
    quire_block_info blocks[POOL_BLOCKS];
    unsigned char hashes[POOL_BLOCKS][DIGEST];
    quire_block queue[POOL_BLOCKS];
    uint32_t num_free;
    uint32_t num_keys;
    quire_usage usage;
    uint64_t num_allocated;
} pool_state;

static void save_pool(const quire_pool *pool, pool_state *s)
{
    memset(s, 0, sizeof *s);
    for (quire_block b = 0; b < POOL_BLOCKS; b++) {
        quire_block_info info;
        assert_int_equal(quire_pool_get_block(pool, b, &info), QUIRE_OK);
        s->blocks[b].ref_cnt = info.ref_cnt;
        s->blocks[b].group_id = info.group_id;
        s->blocks[b].state = info.state;
        s->blocks[b].hash.len = info.hash.len;
        if (info.hash.data != NULL)
            memcpy(s->hashes[b], info.hash.data, info.hash.len < DIGEST ? info.hash.len : DIGEST);
    }
    s->num_free = quire_pool_get_all_free_blocks(pool, s->queue, POOL_BLOCKS);
    s->num_keys = quire_pool_get_counts(pool).num_keys;
    s->usage = quire_pool_get_usage(pool);
    s->num_allocated = quire_pool_get_counts(pool).num_allocated;
}

static void check_pool_same(const quire_pool *pool, const pool_state *before)
{
    pool_state now;
    save_pool(pool, &now);
    assert_memory_equal(&now, before, sizeof now);
}

/* ---- pool --------------------------------------------------------------------- */

typedef struct pool_world {
    quire_pool *pool;
    quire_cache_full_params params;
    quire_block blocks[8];
    unsigned char hashes[8 * DIGEST];
} pool_world;

static void call_cache_full(void *world)
{
    pool_world *w = world;
    quire_cache_full_params *p = &w->params;
    if (p->num_full_blocks > COUNT(w->blocks) && p->num_full_blocks <= p->num_hashes)
        return; /* an array that is not so long */
    pool_state before;
    save_pool(w->pool, &before);
    int err = quire_pool_cache_full_blocks(w->pool, p);
    assert_int_equal(quire_pool_check(w->pool), QUIRE_OK);
    if (err != QUIRE_OK)
        check_pool_same(w->pool, &before);
    assert_int_equal(quire_pool_evict_blocks(w->pool, w->blocks, COUNT(w->blocks)), QUIRE_OK);
}

static void pools(void **state)
{
    (void)state;
#define TYPE quire_cache_full_params
    const field rows[] = {QR_FIELDS_quire_cache_full_params(N, R, F, A)};
#undef TYPE
    pool_world w = {0};
    quire_pool_config c = QUIRE_POOL_CONFIG_INIT;
    c.num_blocks = POOL_BLOCKS;
    assert_int_equal(quire_pool_create(&c, NULL, &w.pool), QUIRE_OK);
    assert_int_equal(quire_pool_get_new_blocks(w.pool, COUNT(w.blocks), w.blocks), QUIRE_OK);
    for (size_t i = 0; i < sizeof w.hashes; i++)
        w.hashes[i] = (unsigned char)(i / DIGEST + 1);
    w.params = (quire_cache_full_params){.size = sizeof(quire_cache_full_params),
                                         .blocks = w.blocks,
                                         .num_cached_blocks = 2,
                                         .num_full_blocks = 6,
                                         .hashes = w.hashes,
                                         .hash_len = DIGEST,
                                         .num_hashes = 8,
                                         .block_size = BLOCK};
    for_each_edge(rows, COUNT(rows), &w.params, sizeof w.params, call_cache_full, &w);
    quire_pool_destroy(w.pool);
}

/* Blocks that are not there, the null block, one twice; and counts of 0. */
static void ids_of_blocks(void **state)
{
    (void)state;
    quire_pool_config c = QUIRE_POOL_CONFIG_INIT;
    c.num_blocks = POOL_BLOCKS;
    quire_pool *pool;
    quire_pool *other;
    assert_int_equal(quire_pool_create(&c, NULL, &pool), QUIRE_OK);
    assert_int_equal(quire_pool_create(&c, NULL, &other), QUIRE_OK);
    quire_block used[4];
    assert_int_equal(quire_pool_get_new_blocks(pool, 4, used), QUIRE_OK);
    const quire_block wrong[] = {0, POOL_BLOCKS, POOL_BLOCKS + 1, 1u << 31, UINT32_MAX};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        const quire_block list[] = {used[0], used[1], wrong[i]};
        quire_block from[3];
        quire_block to[3];
        quire_same same;
        pool_state before;
        save_pool(pool, &before);
        assert_true(quire_pool_touch(pool, list, 3) < 0);
        assert_true(quire_pool_free_blocks(pool, list, 3) < 0);
        assert_true(quire_pool_hold(pool, list, 3) < 0);
        assert_true(quire_pool_let_go(pool, list, 3, 0) < 0);
        assert_true(quire_pool_let_go(pool, list, 3, 1) < 0);
        assert_true(quire_pool_evict_blocks(pool, list, 3) < 0);
        assert_true(quire_pool_take_same(other, pool, list, 3, from, to, &same) < 0);
        assert_true(quire_pool_leave_same(other, pool, list, list, 3) < 0);
        check_pool_same(pool, &before);
        assert_int_equal(quire_pool_check(pool), QUIRE_OK);
        assert_int_equal(quire_pool_check(other), QUIRE_OK);
    }
    const quire_block twice[] = {used[0], used[0]};
    pool_state before;
    save_pool(pool, &before);
    assert_int_equal(quire_pool_free_blocks(pool, twice, 2), QUIRE_E_DOUBLE_FREE);
    assert_int_equal(quire_pool_get_new_blocks(pool, POOL_BLOCKS - 4, used), QUIRE_NO_SPACE);
    assert_int_equal(quire_pool_get_new_blocks(pool, UINT32_MAX, used), QUIRE_E_RANGE);
    check_pool_same(pool, &before);
    quire_pool_destroy(pool);
    quire_pool_destroy(other);
}

/* ---- cache -------------------------------------------------------------------- */

typedef struct cache_world {
    quire_group_config groups[MOST_GROUPS];
    quire_cache_config config;
    quire_cache *cache;
    quire_cache_request request; /* what the fields are set in */
    quire_allocate_params params;
    quire_cache_request rows[NUM_SEQS]; /* that have blocks */
    unsigned char hashes[(LEN / BLOCK + 2) * DIGEST];
    quire_block_span hits[MOST_GROUPS];
    bool has_row; /* the request is one that has blocks */
} cache_world;

static void open_cache(cache_world *w)
{
    assert_int_equal(quire_cache_create(&w->config, NULL, &w->cache), QUIRE_OK);
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        w->rows[i] = (quire_cache_request){
            .num_tokens = 10, .hashes = w->hashes + i * 2 * DIGEST, .num_hashes = 2};
        const quire_allocate_params p = {.size = sizeof(quire_allocate_params),
                                         .num_new_tokens = 10};
        assert_int_equal(quire_cache_allocate_slots(w->cache, &w->rows[i], &p, NULL), QUIRE_OK);
    }
}

static void call_cache(void *world)
{
    cache_world *w = world;
    quire_cache_request request = w->request;
    quire_block_span spans[MOST_GROUPS];
    uint32_t num_tokens;
    pool_state before;
    if (w->has_row)
        request.seq = w->rows[0].seq;
    save_pool(quire_cache_get_pool(w->cache), &before);
    uint32_t num_seqs = quire_cache_get_counts(w->cache).num_seqs;
    (void)quire_cache_get_computed_blocks(w->cache, &request, spans, &num_tokens);
    (void)quire_cache_can_fit_full_sequence(w->cache, &request, &w->params);
    check_pool_same(quire_cache_get_pool(w->cache), &before);
    int err = quire_cache_allocate_slots(w->cache, &request, &w->params, spans);
    assert_int_equal(quire_cache_check(w->cache), QUIRE_OK);
    if (err != QUIRE_OK) {
        check_pool_same(quire_cache_get_pool(w->cache), &before);
        assert_int_equal(quire_cache_get_counts(w->cache).num_seqs, num_seqs);
        (void)quire_cache_cache_blocks(w->cache, &request, w->request.num_computed_tokens);
        assert_int_equal(quire_cache_check(w->cache), QUIRE_OK);
        if (!w->has_row)
            return;
    }
    quire_cache_destroy(w->cache);
    open_cache(w);
}

static quire_layer_spec spec_of_kind(quire_layer_kind kind)
{
    quire_layer_spec spec = {.kind = kind,
                             .block_size = BLOCK,
                             .num_kv_heads = 1,
                             .head_size = 8,
                             .dtype = QUIRE_DTYPE_FLOAT16};
    spec.sliding_window = kind == QUIRE_LAYER_SLIDING_WINDOW ? 9 : 0;
    spec.attention_chunk_size = kind == QUIRE_LAYER_CHUNKED_LOCAL ? 12 : 0;
    spec.sink_len = kind == QUIRE_LAYER_SINK_FULL ? BLOCK : 0;
    spec.states[0] = (quire_state){.num_dims = 1, .dims = {64}, .dtype = QUIRE_DTYPE_FLOAT16};
    spec.mamba_mode = kind == QUIRE_LAYER_MAMBA ? QUIRE_MAMBA_MODE_ALIGN : QUIRE_MAMBA_MODE_NONE;
    return spec;
}

static void run_cache(quire_layer_kind first, quire_layer_kind second, bool has_row, bool has_hits)
{
    static cache_world w;
    const qr_field_limits limit = {.max_model_len = LEN, .max_encoder_tokens = 8};
    const qr_field_limits *limits = &limit;
#define TYPE quire_cache_request
    const field request_rows[] = {QR_FIELDS_quire_cache_request(N, R, F, A)};
#undef TYPE
#define TYPE quire_allocate_params
    const field params_rows[] = {QR_FIELDS_quire_allocate_params(N, R, F, A)};
#undef TYPE
    w = (cache_world){.has_row = has_row};
    for (size_t i = 0; i < sizeof w.hashes; i++)
        w.hashes[i] = (unsigned char)(i / DIGEST + 1);
    w.groups[0].spec = spec_of_kind(first);
    w.config = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    w.config.num_blocks = POOL_BLOCKS;
    w.config.groups = w.groups;
    w.config.num_groups = 1;
    w.config.max_model_len = LEN;
    w.config.max_requests = 4;
    w.config.max_encoder_tokens = 8;
    w.config.log_stats = QUIRE_ON;
    if (second != 0) {
        w.groups[1].spec = spec_of_kind(second);
        w.config.num_groups = 2;
    }
    if (first == QUIRE_LAYER_CROSS || second == QUIRE_LAYER_CROSS)
        w.config.enable_caching = QUIRE_OFF;
    open_cache(&w);
    w.request =
        (quire_cache_request){.num_tokens = 14, .hashes = w.hashes, .num_hashes = LEN / BLOCK};
    w.params = (quire_allocate_params){.size = sizeof(quire_allocate_params), .num_new_tokens = 4};
    if (has_row)
        w.request.num_computed_tokens = 10;
    quire_block shared[2] = {1, 2};
    if (has_hits) {
        w.hits[0] = (quire_block_span){shared, 2};
        w.params.new_computed_blocks = w.hits;
        w.params.num_new_computed_tokens = 8;
    }
    for_each_edge(request_rows, COUNT(request_rows), &w.request, sizeof w.request, call_cache, &w);
    for_each_edge(params_rows, COUNT(params_rows), &w.params, sizeof w.params, call_cache, &w);
    quire_cache_destroy(w.cache);
}

static void caches(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        bool has_row = i % 2 != 0;
        bool has_hits = i / 2 != 0;
        run_cache(QUIRE_LAYER_FULL, (quire_layer_kind)0, has_row, has_hits);
        run_cache(QUIRE_LAYER_FULL, QUIRE_LAYER_SLIDING_WINDOW, has_row, has_hits);
        run_cache(QUIRE_LAYER_CHUNKED_LOCAL, (quire_layer_kind)0, has_row, has_hits);
        run_cache(QUIRE_LAYER_FULL, QUIRE_LAYER_MAMBA, has_row, has_hits);
        run_cache(QUIRE_LAYER_FULL, QUIRE_LAYER_CROSS, has_row, false);
        run_cache(QUIRE_LAYER_SINK_FULL, (quire_layer_kind)0, has_row, has_hits);
    }
}

/* hashes that begin where the row's keys do not reach: an assertion once. */
static void a_first_hash_that_is_too_far(void **state)
{
    (void)state;
    static cache_world w;
    w = (cache_world){.config = QUIRE_CACHE_CONFIG_INIT};
    w.groups[0].spec = spec_of_kind(QUIRE_LAYER_FULL);
    w.config.num_blocks = POOL_BLOCKS;
    w.config.groups = w.groups;
    w.config.num_groups = 1;
    w.config.max_model_len = LEN;
    for (size_t i = 0; i < sizeof w.hashes; i++)
        w.hashes[i] = (unsigned char)(i / DIGEST + 1);
    assert_int_equal(quire_cache_create(&w.config, NULL, &w.cache), QUIRE_OK);
    quire_cache_request r = {.num_tokens = 16, .hashes = w.hashes, .num_hashes = 4};
    quire_allocate_params p = {.size = sizeof(quire_allocate_params), .num_new_tokens = 16};
    for (r.first_hash = 1; r.first_hash < 5; r.first_hash++)
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_E_RANGE);
    assert_int_equal(quire_cache_get_usage(w.cache).active, 0);
    r.first_hash = 0;
    assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_OK);
    r.num_computed_tokens = 16;
    r.num_tokens = 24;
    r.num_hashes = 6;
    p.num_new_tokens = 8;
    for (r.first_hash = 4; r.first_hash < 7; r.first_hash++) {
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_E_RANGE);
        assert_int_equal(quire_cache_cache_blocks(w.cache, &r, 16), QUIRE_E_RANGE);
    }
    r.first_hash = 3; /* the key before the first new one: their parent */
    r.hashes = w.hashes + 3 * DIGEST;
    assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(quire_cache_get_pool(w.cache)).num_keys, 6);
    quire_cache_request second = {.num_tokens = 28, .hashes = w.hashes, .num_hashes = 7};
    quire_block_span hit;
    p = (quire_allocate_params){
        .size = sizeof(quire_allocate_params), .num_new_tokens = 4, .new_computed_blocks = &hit};
    assert_int_equal(
        quire_cache_get_computed_blocks(w.cache, &second, &hit, &p.num_new_computed_tokens),
        QUIRE_OK);
    assert_int_equal(hit.count, 6);
    for (second.first_hash = 6; second.first_hash < 8; second.first_hash++)
        assert_int_equal(quire_cache_allocate_slots(w.cache, &second, &p, NULL), QUIRE_E_RANGE);
    second.first_hash = 5; /* the last key of the hit */
    second.hashes = w.hashes + 5 * DIGEST;
    assert_int_equal(quire_cache_allocate_slots(w.cache, &second, &p, NULL), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(quire_cache_get_pool(w.cache)).num_keys, 7);
    assert_int_equal(quire_cache_check(w.cache), QUIRE_OK);
    quire_cache_destroy(w.cache);
}

/* With two groups as with one: from the second block on, the key before the first new one will do.
 */
static void a_first_hash_of_two_groups(void **state)
{
    (void)state;
    static cache_world w;
    w = (cache_world){.config = QUIRE_CACHE_CONFIG_INIT};
    w.groups[0].spec = spec_of_kind(QUIRE_LAYER_FULL);
    w.groups[1].spec = spec_of_kind(QUIRE_LAYER_SLIDING_WINDOW);
    w.config.num_blocks = POOL_BLOCKS;
    w.config.groups = w.groups;
    w.config.num_groups = 2;
    w.config.max_model_len = LEN;
    w.config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    for (size_t i = 0; i < sizeof w.hashes; i++)
        w.hashes[i] = (unsigned char)(i / DIGEST + 1);
    assert_int_equal(quire_cache_create(&w.config, NULL, &w.cache), QUIRE_OK);
    quire_cache_request r = {.num_tokens = BLOCK, .hashes = w.hashes, .num_hashes = 1};
    quire_allocate_params p = {.size = sizeof(quire_allocate_params), .num_new_tokens = BLOCK};
    for (uint32_t num_keys = 0; num_keys < 4; num_keys++) {
        r.first_hash = num_keys == 0 ? 1 : num_keys; /* behind the last key */
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_E_RANGE);
        r.first_hash = num_keys == 0 ? 0 : num_keys - 1;
        r.hashes = w.hashes + (size_t)r.first_hash * DIGEST;
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_OK);
        r.num_computed_tokens += BLOCK;
        r.num_tokens += BLOCK;
        r.num_hashes++;
    }
    assert_int_equal(quire_pool_get_counts(quire_cache_get_pool(w.cache)).num_keys, 8);
    assert_int_equal(quire_cache_check(w.cache), QUIRE_OK);
    quire_cache_destroy(w.cache);
}

/* Tokens that may be taken back keep the blocks that the window in front of them looks at. */
static void uncertain_tokens_keep_their_window(void **state)
{
    (void)state;
    for (uint32_t num_uncertain = 0; num_uncertain <= 20; num_uncertain += 5) {
        static cache_world w;
        w = (cache_world){.config = QUIRE_CACHE_CONFIG_INIT};
        w.groups[0].spec = spec_of_kind(QUIRE_LAYER_SLIDING_WINDOW);
        w.config.num_blocks = POOL_BLOCKS;
        w.config.groups = w.groups;
        w.config.num_groups = 1;
        w.config.max_model_len = LEN;
        w.config.enable_caching = QUIRE_OFF;
        assert_int_equal(quire_cache_create(&w.config, NULL, &w.cache), QUIRE_OK);
        quire_cache_request r = {.num_tokens = 20};
        quire_allocate_params p = {.size = sizeof(quire_allocate_params), .num_new_tokens = 20};
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_OK);
        r.num_computed_tokens = 20;
        p = (quire_allocate_params){.size = sizeof(quire_allocate_params),
                                    .num_new_tokens = 4,
                                    .num_uncertain_tokens = num_uncertain};
        assert_int_equal(quire_cache_allocate_slots(w.cache, &r, &p, NULL), QUIRE_OK);
        quire_block_span blocks;
        assert_int_equal(quire_cache_get_blocks(w.cache, r.seq, &blocks), QUIRE_OK);
        uint32_t certain = 20 - num_uncertain;
        uint32_t num_gone = certain < 9 ? 0 : (certain - 9 + 1) / BLOCK; /* a window of 9 */
        for (uint32_t i = 0; i < blocks.count; i++)
            assert_int_equal(blocks.ids[i] == QUIRE_NULL_BLOCK, i < num_gone);
        quire_cache_destroy(w.cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools),
        cmocka_unit_test(ids_of_blocks),
        cmocka_unit_test(caches),
        cmocka_unit_test(a_first_hash_that_is_too_far),
        cmocka_unit_test(a_first_hash_of_two_groups),
        cmocka_unit_test(uncertain_tokens_keep_their_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
