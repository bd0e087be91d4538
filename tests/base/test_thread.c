/* base/test_thread.c - a thread has its name, and no signal of the host's. */
#define _GNU_SOURCE
#include "base/thread.h"
#include "base/unit.h"

typedef struct seen {
    char name[16];
    sigset_t blocked;
    pthread_mutex_t is_named; /* held until the name is set */
} seen;

static void *look_around(void *user)
{
    seen *s = user;
    pthread_mutex_lock(&s->is_named);
    (void)pthread_getname_np(pthread_self(), s->name, sizeof s->name);
    (void)pthread_sigmask(SIG_SETMASK, NULL, &s->blocked);
    pthread_mutex_unlock(&s->is_named);
    return s;
}

static void thread_has_a_name_and_no_signals(void **state)
{
    (void)state;
    seen s = {.is_named = PTHREAD_MUTEX_INITIALIZER};
    pthread_t thread;
    void *result = NULL;
    pthread_mutex_lock(&s.is_named);
    assert_true(qr_thread_start(&thread, "quire-test", look_around, &s));
    pthread_mutex_unlock(&s.is_named);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_true(result == &s);
    assert_string_equal(s.name, "quire-test");
    assert_int_equal(sigismember(&s.blocked, SIGINT), 1);
    assert_int_equal(sigismember(&s.blocked, SIGTERM), 1);
    assert_int_equal(sigismember(&s.blocked, SIGUSR1), 1);
}

static void callers_mask_stays(void **state)
{
    (void)state;
    seen s = {.is_named = PTHREAD_MUTEX_INITIALIZER};
    sigset_t mine;
    sigset_t after;
    pthread_t thread;
    (void)sigemptyset(&mine);
    (void)sigaddset(&mine, SIGUSR2);
    (void)pthread_sigmask(SIG_SETMASK, &mine, NULL);
    assert_true(qr_thread_start(&thread, "quire-test", look_around, &s));
    (void)pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGUSR2), 1);
    assert_int_equal(sigismember(&after, SIGINT), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_has_a_name_and_no_signals),
        cmocka_unit_test(callers_mask_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
