/* sched_image/test_image_flight.c - what images of profile VLLM_0_32 keep besides, one by one, and
 * forgeries of it that restore refuses. test_image_runs.c has all of it together. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { NUM_FEATURES = 9, FEATURE = 2 };

static sched_kit kit;
static quire_sched_config config;
static uint32_t num_loads; /* tokens that the connector has for each request, not yet there */

static void open_0_32(void)
{
    config = kit_config(&kit);
    config.profile = QUIRE_PROFILE_VLLM_0_32;
}

/* The scheduler becomes one that was restored from its image. */
static void change_places(void)
{
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made), QUIRE_OK);
    quire_sched_destroy(kit.sched);
    kit.sched = made;
    kit_same(made, image);
}

static void expect_corrupt(void)
{
    kit_state image = kit_save(kit.sched);
    quire_sched *made = NULL;
    assert_int_equal(quire_sched_restore(&config, NULL, image.image, image.bytes, &made),
                     QUIRE_E_CORRUPT);
    free(image.image);
}

/* ---- kept ------------------------------------------------------------------ */

/* b shares 24 tokens with a. The full group has them all, the states of a only those of its end: b
 * computes them again, and stops where they end, in whichever chunk. */
static void a_shared_prefix_is_kept(void **state)
{
    (void)state;
    static quire_group_config groups[2];
    open_0_32();
    groups[0] = kit.group;
    groups[1] = (quire_group_config){
        .spec = {.kind = QUIRE_LAYER_MAMBA,
                 .block_size = KIT_BLOCK,
                 .mamba_mode = QUIRE_MAMBA_MODE_ALIGN,
                 .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}}}};
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->num_blocks = 60;
    config.max_num_batched_tokens = 16;
    kit_open(&kit, &config);
    quire_token prompt[40];
    for (uint32_t i = 0; i < 40; i++)
        prompt[i] = (quire_token)i;
    quire_request_params p = QUIRE_REQUEST_PARAMS_INIT;
    p.id = (quire_bytes){"a", 1};
    p.prompt = prompt;
    p.num_prompt_tokens = 40;
    p.max_tokens = 1;
    quire_req a;
    quire_req b;
    assert_int_equal(quire_sched_add(kit.sched, &p, &a), QUIRE_OK);
    while (quire_sched_get_num_unfinished(kit.sched) > 0)
        kit_run(&kit, 7);
    for (uint32_t i = 24; i < 40; i++)
        prompt[i] = (quire_token)(i + 100);
    p.id = (quire_bytes){"b", 1};
    assert_int_equal(quire_sched_add(kit.sched, &p, &b), QUIRE_OK);
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "b:16");
    assert_int_equal(kit.sched->table.requests[quire_req_index(b)].shared_prefix, 24);
    change_places();
    kit_run(&kit, 7);
    assert_string_equal(kit_shown_step(&kit), "b:8");
    kit_close(&kit);
}

/* Nine images, of which two steps encode the first six and the last three. The set of those in use
 * has grown to 32 places, and goes through them in their order; a new set of the last three would
 * begin with the eighth. */
static quire_req open_features(void)
{
    static quire_mm_input inputs[NUM_FEATURES];
    static const char names[] = "abcdefghi";
    open_0_32();
    config.encoder_compute_budget = NUM_FEATURES * FEATURE;
    config.encoder_cache_size = NUM_FEATURES * FEATURE;
    config.max_num_batched_tokens = 13; /* six, and half of the seventh */
    kit_open(&kit, &config);
    for (uint32_t i = 0; i < NUM_FEATURES; i++)
        inputs[i] = (quire_mm_input){
            .feature = {.identifier = {&names[i], 1}, .offset = i * FEATURE, .length = FEATURE}};
    kit.params = (quire_request_params){
        .size = sizeof(quire_request_params), .mm_inputs = inputs, .num_mm_inputs = NUM_FEATURES};
    quire_req req = kit_add(&kit, "r", NUM_FEATURES * FEATURE + 1);
    kit_run(&kit, 7);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "r:6");
    assert_int_equal(kit.sched->encoder.kept[quire_req_index(req)].used, 3);
    assert_int_equal(kit.sched->encoder.kept[quire_req_index(req)].mask, 31);
    return req;
}

static void the_order_of_features_is_kept(void **state)
{
    (void)state;
    open_features();
    change_places();
    kit_answer(&kit, 2, 7); /* all are computed, and become free in the set's order */
    const quire_mm_input large = {
        .feature = {.identifier = {"z", 1}, .length = NUM_FEATURES * FEATURE}};
    kit.params.mm_inputs = &large;
    kit.params.num_mm_inputs = 1;
    kit_add(&kit, "s", NUM_FEATURES * FEATURE);
    kit_step(&kit); /* it needs all places */
    char freed[NUM_FEATURES + 1] = "";
    assert_int_equal(kit.step->num_freed_encoder, NUM_FEATURES);
    for (uint32_t i = 0; i < NUM_FEATURES; i++)
        freed[i] = *(const char *)kit.step->freed_encoder[i].data;
    assert_string_equal(freed, "abcdefghi");
    kit_close(&kit);
}

