/* Random requests over tiers that fail in every way: never a wrong byte, nobody waits without end,
 * all references come back.
 *
 *      test_lower_model [SEED [ROUNDS]]
 */
#include "promote_world.h"

#ifdef __SANITIZE_THREAD__
enum { STEPS = 150, THREAD_STEPS = 30 };
#else
enum { STEPS = 400, THREAD_STEPS = 80 };
#endif

static uint64_t g_seed;
static uint32_t g_rounds = 1;

typedef struct trouble {
    uint32_t per_mille; /* of every fault */
    uint32_t hold_per_mille;
    uint32_t delay;
    bool has_resets;
    bool has_hangs;
} trouble;

static void change_faults(world *w, const trouble *t)
{
    for (uint32_t i = 0; i < w->config.num_tiers; i++) {
        bool is_calm = unit_random_below(&w->random, 3) == 0;
        faulty_set_all(w->parts[i], is_calm ? 0 : t->per_mille);
        faulty_set(w->parts[i], FAULTY_HOLD, is_calm ? 0 : t->hold_per_mille);
        faulty_set_delay(w->parts[i], unit_random_below(&w->random, t->delay + 1));
        faulty_hold(w->parts[i], t->has_hangs && unit_random_below(&w->random, 4) == 0);
        if (unit_random_below(&w->random, 2) == 0)
            faulty_release(w->parts[i]);
    }
}

static void one_step(world *w, const trouble *t)
{
    world_request prompt;
    if (unit_random_below(&w->random, 3) > 0) {
        world_draw_prompt(w, &prompt, 1 + unit_random_below(&w->random, WORLD_MAX_HASHES - 1));
        uint32_t units = prompt.num_hashes / 4;
        prompt.num_local = 4 * WORLD_TOKENS * unit_random_below(&w->random, units / 2 + 1);
        world_request *r = world_add(w, &prompt);
        if (r != NULL && unit_random_below(&w->random, 2) == 0)
            world_prefetch(w, r);
    }
    uint32_t first = unit_random_below(&w->random, WORLD_MAX_REQUESTS);
    for (uint32_t i = 0; i < WORLD_MAX_REQUESTS; i++) {
        world_request *r = &w->requests[(first + i) % WORLD_MAX_REQUESTS];
        if (r->req == 0 || unit_random_below(&w->random, 4) == 0)
            continue;
        if (unit_random_below(&w->random, 40) == 0)
            world_abort(w, r);
        else if (!world_ask(w, r))
            world_admit(w, r, 800);
    }
    world_step(w);
    if (t->has_resets && unit_random_below(&w->random, 100) == 0) {
        assert_int_equal(qr_promote_reset(w->promote), QUIRE_OK);
        (void)quire_pool_reset_prefix_cache(w->pool); /* busy while jobs are out */
    }
}

/* Returns how many blocks of hits were looked at. */
static uint64_t run_world(const world_config *config, const trouble *t, uint32_t steps)
{
    world w;
    world_open(&w, config);
    for (uint32_t i = 0; i < steps; i++) {
        if (i % 50 == 0)
            change_faults(&w, t);
        one_step(&w, t);
        if (i % 20 == 0)
            world_check(&w);
    }
    world_close(&w);
    return w.num_looked_at;
}

static void run_all(const trouble *t, bool has_threads, uint32_t steps)
{
    uint64_t looked_at = 0;
    for (uint32_t round = 0; round < g_rounds; round++)
        for (world_groups groups = WORLD_FULL; groups <= WORLD_WINDOW_ALONE; groups++) {
            uint64_t random = g_seed + 1000 * round + groups;
            world_config config = {.groups = groups,
                                   .num_cpu_blocks = 20 + unit_random_below(&random, 300),
                                   .num_tiers = 1 + unit_random_below(&random, WORLD_MAX_TIERS),
                                   .max_keys = 50 + unit_random_below(&random, 2000),
                                   .has_threads = has_threads,
                                   .shared_tiers = unit_random_below(&random, 8),
                                   .max_bytes_in_flight = 640,
                                   .admit = unit_random_below(&random, 3),
                                   .seed = random};
            looked_at += run_world(&config, t, steps);
        }
    assert_true(looked_at > 0);
}

static void test_all_is_well(void **state)
{
    (void)state;
    trouble t = {.delay = 3};
    run_all(&t, false, STEPS);
}

static void test_all_faults(void **state)
{
    (void)state;
    trouble t = {.per_mille = 60, .delay = 5, .has_resets = true};
    run_all(&t, false, STEPS);
}

static void test_late_and_hung(void **state)
{
    (void)state;
    trouble t = {
        .per_mille = 10, .hold_per_mille = 30, .delay = 40, .has_resets = true, .has_hangs = true};
    run_all(&t, false, STEPS);
}

static void test_threads(void **state)
{
    (void)state;
    trouble t = {.per_mille = 30, .hold_per_mille = 5, .delay = 3, .has_resets = true};
    run_all(&t, true, THREAD_STEPS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_is_well),
        cmocka_unit_test(test_all_faults),
        cmocka_unit_test(test_late_and_hung),
        cmocka_unit_test(test_threads),
    };
    g_seed = unit_seed(argc, argv, 20261115);
    if (argc > 2)
        g_rounds = (uint32_t)strtoul(argv[2], NULL, 10);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
