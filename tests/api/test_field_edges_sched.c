/* The same for a live scheduler: every field of a request, its features and an engine's output, and
 * numbers that are arguments. State is compared as a saved image. */
#include "api/fields_kit.h"
#include "base/inner.h"
#include "sched/sched_kit.h"

#include <math.h>

#define N(name, least, most) ROW_NUMBER(TYPE, name, least, most)
#define R(name, least, most) ROW_REAL(TYPE, name, least, most)
#define F(name)              ROW_FLAG(TYPE, name)
#define A(name)              ROW_ANY(TYPE, name)

enum {
    LEN = KIT_LEN,
    BLOCK = KIT_BLOCK,
    DIGEST = 32,
    MOST_INPUTS = 2048 / (sizeof(qr_feature) + sizeof(quire_mm_feature)),
    MOST_STOPS = 512,
    NAME_BYTES = 300,
    LONG_TEXT = 1 << 20
};

/* ---- scheduler ---------------------------------------------------------------- */

typedef struct sched_world {
    sched_kit kit;
    quire_request_params params;
    quire_token tokens[LEN];
    quire_token stops[MOST_STOPS];
    quire_mm_input inputs[MOST_INPUTS];
    unsigned char hashes[LEN / BLOCK * DIGEST];
    char name[NAME_BYTES];
    char *text; /* LONG_TEXT bytes */
    quire_req session;
    bool continues; /* the params are for the session */
    uint32_t num_ok;
} sched_world;

static const qr_field_limits SCHED_LIMITS = {.max_model_len = LEN,
                                             .longest_feature = LEN,
                                             .max_hashes = 3,
                                             .max_features = MOST_INPUTS,
                                             .max_stop_tokens = MOST_STOPS};

static void open_sched(sched_world *w, quire_profile profile, quire_policy policy)
{
    *w = (sched_world){.text = w->text};
    quire_sched_config c = kit_config(&w->kit);
    c.profile = profile;
    c.policy = policy;
    c.num_spec_tokens = 2;
    c.log_stats = QUIRE_ON;
    c.max_loras = 2;
    c.encoder_compute_budget = 16;
    c.encoder_cache_size = 32;
    c.max_batches = 3;
    kit_open(&w->kit, &c);
    memset(w->name, 'n', sizeof w->name);
    for (uint32_t i = 0; i < MOST_INPUTS; i++)
        w->inputs[i] = (quire_mm_input){.feature = {.identifier = {w->name, 3}, .length = 1}};
    w->kit.params.is_resumable = 1;
    w->kit.params.max_tokens = 40;
    w->session = kit_add(&w->kit, "s", 5);
    w->kit.params = (quire_request_params){
        .size = sizeof(quire_request_params), .max_tokens = 3, .arrival_time = 2};
    kit_add(&w->kit, "a", 9);
    kit_run(&w->kit, 1);
    w->params = (quire_request_params){.size = sizeof(quire_request_params),
                                       .id = {w->name, 1},
                                       .prompt = w->tokens,
                                       .num_prompt_tokens = 12,
                                       .max_tokens = 2,
                                       .stop_token_ids = w->stops,
                                       .num_stop_token_ids = 1,
                                       .arrival_time = 1,
                                       .lora_name = {w->text, 4},
                                       .cache_salt = {w->text, 2},
                                       .mm_inputs = w->inputs,
                                       .hashes = w->hashes,
                                       .lora_path = {w->text, 3}};
}

static void close_sched(sched_world *w)
{
    quire_sched_finish_all(w->kit.sched, QUIRE_REQ_FINISHED_ABORTED, NULL);
    kit_run(&w->kit, 1);
    kit_close(&w->kit);
}

