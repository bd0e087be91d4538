/* tier/core/test_tier_oom.c - what a tier, a host device and host memory ask of the system when
 * they are
 * opened is refused, one thing after the other: each time a clear error, and nothing is left
 * behind, neither memory nor descriptors. (Linked so that these calls come here.) */
#include "tier_kit.h"

#include <quire/device.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

static uint64_t calls;
static uint64_t failing; /* this one; 0: none */
static bool is_counting;

static bool is_refused(void)
{
    return is_counting && ++calls == failing;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
int __real_eventfd(unsigned first, int flags);
int __wrap_eventfd(unsigned first, int flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user);
ssize_t __real_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);
void *__real_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_mlock(const void *memory, size_t bytes);
int __wrap_mlock(const void *memory, size_t bytes);
int __real_madvise(void *memory, size_t bytes, int advice);
int __wrap_madvise(void *memory, size_t bytes, int advice);

void *__wrap_calloc(size_t n, size_t size)
{
    return is_refused() ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
    return is_refused() ? NULL : __real_malloc(size);
}

int __wrap_eventfd(unsigned first, int flags)
{
    return is_refused() ? -1 : __real_eventfd(first, flags);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user)
{
    return is_refused() ? EAGAIN : __real_pthread_create(thread, attr, start, user);
}

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    errno = ENOSYS;
    return is_refused() ? -1 : __real_getrandom(out, bytes, flags);
}

void *__wrap_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    errno = ENOMEM;
    return is_refused() ? MAP_FAILED : __real_mmap(where, bytes, protection, flags, fd, offset);
}

int __wrap_madvise(void *memory, size_t bytes, int advice)
{
    errno = ENOMEM;
    return is_refused() ? -1 : __real_madvise(memory, bytes, advice);
}

int __wrap_mlock(const void *memory, size_t bytes)
{
    return is_refused() ? -1 : __real_mlock(memory, bytes);
}

static int num_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir) != NULL)
        count++;
    (void)closedir(dir);
    return count;
}

/* Refuses the n-th call for every n; tries says what became of it. */
static uint32_t refuse_each(int (*tries)(void))
{
    uint32_t num_failed = 0;
    int before = num_descriptors();
    for (failing = 1;; failing++) {
        calls = 0;
        int status = tries();
        is_counting = false;
        assert_int_equal(num_descriptors(), before);
        if (status != QUIRE_OK)
            num_failed++;
        assert_true(status == QUIRE_OK || status == QUIRE_E_NOMEM || status == QUIRE_E_SYSTEM ||
                    status == QUIRE_E_RANDOM);
        if (calls < failing)
            break;
    }
    failing = 0;
    return num_failed;
}

static int try_tier(void)
{
    static kit_job j;
    kit k = {0};
    faulty_config faults = {.max_keys = 4, .max_bytes = KIT_BYTES};
    k.part = faulty_create(&faults);
    quire_tier_config config = QUIRE_TIER_CONFIG_INIT;
    config.ops = faulty_ops();
    config.self = k.part;
    is_counting = true;
    int status = quire_tier_open(&config, NULL, &k.tier);
    is_counting = false;
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    if (status != QUIRE_OK)
        return status;
    assert_int_equal(kit_do(&k, &j, QUIRE_TIER_STORE, 1), QUIRE_TIER_DONE);
    kit_close(&k);
    return QUIRE_OK;
}

/* Memory, random bytes, two descriptors and the thread must be there; the page that tells a fork,
 * which the first tier of a process makes for all, need not. */
static void tier_is_not_opened(void **state)
{
    enum { PAGE = 2, ADVICE = 3 };
    (void)state;
    for (failing = PAGE; failing <= ADVICE; failing++) {
        calls = 0;
        assert_int_equal(try_tier(), QUIRE_OK);
    }
    failing = 0;
    assert_int_equal(try_tier(), QUIRE_OK); /* now there is one */
    assert_int_equal(refuse_each(try_tier), 5);
}

static int try_device(void)
{
    static unsigned char memory[2][64];
    quire_device device = {0};
    quire_device_host_config config = QUIRE_DEVICE_HOST_CONFIG_INIT;
    config.blocks = memory[0];
    config.slots = memory[1];
    config.num_blocks = 4;
    config.num_slots = 4;
    config.block_bytes = 16;
    is_counting = true;
    int status = quire_device_host_open(&config, NULL, &device);
    is_counting = false;
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    assert_int_equal(status == QUIRE_OK, device.ops != NULL);
    quire_device_close(&device);
    return status;
}

/* Memory and two threads; the page that tells a fork is there after the first. */
static void device_is_not_opened(void **state)
{
    (void)state;
    assert_int_equal(try_device(), QUIRE_OK);
    assert_int_equal(refuse_each(try_device), 3);
}

static quire_host_memory_config memory_config;

static int try_memory(void)
{
    quire_host_memory *memory = NULL;
    is_counting = true;
    int status = quire_host_memory_open(&memory_config, &memory);
    is_counting = false;
    assert_int_equal(status != QUIRE_OK, quire_refusal()[0] != 0);
    assert_int_equal(status == QUIRE_OK, memory != NULL);
    if (status == QUIRE_OK) {
        const quire_host_memory_info *info = quire_host_memory_get_info(memory);
        memset(info->data, 0x5a, (size_t)info->bytes);
    }
    quire_host_memory_close(memory);
    return status;
}

/* Each refusal alone; the pages that are not huge, and core dumps with them, are no error. */
static void host_memory_is_not_opened(void **state)
{
    (void)state;
    memory_config = (quire_host_memory_config)QUIRE_HOST_MEMORY_CONFIG_INIT;
    memory_config.bytes = 100000;
    memory_config.hugepages = QUIRE_OFF;
    assert_int_equal(refuse_each(try_memory), 3); /* itself, its pages, that they are there */
    memory_config.lock = QUIRE_ON;
    if (try_memory() == QUIRE_OK)
        assert_int_equal(refuse_each(try_memory), 4);
    memory_config.lock = QUIRE_OFF;
    memory_config.hugepages = QUIRE_DEFAULT;
    memory_config.bytes = 4 << 20;
    assert_in_range(refuse_each(try_memory), 2, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tier_is_not_opened),
        cmocka_unit_test(device_is_not_opened),
        cmocka_unit_test(host_memory_is_not_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
