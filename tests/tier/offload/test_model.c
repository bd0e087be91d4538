/* tier/offload/test_model.c - random workloads in the default profile, content checked at every
 * step: see offload_world.h. `test_offload_model --long` runs more of them, SEED one. */
#include "tier/offload/offload_world.h"

static uint64_t num_seeds = 60;
static uint64_t first_seed = 1;

static void random_setup(world_setup *setup, uint64_t seed)
{
    static world w; /* for its random numbers */
    w.random = seed * 77;
    *setup = (world_setup){.seed = seed,
                           .num_gpu = 52 + (uint32_t)world_draw(&w, 40),
                           .num_cpu = 2 + (uint32_t)world_draw(&w, 200),
                           .mode = world_chance(&w, 50) ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER,
                           .is_hybrid = world_chance(&w, 40),
                           .is_async = world_chance(&w, 50),
                           .has_device = world_chance(&w, 60),
                           .has_priority = world_chance(&w, 25),
                           .num_workers = 1 + (uint32_t)world_draw(&w, 2),
                           .fail_percent = world_chance(&w, 50) ? 0 : 10,
                           .pace_percent = 5 + (uint32_t)world_draw(&w, 95),
                           .max_events = world_chance(&w, 50) ? 2 : 64,
                           .stick_percent = world_chance(&w, 50) ? 0 : 8,
                           .is_piped = world_chance(&w, 30),
                           .is_parallel = world_chance(&w, 30)};
}

static world the_world;

static void live(world *w, uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++) {
        if (world_chance(w, 25))
            world_add(w);
        if (world_chance(w, 2))
            world_abort(w);
        if (world_chance(w, 5))
            world_move(w);
        if (world_draw(w, 400) == 0)
            world_reset(w, world_chance(w, 50));
        world_turn(w);
    }
}

static void content_is_right_and_all_ends(void **state)
{
    (void)state;
    uint64_t totals[7] = {0};
    for (uint64_t seed = first_seed; seed < first_seed + num_seeds; seed++) {
        world *w = &the_world;
        world_setup setup;
        random_setup(&setup, seed);
        world_open(w, &setup);
        live(w, 600);
        world_resume(w);
        world_drain(w);
        totals[0] += w->num_people;
        totals[1] += w->num_stores;
        totals[2] += w->num_loads;
        totals[3] += w->num_failures;
        totals[4] += w->num_outputs;
        totals[5] += w->num_late;
        totals[6] += w->num_moves;
        world_close(w);
    }
    print_message(
        "%llu requests, %llu blocks stored, %llu loaded, %llu failures, %llu outputs, %llu late, "
        "%llu moved\n",
        (unsigned long long)totals[0], (unsigned long long)totals[1], (unsigned long long)totals[2],
        (unsigned long long)totals[3], (unsigned long long)totals[4], (unsigned long long)totals[5],
        (unsigned long long)totals[6]);
    assert_true(num_seeds < 50 || (totals[1] > 10000 && totals[2] > 1000 && totals[3] > 100 &&
                                   totals[5] > 20 && totals[6] > 200));
}

/* Blocks of as many positions, dealt out to one rank or to several: the same workload stores, loads
 * and hits the same. */
static void ranks_change_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + 12; seed++) {
        uint64_t told[2][8];
        for (uint32_t i = 0; i < 2; i++) {
            world *w = &the_world;
            world_setup setup;
            random_setup(&setup, seed);
            setup.is_hybrid = false;
            setup.is_parallel = i == 1;
            world_open(w, &setup);
            live(w, 400);
            world_resume(w);
            world_drain(w);
            quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
            assert_int_equal(quire_offload_get_stats(w->offload, &stats), QUIRE_OK);
            const uint64_t now[8] = {w->num_stores,  w->num_loads,    w->num_tokens,
                                     w->num_outputs, w->num_computed, stats.hit_tokens,
                                     stats.no_room,  stats.cpu.cached};
            memcpy(told[i], now, sizeof now);
            world_close(w);
        }
        assert_memory_equal(told[0], told[1], sizeof told[0]);
        assert_true(told[0][0] > 0);
    }
}

/* One thing happens at every turn of the same workload, in turn. */
static void happens_at(uint32_t which, uint32_t at, const world_setup *setup)
{
    world *w = &the_world;
    world_open(w, setup);
    for (uint32_t turn = 0; turn < 90; turn++) {
        if (turn % 5 == 0)
            world_add(w);
        for (uint32_t i = 0; turn == at && i < w->num_people && which == 0; i++)
            (void)quire_sched_finish(w->sched, &w->people[i].req, 1, QUIRE_REQ_FINISHED_ABORTED,
                                     NULL);
        for (uint32_t i = 0; turn == at && i < w->num_people && which == 0; i++)
            w->people[i].has_ended = true;
        if (turn == at && which > 0)
            world_reset(w, which == 2);
        world_turn(w);
    }
    world_drain(w);
    world_close(w);
}

static void anything_at_every_turn(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < 4; kind++) {
        world_setup setup = {.seed = 5 + kind,
                             .num_gpu = 56,
                             .num_cpu = 90,
                             .mode = (kind & 1) != 0 ? QUIRE_OFFLOAD_LAZY : QUIRE_OFFLOAD_EAGER,
                             .is_hybrid = kind == 3,
                             .is_async = kind >= 2,
                             .has_device = kind != 1,
                             .num_workers = 1,
                             .pace_percent = 20,
                             .max_events = 16};
        for (uint32_t which = 0; which < 3; which++)
            for (uint32_t at = 0; at < 90; at += num_seeds <= 60 ? 2 : 1)
                happens_at(which, at, &setup);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--long") == 0)
        num_seeds = 5000;
    else if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        num_seeds = 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_is_right_and_all_ends),
        cmocka_unit_test(ranks_change_nothing),
        cmocka_unit_test(anything_at_every_turn),
    };
    return cmocka_run_group_tests_name("offload_model", tests, NULL, NULL);
}
