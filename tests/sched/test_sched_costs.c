/* sched/test_sched_costs.c - calls whose cost must grow with the work and not with its square.
 *
 * Each case runs at two sizes and compares the processor time of the two. The bounds lie far above
 * a linear cost and far below a quadratic one, so that a busy machine does not matter:
 *
 *      sizes 1 : 16      linear 16      bound 96      quadratic 256
 */
#include "base/unit.h"

#include <quire.h>

#include <time.h>

enum { SMALL = 1000, FACTOR = 16, LARGE = SMALL * FACTOR, REPEATS = 5, BLOCK = 16 };

static const double BOUND = 6.0 * FACTOR;
static const double FLAT = 4.0; /* for what must not grow at all: cold memory costs, too */

typedef struct world {
    quire_cache_config cache;
    quire_hasher *hasher;
    quire_sched *sched;
    quire_group_config group;
    uint32_t num_requests;
} world;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static quire_sched_config world_config(world *w, uint32_t num_requests)
{
    quire_hasher_config h = QUIRE_HASHER_CONFIG_INIT;
    h.algo = QUIRE_HASH_QUIRE128;
    h.block_size = BLOCK;
    h.seed = (quire_bytes){"costs", 5};
    assert_int_equal(quire_hasher_create(&h, NULL, &w->hasher), QUIRE_OK);
    w->num_requests = num_requests;
    w->group = (quire_group_config){.spec = {.kind = QUIRE_LAYER_FULL,
                                             .block_size = BLOCK,
                                             .num_kv_heads = 1,
                                             .head_size = 8,
                                             .dtype = QUIRE_DTYPE_FLOAT16}};
    quire_sched_config c = QUIRE_SCHED_CONFIG_INIT;
    w->cache = (quire_cache_config)QUIRE_CACHE_CONFIG_INIT;
    c.cache = &w->cache;
    c.cache->groups = &w->group;
    c.cache->num_groups = 1;
    c.cache->num_blocks = 64;
    c.cache->max_model_len = 256;
    c.cache->digest_bytes = 16;
    c.hasher = w->hasher;
    c.max_requests = num_requests;
    c.max_num_seqs = 4;
    c.max_text_tokens = (uint64_t)num_requests * 64;
    return c;
}

static void world_open(world *w, const quire_sched_config *c)
{
    assert_int_equal(quire_sched_create(c, NULL, &w->sched), QUIRE_OK);
}

static void world_close(world *w)
{
    quire_sched_destroy(w->sched);
    quire_hasher_destroy(w->hasher);
}

/* Adds a request whose prompt no other request begins with. */
static quire_req add(const world *w, uint32_t number, uint32_t num_tokens)
{
    quire_token prompt[4 * BLOCK];
    char id[16];
    int len = snprintf(id, sizeof id, "r%u", number);
    for (uint32_t i = 0; i < num_tokens; i++)
        prompt[i] = (quire_token)(i == 0 ? number : i);
    quire_request_params p = {.size = sizeof(quire_request_params),
                              .id = {id, (size_t)len},
                              .prompt = prompt,
                              .num_prompt_tokens = num_tokens,
                              .max_tokens = 4,
                              .priority = (int32_t)(number * 7919 % 13)};
    quire_req req = 0;
    assert_int_equal(quire_sched_add(w->sched, &p, &req), QUIRE_OK);
    return req;
}

static double smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Asserts that the large case costs at most BOUND times as much as the small one. */
static void compare(const char *what, double small, double large)
{
    printf("%s: %.0f us, %d times as many: %.0f us, ratio %.1f (at most %.0f)\n", what, small / 1e3,
           FACTOR, large / 1e3, large / small, BOUND);
    assert_true(large <= BOUND * small);
}

/* ---- listing --------------------------------------------------------------- */

static double list_cost(uint32_t num_requests)
{
    static quire_req reqs[LARGE];
    world w;
    quire_sched_config c = world_config(&w, num_requests);
    c.policy = QUIRE_POLICY_PRIORITY;
    world_open(&w, &c);
    for (uint32_t i = 0; i < num_requests; i++)
        add(&w, i, 8);
    double best = 1e18;
    for (uint32_t i = 0; i < REPEATS; i++) {
        double began = now();
        assert_int_equal(quire_sched_get_queue(w.sched, 1, reqs, LARGE), num_requests);
        best = smaller(best, now() - began);
    }
    quire_req_info before = {.size = sizeof(quire_req_info), .priority = INT32_MIN};
    for (uint32_t i = 0; i < num_requests; i++) {
        quire_req_info info = QUIRE_REQ_INFO_INIT;
        assert_int_equal(quire_sched_get_req_info(w.sched, reqs[i], &info), QUIRE_OK);
        assert_true(info.priority >= before.priority);
        before = info;
    }
    world_close(&w);
    return best;
}

static void listing_by_priority_is_not_quadratic(void **state)
{
    (void)state;
    compare("list of waiting requests", list_cost(SMALL), list_cost(LARGE));
}

/* ---- pins ------------------------------------------------------------------ */

static uint64_t fixed_now(void *user)
{
    (void)user;
    return 1;
}

static void run(const world *w, uint32_t num_steps)
{
    for (uint32_t i = 0; i < num_steps; i++) {
        static const quire_token tokens[4];
        const quire_step *step;
        const quire_outputs *outputs;
        quire_model_output output = {.size = sizeof(quire_model_output), .sampled = tokens};
        assert_int_equal(quire_sched_schedule(w->sched, &step), QUIRE_OK);
        assert_int_equal(quire_sched_update(w->sched, step->step, &output, &outputs), QUIRE_OK);
    }
}

