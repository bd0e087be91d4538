/* base/test_memory.c - the default allocator, who owns a handle's memory, and wiping. */
#include "base/memory.h"
#include "base/unit.h"

#include <quire/error.h>

typedef struct book {
    size_t bytes;
    size_t alignment;
    void *memory;
    unsigned allocs;
    unsigned frees;
    bool refuse;
} book;

static _Alignas(QUIRE_ALIGNMENT) unsigned char room[256];

static void *book_alloc(void *user, size_t bytes, size_t alignment)
{
    book *b = user;
    b->allocs++;
    b->bytes = bytes;
    b->alignment = alignment;
    return b->refuse ? NULL : room;
}

static void book_free(void *user, void *memory, size_t bytes, size_t alignment)
{
    book *b = user;
    b->frees++;
    b->memory = memory;
    assert_int_equal(bytes, b->bytes);
    assert_int_equal(alignment, b->alignment);
}

static bool is_zero(const unsigned char *memory, size_t bytes)
{
    return memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;
}

static void no_allocator_means_the_default(void **state)
{
    (void)state;
    quire_allocator wanted = qr_allocator_default();
    qr_owner owner;
    assert_int_equal(qr_owner_take(&owner, NULL, 100), QUIRE_OK);
    assert_true(owner.allocator.alloc == wanted.alloc && owner.allocator.free == wanted.free);
    qr_owner_release(&owner);
}

static void no_bytes_and_too_many_are_refused(void **state)
{
    (void)state;
    static const size_t WRONG[] = {0, SIZE_MAX};
    book b = {.refuse = false};
    quire_allocator allocator = {.user = &b, .alloc = book_alloc, .free = book_free};
    qr_owner owner;
    qr_arena arena;
    for (size_t i = 0; i < COUNT(WRONG); i++) {
        qr_arena plan = {.used = WRONG[i]};
        assert_int_equal(qr_owner_take(&owner, &allocator, WRONG[i]), QUIRE_E_OVERFLOW);
        assert_int_equal(qr_owner_begin(&owner, NULL, &plan, &arena), QUIRE_E_OVERFLOW);
        assert_int_equal(qr_owner_begin_zeroed(&owner, NULL, &plan, &arena), QUIRE_E_OVERFLOW);
        assert_null(qr_owner_carve(&owner, NULL, WRONG[i]).base);
    }
    assert_int_equal(b.allocs, 0);
    assert_int_equal(qr_owner_take(&owner, &allocator, 1), QUIRE_OK);
    assert_int_equal(b.bytes, 1);
    qr_owner_release(&owner);
}

static void half_an_allocator_is_refused(void **state)
{
    (void)state;
    quire_allocator halves[] = {
        {.user = room}, {.user = room, .alloc = book_alloc}, {.user = room, .free = book_free}};
    qr_owner owner;
    for (size_t i = 0; i < COUNT(halves); i++)
        assert_int_equal(qr_owner_take(&owner, &halves[i], 100), QUIRE_E_ARGUMENT);
}

static void default_memory_is_aligned_and_usable(void **state)
{
    (void)state;
    static const size_t SIZES[] = {1, 63, 64, 65, 4096, 100001, 4 << 20, (5 << 20) + 1};
    quire_allocator allocator = qr_allocator_default();
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        unsigned char *memory = allocator.alloc(allocator.user, SIZES[i], QUIRE_ALIGNMENT);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % QUIRE_ALIGNMENT, 0);
        memset(memory, 1, SIZES[i]);
        allocator.free(allocator.user, memory, SIZES[i], QUIRE_ALIGNMENT);
    }
}

static void allocated_memory_is_zeroed_and_has_bytes(void **state)
{
    (void)state;
    static const size_t SIZES[] = {1, 4096, 4 << 20, (5 << 20) + 1};
    assert_null(qr_alloc(0, 8));
    assert_null(qr_alloc(8, 0));
    assert_null(qr_alloc_raw(0));
    assert_null(qr_alloc_large(0));
    assert_null(qr_realloc(NULL, 0));
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        unsigned char *small = qr_alloc(SIZES[i], 1);
        unsigned char *large = qr_alloc_large(SIZES[i]);
        assert_true(is_zero(small, SIZES[i]));
        assert_memory_equal(large, small, SIZES[i]);
        memset(small, 1, SIZES[i]);
        small = qr_realloc(small, SIZES[i] + 1);
        assert_int_equal(small[SIZES[i] - 1], 1);
        qr_free(small);
        qr_free(large);
    }
}

static void texts_are_copied_with_their_end(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"", "a", "0123456789abcdef0123456"};
    for (size_t i = 0; i < COUNT(TEXTS); i++) {
        char *copy = qr_alloc_text(TEXTS[i]);
        assert_non_null(copy);
        assert_ptr_not_equal(copy, TEXTS[i]);
        assert_string_equal(copy, TEXTS[i]);
        qr_free(copy);
    }
}

static void mapped_pages_are_zeroed(void **state)
{
    (void)state;
    unsigned char *pages = qr_pages_map(8192, 0);
    assert_true(is_zero(pages, 8192));
    qr_pages_unmap(pages, 8192);
    qr_pages_unmap(NULL, 8192);
    assert_null(qr_pages_map(SIZE_MAX / 2, 0));
}

