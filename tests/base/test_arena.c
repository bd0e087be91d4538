/* base/test_arena.c - plan and carve agree, pieces are aligned and apart, sizes saturate.
 *
 *      plan    0 ---- 64 -------- 192 ---- 256        carve: the same numbers, with a base
 */
#include "base/arena.h"
#include "base/unit.h"

#include <quire/error.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

static const struct {
    size_t count;
    size_t size;
} PIECES[] = {{1, 1}, {3, 8}, {1, 64}, {65, 1}, {0, 16}, {16, 0}, {7, 12}, {1, 128}};

enum { NUM_PIECES = COUNT(PIECES), ROOM = 1024 + NUM_PIECES * QR_ARENA_GAP };

static _Alignas(QUIRE_ALIGNMENT) unsigned char memory[ROOM];

static size_t take_all(qr_arena *arena, unsigned char **out)
{
    for (size_t i = 0; i < NUM_PIECES; i++)
        out[i] = qr_arena_take(arena, PIECES[i].count, PIECES[i].size);
    return arena->used;
}

static void plan_gives_no_memory(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    unsigned char *pieces[NUM_PIECES];
    take_all(&plan, pieces);
    for (size_t i = 0; i < NUM_PIECES; i++)
        assert_null(pieces[i]);
}

static void plan_counts_whole_alignments(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    assert_int_equal(plan.used, 0);
    qr_arena_take(&plan, 1, 1);
    assert_int_equal(plan.used, 64 + QR_ARENA_GAP);
    qr_arena_take(&plan, 8, 8);
    assert_int_equal(plan.used, 128 + 2 * QR_ARENA_GAP);
    qr_arena_take(&plan, 13, 5);
    assert_int_equal(plan.used, 256 + 3 * QR_ARENA_GAP);
    qr_arena_take(&plan, 0, 8);
    assert_int_equal(plan.used, 256 + 4 * QR_ARENA_GAP);
}

static void plan_equals_carve(void **state)
{
    (void)state;
    unsigned char *pieces[NUM_PIECES];
    qr_arena plan = qr_arena_plan();
    size_t planned = take_all(&plan, pieces);
    qr_arena arena = qr_arena_carve(memory, planned);
    assert_int_equal(take_all(&arena, pieces), planned);
    assert_int_equal(arena.used, arena.size);
}

static void pieces_are_aligned_and_inside(void **state)
{
    (void)state;
    unsigned char *pieces[NUM_PIECES];
    qr_arena arena = qr_arena_carve(memory, ROOM);
    take_all(&arena, pieces);
    for (size_t i = 0; i < NUM_PIECES; i++) {
        size_t bytes = PIECES[i].count * PIECES[i].size;
        assert_int_equal((uintptr_t)pieces[i] % QUIRE_ALIGNMENT, 0);
        assert_true(pieces[i] >= memory && pieces[i] + bytes <= memory + arena.used);
    }
}

static void pieces_do_not_overlap(void **state)
{
    (void)state;
    unsigned char *pieces[NUM_PIECES];
    qr_arena arena = qr_arena_carve(memory, ROOM);
    take_all(&arena, pieces);
    for (size_t i = 0; i < NUM_PIECES; i++)
        memset(pieces[i], (int)i + 1, PIECES[i].count * PIECES[i].size);
    for (size_t i = 0; i < NUM_PIECES; i++)
        for (size_t k = 0; k < PIECES[i].count * PIECES[i].size; k++)
            assert_int_equal(pieces[i][k], i + 1);
}

static void product_that_overflows_saturates(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    assert_null(qr_arena_take(&plan, SIZE_MAX / 2 + 1, 2));
    assert_true(plan.used == SIZE_MAX);
}

static void padding_that_overflows_saturates(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    qr_arena_take(&plan, 1, SIZE_MAX - 10);
    assert_true(plan.used == SIZE_MAX);
}

