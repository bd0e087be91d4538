/* cache/test_rules.c - the rules of vLLM 0.32, one by one, with each field that belongs to them.
 * The recordings (tests/parity) have them all together. */
#include "base/inner.h"
#include "cache/cache_kit.h"

#include <quire/error.h>

#include <string.h>

static quire_cache_config config_0_32(const quire_group_config *groups, uint32_t num_groups)
{
    quire_cache_config config = kit_config(groups, num_groups, 40);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    return config;
}

static quire_allocate_params params_for(uint32_t num_new)
{
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    p.num_new_tokens = num_new;
    return p;
}

/* Which blocks of a request's group have keys: "..xx". */
static const char *keyed(const cache_kit *kit, const kit_request *q, uint32_t group)
{
    static char text[KIT_MAX_TOKENS + 1];
    quire_block_span spans[KIT_MAX_GROUPS];
    quire_block_info info;
    assert_int_equal(quire_cache_get_blocks(kit->cache, q->r.seq, spans), QUIRE_OK);
    for (uint32_t i = 0; i < spans[group].count; i++) {
        assert_int_equal(quire_pool_get_block(kit->pool, spans[group].ids[i], &info), QUIRE_OK);
        text[i] = info.hash.data != NULL ? 'x' : '.';
    }
    text[spans[group].count] = '\0';
    return text;
}

static const char *words_of(uint32_t num_tokens)
{
    static char text[KIT_MAX_TOKENS + 1];
    for (uint32_t i = 0; i < num_tokens; i++)
        text[i] = (char)('a' + i / 4);
    text[num_tokens] = '\0';
    return text;
}

/* Room for all tokens of a new request; its blocks get their keys. */
static void allocate_all(cache_kit *kit, kit_request *q, quire_allocate_params p)
{
    p.num_new_tokens = q->r.num_tokens;
    assert_int_equal(quire_cache_allocate_slots(kit->cache, &q->r, &p, NULL), QUIRE_OK);
    kit_check(kit);
}

/* ---- which blocks get keys --------------------------------------------------- */

static void expect_keys(uint32_t interval, uint32_t num_prompt, uint32_t boundary, bool eagle,
                        const char *expected)
{
    quire_group_config window = kit_window(4, 8);
    quire_cache_config config = config_0_32(&window, 1);
    config.prefix_cache_retention_interval = interval;
    config.use_eagle = eagle ? QUIRE_ON : QUIRE_OFF;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(35));
    quire_allocate_params p = params_for(0);
    p.num_prompt_tokens = num_prompt;
    p.shared_prefix_boundary = boundary;
    allocate_all(&kit, &q, p);
    assert_string_equal(keyed(&kit, &q, 0), expected);
    kit_free(&kit, &q);
    kit_close(&kit);
}

static void window_keys_at_boundaries(void **state)
{
    (void)state;
    expect_keys(0, 0, 0, false, "......xx.");  /* 34 of 35 tokens: up to 32 */
    expect_keys(0, 33, 0, false, "......xx."); /* 32 */
    expect_keys(0, 32, 0, false, ".....xx.."); /* 31, so 28 */
    expect_keys(0, 18, 0, false, "..xx....."); /* outputs get none */
    expect_keys(0, 18, 31, false, "..xx.xx..");
    expect_keys(16, 18, 0, false, "..xx..xx.");
    expect_keys(12, 18, 0, false, ".xxxxx.x.");
    expect_keys(4, 18, 0, false, "xxxxxxxx.");
    expect_keys(QUIRE_RETAIN_ALL, 18, 0, false, "xxxxxxxx.");
    expect_keys(0, 18, 0, true, ".xxx....."); /* 12, and the block behind it */
    expect_keys(0, 16, 0, true, "xxxx....."); /* 8 for this prompt, 12 for a longer one */
}

/* The prompt is said once; what is not said later stays. */
static void a_prompt_is_remembered(void **state)
{
    (void)state;
    quire_group_config window = kit_window(4, 8);
    quire_cache_config config = config_0_32(&window, 1);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(35));
    quire_allocate_params p = params_for(8);
    p.num_prompt_tokens = 14;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_string_equal(keyed(&kit, &q, 0), ".x");
    q.r.num_computed_tokens = 8;
    p = params_for(12);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_string_equal(keyed(&kit, &q, 0), ".xx..");
    q.r.num_computed_tokens = 20;
    p = params_for(15);
    p.num_uncertain_tokens = 20; /* nothing is given back */
    p.shared_prefix_boundary = 28;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_string_equal(keyed(&kit, &q, 0), ".xx..xx..");
    kit_free(&kit, &q);
    kit_prefill(&kit, &q); /* a new row: all tokens are the prompt */
    kit_check(&kit);
    assert_string_equal(keyed(&kit, &q, 0) + 6, "xx.");
    kit_free(&kit, &q);
    kit_close(&kit);
}

