/* sched/test_sched_quirks.c - the scheduler's quirks of vLLM 0.20.0, each in both profiles and each
 * way: the bug shows with the bit and does not without. */
#include "base/quirks_kit.h"
#include "sched/sched_kit.h"

enum { NUM_VARIANTS = 4 };

typedef struct variant {
    quire_profile profile;
    uint64_t quirks_on;
    uint64_t quirks_off;
    bool has_bug;
} variant;

static variant variant_of(uint64_t quirk, uint32_t i)
{
    const variant all[NUM_VARIANTS] = {
        {QUIRE_PROFILE_DEFAULT, 0, 0, false},
        {QUIRE_PROFILE_DEFAULT, quirk, 0, true},
        {QUIRE_PROFILE_VLLM_0_20, 0, 0, true},
        {QUIRE_PROFILE_VLLM_0_20, 0, quirk, false},
    };
    return all[i];
}

static sched_kit kit;

static void open_variant(quire_sched_config config, const variant *v)
{
    config.profile = v->profile;
    quirks_change(v->quirks_on, v->quirks_off);
    kit_open(&kit, &config);
    quirks_change(0, 0);
}

/* ---- PRIORITY_SKIP ---------------------------------------------------------- */

/* All four blocks are in use: p 1, q 1, r 2. In the third step p is passed over, since a step in
 * flight gives its last token; q needs a block and preempts p, which stands before it; and r, which
 * needs none, comes right after. */
static void priority_skip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(PRIORITY_SKIP), i);
        quire_sched_config config = kit_config(&kit);
        config.cache->num_blocks = 5;
        config.policy = QUIRE_POLICY_PRIORITY;
        config.async_scheduling = QUIRE_ON;
        config.max_batches = 3;
        open_variant(config, &v);
        kit.params.max_tokens = 1;
        kit.params.priority = 9;
        quire_req p = kit_add(&kit, "p", 4);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "p:4");
        kit.params.max_tokens = 3;
        kit.params.priority = 0;
        kit_add(&kit, "q", 4);
        kit_add(&kit, "r", 5);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "q:4 r:5");
        kit_step(&kit);
        assert_int_equal(kit.step->num_preempted, 1);
        assert_int_equal(kit.step->preempted[0], p);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "q:1" : "q:1 r:1");
        kit_close(&kit);
    }
}

/* ---- PRIORITY_TIES ---------------------------------------------------------- */

/* a and b are equal but for their ids, and both blocks are in use. a stands first and needs another
 * one: if it is preempted itself, b is next, and then a again. */
static void priority_ties(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(PRIORITY_TIES), i);
        quire_sched_config config = kit_config(&kit);
        config.cache->num_blocks = 3;
        config.policy = QUIRE_POLICY_PRIORITY;
        open_variant(config, &v);
        kit.params.max_tokens = 3;
        quire_req a = kit_add(&kit, "a", 4);
        quire_req b = kit_add(&kit, "b", 4);
        kit_run(&kit, 7);
        assert_string_equal(kit_shown_step(&kit), "a:4 b:4");
        kit_run(&kit, 7);
        assert_int_equal(kit.step->num_preempted, 1);
        assert_int_equal(kit.step->preempted[0], v.has_bug ? a : b);
        kit_close(&kit);
    }
}

/* ---- Mamba: MAMBA_ALIGN_INSIDE, WINDOW_AHEAD, SESSION_KEEPS_AHEAD ------------ */

static quire_sched_config mamba_config(quire_mamba_mode mode)
{
    static quire_group_config groups[2];
    quire_sched_config config = kit_config(&kit);
    groups[0] = kit.group;
    groups[1] = (quire_group_config){
        .spec = {.kind = QUIRE_LAYER_MAMBA,
                 .block_size = 8,
                 .states = {{.num_dims = 1, .dims = {8}, .dtype = QUIRE_DTYPE_FLOAT16}},
                 .mamba_mode = mode}};
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    return config;
}

/* A session goes on behind 11 tokens, inside a block of 8. If the step passed token 16, the block
 * would be cached with the state of token 11. */
