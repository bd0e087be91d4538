/* tier/redis/test_faults.c - the Redis tier and a server that misbehaves (fake.h). In every
 * mode each job ends in bounded time with a status that the mode allows, no load gives wrong bytes,
 * nothing is left over, and when the server is well again all works again. */
#include "fake.h"
#include "redis_kit.h"

#include <unistd.h>

enum { NUM_KEYS = 6, DEADLINE_MS = 2000, SHORT_MS = 120, MARGIN_MS = 3000 };

typedef struct stage {
    redis_fake *fake;
    redis_tier tier;
    char address[32];
    const char *addresses[1];
} stage;

static void set_up(stage *s)
{
    if (s->fake == NULL)
        s->fake = redis_fake_start();
    s->tier.breaker_ms = 10;
    if (s->tier.deadline_ms == 0)
        s->tier.deadline_ms = DEADLINE_MS;
    (void)snprintf(s->address, sizeof s->address, "127.0.0.1:%d", redis_fake_port(s->fake));
    s->addresses[0] = s->address;
    if (redis_tier_open_at(&s->tier, s->addresses, 1) != QUIRE_OK)
        fail_msg("%s", quire_refusal());
}

static void tear_down(stage *s)
{
    redis_tier_close(&s->tier);
    redis_fake_stop(s->fake);
}

/* All keys are there again: the breaker may need its time. */
static void recover(stage *s)
{
    uint64_t begin = redis_now_ms();
    redis_fake_set(s->fake, FAKE_WELL);
    do {
        redis_do(&s->tier, QUIRE_TIER_STORE, 0, NUM_KEYS);
        if (redis_now_ms() - begin > 20000)
            fail_msg("it does not come back; %s", s->tier.log);
        if (redis_count(&s->tier, QUIRE_TIER_DONE) != NUM_KEYS)
            redis_sleep_ms(10);
    } while (redis_count(&s->tier, QUIRE_TIER_DONE) != NUM_KEYS);
    redis_do(&s->tier, QUIRE_TIER_LOAD, 0, NUM_KEYS);
    redis_expect_only(&s->tier, REDIS_BIT(DONE));
}

static void try_op(stage *s, fake_mode mode, quire_tier_op op, uint32_t allowed)
{
    redis_do(&s->tier, op, 0, NUM_KEYS);
    for (uint32_t i = 0; i < NUM_KEYS; i++)
        if ((1u << s->tier.status[i] & allowed) == 0)
            fail_msg("%s: op %d, io %u ended with %d; %s", fake_names[mode], op, i,
                     s->tier.status[i], s->tier.log);
    if (s->tier.took_ms > s->tier.deadline_ms + MARGIN_MS)
        fail_msg("%s: op %d took %d ms", fake_names[mode], op, (int)s->tier.took_ms);
}

/* ---- values ---------------------------------------------------------------- */

/* The tier deletes what is wrong behind the caller's back: until the answer, which is no number in
 * this mode, was counted. */
static void wait_for_surprise(stage *s, uint64_t before)
{
    uint64_t begin = redis_now_ms();
    while (redis_stats(&s->tier).surprises == before) {
        if (redis_now_ms() - begin > 20000)
            fail_msg("no answer to DEL was counted; %s", s->tier.log);
        redis_sleep_ms(10);
    }
}

