/* Tiers that others store in too: only FIND tells what they have. One tier, and several of which
 * each has a part.
 */
#include "promote_world.h"
#include "tier/promote/parts.h"

static world_request g_prompt; /* large: not on the stack */

static world_request *draw(world *w, uint32_t num_hashes)
{
    world_draw_prompt(w, &g_prompt, num_hashes);
    return &g_prompt;
}

/* Keys that a tier was asked about. */
static uint64_t num_asked(world *w, uint32_t tier)
{
    uint64_t count = 0;
    for (quire_tier_status s = QUIRE_TIER_DONE; s <= QUIRE_TIER_FAILED; s++)
        count += world_tier_keys(w, tier, QUIRE_TIER_FIND, s);
    return count;
}

static uint64_t num_loaded(world *w, uint32_t tier)
{
    return world_tier_keys(w, tier, QUIRE_TIER_LOAD, QUIRE_TIER_DONE);
}

/* The first blocks of a prompt, in those tiers alone (bits). */
static void put_in(world *w, const world_request *prompt, uint32_t num_hashes, uint32_t tiers)
{
    static world_request part;
    part = *prompt;
    part.num_hashes = num_hashes;
    part.num_tokens = num_hashes * WORLD_TOKENS + 1;
    for (uint32_t t = 0; t < w->config.num_tiers; t++)
        faulty_set(w->parts[t], FAULTY_NO_ROOM, (tiers >> t & 1) != 0 ? 0 : 1000);
    world_request *r = world_add(w, &part);
    world_admit(w, r, 1000);
    world_drain(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    for (uint32_t t = 0; t < w->config.num_tiers; t++)
        faulty_set(w->parts[t], FAULTY_NO_ROOM, 0);
}

/* Tokens of a hit of the prompt, which is then forgotten. */
static uint32_t get_hit(world *w, const world_request *prompt)
{
    world_request *r = world_add(w, prompt);
    (void)world_wait(w, r);
    uint32_t hit = world_match(w, r);
    world_abort(w, r);
    world_drain(w);
    world_check(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    return hit;
}

/* ---- how much is asked ------------------------------------------------------- */

/* Of a prompt that nobody has seen, a few blocks are asked for, not all. */
static void test_a_cold_prompt_asks_little(void **state)
{
    static const uint32_t SIZES[] = {1, 2, 500, 8000};
    (void)state;
    for (uint32_t i = 0; i < 4 * WORLD_MAX_TIERS * 2; i++) {
        uint32_t num_hashes = SIZES[i % 4];
        world *w = world_make((world_config){.num_tiers = 1 + i / 4 % WORLD_MAX_TIERS,
                                             .shared_tiers = 7,
                                             .num_cpu_blocks = 20000,
                                             .has_threads = i >= 4 * WORLD_MAX_TIERS,
                                             .deadline_ns = 5000000000});
        assert_int_equal(get_hit(w, draw(w, num_hashes)), 0);
        for (uint32_t t = 0; t < w->config.num_tiers; t++)
            assert_in_range(num_asked(w, t), 1, 1 + num_hashes / QR_LOWER_FIND_IOS);
        world_close(w);
    }
}

/* What is there is asked for once, and of the rest at most three times as much. */
static void test_a_warm_prompt_asks_once(void **state)
{
    static const uint32_t FOUND[] = {1, 5, 6, 84, 300, 499, 500};
    (void)state;
    for (uint32_t i = 0; i < sizeof FOUND / sizeof FOUND[0]; i++) {
        world *w = world_make((world_config){.shared_tiers = 1, .num_cpu_blocks = 4000});
        world_request *prompt = draw(w, 500);
        put_in(w, prompt, FOUND[i], 1);
        assert_int_equal(get_hit(w, prompt), FOUND[i] * WORLD_TOKENS);
        assert_int_equal(world_tier_keys(w, 0, QUIRE_TIER_FIND, QUIRE_TIER_DONE), FOUND[i]);
        assert_true(num_asked(w, 0) <= 4 * FOUND[i] + 2 + 500 / QR_LOWER_FIND_IOS);
        world_close(w);
    }
}

/* Many short prompts do not wait for each other: one step finds what they all have. */
static void test_short_prompts_ask_together(void **state)
{
    (void)state;
    world *w = world_make((world_config){.shared_tiers = 1, .num_cpu_blocks = 4000});
    for (uint32_t i = 0; i < WORLD_MAX_REQUESTS; i++)
        assert_true(world_ask(w, world_add(w, draw(w, 4))));
    world_step(w);
    for (uint32_t i = 0; i < WORLD_MAX_REQUESTS; i++)
        assert_false(world_ask(w, &w->requests[i]));
    world_close(w);
}

/* ---- several tiers ----------------------------------------------------------- */

static void test_the_next_tier_is_asked(void **state)
{
    (void)state;
    for (uint32_t has_threads = 0; has_threads < 2; has_threads++) {
        world *w = world_make((world_config){.num_tiers = 3,
                                             .shared_tiers = 7,
                                             .num_cpu_blocks = 4000,
                                             .has_threads = has_threads != 0,
                                             .deadline_ns = 5000000000});
        world_request *prompt = draw(w, 500);
        put_in(w, prompt, 500, 4);
        assert_int_equal(get_hit(w, prompt), 500 * WORLD_TOKENS);
        assert_in_range(num_asked(w, 0), 1, 1 + 500 / QR_LOWER_FIND_IOS);
        assert_in_range(num_asked(w, 1), 1, 1 + 500 / QR_LOWER_FIND_IOS);
        assert_int_equal(num_loaded(w, 2), 500);
        assert_int_equal(world_stats(w).tiers[2].promoted_blocks, 500);
        world_close(w);
    }
}

/* The head in one tier, the rest in another, in either order; a private tier among them. */
static void test_each_tier_has_a_part(void **state)
{
    (void)state;
    for (uint32_t first = 0; first < 2; first++)
        for (uint32_t shared = 1; shared < 4; shared++) {
            world *w = world_make((world_config){
                .num_tiers = 2, .shared_tiers = shared, .num_cpu_blocks = 4000, .seed = shared});
            world_request *prompt = draw(w, 200);
            put_in(w, prompt, 120, 1u << first);
            put_in(w, prompt, 200, 2u >> first); /* with the head, where it was computed again */
            assert_int_equal(get_hit(w, prompt), 200 * WORLD_TOKENS);
            assert_int_equal(num_loaded(w, 0) + num_loaded(w, 1), 200);
            world_close(w);
        }
}

/* Any part in any tier: the hit ends at the first block that no tier has. */
static void test_scattered(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        world *w = world_make((world_config){.num_tiers = 2 + i % 2,
                                             .shared_tiers = 7,
                                             .num_cpu_blocks = 4000,
                                             .deadline_ns = 10000000000,
                                             .seed = i});
        world_request *prompt = draw(w, 60);
        for (uint32_t t = 0; t < w->config.num_tiers; t++)
            faulty_set(w->parts[t], FAULTY_LOSE, i % 3 == 0 ? 500 : 150);
        world_admit(w, world_add(w, prompt), 1000);
        world_drain(w);
        assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
        uint32_t wanted = 0;
        for (bool is_there = true; is_there && wanted < 60; wanted += is_there) {
            is_there = false;
            for (uint32_t t = 0; t < w->config.num_tiers; t++)
                is_there |= world_tier_has(w, t, prompt, 0, wanted);
        }
        assert_int_equal(get_hit(w, prompt), wanted * WORLD_TOKENS);
        world_close(w);
    }
}

/* ---- faults ------------------------------------------------------------------ */

static world *make_two(void)
{
    world *w = world_make((world_config){
        .num_tiers = 2, .shared_tiers = 3, .num_cpu_blocks = 4000, .deadline_ns = 20000000});
    put_in(w, draw(w, 100), 100, 3);
    return w;
}

/* The first fails, in FIND or in LOAD, or gives other bytes: the second has it all. */
static void test_the_first_fails(void **state)
{
    static const faulty_kind KINDS[] = {FAULTY_FAIL, FAULTY_FLIP, FAULTY_SHORT, FAULTY_BAD_STATUS};
    (void)state;
    for (uint32_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++) {
        world *w = make_two();
        faulty_set(w->parts[0], KINDS[i], 1000);
        for (uint32_t k = 0; k < 6; k++) /* its breaker opens meanwhile */
            assert_int_equal(get_hit(w, &g_prompt), 100 * WORLD_TOKENS);
        assert_int_equal(num_loaded(w, 0), 0);
        assert_int_equal(num_loaded(w, 1), 600);
        world_close(w);
    }
}

static void test_the_second_fails(void **state)
{
    (void)state;
    world *w =
        world_make((world_config){.num_tiers = 2, .shared_tiers = 3, .num_cpu_blocks = 4000});
    world_request *prompt = draw(w, 100);
    put_in(w, prompt, 60, 1);
    put_in(w, prompt, 100, 2);
    faulty_set(w->parts[1], FAULTY_FAIL, 1000);
    for (uint32_t k = 0; k < 6; k++)
        assert_int_equal(get_hit(w, prompt), 60 * WORLD_TOKENS);
    faulty_set(w->parts[1], FAULTY_FAIL, 0);
    w->now_ns += 1000000000; /* its breaker lets one job through, and closes again */
    uint32_t num_probed = QR_LOWER_FIND_IOS < 40 ? QR_LOWER_FIND_IOS : 40;
    assert_int_equal(get_hit(w, prompt), (60 + num_probed) * WORLD_TOKENS);
    assert_int_equal(get_hit(w, prompt), 100 * WORLD_TOKENS);
    world_close(w);
}

/* Some ios of both fail: what came is right, and nobody waits beyond the deadline. */
static void test_both_fail_sometimes(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        world *w = make_two();
        for (uint32_t t = 0; t < 2; t++) {
            faulty_set_all(w->parts[t], 30);
            faulty_set(w->parts[t], FAULTY_HOLD, i % 3);
            faulty_set_delay(w->parts[t], i % 5);
        }
        for (uint32_t k = 0; k < 4; k++) {
            world_request *r = world_add(w, &g_prompt);
            (void)world_wait(w, r);
            (void)world_match(w, r);
            world_abort(w, r);
            world_check(w);
        }
        world_close(w);
    }
}

