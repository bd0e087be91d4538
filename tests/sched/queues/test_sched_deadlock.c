/* sched/queues/test_sched_deadlock.c - a pool that is too small for what waits to be loaded:
 * requests have
 * blocks, wait for more, and nobody runs. All of them end all the same, and soon.
 *
 *      blocks   | a, loading | b, loading | c |      c runs a part of its prompt, finds no more
 *                                                    room and goes; a has come, and gives way to c
 */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { MOST_STEPS = 2000, SLOWEST = 40, NUM_TRIALS = 400, TAKEN = 12 };

static uint64_t seed;

typedef struct load {
    quire_req req;
    uint32_t steps_left;
} load;

typedef struct starving {
    sched_kit kit;
    quire_connector connector;
    uint64_t random;
    uint32_t there[KIT_REQUESTS]; /* tokens that the connector has of each */
    load loads[KIT_REQUESTS];
    uint32_t num_loads;
    uint32_t num_begun; /* loads */
    uint32_t slowest;   /* a load takes 1 to so many steps */
    uint32_t has_ended; /* bits */
} starving;

static uint32_t number_of(const starving *s, quire_req req)
{
    return (uint32_t)(uintptr_t)quire_sched_get_user(s->kit.sched, req);
}

static int match(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                 uint32_t *is_async)
{
    const starving *s = user;
    uint32_t there = s->there[number_of(s, req)];
    *num_external = there > num_local ? there - num_local : 0;
    *is_async = *num_external > 0;
    return QUIRE_OK;
}

static void begin_load(void *user, quire_req req, const quire_block_span *blocks,
                       uint32_t num_external)
{
    starving *s = user;
    (void)blocks;
    if (num_external == 0)
        return;
    assert_true(s->num_loads < KIT_REQUESTS);
    s->loads[s->num_loads++] = (load){req, 1 + unit_random_below(&s->random, s->slowest)};
    s->num_begun++;
}

static quire_sched_config begin_starving(starving *s, uint64_t from, uint32_t slowest)
{
    memset(s, 0, sizeof *s);
    s->random = from;
    s->slowest = slowest;
    s->connector = (quire_connector){.size = sizeof(quire_connector),
                                     .user = s,
                                     .get_num_new_matched_tokens = match,
                                     .update_state_after_alloc = begin_load};
    quire_sched_config config = kit_config(&s->kit);
    config.connector = &s->connector;
    config.reserve_full_sequence = QUIRE_OFF;
    config.max_loading = 4;
    config.cache->num_blocks = 14;
    return config;
}

/* there: tokens that the connector has. */
static quire_req add_one(starving *s, uint32_t i, uint32_t num_tokens, uint32_t there)
{
    static const char *const IDS[KIT_REQUESTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    s->there[i] = there;
    s->kit.params.user = (void *)(uintptr_t)i;
    s->kit.params.max_tokens = 2;
    return kit_add(&s->kit, IDS[i], num_tokens);
}

static void add_all(starving *s)
{
    for (uint32_t i = 0; i < KIT_REQUESTS; i++) {
        uint32_t num_tokens = 34 + unit_random_below(&s->random, 11);
        bool is_there = unit_random_below(&s->random, 4) > 0;
        add_one(s, i, num_tokens,
                is_there ? KIT_BLOCK * (1 + unit_random_below(&s->random, 6)) : 0);
    }
}

/* Loads that have come with this step. */
static uint32_t take_ended(starving *s, quire_req *reqs)
{
    uint32_t kept = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->num_loads; i++) {
        if (--s->loads[i].steps_left == 0)
            reqs[n++] = s->loads[i].req;
        else
            s->loads[kept++] = s->loads[i];
    }
    s->num_loads = kept;
    return n;
}

