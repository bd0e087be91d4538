/* tier/object/test_faults.c - the object store tier and a server that misbehaves (fake.h). In every
 * mode each job ends in bounded time with a status that the mode allows, no load gives wrong bytes,
 * nothing is left over, and when the server is well again all works again. */
#include "fake.h"
#include "object_kit.h"

#include "tier/redis/tls_kit.h"

#include <unistd.h>

enum { NUM_KEYS = 40, SHORT_MS = 300 };

typedef struct stage {
    object_fake *fake;
    object_tier tier;
} stage;

static void set_up(stage *s)
{
    if (s->fake == NULL)
        s->fake = object_fake_start(NULL, NULL);
    object_tier_open(&s->tier, object_fake_port(s->fake));
}

static void tear_down(stage *s)
{
    object_tier_close(&s->tier);
    object_fake_stop(s->fake);
}

/* Until all keys are stored: a busy machine may need several attempts where times are short. */
static void recover(stage *s)
{
    static const quire_tier_op ops[] = {QUIRE_TIER_REMOVE, QUIRE_TIER_STORE, QUIRE_TIER_LOAD};
    uint64_t begin = object_now_ms();
    object_fake_set(s->fake, FAKE_WELL);
    for (size_t i = 0; i < COUNT(ops);) {
        object_do(&s->tier, ops[i], 0, NUM_KEYS);
        i = object_count(&s->tier, QUIRE_TIER_DONE) == NUM_KEYS ? i + 1 : 0;
        if (object_now_ms() - begin > 120000)
            fail_msg("it does not come back; %s", s->tier.log);
    }
}

static void try_op(stage *s, fake_mode mode, quire_tier_op op, uint32_t first, uint32_t allowed)
{
    object_do(&s->tier, op, first, NUM_KEYS);
    for (uint32_t i = 0; i < NUM_KEYS; i++)
        if ((1u << s->tier.status[i] & allowed) == 0)
            fail_msg("%s: op %d, io %u ended with %d; %s", fake_names[mode], op, i,
                     s->tier.status[i], s->tier.log);
    uint32_t deadline_ms = s->tier.deadline_ms != 0 ? s->tier.deadline_ms : OBJECT_DEADLINE_MS;
    if (s->tier.took_ms > deadline_ms + OBJECT_SLACK_MS)
        fail_msg("%s: op %d took %d ms", fake_names[mode], op, (int)s->tier.took_ms);
}

/* ---- objects ----------------------------------------------------------------- */

static void objects_are_checked(void **state)
{
    static const fake_mode modes[] = {FAKE_SWAPPED, FAKE_FLIPPED, FAKE_FLIPPED_HEADER,
                                      FAKE_SHORT,   FAKE_LONGER,  FAKE_TINY,
                                      FAKE_EMPTY,   FAKE_GZIP,    FAKE_HUGE_LENGTH};
    stage s = {0};
    (void)state;
    set_up(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        recover(&s);
        object_fake_set(s.fake, modes[i]);
        try_op(&s, modes[i], QUIRE_TIER_LOAD, 0, OBJECT_BIT(WRONG));
        /* what was wrong is deleted: where the server says so to a DELETE too */
        for (int wait = 0; wait < 1000 && object_stats(&s.tier).calls > 0; wait++)
            object_sleep_ms(5);
        object_fake_set(s.fake, FAKE_WELL);
        if (modes[i] <= FAKE_LONGER)
            try_op(&s, modes[i], QUIRE_TIER_LOAD, 0, OBJECT_BIT(MISSING));
    }
    assert_int_equal(object_stats(&s.tier).wrong, COUNT(modes) * NUM_KEYS);
    recover(&s);
    tear_down(&s);
}

/* ---- replies that are refused or retried --------------------------------------- */

typedef struct reply_case {
    fake_mode mode;
    uint32_t load;
    uint32_t find;
    uint32_t store; /* of keys that are not there */
    uint32_t removal;
} reply_case;