static void a_shared_prefix_is_told(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_window(4, 8)};
    quire_cache_config config = config_0_32(groups, 2);
    cache_kit kit;
    kit_request first;
    kit_request second;
    quire_block_span spans[KIT_MAX_GROUPS];
    uint32_t num_tokens = 0;
    kit_open(&kit, &config);
    kit_request_init(&kit, &first, words_of(35));
    kit_prefill(&kit, &first);
    assert_int_equal(quire_cache_get_counts(kit.cache).shared_prefix_boundary, 0);
    kit_request_init(&kit, &second, "aaaabbbbccccddddeeeezzzzz");
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &second.r, spans, &num_tokens),
                     QUIRE_OK);
    assert_int_equal(num_tokens, 0);
    assert_int_equal(quire_cache_get_counts(kit.cache).shared_prefix_boundary, 20);
    quire_allocate_params p = params_for(0);
    p.shared_prefix_boundary = 20;
    allocate_all(&kit, &second, p);
    assert_string_equal(keyed(&kit, &second, 1), "...xxx.");
    assert_int_equal(quire_cache_get_computed_blocks(kit.cache, &first.r, spans, &num_tokens),
                     QUIRE_OK);
    assert_int_equal(num_tokens, 32);
    assert_int_equal(quire_cache_get_counts(kit.cache).shared_prefix_boundary, 0);
    assert_int_equal(quire_cache_get_counts(NULL).shared_prefix_boundary, 0);
    kit_free(&kit, &first);
    kit_free(&kit, &second);
    kit_close(&kit);
}

/* Drafts of three modules compute two tokens again, so that blocks are full later. */
static void lookahead_delays_keys(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = config_0_32(&full, 1);
    config.use_eagle = QUIRE_ON;
    config.num_prefill_lookahead = 3;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(9));
    allocate_all(&kit, &q, params_for(0));
    assert_string_equal(keyed(&kit, &q, 0), "x..");
    kit_free(&kit, &q);
    kit_request_init(&kit, &q, words_of(10));
    allocate_all(&kit, &q, params_for(0));
    assert_string_equal(keyed(&kit, &q, 0), "xx.");
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- several keys for one block ---------------------------------------------- */

typedef struct key_counts {
    uint32_t stored;
    uint32_t removed;
} key_counts;

static void count_keys(void *user, const quire_event *event)
{
    key_counts *c = user;
    for (uint32_t i = 0; i < event->num_blocks; i++) {
        c->stored += event->kind == QUIRE_EVENT_STORED && event->blocks[i] != QUIRE_NULL_BLOCK;
        c->removed += event->kind == QUIRE_EVENT_REMOVED;
    }
}

/* Blocks of 8 and of 4 tokens, hashes of 4: a prompt of 14 tokens has its last hash in the middle
 * of the second block of 8. */
static void a_prompts_tail_is_a_key(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(8), kit_window(4, 8)};
    quire_cache_config config = config_0_32(groups, 2);
    key_counts counts = {0};
    config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    config.on_event = count_keys;
    config.event_user = &counts;
    cache_kit kit;
    kit_request q;
    quire_bytes extra;
    quire_block_span spans[KIT_MAX_GROUPS];
    quire_block_info info;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(17));
    quire_allocate_params p = params_for(0);
    p.num_prompt_tokens = 14;
    allocate_all(&kit, &q, p);
    assert_int_equal(quire_cache_get_blocks(kit.cache, q.r.seq, spans), QUIRE_OK);
    quire_block block = spans[0].ids[1];
    assert_int_equal(quire_pool_get_block(kit.pool, block, &info), QUIRE_OK);
    assert_memory_equal(info.hash.data, q.hashes + 3 * KIT_DIGEST, KIT_DIGEST); /* the last hash */
    assert_true(inner_extra_key(kit.pool, block, 0, &extra));
    assert_memory_equal(extra.data, q.hashes + 2 * KIT_DIGEST, KIT_DIGEST);
    assert_false(inner_extra_key(kit.pool, block, 1, &extra));
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 2 + 1 + 4);
    assert_int_equal(counts.stored, 2 + 1 + 4);

    const uint32_t group = 0;
    quire_block found = 0;
    quire_bytes hash = {q.hashes + 2 * KIT_DIGEST, KIT_DIGEST};
    assert_int_equal(quire_pool_get_cached_block(kit.pool, hash, &group, 1, &found), QUIRE_OK);
    assert_int_equal(found, block);

    inner_evict(kit.cache, &block, 1);
    kit_check(&kit);
    assert_int_equal(counts.removed, 2);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 1 + 4);
    /* The tail gets its key again, now as the only one. */
    assert_int_equal(quire_cache_cache_blocks(kit.cache, &q.r, 16), QUIRE_OK);
    kit_check(&kit);
    assert_int_equal(quire_pool_get_block(kit.pool, block, &info), QUIRE_OK);
    assert_memory_equal(info.hash.data, q.hashes + 2 * KIT_DIGEST, KIT_DIGEST);
    kit_free(&kit, &q);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 0);
    kit_check(&kit);
    kit_close(&kit);
}

