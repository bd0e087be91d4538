/* tier/core/test_tier_ops.c - operations that a tier's own part may leave out, and what those
 * that it
 * has are asked. */
#include "tier_kit.h"

#include <poll.h>
#include <unistd.h>

static void begin_done(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    for (uint32_t i = 0; i < job->num_ios; i++)
        ends->end(ends, job, i, QUIRE_TIER_DONE);
}

static void simulated_caps(void *self, quire_tier_caps *caps)
{
    (void)self;
    *caps = (quire_tier_caps){.is_simulated = 1};
}

/* The least that a tier's own part can be: everything but begin is missing. */
static void least_part(void **state)
{
    (void)state;
    for (int variant = 0; variant < 2; variant++) {
        static kit_job j;
        uint8_t found = 9;
        kit k = {0};
        quire_tier_ops ops = {.abi = 1, .size = sizeof ops, .begin = begin_done, .medium = "tape"};
        quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
        config.ops = &ops;
        config.run_inline = variant == 0 ? QUIRE_ON : QUIRE_OFF;
        assert_int_equal(quire_tier_open(&config, NULL, &k.tier), QUIRE_OK);
        assert_string_equal(quire_tier_label(k.tier), "tier");
        assert_string_equal(quire_tier_medium(k.tier), "tape");
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_WRONG); /* it did nothing */
        assert_int_equal(quire_tier_lookup(k.tier, &j.ios[0].key, 1, &found), QUIRE_OK);
        assert_int_equal(found, 2);
        assert_int_equal(quire_tier_touch(k.tier, &j.ios[0].key, 1), QUIRE_OK);
        assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
        kit_close(&k);
    }
}

static uint32_t num_touched;
static int settled;

static void count_touched(void *self, const quire_tier_key *keys, uint32_t n)
{
    (void)self;
    (void)keys;
    num_touched += n;
}

static int ask_settled(void *self)
{
    (void)self;
    return settled;
}

/* A tier is told what is used; a reset waits until it would survive a crash. */
static void touched_and_settled(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {0};
    quire_tier_ops ops = {.abi = 1,
                          .size = sizeof ops,
                          .begin = begin_done,
                          .touch = count_touched,
                          .is_settled = ask_settled};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &ops;
    assert_int_equal(quire_tier_open(&config, NULL, &k.tier), QUIRE_OK);
    kit_fill(&j, QUIRE_TIER_STORE, 1, 3);
    num_touched = 0;
    const quire_tier_key keys[2] = {j.ios[0].key, j.ios[1].key};
    assert_int_equal(quire_tier_touch(k.tier, keys, 2), QUIRE_OK);
    assert_int_equal(num_touched, 2);
    settled = 1;
    assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
    settled = -1;
    assert_int_equal(quire_tier_reset(k.tier), QUIRE_E_SYSTEM);
    kit_close(&k);
}

static void simulated_tiers_need_no_memory(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {0};
    quire_tier_ops ops = {
        .abi = 1, .size = sizeof ops, .begin = begin_done, .caps = simulated_caps};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &ops;
    config.run_inline = QUIRE_ON;
    assert_int_equal(quire_tier_open(&config, NULL, &k.tier), QUIRE_OK);
    for (quire_tier_op op = QUIRE_TIER_LOAD; op <= QUIRE_TIER_STORE; op++) {
        kit_fill(&j, op, 1, 3);
        for (int i = 0; i < 3; i++)
            j.ios[i].memory = NULL;
        assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
        assert_ptr_equal(kit_wait(&k), &j.job);
        assert_int_equal(j.ios[2].status, QUIRE_TIER_DONE);
    }
    kit_close(&k);
}

/* ---- an open that fails ----------------------------------------------------- */

static int refuse_and_draw(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 7, bytes);
    (void)quire_refuse(QUIRE_E_CONFIG, "why another call failed");
    return 0;
}

static int open_never(void *self, const void *memory, size_t bytes)
{
    (void)self;
    (void)memory;
    (void)bytes;
    return QUIRE_E_SYSTEM;
}

