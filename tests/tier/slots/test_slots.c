/* tier/slots/test_slots.c - slots: making them, what they refuse, what each policy evicts first. */
#include "base/unit.h"
#include "model/plain.h"

#include <quire/slots.h>

#include <sys/mman.h>
#include <unistd.h>

enum { FEW = 8, MOST = 64 };

/* ---- memory that runs out -------------------------------------------------- */

static bool has_memory = true;
static uint32_t num_allocations;

void *__real_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    num_allocations++;
    return has_memory ? __real_calloc(count, size) : NULL;
}

void *__wrap_malloc(size_t size)
{
    num_allocations++;
    return has_memory ? __real_malloc(size) : NULL;
}

/* ---- keys ------------------------------------------------------------------ */

static const quire_slots_policy all_policies[] = {QUIRE_SLOTS_LRU, QUIRE_SLOTS_ARC,
                                                  QUIRE_SLOTS_S3FIFO, QUIRE_SLOTS_LOOKAHEAD};

static quire_tier_key key_of(uint32_t number)
{
    quire_tier_key key = {.group = 1};
    memcpy(key.hash, &number, sizeof number);
    return key;
}

static void fill_keys(quire_tier_key *keys, uint32_t first, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        keys[i] = key_of(first + i);
}

static quire_slots *make(quire_slots_policy policy, uint32_t num_slots)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_slots;
    config.policy = policy;
    quire_slots *slots = NULL;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_OK);
    return slots;
}

/* Stores keys [first, first + n) as a whole; returns the status of prepare_store. */
static int put(quire_slots *slots, uint32_t first, uint32_t n)
{
    quire_tier_key keys[MOST];
    uint32_t slot_ids[MOST];
    uint8_t is_new[MOST];
    fill_keys(keys, first, n);
    int status = quire_slots_prepare_store(slots, keys, n, slot_ids, is_new, NULL, NULL);
    if (status == QUIRE_OK)
        assert_int_equal(quire_slots_complete_store(slots, keys, n, 1), QUIRE_OK);
    assert_int_equal(quire_slots_check(slots), QUIRE_OK);
    return status;
}

static bool has(const quire_slots *slots, uint32_t number)
{
    quire_tier_key key = key_of(number);
    return quire_slots_lookup(slots, &key, 1) == 1;
}

static void expect_keys(quire_slots *slots, uint64_t request, uint32_t first, uint32_t n)
{
    quire_tier_key keys[MOST];
    fill_keys(keys, first, n);
    assert_int_equal(quire_slots_expect(slots, request, request, keys, n), QUIRE_OK);
    assert_int_equal(quire_slots_check(slots), QUIRE_OK);
}

/* ---- making ---------------------------------------------------------------- */

static int no_random(void *user, void *out, size_t bytes)
{
    (void)user;
    memset(out, 0, bytes);
    return -1;
}

static void wrong_configs_are_refused(void **state)
{
    (void)state;
    quire_slots *slots = NULL;
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_CONFIG);
    assert_int_equal(quire_slots_bytes(&config), 0);
    config.num_slots = QUIRE_SLOTS_MAX + 1;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_CONFIG);
    config.num_slots = FEW;
    config.size = 3;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_CONFIG);
    config.size = sizeof config;
    config.max_expected = QUIRE_SLOTS_MAX + 1;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_CONFIG);
    config.max_expected = 0;
    config.policy = (quire_slots_policy)4;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_CONFIG);
    config.policy = QUIRE_SLOTS_LRU;
    config.hooks.random_bytes = no_random;
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_E_RANDOM);
    config.hooks.random_bytes = NULL;
    quire_allocator half = {.free = NULL};
    assert_int_equal(quire_slots_create(&config, &half, &slots), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_create(&config, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_create(NULL, NULL, &slots), QUIRE_E_ARGUMENT);
    assert_null(slots);
    quire_slots_destroy(NULL);
}