static int never_ready(void *user, quire_req req)
{
    (void)user;
    (void)req;
    return -1;
}

static void bad_grammars_are_kept(void **state)
{
    (void)state;
    quire_grammar grammar = QUIRE_GRAMMAR_INIT;
    grammar.is_ready = never_ready;
    open_0_32();
    config.grammar = &grammar;
    kit_open(&kit, &config);
    kit.params.use_grammar = 1;
    quire_req a = kit_add(&kit, "a", 5);
    kit_step(&kit);
    change_places();
    kit_answer(&kit, 1, 7);
    assert_int_equal(kit.outputs->num_outputs, 1);
    assert_int_equal(kit.outputs->outputs[0].req, a);
    assert_int_equal(kit.outputs->outputs[0].finish_reason, QUIRE_FINISH_ERROR);
    kit_close(&kit);
}

static qr_key key_of(const unsigned char *hash)
{
    return (qr_key){hash, 32, 0};
}

/* A block with three extra keys: they go in the order in which they came. */
static void the_order_of_extra_keys_is_kept(void **state)
{
    (void)state;
    static quire_group_config groups[2];
    unsigned char hashes[3][32] = {{3}, {1}, {2}};
    open_0_32();
    groups[0] = kit.group;
    groups[0].spec.block_size = 4 * KIT_BLOCK;
    groups[1] = kit.group;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    kit_open(&kit, &config);
    kit_add(&kit, "a", 21);
    kit_run(&kit, 7);
    quire_pool *pool = kit.sched->cache->pool;
    uint32_t block = 0;
    while (!qr_block_has_key(&pool->queue.blocks[block]) || pool->extras.heads[block].first != 0)
        block++;
    for (uint32_t i = 0; i < 3; i++)
        assert_true(qr_extras_add(&pool->extras, &pool->map, block, key_of(hashes[i])));
    change_places();
    pool = kit.sched->cache->pool;
    uint32_t extra = pool->extras.heads[block].first;
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(qr_map_has_key(&pool->map, extra, key_of(hashes[i])));
        extra = qr_extras_next(&pool->extras, extra);
    }
    assert_int_equal(extra, 0);
    kit_close(&kit);
}

/* ---- fences ---------------------------------------------------------------- */

static int has_some(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                    uint32_t *is_async)
{
    (void)user;
    (void)req;
    (void)num_local;
    *num_external = num_loads;
    *is_async = 1;
    return QUIRE_OK;
}

/* Two requests in two steps in flight; the first ends meanwhile. */
static quire_req open_fenced(quire_req *other)
{
    static quire_connector connector;
    connector = (quire_connector)QUIRE_CONNECTOR_INIT;
    connector.get_num_new_matched_tokens = has_some;
    connector.is_kv_consumer = 1;
    open_0_32();
    config.async_scheduling = QUIRE_ON;
    config.connector = &connector;
    num_loads = 0;
    kit_open(&kit, &config);
    quire_req a = kit_add(&kit, "a", 9);
    *other = kit_add(&kit, "b", 9);
    kit_step(&kit);
    kit_step(&kit);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(kit.sched->fences.num_rows, 1);
    return a;
}

static void fenced_blocks_are_kept(void **state)
{
    (void)state;
    quire_req b;
    open_fenced(&b);
    uint32_t num_free = kit.sched->cache->pool->queue.num_free;
    change_places();
    kit_answer(&kit, 1, 7);
    assert_int_equal(kit.sched->cache->pool->queue.num_free, num_free);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit.sched->cache->pool->queue.num_free, num_free + 3);
    kit_close(&kit);
}

/* Blocks of two hashes, and states behind each hash; steps overlap, behind fences. */
static void open_parts(void)
{
    static quire_connector connector;
    static quire_group_config groups[2];
    connector = (quire_connector)QUIRE_CONNECTOR_INIT;
    connector.get_num_new_matched_tokens = has_some;
    connector.is_kv_consumer = 1;
    num_loads = 0;
    open_0_32();
    groups[0] = kit.group;
    groups[0].spec.block_size = 2 * KIT_BLOCK;
    groups[1] = (quire_group_config){
        .spec = {.kind = QUIRE_LAYER_MAMBA,
                 .block_size = 2 * KIT_BLOCK,
                 .mamba_mode = QUIRE_MAMBA_MODE_ALIGN,
                 .num_prefill_checkpoint_blocks = 1,
                 .prefill_checkpoint_alignment = 1,
                 .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}}}};
    config.async_scheduling = QUIRE_ON;
    config.connector = &connector;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->num_blocks = 40;
    config.cache->hash_block_size = KIT_BLOCK;
    kit_open(&kit, &config);
}

