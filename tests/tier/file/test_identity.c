/* tier/file/test_identity.c - a private file whose blocks mean something else: resets and new
 * identities hold in this process and in later ones, also after a crash. */
#include "tier/file/file_kit.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const unsigned char NEXT[QUIRE_FINGERPRINT_BYTES] = {9, 8, 7};

static void begin(file_kit *kit, void **state)
{
    kit_begin(kit, 40, KIT_BLOCK);
    kit->config.uring = *state == NULL ? QUIRE_DEFAULT : QUIRE_OFF;
}

/* Keys [0, 20), in the index on the disk. */
static void store_some(file_kit *kit)
{
    assert_int_equal(kit_open(kit), QUIRE_OK);
    assert_int_equal(kit_run(kit, QUIRE_TIER_STORE, 0, 20, QUIRE_TIER_DONE), 20);
    kit_close(kit);
}

static void test_new_identity(void **state)
{
    file_kit kit;
    unsigned char first[QUIRE_FINGERPRINT_BYTES];
    begin(&kit, state);
    memcpy(first, kit.config.fingerprint, sizeof first);
    store_some(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 20);
    kit_submit(&kit, QUIRE_TIER_LOAD, 0, 20);
    assert_int_equal(quire_tier_set_identity(kit.tier, NEXT), QUIRE_BUSY);
    kit_wait(&kit);
    assert_int_equal(quire_tier_set_identity(kit.tier, NEXT), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    assert_int_equal(kit_run(&kit, QUIRE_TIER_STORE, 10, 5, QUIRE_TIER_DONE), 5);
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_E_CORRUPT); /* of the identity before: refused */
    assert_non_null(strstr(quire_refusal(), "another model or layout"));
    memcpy(kit.config.fingerprint, NEXT, sizeof NEXT);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 5);
    kit_close(&kit);
    memcpy(kit.config.fingerprint, first, sizeof first);
    kit.config.if_other = QUIRE_TIER_FILE_ANEW;
    assert_int_equal(kit_open(&kit), QUIRE_OK); /* or emptied */
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    kit_end(&kit);
}

/* A process resets, or takes a new identity, and ends at once, without closing. */
static void crash_after(file_kit *kit, bool is_reset)
{
    pid_t child = fork();
    if (child == 0) {
        bool is_ok = kit_open(kit) == QUIRE_OK;
        is_ok = is_ok && (is_reset ? quire_tier_reset(kit->tier)
                                   : quire_tier_set_identity(kit->tier, NEXT)) == QUIRE_OK;
        _exit(is_ok ? 0 : 1);
    }
    int result;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
}

/* The system may have the file of the crashed process for a while. */
static int open_after_crash(file_kit *kit)
{
    int status = kit_open(kit);
    for (uint32_t i = 0; i < 60 && status == QUIRE_BUSY; i++)
        status = kit_open(kit);
    return status;
}

static void test_reset_and_crash(void **state)
{
    for (uint32_t i = 0; i < 5; i++) {
        file_kit kit;
        begin(&kit, state);
        store_some(&kit);
        crash_after(&kit, true);
        assert_int_equal(open_after_crash(&kit), QUIRE_OK); /* under the same identity */
        assert_int_equal(kit_load_all(&kit, 0, 20), 0);
        kit_end(&kit);
    }
}

static void test_identity_and_crash(void **state)
{
    for (uint32_t i = 0; i < 5; i++) {
        file_kit kit;
        begin(&kit, state);
        store_some(&kit);
        crash_after(&kit, false);
        assert_int_equal(open_after_crash(&kit), QUIRE_E_CORRUPT);
        memcpy(kit.config.fingerprint, NEXT, sizeof NEXT);
        assert_int_equal(kit_open(&kit), QUIRE_OK);
        assert_int_equal(kit_load_all(&kit, 0, 20), 0);
        kit_end(&kit);
    }
}

/* A reset that does not reach the disk is not one: a crash would bring the blocks back. */
static void test_reset_not_written(void **state)
{
    file_kit kit;
    struct rlimit before;
    begin(&kit, state);
    store_some(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    int status = quire_tier_reset(kit.tier);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, QUIRE_E_SYSTEM);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    assert_int_equal(quire_tier_reset(kit.tier), QUIRE_OK); /* now it can be written */
    kit_close(&kit);
    assert_int_equal(kit_open(&kit), QUIRE_OK);
    assert_int_equal(kit_load_all(&kit, 0, 20), 0);
    kit_end(&kit);
}

#define BOTH(test)                                                                                 \
    {.name = #test " (io_uring)", .test_func = test},                                              \
    {                                                                                              \
        .name = #test " (threads)", .test_func = test, .initial_state = &with_threads              \
    }

int main(void)
{
    static int with_threads;
    const struct CMUnitTest tests[] = {
        BOTH(test_new_identity),
        BOTH(test_reset_and_crash),
        BOTH(test_reset_not_written),
        BOTH(test_identity_and_crash),
    };
    return cmocka_run_group_tests_name("another identity", tests, NULL, NULL);
}