static void mamba_align_inside(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(MAMBA_ALIGN_INSIDE), i);
        quire_sched_config config = mamba_config(QUIRE_MAMBA_MODE_ALIGN);
        config.cache->use_eagle = QUIRE_ON;
        open_variant(config, &v);
        kit.params.is_resumable = 1;
        kit.params.max_tokens = 1;
        quire_req req = kit_add(&kit, "s", 11);
        while (kit_info(&kit, req).status != QUIRE_REQ_WAITING_FOR_STREAMING)
            kit_run(&kit, 7);
        assert_int_equal(kit_info(&kit, req).num_computed_tokens, 11);
        assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "t", 12)), QUIRE_OK);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "s:12" : "s:5");
        kit_answer(&kit, kit.step->step, 7);
        kit_close(&kit);
    }
}

static uint32_t num_to_load;

static int match_all(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                     uint32_t *is_async)
{
    (void)user;
    (void)req;
    *num_external = 9 - num_local;
    *is_async = 1;
    return QUIRE_OK;
}

static void note_load(void *user, quire_req req, const quire_block_span *blocks, uint32_t n)
{
    (void)user;
    (void)req;
    (void)blocks;
    num_to_load = n;
}

/* The last token of a prompt that was loaded as a whole is computed again. A Mamba layer then needs
 * the state before it. */
static void mamba_loads_leave_one_token(void **state)
{
    (void)state;
    const quire_connector connector = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = match_all,
                                       .update_state_after_alloc = note_load};
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(WINDOW_AHEAD), i);
        quire_sched_config config = mamba_config(QUIRE_MAMBA_MODE_ALL);
        config.connector = &connector;
        open_variant(config, &v);
        num_to_load = 0;
        kit_add(&kit, "a", 9);
        kit_run(&kit, 7);
        assert_int_equal(num_to_load, v.has_bug ? 9 : 8);
        kit_close(&kit);
    }
}

/* A session stops while two steps are in flight, of which the second has moved the state past what
 * the session keeps: it is computed again. */
static void mamba_sessions_do_not_go_back(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(SESSION_KEEPS_AHEAD), i);
        quire_sched_config config = mamba_config(QUIRE_MAMBA_MODE_ALL);
        config.async_scheduling = QUIRE_ON;
        config.max_batches = 3;
        open_variant(config, &v);
        kit.params.is_resumable = 1;
        kit.params.has_eos = 1;
        kit.params.eos_token_id = 2;
        quire_req req = kit_add(&kit, "s", 9);
        kit_step(&kit);
        uint64_t first = kit.step->step;
        kit_step(&kit);
        kit_step(&kit);
        kit_answer(&kit, first, 2);
        assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_WAITING_FOR_STREAMING);
        assert_int_equal(kit_info(&kit, req).seq != 0, v.has_bug);
        kit_close(&kit);
    }
}

static quire_reason last_reason;

static void note_reason(void *user, const quire_decision *decision)
{
    (void)user;
    last_reason = decision->kind == QUIRE_DECISION_HELD_UP ? decision->reason : QUIRE_REASON_NONE;
}

/* A session stops while three more steps are in flight, and its input has one token: it is shorter
 * than what counts as computed. */
static void sessions_that_are_ahead_wait(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(SESSION_KEEPS_AHEAD), i);
        quire_sched_config config = kit_config(&kit);
        config.async_scheduling = QUIRE_ON;
        config.max_batches = 5;
        config.on_decision = note_reason;
        open_variant(config, &v);
        kit.params.is_resumable = 1;
        kit.params.has_eos = 1;
        kit.params.eos_token_id = 2;
        quire_req req = kit_add(&kit, "s", 9);
        assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "i", 1)), QUIRE_OK);
        kit_step(&kit);
        uint64_t first = kit.step->step;
        for (uint32_t k = 0; k < 3; k++)
            kit_step(&kit);
        kit_answer(&kit, first, 2);
        last_reason = QUIRE_REASON_NONE;
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "" : "s:1");
        assert_int_equal(last_reason, v.has_bug ? QUIRE_REASON_STREAMING : QUIRE_REASON_NONE);
        kit_close(&kit);
    }
}

/* ---- LOAD_ASKED_AGAIN ------------------------------------------------------- */

static uint32_t num_asked;
static uint32_t num_found; /* by the connector, whenever it is asked */

static int match_found(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                       uint32_t *is_async)
{
    (void)user;
    (void)req;
    (void)num_local;
    num_asked++;
    *num_external = num_found;
    *is_async = num_found > 0;
    return QUIRE_OK;
}