static void they_fit_the_bytes_asked_for(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all_policies); i++) {
        quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
        config.num_slots = FEW;
        config.policy = all_policies[i];
        size_t bytes = quire_slots_bytes(&config);
        unsigned char *memory = aligned_alloc(QUIRE_ALIGNMENT, bytes);
        assert_non_null(memory);
        memset(memory, 0xa5, bytes); /* nobody may rely on zeros */
        quire_slots *slots = NULL;
        quire_allocator small = quire_allocator_fixed(memory, bytes - 1);
        quire_allocator shifted = quire_allocator_fixed(memory + 1, bytes);
        quire_allocator mine = quire_allocator_fixed(memory, bytes);
        assert_int_equal(quire_slots_create(&config, &small, &slots), QUIRE_E_TOO_SMALL);
        assert_int_equal(quire_slots_create(&config, &shifted, &slots), QUIRE_E_ALIGNMENT);
        assert_int_equal(quire_slots_create(&config, &mine, &slots), QUIRE_OK);
        assert_int_equal(put(slots, 0, FEW), QUIRE_OK);
        assert_int_equal(put(slots, FEW, FEW), QUIRE_OK);
        quire_slots_destroy(slots);
        assert_int_equal(quire_slots_check(slots), QUIRE_E_ARGUMENT);
        free(memory);
    }
}

/* Stores and uses them at random; returns a number made of all that they answer. */
static uint64_t use_at_random(quire_slots *slots, bool looks_ahead)
{
    uint64_t answers = 0;
    uint64_t dice = 1;
    for (uint32_t at = 0; at < 2000; at++) {
        dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint32_t first = (uint32_t)(dice >> 33) % (3 * FEW);
        uint32_t n = 1 + at % 3;
        quire_tier_key keys[MOST];
        uint32_t slot_ids[MOST] = {0};
        uint8_t is_new[MOST];
        fill_keys(keys, first, n);
        if (looks_ahead)
            expect_keys(slots, at % 3, (first + at) % 20, at % 2);
        if (quire_slots_prepare_store(slots, keys, n, slot_ids, is_new, NULL, NULL) == QUIRE_OK)
            assert_int_equal(quire_slots_complete_store(slots, keys, n, at % 7 != 0), QUIRE_OK);
        quire_slots_touch(slots, keys, at % 2);
        if (at % 500 == 499)
            answers += quire_slots_reset(slots);
        assert_int_equal(quire_slots_check(slots), QUIRE_OK);
        for (uint32_t i = 0; i < n; i++)
            answers = answers * 31 + slot_ids[i];
        answers = answers * 31 + quire_slots_usage(slots).cached;
    }
    return answers;
}

/* Whatever lies in the memory: what they answer is what those answer that took their own. */
static void they_do_not_rely_on_zeros(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all_policies); i++) {
        bool looks_ahead = all_policies[i] == QUIRE_SLOTS_LOOKAHEAD;
        quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
        config.num_slots = FEW;
        config.policy = all_policies[i];
        size_t bytes = quire_slots_bytes(&config);
        quire_slots *own = make(all_policies[i], FEW);
        uint64_t answers = use_at_random(own, looks_ahead);
        quire_slots_destroy(own);
        for (uint32_t filler = 0; filler < 256; filler += 0x5a) {
            unsigned char *memory = aligned_alloc(QUIRE_ALIGNMENT, bytes + QUIRE_ALIGNMENT);
            quire_slots *slots = NULL;
            assert_non_null(memory);
            memset(memory, (int)(0xff - filler), bytes + QUIRE_ALIGNMENT); /* 0xff, 0xa5, 0x4b */
            quire_allocator mine = quire_allocator_fixed(memory, bytes);
            assert_int_equal(quire_slots_create(&config, &mine, &slots), QUIRE_OK);
            assert_true(use_at_random(slots, looks_ahead) == answers);
            assert_int_equal(memory[bytes], 0xff - filler); /* nothing behind it is written */
            quire_slots_destroy(slots);
            free(memory);
        }
    }
}

