/* Every request ends, and what was computed before a cut does not count after it: the default
 * profile beside the quirks that vLLM 0.20.0 has instead. */
#include "base/quirks_kit.h"
#include <quire.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK = 4, MAX_LEN = 64 };

typedef struct bench {
    quire_cache_config cache;
    quire_hasher *hasher;
    quire_sched *sched;
    const quire_step *step;
    const quire_outputs *outputs;
} bench;

static quire_sched_config config_of(bench *b, quire_group_config *group, uint32_t num_blocks)
{
    quire_hasher_config hash = QUIRE_HASHER_CONFIG_INIT;
    hash.block_size = BLOCK;
    hash.seed = (quire_bytes){"0", 1};
    assert_int_equal(quire_hasher_create(&hash, NULL, &b->hasher), QUIRE_OK);
    *group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                           .block_size = BLOCK,
                                           .num_kv_heads = 1,
                                           .head_size = 8,
                                           .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    b->cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    c.cache = &b->cache;
    c.cache->num_blocks = num_blocks;
    c.cache->max_model_len = MAX_LEN;
    c.cache->groups = group;
    c.cache->num_groups = 1;
    c.hasher = b->hasher;
    c.max_num_seqs = 4;
    c.max_requests = 8;
    c.max_batches = 4;
    return c;
}

static void open_bench(bench *b, const quire_sched_config *c)
{
    assert_int_equal(quire_sched_create(c, NULL, &b->sched), QUIRE_OK);
}

static void open_quirky(bench *b, const quire_sched_config *c, uint64_t quirks)
{
    quirks_change(quirks, 0);
    open_bench(b, c);
    quirks_change(0, 0);
}

static void close_bench(bench *b)
{
    quire_sched_destroy(b->sched);
    quire_hasher_destroy(b->hasher);
}

static int add(bench *b, const char *id, uint32_t num_tokens, quire_request_params p,
               quire_req *req)
{
    quire_token prompt[MAX_LEN];
    for (uint32_t i = 0; i < num_tokens; i++)
        prompt[i] = (quire_token)(i + 100 * (uint32_t)id[0]);
    p.id = (quire_bytes){id, strlen(id)};
    p.prompt = prompt;
    p.num_prompt_tokens = num_tokens;
    return quire_sched_add(b->sched, &p, req);
}

static void schedule(bench *b)
{
    assert_int_equal(quire_sched_schedule(b->sched, &b->step), QUIRE_OK);
    assert_int_equal(quire_sched_check(b->sched), QUIRE_OK);
}

/* One token, `token`, for every request that samples. */
static void update(bench *b, uint64_t step, quire_token token)
{
    quire_token sampled[4] = {token, token, token, token};
    quire_model_output out = {.size = sizeof(quire_model_output), .sampled = sampled};
    assert_int_equal(quire_sched_update(b->sched, step, &out, &b->outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(b->sched), QUIRE_OK);
}

static uint32_t num_tokens_of(const bench *b, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    assert_int_equal(quire_sched_get_req_info(b->sched, req, &info), QUIRE_OK);
    return info.num_tokens;
}

/* ---- HOPELESS_WAITS -------------------------------------------------------- */

static void what_cannot_fit_is_refused(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 6); /* 5 blocks: 20 tokens */
        open_quirky(&b, &c, quirk ? QR_QUIRK(HOPELESS_WAITS) : 0);
        quire_req req;
        int err = add(&b, "a", 21,
                      (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 4},
                      &req);
        assert_int_equal(err, quirk ? QUIRE_OK : QUIRE_E_TOO_LONG);
        assert_int_equal(
            add(&b, "b", 19,
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 1},
                &req),
            QUIRE_OK);
        schedule(&b);
        assert_int_equal(b.step->num_reqs, quirk ? 0 : 1); /* b waits behind a, for ever */
        update(&b, b.step->step, 7);
        close_bench(&b);
    }
}

static void what_outgrows_the_pool_ends(void **state)
{
    (void)state;
    bench b;
    quire_group_config group;
    quire_sched_config c = config_of(&b, &group, 6);
    open_bench(&b, &c);
    quire_req req;
    assert_int_equal(
        add(&b, "a", 18,
            (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30}, &req),
        QUIRE_OK);
    uint32_t num_tokens = 0;
    quire_finish_reason reason = QUIRE_FINISH_NONE;
    for (int i = 0; i < 20 && reason == QUIRE_FINISH_NONE; i++) {
        schedule(&b);
        update(&b, b.step->step, 7);
        for (uint32_t k = 0; k < b.outputs->num_outputs; k++) {
            num_tokens += b.outputs->outputs[k].num_new_tokens;
            reason = b.outputs->outputs[k].finish_reason;
        }
    }
    assert_int_equal(reason, QUIRE_FINISH_LENGTH);
    assert_int_equal(num_tokens, 3); /* positions 18 and 19 had room, the last needs none */
    assert_int_equal(quire_sched_get_num_unfinished(b.sched), 0);
    assert_int_equal(quire_sched_get_usage(b.sched).active, 0);
    close_bench(&b);
}

