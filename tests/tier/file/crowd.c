#include "tier/file/crowd.h"

#include <stdlib.h>
#include <string.h>

static uint64_t crowd_now(void *user)
{
    crowd *c = user;
    return c->now_ns += 1000000;
}

uint32_t crowd_random(crowd *c, uint32_t below)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return (uint32_t)(c->random >> 20) % below;
}

void crowd_init(crowd *c, uint32_t num_slots, uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1234567;
    c->now_ns = 1000000000;
    c->store_percent = 30;
    c->config = (quire_tier_file_config)QUIRE_TIER_FILE_CONFIG_INIT;
    c->config.path = "disk";
    c->config.block_bytes = CROWD_BLOCK;
    c->config.capacity_bytes = kit_capacity(num_slots, CROWD_BLOCK);
    c->config.depth = 4;
    c->config.checkpoint_ms = 1000;
    c->common = (quire_tier_config)QUIRE_TIER_CONFIG_INIT;
    c->common.hooks.user = c;
    c->common.hooks.now_ns = crowd_now;
    c->common.breaker_strikes = 1000000000;
    c->common.deadline_ns = UINT64_C(1) << 50;
    c->common.close_ns = 200000000; /* of that clock */
    for (uint32_t i = 0; i < CROWD_JOBS; i++)
        c->jobs[i].memory = malloc((size_t)CROWD_IOS * CROWD_BLOCK);
}

void crowd_free(crowd *c)
{
    for (uint32_t i = 0; i < CROWD_JOBS; i++)
        free(c->jobs[i].memory);
}

int crowd_open(crowd *c, file_disk *disk)
{
    return disk_open(disk, &c->config, &c->common, &c->tier);
}

static uint64_t pattern_of(uint32_t key, uint32_t version)
{
    return (uint64_t)version * 1000003 + key;
}

static void check_loaded(const crowd *c, uint32_t key, const void *memory)
{
    for (uint32_t version = 0; version < CROWD_VERSIONS; version++)
        if ((c->was_stored[key] & 1 << version) != 0 &&
            kit_is_filled(memory, CROWD_BLOCK, pattern_of(key, version)))
            return;
    fail_msg("key %u came back with bytes that were never stored", key);
}

/* A store that failed leaves nothing to be found. */
static void check_absent(crowd *c, uint32_t number)
{
    quire_tier_key key = kit_key(number);
    uint8_t found = 1;
    assert_int_equal(quire_tier_lookup(c->tier, &key, 1, &found), QUIRE_OK);
    assert_int_equal(found, 0);
}

static void take_ended(crowd *c)
{
    quire_tier_job *ended[CROWD_JOBS];
    uint32_t n = quire_tier_poll(c->tier, ended, CROWD_JOBS);
    for (uint32_t i = 0; i < n; i++) {
        crowd_job *job = (crowd_job *)(void *)ended[i];
        assert_true(job->is_busy); /* once for each */
        job->is_busy = false;
        c->num_ended++;
        for (uint32_t k = 0; k < job->job.num_ios; k++) {
            quire_tier_status status = job->ios[k].status;
            assert_in_range(status, QUIRE_TIER_DONE, QUIRE_TIER_REFUSED);
            c->statuses[job->job.op][status]++;
            if (job->job.op == QUIRE_TIER_LOAD && status == QUIRE_TIER_DONE)
                check_loaded(c, job->keys[k], job->ios[k].memory);
            if (job->job.op == QUIRE_TIER_STORE &&
                (status == QUIRE_TIER_FAILED || status == QUIRE_TIER_CANCELLED))
                check_absent(c, job->keys[k]);
        }
    }
}

static void start_job(crowd *c, crowd_job *job, quire_tier_op op)
{
    uint32_t num_ios = 1 + crowd_random(c, CROWD_IOS);
    job->job = (quire_tier_job){.op = op, .num_ios = num_ios, .ios = job->ios};
    for (uint32_t i = 0; i < num_ios; i++) {
        uint32_t key = crowd_random(c, CROWD_KEYS);
        uint32_t version = crowd_random(c, CROWD_VERSIONS);
        void *memory = job->memory + (size_t)i * CROWD_BLOCK;
        job->keys[i] = key;
        job->ios[i] = (quire_tier_io){.key = kit_key(key), .memory = memory, .bytes = CROWD_BLOCK};
        if (op == QUIRE_TIER_STORE) {
            kit_fill(memory, CROWD_BLOCK, pattern_of(key, version));
            c->was_stored[key] |= (uint8_t)(1 << version);
        }
    }
    job->is_busy = quire_tier_submit(c->tier, &job->job) == QUIRE_OK;
}

void crowd_step(crowd *c, bool may_reset)
{
    for (uint32_t i = 0; i < CROWD_JOBS; i++) {
        crowd_job *job = &c->jobs[i];
        uint32_t dice = crowd_random(c, 100);
        if (job->is_busy) {
            if (dice < 3)
                assert_int_equal(quire_tier_cancel(c->tier, &job->job), QUIRE_OK);
        } else if (dice < c->store_percent) {
            start_job(c, job, QUIRE_TIER_STORE);
        } else if (dice < 60) {
            start_job(c, job, QUIRE_TIER_LOAD);
        } else if (dice < 60 + c->store_percent / 8) {
            start_job(c, job, QUIRE_TIER_REMOVE);
        }
        if (crowd_random(c, 3) == 0)
            take_ended(c);
    }
    c->now_ns += 20000000;
    if (may_reset && crowd_random(c, 60) == 0) {
        int status = quire_tier_reset(c->tier);
        assert_true(status == QUIRE_OK || status == QUIRE_E_SYSTEM); /* a disk that fails */
    }
}

static uint32_t num_busy(const crowd *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < CROWD_JOBS; i++)
        n += c->jobs[i].is_busy;
    return n;
}

uint32_t crowd_wait(crowd *c, uint32_t num_turns)
{
    for (uint32_t i = 0; i < num_turns && num_busy(c) > 0; i++)
        take_ended(c);
    return num_busy(c);
}

uint64_t crowd_load_all(crowd *c)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < 60; i++) { /* a scan reads all slots, and lookups take them over */
        const quire_tier_key key = kit_key(0);
        uint8_t is_there;
        take_ended(c);
        assert_int_equal(quire_tier_lookup(c->tier, &key, 1, &is_there), QUIRE_OK);
    }
    for (uint32_t key = 0; key < CROWD_KEYS; key++) {
        crowd_job *job = &c->jobs[0];
        job->job = (quire_tier_job){.op = QUIRE_TIER_LOAD, .num_ios = 1, .ios = job->ios};
        job->keys[0] = key;
        job->ios[0] =
            (quire_tier_io){.key = kit_key(key), .memory = job->memory, .bytes = CROWD_BLOCK};
        assert_int_equal(quire_tier_submit(c->tier, &job->job), QUIRE_OK);
        job->is_busy = true;
        assert_int_equal(crowd_wait(c, 1000), 0);
        if (job->ios[0].status == QUIRE_TIER_DONE)
            found |= UINT64_C(1) << key;
    }
    return found;
}