static void run_one(starving *s, quire_token token)
{
    quire_req received[KIT_REQUESTS];
    quire_token sampled[KIT_RUNNING] = {token, token, token, token};
    bool was_starved = s->kit.sched->deadlock.is_active;
    uint32_t num_begun = s->num_begun;
    kit_step(&s->kit);
    assert_true(!was_starved || s->num_begun - num_begun <= 1); /* one load has its turn */
    quire_model_output output = {
        .size = sizeof(quire_model_output), .sampled = sampled, .finished_recving = received};
    output.num_finished_recving = take_ended(s, received);
    assert_int_equal(quire_sched_update(s->kit.sched, s->kit.step->step, &output, &s->kit.outputs),
                     QUIRE_OK);
    for (uint32_t i = 0; i < s->kit.outputs->num_outputs; i++) {
        const quire_output *out = &s->kit.outputs->outputs[i];
        if (out->finish_reason != QUIRE_FINISH_NONE)
            s->has_ended |= 1u << (uintptr_t)out->user;
    }
}

/* Until these have ended: bits. */
static uint32_t run_until(starving *s, uint32_t wanted)
{
    uint32_t steps = 0;
    for (; (s->has_ended & wanted) != wanted && steps < MOST_STEPS; steps++)
        run_one(s, 7);
    assert_int_equal(s->has_ended & wanted, wanted);
    return steps;
}

static void everybody_ends(void **state)
{
    (void)state;
    uint32_t most = 0;
    uint64_t all = 0;
    uint64_t begun = 0;
    for (uint32_t i = 0; i < NUM_TRIALS; i++) {
        starving s;
        quire_sched_config config = begin_starving(&s, seed + i, SLOWEST);
        config.max_num_batched_tokens = 8 + unit_random_below(&s.random, 12);
        config.policy = i % 4 == 3 ? QUIRE_POLICY_PRIORITY : QUIRE_POLICY_FCFS;
        config.cache->enable_caching = i % 2 == 1 ? QUIRE_OFF : QUIRE_ON;
        kit_open(&s.kit, &config);
        add_all(&s);
        uint32_t steps = run_until(&s, (1u << KIT_REQUESTS) - 1);
        most = steps > most ? steps : most;
        all += steps;
        begun += s.num_begun;
        kit_close(&s.kit);
    }
    printf("%u trials: %.0f steps and %.1f loads on average, %u steps at most\n", NUM_TRIALS,
           (double)all / NUM_TRIALS, (double)begun / NUM_TRIALS, most);
}

/* A session that waits for its user has five blocks, and b needs them all. */
static void a_session_gives_way_first(void **state)
{
    (void)state;
    starving s;
    quire_sched_config config = begin_starving(&s, seed, 3);
    config.cache->enable_caching = QUIRE_OFF;
    kit_open(&s.kit, &config);
    s.kit.params = (quire_request_params){
        .size = sizeof(quire_request_params), .is_resumable = 1, .has_eos = 1, .eos_token_id = 2};
    quire_req a = add_one(&s, 0, 20, 0);
    run_one(&s, 7);
    run_one(&s, 2);
    assert_int_equal(kit_info(&s.kit, a).status, QUIRE_REQ_WAITING_FOR_STREAMING);
    s.kit.params.is_resumable = 0;
    add_one(&s, 1, 44, 12);
    assert_true(run_until(&s, 2) < 40);
    kit_close(&s.kit);
}

/* a and b are loaded, and need 6 blocks more each; then another user of the pool takes all that are
 * free. */
static quire_pool *begin_deadlock(starving *s, quire_req *reqs, quire_block *taken)
{
    quire_sched_config config = begin_starving(s, seed, 1);
    config.cache->num_blocks = 1 + 5 + 5 + TAKEN;
    config.cache->enable_caching = QUIRE_OFF;
    kit_open(&s->kit, &config);
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(s->kit.sched));
    for (uint32_t i = 0; i < 2; i++)
        reqs[i] = add_one(s, i, 44, 20);
    run_one(s, 7);
    assert_int_equal(quire_pool_get_new_blocks(pool, TAKEN, taken), QUIRE_OK);
    for (uint32_t i = 0; !s->kit.sched->deadlock.is_active; i++) {
        assert_true(i < 20);
        run_one(s, 7);
    }
    return pool;
}

/* Blocks that another user of the pool has are missing: a and b, which are loaded, give way. When
 * the blocks are back, all have given way and turns begin again: first a's, then b's. */
