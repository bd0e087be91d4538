/* sched/test_sched_starved.c - a pool that is too small for what waits to be loaded: requests have
 * blocks, wait for more, and nobody runs. All of them end all the same, and soon.
 *
 *      blocks   | a, loading | b, loading | c |      c runs a part of its prompt, finds no more
 *                                                    room and goes; a has come, and gives way to c
 */
#include "sched/sched_kit.h"

enum { MOST_STEPS = 1000, SLOWEST = 40, NUM_TRIALS = 400 };

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
} starving;

static uint32_t number_of(const starving *s, quire_req req)
{
    return (uint32_t)(uintptr_t)quire_sched_user(s->kit.sched, req);
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
    s->loads[s->num_loads++] = (load){req, 1 + unit_random_below(&s->random, SLOWEST)};
    s->num_begun++;
}

static void open_starving(starving *s, uint64_t from)
{
    memset(s, 0, sizeof *s);
    quire_sched_config config = kit_config(&s->kit);
    s->random = from;
    s->connector = (quire_connector){
        .user = s, .get_num_new_matched_tokens = match, .update_state_after_alloc = begin_load};
    config.connector = &s->connector;
    config.reserve_full_sequence = QUIRE_OFF;
    config.max_num_batched_tokens = 8 + unit_random_below(&s->random, 12);
    config.cache.num_blocks = 14;
    config.max_loading = 4;
    kit_open(&s->kit, &config);
}

static void add_all(starving *s)
{
    for (uint32_t i = 0; i < KIT_REQUESTS; i++) {
        char id[2] = {(char)('a' + i), '\0'};
        uint32_t num_tokens = 34 + unit_random_below(&s->random, 11);
        bool is_there = unit_random_below(&s->random, 4) > 0;
        s->there[i] = is_there ? KIT_BLOCK * (1 + unit_random_below(&s->random, 6)) : 0;
        s->kit.params = (quire_request_params){.user = (void *)(uintptr_t)i, .max_tokens = 2};
        kit_add(&s->kit, id, num_tokens);
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

static uint32_t run_starving(starving *s)
{
    quire_req received[KIT_REQUESTS];
    quire_token sampled[KIT_RUNNING] = {7, 7, 7, 7};
    uint32_t steps = 0;
    uint32_t num_ended = 0;
    for (; num_ended < KIT_REQUESTS && steps < MOST_STEPS; steps++) {
        kit_step(&s->kit);
        quire_model_output output = {.sampled = sampled, .finished_recving = received};
        output.num_finished_recving = take_ended(s, received);
        assert_int_equal(
            quire_sched_update(s->kit.sched, s->kit.step->step, &output, &s->kit.outputs),
            QUIRE_OK);
        for (uint32_t i = 0; i < s->kit.outputs->num_outputs; i++)
            num_ended += s->kit.outputs->outputs[i].finish_reason != QUIRE_FINISH_NONE;
    }
    assert_int_equal(num_ended, KIT_REQUESTS);
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
        open_starving(&s, seed + i);
        add_all(&s);
        uint32_t steps = run_starving(&s);
        most = steps > most ? steps : most;
        all += steps;
        begun += s.num_begun;
        kit_close(&s.kit);
    }
    printf("%u trials: %.0f steps and %.1f loads on average, %u steps at most\n", NUM_TRIALS,
           (double)all / NUM_TRIALS, (double)begun / NUM_TRIALS, most);
}

int main(int argc, char **argv)
{
    seed = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(everybody_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
