/* sched/retain/test_sched_pins.c - blocks of ended requests that are kept: how long, and against
 * whom. */
#include "sched/sched.h"
#include "sched/sched_kit.h"

enum { TTL = 1000, PROMPT = 16 }; /* of 16 blocks a request takes four, and one for its output */

static uint64_t clock_ns;

static uint64_t read_clock(void *user)
{
    (void)user;
    return clock_ns;
}

static quire_snapshot last_snapshot;

static void note_snapshot(void *user, const quire_snapshot *snapshot)
{
    (void)user;
    last_snapshot = *snapshot;
}

/* The decisions about pins, as words: "pinned a 4 by b". */
static char told_pins[512];

static const char *id_of(sched_kit *kit, quire_req req, char *text)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    text[0] = '-';
    text[1] = 0;
    if (req != 0 && quire_sched_get_req_info(kit->sched, req, &info) == QUIRE_OK) {
        memcpy(text, info.id.data, info.id.len);
        text[info.id.len] = 0;
    }
    return text;
}

static void note_pin(void *user, const quire_decision *d)
{
    static const char *const words[] = {[QUIRE_DECISION_PINNED] = "pinned",
                                        [QUIRE_DECISION_UNPINNED] = "unpinned",
                                        [QUIRE_DECISION_PIN_EXPIRED] = "expired",
                                        [QUIRE_DECISION_PIN_GAVE_WAY] = "gave way"};
    char other[64];
    size_t used = strlen(told_pins);
    if (d->kind < QUIRE_DECISION_PINNED)
        return;
    assert_true(d->req != 0);
    snprintf(told_pins + used, sizeof told_pins - used, "%s %u %s; ", words[d->kind], d->num,
             id_of(user, d->other, other));
}

static quire_sched_config open_kit(sched_kit *kit, uint32_t max_pins)
{
    quire_sched_config config = kit_config(kit);
    clock_ns = 0;
    config.max_pins = max_pins;
    config.hooks.now_ns = read_clock;
    config.on_snapshot = note_snapshot;
    kit_open(kit, &config);
    return config;
}

/* A request that is computed, pinned and ended. */
static void run_pinned_for(sched_kit *kit, const char *id, uint32_t num_tokens, uint64_t ttl)
{
    quire_req req = kit_add(kit, id, num_tokens);
    assert_int_equal(quire_sched_pin(kit->sched, req, ttl), QUIRE_OK);
    kit_run(kit, 1);
    assert_int_equal(quire_sched_finish(kit->sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL),
                     QUIRE_OK);
}

static void run_pinned(sched_kit *kit, const char *id, uint64_t ttl)
{
    run_pinned_for(kit, id, PROMPT, ttl);
}

static uint64_t active(const sched_kit *kit)
{
    assert_int_equal(quire_sched_check(kit->sched), QUIRE_OK);
    return quire_sched_get_usage(kit->sched).active;
}

static void kept_until_its_time_is_over(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 4);
    run_pinned(&kit, "a", TTL);
    assert_int_equal(active(&kit), PROMPT / KIT_BLOCK);
    clock_ns = TTL - 1;
    kit_step(&kit);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(active(&kit), PROMPT / KIT_BLOCK);
    assert_int_equal(last_snapshot.num_pinned, 1);
    assert_int_equal(last_snapshot.num_pinned_blocks, PROMPT / KIT_BLOCK);
    clock_ns = TTL;
    kit_step(&kit);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(active(&kit), 0);
    assert_int_equal(last_snapshot.num_pinned, 0);
    kit_close(&kit);
}

static void open_told(sched_kit *kit, uint32_t max_pins)
{
    quire_sched_config config = kit_config(kit);
    clock_ns = 0;
    told_pins[0] = 0;
    config.max_pins = max_pins;
    config.hooks.now_ns = read_clock;
    config.on_decision = note_pin;
    config.observer = kit;
    kit_open(kit, &config);
}

