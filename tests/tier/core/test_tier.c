/* tier/core/test_tier.c - the runner, with a tier in memory: jobs go and come back, once each,
 * with a
 * thread and without; limits, lookups, cancels, the breaker, closing. What goes wrong is in
 * test_tier_faults.c. */
#include "tier_kit.h"

#include "tier/core/key.h"

#include <unistd.h>

#define MS UINT64_C(1000000)

/* ---- there and back -------------------------------------------------------- */

static void store_and_load(kit *k)
{
    static kit_job j;
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_MISSING);
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
    assert_int_equal(j.ios[0].crc, quire_crc32c(0, j.memory[0], KIT_BYTES));
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_FIND, 1), QUIRE_TIER_DONE);
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_DONE);
    assert_true(faulty_is_pattern(&j.ios[0].key, j.memory[0], KIT_BYTES));
    assert_int_equal(j.ios[0].crc, quire_crc32c(0, j.memory[0], KIT_BYTES));
    assert_true(j.job.ended_ns >= j.job.submitted_ns);
    assert_false(quire_tier_is_late(k->tier, &j.job));
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_REMOVE, 1), QUIRE_TIER_DONE);
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_FIND, 1), QUIRE_TIER_MISSING);
    assert_int_equal(kit_do(k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_MISSING);
    quire_tier_stats stats = kit_stats(k);
    assert_int_equal(stats.jobs, 7);
    assert_int_equal(stats.keys[QUIRE_TIER_LOAD][QUIRE_TIER_DONE], 1);
    assert_int_equal(stats.keys[QUIRE_TIER_LOAD][QUIRE_TIER_MISSING], 2);
    assert_int_equal(stats.keys[QUIRE_TIER_STORE][QUIRE_TIER_DONE], 1);
    assert_int_equal(stats.keys[QUIRE_TIER_FIND][QUIRE_TIER_MISSING], 1);
    assert_int_equal(stats.bytes_loaded, KIT_BYTES);
    assert_int_equal(stats.bytes_stored, KIT_BYTES);
    assert_int_equal(stats.usage.total, 64);
    assert_int_equal(stats.usage.cached, 0);
    assert_int_equal(stats.health, QUIRE_TIER_CLOSED);
    assert_int_equal(stats.bad_ends, 0);
}

static void bytes_come_back(void **state)
{
    (void)state;
    for (int variant = 0; variant < 8; variant++) {
        kit k = {.config.run_inline = (variant & 1) != 0 ? QUIRE_ON : QUIRE_OFF,
                 .faults.is_shared = (variant & 2) != 0};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_set_delay(k.part, (variant & 4) != 0 ? 4 : 0);
        store_and_load(&k);
        kit_close(&k);
    }
}

/* CRCs that the caller knows are not computed again: a wrong one shows at the load. */
static void given_crcs_are_kept(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {0};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    for (uint32_t error = 0; error < 2; error++) {
        kit_fill(&j, QUIRE_TIER_STORE, error, 1);
        j.job.has_crcs = 1;
        j.ios[0].crc = quire_crc32c(0, j.memory[0], KIT_BYTES) + error;
        assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
        (void)kit_wait(&k);
        assert_int_equal(j.ios[0].status, QUIRE_TIER_DONE);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, error),
                         error == 0 ? QUIRE_TIER_DONE : QUIRE_TIER_WRONG);
    }
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_MISSING); /* it was removed */
    kit_close(&k);
}

/* Random jobs, many at once, in any order: each comes back once, with all statuses, and what is
 * loaded is what was stored. */