static const quire_connector finder = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = match_found};

/* Updates with a step's output, which may be empty, and with the end of a load; the connector has
 * nothing from then on. */
static void end_load(uint64_t step, quire_req req)
{
    quire_token sampled[KIT_RUNNING] = {7, 7, 7, 7};
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = sampled,
                                       .finished_recving = &req,
                                       .num_finished_recving = 1};
    assert_int_equal(quire_sched_update(kit.sched, step, &output, &kit.outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    num_found = 0;
}

/* The only token of a prompt was loaded and is computed again: no token counts as computed. */
static void load_of_one_token_is_asked_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(LOAD_ASKED_AGAIN), i);
        quire_sched_config config = kit_config(&kit);
        config.connector = &finder;
        open_variant(config, &v);
        num_asked = 0;
        num_found = 1;
        quire_req a = kit_add(&kit, "a", 1);
        kit_step(&kit);
        assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
        end_load(kit.step->step, a);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "a:1");
        assert_int_equal(num_asked, v.has_bug ? 2 : 1);
        kit_close(&kit);
    }
}

/* A request is preempted by a reset while a step with 3 drafts is in flight, and waits for a load
 * of 3 tokens. Then the output of that step rejects the drafts, which vLLM takes off the 3. */
static quire_req lose_loaded_tokens(const variant *v)
{
    quire_sched_config config = kit_config(&kit);
    config.connector = &finder;
    config.async_scheduling = QUIRE_ON;
    config.max_batches = 3;
    config.num_spec_tokens = 3;
    config.max_loading = 1;
    open_variant(config, v);
    num_found = 0;
    quire_req a = kit_add(&kit, "a", 5);
    kit_step(&kit);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:4");
    kit_answer(&kit, 1, 7);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 1, 0), QUIRE_OK);
    num_found = 3;
    num_asked = 0;
    kit_step(&kit);
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, 3);
    kit_answer(&kit, 2, 7);
    assert_int_equal(kit_info(&kit, a).num_computed_tokens, 0);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    return a;
}

/* vLLM keeps the blocks of the load and asks as for a new request. */
static void load_that_lost_its_tokens_is_asked_again(void **state)
{
    (void)state;
    for (uint32_t i = 2; i < NUM_VARIANTS; i++) { /* with STALE_OUTPUTS alone */
        variant v = variant_of(QR_QUIRK(LOAD_ASKED_AGAIN), i);
        quire_block_span before[1];
        quire_block_span after[1];
        quire_req a = lose_loaded_tokens(&v);
        assert_int_equal(quire_sched_get_blocks(kit.sched, a, before), QUIRE_OK);
        assert_int_equal(before[0].count, 1);
        quire_block first = before[0].ids[0];
        end_load(3, a);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), "a:6");
        assert_int_equal(kit.step->num_computed_tokens[0], 0);
        assert_int_equal(num_asked, v.has_bug ? 2 : 1);
        assert_int_equal(quire_sched_get_blocks(kit.sched, a, after), QUIRE_OK);
        assert_int_equal(after[0].count, 2);
        assert_int_equal(after[0].ids[0], first);
        kit_close(&kit);
    }
}

/* The connector has tokens once more. The request has the only place of a load itself. */
static void load_that_lost_its_tokens_is_loaded_again(void **state)
{
    (void)state;
    const variant v = variant_of(QR_QUIRK(LOAD_ASKED_AGAIN), 2);
    quire_req a = lose_loaded_tokens(&v);
    end_load(3, a);
    num_found = 3;
    kit_step(&kit);
    assert_int_equal(num_asked, 2);
    assert_int_equal(kit_info(&kit, a).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    end_load(4, a);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:3");
    kit_close(&kit);
}

/* The same, and another request has cached the first block by then. A hit for a request that has
 * blocks: vLLM fails with an assertion. Quire releases the blocks, and the next step uses the hit.
 */
static void load_that_lost_its_tokens_has_a_hit(void **state)
{
    (void)state;
    const variant v = variant_of(QR_QUIRK(LOAD_ASKED_AGAIN), 2);
    quire_req a = lose_loaded_tokens(&v);
    num_found = 0;
    quire_req other = kit_add(&kit, "a2", 5);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a2:5");
    assert_int_equal(quire_sched_finish(kit.sched, &other, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    end_load(3, a);
    kit_answer(&kit, 4, 7);
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 0);
    assert_int_equal(kit_info(&kit, a).seq, 0);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "a:2");
    assert_int_equal(kit.step->num_computed_tokens[0], 4);
    kit_close(&kit);
}

/* ---- SESSION_STALE_HASH ----------------------------------------------------- */

static uint32_t hit_of(const char *id, const quire_token *tokens, uint32_t n)
{
    quire_req req;
    quire_request_params p = *kit_params(&kit, id, 1);
    p.prompt = tokens;
    p.num_prompt_tokens = n;
    p.is_resumable = 0;
    p.max_tokens = 1;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_OK);
    kit_step(&kit);
    assert_int_equal(kit.step->num_reqs, 1);
    uint32_t hit = kit.step->num_computed_tokens[0];
    kit_answer(&kit, kit.step->step, 1);
    return hit;
}