/* Each way in which a pin begins and ends stands in the log, with its blocks. */
static void decisions_tell_of_pins(void **state)
{
    (void)state;
    sched_kit kit;
    open_told(&kit, 1);
    run_pinned(&kit, "a", TTL);
    assert_string_equal(told_pins, "pinned 4 -; ");
    clock_ns = TTL;
    kit_run(&kit, 1);
    assert_string_equal(told_pins, "pinned 4 -; expired 4 -; ");
    told_pins[0] = 0;
    run_pinned(&kit, "b", TTL);
    run_pinned_for(&kit, "c", 8, 2 * TTL); /* one pin too many */
    assert_string_equal(told_pins, "pinned 4 -; gave way 4 -; pinned 2 -; ");
    told_pins[0] = 0;
    quire_req again = kit_add(&kit, "c", 12); /* the next turn */
    kit_run(&kit, 1);
    assert_string_equal(told_pins, "unpinned 2 c; ");
    quire_sched_finish(kit.sched, &again, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    told_pins[0] = 0;
    run_pinned(&kit, "d", TTL);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 0), QUIRE_OK);
    assert_string_equal(told_pins, "pinned 4 -; unpinned 4 -; ");
    kit_close(&kit);
}

/* Others take all there is beside it, are preempted for room, and its blocks are still there. */
static void survives_pressure(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 4);
    run_pinned(&kit, "a", UINT64_MAX);
    quire_req b = kit_add(&kit, "b", 20);
    quire_req c = kit_add(&kit, "c", 20);
    kit_run(&kit, 1);
    for (uint32_t i = 0; i < 12; i++)
        kit_run(&kit, 1);
    assert_true(kit_info(&kit, c).num_preemptions > 0); /* there was no room for both */
    assert_int_equal(last_snapshot.num_pinned, 1);
    quire_req ended[] = {b, c};
    quire_sched_finish(kit.sched, ended, 2, QUIRE_REQ_FINISHED_ABORTED, NULL);
    quire_req again = kit_add(&kit, "a", PROMPT + 4); /* all of it is a hit, and the pin ends */
    kit_step(&kit);
    assert_int_equal(kit.step->num_computed_tokens[0], PROMPT);
    kit_answer(&kit, kit.step->step, 1);
    quire_sched_finish(kit.sched, &again, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(active(&kit), 0);
    kit_close(&kit);
}

/* A part of it is shared by many, and is no next turn. */
static void a_shorter_hit_does_not_end_it(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 4);
    run_pinned(&kit, "a", UINT64_MAX);
    quire_req b = kit_add(&kit, "a", PROMPT - 4);
    kit_step(&kit);
    assert_int_equal(kit.step->num_computed_tokens[0], PROMPT - 8);
    kit_answer(&kit, kit.step->step, 1);
    quire_sched_finish(kit.sched, &b, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(active(&kit), PROMPT / KIT_BLOCK);
    kit_close(&kit);
}

static void gives_way_when_nobody_could_run(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 4);
    run_pinned(&kit, "a", 3 * TTL);
    run_pinned(&kit, "b", 2 * TTL);
    run_pinned(&kit, "c", 4 * TTL);
    assert_int_equal(active(&kit), 12);
    kit_add(&kit, "d", 30); /* eight blocks, and four are free */
    kit_step(&kit);
    assert_string_equal(kit_shown_step(&kit), "d:30");
    assert_int_equal(last_snapshot.num_pinned, 2); /* b would have ended soonest */
    kit_answer(&kit, kit.step->step, 1);
    for (uint32_t i = 0; i < 12; i++) /* it grows past what is free: alone, it takes the next one */
        kit_run(&kit, 1);
    assert_int_equal(last_snapshot.num_pinned, 1);
    assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);
    kit_close(&kit);
}

static void one_too_many_ends_the_soonest(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 2);
    run_pinned(&kit, "a", TTL);
    run_pinned(&kit, "b", 3 * TTL);
    run_pinned(&kit, "c", 2 * TTL);
    assert_int_equal(active(&kit), 8);
    clock_ns = TTL + 1; /* a is gone already */
    kit_step(&kit);
    kit_answer(&kit, kit.step->step, 1);
    assert_int_equal(active(&kit), 8);
    assert_int_equal(quire_sched_drop_pins(kit.sched), QUIRE_OK);
    assert_int_equal(active(&kit), 0);
    kit_close(&kit);
}

/* Many pins against a list of when each ends: some end by time, some because their blocks are hit,
 * some because there are too many. */