static void the_walker_looks_at_extra_keys(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(8), kit_full(4)};
    quire_cache_config config = config_0_32(groups, 2);
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(17));
    quire_allocate_params p = params_for(0);
    p.num_prompt_tokens = 14;
    allocate_all(&kit, &q, p);
    qr_extras *extras = &kit.pool->extras;
    uint32_t extra = 0;
    while (extras->owners[extra] == 0)
        extra++;
    uint32_t owner = extras->owners[extra];
    extras->owners[extra] = owner + 1;
    assert_int_equal(quire_cache_check(kit.cache), QUIRE_E_CORRUPT);
    extras->owners[extra] = owner;
    extras->heads[owner].first = 0;
    assert_int_equal(quire_cache_check(kit.cache), QUIRE_E_CORRUPT);
    extras->heads[owner].first = extras->base + extra;
    extras->heads[0].num_tokens = 4; /* the null block has no key */
    assert_int_equal(quire_cache_check(kit.cache), QUIRE_E_CORRUPT);
    extras->heads[0].num_tokens = 0;
    uint32_t first_free = extras->first_free;
    extras->first_free = extras->base + extras->num_extras;
    assert_int_equal(quire_cache_check(kit.cache), QUIRE_E_CORRUPT);
    extras->first_free = first_free;
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* Where no record is left, a tail gets no key, and nothing else changes. */
static void extra_keys_run_out(void **state)
{
    (void)state;
#if QUIRE_ASSERT_LEVEL >= 3
    skip(); /* the assertions see that places for keys are gone */
#endif
    quire_group_config groups[2] = {kit_full(8), kit_full(4)};
    quire_cache_config config = config_0_32(groups, 2);
    cache_kit kit;
    kit_request q;
    quire_bytes extra;
    quire_block_span spans[KIT_MAX_GROUPS];
    kit_open(&kit, &config);
    uint32_t first_free = kit.pool->extras.first_free;
    kit.pool->extras.first_free = 0;
    kit_request_init(&kit, &q, words_of(17));
    quire_allocate_params p = params_for(0);
    p.num_prompt_tokens = 14;
    p.num_new_tokens = 17;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_int_equal(quire_cache_get_blocks(kit.cache, q.r.seq, spans), QUIRE_OK);
    assert_false(inner_extra_key(kit.pool, spans[0].ids[1], 0, &extra));
    assert_int_equal(quire_pool_get_counts(kit.pool).num_keys, 2 + 4);
    kit.pool->extras.first_free = first_free;
    kit_check(&kit);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- room --------------------------------------------------------------------- */

static void blocks_are_reserved(void **state)
{
    (void)state;
    for (quire_profile profile = QUIRE_PROFILE_DEFAULT; profile <= QUIRE_PROFILE_VLLM_0_32;
         profile++) {
        quire_group_config full = kit_full(4);
        quire_cache_config config = kit_config(&full, 1, 11); /* 10 free blocks */
        config.profile = profile;
        cache_kit kit;
        kit_request q;
        kit_open(&kit, &config);
        kit_request_init(&kit, &q, words_of(16));
        quire_allocate_params p = params_for(16);
        p.reserved_blocks = 7;
        assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_NO_SPACE);
        p.reserved_blocks = 6;
        assert_int_equal(quire_cache_can_allocate(kit.cache, &q.r, &p), QUIRE_OK);
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
        q.r.num_computed_tokens = 13; /* room for one more token is there already */
        p = params_for(1);
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
        p.reserved_blocks = 7; /* more than are free */
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_NO_SPACE);
        kit_free(&kit, &q);
        kit_close(&kit);
    }
}