static void values_are_checked(void **state)
{
    (void)state;
    static const fake_mode modes[] = {FAKE_SWAPPED, FAKE_FLIPPED,   FAKE_FLIPPED_HEADER,
                                      FAKE_SHORT,   FAKE_LONGER,    FAKE_TINY,
                                      FAKE_EMPTY,   FAKE_WRONG_TYPE};
    stage s = {0};
    set_up(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        recover(&s);
        redis_fake_set(s.fake, modes[i]);
        uint64_t before = redis_stats(&s.tier).surprises;
        try_op(&s, modes[i], QUIRE_TIER_LOAD, REDIS_BIT(WRONG));
        if (modes[i] == FAKE_TINY || modes[i] == FAKE_EMPTY)
            wait_for_surprise(&s, before);
        redis_fake_set(s.fake, FAKE_WELL);
        redis_sleep_ms(50); /* what was wrong is deleted, unless the server did not say so */
        bool is_gone =
            modes[i] != FAKE_TINY && modes[i] != FAKE_EMPTY && modes[i] != FAKE_WRONG_TYPE;
        if (is_gone)
            try_op(&s, modes[i], QUIRE_TIER_LOAD, REDIS_BIT(MISSING));
    }
    assert_int_equal(redis_stats(&s.tier).wrong, COUNT(modes) * NUM_KEYS);
    assert_in_range(redis_stats(&s.tier).surprises, 2, 2 * NUM_KEYS); /* DEL: no number */
    recover(&s);
    tear_down(&s);
}

/* ---- answers --------------------------------------------------------------- */

typedef struct expectation {
    fake_mode mode;
    uint32_t load;
    uint32_t store;
} expectation;

/* On a slow machine its time may be over before it is begun. */
#define FAILS   (REDIS_BIT(FAILED) | REDIS_BIT(REFUSED) | REDIS_BIT(CANCELLED))
#define MAY     (REDIS_BIT(DONE) | FAILS)
#define NO_ROOM REDIS_BIT(NO_ROOM)

static void modes_end_well(const expectation *modes, size_t n, uint32_t deadline_ms)
{
    stage s = {.tier.deadline_ms = deadline_ms};
    set_up(&s);
    for (size_t i = 0; i < n; i++) {
        fake_mode mode = modes[i].mode;
        recover(&s);
        redis_fake_set(s.fake, mode);
        try_op(&s, mode, QUIRE_TIER_LOAD, modes[i].load);
        try_op(&s, mode, QUIRE_TIER_STORE, modes[i].store);
        try_op(&s, mode, QUIRE_TIER_FIND, MAY | REDIS_BIT(MISSING));
        try_op(&s, mode, QUIRE_TIER_REMOVE, MAY | REDIS_BIT(MISSING));
    }
    recover(&s);
    assert_int_equal(redis_stats(&s.tier).nodes, 1); /* none that it may not talk to */
    tear_down(&s);
}

static void errors_have_consequences(void **state)
{
    (void)state;
    static const expectation modes[] = {
        {FAKE_MOVED_HERE, FAILS, FAILS},   {FAKE_ASK_HERE, FAILS, FAILS},
        {FAKE_MOVED_AWAY, FAILS, FAILS},   {FAKE_MOVED_BAD, FAILS, FAILS},
        {FAKE_TRY_AGAIN, FAILS, FAILS},    {FAKE_MOVED_OTHER_SLOT, FAILS, FAILS},
        {FAKE_CLUSTER_DOWN, FAILS, FAILS}, {FAKE_MASTER_DOWN, FAILS, FAILS},
        {FAKE_LOADING, FAILS, FAILS},      {FAKE_NO_AUTH, FAILS, FAILS},
        {FAKE_NO_PERM, FAILS, FAILS},      {FAKE_READ_ONLY, FAILS, FAILS},
        {FAKE_ERROR, FAILS, FAILS},        {FAKE_OUT_OF_MEMORY, FAILS, NO_ROOM},
        {FAKE_BARE_ERROR, FAILS, FAILS},
    };
    modes_end_well(modes, COUNT(modes), DEADLINE_MS);
}