static void many_end_in_order(void **state)
{
    (void)state;
    enum { MANY = 40, MOST = 32, ROUNDS = 1500, UNIT = 2048 }; /* no two end at once */
    uint64_t ends[MANY] = {0};                                 /* 0: not pinned */
    uint64_t random = 3;
    sched_kit kit;
    quire_sched_config config = kit_config(&kit);
    clock_ns = 1;
    config.max_pins = MOST;
    config.cache->num_blocks = (MANY + 2) * 6;
    config.hooks.now_ns = read_clock;
    kit_open(&kit, &config);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t i = unit_random_below(&random, MANY);
        char id[] = {(char)('0' + i), '\0'};
        uint32_t num_pinned = 0, soonest = MANY;
        clock_ns += (uint64_t)UNIT * unit_random_below(&random, 3);
        for (uint32_t k = 0; k < MANY; k++) {
            ends[k] = ends[k] > clock_ns ? ends[k] : 0;
            num_pinned += ends[k] > 0;
        }
        if (ends[i] > 0) { /* its blocks are the hit of a longer prompt: that ends the pin */
            quire_req req = kit_add(&kit, id, PROMPT + KIT_BLOCK);
            kit_run(&kit, 1);
            quire_sched_finish(kit.sched, &req, 1, QUIRE_REQ_FINISHED_STOPPED, NULL);
            ends[i] = 0;
            num_pinned--;
        } else {
            uint64_t ttl = (uint64_t)UNIT * (1 + unit_random_below(&random, 60)) + round;
            run_pinned_for(&kit, id, PROMPT + 1, ttl); /* all its full blocks can be hit again */
            for (uint32_t k = 0; num_pinned == MOST && k < MANY; k++)
                if (ends[k] > 0 && (soonest == MANY || ends[k] < ends[soonest]))
                    soonest = k;
            if (num_pinned == MOST)
                ends[soonest] = 0;
            num_pinned += num_pinned < MOST;
            ends[i] = clock_ns + ttl;
        }
        assert_int_equal(active(&kit), 4 * num_pinned);
        assert_int_equal(kit.sched->pins.num_pins, num_pinned);
    }
    kit_close(&kit);
}

#define SPOIL(field, value)                                                                        \
    do {                                                                                           \
        __typeof__(field) right = (field);                                                         \
        (field) = (__typeof__(field))(value);                                                      \
        assert_int_equal(quire_sched_check(kit.sched), QUIRE_E_CORRUPT);                           \
        (field) = right;                                                                           \
        assert_int_equal(quire_sched_check(kit.sched), QUIRE_OK);                                  \
    } while (0)

static void the_walker_finds_damage(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 3);
    run_pinned(&kit, "a", TTL);
    run_pinned(&kit, "b", 2 * TTL);
    run_pinned(&kit, "c", 3 * TTL);
    qr_pins *p = &kit.sched->pins;
    SPOIL(p->pins[1].place, 0);
    SPOIL(p->pins[1].place, 3);
    SPOIL(p->heap[1], 2);
    SPOIL(p->pins[0].ends_ns, 5 * TTL); /* it would not be the first */
    SPOIL(p->pins[1].link.next, 0);
    SPOIL(p->pins[1].link.next, 3);
    SPOIL(p->pins[1].link.prev, 3);
    SPOIL(p->by_last[p->pins[2].last_block], QR_NIL);
    SPOIL(p->by_last[p->pins[2].last_block], 1);
    kit_close(&kit);
}

static void a_reset_ends_them(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 2);
    run_pinned(&kit, "a", TTL);
    assert_int_equal(quire_sched_reset_prefix_cache(kit.sched, 0, 0), QUIRE_OK);
    assert_int_equal(active(&kit), 0);
    kit_close(&kit);
}