static void many_jobs(uint64_t *random, bool is_inline, int rounds)
{
    enum { JOBS = 40, KEYS = 100 };
    static kit_job jobs[JOBS];
    quire_tier_job *done[JOBS];
    kit k = {.config.run_inline = is_inline ? QUIRE_ON : QUIRE_DEFAULT,
             .config.max_jobs = 33, /* no power of two */
             .faults = {.max_keys = KEYS, .seed = *random}};
    uint64_t submitted = 0;
    uint64_t loaded = 0;
    uint64_t ended = 0;
    memset(jobs, 0, sizeof jobs);
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set_delay(k.part, 6);
    for (int round = 0; round < rounds || ended < submitted; round++) {
        kit_job *j = &jobs[unit_random_below(random, JOBS)];
        if (j->job.state == 0 && round < rounds) {
            quire_tier_op op = (quire_tier_op)(1 + unit_random_below(random, 4));
            kit_fill(j, op, unit_random_below(random, KEYS - KIT_MAX_IOS),
                     1 + unit_random_below(random, KIT_MAX_IOS));
            int status = quire_tier_submit(k.tier, &j->job);
            submitted += status == QUIRE_OK ? 1 : 0;
            assert_true(status == QUIRE_OK || status == QUIRE_FULL);
            if (status == QUIRE_FULL && !is_inline)
                usleep(30); /* the thread needs a processor too */
        }
        if (unit_random_below(random, 50) == 0 && j->job.state != 0)
            (void)quire_tier_cancel(k.tier, &j->job);
        uint32_t capacity = unit_random_below(random, JOBS);
        uint32_t count = quire_tier_poll(k.tier, done, capacity);
        assert_true(count <= capacity);
        for (uint32_t d = 0; d < count; d++, ended++) {
            quire_tier_job *job = done[d];
            assert_int_equal(job->state, 0);
            for (uint32_t i = 0; i < job->num_ios; i++) {
                const quire_tier_io *io = &job->ios[i];
                assert_int_not_equal(io->status, QUIRE_TIER_PENDING);
                assert_true(io->status <= QUIRE_TIER_MISSING || io->status == QUIRE_TIER_CANCELLED);
                if (job->op == QUIRE_TIER_LOAD && io->status == QUIRE_TIER_DONE) {
                    assert_true(faulty_is_pattern(&io->key, io->memory, io->bytes));
                    loaded++;
                }
            }
        }
    }
    quire_tier_stats stats = kit_stats(&k);
    assert_int_equal(stats.jobs, submitted);
    assert_int_equal(stats.bad_ends, 0);
    assert_int_equal(stats.bytes_loaded, loaded * KIT_BYTES);
    assert_true(loaded > 10);
    kit_close(&k);
}

static void many_jobs_with_a_thread(void **state)
{
    many_jobs(*state, false, 6000);
}

static void many_jobs_inline(void **state)
{
    many_jobs(*state, true, 8000);
}

/* As many as there may be, whose addresses share places in the thread's table, end in any order. */
static void jobs_end_in_any_order(void **state)
{
    enum { JOBS = 64, MANY = 4 * JOBS };
    uint64_t *random = *state;
    static kit_job jobs[MANY];
    kit k = {.config = {.run_inline = QUIRE_ON, .max_jobs = JOBS},
             .faults = {.seed = *random, .is_shared = true}};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_set_delay(k.part, 50);
    for (int round = 0; round < 60; round++) {
        for (uint32_t count = 0; count < JOBS;) {
            kit_job *j = &jobs[unit_random_below(random, MANY)];
            if (j->job.state != 0)
                continue;
            kit_fill(j, QUIRE_TIER_FIND, count++, 2);
            assert_int_equal(quire_tier_submit(k.tier, &j->job), QUIRE_OK);
        }
        for (uint32_t i = 0; i < JOBS; i++)
            (void)kit_wait(&k);
    }
    assert_int_equal(kit_stats(&k).bad_ends, 0);
    kit_close(&k);
}

/* A thread that slept is woken by every submit, however close the two come. */
static void sleeping_thread_is_woken(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {0};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
    for (int i = 0; i < 3000; i++) {
        kit_fill(&j, QUIRE_TIER_FIND, 1, 1);
        assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
        quire_tier_job *job = NULL;
        uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
        while (quire_tier_poll(k.tier, &job, 1) == 0)
            assert_true(kit_true_now() < end_ns);
        for (volatile int spin = 0; spin < i % 700; spin++)
            ;
    }
    kit_close(&k);
}

/* ---- what is taken --------------------------------------------------------- */

static void wrong_jobs_are_not_taken(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    kit_fill(&j, QUIRE_TIER_STORE, 1, 2);
    assert_int_equal(quire_tier_submit(NULL, &j.job), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_submit(k.tier, NULL), QUIRE_E_ARGUMENT);
    j.ios[1].bytes = KIT_BYTES + 1;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_RANGE);
    j.ios[1].bytes = 0;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_RANGE);
    j.ios[1].bytes = KIT_BYTES;
    j.ios[1].memory = NULL;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_ARGUMENT);
    kit_fill(&j, QUIRE_TIER_STORE, 1, 2);
    j.job.num_ios = 0;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_ARGUMENT);
    kit_fill(&j, (quire_tier_op)0, 1, 2);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_ARGUMENT);
    kit_fill(&j, (quire_tier_op)5, 1, 2);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_ARGUMENT);
    kit_fill(&j, QUIRE_TIER_STORE, 1, 2);
    assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_MISS);
    j.job.state = 1; /* somebody else's */
    assert_int_equal(quire_tier_cancel(k.tier, &j.job), QUIRE_MISS);
    j.job.state = 0;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_E_ARGUMENT); /* it is in flight */
    (void)kit_wait(&k);
    assert_int_equal(kit_stats(&k).jobs, 1);
    kit_close(&k);
}