/* A server that always points elsewhere is asked a few times, not until the deadline. */
static void storms_are_bounded(void **state)
{
    (void)state;
    static const fake_mode modes[] = {FAKE_MOVED_HERE, FAKE_ASK_HERE, FAKE_TRY_AGAIN};
    stage s = {0};
    set_up(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        recover(&s);
        uint64_t before = redis_fake_num_commands(s.fake);
        redis_fake_set(s.fake, modes[i]);
        try_op(&s, modes[i], QUIRE_TIER_LOAD, REDIS_BIT(FAILED));
        uint64_t num = redis_fake_num_commands(s.fake) - before;
        assert_in_range(num, 6 * NUM_KEYS, 6 * 2 * NUM_KEYS + 20); /* ASKING, too, and maps */
    }
    assert_int_equal(redis_stats(&s.tier).moved, 6 * NUM_KEYS);
    assert_int_equal(redis_stats(&s.tier).asked, 6 * NUM_KEYS);
    recover(&s);
    tear_down(&s);
}

static void surprises_close(void **state)
{
    (void)state;
    static const expectation modes[] = {
        {FAKE_EXTRA, MAY, MAY},         {FAKE_NO_END, FAILS, MAY},
        {FAKE_NUMBER, FAILS, FAILS},    {FAKE_STATUS, FAILS, REDIS_BIT(DONE) | FAILS},
        {FAKE_ARRAY, FAILS, FAILS},     {FAKE_DEEP, FAILS, FAILS},
        {FAKE_MANY, FAILS, FAILS},      {FAKE_HUGE_VALUE, FAILS, FAILS},
        {FAKE_NEGATIVE, FAILS, FAILS},  {FAKE_GARBAGE, FAILS, FAILS},
        {FAKE_LONG_LINE, FAILS, FAILS}, {FAKE_CLOSES, FAILS, FAILS},
        {FAKE_RESETS, FAILS, FAILS},    {FAKE_HALF_CLOSES, FAILS, MAY},
        {FAKE_HALF_RESETS, FAILS, MAY},
    };
    modes_end_well(modes, COUNT(modes), DEADLINE_MS);
}

static void slowness_is_bounded(void **state)
{
    (void)state;
    static const expectation modes[] = {
        {FAKE_SILENT, FAILS, FAILS},
        {FAKE_HALF, FAILS, MAY},
        {FAKE_SLOW, FAILS, MAY},
        {FAKE_LARGE_VALUE, FAILS, FAILS},
    };
    modes_end_well(modes, COUNT(modes), SHORT_MS);
}

/* ---- greetings and maps ---------------------------------------------------- */

static void greetings_are_checked(void **state)
{
    (void)state;
    static const fake_mode modes[] = {FAKE_GREETS_BADLY, FAKE_GREETS_NEVER, FAKE_GREETS_LOADING};
    stage s = {.tier.config.connect_ns = 50000000, .tier.deadline_ms = 200};
    set_up(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        recover(&s);
        redis_fake_set(s.fake, modes[i]);
        redis_fake_cut(s.fake);
        try_op(&s, modes[i], QUIRE_TIER_LOAD, FAILS);
        try_op(&s, modes[i], QUIRE_TIER_STORE, FAILS);
    }
    recover(&s);
    tear_down(&s);
}

/* The map is what a tier learns first: each mode has a tier of its own. */
static void maps_are_checked(void **state)
{
    (void)state;
    static const expectation modes[] = {
        {FAKE_SLOTS_EMPTY, FAILS, FAILS},
        {FAKE_SLOTS_BAD_RANGE, FAILS, FAILS},
        {FAKE_SLOTS_TEXT, FAILS, FAILS},
        {FAKE_SLOTS_DEEP, FAILS, FAILS},
        {FAKE_SLOTS_AWAY, FAILS, FAILS},
        {FAKE_SLOTS_MANY, FAILS, FAILS},
        {FAKE_SLOTS_UNKNOWN, FAILS, FAILS},
        {FAKE_SLOTS_NEVER, FAILS, FAILS},
        {FAKE_SLOTS_HERE, REDIS_BIT(MISSING), REDIS_BIT(DONE)},
    };
    for (size_t i = 0; i < COUNT(modes); i++) {
        stage s = {.tier.config.connect_ns = 50000000, .tier.config.max_nodes = 8};
        s.fake = redis_fake_start();
        redis_fake_set(s.fake, modes[i].mode);
        s.tier.deadline_ms = modes[i].load == FAILS ? SHORT_MS : DEADLINE_MS;
        (void)snprintf(s.address, sizeof s.address, "127.0.0.1:%d", redis_fake_port(s.fake));
        s.addresses[0] = s.address;
        assert_int_equal(redis_tier_open_at(&s.tier, s.addresses, 1), QUIRE_OK);
        try_op(&s, modes[i].mode, QUIRE_TIER_LOAD, modes[i].load);
        try_op(&s, modes[i].mode, QUIRE_TIER_STORE, modes[i].store);
        assert_true(redis_stats(&s.tier).nodes <= (modes[i].mode == FAKE_SLOTS_MANY ? 8 : 1));
        recover(&s);
        tear_down(&s);
    }
}

