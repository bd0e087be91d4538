/* tier/file/test_open.c - the private file's way in: where it lies, whose descriptor it has, and
 * how long its lock is waited for. (Linked so that these calls come here.) */
#define _GNU_SOURCE
#include "tier/file/file_kit.h"

#include "tier/file/open.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

static bool is_input_closed; /* before the next file is opened in its folder */
static int waited_ms = -1;   /* in polls that wait for nothing; -1: they are not counted */
static int let_go_ms;        /* when so long was waited, */
static int holder;           /* this descriptor lets go of its lock */

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, mode_t mode);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_openat(int folder, const char *name, int flags, mode_t mode)
{
    if (is_input_closed)
        (void)close(STDIN_FILENO);
    is_input_closed = false;
    return __real_openat(folder, name, flags, mode);
}

static int lock(int fd, short type)
{
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &whole);
}

/* Time is not spent, only counted. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    if (n > 0 || waited_ms < 0)
        return __real_poll(fds, n, timeout_ms);
    waited_ms += timeout_ms;
    if (waited_ms == let_go_ms)
        assert_int_equal(lock(holder, F_UNLCK), 0);
    return 0;
}

/* ---- a handle ----------------------------------------------------------------- */

static const quire_hooks no_hooks = QUIRE_HOOKS_INIT;

static int open_handle(const file_kit *kit, qr_file_handle *handle)
{
    *handle = (qr_file_handle){.path = kit->path, .hooks = &no_hooks};
    return qr_file_handle_open(handle, QUIRE_OFF);
}

/* A path that leads to a file of its folder, or to none. */
static void expect_open(const char *path, bool is_open)
{
    qr_file_handle handle = {.path = path, .hooks = &no_hooks};
    assert_int_equal(qr_file_handle_open(&handle, QUIRE_OFF), is_open ? QUIRE_OK : QUIRE_E_SYSTEM);
    assert_int_equal(access("slab", F_OK), is_open ? 0 : -1);
    qr_file_handle_close(&handle, true);
    assert_int_equal(access("slab", F_OK), -1);
}

static void test_folders(void **state)
{
    (void)state;
    file_kit kit;
    char here[PATH_MAX];
    kit_begin(&kit, 8, KIT_BLOCK);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(kit.folder), 0);
    expect_open("slab", true);
    expect_open("./slab", true);
    expect_open(kit.path, true);
    expect_open("", false);
    expect_open("./", false);
    expect_open("/", false);
    expect_open("missing/slab", false);
    assert_int_equal(chdir(here), 0);
    kit_end(&kit);
}

/* What was made here goes when opening fails, under descriptor 0 too; what was there stays. */
static void test_failed(void **state)
{
    (void)state;
    for (uint32_t is_zero = 0; is_zero < 2; is_zero++) {
        file_kit kit;
        qr_file_handle handle;
        kit_begin(&kit, 8, KIT_BLOCK);
        int input = fcntl(STDIN_FILENO, F_DUPFD, 3);
        is_input_closed = is_zero == 1 && input >= 0; /* by another thread of the program */
        int status = open_handle(&kit, &handle);
        int fd = handle.fd;
        qr_file_handle_close(&handle, true);
        if (input >= 0) {
            assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
            close(input);
        }
        assert_int_equal(status, QUIRE_OK);
        assert_true(is_zero == 0 || input < 0 || fd == 0);
        assert_int_equal(access(kit.path, F_OK), -1);
        for (uint32_t i = 0; i < 2; i++) { /* the second time it is there */
            assert_int_equal(open_handle(&kit, &handle), QUIRE_OK);
            qr_file_handle_close(&handle, i == 1);
            assert_int_equal(access(kit.path, F_OK), 0);
        }
        kit_end(&kit);
    }
}

/* What is closed is not open: to close it again takes no descriptor from others. */
static void test_closed_twice(void **state)
{
    file_kit kit;
    qr_file_handle handle;
    int others[2];
    (void)state;
    kit_begin(&kit, 8, KIT_BLOCK);
    uint32_t num_files = kit_open_files();
    assert_int_equal(open_handle(&kit, &handle), QUIRE_OK);
    assert_int_equal(kit_open_files(), num_files + 2);
    qr_file_handle_close(&handle, false);
    assert_int_equal(kit_open_files(), num_files);
    assert_int_equal(pipe(others), 0);
    qr_file_handle_close(&handle, false);
    assert_int_equal(kit_open_files(), num_files + 2);
    close(others[0]);
    close(others[1]);
    kit_end(&kit);
}

/* ---- the lock ----------------------------------------------------------------- */

/* Who has the lock may be a process that is about to end: it has half a second for that. */
static void test_the_lock_is_waited_for(void **state)
{
    static const int WHEN[] = {10, 490, 500, 510};
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        file_kit kit;
        qr_file_handle handle;
        kit_begin(&kit, 8, KIT_BLOCK);
        holder = open(kit.path, O_RDWR | O_CREAT, 0600);
        assert_int_equal(lock(holder, F_WRLCK), 0);
        let_go_ms = WHEN[i];
        waited_ms = 0;
        int status = open_handle(&kit, &handle);
        int waited = waited_ms;
        waited_ms = -1;
        qr_file_handle_close(&handle, status != QUIRE_OK);
        close(holder);
        assert_int_equal(status, WHEN[i] <= 500 ? QUIRE_OK : QUIRE_BUSY);
        assert_int_equal(waited, WHEN[i] <= 500 ? WHEN[i] : 500);
        assert_int_equal(access(kit.path, F_OK), 0); /* it is not ours to remove */
        kit_end(&kit);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_closed_twice),
        cmocka_unit_test(test_the_lock_is_waited_for),
    };
    return cmocka_run_group_tests_name("the way to a private file", tests, NULL, NULL);
}
