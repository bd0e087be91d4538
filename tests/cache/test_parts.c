/* cache/test_parts.c - hits that end inside a block, in the profile of vLLM 0.32. Blocks have 8
 * tokens and two hashes. */
#include "cache/cache.h"
#include "cache/cache_kit.h"

#include <quire/error.h>

enum { FULL, STATES };

/* Keys inside a block, as events told them. */
typedef struct told_parts {
    uint32_t count;
    quire_event last;
    unsigned char hash[KIT_DIGEST];
    unsigned char parent[KIT_DIGEST];
    uint32_t num_reported[2]; /* blocks of hits */
} told_parts;

static void note_part(void *user, const quire_event *event)
{
    told_parts *told = user;
    if (event->kind == QUIRE_EVENT_REPORTED)
        told->num_reported[event->group_id] += event->num_blocks;
    if (event->kind != QUIRE_EVENT_STORED || event->block_size != 4)
        return;
    told->count++;
    told->last = *event;
    memcpy(told->hash, event->hashes, KIT_DIGEST);
    if (event->parent.data != NULL)
        memcpy(told->parent, event->parent.data, KIT_DIGEST);
}

typedef struct world {
    quire_group_config groups[2];
    quire_cache_config config;
    cache_kit kit;
    told_parts told;
} world;

static void begin(world *w)
{
    *w = (world){.groups = {kit_full(8), kit_mamba(8, QUIRE_MAMBA_MODE_ALIGN, 0)}};
    w->config = kit_config(w->groups, 2, 40);
    w->config.profile = QUIRE_PROFILE_VLLM_0_32;
    w->config.hash_block_size = 4;
    w->config.on_event = note_part;
    w->config.event_user = &w->told;
}

static void compute(world *w, kit_request *q, uint32_t num_new)
{
    assert_int_equal(quire_cache_new_step_starts(w->kit.cache), QUIRE_OK);
    assert_int_equal(kit_extend(&w->kit, q, num_new), QUIRE_OK);
}

static quire_block block_of(const world *w, const kit_request *q, uint32_t group, uint32_t i)
{
    quire_block_span spans[KIT_MAX_GROUPS];
    assert_int_equal(quire_cache_get_blocks(w->kit.cache, q->r.seq, spans), QUIRE_OK);
    assert_true(i < spans[group].count);
    return spans[group].ids[i];
}

/* The block that has the request's hash of this number, or 0. */
static quire_block find(const world *w, const kit_request *q, uint32_t group, uint32_t hash)
{
    quire_block found = 0;
    quire_bytes key = {q->hashes + (size_t)hash * KIT_DIGEST, KIT_DIGEST};
    int status = quire_pool_get_cached_block(w->kit.pool, key, &group, 1, &found);
    return status == QUIRE_OK ? found : 0;
}

static uint32_t take_copies(world *w, quire_block_copy *out)
{
    const quire_block_copy *copies = NULL;
    uint32_t count = 0;
    assert_int_equal(quire_cache_take_copies(w->kit.cache, &copies, &count), QUIRE_OK);
    if (count > 0)
        memcpy(out, copies, count * sizeof *copies);
    kit_check(&w->kit);
    return count;
}

static void expect_copy(quire_block_copy copy, uint32_t group, quire_block from, quire_block to)
{
    assert_int_equal(copy.group, group);
    assert_int_equal(copy.from, from);
    assert_int_equal(copy.to, to);
}

/* A prompt of 14 tokens, whose last state to resume at is behind 12; all but two are computed. */
static void compute_prompt(world *w, kit_request *a)
{
    kit_open(&w->kit, &w->config);
    kit_request_init(&w->kit, a, "aaaabbbbccccdd");
    compute(w, a, 8);
    compute(w, a, 4);
}

static void a_prompts_state_moves_to_a_copy(void **state)
{
    (void)state;
    world w;
    kit_request a;
    quire_block_copy copies[8];
    begin(&w);
    compute_prompt(&w, &a);
    assert_int_equal(w.told.count, 2); /* full, then states */
    assert_int_equal(w.told.last.group_id, STATES);
    assert_int_equal(w.told.last.first_block, 2);
    assert_int_equal(w.told.last.num_blocks, 1);
    assert_memory_equal(w.told.hash, a.hashes + 2 * KIT_DIGEST, KIT_DIGEST);
    assert_memory_equal(w.told.parent, a.hashes + 1 * KIT_DIGEST, KIT_DIGEST);
    quire_block source = block_of(&w, &a, STATES, 1);
    assert_int_equal(find(&w, &a, STATES, 2), source);
    assert_int_equal(take_copies(&w, copies), 0);

    compute(&w, &a, 2);
    quire_block copy = find(&w, &a, STATES, 2);
    assert_int_equal(block_of(&w, &a, STATES, 1), source); /* it goes on where it was */
    assert_true(copy != 0 && copy != source);
    assert_int_equal(w.told.count, 2); /* what is cached has not changed */
    assert_int_equal(take_copies(&w, copies), 1);
    expect_copy(copies[0], STATES, source, copy);
    assert_int_equal(take_copies(&w, copies), 0);
    kit_free(&w.kit, &a);
    kit_close(&w.kit);
}