static void the_watermark_is_for_those_that_wait(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = config_0_32(&full, 1); /* 39 free blocks */
    config.watermark = 0.25;                           /* 10 blocks */
    config.num_blocks = 41;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(124)); /* 31 blocks of 40 */
    quire_allocate_params p = params_for(124);
    p.has_scheduled_reqs = 1;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_NO_SPACE);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
    p.has_scheduled_reqs = 0;
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &p), QUIRE_OK);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    kit_request r; /* in other profiles it would count from now on */
    kit_request_init(&kit, &r, "zzzzzzzzz");
    p = params_for(9);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &r.r, &p, NULL), QUIRE_OK);
    kit_free(&kit, &q);
    kit_free(&kit, &r);
    kit_close(&kit);
}

static void a_whole_sequence_must_fit(void **state)
{
    (void)state;
    for (quire_profile profile = QUIRE_PROFILE_VLLM_0_20; profile <= QUIRE_PROFILE_VLLM_0_32;
         profile++) {
        quire_group_config full = kit_full(4);
        quire_cache_config config = kit_config(&full, 1, 6);
        config.profile = profile;
        cache_kit kit;
        kit_request q;
        kit_open(&kit, &config);
        kit_request_init(&kit, &q, words_of(24)); /* 6 blocks, of which 5 are there */
        quire_allocate_params p = params_for(4);
        p.full_sequence_must_fit = 1;
        bool asks = profile == QUIRE_PROFILE_VLLM_0_32;
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL),
                         asks ? QUIRE_NO_SPACE : QUIRE_OK);
        assert_int_equal(kit_num_free(&kit), asks ? 5 : 4);
        kit_free(&kit, &q);
        kit_request_init(&kit, &q, words_of(20));
        assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
        kit_free(&kit, &q);
        kit_close(&kit);
    }
}

/* A window's request holds the window and what is in flight, so that it fits in few blocks. */
static void tokens_in_flight_need_room(void **state)
{
    (void)state;
    quire_group_config window = kit_window(4, 5);
    quire_cache_config config = config_0_32(&window, 1);
    config.num_blocks = 5; /* 4 free */
    config.max_num_batched_tokens = 4;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(40));
    quire_allocate_params p = params_for(4);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &p), QUIRE_OK); /* 3 */
    kit_close(&kit);
    config.max_in_flight_tokens = 8;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &p), QUIRE_OK); /* 4 */
    kit_close(&kit);
    config.max_in_flight_tokens = 9;
    kit_open(&kit, &config);
    assert_int_equal(quire_cache_can_fit_full_sequence(kit.cache, &q.r, &p), QUIRE_NO_SPACE);
    kit_close(&kit);
}

/* ---- blocks to be zeroed ------------------------------------------------------ */

static uint32_t num_zeroed(cache_kit *kit)
{
    quire_block_span span = {0};
    assert_int_equal(quire_cache_take_new_block_ids(kit->cache, &span), QUIRE_OK);
    return span.count;
}

static void loads_that_write_later_are_not_zeroed(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_window(4, 40)};
    quire_cache_config config = config_0_32(groups, 2);
    const uint32_t ids[] = {1};
    config.track_new_blocks = QUIRE_ON;
    cache_kit kit;
    kit_request q;
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(20));
    quire_allocate_params p = params_for(0);
    p.num_external_computed_tokens = 16;
    p.delay_cache_blocks = 1;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_int_equal(num_zeroed(&kit), 8); /* windows too */
    kit_free(&kit, &q);
    p.num_skip_zeroing_group_ids = 1;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_E_ARGUMENT);
    p.skip_zeroing_group_ids = ids;
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_int_equal(num_zeroed(&kit), 4);
    kit_free(&kit, &q);
    kit_close(&kit);
}

/* ---- what is refused ----------------------------------------------------------- */