static quire_req add_text(const char *id, const char *text)
{
    uint32_t n = (uint32_t)strlen(text);
    const quire_request_params *params = kit_params(&kit, id, n);
    quire_req req = 0;
    for (uint32_t i = 0; i < n; i++)
        kit.prompt[i] = (quire_token)text[i];
    assert_int_equal(quire_sched_add(kit.sched, params, &req), QUIRE_OK);
    return req;
}

/* b's hit ends inside a block of each group. The step that copies them has not ended. */
static void copies_behind_a_fence_are_kept(void **state)
{
    (void)state;
    open_parts();
    quire_req a = add_text("a", "aaaabbbbccccddddeeeefff");
    kit_run(&kit, 7);
    assert_int_equal(quire_sched_finish(kit.sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    add_text("b", "aaaabbbbccccddddeeeezzz");
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "b:3");
    assert_int_equal(kit.step->num_copies, 2);
    assert_int_equal(kit.sched->fences.num_rows, 1);
    assert_int_equal(kit.sched->fences.rows[kit.sched->fences.first].num_copies, 2);
    uint32_t num_free = kit.sched->cache->pool->queue.num_free;
    change_places();
    assert_int_equal(kit.sched->cache->num_told, 2);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit.sched->fences.num_rows, 0);
    assert_int_equal(kit.sched->cache->num_copies, 0);
    assert_int_equal(kit.sched->cache->pool->queue.num_free, num_free + 2);
    kit_close(&kit);
}

static qr_part part_of(quire_req req)
{
    const quire_cache *cache = kit.sched->cache;
    quire_seq seq = kit.sched->table.requests[quire_req_index(req)].kv.seq;
    return qr_group_part(&cache->groups[1], qr_cache_row_of(cache, seq));
}

static void a_checkpoint_is_kept(void **state)
{
    (void)state;
    open_parts();
    quire_req a = add_text("a", "aaaabbbbccccddddeeeefff");
    kit_step(&kit);
    assert_int_equal(part_of(a).checkpoint, 1);
    assert_int_equal(part_of(a).checkpoint_end, 20);
    change_places();
    assert_int_equal(part_of(a).checkpoint, 1);
    assert_int_equal(part_of(a).checkpoint_end, 20);
    kit_answer(&kit, 1, 7);
    kit_close(&kit);
}

static void forged_checkpoints_are_refused(void **state)
{
    (void)state;
    static const qr_part FORGED[] = {
        {.partial = QR_NIL, .checkpoint = 1, .checkpoint_end = 0},
        {.partial = QR_NIL, .checkpoint = 1, .checkpoint_end = 19},
        {.partial = QR_NIL, .checkpoint = 1, .checkpoint_end = 24},
        {.partial = QR_NIL, .checkpoint = QR_NIL, .checkpoint_end = 20},
        {.partial = QR_NIL, .checkpoint = KIT_LEN, .checkpoint_end = 20},
        {.partial = 3, .checkpoint = QR_NIL, .checkpoint_end = 0},
    };
    open_parts();
    quire_req a = add_text("a", "aaaabbbbccccddddeeeefff");
    kit_step(&kit);
    const quire_cache *cache = kit.sched->cache;
    quire_seq seq = kit.sched->table.requests[quire_req_index(a)].kv.seq;
    qr_part *part = &cache->groups[1].parts[qr_cache_row_of(cache, seq)];
    qr_part true_part = *part;
    for (uint32_t i = 0; i < COUNT(FORGED); i++) {
        *part = FORGED[i];
        expect_corrupt();
    }
    *part = true_part;
    change_places();
    kit_close(&kit);
}

/* ---- forged ---------------------------------------------------------------- */

static qr_request *request_of(quire_req req)
{
    return &kit.sched->table.requests[quire_req_index(req)];
}

static void forge_fence_of_a_step_to_come(quire_req b)
{
    (void)b;
    kit.sched->fences.rows[0].fence = kit.sched->fences.scheduled + 1;
}

static void forge_fence_of_a_step_that_ended(quire_req b)
{
    (void)b;
    kit.sched->fences.rows[0].fence = 0;
}

