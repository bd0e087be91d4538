/* sched_image/test_image_flags.c - is_embed flags are copied: by add, by continue, by restore. */
#include "base/bits.h"
#include "base/unit.h"

#include <quire/image.h>

enum { LENGTH = 1000, OFFSET = 4, PROMPT = OFFSET + LENGTH + 4, STEP = 512, MANY = 20 };

static quire_group_config group = {.spec = {.kind = QUIRE_LAYER_FULL,
                                            .block_size = 16,
                                            .num_kv_heads = 1,
                                            .head_size = 8,
                                            .dtype = QUIRE_DTYPE_FLOAT16}};
static quire_token prompt[PROMPT];
static quire_sched *sched;

static quire_sched_config config_of(void)
{
    static quire_cache_config cache;
    cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    c.cache = &cache;
    c.cache->groups = &group;
    c.cache->num_groups = 1;
    c.cache->num_blocks = 1000;
    c.cache->max_model_len = 2048;
    c.cache->enable_caching = QUIRE_OFF;
    c.max_requests = c.max_num_seqs = 4;
    c.max_num_batched_tokens = STEP;
    c.max_text_tokens = QR_AT_A_TIME(1024, 4096); /* the rest is rounded up to pages */
    c.max_request_bytes = 4096;
    c.encoder_cache_size = c.encoder_compute_budget = LENGTH;
    return c;
}

static void open_sched(void)
{
    quire_sched_config c = config_of();
    assert_int_equal(quire_sched_create(&c, NULL, &sched), QUIRE_OK);
}

/* A request with n features over the same tokens; the last flag of each is the only one set. Its
 * flags are overwritten before this returns. */
static int add(const char *id, uint32_t n, uint32_t is_resumable, quire_req *req)
{
    static uint8_t flags[LENGTH];
    static char names[MANY][8];
    quire_mm_input inputs[MANY];
    memset(flags, 0, sizeof flags);
    flags[LENGTH - 1] = 1;
    for (uint32_t i = 0; i < n; i++) {
        int len = snprintf(names[i], sizeof names[i], "%.3s%u", id, i);
        inputs[i] = (quire_mm_input){.feature = {{names[i], (size_t)len}, OFFSET, LENGTH},
                                     .is_embed = flags};
    }
    quire_request_params p = {.size = sizeof(quire_request_params),
                              .id = {id, strlen(id)},
                              .prompt = prompt,
                              .num_prompt_tokens = PROMPT,
                              .max_tokens = 8,
                              .mm_inputs = inputs,
                              .num_mm_inputs = n,
                              .is_resumable = is_resumable};
    int err = *req == 0 ? quire_sched_add(sched, &p, req) : quire_sched_continue(sched, *req, &p);
    memset(flags, 1, sizeof flags);
    assert_int_equal(quire_sched_check(sched), QUIRE_OK);
    return err;
}

/* Schedules and updates a step; returns how many inputs it encodes. */
static uint32_t step(quire_token token)
{
    const quire_step *s;
    assert_int_equal(quire_sched_schedule(sched, &s), QUIRE_OK);
    uint32_t num_encoded = s->encoder_start[s->num_reqs];
    const quire_outputs *outputs;
    quire_model_output o = {.size = sizeof(quire_model_output), .sampled = &token};
    assert_int_equal(quire_sched_update(sched, s->step, &o, &outputs), QUIRE_OK);
    assert_int_equal(quire_sched_check(sched), QUIRE_OK);
    return num_encoded;
}

/* The first step computes placeholders that take no embedding, the second one the last of them. */
static void expect_two_steps(void)
{
    assert_int_equal(step(7), 0);
    assert_int_equal(step(7), 1);
}

static void callers_flags_may_change_after_add(void **state)
{
    (void)state;
    quire_req req = 0;
    open_sched();
    assert_int_equal(add("a", 1, 0, &req), QUIRE_OK);
    expect_two_steps();
    quire_sched_destroy(sched);
}

static void callers_flags_may_change_after_continue(void **state)
{
    (void)state;
    quire_req req = 0;
    open_sched();
    assert_int_equal(add("a", 1, 1, &req), QUIRE_OK);
    assert_int_equal(add("b", 1, 1, &req), QUIRE_OK); /* waits behind the first */
    expect_two_steps();
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(step(7), 0); /* decoding, up to max_tokens; then the second input */
    expect_two_steps();
    quire_sched_destroy(sched);
}

static void an_image_may_go_after_restore(void **state)
{
    (void)state;
    for (uint32_t with_input = 0; with_input < 2; with_input++) {
        quire_req req = 0;
        open_sched();
        assert_int_equal(add("a", 1, 1, &req), QUIRE_OK);
        if (with_input)
            assert_int_equal(add("b", 1, 1, &req), QUIRE_OK);
        size_t bytes = quire_sched_image_bytes(sched);
        unsigned char *image = malloc(bytes);
        assert_non_null(image);
        assert_int_equal(quire_sched_save(sched, image, bytes, &bytes), QUIRE_OK);
        quire_sched_destroy(sched);
        quire_sched_config c = config_of();
        assert_int_equal(quire_sched_restore(&c, NULL, image, bytes, &sched), QUIRE_OK);
        memset(image, 1, bytes);
        free(image);
        expect_two_steps();
        for (uint32_t i = 0; with_input && i < 7; i++)
            assert_int_equal(step(7), 0);
        if (with_input)
            expect_two_steps();
        quire_sched_destroy(sched);
    }
}

#ifndef QUIRE_HOSTILE
/* Many features over the same tokens need more flags than the prompt has tokens. */
static void flags_without_room(void **state)
{
    (void)state;
    quire_req a = 0, b = 0, c = 0;
    open_sched();
    assert_int_equal(add("a", MANY, 0, &a), QUIRE_E_RANGE); /* more than there are in all */
    assert_int_equal(add("a", MANY / 2, 1, &a), QUIRE_OK);
    assert_int_equal(add("b", MANY / 2, 0, &b), QUIRE_FULL);
    assert_int_equal(add("i", MANY / 2, 0, &a), QUIRE_FULL); /* an input of the session */
    assert_int_equal(add("c", 1, 0, &c), QUIRE_OK);
    uint32_t n = 0;
    assert_int_equal(quire_sched_finish(sched, &a, 1, QUIRE_REQ_FINISHED_ABORTED, &n), QUIRE_OK);
    assert_int_equal(n, 1);
    assert_int_equal(add("b", MANY / 2, 0, &b), QUIRE_OK);
    quire_sched_destroy(sched);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_flags_may_change_after_add),
        cmocka_unit_test(callers_flags_may_change_after_continue),
        cmocka_unit_test(an_image_may_go_after_restore),
#ifndef QUIRE_HOSTILE /* where chunks are too small for the numbers in it */
        cmocka_unit_test(flags_without_room),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