/* Seven tokens and a sampled eighth fill two blocks. The eighth is dropped when the session goes
 * on, and an input takes its place; the second block's hash must be that of what it holds. */
static void session_stale_hash(void **state)
{
    (void)state;
    const quire_token sampled = 5;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(SESSION_STALE_HASH), i);
        quire_token old[9];
        quire_token now[9];
        open_variant(kit_config(&kit), &v);
        kit.params.is_resumable = 1;
        kit.params.max_tokens = 1;
        quire_req req = kit_add(&kit, "s", 7);
        kit_run(&kit, sampled);
        assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "t", 5)), QUIRE_OK);
        kit_run(&kit, sampled);
        assert_string_equal(kit_shown_step(&kit), "s:5");
        assert_int_equal(quire_sched_get_tokens(kit.sched, req, 0, 9, now), QUIRE_OK);
        memcpy(old, now, sizeof old);
        old[7] = sampled;
        assert_int_equal(now[7], 't' * 100);
        assert_int_equal(hit_of("x", old, 9), v.has_bug ? 8 : 4);
        quire_sched_finish_all(kit.sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
        assert_int_equal(hit_of("y", now, 9), v.has_bug ? 4 : 8);
        kit_close(&kit);
    }
}

/* The eos token comes twice, the second time with a step that was in flight when the session
 * stopped: vLLM stops it again. Its pages count once all the same, and it goes on. */
static void session_that_stops_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(STALE_OUTPUTS) | QR_QUIRK(SESSION_KEEPS_AHEAD), i);
        quire_sched_config config = kit_config(&kit);
        config.async_scheduling = QUIRE_ON;
        config.max_batches = 3;
        open_variant(config, &v);
        kit.params.is_resumable = 1;
        kit.params.has_eos = 1;
        kit.params.eos_token_id = 2;
        quire_req req = kit_add(&kit, "s", 9);
        kit_step(&kit);
        uint64_t first = kit.step->step;
        kit_step(&kit);
        kit_answer(&kit, first, 2);
        assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_WAITING_FOR_STREAMING);
        kit_answer(&kit, first + 1, 2);
        assert_int_equal(kit_info(&kit, req).status, QUIRE_REQ_WAITING_FOR_STREAMING);
        assert_int_equal(quire_sched_continue(kit.sched, req, kit_params(&kit, "t", 5)), QUIRE_OK);
        kit_run(&kit, 7);
        assert_int_equal(kit.step->num_reqs, 1);
        kit_close(&kit);
    }
}

/* ---- LORA_OF_STEP ------------------------------------------------------------ */

/* One adapter at a time. b comes while a is in no step, since it seems to have all its tokens; but
 * with min_tokens vLLM goes on. Now two run, each with its own adapter. c has a third one, and
 * waits in any case. */
static void lora_of_step(void **state)
{
    (void)state;
    for (uint32_t i = 2; i < NUM_VARIANTS; i++) { /* with MIN_TOKENS_HIDES_LENGTH */
        variant v = variant_of(QR_QUIRK(LORA_OF_STEP), i);
        quire_sched_config config = kit_config(&kit);
        config.async_scheduling = QUIRE_ON;
        config.max_batches = 3;
        config.max_loras = 1;
        open_variant(config, &v);
        kit.params.lora_id = 1;
        kit.params.max_tokens = 1;
        kit.params.min_tokens = 4;
        kit_add(&kit, "a", 5);
        kit_step(&kit);
        kit.params.lora_id = 2;
        kit.params.max_tokens = 9;
        kit_add(&kit, "b", 5);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "b:5" : "");
        kit_answer(&kit, 1, 7);
        kit_answer(&kit, 2, 7);
        kit.params.lora_id = 3;
        kit_add(&kit, "c", 5);
        kit_step(&kit);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "a:1 b:1" : "a:1");
        kit_close(&kit);
    }
}

