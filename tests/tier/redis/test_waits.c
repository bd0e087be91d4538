/* tier/redis/test_waits.c - jobs that wait for a server, and times that end while nobody asks: each
 * is looked at by itself, with a server that answers when the test says so (fake.h). */
#include "fake.h"
#include "redis_kit.h"

enum { NUM_KEYS = 6, PATIENCE_MS = 10000 };

typedef struct stage {
    redis_fake *fake;
    redis_tier tier;
} stage;

static void open_tier(stage *s)
{
    char address[32];
    const char *addresses[1] = {address};
    s->tier.breaker_ms = 10;
    s->tier.config.connections = 1;
    s->tier.config.usage_ns = UINT64_C(3600000000000); /* no questions in between */
    (void)snprintf(address, sizeof address, "127.0.0.1:%d", redis_fake_port(s->fake));
    assert_int_equal(redis_tier_open_at(&s->tier, addresses, 1), QUIRE_OK);
}

/* Keys are stored, and one connection is ready. */
static void set_up(stage *s)
{
    s->fake = redis_fake_start();
    open_tier(s);
    redis_await_stores(&s->tier, 0, NUM_KEYS);
}

static void tear_down(stage *s)
{
    redis_tier_close(&s->tier);
    redis_fake_stop(s->fake);
}

static void await_calls(const stage *s, uint64_t num)
{
    uint64_t begin = redis_now_ms();
    while (redis_stats(&s->tier).calls < num) {
        assert_true(redis_now_ms() - begin < PATIENCE_MS);
        redis_sleep_ms(1);
    }
}

/* ---- two jobs -------------------------------------------------------------- */

typedef struct other {
    quire_tier_job job;
    quire_tier_io ios[REDIS_MAX_IOS];
    unsigned char *memory;
} other;

static void submit_other(stage *s, other *o, quire_tier_op op, uint32_t num)
{
    o->job = (quire_tier_job){.op = op, .num_ios = num, .ios = o->ios};
    o->memory = malloc((size_t)num * s->tier.bytes);
    assert_non_null(o->memory);
    for (uint32_t i = 0; i < num; i++)
        o->ios[i] = (quire_tier_io){.key = faulty_key(i),
                                    .memory = o->memory + (size_t)i * s->tier.bytes,
                                    .bytes = s->tier.bytes};
    assert_int_equal(quire_tier_submit(s->tier.tier, &o->job), QUIRE_OK);
}

static void wait_others(stage *s, other *others, uint32_t n)
{
    uint64_t begin = redis_now_ms();
    quire_tier_job *done;
    for (uint32_t left = n; left > 0; redis_sleep_ms(1)) {
        left -= quire_tier_poll(s->tier.tier, &done, 1);
        assert_true(redis_now_ms() - begin < PATIENCE_MS);
    }
    for (uint32_t i = 0; i < n; i++)
        free(others[i].memory);
}

/* Both wait for the same connection, which has room for one load at a time. */
static void cancelling_one_leaves_the_other(void **state)
{
    (void)state;
    static other both[2];
    stage s = {.tier.config.load_window_bytes = 1, .tier.deadline_ms = 60000};
    set_up(&s);
    redis_fake_set(s.fake, FAKE_SLOW);
    for (uint32_t i = 0; i < 2; i++)
        submit_other(&s, &both[i], QUIRE_TIER_LOAD, NUM_KEYS);
    await_calls(&s, 2 * NUM_KEYS);
    assert_int_equal(quire_tier_cancel(s.tier.tier, &both[1].job), QUIRE_OK);
    redis_sleep_ms(5);
    redis_fake_set(s.fake, FAKE_WELL);
    wait_others(&s, both, 2);
    for (uint32_t i = 0; i < NUM_KEYS; i++) {
        assert_int_equal(both[0].ios[i].status, QUIRE_TIER_DONE);
        assert_int_equal(both[1].ios[i].status, QUIRE_TIER_CANCELLED);
    }
    assert_int_equal(redis_stats(&s.tier).calls, 0);
    tear_down(&s);
}