/* The first never answers: its request goes on in time, and the next ones go to the second. */
static void test_the_first_hangs(void **state)
{
    (void)state;
    world *w = make_two();
    faulty_hold(w->parts[0], true);
    for (uint32_t k = 0; k < 4; k++) {
        world_request *r = world_add(w, &g_prompt);
        (void)world_wait(w, r);
        world_abort(w, r);
    }
    world_request *r = world_add(w, &g_prompt);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 100 * WORLD_TOKENS);
    assert_int_equal(num_loaded(w, 1), 100);
    world_abort(w, r);
    faulty_hold(w->parts[0], false);
    world_close(w);
}

/* A reset while a request waits for the second: nothing from before is found in either. */
static void test_reset_between(void **state)
{
    (void)state;
    for (uint32_t steps = 0; steps < 6; steps++) {
        world *w =
            world_make((world_config){.num_tiers = 2, .shared_tiers = 3, .num_cpu_blocks = 4000});
        world_request *prompt = draw(w, 100);
        put_in(w, prompt, 100, 2);
        faulty_set_delay(w->parts[1], 2);
        world_request *r = world_add(w, prompt);
        for (uint32_t i = 0; i < steps; i++) {
            (void)world_ask(w, r);
            world_step(w);
        }
        assert_int_equal(qr_promote_reset(w->promote), QUIRE_OK);
        world_abort(w, r);
        world_drain(w);
        assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
        assert_int_equal(get_hit(w, prompt), 0);
        world_close(w);
    }
}