static void caps_of_alignment(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    const quire_tier_caps *caps = quire_tier_get_caps(k.tier);
    assert_int_equal(caps->alignment, 1);
    assert_int_equal(caps->max_bytes, KIT_BYTES);
    assert_int_equal(caps->capacity_bytes, 64 * KIT_BYTES);
    kit_fill(&j, QUIRE_TIER_STORE, 1, 1);
    j.ios[0].memory = j.memory[0] + 3;
    j.ios[0].bytes = 5;
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
    (void)kit_wait(&k);
    kit_close(&k);
}

static void full_is_said(void **state)
{
    (void)state;
    static kit_job jobs[5];
    kit k = {
        .config = {.run_inline = QUIRE_ON, .max_jobs = 3, .max_bytes_in_flight = 5 * KIT_BYTES}};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    faulty_hold(k.part, true);
    for (uint32_t i = 0; i < 5; i++)
        kit_fill(&jobs[i], QUIRE_TIER_STORE, 10 * i, 2);
    assert_int_equal(quire_tier_submit(k.tier, &jobs[0].job), QUIRE_OK);
    assert_int_equal(quire_tier_submit(k.tier, &jobs[1].job), QUIRE_OK);
    assert_int_equal(quire_tier_submit(k.tier, &jobs[2].job), QUIRE_FULL); /* bytes */
    assert_int_equal(jobs[2].job.state, 0);
    kit_fill(&jobs[2], QUIRE_TIER_FIND, 0, 2); /* has none */
    assert_int_equal(quire_tier_submit(k.tier, &jobs[2].job), QUIRE_OK);
    kit_fill(&jobs[3], QUIRE_TIER_FIND, 0, 2);
    assert_int_equal(quire_tier_submit(k.tier, &jobs[3].job), QUIRE_FULL); /* jobs */
    assert_int_equal(kit_stats(&k).bytes_in_flight, 4 * KIT_BYTES);
    faulty_hold(k.part, false);
    for (int i = 0; i < 3; i++)
        (void)kit_wait(&k);
    kit_fill(&jobs[4], QUIRE_TIER_STORE, 0, 8); /* more than may be in flight: alone */
    assert_int_equal(quire_tier_submit(k.tier, &jobs[4].job), QUIRE_OK);
    assert_ptr_equal(kit_wait(&k), &jobs[4].job);
    assert_int_equal(jobs[4].ios[7].status, QUIRE_TIER_DONE);
    kit_close(&k);
}

static void lookups(void **state)
{
    (void)state;
    static kit_job j;
    uint8_t found[3] = {9, 9, 9};
    quire_tier_key keys[3] = {faulty_key(1), faulty_key(2), faulty_key(3)};
    for (int shared = 0; shared < 2; shared++) {
        kit k = {.config.run_inline = QUIRE_ON, .faults.is_shared = shared == 1};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 2), QUIRE_TIER_DONE);
        assert_int_equal(quire_tier_lookup(k.tier, keys, 3, found), QUIRE_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(found[i], shared == 1 ? 2 : i == 1);
        assert_int_equal(quire_tier_lookup(k.tier, NULL, 0, NULL), QUIRE_OK);
        assert_int_equal(quire_tier_lookup(k.tier, NULL, 1, found), QUIRE_E_ARGUMENT);
        assert_int_equal(quire_tier_lookup(NULL, keys, 1, found), QUIRE_E_ARGUMENT);
        assert_int_equal(quire_tier_touch(k.tier, keys, 3), QUIRE_OK);
        assert_int_equal(quire_tier_touch(k.tier, NULL, 3), QUIRE_E_ARGUMENT);
        assert_int_equal(quire_tier_reset(k.tier), QUIRE_OK);
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_FIND, 2), QUIRE_TIER_MISSING);
        assert_string_equal(quire_tier_label(k.tier), "faulty");
        assert_string_equal(quire_tier_medium(k.tier), "FAULTY");
        kit_close(&k);
    }
    assert_int_equal(quire_tier_reset(NULL), QUIRE_E_ARGUMENT);
    assert_string_equal(quire_tier_label(NULL), "");
    assert_string_equal(quire_tier_medium(NULL), "");
    assert_null(quire_tier_get_caps(NULL));
}

/* ---- the breaker, through the runner --------------------------------------- */