/* Where there is one server, it is asked for all of it at once. */
static void one_server_gets_all_calls(void **state)
{
    (void)state;
    static other both[2];
    stage s = {.tier.deadline_ms = 60000};
    set_up(&s);
    redis_fake_set(s.fake, FAKE_SILENT);
    for (uint32_t i = 0; i < 2; i++)
        submit_other(&s, &both[i], QUIRE_TIER_FIND, REDIS_MAX_IOS);
    await_calls(&s, (uint64_t)2 * REDIS_MAX_IOS);
    redis_fake_set(s.fake, FAKE_WELL);
    redis_fake_cut(s.fake);
    wait_others(&s, both, 2);
    tear_down(&s);
}

/* ---- times ------------------------------------------------------------------ */

/* A server that takes a connection and says nothing: after connect_ns the job fails, not when its
 * own time is over. */
static void connecting_ends_before_the_job(void **state)
{
    (void)state;
    stage s = {.tier.config.connect_ns = 50000000, .tier.deadline_ms = 2 * PATIENCE_MS};
    set_up(&s);
    redis_fake_set(s.fake, FAKE_GREETS_NEVER);
    redis_fake_cut(s.fake);
    redis_sleep_ms(50); /* it has noticed */
    redis_do(&s.tier, QUIRE_TIER_LOAD, 0, 1);
    redis_expect_only(&s.tier, REDIS_BIT(FAILED));
    assert_true(s.tier.took_ms < PATIENCE_MS);
    redis_fake_set(s.fake, FAKE_WELL);
    redis_await_stores(&s.tier, 0, NUM_KEYS);
    tear_down(&s);
}

/* The connection with a load that nobody waits for any more is given up after late_ns, also when no
 * other job comes. */
static void silent_connections_are_given_up(void **state)
{
    (void)state;
    stage s = {.tier.config.late_ns = 50000000, .tier.deadline_ms = 200};
    set_up(&s);
    uint64_t lost = redis_stats(&s.tier).lost;
    uint64_t late = redis_stats(&s.tier).late;
    redis_fake_set(s.fake, FAKE_SILENT);
    do /* on a slow machine its time may be over before it is begun */
        redis_do(&s.tier, QUIRE_TIER_LOAD, 0, 1);
    while (redis_stats(&s.tier).late == late);
    uint64_t begin = redis_now_ms();
    while (redis_stats(&s.tier).lost == lost) {
        assert_true(redis_now_ms() - begin < PATIENCE_MS);
        redis_sleep_ms(5);
    }
    redis_fake_set(s.fake, FAKE_WELL);
    redis_await_stores(&s.tier, 0, NUM_KEYS);
    tear_down(&s);
}

static void await_open_nodes(const stage *s, uint64_t num)
{
    uint64_t begin = redis_now_ms();
    while (redis_stats(&s->tier).nodes_open != num) {
        assert_true(redis_now_ms() - begin < PATIENCE_MS);
        redis_sleep_ms(1);
    }
}

/* When a breaker's time is over the server is tried again, also when no job comes: one that has
 * slots, and one that was configured and has not said yet where the slots are. */
static void servers_that_came_back_are_found(void **state)
{
    (void)state;
    for (int has_map = 0; has_map < 2; has_map++) {
        stage s = {.fake = redis_fake_start()};
        redis_fake_set(s.fake, has_map ? FAKE_WELL : FAKE_GREETS_BADLY);
        open_tier(&s);
        if (has_map)
            redis_await_stores(&s.tier, 0, NUM_KEYS);
        redis_fake_set(s.fake, FAKE_GREETS_BADLY);
        redis_fake_cut(s.fake);
        while (redis_stats(&s.tier).nodes_open == 0)
            redis_do(&s.tier, QUIRE_TIER_LOAD, 0, 1);
        assert_int_equal(redis_stats(&s.tier).refreshed > 0, has_map);
        redis_fake_set(s.fake, FAKE_WELL);
        await_open_nodes(&s, 0);
        redis_do(&s.tier, QUIRE_TIER_STORE, 0, NUM_KEYS);
        redis_expect_only(&s.tier, REDIS_BIT(DONE));
        tear_down(&s);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelling_one_leaves_the_other),
        cmocka_unit_test(one_server_gets_all_calls),
        cmocka_unit_test(connecting_ends_before_the_job),
        cmocka_unit_test(silent_connections_are_given_up),
        cmocka_unit_test(servers_that_came_back_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