static void saved_and_restored(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = open_kit(&kit, 2);
    run_pinned(&kit, "a", TTL);
    clock_ns = TTL / 2;
    size_t bytes = quire_sched_image_bytes(kit.sched);
    void *image = malloc(bytes);
    assert_non_null(image);
    quire_block held = 1;
    quire_pool *pool = quire_cache_get_pool(quire_sched_get_cache(kit.sched));
    assert_int_equal(quire_pool_hold(pool, &held, 1), QUIRE_OK); /* a copy is on its way */
    assert_int_equal(quire_sched_save(kit.sched, image, bytes, &bytes), QUIRE_BUSY);
    assert_int_equal(quire_pool_let_go(pool, &held, 1, 0), QUIRE_OK);
    assert_int_equal(quire_sched_save(kit.sched, image, bytes, &bytes), QUIRE_OK);
    quire_sched *again;
    clock_ns = 10 * TTL; /* another process, another clock */
    assert_int_equal(quire_sched_restore(&config, NULL, image, bytes, &again), QUIRE_OK);
    const quire_step *step;
    const quire_outputs *outputs;
    assert_int_equal(quire_sched_schedule(again, &step), QUIRE_OK);
    assert_int_equal(last_snapshot.num_pinned, 1);
    quire_model_output output = QUIRE_MODEL_OUTPUT_INIT;
    assert_int_equal(quire_sched_update(again, step->step, &output, &outputs), QUIRE_OK);
    clock_ns += TTL / 2; /* half of its time was over */
    assert_int_equal(quire_sched_schedule(again, &step), QUIRE_OK);
    assert_int_equal(last_snapshot.num_pinned, 0);
    assert_int_equal(quire_sched_check(again), QUIRE_OK);
    assert_int_equal(quire_sched_get_usage(again).active, 0);
    quire_sched_destroy(again);
    free(image);
    kit_close(&kit);
}

static void restored_pin_ends_with_its_reuse(void **state)
{
    (void)state;
    sched_kit kit;
    quire_sched_config config = open_kit(&kit, 2);
    run_pinned(&kit, "a", TTL);
    kit_state saved = kit_save(kit.sched);
    quire_sched *before = kit.sched; /* as long as it is there, its memory is not used again */
    assert_int_equal(quire_sched_restore(&config, NULL, saved.image, saved.bytes, &kit.sched),
                     QUIRE_OK);
    quire_sched_destroy(before);
    free(saved.image);
    assert_int_equal(active(&kit), PROMPT / KIT_BLOCK);
    quire_req again = kit_add(&kit, "a", PROMPT + 4);
    kit_run(&kit, 1);
    quire_sched_finish(kit.sched, &again, 1, QUIRE_REQ_FINISHED_ABORTED, NULL);
    assert_int_equal(active(&kit), 0);
    kit_close(&kit);
}

static void what_is_refused(void **state)
{
    (void)state;
    sched_kit kit;
    open_kit(&kit, 0);
    quire_req a = kit_add(&kit, "a", 4);
    assert_int_equal(quire_sched_pin(kit.sched, a, 1), QUIRE_E_DISABLED);
    assert_int_equal(quire_sched_pin(kit.sched, a + 1, 1), QUIRE_E_UNKNOWN_REQ);
    assert_int_equal(quire_sched_pin(NULL, a, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_drop_pins(NULL), QUIRE_E_ARGUMENT);
    kit_close(&kit);
    quire_sched_config config = kit_config(&kit);
    config.max_pins = 1;
    config.profile = QUIRE_PROFILE_VLLM_0_20;
    assert_int_equal(quire_sched_bytes(&config), 0);
    config.profile = QUIRE_PROFILE_DEFAULT;
    config.max_pins = (1U << 20) + 1;
    assert_int_equal(quire_sched_bytes(&config), 0);
    config.max_pins = 1;
    config.cache->enable_caching = QUIRE_OFF;
    assert_int_equal(quire_sched_bytes(&config), 0);
    quire_hasher_destroy(kit.hasher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_until_its_time_is_over),
        cmocka_unit_test(decisions_tell_of_pins),
        cmocka_unit_test(survives_pressure),
        cmocka_unit_test(a_shorter_hit_does_not_end_it),
        cmocka_unit_test(gives_way_when_nobody_could_run),
        cmocka_unit_test(one_too_many_ends_the_soonest),
        cmocka_unit_test(many_end_in_order),
        cmocka_unit_test(the_walker_finds_damage),
        cmocka_unit_test(a_reset_ends_them),
        cmocka_unit_test(saved_and_restored),
        cmocka_unit_test(restored_pin_ends_with_its_reuse),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
