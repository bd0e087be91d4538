/* base/test_hooks.c - the world outside through hooks, and configs of other versions.
 *
 *      caller's   [ size | a | b ]             shorter: c is zero, the default
 *      ours       [ size | a | b | c ]
 *      caller's   [ size | a | b | c | d ]     longer: d must be zero
 */
#include "base/hooks.h"
#include "base/refuse.h"
#include "base/unit.h"

#include <quire/error.h>

typedef struct config {
    size_t size;
    uint32_t a;
    uint32_t b;
    uint64_t c;
} config;

static const config UNTOUCHED = {1, 2, 3, 4};

/* ---- configs --------------------------------------------------------------- */

/* Not inlined: a compiler that saw both sides would find the lies about sizes. */
static QR_NOINLINE int read_as_ours(config *ours, const void *callers)
{
    return qr_config_read(ours, sizeof *ours, callers);
}

static void config_of_our_size_is_copied(void **state)
{
    (void)state;
    config callers = {sizeof callers, 5, 6, 7};
    config ours = UNTOUCHED;
    assert_int_equal(read_as_ours(&ours, &callers), QUIRE_OK);
    assert_memory_equal(&ours, &callers, sizeof ours);
}

static void shorter_config_leaves_zeros(void **state)
{
    (void)state;
    config callers = {offsetof(config, c), 5, 6, 7};
    config ours = UNTOUCHED;
    assert_int_equal(read_as_ours(&ours, &callers), QUIRE_OK);
    assert_int_equal(ours.a, 5);
    assert_int_equal(ours.b, 6);
    assert_int_equal(ours.c, 0);
    callers.size = offsetof(config, b); /* no struct of ours ends inside of a word */
    assert_int_equal(read_as_ours(&ours, &callers), QUIRE_E_CONFIG);
}

static void config_of_the_size_alone(void **state)
{
    (void)state;
    size_t callers = sizeof callers;
    config ours = UNTOUCHED;
    assert_int_equal(read_as_ours(&ours, &callers), QUIRE_OK);
    assert_int_equal(ours.a + ours.b + ours.c, 0);
}

static void longer_config_with_zeros_is_fine(void **state)
{
    (void)state;
    struct {
        config known;
        uint64_t news;
    } callers = {{sizeof callers, 5, 6, 7}, 0};
    config ours = UNTOUCHED;
    assert_int_equal(read_as_ours(&ours, &callers), QUIRE_OK);
    assert_int_equal(ours.a, 5);
    assert_int_equal(ours.c, 7);
}

static void longer_config_that_asks_for_news_is_refused(void **state)
{
    (void)state;
    for (size_t i = sizeof(config); i < 2 * sizeof(config); i++) {
        unsigned char callers[2 * sizeof(config)] = {0};
        size_t size = sizeof callers;
        memcpy(callers, &size, sizeof size);
        callers[i] = 1;
        config ours = UNTOUCHED;
        assert_int_equal(read_as_ours(&ours, callers), QUIRE_E_CONFIG);
        assert_memory_equal(&ours, &UNTOUCHED, sizeof ours);
    }
}

static void config_of_no_size_is_refused(void **state)
{
    (void)state;
    static const size_t SIZES[] = {0, 1, sizeof(size_t) - 1, SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        config callers = {SIZES[i], 5, 6, 7};
        config ours = UNTOUCHED;
        assert_int_equal(read_as_ours(&ours, &callers), QUIRE_E_CONFIG);
        assert_memory_equal(&ours, &UNTOUCHED, sizeof ours);
    }
}

/* A larger size is garbage: it would be read to its end. */
static void config_of_more_than_16_times_our_size_is_refused(void **state)
{
    (void)state;
    unsigned char callers[16 * sizeof(config) + 8] = {0};
    config ours = UNTOUCHED;
    size_t size = sizeof callers;
    memcpy(callers, &size, sizeof size);
    assert_int_equal(read_as_ours(&ours, callers), QUIRE_E_CONFIG);
    assert_memory_equal(&ours, &UNTOUCHED, sizeof ours);
    size -= 8;
    memcpy(callers, &size, sizeof size);
    assert_int_equal(read_as_ours(&ours, callers), QUIRE_OK);
    assert_int_equal(ours.size, sizeof ours); /* it may be read again */
}

static void config_null_is_an_argument_error(void **state)
{
    (void)state;
    config ours = UNTOUCHED;
    assert_int_equal(read_as_ours(&ours, NULL), QUIRE_E_ARGUMENT);
    assert_memory_equal(&ours, &UNTOUCHED, sizeof ours);
}

/* ---- hooks ----------------------------------------------------------------- */

typedef struct world {
    uint64_t now_ns;
    int random_result;
    size_t random_bytes;
    quire_log_level level;
    char message[1024];
    unsigned calls;
} world;

static uint64_t world_now(void *user)
{
    world *w = user;
    w->calls++;
    return w->now_ns;
}

static int world_random(void *user, void *out, size_t bytes)
{
    world *w = user;
    w->calls++;
    w->random_bytes = bytes;
    memset(out, 0x5a, bytes);
    return w->random_result;
}

static void world_log(void *user, quire_log_level level, const char *message)
{
    world *w = user;
    w->calls++;
    w->level = level;
    (void)snprintf(w->message, sizeof w->message, "%s", message);
}

static quire_hooks hooks_of(world *w)
{
    return (quire_hooks){
        .user = w, .now_ns = world_now, .random_bytes = world_random, .log = world_log};
}

static void clock_hook_is_asked(void **state)
{
    (void)state;
    world w = {.now_ns = 12345};
    quire_hooks hooks = hooks_of(&w);
    assert_int_equal(qr_now_ns(&hooks), 12345);
    assert_int_equal(w.calls, 1);
}