static void a_hit_inside_a_block_is_copied(void **state)
{
    (void)state;
    world w;
    kit_request a;
    kit_request b;
    quire_block_copy copies[8];
    quire_block_span hit[KIT_MAX_GROUPS];
    quire_block_span new_blocks[KIT_MAX_GROUPS];
    uint32_t num_hit = 0;
    begin(&w);
    compute_prompt(&w, &a);
    compute(&w, &a, 2);
    assert_int_equal(take_copies(&w, copies), 1);
    quire_block full = block_of(&w, &a, FULL, 1);
    quire_block kept = find(&w, &a, STATES, 2);

    assert_int_equal(quire_cache_new_step_starts(w.kit.cache), QUIRE_OK);
    kit_request_init(&w.kit, &b, "aaaabbbbcccczzzz");
    assert_int_equal(quire_cache_get_computed_blocks(w.kit.cache, &b.r, hit, &num_hit), QUIRE_OK);
    assert_int_equal(num_hit, 12);
    assert_int_equal(hit[FULL].count, 2);
    assert_int_equal(hit[FULL].ids[1], full);
    assert_int_equal(hit[STATES].count, 2);
    assert_int_equal(hit[STATES].ids[0], 0);
    assert_int_equal(hit[STATES].ids[1], kept);

    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    p.num_new_tokens = 4;
    p.num_new_computed_tokens = num_hit;
    p.new_computed_blocks = hit;
    hit[STATES].count = 1; /* a hit that ends elsewhere */
    assert_int_equal(quire_cache_allocate_slots(w.kit.cache, &b.r, &p, NULL), QUIRE_E_ARGUMENT);
    hit[STATES].count = 2;
    quire_block taken[KIT_MAX_BLOCKS];
    uint32_t num_taken = kit_fill(&w.kit, 2, taken); /* two copies, and the state that is kept */
    assert_int_equal(quire_cache_allocate_slots(w.kit.cache, &b.r, &p, NULL), QUIRE_NO_SPACE);
    kit_unfill(&w.kit, taken, num_taken);
    assert_int_equal(find(&w, &a, STATES, 2), kept);
    assert_int_equal(quire_cache_allocate_slots(w.kit.cache, &b.r, &p, new_blocks), QUIRE_OK);
    kit_check(&w.kit);
    assert_int_equal(block_of(&w, &b, FULL, 0), block_of(&w, &a, FULL, 0));
    assert_int_equal(new_blocks[FULL].count, 1);
    assert_int_equal(new_blocks[FULL].ids[0], block_of(&w, &b, FULL, 1));
    assert_int_equal(new_blocks[STATES].count, 1);
    assert_int_equal(new_blocks[STATES].ids[0], block_of(&w, &b, STATES, 1));
    assert_int_equal(take_copies(&w, copies), 2);
    expect_copy(copies[0], FULL, full, block_of(&w, &b, FULL, 1));
    expect_copy(copies[1], STATES, kept, block_of(&w, &b, STATES, 1));
    kit_free(&w.kit, &a);
    kit_free(&w.kit, &b);
    kit_close(&w.kit);
}

static void a_state_is_no_hit_in_its_step(void **state)
{
    (void)state;
    world w;
    kit_request a;
    kit_request b;
    begin(&w);
    compute_prompt(&w, &a);
    compute(&w, &a, 2); /* its state is copied in this step */
    kit_request_init(&w.kit, &b, "aaaabbbbcccczzzz");
    assert_int_equal(kit_try_prefill(&w.kit, &b), QUIRE_NO_SPACE);
    assert_int_equal(quire_cache_new_step_starts(w.kit.cache), QUIRE_OK);
    assert_int_equal(kit_try_prefill(&w.kit, &b), QUIRE_OK);
    kit_free(&w.kit, &a);
    kit_free(&w.kit, &b);
    kit_close(&w.kit);
}

