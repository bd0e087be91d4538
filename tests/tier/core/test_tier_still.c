/* tier/core/test_tier_still.c - submit, poll, cancel and lookup neither allocate nor lock nor
 * call the
 * system, whatever the tier's thread does; only a thread that sleeps costs one write. (Linked so
 * that these functions come here when the library calls them.) */
#include "tier_kit.h"

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

/* X(result, name, parameters, arguments) */
#define CALL_MAP(X)                                                                                \
    X(void *, malloc, (size_t size), (size))                                                       \
    X(void *, calloc, (size_t count, size_t size), (count, size))                                  \
    X(void *, realloc, (void *memory, size_t size), (memory, size))                                \
    X(ssize_t, read, (int fd, void *memory, size_t count), (fd, memory, count))                    \
    X(int, poll, (struct pollfd * fds, nfds_t count, int timeout), (fds, count, timeout))          \
    X(int, pthread_mutex_lock, (pthread_mutex_t * lock), (lock))                                   \
    X(int, madvise, (void *memory, size_t bytes, int advice), (memory, bytes, advice))             \
    X(pid_t, getpid, (void), ())

static _Thread_local bool is_scheduler; /* only its calls count */
static uint64_t num_calls;
static uint64_t num_writes;

#define QUIRE_X(result, name, parameters, arguments)                                               \
    result __real_##name parameters;                                                               \
    result __wrap_##name parameters;                                                               \
    result __wrap_##name parameters                                                                \
    {                                                                                              \
        if (is_scheduler)                                                                          \
            num_calls++;                                                                           \
        return __real_##name arguments;                                                            \
    }
CALL_MAP(QUIRE_X)
#undef QUIRE_X

ssize_t __real_write(int fd, const void *memory, size_t count);
ssize_t __wrap_write(int fd, const void *memory, size_t count);

ssize_t __wrap_write(int fd, const void *memory, size_t count)
{
    if (is_scheduler)
        num_writes++;
    return __real_write(fd, memory, count);
}

/* A part that does nothing, and hangs on demand. */
static _Atomic bool is_blocking;
static _Atomic uint64_t num_begun;

static void begin_or_block(void *self, quire_tier_ends *ends, quire_tier_job *job)
{
    (void)self;
    num_begun++;
    while (is_blocking)
        usleep(100);
    for (uint32_t i = 0; i < job->num_ios; i++)
        ends->end(ends, job, i, QUIRE_TIER_MISSING);
}

static void lookup_none(void *self, const quire_tier_key *keys, uint32_t n, uint8_t *found)
{
    (void)self;
    (void)keys;
    memset(found, 0, n);
}

enum { JOBS = 200 };
static kit_job jobs[JOBS];

static void open_still(kit *k, quire_switch run_inline)
{
    static const quire_tier_ops OPS = {
        .abi = 1, .size = sizeof OPS, .begin = begin_or_block, .lookup = lookup_none};
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = &OPS;
    config.run_inline = run_inline;
    assert_int_equal(quire_tier_open(&config, NULL, &k->tier), QUIRE_OK);
    for (uint32_t i = 0; i < JOBS; i++)
        kit_fill(&jobs[i], QUIRE_TIER_STORE, i, 2);
    num_calls = 0;
    num_writes = 0;
}

static uint32_t poll_all(kit *k, uint32_t wanted)
{
    quire_tier_job *done[JOBS];
    uint32_t count = 0;
    uint64_t end_ns = kit_true_now() + UINT64_C(1000000000) * KIT_SECONDS;
    while (count < wanted && kit_true_now() < end_ns)
        count += quire_tier_poll(k->tier, done, JOBS);
    return count;
}

static void nothing_while_the_thread_is_awake(void **state)
{
    (void)state;
    kit k = {0};
    open_still(&k, QUIRE_OFF);
    is_blocking = true;
    num_begun = 0;
    assert_int_equal(quire_tier_submit(k.tier, &jobs[0].job), QUIRE_OK);
    while (num_begun == 0)
        usleep(100);
    is_scheduler = true;
    int wrong = 0;
    uint8_t found;
    for (uint32_t i = 1; i < JOBS; i++) {
        wrong += quire_tier_submit(k.tier, &jobs[i].job) != QUIRE_OK;
        wrong += poll_all(&k, 0) != 0;
        wrong += i % 7 == 0 && quire_tier_cancel(k.tier, &jobs[i].job) != QUIRE_OK;
        wrong += quire_tier_lookup(k.tier, &jobs[i].ios[0].key, 1, &found) != QUIRE_OK;
        wrong += quire_tier_is_late(k.tier, &jobs[i].job) != 0;
    }
    is_blocking = false;
    uint32_t ended = poll_all(&k, JOBS);
    is_scheduler = false;
    assert_int_equal(wrong, 0);
    assert_int_equal(ended, JOBS);
    assert_int_equal(num_calls, 0);
    assert_int_equal(num_writes, 0);
    kit_close(&k);
}

static void one_write_wakes_it(void **state)
{
    (void)state;
    kit k = {0};
    open_still(&k, QUIRE_OFF);
    uint64_t most = 0;
    for (uint32_t i = 0; i < JOBS; i++) {
        uint64_t before = num_writes;
        is_scheduler = true;
        int status = quire_tier_submit(k.tier, &jobs[i].job);
        uint32_t ended = poll_all(&k, 1);
        is_scheduler = false;
        assert_int_equal(status, QUIRE_OK);
        assert_int_equal(ended, 1);
        most = num_writes - before > most ? num_writes - before : most;
        if (i % 4 == 0)
            usleep(500); /* it sleeps */
    }
    assert_int_equal(num_calls, 0);
    assert_int_equal(most, 1);
    kit_close(&k);
}

static void nothing_inline(void **state)
{
    (void)state;
    kit k = {0};
    open_still(&k, QUIRE_ON);
    is_scheduler = true;
    int wrong = 0;
    for (uint32_t i = 0; i < JOBS; i++)
        wrong += quire_tier_submit(k.tier, &jobs[i].job) != QUIRE_OK;
    uint32_t ended = poll_all(&k, JOBS);
    is_scheduler = false;
    assert_int_equal(wrong, 0);
    assert_int_equal(ended, JOBS);
    assert_int_equal(num_calls + num_writes, 0);
    kit_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_while_the_thread_is_awake),
        cmocka_unit_test(one_write_wakes_it),
        cmocka_unit_test(nothing_inline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