/* A cluster whose servers change their addresses more often than max_nodes: nodes that the map does
 * not name any more are forgotten, and there is always room for the new ones. */
static void old_addresses_are_forgotten(void **state)
{
    (void)state;
    enum { MAX_NODES = 6, CHANGES = 3 * MAX_NODES };
    stage s = {.fake = redis_fake_start(),
               .tier.config.max_nodes = MAX_NODES,
               .tier.config.refresh_ns = 1000000};
    uint64_t begin = redis_now_ms();
    redis_fake_set(s.fake, FAKE_SLOTS_CHANGE);
    set_up(&s);
    while (redis_stats(&s.tier).refreshed < CHANGES) { /* one for each server that fails */
        try_op(&s, FAKE_SLOTS_CHANGE, QUIRE_TIER_LOAD, MAY | REDIS_BIT(MISSING));
        quire_tier_redis_stats stats = redis_stats(&s.tier);
        assert_int_equal(stats.slots, 16384); /* none is nobody's */
        assert_true(stats.nodes < MAX_NODES);
        assert_true(redis_now_ms() - begin < 20000);
    }
    redis_fake_set(s.fake, FAKE_WELL); /* no cluster: it has all slots */
    while (redis_stats(&s.tier).nodes > 1) {
        try_op(&s, FAKE_WELL, QUIRE_TIER_LOAD, MAY | REDIS_BIT(MISSING));
        assert_true(redis_now_ms() - begin < 40000);
    }
    recover(&s);
    tear_down(&s);
}

/* ---- memory after the end -------------------------------------------------- */

/* A load whose time is over while its bytes come: what comes later must not reach the memory. */
static void late_bytes_go_nowhere(void **state)
{
    (void)state;
    stage s = {.tier.config.late_ns = UINT64_C(10000000000),
               .tier.config.connections = 1,
               .tier.deadline_ms = SHORT_MS};
    set_up(&s);
    recover(&s);
    uint64_t num_connected = redis_stats(&s.tier).connected;
    redis_fake_set(s.fake, FAKE_SLOW); /* a byte in 5 ms: it is late */
    redis_do(&s.tier, QUIRE_TIER_LOAD, 0, 1);
    redis_expect_only(&s.tier, REDIS_BIT(FAILED));
    redis_fake_set(s.fake, FAKE_WELL); /* the rest comes at once, and the link lives */
    redis_fill(&s.tier, QUIRE_TIER_FIND, 0, 1);
    memset(s.tier.memory, 0x77, s.tier.bytes);
    assert_int_equal(quire_tier_submit(s.tier.tier, &s.tier.job), QUIRE_OK);
    redis_wait(&s.tier);
    redis_expect_only(&s.tier, REDIS_BIT(DONE));
    for (uint32_t i = 0; i < s.tier.bytes; i++)
        assert_int_equal(s.tier.memory[i], 0x77);
    assert_int_equal(redis_stats(&s.tier).connected, num_connected);
    assert_true(redis_stats(&s.tier).late > 0);
    tear_down(&s);
}