static void call_add(void *world)
{
    sched_world *w = world;
    quire_sched *s = w->kit.sched;
    kit_state before = kit_save(s);
    quire_req req = 0;
    int err = w->continues ? quire_sched_continue(s, w->session, &w->params)
                           : quire_sched_add(s, &w->params, &req);
    if (err != QUIRE_OK) {
        kit_same(s, before);
        return;
    }
    free(before.image);
    w->num_ok++;
    assert_int_equal(quire_sched_check(s), QUIRE_OK);
    for (uint32_t i = 0; i < 3; i++) {
        kit_run(&w->kit, 1);
        assert_int_equal(quire_sched_check(s), QUIRE_OK);
    }
    if (!w->continues) {
        quire_sched_finish(s, &req, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
        kit_run(&w->kit, 1);
        return;
    }
    quire_profile profile =
        s->settings.quirks == 0 ? QUIRE_PROFILE_DEFAULT : QUIRE_PROFILE_VLLM_0_20;
    quire_request_params params = w->params;
    quire_policy policy = s->settings.policy;
    uint32_t num_ok = w->num_ok;
    close_sched(w);
    open_sched(w, profile, policy);
    w->params = params;
    w->continues = true;
    w->num_ok = num_ok;
}

static void requests(void **state)
{
    (void)state;
    static sched_world w;
    const qr_field_limits *limits = &SCHED_LIMITS;
#define TYPE quire_request_params
    const field rows[] = {QR_FIELDS_quire_request_params(N, R, F, A)};
#undef TYPE
    w.text = calloc(1, LONG_TEXT + 1);
    assert_non_null(w.text);
    for (uint32_t i = 0; i < 3; i++) {
        open_sched(&w, i == 1 ? QUIRE_PROFILE_VLLM_0_20 : QUIRE_PROFILE_DEFAULT,
                   i == 0 ? QUIRE_POLICY_FCFS : QUIRE_POLICY_PRIORITY);
        w.continues = i == 2;
        for_each_edge(rows, COUNT(rows), &w.params, sizeof w.params, call_add, &w);
        assert_true(w.num_ok > 100);
        close_sched(&w);
    }
    free(w.text);
}

/* A feature of a request, field by field. */
static void features(void **state)
{
    (void)state;
    static sched_world w;
    const qr_field_limits *limits = &SCHED_LIMITS;
#define TYPE quire_mm_feature
    const field feature_rows[] = {QR_FIELDS_quire_mm_feature(N, R, F, A)};
#undef TYPE
#define TYPE quire_mm_input
    const field rows[] = {QR_FIELDS_quire_mm_input(N, R, F, A)};
#undef TYPE
    w.text = calloc(1, LONG_TEXT + 1);
    assert_non_null(w.text);
    open_sched(&w, QUIRE_PROFILE_DEFAULT, QUIRE_POLICY_FCFS);
    w.params.num_mm_inputs = 2;
    quire_mm_feature *f = &w.inputs[1].feature;
    for_each_edge(feature_rows, COUNT(feature_rows), f, sizeof *f, call_add, &w);
    for_each_edge(rows, COUNT(rows), &w.inputs[1], sizeof w.inputs[1], call_add, &w);
    assert_true(w.num_ok > 10);
    close_sched(&w);
    free(w.text);
}

/* ---- what the engine computed ------------------------------------------------- */

static const uint32_t EDGES[] = {0, 1, 2, 3, 4, 5, INT32_MAX, 1u << 31, UINT32_MAX};

static void call_update(sched_kit *kit, const quire_model_output *output)
{
    const quire_outputs *outputs;
    kit_state before = kit_save(kit->sched);
    int err = quire_sched_update(kit->sched, kit->step->step, output, &outputs);
    if (err != QUIRE_OK) {
        kit_same(kit->sched, before);
        assert_int_equal(quire_sched_forget_step(kit->sched, kit->step->step), QUIRE_OK);
    } else {
        free(before.image);
        quire_spec_stats spec = outputs->stats->spec;
        assert_true(spec.num_draft_tokens <= 2 * spec.num_drafts);
    }
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
}

/* One request with two drafts: each number of the output at each edge, in pairs. */
static void outputs_of_the_engine(void **state)
{
    (void)state;
    static sched_kit kit;
    quire_sched_config c = kit_config(&kit);
    c.num_spec_tokens = 2;
    c.log_stats = QUIRE_ON;
    for (size_t a = 0; a < COUNT(EDGES); a++)
        for (size_t b = 0; b < COUNT(EDGES); b++) {
            kit_open(&kit, &c);
            kit.params =
                (quire_request_params){.size = sizeof(quire_request_params), .max_tokens = 30};
            quire_req req = kit_add(&kit, "a", 9);
            kit_run(&kit, 1);
            const quire_token drafts[2] = {1, 2};
            const uint32_t two = 2;
            assert_int_equal(quire_sched_update_drafts(kit.sched, &req, 1, drafts, 2, &two),
                             QUIRE_OK);
            kit_step(&kit);
            const quire_token sampled[8] = {1, 2, 3, 4, 5, 6, 7, 8};
            const quire_req strangers[2] = {req, EDGES[b]};
            const quire_block block = EDGES[a];
            const uint32_t numbers[2] = {EDGES[a], EDGES[b]};
            quire_model_output outputs[6];
            for (size_t i = 0; i < COUNT(outputs); i++)
                outputs[i] = (quire_model_output){
                    .size = sizeof(quire_model_output), .sampled = sampled, .stride = 8};
            outputs[0].num_sampled = &numbers[0];
            outputs[0].stride = EDGES[b];
            outputs[1].num_sampled = &two;
            outputs[1].num_invalid_drafts = &numbers[0];
            outputs[2].num_sampled = &numbers[0];
            outputs[2].num_invalid_drafts = &numbers[1];
            outputs[3].invalid_blocks = &block;
            outputs[3].num_invalid_blocks = 1;
            outputs[4].finished_sending = strangers;
            outputs[4].num_finished_sending = 2;
            outputs[4].finished_recving = strangers;
            outputs[4].num_finished_recving = 2;
            outputs[5].num_sampled = &numbers[1];
            for (size_t i = 0; i < COUNT(outputs); i++) {
                call_update(&kit, &outputs[i]);
                (void)quire_sched_update_drafts(kit.sched, &req, 1, drafts, 2, &two);
                kit_step(&kit);
                if (kit.step->num_reqs == 0)
                    break;
            }
            quire_sched_destroy(kit.sched);
        }
    quire_hasher_destroy(kit.hasher);
}

/* The counters of drafts do not wrap. */
static void invalid_drafts(void **state)
{
    (void)state;
    static sched_kit kit;
    quire_sched_config c = kit_config(&kit);
    c.num_spec_tokens = 3;
    c.log_stats = QUIRE_ON;
    kit_open(&kit, &c);
    kit.params.max_tokens = 30;
    quire_req req = kit_add(&kit, "a", 9);
    kit_run(&kit, 1);
    const quire_token drafts[3] = {1, 2, 3};
    const uint32_t two = 2;
    const uint32_t one = 1;
    uint32_t invalid = 3;
    const quire_outputs *outputs;
    assert_int_equal(quire_sched_update_drafts(kit.sched, &req, 1, drafts, 3, &two), QUIRE_OK);
    kit_step(&kit);
    const quire_model_output output = {.size = sizeof(quire_model_output),
                                       .sampled = drafts,
                                       .stride = 3,
                                       .num_sampled = &one,
                                       .num_invalid_drafts = &invalid};
    kit_state before = kit_save(kit.sched);
    assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &outputs),
                     QUIRE_E_RANGE);
    kit_same(kit.sched, before);
    invalid = 2;
    assert_int_equal(quire_sched_update(kit.sched, kit.step->step, &output, &outputs), QUIRE_OK);
    assert_int_equal(outputs->stats->spec.num_draft_tokens, 0);
    kit_close(&kit);
}