static void default_clock_goes_forward(void **state)
{
    (void)state;
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    for (size_t i = 0; i < COUNT(hooks.reserved); i++)
        assert_null(hooks.reserved[i]);
    uint64_t before = qr_now_ns(&hooks);
    uint64_t after = before;
    for (int i = 0; i < 10000000 && after == before; i++)
        after = qr_now_ns(&hooks);
    assert_true(after > before && before > 0);
}

static void random_hook_is_asked(void **state)
{
    (void)state;
    world w = {.random_result = 0};
    quire_hooks hooks = hooks_of(&w);
    unsigned char out[3] = {0, 0, 9};
    assert_int_equal(qr_random_bytes(&hooks, out, 2), QUIRE_OK);
    assert_int_equal(w.random_bytes, 2);
    assert_int_equal(out[0], 0x5a);
    assert_int_equal(out[2], 9);
}

static void random_hook_that_fails_is_an_error(void **state)
{
    (void)state;
    static const int RESULTS[] = {1, -1, QUIRE_E_NOMEM};
    for (size_t i = 0; i < COUNT(RESULTS); i++) {
        world w = {.random_result = RESULTS[i]};
        quire_hooks hooks = hooks_of(&w);
        unsigned char out[8];
        assert_int_equal(qr_random_bytes(&hooks, out, sizeof out), QUIRE_E_RANDOM);
    }
}

static void default_random_differs_each_time(void **state)
{
    (void)state;
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    unsigned char a[1000] = {0};
    unsigned char b[1000] = {0};
    assert_int_equal(qr_random_bytes(&hooks, a, sizeof a), QUIRE_OK);
    assert_int_equal(qr_random_bytes(&hooks, b, sizeof b), QUIRE_OK);
    assert_memory_not_equal(a, b, sizeof a);
    assert_memory_not_equal(a + 900, b + 900, 100); /* to the end */
    assert_int_equal(qr_random_bytes(&hooks, a, 0), QUIRE_OK);
}

static void log_hook_gets_level_and_message(void **state)
{
    (void)state;
    world w = {.level = QUIRE_LOG_ERROR};
    quire_hooks hooks = hooks_of(&w);
    qr_log(&hooks, QUIRE_LOG_INFO, "hello, %d times", 3);
    assert_int_equal(w.calls, 1);
    assert_int_equal(w.level, QUIRE_LOG_INFO);
    assert_string_equal(w.message, "hello, 3 times");
    qr_log(&hooks, QUIRE_LOG_INFO, "%02000d", 0); /* a line has an end */
    assert_int_equal(strlen(w.message), 511);
}

static void log_without_hook_does_nothing(void **state)
{
    (void)state;
    quire_hooks hooks = QUIRE_HOOKS_INIT;
    qr_log(&hooks, QUIRE_LOG_ERROR, "no one listens");
    qr_log(NULL, QUIRE_LOG_ERROR, "no one listens");
}

static void no_hooks_mean_the_systems(void **state)
{
    (void)state;
    unsigned char a[16] = {0};
    unsigned char b[16] = {0};
    uint64_t ms = qr_now_ms();
    uint64_t ns = qr_now_ns(NULL);
    assert_true(ms > 0 && ns / 1000000 >= ms);
    assert_int_equal(qr_random_bytes(NULL, a, sizeof a), QUIRE_OK);
    assert_int_equal(qr_random_bytes(NULL, b, sizeof b), QUIRE_OK);
    assert_memory_not_equal(a, b, sizeof a);
}

static void a_sentence_is_cut_where_room_ends(void **state)
{
    (void)state;
    qr_say("%d of %d", 1234, 5678);
    assert_string_equal(quire_refusal(), "1234 of 5678");
    assert_int_equal(qr_fail(QUIRE_BUSY, "%02000d", 7), QUIRE_BUSY);
    assert_int_equal(strlen(quire_refusal()), QR_SENTENCE_BYTES - 1);
    assert_int_equal(quire_refuse(QUIRE_E_RANGE, NULL), QUIRE_E_RANGE);
    assert_string_equal(quire_refusal(), "");
    assert_int_equal(qr_fail_plain(QUIRE_E_NOMEM, "a thing"), QUIRE_E_NOMEM);
    assert_int_equal(qr_fail_plain(QUIRE_E_NOMEM, "another"), QUIRE_E_NOMEM);
    assert_string_equal(quire_refusal(), "a thing: out of memory: the allocator returned NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_of_our_size_is_copied),
        cmocka_unit_test(shorter_config_leaves_zeros),
        cmocka_unit_test(config_of_the_size_alone),
        cmocka_unit_test(longer_config_with_zeros_is_fine),
        cmocka_unit_test(longer_config_that_asks_for_news_is_refused),
        cmocka_unit_test(config_of_no_size_is_refused),
        cmocka_unit_test(config_of_more_than_16_times_our_size_is_refused),
        cmocka_unit_test(config_null_is_an_argument_error),
        cmocka_unit_test(clock_hook_is_asked),
        cmocka_unit_test(default_clock_goes_forward),
        cmocka_unit_test(random_hook_is_asked),
        cmocka_unit_test(random_hook_that_fails_is_an_error),
        cmocka_unit_test(default_random_differs_each_time),
        cmocka_unit_test(log_hook_gets_level_and_message),
        cmocka_unit_test(log_without_hook_does_nothing),
        cmocka_unit_test(no_hooks_mean_the_systems),
        cmocka_unit_test(a_sentence_is_cut_where_room_ends),
    };
    return cmocka_run_group_tests_name("base_hooks", tests, NULL, NULL);
}
