/* tier/file/test_oom.c - what a file tier asks of the system when it is opened is refused, one
 * thing after the other: each time an error or a tier that works, and nothing is left behind,
 * neither memory, nor descriptors, nor a file. (Linked so that these calls come here.) */
#include "tier/file/file_kit.h"

#include "tier/file/format.h"
#include "tier/file/open.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic uint64_t calls;
static uint64_t failing; /* this one; 0: none */
static _Atomic bool is_counting;
static bool has_no_threads; /* no thread can be started */

static bool is_refused(int error)
{
    if (!is_counting || ++calls != failing)
        return false;
    errno = error;
    return true;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __real_eventfd(unsigned first, int flags);
int __wrap_eventfd(unsigned first, int flags);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user);
ssize_t __real_getrandom(void *out, size_t bytes, unsigned flags);
ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);

void *__wrap_calloc(size_t n, size_t size)
{
    return is_refused(ENOMEM) ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
    return is_refused(ENOMEM) ? NULL : __real_malloc(size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return is_refused(ENOMEM) ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_eventfd(unsigned first, int flags)
{
    return is_refused(EMFILE) ? -1 : __real_eventfd(first, flags);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *user)
{
    return has_no_threads || is_refused(EAGAIN) ? EAGAIN
                                                : __real_pthread_create(thread, attr, start, user);
}

ssize_t __wrap_getrandom(void *out, size_t bytes, unsigned flags)
{
    return is_refused(ENOSYS) ? -1 : __real_getrandom(out, bytes, flags);
}

static int fallocate_error; /* of the next one; EOPNOTSUPP, ENOSYS: of all */

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (fallocate_error != 0) {
        errno = fallocate_error;
        if (errno != EOPNOTSUPP && errno != ENOSYS)
            fallocate_error = 0;
        return -1;
    }
    return is_refused(EDQUOT) ? -1 : __real_fallocate(fd, mode, offset, bytes);
}

/* No file, or a whole one: what fails last is the tier's own thread. */
static void expect_no_half(const file_kit *kit)
{
    struct stat info;
    if (stat(kit->path, &info) != 0)
        return;
    assert_true((uint64_t)info.st_size > kit->config.capacity_bytes - (1 << 16));
    assert_int_equal(unlink(kit->path), 0);
}

/* Every call that open makes fails once; is_new: there is no file yet. */
static void refuse_each(file_kit *kit, bool is_new)
{
    uint32_t num_files = kit_open_files();
    uint64_t num_refused = 0;
    for (failing = 1;; failing++) {
        calls = 0;
        is_counting = true;
        int status = kit_open(kit);
        is_counting = false;
        if (status == QUIRE_OK) {
            assert_int_equal(kit_run(kit, QUIRE_TIER_LOAD, 900, 1, QUIRE_TIER_MISSING), 1);
            kit_close(kit);
            if (is_new && !kit->config.is_shared)
                assert_int_equal(unlink(kit->path), 0);
        } else {
            assert_true(status == QUIRE_E_NOMEM || status == QUIRE_E_SYSTEM ||
                        status == QUIRE_E_RANDOM);
            assert_null(kit->tier);
            if (is_new && !kit->config.is_shared)
                expect_no_half(kit);
            num_refused++;
        }
        assert_int_equal(kit_open_files(), num_files);
        if (calls < failing) /* all were refused once */
            break;
    }
    assert_true(num_refused > 5);
}

static void test_private(void **state)
{
    file_kit kit;
    unsigned char zeros[4096] = {0};
    qr_file_layout layout;
    kit_begin(&kit, 20, KIT_BLOCK);
    kit.config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
    refuse_each(&kit, true);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    kit_close(&kit);
    refuse_each(&kit, false);
    assert_true(qr_file_layout_of(20, KIT_BLOCK, &layout));
    kit_poke(&kit, layout.index_at[0], zeros, sizeof zeros);
    kit_poke(&kit, layout.index_at[1], zeros, sizeof zeros);
    refuse_each(&kit, false); /* and while there is a scan */
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    for (int i = 0; i < 1000 && kit_load_all(&kit, 0, 10) < 10; i++)
        poll(NULL, 0, 1);
    assert_int_equal(kit_load_all(&kit, 0, 10), 10);
    kit_end(&kit);
}

static void test_shared(void **state)
{
    file_kit kit;
    (void)state;
    kit_begin(&kit, 20, KIT_BLOCK);
    kit.config.path = kit.folder;
    kit.config.is_shared = 1;
    refuse_each(&kit, true);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
    kit_end(&kit);
}

static int open_without_fallocate(file_kit *kit, int error)
{
    kit_begin(kit, 20, KIT_BLOCK);
    fallocate_error = error;
    int status = kit_open(kit);
    fallocate_error = 0;
    return status;
}

/* A file system that cannot reserve room is used without, and it is said; one that has no room is
 * not used. */
static void test_reserve(void **state)
{
    static const int CANNOT[] = {EOPNOTSUPP, ENOSYS, EINTR};
    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        file_kit kit;
        struct stat info;
        assert_int_equal(open_without_fallocate(&kit, CANNOT[i]), QUIRE_OK);
        assert_true((strstr(kit.log, "cannot reserve space") != NULL) == (CANNOT[i] != EINTR));
        assert_int_equal(stat(kit.path, &info), 0);
        assert_true((uint64_t)info.st_size > kit.config.capacity_bytes - (1 << 16));
        assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 10, QUIRE_TIER_DONE), 10);
        assert_int_equal(kit_load_all(&kit, 0, 10), 10);
        kit_end(&kit);
    }
    file_kit kit;
    assert_int_equal(open_without_fallocate(&kit, ENOSPC), QUIRE_E_SYSTEM);
    assert_non_null(strstr(quire_refusal(), "cannot reserve"));
    assert_int_equal(access(kit.path, F_OK), -1);
    kit_end(&kit);
}

