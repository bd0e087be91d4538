/* tier/core/tier_kit.h - a faulty tier with its memory and jobs, for the tests of the runner. */
#ifndef CORE_TIER_KIT_H
#define CORE_TIER_KIT_H

#include "base/unit.h"
#include "faulty.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { KIT_BYTES = 512, KIT_MAX_IOS = 8, KIT_SECONDS = 20 };

/* One job with its ios and memory. */
typedef struct kit_job {
    quire_tier_job job;
    quire_tier_io ios[KIT_MAX_IOS];
    unsigned char memory[KIT_MAX_IOS][KIT_BYTES];
} kit_job;

typedef struct kit {
    quire_tier *tier;
    faulty *part;
    quire_tier_config config;
    faulty_config faults;
    _Atomic uint64_t now_ns; /* where has_clock */
    bool has_clock;
    int num_logs;
    char log[256]; /* the last */
} kit;

static inline uint64_t kit_now(void *user)
{
    return ((kit *)user)->now_ns;
}

static inline void kit_log(void *user, quire_log_level level, const char *text)
{
    kit *k = user;
    (void)level;
    k->num_logs++;
    (void)snprintf(k->log, sizeof k->log, "%s", text);
}

/* What is not set in k->config and k->faults gets a value. */
static inline int kit_open(kit *k)
{
    if (k->faults.max_keys == 0)
        k->faults.max_keys = 64;
    if (k->faults.max_bytes == 0)
        k->faults.max_bytes = KIT_BYTES;
    k->part = faulty_create(&k->faults);
    k->config.size = sizeof k->config;
    k->config.ops = faulty_ops();
    k->config.self = k->part;
    k->config.hooks.user = k;
    k->config.hooks.log = kit_log;
    if (k->has_clock)
        k->config.hooks.now_ns = kit_now;
    int status = quire_tier_open(&k->config, NULL, &k->tier);
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    return status;
}

static inline void kit_fill(kit_job *j, quire_tier_op op, uint32_t first_key, uint32_t num_ios)
{
    memset(&j->job, 0, sizeof j->job);
    j->job.op = op;
    j->job.id = first_key;
    j->job.num_ios = num_ios;
    j->job.ios = j->ios;
    for (uint32_t i = 0; i < num_ios; i++) {
        memset(&j->ios[i], 0xcd, sizeof j->ios[i]);
        j->ios[i].key = faulty_key(first_key + i);
        j->ios[i].memory = j->memory[i];
        j->ios[i].bytes = KIT_BYTES;
        if (op == QUIRE_TIER_STORE)
            faulty_pattern(&j->ios[i].key, j->memory[i], KIT_BYTES);
        else
            memset(j->memory[i], 0x11, KIT_BYTES);
    }
}

static inline uint64_t kit_true_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Polls until one job ends; it must, in KIT_SECONDS. */
static inline quire_tier_job *kit_wait(kit *k)
{
    uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
    quire_tier_job *job = NULL;
    while (quire_tier_poll(k->tier, &job, 1) == 0) {
        assert_true(kit_true_now() < end_ns);
        struct timespec a_little = {.tv_nsec = 20000};
        nanosleep(&a_little, NULL);
    }
    return job;
}

/* Submits, and waits for this job's end. */
static inline quire_tier_status kit_do(kit *k, kit_job *j, quire_tier_op op, uint32_t key)
{
    kit_fill(j, op, key, 1);
    assert_int_equal(quire_tier_submit(k->tier, &j->job), QUIRE_OK);
    assert_ptr_equal(kit_wait(k), &j->job);
    return j->ios[0].status;
}

static inline void kit_wait_begun(kit *k, uint64_t count)
{
    uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
    while (faulty_num_begun(k->part) < count) {
        assert_true(kit_true_now() < end_ns);
        usleep(100);
    }
}

static inline void kit_submit(kit *k, kit_job *j, quire_tier_op op, uint32_t key, uint32_t num_ios)
{
    kit_fill(j, op, key, num_ios);
    assert_int_equal(quire_tier_submit(k->tier, &j->job), QUIRE_OK);
}

static inline void kit_nothing_comes(kit *k)
{
    quire_tier_job *job = NULL;
    for (int i = 0; i < 20; i++)
        assert_int_equal(quire_tier_poll(k->tier, &job, 1), 0);
}

static inline quire_tier_stats kit_stats(const kit *k)
{
    quire_tier_stats stats = QUIRE_TIER_STATS_INIT;
    assert_int_equal(quire_tier_get_stats(k->tier, &stats), QUIRE_OK);
    return stats;
}

/* Closes, and nothing is left in flight before that. */
static inline void kit_close(kit *k)
{
    quire_tier_stats stats = kit_stats(k);
    assert_int_equal(stats.jobs_in_flight, 0);
    assert_int_equal(stats.bytes_in_flight, 0);
    assert_int_equal(stats.bytes_late, 0);
    assert_int_equal(quire_tier_close(k->tier), QUIRE_OK);
}

#endif