static void with_the_quirk_it_is_preempted_for_ever(void **state)
{
    (void)state;
    bench b;
    quire_group_config group;
    quire_sched_config c = config_of(&b, &group, 6);
    c.profile = QUIRE_PROFILE_VLLM_0_20;
    open_bench(&b, &c);
    quire_req req;
    assert_int_equal(
        add(&b, "a", 18,
            (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30}, &req),
        QUIRE_OK);
    uint32_t preempted = 0;
    for (int i = 0; i < 20; i++) {
        schedule(&b);
        preempted += b.step->num_preempted;
        update(&b, b.step->step, 7);
    }
    assert_true(preempted > 0);
    assert_int_equal(quire_sched_get_num_unfinished(b.sched), 1);
    close_bench(&b);
}

/* ---- MIN_TOKENS_HIDES_LENGTH ----------------------------------------------- */

static void min_tokens_do_not_hide_the_length(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 40);
        open_quirky(&b, &c, quirk ? QR_QUIRK(MIN_TOKENS_HIDES_LENGTH) : 0);
        quire_req req;
        quire_request_params p = {
            .size = sizeof(quire_request_params), .max_tokens = 4, .min_tokens = MAX_LEN};
        assert_int_equal(add(&b, "a", 8, p, &req), QUIRE_OK);
        for (int i = 0; i < 2 * MAX_LEN; i++) {
            schedule(&b);
            update(&b, b.step->step, 7);
        }
        assert_int_equal(quire_sched_get_num_unfinished(b.sched), quirk);
        close_bench(&b);
    }
}

/* ---- RESET_DROPS_ONE ------------------------------------------------------- */

/* Three steps in flight, then a reset: which of their outputs count? */
static void a_reset_voids_all_that_is_in_flight(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 40);
        c.async_scheduling = QUIRE_ON;
        uint64_t quirks = QR_QUIRK(STALE_OUTPUTS); /* else preemption alone makes them void */
        open_quirky(&b, &c, quirks | (quirk ? QR_QUIRK(RESET_DROPS_ONE) : 0));
        quire_req req;
        assert_int_equal(
            add(&b, "a", 8,
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30},
                &req),
            QUIRE_OK);
        uint64_t steps[3];
        for (int i = 0; i < 3; i++) {
            schedule(&b);
            steps[i] = b.step->step;
        }
        assert_int_equal(quire_sched_reset_prefix_cache(b.sched, 1, 0), QUIRE_OK);
        for (int i = 0; i < 3; i++)
            update(&b, steps[i], 7);
        assert_int_equal(num_tokens_of(&b, req), quirk ? 10 : 8);
        close_bench(&b);
    }
}

/* ---- SESSION_KEEPS_AHEAD --------------------------------------------------- */

static void a_session_takes_nothing_from_before_its_input(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 40);
        c.async_scheduling = QUIRE_ON;
        open_quirky(&b, &c, quirk ? QR_QUIRK(SESSION_KEEPS_AHEAD) : 0);
        quire_req req;
        quire_request_params p = {.size = sizeof(quire_request_params),
                                  .max_tokens = 30,
                                  .is_resumable = 1,
                                  .has_eos = 1,
                                  .eos_token_id = 2};
        assert_int_equal(add(&b, "a", 8, p, &req), QUIRE_OK);
        quire_token more[3] = {50, 51, 52};
        quire_request_params next = p;
        next.prompt = more;
        next.num_prompt_tokens = 3;
        assert_int_equal(quire_sched_continue(b.sched, req, &next), QUIRE_OK);
        schedule(&b);
        uint64_t first = b.step->step;
        schedule(&b);
        uint64_t second = b.step->step;
        update(&b, first, 2); /* stops; the input follows */
        uint32_t before = num_tokens_of(&b, req);
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        assert_int_equal(quire_sched_get_req_info(b.sched, req, &info), QUIRE_OK);
        assert_int_equal(info.num_output_placeholders, quirk);
        update(&b, second, 9); /* was computed behind the token that is dropped */
        assert_int_equal(num_tokens_of(&b, req), before + (uint32_t)quirk);
        close_bench(&b);
    }
}