/* Of n pages from here on, those that are in memory. */
static uint64_t count_resident(const void *first, uint64_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t address = (uintptr_t)first & ~(uintptr_t)(page - 1);
    unsigned char *is_there = malloc(n);
    uint64_t count = 0;
    assert_non_null(is_there);
    assert_int_equal(mincore((void *)address, n * page, is_there), 0);
    for (uint64_t i = 0; i < n; i++)
        count += is_there[i] & 1;
    free(is_there);
    return count;
}

/* Those of a large tier are made at once, and cost what is used of them. They lie in one piece,
 * which begins with what is always used. */
static void what_is_not_used_is_not_touched(void **state)
{
    (void)state;
    static const quire_slots_policy policies[] = {QUIRE_SLOTS_LRU, QUIRE_SLOTS_ARC,
                                                  QUIRE_SLOTS_S3FIFO};
#ifdef MODEL_SANITIZED /* its allocator may write into all of it */
    skip();
#endif
    for (size_t i = 0; i < COUNT(policies); i++) {
        quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
        config.num_slots = UINT32_C(4) << 20;
        config.policy = policies[i];
        uint64_t num_pages = quire_slots_bytes(&config) / (uint64_t)sysconf(_SC_PAGESIZE);
        quire_slots *slots = NULL;
        int status = quire_slots_create(&config, NULL, &slots);
        if (status == QUIRE_E_NOMEM) /* of this machine: then it cannot be seen here */
            skip();
        assert_int_equal(status, QUIRE_OK);
        uint64_t num_resident = count_resident(slots, num_pages);
        assert_true(num_resident > 0 && num_resident < num_pages / 10);
        quire_slots_destroy(slots);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = FEW;
    quire_slots *slots = NULL;
    has_memory = false;
    int status = quire_slots_create(&config, NULL, &slots);
    has_memory = true;
    assert_int_equal(status, QUIRE_E_NOMEM);
    assert_null(slots);
}

static void nothing_is_allocated_later(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all_policies); i++) {
        quire_slots *slots = make(all_policies[i], FEW);
        uint32_t before = num_allocations;
        for (uint32_t at = 0; at < 1000; at++) {
            if (all_policies[i] == QUIRE_SLOTS_LOOKAHEAD)
                expect_keys(slots, at % 7, at % 50, at % 2);
            assert_int_equal(put(slots, at * 5 % 97, 3), QUIRE_OK);
        }
        assert_int_equal(num_allocations, before);
        quire_slots_destroy(slots);
    }
}

/* ---- refusing -------------------------------------------------------------- */