static void expect_refusal(const quire_cache_config *config, const char *field, const char *value)
{
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(config, NULL, &cache), QUIRE_E_CONFIG);
    const char *sentence = quire_refusal();
    assert_non_null(strstr(sentence, field));
    assert_non_null(strstr(sentence, value));
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_mamba(4, QUIRE_MAMBA_MODE_ALL, 0)};
    quire_cache_config config = config_0_32(groups, 2);
    expect_refusal(&config, "mamba_mode", "1");
    groups[1] = kit_sink(4, 4);
    expect_refusal(&config, "kind", "4");
    groups[1] = kit_full(4);
    groups[1].spec.kind = QUIRE_LAYER_TQ_FULL;
    groups[1].spec.tq_slot_size = 3;
    expect_refusal(&config, "kind", "2");
    groups[1] = kit_window(4, 8);
    config.prefix_cache_retention_interval = 6;
    expect_refusal(&config, "prefix_cache_retention_interval", "6");
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    config.prefix_cache_retention_interval = 8;
    expect_refusal(&config, "prefix_cache_retention_interval", "8");
    config.prefix_cache_retention_interval = 0;
    config.num_prefill_lookahead = 2;
    expect_refusal(&config, "num_prefill_lookahead", "2");
    config.profile = QUIRE_PROFILE_DEFAULT;
    config.num_prefill_lookahead = 2;
    expect_refusal(&config, "num_prefill_lookahead", "2");
    config.profile = QUIRE_PROFILE_VLLM_0_32;
    config.use_eagle = QUIRE_ON;
    config.num_prefill_lookahead = 5;
    expect_refusal(&config, "num_prefill_lookahead", "5");
    config.num_prefill_lookahead = 0;
    config.dcp_world_size = 2;
    expect_refusal(&config, "dcp_world_size", "2");
    config = config_0_32(groups, 1);
    config.prefix_cache_retention_interval = 8;
    expect_refusal(&config, "prefix_cache_retention_interval", "8");
}

/* ---- the rest ------------------------------------------------------------------- */

/* Two groups of one spec, and a reset of a cache without any. */
static void equal_groups_and_none(void **state)
{
    (void)state;
    quire_group_config groups[2] = {kit_full(4), kit_full(4)};
    quire_cache_config config = config_0_32(groups, 2);
    cache_kit kit;
    kit_request q;
    uint32_t common[2] = {9, 9};
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(18));
    assert_int_equal(kit_prefill(&kit, &q), 0);
    assert_int_equal(quire_cache_get_num_common_prefix_blocks(kit.cache, q.r.seq, common),
                     QUIRE_OK);
    assert_true(common[0] == 0 && common[1] == 0);
    kit_free(&kit, &q);
    assert_int_equal(kit_prefill(&kit, &q), 16);
    kit_free(&kit, &q);
    kit_close(&kit);
    config = config_0_32(NULL, 0);
    kit_open(&kit, &config);
    quire_block block;
    assert_int_equal(quire_pool_get_new_blocks(kit.pool, 1, &block), QUIRE_OK);
    assert_int_equal(quire_cache_reset_prefix_cache(kit.cache), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(kit.pool, &block, 1), QUIRE_OK);
    kit_close(&kit);
}

/* A hit may be taken without a token to compute. */
static void a_hit_alone_is_taken(void **state)
{
    (void)state;
    quire_group_config full = kit_full(4);
    quire_cache_config config = config_0_32(&full, 1);
    cache_kit kit;
    kit_request q;
    quire_block_span spans[KIT_MAX_GROUPS];
    kit_open(&kit, &config);
    kit_request_init(&kit, &q, words_of(18));
    kit_prefill(&kit, &q);
    kit_free(&kit, &q);
    q.r.num_computed_tokens = 0;
    quire_allocate_params p = params_for(0);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(
        quire_cache_get_computed_blocks(kit.cache, &q.r, spans, &p.num_new_computed_tokens),
        QUIRE_OK);
    p.new_computed_blocks = spans;
    assert_int_equal(p.num_new_computed_tokens, 16);
    assert_int_equal(quire_cache_allocate_slots(kit.cache, &q.r, &p, NULL), QUIRE_OK);
    assert_int_equal(kit_num_free(&kit), 35);
    kit_free(&kit, &q);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_keys_at_boundaries),
        cmocka_unit_test(a_prompt_is_remembered),
        cmocka_unit_test(a_shared_prefix_is_told),
        cmocka_unit_test(lookahead_delays_keys),
        cmocka_unit_test(a_prompts_tail_is_a_key),
        cmocka_unit_test(the_walker_looks_at_extra_keys),
        cmocka_unit_test(extra_keys_run_out),
        cmocka_unit_test(blocks_are_reserved),
        cmocka_unit_test(the_watermark_is_for_those_that_wait),
        cmocka_unit_test(a_whole_sequence_must_fit),
        cmocka_unit_test(tokens_in_flight_need_room),
        cmocka_unit_test(loads_that_write_later_are_not_zeroed),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(equal_groups_and_none),
        cmocka_unit_test(a_hit_alone_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