/* ---- ENCODER_FREES_AGAIN ---------------------------------------------------- */

static quire_req add_with_sound(const char *id, const char *sound, uint32_t length)
{
    quire_req req = 0;
    quire_mm_input input = {.feature = {.identifier = {sound, 1}, .length = length}};
    quire_request_params p = *kit_params(&kit, id, 5);
    p.mm_inputs = &input;
    p.num_mm_inputs = 1;
    assert_int_equal(quire_sched_add(kit.sched, &p, &req), QUIRE_OK);
    return req;
}

static quire_sched_config cross_config(void)
{
    static quire_group_config groups[2];
    quire_sched_config config = kit_config(&kit);
    groups[0] = kit.group;
    groups[1] = kit.group;
    groups[1].spec.kind = QUIRE_LAYER_CROSS;
    config.cache->groups = groups;
    config.cache->num_groups = 2;
    config.cache->enable_caching = QUIRE_OFF;
    config.is_encoder_decoder = QUIRE_ON;
    return config;
}

/* The encoder's cache holds one sound. After three updates of the first request it seems to hold
 * more, and two are encoded in one step. */
static void encoder_frees_again(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < NUM_VARIANTS; i++) {
        variant v = variant_of(QR_QUIRK(ENCODER_FREES_AGAIN), i);
        quire_sched_config config = cross_config();
        config.encoder_compute_budget = 16;
        config.encoder_cache_size = 4;
        open_variant(config, &v);
        add_with_sound("a", "1", 4);
        for (uint32_t k = 0; k < 3; k++)
            kit_run(&kit, 1);
        assert_string_equal(kit_shown_step(&kit), "a:1");
        add_with_sound("b", "2", 4);
        add_with_sound("c", "3", 4);
        kit_run(&kit, 1);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "a:1 b:5 c:5" : "a:1 b:5");
        kit_run(&kit, 1);
        assert_string_equal(kit_shown_step(&kit), v.has_bug ? "a:1 b:1 c:1" : "a:1 b:1 c:5");
        kit_close(&kit);
    }
}

/* No quirk: a sound is longer than the decoder's text can be, and has its own blocks. */
static void an_encoder_sees_more_than_the_decoder(void **state)
{
    (void)state;
    quire_sched_config config = cross_config();
    enum { SOUND = 4 * KIT_LEN };
    config.cache->num_blocks = 2 * SOUND / KIT_BLOCK;
    config.encoder_compute_budget = SOUND;
    config.encoder_cache_size = SOUND;
    kit_open(&kit, &config);
    quire_req req = add_with_sound("a", "1", SOUND);
    kit_run(&kit, 1);
    quire_block_span blocks[2];
    assert_int_equal(quire_sched_get_blocks(kit.sched, req, blocks), QUIRE_OK);
    assert_int_equal(blocks[0].count, 2);
    assert_int_equal(blocks[1].count, SOUND / KIT_BLOCK);
    kit_close(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(priority_skip),
        cmocka_unit_test(priority_ties),
        cmocka_unit_test(mamba_align_inside),
        cmocka_unit_test(mamba_loads_leave_one_token),
        cmocka_unit_test(mamba_sessions_do_not_go_back),
        cmocka_unit_test(sessions_that_are_ahead_wait),
        cmocka_unit_test(load_of_one_token_is_asked_again),
        cmocka_unit_test(load_that_lost_its_tokens_is_asked_again),
        cmocka_unit_test(load_that_lost_its_tokens_is_loaded_again),
        cmocka_unit_test(load_that_lost_its_tokens_has_a_hit),
        cmocka_unit_test(session_stale_hash),
        cmocka_unit_test(session_that_stops_again),
        cmocka_unit_test(lora_of_step),
        cmocka_unit_test(encoder_frees_again),
        cmocka_unit_test(an_encoder_sees_more_than_the_decoder),
    };
    return cmocka_run_group_tests_name("sched_quirks", tests, NULL, NULL);
}