static void cancelled_loads_end(void **state)
{
    (void)state;
    stage s = {.tier.config.connections = 1};
    set_up(&s);
    recover(&s);
    for (int round = 0; round < 20; round++) {
        redis_fake_set(s.fake, round % 2 == 0 ? FAKE_SILENT : FAKE_HALF);
        redis_fill(&s.tier, round % 3 == 2 ? QUIRE_TIER_STORE : QUIRE_TIER_LOAD, 0, NUM_KEYS);
        assert_int_equal(quire_tier_submit(s.tier.tier, &s.tier.job), QUIRE_OK);
        redis_sleep_ms(round % 4);
        assert_int_equal(quire_tier_cancel(s.tier.tier, &s.tier.job), QUIRE_OK);
        redis_wait(&s.tier);
        redis_expect_only(&s.tier, REDIS_BIT(CANCELLED) | FAILS | REDIS_BIT(DONE));
        memset(s.tier.memory, 0x77, (size_t)s.tier.bytes * NUM_KEYS);
        redis_fake_set(s.fake, FAKE_WELL);
        redis_fake_cut(s.fake);
        for (uint32_t i = 0; i < s.tier.bytes * NUM_KEYS; i++)
            assert_int_equal(s.tier.memory[i], 0x77);
        recover(&s);
    }
    tear_down(&s);
}

/* A server that answers before it has read: the store is not believed. */
static void early_answers_are_surprises(void **state)
{
    (void)state;
    stage s = {.tier.bytes = 8 << 20, .tier.config.connections = 1};
    set_up(&s);
    redis_fake_set(s.fake, FAKE_SAYS_BEFORE_READ);
    redis_do(&s.tier, QUIRE_TIER_STORE, 0, 1); /* more than the fake's buffer takes */
    redis_expect_only(&s.tier, FAILS);
    assert_true(redis_stats(&s.tier).surprises > 0);
    tear_down(&s);
}

/* ---- what is told ---------------------------------------------------------- */

/* Once for each server, in words that a terminal can show. */
static void forbidden_is_told_once(void **state)
{
    (void)state;
    stage s = {0};
    set_up(&s);
    recover(&s);
    redis_fake_set(s.fake, FAKE_NO_PERM);
    for (int i = 0; i < 2; i++)
        try_op(&s, FAKE_NO_PERM, QUIRE_TIER_LOAD, FAILS);
    const char *told = strstr(s.tier.log, "NOPERM ?[1m? user");
    assert_non_null(told);
    assert_null(strstr(told + 1, "NOPERM"));
    tear_down(&s);
}

static void refusals_are_counted(void **state)
{
    (void)state;
    stage s = {.tier.config.connect_ns = 50000000, .tier.deadline_ms = 200};
    set_up(&s);
    recover(&s);
    uint64_t before = redis_stats(&s.tier).refused;
    uint32_t num_refused = 0;
    redis_fake_set(s.fake, FAKE_GREETS_BADLY);
    redis_fake_cut(s.fake);
    for (int i = 0; i < 1000 && num_refused == 0; i++) {
        redis_do(&s.tier, QUIRE_TIER_LOAD, 0, NUM_KEYS);
        num_refused += redis_count(&s.tier, QUIRE_TIER_REFUSED);
    }
    assert_true(num_refused > 0);
    assert_int_equal(redis_stats(&s.tier).refused - before, num_refused);
    recover(&s);
    tear_down(&s);
}

/* ---- jobs beside each other ------------------------------------------------ */

enum { BESIDE = 60, LARGE = 240 * 1024 }; /* in all more than sockets take */

typedef struct beside {
    quire_tier_job job;
    quire_tier_io ios[BESIDE];
    unsigned char *memory;
} beside;