/* NaN has no place in a queue by arrival time. */
static void times_that_are_none(void **state)
{
    (void)state;
    static sched_kit kit;
    quire_sched_config c = kit_config(&kit);
    c.policy = QUIRE_POLICY_PRIORITY;
    kit_open(&kit, &c);
    const double wrong[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    quire_req session;
    kit.params.is_resumable = 1;
    session = kit_add(&kit, "s", 3);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        quire_req req;
        kit_state before = kit_save(kit.sched);
        kit.params.arrival_time = wrong[i];
        assert_int_equal(quire_sched_add(kit.sched, kit_params(&kit, "a", 3), &req), QUIRE_E_RANGE);
        assert_int_equal(quire_sched_continue(kit.sched, session, kit_params(&kit, "a", 3)),
                         QUIRE_E_RANGE);
        kit_same(kit.sched, before);
    }
    kit_close(&kit);
}

/* ---- numbers that are arguments ----------------------------------------------- */

static void numbers_of_calls(void **state)
{
    (void)state;
    static sched_world w;
    w.text = calloc(1, LONG_TEXT + 1);
    assert_non_null(w.text);
    for (size_t a = 0; a < COUNT(EDGES); a++)
        for (size_t b = 0; b < COUNT(EDGES); b++) {
            open_sched(&w, QUIRE_PROFILE_DEFAULT, QUIRE_POLICY_FCFS);
            quire_sched *s = w.kit.sched;
            quire_cache *cache = quire_sched_get_cache(s);
            quire_req req = kit_add(&w.kit, "z", 12);
            quire_token tokens[LEN];
            quire_req reqs[KIT_REQUESTS];
            uint32_t x = EDGES[a];
            uint32_t y = EDGES[b];
            kit_state before = kit_save(s);
            if (y <= LEN)
                (void)quire_sched_get_tokens(s, req, x, y, tokens);
            (void)quire_sched_get_queue(s, x, reqs, y < KIT_REQUESTS ? y : KIT_REQUESTS);
            assert_int_equal(quire_sched_forget_step(s, x + UINT64_C(100)), QUIRE_E_ARGUMENT);
            assert_int_equal(quire_sched_pin(s, req, x), QUIRE_E_DISABLED);
            assert_int_equal(quire_sched_set_swap_costs(s, UINT64_C(1) << 32, y), QUIRE_E_RANGE);
            assert_int_equal(quire_sched_set_pause(s, (quire_pause)(x + 3)) == QUIRE_OK, x + 3 < 3);
            assert_int_equal(quire_sched_set_pause(s, QUIRE_UNPAUSED), QUIRE_OK);
            (void)quire_cache_copy_on_write(cache, x, y, x);
            (void)inner_remove_skipped(cache, x + (UINT64_C(9) << 32), y);
            kit_same(s, before);
            before = kit_save(s);
            int err = quire_sched_cut_prompt(s, req, x, y);
            if (err != QUIRE_OK)
                kit_same(s, before);
            else
                free(before.image);
            kit_run(&w.kit, 1);
            assert_int_equal(quire_sched_check(s), QUIRE_OK);
            close_sched(&w);
        }
    free(w.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests),
        cmocka_unit_test(features),
        cmocka_unit_test(outputs_of_the_engine),
        cmocka_unit_test(invalid_drafts),
        cmocka_unit_test(times_that_are_none),
        cmocka_unit_test(numbers_of_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
