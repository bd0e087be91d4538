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

typedef struct world {
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
    c.cache.groups = &w->group;
    c.cache.num_groups = 1;
    c.cache.num_blocks = 64;
    c.cache.max_model_len = 256;
    c.cache.digest_bytes = 16;
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
    quire_request_params p = {.id = {id, (size_t)len},
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
    quire_req_info before = {.priority = INT32_MIN};
    for (uint32_t i = 0; i < num_requests; i++) {
        quire_req_info info;
        assert_int_equal(quire_sched_req_info(w.sched, reqs[i], &info), QUIRE_OK);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listing_by_priority_is_not_quadratic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