enum {
    F = OBJECT_BIT(FAILED),
    D = OBJECT_BIT(DONE),
    M = OBJECT_BIT(MISSING),
    N = OBJECT_BIT(NO_ROOM),
    W = OBJECT_BIT(WRONG)
};
static const reply_case cases[] = {
    {FAKE_CLOSES, F, F, F, F},
    {FAKE_RESETS, F, F, F, F},
    {FAKE_HALF_CLOSES, F, F, D | F, D},
    {FAKE_HALF_RESETS, F, F, D | F, D},
    {FAKE_FLAKY, D | F, D | F, D | F, D | F},
    {FAKE_FLAKY_RESETS, D | F, D | F, D | F, D | F},
    {FAKE_EARLY, D, D, D | F, D},
    {FAKE_CHUNKED, F, F, F, F | D},
    {FAKE_CHUNKED_ENDLESS, F, F, F, F},
    {FAKE_BAD_CHUNK, F, F, F, F},
    {FAKE_NO_LENGTH, F, F, D, D},
    {FAKE_BAD_LENGTH, F, F, F, F},
    {FAKE_OVERFLOW_LENGTH, F, F | M, F, F},
    {FAKE_TWO_LENGTHS, F | W, F | D | M, F, F | D},
    {FAKE_GARBAGE, F, F, F, F},
    {FAKE_OLD_HTTP, F, F, F, F},
    {FAKE_HTTP2, F, F | M, F, F | D},
    {FAKE_BAD_STATUS, F, F, F, F},
    {FAKE_NO_STATUS, F, F, F, F},
    {FAKE_CONTINUES, F, F, F, F},
    {FAKE_LONG_HEADERS, F, F, F, F},
    {FAKE_LONG_LINE, F, F, F, F},
    {FAKE_NUL_HEADER, F | W, F | M, F, F | D},
    {FAKE_SWITCHES, F, F, F, F},
    {FAKE_NO_CONTENT, F, F, F, D},
    {FAKE_PARTIAL, F, F, F, F},
    {FAKE_NOT_MODIFIED, F, F, F, F},
    {FAKE_MOVED, F, F, F, F},
    {FAKE_REDIRECTS, F, F, F, F},
    {FAKE_BAD_REQUEST, F, F, F, F},
    {FAKE_UNAUTHORIZED, F, F, F, F},
    {FAKE_DENIED, F, F, F, F},
    {FAKE_DENIED_STRANGE, F, F, F, F},
    {FAKE_NO_BUCKET, F, M, F, F},
    {FAKE_TIMED_OUT, F, F, F, F},
    {FAKE_CONFLICT, F, F, F, F},
    {FAKE_TEAPOT, F, F, F, F},
    {FAKE_TOO_MANY, F, F, F, F},
    {FAKE_SERVER_ERROR, F, F, F, F},
    {FAKE_BAD_GATEWAY, F, F, F, F},
    {FAKE_SLOW_DOWN, F, F, F, F},
    {FAKE_SLOW_DOWN_LONG, F, F, F, F},
    {FAKE_GATEWAY_TIMEOUT, F, F, F, F},
    {FAKE_FULL, F, D, N, F},
    {FAKE_QUOTA, D, D, N, D},
    {FAKE_ERROR_ENDLESS, F, F, F, F},
    {FAKE_KEY_DENIED, F, F, F, F},
    {FAKE_KEY_EXPIRED, F, F, F, F},
};

static void replies_have_a_meaning(void **state)
{
    stage s = {0};
    (void)state;
    s.tier.config.max_attempts = 3;
    s.tier.config.stall_ns = 500000000;
    set_up(&s);
    object_fake_set_key(s.fake, "somebody else");
    for (size_t i = 0; i < COUNT(cases); i++) {
        const reply_case *c = &cases[i];
        recover(&s);
        object_fake_set(s.fake, c->mode);
        try_op(&s, c->mode, QUIRE_TIER_LOAD, 0, c->load);
        try_op(&s, c->mode, QUIRE_TIER_FIND, 0, c->find);
        try_op(&s, c->mode, QUIRE_TIER_STORE, 1000, c->store);
        try_op(&s, c->mode, QUIRE_TIER_REMOVE, 0, c->removal);
        object_fake_set(s.fake, FAKE_WELL);
        object_do(&s.tier, QUIRE_TIER_REMOVE, 1000, NUM_KEYS);
    }
    for (const char *at = s.tier.log; *at != 0; at++)
        assert_true(*at == '\n' || (*at >= ' ' && *at <= '~'));
    quire_tier_object_stats stats = object_stats(&s.tier);
    assert_true(stats.slowed > 0 && stats.denied > 0 && stats.surprises > 0 && stats.lost > 0);
    assert_true(stats.retries > 0 && stats.retries < stats.requests);
    recover(&s);
    tear_down(&s);
}

/* ---- time ------------------------------------------------------------------------ */