static void submit_beside(stage *s, beside *b, quire_tier_op op, uint32_t key, uint32_t num)
{
    b->job = (quire_tier_job){.op = op, .num_ios = num, .ios = b->ios};
    b->memory = malloc((size_t)num * s->tier.bytes);
    assert_non_null(b->memory);
    for (uint32_t i = 0; i < num; i++) {
        b->ios[i] = (quire_tier_io){.key = faulty_key(key + i),
                                    .memory = b->memory + (size_t)i * s->tier.bytes,
                                    .bytes = s->tier.bytes};
        faulty_pattern(&b->ios[i].key, b->ios[i].memory, s->tier.bytes);
    }
    assert_int_equal(quire_tier_submit(s->tier.tier, &b->job), QUIRE_OK);
}

static void wait_beside(stage *s, beside *const *all, uint32_t n)
{
    uint64_t begin = redis_now_ms();
    quire_tier_job *done;
    for (uint32_t left = n; left > 0;) {
        if (redis_now_ms() - begin > 30000)
            fail_msg("%u jobs do not end; %s", left, s->tier.log);
        left -= quire_tier_poll(s->tier.tier, &done, 1);
        redis_sleep_ms(1);
    }
    for (uint32_t i = 0; i < n; i++)
        free(all[i]->memory);
}

static void expect_beside(const beside *b, quire_tier_status status)
{
    for (uint32_t i = 0; i < b->job.num_ios; i++)
        assert_int_equal(b->ios[i].status, status);
}

/* After one job, as many as there may be can be under way at once. */
static void jobs_run_beside_each_other(void **state)
{
    (void)state;
    static beside jobs[4];
    beside *all[COUNT(jobs)];
    stage s = {0};
    set_up(&s);
    for (int round = 0; round < 3; round++) {
        recover(&s);
        for (uint32_t i = 0; i < COUNT(jobs); i++) {
            all[i] = &jobs[i];
            submit_beside(&s, &jobs[i], QUIRE_TIER_STORE, 10 * i, NUM_KEYS);
        }
        wait_beside(&s, all, COUNT(jobs));
        for (uint32_t i = 0; i < COUNT(jobs); i++)
            expect_beside(&jobs[i], QUIRE_TIER_DONE);
    }
    tear_down(&s);
}

/* The server reads nothing for a while. One job is half sent, another one waits behind it on the
 * same connection and is cancelled: the first is sent to its end, and the connection is free. */
static void cancelled_calls_leave_the_connection(void **state)
{
    (void)state;
    static beside first;
    static beside second;
    beside *all[] = {&first, &second};
    stage s = {.tier.bytes = LARGE, .tier.deadline_ms = 60000};
    s.tier.config.connections = 1;
    s.tier.config.window_bytes = 3 * (uint64_t)BESIDE * LARGE;
    s.tier.config.load_window_bytes = 2 * LARGE; /* the fake's room for answers */
    set_up(&s);
    recover(&s);
    uint64_t num_connected = redis_stats(&s.tier).connected;
    for (int round = 0; round < 3; round++) {
        redis_fake_set(s.fake, FAKE_DEAF);
        submit_beside(&s, &first, QUIRE_TIER_STORE, 0, BESIDE);
        submit_beside(&s, &second, QUIRE_TIER_STORE, BESIDE, BESIDE);
        redis_sleep_ms(20);
        assert_int_equal(quire_tier_cancel(s.tier.tier, &second.job), QUIRE_OK);
        redis_sleep_ms(5);
        redis_fake_set(s.fake, FAKE_WELL);
        wait_beside(&s, all, COUNT(all));
        expect_beside(&first, QUIRE_TIER_DONE);
        recover(&s);
    }
    /* Where the server went deaf late, a part of the second was sent: that connection is lost. */
    assert_in_range(redis_stats(&s.tier).connected, num_connected, num_connected + 2);
    tear_down(&s);
}