static void forge_row_of_a_request(quire_req b)
{
    quire_seq seq = request_of(b)->kv.seq;
    quire_cache_request row = {.seq = kit.sched->fences.rows[0].seq};
    assert_true(qr_cache_drop(kit.sched->cache, &row));
    kit.sched->fences.rows[0].seq = seq;
    kit.sched->cache->num_seqs++; /* so that it can be saved */
}

static void forge_more_steps_ended_than_there_were(quire_req b)
{
    (void)b;
    kit.sched->fences.processed = kit.sched->fences.scheduled + 1;
}

static void forge_last_fence(quire_req b)
{
    request_of(b)->last_fence = kit.sched->fences.scheduled + 1;
}

static void forge_stale(quire_req b)
{
    request_of(b)->is_plain = false;
    request_of(b)->num_stale = request_of(b)->num_in_flight + 1;
}

static void forge_deferred(quire_req b)
{
    kit.sched->table.waiters[quire_req_index(b)].is_deferred = true;
}

static void forge_next_decode(quire_req b)
{
    request_of(b)->next_decode = kit.sched->flight.step + 2;
}

static void forge_doomed_twice(quire_req b)
{
    qr_doomed *doomed = &kit.sched->results.bad_grammars;
    doomed->reqs[0] = doomed->reqs[1] = b;
    doomed->num = 2;
}

static void forge_doomed_to_come(quire_req b)
{
    qr_doomed *doomed = &kit.sched->results.other_sizes;
    doomed->reqs[0] = b + (UINT64_C(1) << 32);
    doomed->num = 1;
}

static void forged_flights_are_refused(void **state)
{
    (void)state;
    static void (*const FORGED[])(quire_req) = {forge_fence_of_a_step_to_come,
                                                forge_fence_of_a_step_that_ended,
                                                forge_row_of_a_request,
                                                forge_more_steps_ended_than_there_were,
                                                forge_last_fence,
                                                forge_stale,
                                                forge_deferred,
                                                forge_next_decode,
                                                forge_doomed_twice,
                                                forge_doomed_to_come};
    for (uint32_t i = 0; i < COUNT(FORGED); i++) {
        quire_req b;
        open_fenced(&b);
        FORGED[i](b);
        expect_corrupt();
        quire_sched_destroy(kit.sched);
        quire_hasher_destroy(kit.hasher);
    }
}

static void forged_sets_are_refused(void **state)
{
    (void)state;
    quire_req req = open_features();
    qr_encoder *encoder = &kit.sched->encoder;
    uint32_t *table = encoder->tables + (size_t)quire_req_index(req) * encoder->order.max_slots;
    qr_kept_set kept = encoder->kept[quire_req_index(req)];
    assert_int_equal(table[8], 8);
    table[8] = 9; /* there is none */
    expect_corrupt();
    table[8] = 7; /* a second time */
    expect_corrupt();
    table[8] = 0; /* computed, and not in its place */
    expect_corrupt();
    table[8] = QR_NIL; /* one fewer than there are */
    expect_corrupt();
    table[8] = 8;
    encoder->kept[quire_req_index(req)].mask = 30;
    expect_corrupt();
    encoder->kept[quire_req_index(req)].mask = 7; /* too full for so few places */
    expect_corrupt();
    encoder->kept[quire_req_index(req)] = kept;
    encoder->kept[quire_req_index(req)].fill++;
    expect_corrupt();
    encoder->kept[quire_req_index(req)] = kept;
    change_places();
    kit_close(&kit);
}

/* What decides belongs to the config. */
static void other_options_are_refused(void **state)
{
    (void)state;
    open_0_32();
    config.async_scheduling = QUIRE_ON;
    kit_open(&kit, &config);
    kit_state image = kit_save(kit.sched);
    for (uint32_t i = 0; i < 3; i++) {
        quire_sched_config c = config;
        c.decode_interval = i == 0 ? 2 : 0;
        c.max_num_active_seqs = i == 1 ? 2 : 0;
        c.num_draft_slots = i == 2 ? 1 : 0;
        quire_sched *made = NULL;
        assert_int_equal(quire_sched_restore(&c, NULL, image.image, image.bytes, &made),
                         QUIRE_E_CONFIG);
    }
    free(image.image);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_prefix_is_kept),
        cmocka_unit_test(the_order_of_features_is_kept),
        cmocka_unit_test(bad_grammars_are_kept),
        cmocka_unit_test(the_order_of_extra_keys_is_kept),
        cmocka_unit_test(fenced_blocks_are_kept),
        cmocka_unit_test(copies_behind_a_fence_are_kept),
        cmocka_unit_test(a_checkpoint_is_kept),
        cmocka_unit_test(forged_checkpoints_are_refused),
        cmocka_unit_test(forged_flights_are_refused),
        cmocka_unit_test(forged_sets_are_refused),
        cmocka_unit_test(other_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