static void breaker_opens_and_closes(void **state)
{
    (void)state;
    static kit_job j;
    uint8_t found = 9;
    kit k = {.config = {.run_inline = QUIRE_ON, .breaker_ns = 1000 * MS}, .has_clock = true};
    k.now_ns = 1;
    assert_int_equal(kit_open(&k), QUIRE_OK);
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
    faulty_set(k.part, FAULTY_FAIL, 1000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_FAILED);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_OPEN);
    assert_int_equal(kit_stats(&k).breaker_opened, 1);
    assert_int_equal(k.num_logs, 1);
    assert_non_null(strstr(k.log, "faulty"));
    kit_fill(&j, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_BUSY);
    assert_int_equal(quire_tier_lookup(k.tier, &j.ios[0].key, 1, &found), QUIRE_OK);
    assert_int_equal(found, 0);
    k.now_ns += 1200 * MS;
    assert_int_equal(quire_tier_lookup(k.tier, &j.ios[0].key, 1, &found), QUIRE_OK);
    assert_int_equal(found, 1); /* a load may be the probe */
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_LOAD, 1), QUIRE_TIER_FAILED);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_OPEN);
    faulty_set(k.part, FAULTY_FAIL, 0);
    faulty_hold(k.part, true);
    k.now_ns += 2400 * MS;
    kit_fill(&j, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_PROBING);
    static kit_job other;
    kit_fill(&other, QUIRE_TIER_LOAD, 1, 1);
    assert_int_equal(quire_tier_submit(k.tier, &other.job), QUIRE_BUSY);
    faulty_hold(k.part, false);
    assert_ptr_equal(kit_wait(&k), &j.job);
    assert_int_equal(j.ios[0].status, QUIRE_TIER_DONE);
    assert_int_equal(kit_stats(&k).health, QUIRE_TIER_CLOSED);
    assert_int_equal(quire_tier_submit(k.tier, &other.job), QUIRE_OK);
    (void)kit_wait(&k);
    assert_int_equal(k.num_logs, 3);
    kit_close(&k);
}

/* Some keys of a job fail, others not: it is the keys, not the tier. */
static void some_answers_are_enough(void **state)
{
    (void)state;
    static kit_job j;
    kit k = {.config.run_inline = QUIRE_ON, .faults.seed = 3};
    assert_int_equal(kit_open(&k), QUIRE_OK);
    kit_fill(&j, QUIRE_TIER_STORE, 0, KIT_MAX_IOS);
    assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
    (void)kit_wait(&k);
    faulty_set(k.part, FAULTY_FAIL, 300);
    for (int i = 0; i < 50; i++) {
        kit_fill(&j, QUIRE_TIER_LOAD, 0, KIT_MAX_IOS);
        assert_int_equal(quire_tier_submit(k.tier, &j.job), QUIRE_OK);
        (void)kit_wait(&k);
    }
    assert_true(kit_stats(&k).keys[QUIRE_TIER_LOAD][QUIRE_TIER_FAILED] > 50);
    assert_int_equal(kit_stats(&k).breaker_opened, 0);
    kit_close(&k);
}

/* ---- opening and closing --------------------------------------------------- */

