/* model/test_oom.c - out of memory, too little memory, crooked memory; for every kind of handle.
 *
 *      create      alloc call 1, 2, ... fails, until none does:  QUIRE_E_NOMEM, nothing leaked
 *      create_in   [guard][  every size below the needed one  ][guard]:  QUIRE_E_TOO_SMALL, not a
 *                  byte written;  the needed size: a working handle, and the guards are whole
 *
 * The second half, fuzzed configs, is in config_fuzz.c.
 */
#include "config_fuzz.h"
#include "handle_kind.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD_BYTES = 128, PATTERN = 0x5a };

/* Memory of some size between two guards, all of it filled with a pattern. */
typedef struct guarded {
    unsigned char *all;
    unsigned char *memory;
    size_t bytes;
} guarded;

static guarded guarded_new(size_t bytes)
{
    size_t rounded = (bytes + QUIRE_ALIGNMENT - 1) / QUIRE_ALIGNMENT * QUIRE_ALIGNMENT;
    guarded g = {aligned_alloc(QUIRE_ALIGNMENT, rounded + 2 * GUARD_BYTES), NULL, bytes};
    assert_non_null(g.all);
    memset(g.all, PATTERN, rounded + 2 * GUARD_BYTES);
    g.memory = g.all + GUARD_BYTES;
    return g;
}

static bool is_pattern(const unsigned char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == PATTERN && memcmp(bytes, bytes + 1, len - 1) == 0);
}

static bool guards_whole(const guarded *g)
{
    return is_pattern(g->all, GUARD_BYTES) && is_pattern(g->memory + g->bytes, GUARD_BYTES);
}

static bool is_no_handle(const void *handle)
{
    return handle == NULL || handle == untouched();
}

/* ---- create ------------------------------------------------------------- */

static void every_allocation_fails_once(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        int status = QUIRE_E_NOMEM;
        uint32_t failed = 0;
        for (uint32_t n = 1; status != QUIRE_OK; n++) {
            ledger book = {.fail_at = n};
            quire_allocator allocator = ledger_allocator(&book);
            void *handle = untouched();
            status = kind->create(kind->config, &allocator, &handle);
            if (status != QUIRE_OK) {
                assert_int_equal(status, QUIRE_E_NOMEM);
                assert_true(is_no_handle(handle));
                assert_int_equal(book.live, 0);
                failed++;
                continue;
            }
            assert_int_equal(book.calls, 1); /* exactly one allocation */
            kind->destroy(handle);
            assert_int_equal(book.live, 0);
        }
        assert_int_equal(failed, 1);
    }
}

static void destroy_gives_back_what_create_took(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        ledger book = {0};
        quire_allocator allocator = ledger_allocator(&book);
        void *handle = untouched();
        assert_int_equal(kind->create(kind->config, &allocator, &handle), QUIRE_OK);
        memset(&allocator, 0, sizeof allocator); /* the handle keeps its own copy */
        assert_int_equal(book.last_bytes, kind->bytes(kind->config));
        assert_int_equal(book.last_alignment, QUIRE_ALIGNMENT);
        assert_true(kind->works(handle));
        assert_int_equal(book.calls, 1); /* work does not allocate */
        kind->destroy(handle);
        assert_false(book.wrong_free);
        assert_int_equal(book.live, 0);
        kind->destroy(NULL);
    }
}

static void default_allocator_works(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        void *handle = untouched();
        assert_int_equal(all_kinds[k].create(all_kinds[k].config, NULL, &handle), QUIRE_OK);
        assert_true(all_kinds[k].works(handle));
        all_kinds[k].destroy(handle);
    }
}

static int no_random(void *user, void *out, size_t bytes)
{
    (void)user;
    (void)out;
    (void)bytes;
    return 1;
}