/* The deadline comes before any other limit. */
static void deadlines_hold(void **state)
{
    static const fake_mode modes[] = {FAKE_SILENT, FAKE_DEAF, FAKE_HALF, FAKE_SLOW};
    enum { MANY = OBJECT_BIT(FAILED) | OBJECT_BIT(DONE) | OBJECT_BIT(CANCELLED) };
    stage s = {.tier = {.deadline_ms = SHORT_MS, .bytes = 300000}};
    (void)state;
    s.tier.config.stall_ns = UINT64_C(60000000000);
    s.fake = object_fake_start(NULL, NULL);
    s.tier.deadline_ms = OBJECT_DEADLINE_MS; /* to store */
    set_up(&s);
    recover(&s);
    object_tier_close(&s.tier);
    s.tier.deadline_ms = SHORT_MS;
    set_up(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        object_fake_set(s.fake, modes[i]);
        try_op(&s, modes[i], QUIRE_TIER_LOAD, 0,
               modes[i] == FAKE_DEAF ? MANY : OBJECT_BIT(FAILED) | OBJECT_BIT(CANCELLED));
        try_op(&s, modes[i], QUIRE_TIER_STORE, 500, MANY);
        object_do(&s.tier, QUIRE_TIER_FIND, 0, NUM_KEYS);
    }
    assert_true(object_stats(&s.tier).late > 0);
    object_fake_set(s.fake, FAKE_WELL);
    tear_down(&s);
}

/* An attempt in which nothing moves is given up long before the deadline, and tried again. */
static void stalls_are_retried(void **state)
{
    stage s = {.tier = {.deadline_ms = 30000}};
    (void)state;
    s.tier.config.stall_ns = 50000000;
    s.tier.config.connect_ns = 50000000;
    s.tier.config.max_attempts = 2;
    set_up(&s);
    recover(&s);
    object_fake_set(s.fake, FAKE_SILENT);
    uint64_t before = object_stats(&s.tier).lost;
    try_op(&s, FAKE_SILENT, QUIRE_TIER_LOAD, 0, OBJECT_BIT(FAILED));
    assert_true(s.tier.took_ms < OBJECT_DEADLINE_MS / 2);
    assert_int_equal(object_stats(&s.tier).lost - before, 2 * NUM_KEYS);
    recover(&s);
    tear_down(&s);
}

/* A server that fails for a short time costs time, and no block. */
static void short_faults_are_survived(void **state)
{
    stage s = {.tier = {.deadline_ms = 30000}};
    (void)state;
    s.tier.config.max_attempts = 16;
    s.tier.config.connections = 4;
    set_up(&s);
    recover(&s);
    static const fake_mode modes[] = {FAKE_FLAKY, FAKE_FLAKY_RESETS};
    for (int i = 0; i < 2; i++) {
        object_fake_set(s.fake, modes[i]);
        try_op(&s, modes[i], QUIRE_TIER_LOAD, 0, OBJECT_BIT(DONE));
        try_op(&s, modes[i], QUIRE_TIER_FIND, 0, OBJECT_BIT(DONE));
        try_op(&s, modes[i], QUIRE_TIER_STORE, 2000u * (uint32_t)i + 2000u, OBJECT_BIT(DONE));
    }
    assert_true(object_stats(&s.tier).retries > NUM_KEYS / 2);
    tear_down(&s);
}

/* Cancelled while a reply is half here: the memory is free at once. */
static void cancelled_requests_end(void **state)
{
    static const fake_mode modes[] = {FAKE_SILENT, FAKE_HALF, FAKE_SLOW, FAKE_DEAF};
    stage s = {.tier = {.deadline_ms = 60000, .bytes = 300000}};
    (void)state;
    s.tier.config.stall_ns = UINT64_C(60000000000);
    set_up(&s);
    recover(&s);
    for (size_t i = 0; i < COUNT(modes); i++) {
        bool is_store = modes[i] == FAKE_DEAF;
        object_fake_set(s.fake, modes[i]);
        object_fill(&s.tier, is_store ? QUIRE_TIER_STORE : QUIRE_TIER_LOAD, is_store ? 900 : 0,
                    NUM_KEYS);
        assert_int_equal(quire_tier_submit(s.tier.tier, &s.tier.job), QUIRE_OK);
        object_sleep_ms(30 * (int)i);
        assert_int_equal(quire_tier_cancel(s.tier.tier, &s.tier.job), QUIRE_OK);
        object_wait(&s.tier);
        assert_true(s.tier.took_ms < OBJECT_SLACK_MS);
        object_expect_only(&s.tier, OBJECT_BIT(CANCELLED));
    }
    object_fake_set(s.fake, FAKE_WELL);
    tear_down(&s);
}