/* ---- STALE_OUTPUTS --------------------------------------------------------- */

/* A step with drafts is in flight, its request is preempted by a reset and admitted again; then the
 * output comes and says that drafts were rejected. */
static void stale_rejects_do_not_count(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 40);
        c.num_spec_tokens = 2;
        c.max_num_batched_tokens = 16;
        uint64_t quirks = QR_QUIRK(RESET_DROPS_ONE); /* else the reset alone makes it void */
        open_quirky(&b, &c, quirks | (quirk ? QR_QUIRK(STALE_OUTPUTS) : 0));
        quire_req req;
        assert_int_equal(
            add(&b, "a", 8,
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30},
                &req),
            QUIRE_OK);
        schedule(&b);
        update(&b, b.step->step, 7);
        quire_token drafts[2] = {1, 2};
        uint32_t num_drafts = 2;
        assert_int_equal(quire_sched_update_drafts(b.sched, &req, 1, drafts, 2, &num_drafts),
                         QUIRE_OK);
        schedule(&b);
        uint64_t in_flight = b.step->step;
        assert_int_equal(b.step->num_tokens[0], 3);
        assert_int_equal(quire_sched_reset_prefix_cache(b.sched, 1, 0), QUIRE_OK);
        schedule(&b); /* admitted again: 9 tokens */
        assert_int_equal(b.step->num_tokens[0], 9);
        quire_token sampled[3] = {5, 0, 0};
        uint32_t num_sampled = 1; /* both drafts were rejected */
        quire_model_output out = {.size = sizeof(quire_model_output),
                                  .sampled = sampled,
                                  .stride = 3,
                                  .num_sampled = &num_sampled};
        assert_int_equal(quire_sched_update(b.sched, in_flight, &out, &b.outputs), QUIRE_OK);
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        assert_int_equal(quire_sched_get_req_info(b.sched, req, &info), QUIRE_OK);
        assert_int_equal(info.num_computed_tokens, quirk ? 7 : 9);
        close_bench(&b);
    }
}

/* ---- FAILED_BLOCKS_STAY ---------------------------------------------------- */

static int all_but_the_last(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                            uint32_t *is_async)
{
    (void)req;
    *num_external = *(uint32_t *)user > num_local ? *(uint32_t *)user - num_local : 0;
    *is_async = 0;
    return QUIRE_OK;
}

static void blocks_of_failed_loads_are_not_found(void **state)
{
    (void)state;
    for (int quirk = 0; quirk < 2; quirk++) {
        bench b;
        quire_group_config group;
        quire_sched_config c = config_of(&b, &group, 40);
        uint32_t num_there = 8;
        quire_connector connector = {.size = sizeof(quire_connector),
                                     .user = &num_there,
                                     .get_num_new_matched_tokens = all_but_the_last};
        c.connector = &connector;
        open_quirky(&b, &c, quirk ? QR_QUIRK(FAILED_BLOCKS_STAY) : 0);
        quire_req req;
        assert_int_equal(
            add(&b, "a", 10,
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30},
                &req),
            QUIRE_OK);
        schedule(&b);
        quire_block failed = b.step->blocks[0].ids[0];
        quire_token sampled = 7;
        quire_model_output out = {.size = sizeof(quire_model_output),
                                  .sampled = &sampled,
                                  .invalid_blocks = &failed,
                                  .num_invalid_blocks = 1};
        assert_int_equal(quire_sched_update(b.sched, b.step->step, &out, &b.outputs), QUIRE_OK);
        assert_int_equal(quire_sched_finish(b.sched, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                         QUIRE_OK);
        num_there = 0;
        assert_int_equal(
            add(&b, "a", 10,
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30},
                &req),
            QUIRE_OK);
        schedule(&b);
        assert_int_equal(b.step->num_computed_tokens[0], quirk ? 8 : 0); /* junk is a hit */
        close_bench(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_fit_is_refused),
        cmocka_unit_test(what_outgrows_the_pool_ends),
        cmocka_unit_test(with_the_quirk_it_is_preempted_for_ever),
        cmocka_unit_test(min_tokens_do_not_hide_the_length),
        cmocka_unit_test(a_reset_voids_all_that_is_in_flight),
        cmocka_unit_test(a_session_takes_nothing_from_before_its_input),
        cmocka_unit_test(stale_rejects_do_not_count),
        cmocka_unit_test(blocks_of_failed_loads_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