static void turns_begin_again_when_all_have_given_way(void **state)
{
    (void)state;
    starving s;
    quire_block taken[TAKEN];
    quire_req reqs[2];
    quire_pool *pool = begin_deadlock(&s, reqs, taken);
    assert_int_equal(s.num_begun, 2);
    for (uint32_t i = 0; i < COUNT(reqs); i++)
        assert_int_equal(kit_info(&s.kit, reqs[i]).seq, 0);
    assert_int_equal(quire_pool_free_blocks(pool, taken, TAKEN), QUIRE_OK);
    run_one(&s, 7);
    assert_int_equal(kit_info(&s.kit, reqs[0]).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    assert_int_equal(kit_info(&s.kit, reqs[1]).status, QUIRE_REQ_WAITING);
    assert_true(run_until(&s, 3) < 20);
    assert_int_equal(s.num_begun, 4);
    kit_close(&s.kit);
}

/* As above, but somebody ends before the blocks are back: nobody takes turns any more. */
static void turns_end_when_somebody_ends(void **state)
{
    (void)state;
    starving s;
    quire_block taken[TAKEN];
    quire_req reqs[2];
    quire_pool *pool = begin_deadlock(&s, reqs, taken);
    quire_req c = add_one(&s, 2, 44, 0);
    assert_int_equal(quire_sched_finish(s.kit.sched, &c, 1, QUIRE_REQ_FINISHED_ABORTED, NULL),
                     QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(pool, taken, TAKEN), QUIRE_OK);
    run_one(&s, 7);
    for (uint32_t i = 0; i < COUNT(reqs); i++)
        assert_int_equal(kit_info(&s.kit, reqs[i]).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
    assert_true(run_until(&s, 3) < 20);
    kit_close(&s.kit);
}

/* vLLM #45388: a and b are loaded, and another user takes 5 blocks. a stands first, has 5 blocks
 * and needs 6 more, of which one is free. b, behind it, has 7 blocks and needs no more. vLLM stops
 * at a, so b never runs, and nothing ever changes. In the default profile b is admitted, ends, and
 * then a is. */
static void a_head_that_does_not_fit_hides_no_loaded_request(void **state)
{
    (void)state;
    for (uint32_t is_vllm = 0; is_vllm < 2; is_vllm++) {
        starving s;
        quire_sched_config config = begin_starving(&s, seed, 1);
        config.profile = is_vllm ? QUIRE_PROFILE_VLLM_0_20 : QUIRE_PROFILE_DEFAULT;
        config.cache->num_blocks = 1 + 5 + 7 + 6;
        kit_open(&s.kit, &config);
        quire_req a = add_one(&s, 0, 44, 20);
        quire_req b = add_one(&s, 1, 28, 28);
        quire_block taken[5];
        run_one(&s, 7);
        assert_int_equal(s.num_begun, 2);
        quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(s.kit.sched));
        assert_int_equal(quire_pool_get_new_blocks(pool, COUNT(taken), taken), QUIRE_OK);
        assert_int_equal(kit_info(&s.kit, a).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
        assert_int_equal(kit_info(&s.kit, b).status, QUIRE_REQ_WAITING_FOR_REMOTE_KVS);
        if (!is_vllm) {
            kit_step(&s.kit);
            assert_string_equal(kit_shown_step(&s.kit), "b:1");
            kit_answer(&s.kit, s.kit.step->step, 7);
            run_until(&s, 3);
        }
        for (uint32_t i = 0; i < MOST_STEPS && is_vllm; i++) {
            run_one(&s, 7);
            assert_int_equal(s.kit.step->num_reqs, 0);
        }
        assert_int_equal(quire_sched_get_num_unfinished(s.kit.sched), 2 * is_vllm);
        kit_close(&s.kit);
    }
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_ends),
        cmocka_unit_test(a_session_gives_way_first),
        cmocka_unit_test(turns_begin_again_when_all_have_given_way),
        cmocka_unit_test(turns_end_when_somebody_ends),
        cmocka_unit_test(a_head_that_does_not_fit_hides_no_loaded_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
