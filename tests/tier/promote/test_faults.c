/* What becomes of requests when tiers fail, are late, hang, or are reset: they are computed. */
#include "promote_world.h"
#include "tier/promote/parts.h"

/* ---- when it goes wrong ------------------------------------------------------- */

static void test_failed_is_a_miss_for_ever(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 30);
    world_put_below(w, &prompt);
    faulty_set(w->parts[0], FAULTY_FAIL, 1000);
    world_request *r = world_add(w, &prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 0);
    assert_int_equal(world_stats(w).tiers[0].failed_blocks, 30); /* each was tried once */
    faulty_set_all(w->parts[0], 0);
    world_drain(w);
    uint64_t jobs = world_tier_jobs(w, 0);
    qr_promote_forget(w->promote, r->req); /* admitted, then preempted: it asks again */
    for (uint32_t i = 0; i < 5; i++) {
        assert_false(world_ask(w, r));
        world_step(w);
    }
    assert_int_equal(world_tier_jobs(w, 0), jobs);
    world_check(w);
    world_close(w);
}

static void test_a_hole_ends_the_hit(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 10; seed++) {
        world *w = world_make((world_config){.seed = seed});
        world_request prompt = world_draw(w, 60);
        world_put_below(w, &prompt);
        faulty_set(w->parts[0], FAULTY_FAIL, 50);
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        assert_int_equal(world_match(w, r) % WORLD_TOKENS, 0); /* and its bytes were looked at */
        world_close(w);
    }
}

static void test_failed_stores_are_counted(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 2);
    faulty_set(w->parts[0], FAULTY_FAIL, 1000);
    world_put_below(w, &prompt);
    assert_int_equal(world_stats(w).tiers[0].stored_blocks, 0);
    assert_int_equal(world_stats(w).tiers[0].failed_blocks, 2);
    world_close(w);
}

static void test_late_is_left_behind(void **state)
{
    (void)state;
    world *w = world_make((world_config){.deadline_ns = 10000000});
    world_request prompt = world_draw(w, 30);
    world_put_below(w, &prompt);
    faulty_hold(w->parts[0], true);
    world_request *r = world_add(w, &prompt);
    uint64_t start_ns = w->now_ns;
    (void)world_wait(w, r);
    assert_true(w->now_ns - start_ns >= 10000000);
    assert_int_equal(world_match(w, r), 0);
    assert_int_equal(world_stats(w).tiers[0].late_blocks, 30);
    assert_false(qr_promote_has_pending(w->promote));
    assert_false(qr_promote_is_idle(w->promote));
    world_check(w); /* the blocks are still the job's */
    assert_int_equal(quire_pool_get_usage(w->pool).active, 30);
    faulty_hold(w->parts[0], false);
    world_drain(w);
    assert_int_equal(quire_pool_get_usage(w->pool).active, 0);
    assert_int_equal(world_match(w, r), 0); /* what came late counts as missing, */
    qr_promote_forget(w->promote, r->req);
    assert_false(world_ask(w, r)); /* also after a preemption */
    world_close(w);
}

static void evict_all(world *w)
{
    quire_block all[64];
    uint32_t n = quire_pool_get_num_free_blocks(w->pool);
    assert_true(n <= 64);
    assert_int_equal(quire_pool_get_new_blocks(w->pool, n, all), QUIRE_OK);
    assert_int_equal(quire_pool_free_blocks(w->pool, all, n), QUIRE_OK);
}

/* A tier that never answers keeps some blocks, and nobody else from the others. */
static void test_a_hung_tier_does_not_stop_the_next(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2, .num_cpu_blocks = 61});
    world_request a = world_draw(w, 20);
    world_put_below(w, &a);
    faulty_hold(w->parts[0], true);
    for (uint32_t i = 0; i < 12; i++) {
        world_request *r = world_add(w, &a);
        (void)world_wait(w, r);
        world_admit(w, r, 0);
        world_check(w);
        evict_all(w);
    }
    /* Its breaker has opened meanwhile, and the second tier gave what both have. */
    assert_true(world_stats(w).tiers[1].promoted_blocks > 0);
    faulty_hold(w->parts[0], false);
    world_close(w);
}