static int open_never_and_say_why(void *self, const void *memory, size_t bytes)
{
    return quire_refuse(open_never(self, memory, bytes), "the tape is torn");
}

/* The sentence is the open's or the tier's, not one that a hook has left. */
static void refusal_is_of_the_open(void **state)
{
    (void)state;
    quire_tier *tier = NULL;
    quire_tier_ops ops = {.abi = 1, .size = sizeof ops, .begin = begin_done, .open = open_never};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &ops;
    config.label = "tape";
    config.hooks.random_bytes = refuse_and_draw;
    assert_int_equal(quire_tier_open(&config, NULL, &tier), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "tape"));
    assert_null(strstr(quire_refusal(), "another call"));
    ops.open = open_never_and_say_why;
    assert_int_equal(quire_tier_open(&config, NULL, &tier), QUIRE_E_SYSTEM);
    assert_string_equal(quire_refusal(), "the tape is torn");
    assert_null(tier);
}

/* ---- cancels and sleep ------------------------------------------------------ */

static _Atomic uint32_t num_begun;
static _Atomic uint32_t num_told;
static _Atomic int last_timeout;

static void begin_nothing(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    (void)ends;
    (void)job;
    num_begun++;
}

static void cancel_told(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    num_told++;
    for (uint32_t i = 0; i < job->num_ios; i++)
        ends->end(ends, job, i, QUIRE_TIER_CANCELLED);
}

static void note_timeout(void *self, quire_tier_ends *ends, int wake_fd, int timeout_ms)
{
    (void)self;
    (void)ends;
    struct pollfd wake = {.fd = wake_fd, .events = POLLIN};
    last_timeout = timeout_ms;
    (void)poll(&wake, 1, timeout_ms);
}

static kit open_ops(const quire_tier_ops *ops, quire_switch run_inline)
{
    kit k = {0};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = ops;
    config.run_inline = run_inline;
    config.max_jobs = 1;
    assert_int_equal(quire_tier_open(&config, NULL, &k.tier), QUIRE_OK);
    num_begun = num_told = 0;
    return k;
}

/* The jobs have one slot after the other; the last is cancelled by the tier's end. */
static void each_cancel_is_told(void **state)
{
    (void)state;
    static kit_job j;
    const quire_tier_ops ops = {
        .abi = 1, .size = sizeof ops, .begin = begin_nothing, .cancel = cancel_told};
    for (int variant = 0; variant < 2; variant++) {
        kit k = open_ops(&ops, variant == 0 ? QUIRE_ON : QUIRE_OFF);
        for (uint32_t i = 0; i < 4; i++) {
            kit_submit(&k, &j, QUIRE_TIER_FIND, 1, 2);
            while (num_begun <= i)
                usleep(100);
            if (i == 3)
                break;
            assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_OK);
            assert_ptr_equal(kit_wait(&k), &j.job);
            assert_int_equal(j.ios[1].status, QUIRE_TIER_CANCELLED);
            assert_int_equal(num_told, i + 1);
        }
        assert_int_equal(quire_tier_close(k.tier), QUIRE_OK);
        assert_int_equal(num_told, 4);
    }
}

static void a_tier_without_work_sleeps_until_it_is_woken(void **state)
{
    (void)state;
    static kit_job j;
    const quire_tier_ops ops = {
        .abi = 1, .size = sizeof ops, .begin = begin_done, .turn = note_timeout};
    kit k = open_ops(&ops, QUIRE_OFF);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
        uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
        while (last_timeout != -1) {
            assert_true(kit_true_now() < end_ns);
            usleep(100);
        }
    }
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_part),
        cmocka_unit_test(touched_and_settled),
        cmocka_unit_test(simulated_tiers_need_no_memory),
        cmocka_unit_test(refusal_is_of_the_open),
        cmocka_unit_test(each_cancel_is_told),
        cmocka_unit_test(a_tier_without_work_sleeps_until_it_is_woken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