static void failed_random_leaks_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        if (kind->hooks_offset == 0)
            continue;
        _Alignas(16) unsigned char config[MAX_CONFIG_BYTES];
        quire_hooks hooks = {.random_bytes = no_random};
        memcpy(config, kind->config, kind->config_bytes);
        memcpy(config + kind->hooks_offset, &hooks, sizeof hooks);
        ledger book = {0};
        quire_allocator allocator = ledger_allocator(&book);
        void *handle = untouched();
        assert_int_equal(kind->create(config, &allocator, &handle), QUIRE_E_RANDOM);
        assert_true(is_no_handle(handle));
        assert_false(book.wrong_free);
        assert_int_equal(book.live, 0);
    }
}

/* ---- create_in ---------------------------------------------------------- */

static void too_small_is_refused_unwritten(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        size_t needed = kind->bytes(kind->config);
        guarded g = guarded_new(needed);
        for (size_t bytes = 0; bytes < needed; bytes++) {
            void *handle = untouched();
            int status = kind->create_in(g.memory, bytes, kind->config, &handle);
            assert_int_equal(status, QUIRE_E_TOO_SMALL);
            assert_true(is_no_handle(handle));
        }
        assert_true(guards_whole(&g) && is_pattern(g.memory, g.bytes));
        free(g.all);
    }
}

static void needed_size_is_enough(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        size_t needed = kind->bytes(kind->config);
        const size_t spare[] = {0, 1, 63, 64, 1000};
        for (size_t i = 0; i < sizeof spare / sizeof spare[0]; i++) {
            guarded g = guarded_new(needed + spare[i]);
            void *handle = untouched();
            assert_int_equal(kind->create_in(g.memory, g.bytes, kind->config, &handle), QUIRE_OK);
            assert_true(kind->works(handle));
            kind->destroy(handle);
            assert_true(guards_whole(&g));
            free(g.all);
        }
    }
}

static void crooked_memory_is_refused_unwritten(void **state)
{
    (void)state;
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        size_t needed = kind->bytes(kind->config);
        guarded g = guarded_new(needed + QUIRE_ALIGNMENT);
        for (size_t shift = 1; shift < QUIRE_ALIGNMENT; shift++) {
            void *handle = untouched();
            int status = kind->create_in(g.memory + shift, needed, kind->config, &handle);
            assert_int_equal(status, QUIRE_E_ALIGNMENT);
            assert_true(is_no_handle(handle));
        }
        assert_true(guards_whole(&g) && is_pattern(g.memory, g.bytes));
        free(g.all);
    }
}

static void null_arguments_are_errors(void **state)
{
    (void)state;
    assert_int_equal(quire_pool_create(all_kinds[0].config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_hasher_create(all_kinds[1].config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_table_create(all_kinds[2].config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_cache_create(all_kinds[3].config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_sched_create(all_kinds[4].config, NULL, NULL), QUIRE_E_ARGUMENT);
    for (size_t k = 0; k < num_kinds; k++) {
        const handle_kind *kind = &all_kinds[k];
        guarded g = guarded_new(kind->bytes(kind->config));
        void *handle = untouched();
        assert_int_equal(kind->bytes(NULL), 0);
        assert_int_equal(kind->create(NULL, NULL, &handle), QUIRE_E_ARGUMENT);
        assert_int_equal(kind->create_in(g.memory, g.bytes, NULL, &handle), QUIRE_E_ARGUMENT);
        assert_int_equal(kind->create_in(NULL, g.bytes, kind->config, &handle), QUIRE_E_ARGUMENT);
        assert_true(is_no_handle(handle));
        assert_true(guards_whole(&g) && is_pattern(g.memory, g.bytes));
        free(g.all);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_fails_once),
        cmocka_unit_test(destroy_gives_back_what_create_took),
        cmocka_unit_test(default_allocator_works),
        cmocka_unit_test(failed_random_leaks_nothing),
        cmocka_unit_test(too_small_is_refused_unwritten),
        cmocka_unit_test(needed_size_is_enough),
        cmocka_unit_test(crooked_memory_is_refused_unwritten),
        cmocka_unit_test(null_arguments_are_errors),
        cmocka_unit_test(config_fuzz_single_fields),
        cmocka_unit_test(config_fuzz_pairs_of_fields),
        cmocka_unit_test(config_fuzz_size_field),
    };
    return cmocka_run_group_tests_name("model_oom", tests, NULL, NULL);
}