/* Closed with requests in flight. */
static void closing_ends_requests(void **state)
{
    stage s = {.tier = {.deadline_ms = 60000}};
    (void)state;
    s.tier.config.stall_ns = UINT64_C(60000000000);
    set_up(&s);
    recover(&s);
    object_fake_set(s.fake, FAKE_SILENT);
    object_fill(&s.tier, QUIRE_TIER_LOAD, 0, NUM_KEYS);
    assert_int_equal(quire_tier_submit(s.tier.tier, &s.tier.job), QUIRE_OK);
    object_sleep_ms(50);
    assert_int_equal(quire_tier_close(s.tier.tier), QUIRE_OK);
    for (uint32_t i = 0; i < NUM_KEYS; i++)
        assert_true(s.tier.ios[i].status == QUIRE_TIER_CANCELLED ||
                    s.tier.ios[i].status == QUIRE_TIER_REFUSED ||
                    s.tier.ios[i].status == QUIRE_TIER_FAILED);
    free(s.tier.memory);
    object_fake_stop(s.fake);
}

/* ---- a server that is down --------------------------------------------------------- */

static void server_that_is_down(void **state)
{
    stage s = {0};
    (void)state;
    s.fake = object_fake_start(NULL, NULL);
    int port = object_fake_port(s.fake);
    object_fake_stop(s.fake);
    object_tier_open(&s.tier, port); /* that is not an error */
    object_do(&s.tier, QUIRE_TIER_LOAD, 0, NUM_KEYS);
    object_expect_only(&s.tier, OBJECT_BIT(FAILED));
    assert_true(s.tier.took_ms < OBJECT_DEADLINE_MS / 2);
    object_tier_close(&s.tier);

    object_tier waits = {0};
    waits.config.wait_ns = 200000000;
    assert_int_equal(object_tier_try(&waits, port), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "object 127.0.0.1"));
}

/* ---- TLS ----------------------------------------------------------------------------- */

#define HANDSHAKES_NS UINT64_C(10000000000) /* of all connections at once */

static void certificates_are_verified(void **state)
{
    stage s = {0};
    char endpoint[64];
    (void)state;
    if (!tls_kit_open("object")) {
        print_message("skipped: without openssl\n");
        return;
    }
    s.fake = object_fake_start(tls_file("server.crt"), tls_file("server.key"));
    (void)snprintf(endpoint, sizeof endpoint, "https://127.0.0.1:%d", object_fake_port(s.fake));
    s.tier.config.endpoint = endpoint;
    s.tier.config.tls_ca_file = tls_file("server.crt");
    s.tier.config.connect_ns = HANDSHAKES_NS;
    s.tier.deadline_ms = OBJECT_DEADLINE_MS;
    set_up(&s);
    object_all_operations(&s.tier);
    object_tier_close(&s.tier);

    object_tier other = {.config = {.endpoint = endpoint,
                                    .tls_ca_file = tls_file("client.crt"),
                                    .connect_ns = HANDSHAKES_NS},
                         .deadline_ms = OBJECT_DEADLINE_MS};
    object_tier_open(&other, 0); /* not the CA that signed it */
    object_do(&other, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&other, OBJECT_BIT(FAILED));
    assert_non_null(strstr(other.log, "TLS: "));
    assert_int_equal(object_stats(&other).retries, 0);
    object_tier_close(&other);

    object_tier named = {
        .config = {.tls_ca_file = tls_file("server.crt"), .connect_ns = HANDSHAKES_NS},
        .deadline_ms = OBJECT_DEADLINE_MS};
    char localhost[64]; /* the certificate is of object.test and 127.0.0.1 */
    (void)snprintf(localhost, sizeof localhost, "https://localhost:%d", object_fake_port(s.fake));
    named.config.endpoint = localhost;
    object_tier_open(&named, 0);
    object_do(&named, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&named, OBJECT_BIT(FAILED));
    assert_non_null(strstr(named.log, "TLS: "));
    object_tier_close(&named);

    object_tier trusting = {
        .config = {.endpoint = localhost, .tls_trust_any = 1, .connect_ns = HANDSHAKES_NS},
        .deadline_ms = OBJECT_DEADLINE_MS};
    object_tier_open(&trusting, 0);
    object_do(&trusting, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&trusting, OBJECT_BIT(DONE) | OBJECT_BIT(MISSING));
    object_tier_close(&trusting);

    object_tier plain = {0}; /* not TLS, to a server that wants it */
    object_tier_open(&plain, object_fake_port(s.fake));
    object_do(&plain, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(&plain, OBJECT_BIT(FAILED));
    object_tier_close(&plain);
    object_fake_stop(s.fake);
    tls_kit_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_checked),
        cmocka_unit_test(replies_have_a_meaning),
        cmocka_unit_test(deadlines_hold),
        cmocka_unit_test(stalls_are_retried),
        cmocka_unit_test(short_faults_are_survived),
        cmocka_unit_test(cancelled_requests_end),
        cmocka_unit_test(closing_ends_requests),
        cmocka_unit_test(server_that_is_down),
        cmocka_unit_test(certificates_are_verified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