static void wrong_configs(void **state)
{
    (void)state;
    quire_tier *tier = NULL;
    for (int wrong = 0; wrong < 9; wrong++) {
        quire_tier_ops ops = *faulty_ops();
        faulty_config faults = {.max_keys = 4, .max_bytes = 16, .fails_to_open = wrong == 8};
        quire_allocator half = {.alloc = NULL};
        quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
        bool is_taken = wrong >= 3; /* self is the tier's then */
        config.ops = wrong == 0 ? NULL : &ops;
        ops.abi = wrong == 1 ? 2 : 1;
        ops.size = wrong == 2 ? 4 : ops.size;
        ops.begin = wrong == 3 ? NULL : ops.begin;
        config.max_jobs = wrong == 4 ? 65537 : 0;
        config.close_ns = wrong == 5 ? UINT64_MAX : 0;
        config.run_inline = wrong == 6 ? (quire_switch)3 : QUIRE_DEFAULT;
        config.self = is_taken ? faulty_create(&faults) : NULL;
        int status = quire_tier_open(&config, wrong == 7 ? &half : NULL, &tier);
        assert_int_equal(status, wrong == 7   ? QUIRE_E_ARGUMENT
                                 : wrong == 8 ? QUIRE_E_SYSTEM
                                              : QUIRE_E_CONFIG);
        assert_true(strlen(quire_refusal()) > 10);
        assert_null(tier);
    }
    quire_tier_config config = {.size = 3};
    assert_int_equal(quire_tier_open(&config, NULL, &tier), QUIRE_E_CONFIG);
    assert_int_equal(quire_tier_open(NULL, NULL, &tier), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_close(NULL), QUIRE_OK);
    assert_int_equal(quire_tier_poll(NULL, NULL, 0), 0);
    assert_int_equal(quire_tier_get_stats(NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_tier_is_late(NULL, NULL), 0);
}

static uint32_t num_calls;
static size_t bytes_out;

static void *count_alloc(void *user, size_t bytes, size_t alignment)
{
    assert_ptr_equal(user, &num_calls);
    assert_int_equal(alignment, QUIRE_ALIGNMENT);
    num_calls++;
    bytes_out += bytes;
    void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    memset(memory, 0xa5, bytes);
    return memory;
}

static void count_free(void *user, void *memory, size_t bytes, size_t alignment)
{
    (void)user;
    (void)alignment;
    bytes_out -= bytes;
    free(memory);
}

static void *no_alloc(void *user, size_t bytes, size_t alignment)
{
    (void)user;
    (void)bytes;
    (void)alignment;
    return NULL;
}

static void memory_of_the_caller(void **state)
{
    (void)state;
    static kit_job j;
    faulty_config faults = {.max_keys = 4, .max_bytes = KIT_BYTES};
    quire_allocator allocator = {.user = &num_calls, .alloc = count_alloc, .free = count_free};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    kit k = {0};
    config.ops = faulty_ops();
    config.self = faulty_create(&faults);
    config.label =
        "a label that is much longer than the sixty-three characters that are kept of it";
    assert_int_equal(quire_tier_open(&config, &allocator, &k.tier), QUIRE_OK);
    assert_int_equal(strlen(quire_tier_label(k.tier)), 63);
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
    assert_int_equal(quire_tier_close(k.tier), QUIRE_OK);
    assert_int_equal(num_calls, 1);
    assert_int_equal(bytes_out, 0);
    allocator.alloc = no_alloc;
    config.self = faulty_create(&faults);
    assert_int_equal(quire_tier_open(&config, &allocator, &k.tier), QUIRE_E_NOMEM);
    assert_true(strlen(quire_refusal()) > 10);
}

/* Jobs that wait, are begun, or ended but were not polled: all have their statuses after a
 * close. */
static void close_ends_what_is_in_flight(void **state)
{
    (void)state;
    enum { JOBS = 20 };
    static kit_job jobs[JOBS];
    for (int round = 0; round < 60; round++) {
        kit k = {.config.run_inline = round % 3 == 0 ? QUIRE_ON : QUIRE_OFF,
                 .faults = {.seed = (uint64_t)round, .ignores_cancel = round % 2 == 0}};
        assert_int_equal(kit_open(&k), QUIRE_OK);
        faulty_set_delay(k.part, (uint32_t)round % 7);
        for (uint32_t i = 0; i < JOBS; i++) {
            kit_fill(&jobs[i], QUIRE_TIER_STORE, i, 1 + i % 3);
            assert_int_equal(quire_tier_submit(k.tier, &jobs[i].job), QUIRE_OK);
        }
        assert_int_equal(quire_tier_close(k.tier), QUIRE_OK);
        for (uint32_t i = 0; i < JOBS; i++) {
            assert_int_equal(jobs[i].job.state, 0);
            for (uint32_t io = 0; io < jobs[i].job.num_ios; io++) {
                quire_tier_status status = jobs[i].ios[io].status;
                assert_true(status == QUIRE_TIER_DONE || status == QUIRE_TIER_CANCELLED ||
                            status == QUIRE_TIER_REFUSED);
            }
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t random = unit_seed(argc, argv, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(given_crcs_are_kept),
        cmocka_unit_test_prestate(many_jobs_with_a_thread, &random),
        cmocka_unit_test_prestate(many_jobs_inline, &random),
        cmocka_unit_test_prestate(jobs_end_in_any_order, &random),
        cmocka_unit_test(sleeping_thread_is_woken),
        cmocka_unit_test(wrong_jobs_are_not_taken),
        cmocka_unit_test(caps_of_alignment),
        cmocka_unit_test(full_is_said),
        cmocka_unit_test(lookups),
        cmocka_unit_test(breaker_opens_and_closes),
        cmocka_unit_test(some_answers_are_enough),
        cmocka_unit_test(wrong_configs),
        cmocka_unit_test(memory_of_the_caller),
        cmocka_unit_test(close_ends_what_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