static void sum_that_overflows_saturates(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    qr_arena_take(&plan, SIZE_MAX / 128 - QR_ARENA_GAP, 64);
    assert_true(plan.used < SIZE_MAX);
    qr_arena_take(&plan, SIZE_MAX / 128 - QR_ARENA_GAP, 64);
    assert_true(plan.used < SIZE_MAX);
    qr_arena_take(&plan, SIZE_MAX / 128, 64);
    assert_true(plan.used == SIZE_MAX);
}

static void saturated_plan_stays_saturated(void **state)
{
    (void)state;
    qr_arena plan = qr_arena_plan();
    qr_arena_take(&plan, SIZE_MAX, SIZE_MAX);
    qr_arena_take(&plan, 1, 1);
    qr_arena_take(&plan, 0, 1);
    assert_true(plan.used == SIZE_MAX);
}

static void seal_ends_the_carving(void **state)
{
    (void)state;
    qr_arena arena = qr_arena_carve(memory, ROOM);
    assert_false(arena.sealed);
    qr_arena_seal(&arena);
    assert_true(arena.sealed);
}

static void fits_wants_size_and_alignment(void **state)
{
    (void)state;
    assert_int_equal(qr_arena_fits(memory, 128, 128), QUIRE_OK);
    assert_int_equal(qr_arena_fits(memory, 129, 128), QUIRE_OK);
    assert_int_equal(qr_arena_fits(memory, 127, 128), QUIRE_E_TOO_SMALL);
    for (size_t off = 1; off < QUIRE_ALIGNMENT; off++)
        assert_int_equal(qr_arena_fits(memory + off, 512, 128), QUIRE_E_ALIGNMENT);
    assert_int_equal(qr_arena_fits(memory + QUIRE_ALIGNMENT, 512, 128), QUIRE_OK);
}

static void hostile_memory_is_never_zero(void **state)
{
    (void)state;
#ifdef QUIRE_HOSTILE
    memset(memory, 0, ROOM);
    qr_arena_carve(memory, ROOM);
    for (size_t i = 0; i < ROOM; i++)
        assert_int_not_equal(memory[i], 0);
#else
    skip(); /* only the hostile build writes to what it carves */
#endif
}

static void bytes_behind_a_piece_are_guarded(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    unsigned char *pieces[NUM_PIECES];
    unsigned char *own = aligned_alloc(QUIRE_ALIGNMENT, ROOM);
    assert_non_null(own);
    qr_arena arena = qr_arena_carve(own, ROOM);
    take_all(&arena, pieces);
    for (size_t i = 0; i < NUM_PIECES; i++) {
        size_t bytes = PIECES[i].count * PIECES[i].size;
        assert_true(__asan_address_is_poisoned(pieces[i] + bytes));
        assert_true(bytes == 0 || !__asan_address_is_poisoned(pieces[i] + bytes - 1));
    }
    qr_arena_carve(own, ROOM);
    assert_null(__asan_region_is_poisoned(own, ROOM));
    free(own);
    arena = qr_arena_carve(memory, ROOM); /* not malloc's */
    take_all(&arena, pieces);
    assert_null(__asan_region_is_poisoned(memory, ROOM));
#else
    skip(); /* only the address sanitizer sees them */
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_gives_no_memory),
        cmocka_unit_test(plan_counts_whole_alignments),
        cmocka_unit_test(plan_equals_carve),
        cmocka_unit_test(pieces_are_aligned_and_inside),
        cmocka_unit_test(pieces_do_not_overlap),
        cmocka_unit_test(product_that_overflows_saturates),
        cmocka_unit_test(padding_that_overflows_saturates),
        cmocka_unit_test(sum_that_overflows_saturates),
        cmocka_unit_test(saturated_plan_stays_saturated),
        cmocka_unit_test(seal_ends_the_carving),
        cmocka_unit_test(fits_wants_size_and_alignment),
        cmocka_unit_test(hostile_memory_is_never_zero),
        cmocka_unit_test(bytes_behind_a_piece_are_guarded),
    };
    return cmocka_run_group_tests_name("base_arena", tests, NULL, NULL);
}