/* Its stores keep no more than their share either, and all blocks can still be stored. */
static void test_hung_stores_leave_room(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2, .num_cpu_blocks = 65});
    faulty_hold(w->parts[0], true);
    for (uint32_t i = 0; i < 60; i++) {
        world_request prompt = world_draw(w, 16);
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        world_admit(w, r, 0);
        world_step(w);
        w->now_ns += 3000000;
        assert_true(quire_pool_get_usage(w->pool).active <= 64 / 4 + 64 / 2);
    }
    world_check(w);
    assert_true(world_stats(w).tiers[1].stored_blocks > 100);
    faulty_hold(w->parts[0], false);
    world_close(w);
}

static void test_an_open_breaker_is_a_plain_miss(void **state)
{
    (void)state;
    world *w = world_make((world_config){0});
    world_request prompt = world_draw(w, 10);
    world_put_below(w, &prompt);
    faulty_set(w->parts[0], FAULTY_FAIL, 1000);
    for (uint32_t i = 0; i < 3; i++) {
        world_request *r = world_add(w, &prompt);
        (void)world_wait(w, r);
        world_abort(w, r);
    }
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(w->tiers[0], &stats), QUIRE_OK);
    assert_int_equal(stats.health, QUIRE_TIER_OPEN);
    world_request *r = world_add(w, &prompt);
    uint32_t num_free = quire_pool_get_num_free_blocks(w->pool);
    assert_false(world_ask(w, r));
    assert_int_equal(quire_pool_get_num_free_blocks(w->pool), num_free);
    world_admit(w, r, 0); /* its stores are dropped, and counted */
    world_drain(w);
    assert_int_equal(world_stats(w).tiers[0].stored_blocks, 10);
    assert_int_equal(world_stats(w).tiers[0].dropped_blocks, 10);
    world_close(w);
}

static void note_room(void *user, uint32_t num_blocks)
{
    uint32_t *asked = user;
    *asked += num_blocks;
}

static void test_a_full_cpu_pool_holds_nobody_up(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_cpu_blocks = 101});
    world_request prompt = world_draw(w, 10);
    world_put_below(w, &prompt);
    uint32_t asked = 0;
    qr_promote_set_room(w->promote, note_room, &asked);
    quire_block all[100];
    assert_int_equal(quire_pool_get_new_blocks(w->pool, 100, all), QUIRE_OK);
    world_request *r = world_add(w, &prompt);
    assert_true(world_wait(w, r) <= 1);
    assert_int_equal(asked, QR_LOWER_BATCH < 10 ? QR_LOWER_BATCH : 10); /* one job's blocks */
    assert_int_equal(quire_pool_free_blocks(w->pool, all, 100), QUIRE_OK);
    world_close(w);
}

static void test_all_tiers_dead_is_as_none(void **state)
{
    (void)state;
    static world with;
    static world without;
    world_config config = {.num_cpu_blocks = 90,
                           .num_tiers = 2,
                           .shared_tiers = 2,
                           .breaker_ns = UINT64_C(3600000000000),
                           .seed = 5};
    world_open(&with, &config);
    config.num_tiers = 0;
    world_open(&without, &config);
    for (uint32_t t = 0; t < 2; t++)
        faulty_set(with.parts[t], FAULTY_FAIL, 1000);
    for (uint32_t i = 0; i < 5; i++) { /* until both breakers are open, for good */
        world_request first;
        world_draw_prompt(&with, &first, 10);
        world_put_below(&with, &first);
    }
    quire_cache_reset_prefix_cache(without.cache);
    uint64_t random = 3;
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t n = 1 + unit_random_below(&random, 40);
        world_request prompt;
        with.random = without.random = random;
        world_draw_prompt(&with, &prompt, n);
        world_request *a = world_add(&with, &prompt);
        world_request *b = world_add(&without, &prompt);
        (void)world_wait(&with, a);
        assert_int_equal(world_admit(&with, a, 1000), world_admit(&without, b, 1000));
        world_step(&with);
    }
    assert_true(with.num_hit_tokens > 0);
    world_close(&with);
    world_close(&without);
}

/* ---- a tier that is full ------------------------------------------------------ */

