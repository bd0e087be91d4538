#include "object_kit.h"

#include <time.h>

#define MS UINT64_C(1000000)

uint64_t object_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void object_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

static void keep_log(void *user, quire_log_level level, const char *text)
{
    object_tier *t = user;
    size_t n = strlen(t->log);
    (void)level;
    (void)snprintf(t->log + n, sizeof t->log - n, "%s\n", text);
}

static uint64_t ms_or(uint64_t given, uint64_t ms)
{
    return given != 0 ? given : ms * MS;
}

int object_tier_try(object_tier *t, int port)
{
    quire_tier_config common = QUIRE_TIER_CONFIG_INIT;
    quire_tier_object_config *c = &t->config;
    if (t->fingerprint[0] == 0)
        memset(t->fingerprint, 0x5a, 16);
    (void)snprintf(t->endpoint, sizeof t->endpoint, "http://127.0.0.1:%d", port);
    c->size = sizeof *c;
    if (c->endpoint == NULL)
        c->endpoint = t->endpoint;
    if (c->bucket == NULL)
        c->bucket = "quire-test";
    if (c->region == NULL)
        c->region = "us-east-1";
    if (c->access_key == NULL && c->credentials_file == NULL && c->credentials_uri == NULL) {
        c->access_key = "AKIAIOSFODNN7EXAMPLE";
        c->secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    }
    c->fingerprint = t->fingerprint;
    c->connect_ns = ms_or(c->connect_ns, 10000);
    c->stall_ns = ms_or(c->stall_ns, 10000);
    c->retry_ns = ms_or(c->retry_ns, 4);
    common.deadline_ns = ms_or(t->deadline_ms * MS, OBJECT_DEADLINE_MS);
    common.breaker_strikes = 1000000;
    common.close_ns = 5000 * MS;
    common.hooks.user = t;
    common.hooks.log = keep_log;
    if (t->bytes == 0)
        t->bytes = 10000;
    t->memory = calloc(OBJECT_MAX_IOS, t->bytes);
    assert_non_null(t->memory);
    int status = quire_tier_object_open(c, &common, NULL, &t->tier, &t->object);
    if (status != QUIRE_OK)
        free(t->memory);
    return status;
}

void object_tier_open(object_tier *t, int port)
{
    if (object_tier_try(t, port) != QUIRE_OK)
        fail_msg("open: %s", quire_refusal());
}

void object_fill(object_tier *t, quire_tier_op op, uint32_t key, uint32_t num)
{
    assert_true(num <= OBJECT_MAX_IOS);
    memset(&t->job, 0, sizeof t->job);
    t->job.op = op;
    t->job.num_ios = num;
    t->job.ios = t->ios;
    for (uint32_t i = 0; i < num; i++) {
        memset(&t->ios[i], 0, sizeof t->ios[i]);
        t->ios[i].key = faulty_key(key + i);
        t->ios[i].memory = t->memory + (size_t)i * t->bytes;
        t->ios[i].bytes = t->bytes;
        if (op == QUIRE_TIER_STORE)
            faulty_pattern(&t->ios[i].key, t->ios[i].memory, t->bytes);
        else
            memset(t->ios[i].memory, 0xee, t->bytes);
    }
}

/* The memory of a job that has ended is ours: what the tier would still write there is seen. */
void object_wait(object_tier *t)
{
    uint64_t begin = object_now_ms();
    quire_tier_job *job;
    while (quire_tier_poll(t->tier, &job, 1) == 0) {
        if (object_now_ms() - begin > 60000)
            fail_msg("a job does not end; %s", t->log);
        struct timespec a_little = {.tv_nsec = 50000};
        nanosleep(&a_little, NULL);
    }
    t->took_ms = object_now_ms() - begin;
    for (uint32_t i = 0; i < t->job.num_ios; i++) {
        const quire_tier_io *io = &t->ios[i];
        t->status[i] = io->status;
        if (t->job.op != QUIRE_TIER_LOAD || io->status != QUIRE_TIER_DONE)
            continue;
        if (!faulty_is_pattern(&io->key, io->memory, io->bytes))
            fail_msg("io %u is DONE, and its bytes are wrong", i);
        assert_int_equal(io->crc, quire_crc32c(0, io->memory, io->bytes));
    }
}