/* With so many pins, a request that ends with each step is admitted in each step. */
static double pin_cost(uint32_t num_pins)
{
    world w;
    quire_sched_config c = world_config(&w, 64);
    c.cache->num_blocks = 2 * num_pins + 64;
    c.max_pins = num_pins;
    c.hooks.now_ns = fixed_now;
    world_open(&w, &c);
    for (uint32_t i = 0; i < num_pins; i++) {
        quire_req req = add(&w, i, BLOCK + 1);
        assert_int_equal(quire_sched_pin(w.sched, req, (uint64_t)1 << 40), QUIRE_OK);
        while (quire_sched_get_num_unfinished(w.sched) > 0)
            run(&w, 1);
    }
    double best = 1e18;
    for (uint32_t i = 0; i < 40; i++) {
        add(&w, num_pins + i, BLOCK + 1);
        double began = now();
        run(&w, 8);
        best = smaller(best, now() - began);
    }
    assert_int_equal(quire_sched_check(w.sched), QUIRE_OK);
    world_close(&w);
    return best;
}

/* Twice as much for FACTOR times as many: it does not grow with pins that nothing happens to. */
static void steps_do_not_walk_over_pins(void **state)
{
    (void)state;
    double small = pin_cost(SMALL);
    double large = pin_cost(LARGE);
    printf("8 steps with %d pins: %.1f us, with %d: %.1f us\n", SMALL, small / 1e3, LARGE,
           large / 1e3);
    assert_true(large <= FLAT * small);
}

/* ---- loads ----------------------------------------------------------------- */

static int all_is_external(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                           uint32_t *is_async)
{
    (void)user, (void)req;
    *num_external = 4 * BLOCK - num_local;
    *is_async = 1;
    return QUIRE_OK;
}

static const quire_connector LOADER = {.size = sizeof(quire_connector),
                                       .get_num_new_matched_tokens = all_is_external};

/* So many requests load; all of their blocks fail in one update. */
static double fail_cost(uint32_t num_requests, quire_profile profile)
{
    world w;
    quire_sched_config c = world_config(&w, num_requests);
    c.profile = profile;
    c.cache->num_blocks = 5 * num_requests;
    c.max_loading = num_requests;
    c.connector = &LOADER;
    world_open(&w, &c);
    for (uint32_t i = 0; i < num_requests; i++)
        add(&w, i, 4 * BLOCK);
    const quire_step *step;
    const quire_outputs *outputs;
    assert_int_equal(quire_sched_schedule(w.sched, &step), QUIRE_OK);
    assert_int_equal(quire_cache_get_counts(quire_sched_get_cache(w.sched)).num_seqs, num_requests);
    static quire_block blocks[5 * LARGE];
    for (uint32_t i = 1; i < c.cache->num_blocks; i++)
        blocks[i - 1] = i;
    quire_model_output output = {.size = sizeof(quire_model_output),
                                 .invalid_blocks = blocks,
                                 .num_invalid_blocks = c.cache->num_blocks - 1};
    double began = now();
    assert_int_equal(quire_sched_update(w.sched, step->step, &output, &outputs), QUIRE_OK);
    double cost = now() - began;
    world_close(&w);
    return cost;
}

static void failed_loads_are_not_quadratic(void **state)
{
    (void)state;
    compare("failed loads, default", fail_cost(SMALL / 4, QUIRE_PROFILE_DEFAULT),
            fail_cost(LARGE / 4, QUIRE_PROFILE_DEFAULT));
    compare("failed loads, vLLM", fail_cost(SMALL / 4, QUIRE_PROFILE_VLLM_0_20),
            fail_cost(LARGE / 4, QUIRE_PROFILE_VLLM_0_20));
}

/* max_loading requests load, some others wait and ask in each step whether they may. */
static double ask_cost(uint32_t max_requests)
{
    world w;
    quire_sched_config c = world_config(&w, max_requests);
    c.cache->num_blocks = 100;
    c.max_loading = 4;
    c.connector = &LOADER;
    world_open(&w, &c);
    for (uint32_t i = 0; i < 16; i++)
        add(&w, i, 4 * BLOCK);
    double best = 1e18;
    for (uint32_t i = 0; i < REPEATS; i++) {
        double began = now();
        run(&w, 8);
        best = smaller(best, now() - began);
    }
    world_close(&w);
    return best;
}

/* Requests that are not there cost nothing. */
static void asking_for_a_load_does_not_walk_over_all_slots(void **state)
{
    (void)state;
    double small = ask_cost(SMALL);
    double large = ask_cost(LARGE);
    printf("8 steps at max_loading, max_requests %d: %.1f us, %d: %.1f us\n", SMALL, small / 1e3,
           LARGE, large / 1e3);
    assert_true(large <= FLAT * small);
}

int main(void)
{
#if QUIRE_ASSERT_LEVEL >= 3
    puts("skipped: every assertion walks the whole scheduler, and each call costs that");
    return 77;
#endif
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing_by_priority_is_not_quadratic),
        cmocka_unit_test(steps_do_not_walk_over_pins),
        cmocka_unit_test(failed_loads_are_not_quadratic),
        cmocka_unit_test(asking_for_a_load_does_not_walk_over_all_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