/* After a tier was full, stores leave a part of it to loads: one that ends is not replaced. */
static void test_stores_leave_room(void **state)
{
    enum { MOST = 40 };
    uint32_t num_seen = 0;
    (void)state;
    for (uint32_t seed = 0; seed < 5; seed++) {
        world *w = world_make((world_config){.max_bytes_in_flight = (uint64_t)MOST * WORLD_BYTES,
                                             .deadline_ns = UINT64_C(10000000000),
                                             .seed = seed});
        faulty_set_delay(w->parts[0], 1000);
        world_request prompt = world_draw(w, MOST);
        for (uint32_t i = 0; i < 2; i++) {
            for (uint32_t k = 0; k < MOST; k++)
                prompt.hashes[k][0] ^= 1;
            world_admit(w, world_add(w, &prompt), 0);
        }
        while (world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE) == 0) {
            assert_true(world_stats(w).tiers[0].in_flight <= MOST);
            world_step(w);
        }
        if (world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE) == 1) {
            assert_int_equal(world_stats(w).tiers[0].in_flight, MOST - 1);
            num_seen++;
        }
        world_drain(w);
        world_close(w);
    }
    assert_true(num_seen > 0);
}

/* All places for stores are taken: what comes new is counted as dropped, and so is what is a hit of
 * the CPU pool and was never stored. */
static void test_dropped_stores_are_counted(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_cpu_blocks = 61});
    world_request prompt = world_draw(w, 60);
    faulty_hold(w->parts[0], true);
    world_admit(w, world_add(w, &prompt), 0);
    assert_int_equal(world_stats(w).tiers[0].dropped_blocks, 0);
    prompt.num_hashes = 10;
    for (uint32_t k = 0; k < 10; k++)
        prompt.hashes[k][0] ^= 1;
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(world_admit(w, world_add(w, &prompt), 0), i == 1 ? 0 : 10 * WORLD_TOKENS);
        assert_int_equal(world_stats(w).tiers[0].dropped_blocks, 10 * i);
    }
    faulty_hold(w->parts[0], false);
    world_close(w);
}

/* A tier that takes one job at a time is full while it looks for something; stores come after. */
static void test_stores_after_a_search(void **state)
{
    (void)state;
    world *w = world_make((world_config){.shared_tiers = 1, .max_jobs = 1});
    world_request sought = world_draw(w, 10);
    world_request computed = world_draw(w, 12);
    for (uint32_t k = 0; k < 12; k++)
        computed.hashes[k][0] ^= 1;
    faulty_hold(w->parts[0], true);
    world_request *r = world_add(w, &sought);
    assert_true(world_ask(w, r));
    world_admit(w, world_add(w, &computed), 0);
    world_step(w);
    faulty_hold(w->parts[0], false);
    world_drain(w);
    assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_STORE, QUIRE_TIER_DONE), 12);
    world_close(w);
}

/* ---- the rest ----------------------------------------------------------------- */

static void test_reset_with_jobs_out(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2, .shared_tiers = 2});
    world_request a = world_draw(w, 30);
    world_put_below(w, &a);
    world_request b = world_draw(w, 30);
    faulty_set_delay(w->parts[0], 4);
    faulty_set_delay(w->parts[1], 4);
    world_request *r = world_add(w, &a);
    assert_true(world_ask(w, r)); /* loads on their way, */
    world_request *s = world_add(w, &b);
    world_admit(w, s, 0); /* and stores */
    world_step(w);
    assert_int_equal(qr_promote_reset(w->promote), QUIRE_OK);
    world_check(w);
    assert_false(qr_promote_is_idle(w->promote));
    uint64_t promoted = world_stats(w).tiers[0].promoted_blocks;
    world_drain(w);
    assert_int_equal(world_stats(w).tiers[0].promoted_blocks, promoted); /* nothing counts */
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 0);
    s = world_add(w, &b);
    (void)world_wait(w, s);
    assert_int_equal(world_match(w, s), 0);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_failed_is_a_miss_for_ever),
        cmocka_unit_test(test_a_hole_ends_the_hit),
        cmocka_unit_test(test_failed_stores_are_counted),
        cmocka_unit_test(test_late_is_left_behind),
        cmocka_unit_test(test_a_hung_tier_does_not_stop_the_next),
        cmocka_unit_test(test_hung_stores_leave_room),
        cmocka_unit_test(test_an_open_breaker_is_a_plain_miss),
        cmocka_unit_test(test_a_full_cpu_pool_holds_nobody_up),
        cmocka_unit_test(test_all_tiers_dead_is_as_none),
        cmocka_unit_test(test_stores_leave_room),
        cmocka_unit_test(test_dropped_stores_are_counted),
        cmocka_unit_test(test_stores_after_a_search),
        cmocka_unit_test(test_reset_with_jobs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