/* Where threads are to read and write, and none can be started, the message says so. */
static void test_no_threads(void **state)
{
    (void)state;
    for (uint32_t is_shared = 0; is_shared < 2; is_shared++) {
        file_kit kit;
        kit_begin(&kit, 20, KIT_BLOCK);
        kit.config.uring = QUIRE_OFF;
        kit.config.is_shared = is_shared;
        kit.config.path = is_shared ? kit.folder : kit.path;
        has_no_threads = true;
        int status = kit_open(&kit);
        has_no_threads = false;
        assert_int_equal(status, QUIRE_E_SYSTEM);
        assert_non_null(strstr(quire_refusal(), "cannot start a thread"));
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_string_equal(quire_refusal(), "");
        kit_end(&kit);
    }
}

static void test_sizes_in_words(void **state)
{
    char text[32];
    (void)state;
    assert_string_equal(qr_file_size_text(1023, text, sizeof text), "1023 bytes");
    assert_string_equal(qr_file_size_text(1536, text, sizeof text), "1.5 KiB");
    assert_string_equal(qr_file_size_text(UINT64_C(5) << 40, text, sizeof text), "5.0 TiB");
}

/* Nothing is allocated, on any thread, once it works. */
static void test_still(void **state)
{
    file_kit kit;
    int mode = *state == NULL ? 0 : *(int *)*state;
    kit_begin(&kit, 30, KIT_BLOCK);
    kit.config.uring = mode == 0 ? QUIRE_DEFAULT : QUIRE_OFF;
    kit.config.checkpoint_ms = 1;
    if (mode == 2) {
        kit.config.path = kit.folder;
        kit.config.is_shared = 1;
        kit.config.capacity_bytes = 100 * (KIT_BLOCK + 4096);
    }
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    failing = 0;
    calls = 0;
    is_counting = true;
    for (uint32_t i = 0; i < 300; i++) {
        (void)kit_run(&kit, QUIRE_TIER_STORE, i * 10, 20, QUIRE_TIER_DONE);
        (void)kit_load_all(&kit, i * 10, 25);
        (void)kit_run(&kit, QUIRE_TIER_REMOVE, i * 10, 3, QUIRE_TIER_DONE);
    }
    is_counting = false;
    assert_int_equal(calls, 0);
    kit_end(&kit);
}

int main(void)
{
    static int modes[] = {0, 1, 2};
    if (access("/dev/shm", W_OK) == 0) /* it opens hundreds of times: no disk needs to know */
        (void)setenv("TMPDIR", "/dev/shm", 1);
    const struct CMUnitTest tests[] = {
        {.name = "a private file (io_uring)", .test_func = test_private},
        {.name = "a private file (threads)", .test_func = test_private, .initial_state = modes},
        {.name = "a shared directory", .test_func = test_shared},
        {.name = "no room can be reserved", .test_func = test_reserve},
        {.name = "no thread can be started", .test_func = test_no_threads},
        {.name = "sizes in words", .test_func = test_sizes_in_words},
        {.name = "no memory taken (io_uring)", .test_func = test_still, .initial_state = &modes[0]},
        {.name = "no memory taken (threads)", .test_func = test_still, .initial_state = &modes[1]},
        {.name = "no memory taken (shared)", .test_func = test_still, .initial_state = &modes[2]},
    };
    return cmocka_run_group_tests_name("a file tier without memory", tests, NULL, NULL);
}