/* Source and target are in use until the copy was taken, whoever else has ended. */
static void copies_outlive_their_requests(void **state)
{
    (void)state;
    world w;
    kit_request a;
    quire_block_copy copies[8];
    begin(&w);
    compute_prompt(&w, &a);
    compute(&w, &a, 2);
    kit_free(&w.kit, &a);
    assert_int_equal(kit_num_free(&w.kit), 40 - 1 - 2);
    assert_int_equal(quire_cache_reset_prefix_cache(w.kit.cache), QUIRE_BUSY);
    assert_int_equal(take_copies(&w, copies), 1);
    assert_int_equal(kit_num_free(&w.kit), 40 - 1);
    assert_int_equal(quire_cache_reset_prefix_cache(w.kit.cache), QUIRE_OK);
    kit_close(&w.kit);
}

/* EAGLE drops the tokens of one hash: a hit of 12 becomes 8, where no block is copied. */
static void eagle_drops_one_hash(void **state)
{
    (void)state;
    world w;
    kit_request a;
    kit_request b;
    quire_block_copy copies[8];
    begin(&w);
    w.config.use_eagle = QUIRE_ON;
    compute_prompt(&w, &a);
    assert_true(find(&w, &a, FULL, 2) != 0);
    assert_int_equal(find(&w, &a, STATES, 2), 0); /* the state behind 8 is the one to resume at */
    assert_true(find(&w, &a, STATES, 1) != 0);
    assert_int_equal(quire_cache_new_step_starts(w.kit.cache), QUIRE_OK);
    kit_request_init(&w.kit, &b, "aaaabbbbcccczzzz");
    assert_int_equal(kit_prefill(&w.kit, &b), 8);
    assert_int_equal(take_copies(&w, copies), 0);
    kit_free(&w.kit, &a);
    kit_free(&w.kit, &b);
    kit_close(&w.kit);
}

/* The end of a prefix that another request has too, inside a block. */
static void a_junction_is_kept_where_asked(void **state)
{
    (void)state;
    for (uint32_t is_on = 0; is_on < 2; is_on++) {
        world w;
        kit_request a;
        begin(&w);
        w.config.use_eagle = QUIRE_ON;
        w.config.mamba_shared_prefix_checkpoint = is_on != 0 ? QUIRE_ON : QUIRE_OFF;
        kit_open(&w.kit, &w.config);
        kit_request_init(&w.kit, &a, "aaaabbbbccccddddeeeeff");
        quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
        p.num_new_tokens = 12;
        p.shared_prefix_boundary = 12;
        assert_int_equal(quire_cache_allocate_slots(w.kit.cache, &a.r, &p, NULL), QUIRE_OK);
        kit_check(&w.kit);
        assert_int_equal(find(&w, &a, STATES, 2) != 0, is_on);
        kit_free(&w.kit, &a);
        kit_close(&w.kit);
    }
}

/* One chunk of 23 tokens: the block before the last one holds the state behind 20. */
static void a_state_inside_a_chunk_is_kept(void **state)
{
    (void)state;
    world w;
    kit_request a;
    kit_request b;
    quire_block_copy copies[8];
    begin(&w);
    w.groups[STATES].spec.num_prefill_checkpoint_blocks = 1;
    w.groups[STATES].spec.prefill_checkpoint_alignment = 1;
    kit_open(&w.kit, &w.config);
    kit_request_init(&w.kit, &a, "aaaabbbbccccddddeeeefff");
    assert_int_equal(kit_prefill(&w.kit, &a), 0);
    assert_int_equal(block_of(&w, &a, STATES, 0), 0);
    quire_block kept = block_of(&w, &a, STATES, 1);
    assert_true(kept != 0);
    assert_int_equal(find(&w, &a, STATES, 4), kept);
    assert_int_equal(find(&w, &a, STATES, 3), 0);

    assert_int_equal(quire_cache_new_step_starts(w.kit.cache), QUIRE_OK);
    kit_request_init(&w.kit, &b, "aaaabbbbccccddddeeeezzzz");
    assert_int_equal(kit_prefill(&w.kit, &b), 20);
    assert_int_equal(take_copies(&w, copies), 2);
    expect_copy(copies[0], FULL, block_of(&w, &a, FULL, 2), block_of(&w, &b, FULL, 2));
    expect_copy(copies[1], STATES, kept, block_of(&w, &b, STATES, 2));
    kit_free(&w.kit, &a);
    kit_free(&w.kit, &b);
    kit_close(&w.kit);
}