/* ---- another identity -------------------------------------------------------- */

static int identity_status;

static void persistent_caps(void *self, quire_tier_caps *caps)
{
    faulty_ops()->caps(self, caps);
    caps->is_persistent = 1;
}

/* As if it had other blocks from now on. */
static int take_identity(void *self, const unsigned char *fingerprint)
{
    assert_int_equal(fingerprint[0], 5);
    return identity_status == QUIRE_OK ? faulty_ops()->reset(self) : identity_status;
}

/* The blocks of others are not reset; a new identity is taken when there are no jobs, and a tier
 * that does not take it is not used. */
static void test_identity(void **state)
{
    (void)state;
    quire_tier_ops ops = *faulty_ops();
    static const unsigned char next[QUIRE_FINGERPRINT_BYTES] = {5};
    ops.caps = persistent_caps;
    ops.set_identity = take_identity;
    world *w = world_make(
        (world_config){.num_tiers = 2, .shared_tiers = 1, .num_cpu_blocks = 4000, .ops = &ops});
    world_request *prompt = draw(w, 50);
    put_in(w, prompt, 50, 3);
    assert_false(qr_promote_can_reset(w->promote));
    assert_int_equal(qr_promote_reset(w->promote), QUIRE_E_IDENTITY);
    assert_int_equal(get_hit(w, prompt), 50 * WORLD_TOKENS); /* nothing has changed */
    faulty_hold(w->parts[0], true);
    world_request *r = world_add(w, prompt);
    assert_true(world_ask(w, r));
    assert_int_equal(qr_promote_set_identity(w->promote, next), QUIRE_BUSY);
    faulty_hold(w->parts[0], false);
    (void)world_wait(w, r);
    assert_int_equal(world_match(w, r), 50 * WORLD_TOKENS);
    world_abort(w, r);
    world_drain(w);
    assert_int_equal(quire_pool_reset_prefix_cache(w->pool), QUIRE_OK);
    identity_status = QUIRE_E_SYSTEM; /* they have the old blocks still, which do not count */
    assert_int_equal(qr_promote_set_identity(w->promote, next), QUIRE_E_SYSTEM);
    assert_int_equal(get_hit(w, prompt), 0);
    put_in(w, prompt, 50, 3);
    assert_int_equal(get_hit(w, prompt), 0);
    identity_status = QUIRE_OK;
    assert_int_equal(qr_promote_set_identity(w->promote, next), QUIRE_OK);
    assert_int_equal(get_hit(w, prompt), 0);
    put_in(w, prompt, 50, 3);
    assert_int_equal(get_hit(w, prompt), 50 * WORLD_TOKENS);
    world_close(w);
}