void object_do(object_tier *t, quire_tier_op op, uint32_t key, uint32_t num)
{
    object_fill(t, op, key, num);
    assert_int_equal(quire_tier_submit(t->tier, &t->job), QUIRE_OK);
    object_wait(t);
}

uint32_t object_count(const object_tier *t, quire_tier_status status)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->job.num_ios; i++)
        n += t->status[i] == status;
    return n;
}

void object_expect_only(const object_tier *t, uint32_t statuses)
{
    for (uint32_t i = 0; i < t->job.num_ios; i++)
        if ((1u << t->status[i] & statuses) == 0)
            fail_msg("io %u ended with %d, log: %s", i, t->status[i], t->log);
}

quire_tier_object_stats object_stats(const object_tier *t)
{
    quire_tier_object_stats stats = QUIRE_TIER_OBJECT_STATS_INIT;
    assert_int_equal(quire_tier_object_get_stats(t->object, &stats), QUIRE_OK);
    return stats;
}

void object_tier_close(object_tier *t)
{
    quire_tier_stats common = QUIRE_TIER_STATS_INIT;
    for (int i = 0; i < 3000 && (object_stats(t).calls != 0 || object_stats(t).jobs != 0); i++)
        object_sleep_ms(10);
    assert_int_equal(object_stats(t).calls, 0);
    assert_int_equal(object_stats(t).jobs, 0);
    assert_int_equal(quire_tier_get_stats(t->tier, &common), QUIRE_OK);
    assert_int_equal(common.jobs_in_flight, 0);
    assert_int_equal(common.bytes_in_flight, 0);
    assert_int_equal(common.bytes_late, 0);
    assert_int_equal(common.bad_ends, 0);
    assert_int_equal(quire_tier_close(t->tier), QUIRE_OK);
    free(t->memory);
    t->tier = NULL;
}

void object_all_operations(object_tier *t)
{
    object_do(t, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(t, OBJECT_BIT(MISSING));
    object_do(t, QUIRE_TIER_FIND, 0, 20);
    object_expect_only(t, OBJECT_BIT(MISSING));
    object_do(t, QUIRE_TIER_REMOVE, 0, 20);
    object_expect_only(t, OBJECT_BIT(DONE));
    object_do(t, QUIRE_TIER_STORE, 0, 20);
    object_expect_only(t, OBJECT_BIT(DONE));
    object_do(t, QUIRE_TIER_FIND, 10, 20);
    assert_int_equal(object_count(t, QUIRE_TIER_DONE), 10);
    assert_int_equal(object_count(t, QUIRE_TIER_MISSING), 10);
    assert_int_equal(t->ios[0].bytes, t->bytes);
    object_do(t, QUIRE_TIER_LOAD, 10, 20);
    assert_int_equal(object_count(t, QUIRE_TIER_DONE), 10);
    object_do(t, QUIRE_TIER_REMOVE, 0, 5);
    object_expect_only(t, OBJECT_BIT(DONE));
    object_do(t, QUIRE_TIER_LOAD, 0, 10);
    assert_int_equal(object_count(t, QUIRE_TIER_MISSING), 5);
    assert_int_equal(object_count(t, QUIRE_TIER_DONE), 5);
    uint64_t before = object_stats(t).present;
    object_do(t, QUIRE_TIER_STORE, 0, 20); /* those that are there are not sent again */
    object_expect_only(t, OBJECT_BIT(DONE));
    assert_int_equal(object_stats(t).present - before, 15);
    object_do(t, QUIRE_TIER_LOAD, 0, 20);
    object_expect_only(t, OBJECT_BIT(DONE));
}