/* The connection is lost while the first of two stores is half sent: the next one is as new. */
static void half_sent_calls_end_with_their_connection(void **state)
{
    (void)state;
    stage s = {.tier.bytes = 8 << 20, .tier.deadline_ms = 20000};
    s.tier.config.connections = 1;
    s.tier.config.connect_ns = UINT64_C(60000000000);
    s.tier.config.window_bytes = UINT64_C(64) << 20;
    set_up(&s);
    for (int round = 0; round < 4; round++) {
        redis_fake_set(s.fake, FAKE_WELL);
        do
            redis_do(&s.tier, QUIRE_TIER_FIND, 40, NUM_KEYS);
        while (redis_count(&s.tier, QUIRE_TIER_MISSING) != NUM_KEYS && s.tier.took_ms < MARGIN_MS);
        redis_expect_only(&s.tier, REDIS_BIT(MISSING));
        redis_fake_set(s.fake, FAKE_DEAF);
        redis_fill(&s.tier, QUIRE_TIER_STORE, 0, 3);
        assert_int_equal(quire_tier_submit(s.tier.tier, &s.tier.job), QUIRE_OK);
        redis_sleep_ms(20);
        redis_fake_cut(s.fake);
        redis_wait(&s.tier);
        redis_expect_only(&s.tier, FAILS);
    }
    tear_down(&s);
}

/* One connection is new at a time: a server that does not greet is not asked for all of them. */
static void connections_come_one_by_one(void **state)
{
    (void)state;
    stage s = {.tier.config.load_window_bytes = 1, .tier.config.window_bytes = 1};
    s.tier.config.connections = 8;
    s.tier.config.connect_ns = UINT64_C(60000000000);
    set_up(&s);
    redis_do(&s.tier, QUIRE_TIER_FIND, 0, 1);
    assert_int_equal(redis_stats(&s.tier).connected, 1);
    redis_fake_set(s.fake, FAKE_GREETS_NEVER);
    for (int i = 0; i < 20; i++) {
        redis_do(&s.tier, QUIRE_TIER_STORE, 0, REDIS_MAX_IOS);
        redis_expect_only(&s.tier, REDIS_BIT(DONE));
        assert_true(redis_stats(&s.tier).connected <= 2);
    }
    assert_int_equal(redis_stats(&s.tier).connected, 2);
    redis_fake_set(s.fake, FAKE_WELL);
    redis_fake_cut(s.fake); /* else the greeting stays under way */
    recover(&s);
    tear_down(&s);
}

/* With another identity nothing from before is found, and what is stored then is. */
static void identities_begin_anew(void **state)
{
    (void)state;
    stage s = {0};
    set_up(&s);
    recover(&s);
    assert_int_equal(quire_tier_reset(s.tier.tier), QUIRE_E_IDENTITY);
    static const unsigned char next[QUIRE_FINGERPRINT_BYTES] = {3, 2, 1};
    assert_int_equal(quire_tier_set_identity(s.tier.tier, next), QUIRE_OK);
    redis_do(&s.tier, QUIRE_TIER_LOAD, 0, NUM_KEYS);
    redis_expect_only(&s.tier, REDIS_BIT(MISSING));
    recover(&s);
    tear_down(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(errors_have_consequences),
        cmocka_unit_test(storms_are_bounded),
        cmocka_unit_test(surprises_close),
        cmocka_unit_test(slowness_is_bounded),
        cmocka_unit_test(greetings_are_checked),
        cmocka_unit_test(maps_are_checked),
        cmocka_unit_test(old_addresses_are_forgotten),
        cmocka_unit_test(late_bytes_go_nowhere),
        cmocka_unit_test(cancelled_loads_end),
        cmocka_unit_test(early_answers_are_surprises),
        cmocka_unit_test(identities_begin_anew),
        cmocka_unit_test(forbidden_is_told_once),
        cmocka_unit_test(refusals_are_counted),
        cmocka_unit_test(jobs_run_beside_each_other),
        cmocka_unit_test(cancelled_calls_leave_the_connection),
        cmocka_unit_test(half_sent_calls_end_with_their_connection),
        cmocka_unit_test(connections_come_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