/* ---- costs ------------------------------------------------------------------- */

/* The second is slow: what it costs is learned, and it is left alone, but for a probe. */
static void test_a_slow_second_is_left_alone(void **state)
{
    (void)state;
    world *w = world_make((world_config){.num_tiers = 2,
                                         .shared_tiers = 3,
                                         .num_cpu_blocks = 4000,
                                         .deadline_ns = 10000000000,
                                         .recompute_token_ns = 1000});
    world_request *prompt = draw(w, 40);
    put_in(w, prompt, 40, 2);
    faulty_set_delay(w->parts[1], 40);
    uint32_t num_hits = 0;
    for (uint32_t i = 0; i < 40; i++)
        num_hits += get_hit(w, prompt) > 0;
    assert_in_range(num_hits, 1, 5);
    assert_true(world_stats(w).tiers[1].skipped_tokens > 0);
    assert_true(world_stats(w).tiers[1].bytes_per_s > 0);
    world_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_cold_prompt_asks_little),
        cmocka_unit_test(test_a_warm_prompt_asks_once),
        cmocka_unit_test(test_short_prompts_ask_together),
        cmocka_unit_test(test_the_next_tier_is_asked),
        cmocka_unit_test(test_each_tier_has_a_part),
        cmocka_unit_test(test_scattered),
        cmocka_unit_test(test_the_first_fails),
        cmocka_unit_test(test_the_second_fails),
        cmocka_unit_test(test_both_fail_sometimes),
        cmocka_unit_test(test_the_first_hangs),
        cmocka_unit_test(test_reset_between),
        cmocka_unit_test(test_identity),
        cmocka_unit_test(test_a_slow_second_is_left_alone),
    };
    return cmocka_run_group_tests_name("shared tiers", tests, NULL, NULL);
}
