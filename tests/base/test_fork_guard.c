/* base/test_fork_guard.c - a handle knows the process that made it, and so does one of a child. */
#include "base/fork_guard.h"
#include "base/unit.h"

#include <sys/mman.h>
#include <sys/wait.h>

/* 0: all is as it should be in a child. */
static int look_in_child(const qr_fork_guard *of_parent)
{
    qr_fork_guard own;
    if (!qr_fork_guard_is_child(of_parent))
        return 1;
    qr_fork_guard_init(&own);
    return qr_fork_guard_is_child(&own) || !qr_fork_guard_is_child(of_parent) ? 2 : 0;
}

static void fork_and_look(const qr_fork_guard *guard)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0)
        _exit(look_in_child(guard));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void child_is_told_from_parent(void **state)
{
    (void)state;
    qr_fork_guard a;
    qr_fork_guard b;
    qr_fork_guard_init(&a);
    qr_fork_guard_init(&b);
    assert_true(a.page == b.page);
    fork_and_look(&a);
    fork_and_look(&b);
    assert_false(qr_fork_guard_is_child(&a));
    assert_false(qr_fork_guard_is_child(&b));
}

static bool kernel_clears_pages(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    bool clears = madvise(page, bytes, MADV_WIPEONFORK) == 0;
    assert_int_equal(munmap(page, bytes), 0);
    return clears;
}

/* So that the question is a load, and no call of the system. */
static void a_page_is_used_where_there_is_one(void **state)
{
    (void)state;
    qr_fork_guard guard;
    qr_fork_guard_init(&guard);
    assert_int_equal(guard.page != NULL, kernel_clears_pages());
}

/* Where the kernel does not clear pages. */
static void process_id_will_do(void **state)
{
    (void)state;
    qr_fork_guard guard = {.pid = getpid()};
    assert_false(qr_fork_guard_is_child(&guard));
    fork_and_look(&guard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(child_is_told_from_parent),
        cmocka_unit_test(a_page_is_used_where_there_is_one),
        cmocka_unit_test(process_id_will_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