static void wrong_calls_change_nothing(void **state)
{
    (void)state;
    quire_slots *slots = make(QUIRE_SLOTS_LRU, FEW);
    quire_tier_key key = key_of(0);
    uint32_t id;
    uint8_t is_new;
    assert_int_equal(quire_slots_lookup(NULL, &key, 1), 0);
    assert_int_equal(quire_slots_lookup(slots, NULL, 1), 0);
    is_new = 9;
    quire_slots_lookup_each(NULL, &key, 1, &is_new);
    quire_slots_lookup_each(slots, NULL, 1, &is_new);
    quire_slots_lookup_each(slots, &key, 1, NULL);
    assert_int_equal(is_new, 9);
    assert_int_equal(quire_slots_find(slots, &key, NULL, NULL), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_find(slots, &key, &id, NULL), QUIRE_MISS);
    assert_int_equal(quire_slots_prepare_load(slots, NULL, 1, &id), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_prepare_load(slots, &key, 1, &id), QUIRE_MISS);
    assert_int_equal(quire_slots_complete_load(slots, &key, 1), QUIRE_MISS);
    assert_int_equal(quire_slots_prepare_store(slots, &key, 1, NULL, &is_new, NULL, NULL),
                     QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_complete_store(slots, &key, 1, 1), QUIRE_OK);
    assert_int_equal(quire_slots_end_store(slots, NULL, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_complete_store(slots, NULL, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_complete_store(NULL, &key, 1, 1), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_end_load(NULL, NULL, 0), QUIRE_E_ARGUMENT);
    assert_int_equal(quire_slots_end_load(slots, NULL, 1), QUIRE_E_ARGUMENT);
    id = UINT32_MAX;
    assert_int_equal(quire_slots_end_load(slots, &id, 1), QUIRE_MISS);
    assert_int_equal(quire_slots_end_store(slots, &id, 1, 1), QUIRE_OK);
    assert_int_equal(quire_slots_remove(slots, &key), QUIRE_MISS);
    assert_int_equal(quire_slots_expect(slots, 1, 1, &key, 1), QUIRE_E_DISABLED);
    assert_int_equal(quire_slots_prepare_store(slots, &key, 1, &id, &is_new, NULL, NULL), QUIRE_OK);
    assert_int_equal(quire_slots_prepare_load(slots, &key, 1, &id), QUIRE_MISS); /* not READY */
    assert_int_equal(quire_slots_remove(slots, &key), QUIRE_BUSY);
    assert_int_equal(quire_slots_complete_store(slots, &key, 1, 1), QUIRE_OK);
    assert_int_equal(quire_slots_complete_load(slots, &key, 1), QUIRE_E_DOUBLE_FREE);
    assert_int_equal(quire_slots_prepare_load(slots, &key, 1, &id), QUIRE_OK);
    assert_int_equal(quire_slots_remove(slots, &key), QUIRE_BUSY);
    assert_int_equal(quire_slots_usage(slots).active, 1);
    assert_int_equal(quire_slots_reset(slots), 1);
    assert_int_equal(quire_slots_complete_load(slots, &key, 1), QUIRE_OK);
    assert_int_equal(quire_slots_reset(slots), 0);
    assert_int_equal(quire_slots_usage(slots).empty, FEW);
    quire_slots_destroy(slots);
}

/* What a call names stays, whatever else has to go: the oldest are among them. */
static void a_call_does_not_evict_its_own_keys(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(all_policies); i++) {
        quire_slots *slots = make(all_policies[i], FEW);
        for (uint32_t key = 0; key < FEW; key++)
            assert_int_equal(put(slots, key, 1), QUIRE_OK);
        assert_int_equal(put(slots, 0, FEW + 1), QUIRE_NO_SPACE); /* one new, none may go */
        for (uint32_t key = 0; key < FEW; key++)
            assert_true(has(slots, key));
        quire_tier_key keys[FEW];
        uint32_t slot_ids[FEW];
        uint8_t is_new[FEW];
        quire_tier_key evicted[FEW];
        uint32_t num_evicted;
        fill_keys(keys, 0, FEW - 2);
        fill_keys(keys + FEW - 2, 100, 2);
        assert_int_equal(
            quire_slots_prepare_store(slots, keys, FEW, slot_ids, is_new, evicted, &num_evicted),
            QUIRE_OK);
        assert_int_equal(num_evicted, 2);
        for (uint32_t key = 0; key < FEW - 2; key++)
            assert_true(has(slots, key) && !is_new[key]);
        assert_false(has(slots, FEW - 1) || has(slots, FEW - 2));
        quire_slots_destroy(slots);
    }
}

/* ---- policies -------------------------------------------------------------- */

static void s3fifo_keeps_what_is_used_again(void **state)
{
    (void)state;
    quire_slots *slots = make(QUIRE_SLOTS_S3FIFO, 20);
    quire_tier_key keys[4];
    fill_keys(keys, 0, 4);
    assert_int_equal(put(slots, 0, 4), QUIRE_OK);
    quire_slots_touch(slots, keys, 4);
    quire_slots_touch(slots, keys, 4);
    for (uint32_t at = 0; at < 100; at++) /* a scan: every key once */
        assert_int_equal(put(slots, 1000 + at, 1), QUIRE_OK);
    assert_int_equal(quire_slots_lookup(slots, keys, 4), 4);
    quire_slots_destroy(slots);
}

/* Keys of 0..3 wait for nobody, of 10..13 for request 7, of 20..23 for request 5, which comes
 * sooner. */
static quire_slots *make_waiting(void)
{
    quire_slots *slots = make(QUIRE_SLOTS_LOOKAHEAD, 12);
    expect_keys(slots, 7, 10, 4); /* before they are stored */
    assert_int_equal(put(slots, 10, 4), QUIRE_OK);
    assert_int_equal(put(slots, 20, 4), QUIRE_OK);
    expect_keys(slots, 5, 20, 4); /* and after */
    assert_int_equal(put(slots, 0, 4), QUIRE_OK);
    return slots;
}

static void lookahead_evicts_what_is_needed_last(void **state)
{
    (void)state;
    quire_slots *slots = make_waiting();
    static const uint32_t order[] = {3, 2, 1, 0, 13, 12, 11, 10, 23, 22, 21};
    quire_tier_key keys[MOST];
    uint32_t slot_ids[MOST];
    uint8_t is_new[MOST];
    quire_tier_key evicted[MOST];
    uint32_t num_evicted;
    fill_keys(keys, 100, COUNT(order));
    assert_int_equal(quire_slots_prepare_store(slots, keys, COUNT(order), slot_ids, is_new, evicted,
                                               &num_evicted),
                     QUIRE_OK);
    assert_int_equal(num_evicted, COUNT(order));
    for (uint32_t i = 0; i < COUNT(order); i++) {
        quire_tier_key key = key_of(order[i]);
        assert_memory_equal(&evicted[i], &key, sizeof key);
    }
    assert_int_equal(quire_slots_check(slots), QUIRE_OK);
    quire_slots_destroy(slots);
}

static void lookahead_forgets_who_no_longer_waits(void **state)
{
    (void)state;
    quire_slots *slots = make_waiting();
    expect_keys(slots, 5, 0, 0);
    assert_int_equal(put(slots, 100, 8), QUIRE_OK); /* in place of 0..3 and 20..23 */
    assert_true(has(slots, 10) && has(slots, 13) && !has(slots, 20) && !has(slots, 0));
    expect_keys(slots, 7, 100, 2); /* instead of 10..13 */
    assert_int_equal(put(slots, 200, 10), QUIRE_OK);
    assert_true(has(slots, 100) && has(slots, 101) && !has(slots, 10));
    quire_slots_destroy(slots);
}

static void lookahead_takes_as_much_as_it_has_room_for(void **state)
{
    (void)state;
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = FEW;
    config.policy = QUIRE_SLOTS_LOOKAHEAD;
    config.max_expected = 3;
    quire_slots *slots;
    quire_tier_key keys[MOST];
    assert_int_equal(quire_slots_create(&config, NULL, &slots), QUIRE_OK);
    fill_keys(keys, 0, FEW);
    assert_int_equal(quire_slots_expect(slots, 1, 1, keys, FEW), QUIRE_FULL);
    assert_int_equal(quire_slots_expect(slots, 2, 2, keys, 1), QUIRE_FULL);
    assert_int_equal(put(slots, 0, FEW), QUIRE_OK);
    assert_int_equal(put(slots, 100, FEW - 3), QUIRE_OK);
    assert_true(has(slots, 0) && has(slots, 2) && !has(slots, 3));
    assert_int_equal(quire_slots_reset(slots), 0); /* what is expected stays so */
    assert_int_equal(put(slots, 0, FEW), QUIRE_OK);
    assert_int_equal(put(slots, 100, FEW - 3), QUIRE_OK);
    assert_true(has(slots, 0) && has(slots, 2) && !has(slots, 3));
    assert_int_equal(quire_slots_expect(slots, 1, 1, NULL, 0), QUIRE_OK);
    assert_int_equal(quire_slots_check(slots), QUIRE_OK);
    quire_slots_destroy(slots);
}

/* ---- telling ----------------------------------------------------------------- */

enum { TOLD_SLOTS = 16 };

typedef struct told_keys {
    bool is_there[TOLD_SLOTS];
    quire_tier_key keys[TOLD_SLOTS];
    uint32_t num_gone;
} told_keys;

static void take_told(void *user, uint32_t slot, const quire_tier_key *key, uint32_t is_there)
{
    told_keys *told = user;
    assert_true(slot < TOLD_SLOTS);
    assert_int_equal(told->is_there[slot], is_there == 0); /* in turns, for each slot */
    if (is_there == 0)
        assert_memory_equal(&told->keys[slot], key, sizeof *key);
    told->is_there[slot] = is_there != 0;
    told->keys[slot] = *key;
    told->num_gone += is_there == 0;
}

static void expect_told(const told_keys *told, const quire_slots *slots)
{
    for (uint32_t i = 0; i < TOLD_SLOTS; i++) {
        const quire_tier_key *key = quire_slots_key_at(slots, i);
        assert_int_equal(told->is_there[i], key != NULL);
        if (key != NULL)
            assert_memory_equal(key, &told->keys[i], sizeof *key);
    }
}

/* Whatever a policy evicts, keeps or is told to forget, the listener knows what is there. */
static void a_listener_knows_what_is_there(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (size_t i = 0; i < COUNT(all_policies); i++) {
        told_keys told = {0};
        quire_slots *slots = make(all_policies[i], TOLD_SLOTS);
        quire_slots_set_listener(slots, take_told, &told);
        for (uint32_t n = 0; n < 3000; n++) {
            uint32_t slot;
            uint8_t is_new;
            uint32_t num_evicted;
            quire_tier_key key;
            uint32_t name = unit_random_below(&random, 3 * TOLD_SLOTS);
            quire_tier_key_of((quire_bytes){&name, sizeof name}, 0, 0, &key);
            switch (unit_random_below(&random, 8)) {
            case 0:
                (void)quire_slots_remove(slots, &key);
                break;
            case 1:
                quire_slots_touch(slots, &key, 1);
                break;
            case 2:
                if (unit_random_below(&random, 20) == 0)
                    (void)quire_slots_reset(slots);
                break;
            default:
                if (quire_slots_prepare_store(slots, &key, 1, &slot, &is_new, NULL, &num_evicted) ==
                        QUIRE_OK &&
                    is_new)
                    (void)quire_slots_end_store(slots, &slot, 1, unit_random_below(&random, 4));
            }
            expect_told(&told, slots);
        }
        assert_true(told.num_gone > 100);
        assert_null(quire_slots_key_at(slots, TOLD_SLOTS));
        assert_null(quire_slots_key_at(NULL, 0));
        quire_slots_set_listener(NULL, take_told, &told);
        quire_slots_set_listener(slots, NULL, NULL);
        (void)quire_slots_reset(slots); /* told to nobody */
        quire_slots_destroy(slots);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_configs_are_refused),
        cmocka_unit_test(they_fit_the_bytes_asked_for),
        cmocka_unit_test(they_do_not_rely_on_zeros),
        cmocka_unit_test(what_is_not_used_is_not_touched),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(nothing_is_allocated_later),
        cmocka_unit_test(wrong_calls_change_nothing),
        cmocka_unit_test(a_call_does_not_evict_its_own_keys),
        cmocka_unit_test(s3fifo_keeps_what_is_used_again),
        cmocka_unit_test(lookahead_evicts_what_is_needed_last),
        cmocka_unit_test(lookahead_forgets_who_no_longer_waits),
        cmocka_unit_test(lookahead_takes_as_much_as_it_has_room_for),
        cmocka_unit_test(a_listener_knows_what_is_there),
    };
    return cmocka_run_group_tests_name("slots", tests, NULL, NULL);
}