static void large_default_memory_can_have_huge_pages(void **state)
{
    (void)state;
    quire_allocator allocator = qr_allocator_default();
    size_t bytes = 8 << 20;
    void *memory = allocator.alloc(allocator.user, bytes, QUIRE_ALIGNMENT);
    assert_int_equal((uintptr_t)memory % (2 << 20), 0);
    allocator.free(allocator.user, memory, bytes, QUIRE_ALIGNMENT);
}

static void owner_takes_and_gives_back_the_same(void **state)
{
    (void)state;
    book b = {.refuse = false};
    quire_allocator allocator = {.user = &b, .alloc = book_alloc, .free = book_free};
    qr_owner owner;
    assert_int_equal(qr_owner_take(&owner, &allocator, 200), QUIRE_OK);
    assert_true(owner.memory == room);
    assert_int_equal(b.bytes, 200);
    assert_int_equal(b.alignment, QUIRE_ALIGNMENT);
    qr_owner_release(&owner);
    assert_true(b.memory == room);
    assert_int_equal(b.allocs, 1);
    assert_int_equal(b.frees, 1);
}

static void zeroed_memory_is_aligned_and_goes_back(void **state)
{
    (void)state;
    static const size_t SIZES[] = {1, 65, 4096, (5 << 20) + 1};
    book b = {.refuse = false};
    quire_allocator allocator = {.user = &b, .alloc = book_alloc, .free = book_free};
    qr_owner owner;
    memset(room, 7, sizeof room);
    assert_true(qr_owner_carve(&owner, &allocator, 200).base == room);
    assert_true(is_zero(room, 200) && room[200] == 7);
    qr_owner_release(&owner);
    assert_int_equal(b.frees, 1);
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        unsigned char *memory = qr_owner_carve(&owner, NULL, SIZES[i]).base;
        assert_int_equal((uintptr_t)memory % QUIRE_ALIGNMENT, 0);
        assert_true(is_zero(memory, SIZES[i]));
        memset(memory, 1, SIZES[i]);
        qr_owner_release(&owner);
    }
}

static void owner_carves_zeros_or_nothing(void **state)
{
    (void)state;
    book b = {.refuse = true};
    quire_allocator allocator = {.user = &b, .alloc = book_alloc, .free = book_free};
    qr_owner owner;
    qr_arena plan = qr_arena_plan();
    (void)qr_arena_take(&plan, 3, 8);
    assert_null(qr_owner_carve(&owner, &allocator, plan.used).base);
    qr_arena arena = qr_owner_carve(&owner, NULL, plan.used);
    assert_true(is_zero(qr_arena_take(&arena, 3, 8), 24));
    qr_owner_release(&owner);
}

static void owner_may_lie_in_what_it_owns(void **state)
{
    (void)state;
    quire_allocator allocator = qr_allocator_default();
    qr_owner owner;
    assert_int_equal(qr_owner_take(&owner, &allocator, sizeof owner), QUIRE_OK);
    memcpy(owner.memory, &owner, sizeof owner);
    qr_owner_release(owner.memory);
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    book b = {.refuse = true};
    quire_allocator allocator = {.user = &b, .alloc = book_alloc, .free = book_free};
    qr_owner owner;
    assert_int_equal(qr_owner_take(&owner, &allocator, 200), QUIRE_E_NOMEM);
    assert_int_equal(b.frees, 0);
}

static void memory_of_the_callers_is_not_given_back(void **state)
{
    (void)state;
    qr_owner owner = {.memory = NULL};
    qr_owner_release(&owner); /* would call a NULL function */
}

static void wipe_clears_exactly_the_bytes(void **state)
{
    (void)state;
    unsigned char bytes[40];
    memset(bytes, 0xee, sizeof bytes);
    qr_memory_wipe(bytes + 1, 38);
    assert_int_equal(bytes[0], 0xee);
    assert_int_equal(bytes[39], 0xee);
    for (int i = 1; i < 39; i++)
        assert_int_equal(bytes[i], 0);
    qr_memory_wipe(bytes, 0);
    assert_int_equal(bytes[0], 0xee);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_allocator_means_the_default),
        cmocka_unit_test(no_bytes_and_too_many_are_refused),
        cmocka_unit_test(half_an_allocator_is_refused),
        cmocka_unit_test(default_memory_is_aligned_and_usable),
        cmocka_unit_test(allocated_memory_is_zeroed_and_has_bytes),
        cmocka_unit_test(texts_are_copied_with_their_end),
        cmocka_unit_test(mapped_pages_are_zeroed),
        cmocka_unit_test(large_default_memory_can_have_huge_pages),
        cmocka_unit_test(owner_takes_and_gives_back_the_same),
        cmocka_unit_test(zeroed_memory_is_aligned_and_goes_back),
        cmocka_unit_test(owner_carves_zeros_or_nothing),
        cmocka_unit_test(owner_may_lie_in_what_it_owns),
        cmocka_unit_test(no_memory_is_an_error),
        cmocka_unit_test(memory_of_the_callers_is_not_given_back),
        cmocka_unit_test(wipe_clears_exactly_the_bytes),
    };
    return cmocka_run_group_tests_name("base_memory", tests, NULL, NULL);
}