/* A chunk may reach beyond the text that the request has hashes of: no state there gets a key. */
static void a_state_behind_the_text_has_no_key(void **state)
{
    (void)state;
    world w;
    kit_request a;
    begin(&w);
    w.config.prefix_cache_retention_interval = QUIRE_RETAIN_ALL;
    w.groups[STATES].spec.num_prefill_checkpoint_blocks = 1;
    w.groups[STATES].spec.prefill_checkpoint_alignment = 1;
    kit_open(&w.kit, &w.config);
    kit_request_init(&w.kit, &a, "aaaab");
    quire_allocate_params p = QUIRE_ALLOCATE_PARAMS_INIT;
    p.num_new_tokens = 26; /* the state behind 24 is kept */
    assert_int_equal(quire_cache_allocate_slots(w.kit.cache, &a.r, &p, NULL), QUIRE_OK);
    kit_check(&w.kit);
    quire_block kept = block_of(&w, &a, STATES, 2);
    quire_block_info info;
    assert_true(kept != 0);
    assert_int_equal(quire_pool_get_block(w.kit.pool, kept, &info), QUIRE_OK);
    assert_null(info.hash.data);
    kit_free(&w.kit, &a);
    kit_close(&w.kit);
}

/* A block that a hit ends inside of has no hash in a request that is not longer. */
static void reports_name_whole_blocks(void **state)
{
    (void)state;
    world w;
    kit_request a;
    kit_request b;
    quire_block_span hit[KIT_MAX_GROUPS];
    uint32_t num_hit = 0;
    begin(&w);
    compute_prompt(&w, &a);
    assert_int_equal(quire_cache_new_step_starts(w.kit.cache), QUIRE_OK);
    kit_request_init(&w.kit, &b, "aaaabbbbccccz");
    assert_int_equal(b.r.num_hashes, 3);
    w.kit.cache->reports_hits = true;
    assert_int_equal(quire_cache_get_computed_blocks(w.kit.cache, &b.r, hit, &num_hit), QUIRE_OK);
    assert_int_equal(num_hit, 12);
    assert_int_equal(hit[FULL].count, 2);
    assert_int_equal(w.told.num_reported[FULL], 1);
    assert_int_equal(w.told.num_reported[STATES], 1);
    kit_free(&w.kit, &a);
    kit_close(&w.kit);
}

static void expect_refusal(const quire_cache_config *config, const char *words)
{
    quire_cache *cache = NULL;
    assert_int_equal(quire_cache_create(config, NULL, &cache), QUIRE_E_CONFIG);
    assert_non_null(strstr(quire_refusal(), words));
}

static void what_does_not_go_together(void **state)
{
    (void)state;
    world w;
    begin(&w);
    w.config.max_copies = 3;
    expect_refusal(&w.config, "max_copies is 3");
    begin(&w);
    w.groups[STATES].spec.num_prefill_checkpoint_blocks = 2;
    expect_refusal(&w.config, "num_prefill_checkpoint_blocks 2");
    w.groups[STATES].spec.num_prefill_checkpoint_blocks = 1;
    w.config.profile = QUIRE_PROFILE_DEFAULT;
    expect_refusal(&w.config, "num_prefill_checkpoint_blocks 1");
    begin(&w);
    w.groups[STATES].spec.num_prefill_checkpoint_blocks = 1;
    w.groups[STATES].spec.prefill_checkpoint_alignment = 1;
    w.config.enable_caching = QUIRE_OFF;
    w.config.hash_block_size = 3; /* checkpoints are at ends of hashes, with caching or without */
    expect_refusal(&w.config, "hash_block_size 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_prompts_state_moves_to_a_copy),
                                       cmocka_unit_test(a_hit_inside_a_block_is_copied),
                                       cmocka_unit_test(a_state_is_no_hit_in_its_step),
                                       cmocka_unit_test(copies_outlive_their_requests),
                                       cmocka_unit_test(eagle_drops_one_hash),
                                       cmocka_unit_test(a_junction_is_kept_where_asked),
                                       cmocka_unit_test(a_state_inside_a_chunk_is_kept),
                                       cmocka_unit_test(a_state_behind_the_text_has_no_key),
                                       cmocka_unit_test(reports_name_whole_blocks),
                                       cmocka_unit_test(what_does_not_go_together)};
    return cmocka_run_group_tests_name("cache_parts", tests, NULL, NULL);
}
