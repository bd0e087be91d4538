/* tier/slots/test_slots_model.c - slots and naive ones, call by call, with each policy.
 *
 *      program [SEED [STEPS]]
 *
 * After each call its answer and the slot and state of every key are compared; now and then the
 * library walks its structures. Calls name keys that are there, that are not, that are in use, and
 * the same key twice.
 */
#include "base/unit.h"
#include "naive_slots.h"

#include <quire/slots.h>

enum { STEPS = 40000, CASE_STEPS = 800, CHECK_EVERY = 16 };

static uint64_t first_seed;
static uint64_t num_steps = STEPS;

typedef struct pair {
    uint64_t rng;
    quire_slots *slots;
    naive_slots naive;
    uint32_t numbers[NAIVE_MOST];
    quire_tier_key keys[NAIVE_MOST];
    uint32_t n;
    uint64_t num_evicted;
    uint64_t num_refused;
} pair;

static quire_tier_key key_of(uint32_t number)
{
    quire_tier_key key = {.group = number % 2, .rank = number % 3};
    memset(key.hash, (int)(number / 6), sizeof key.hash);
    return key;
}

static uint32_t number_of(const quire_tier_key *key)
{
    uint32_t number = 0;
    quire_tier_key k = key_of(0);
    while (memcmp(&k, key, sizeof k) != 0)
        k = key_of(++number);
    return number;
}

/* Mostly the beginning of a prompt, else anything; sometimes a key twice. */
static void draw_keys(pair *p, uint32_t most)
{
    p->n = unit_random_below(&p->rng, most + 1);
    uint32_t first = unit_random_below(&p->rng, 4) * 12;
    bool is_run = unit_random_below(&p->rng, 4) > 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t number = is_run ? first + i : unit_random_below(&p->rng, NAIVE_KEYS);
        p->numbers[i] = number % NAIVE_KEYS;
        p->keys[i] = key_of(p->numbers[i]);
    }
}

static void check_same(pair *p)
{
    uint64_t cached = 0;
    uint64_t active = 0;
    for (uint32_t i = 0; i < NAIVE_KEYS; i++) {
        const naive_key *key = &p->naive.keys[i];
        quire_tier_key k = key_of(i);
        uint32_t slot = 0;
        uint32_t is_ready = 0;
        int status = quire_slots_find(p->slots, &k, &slot, &is_ready);
        assert_int_equal(status, key->slot >= 0 ? QUIRE_OK : QUIRE_MISS);
        if (key->slot < 0)
            continue;
        assert_int_equal(slot, key->slot);
        assert_int_equal(is_ready, key->is_ready);
        cached += key->is_ready && key->users == 0;
        active += !key->is_ready || key->users > 0;
    }
    quire_usage usage = quire_slots_usage(p->slots);
    assert_int_equal(usage.total, p->naive.num_slots);
    assert_int_equal(usage.cached, cached);
    assert_int_equal(usage.active, active);
    assert_int_equal(usage.empty, usage.total - cached - active);
}

/* ---- calls ----------------------------------------------------------------- */

static void store(pair *p)
{
    naive_answer expected;
    uint32_t slot_ids[NAIVE_MOST];
    uint8_t is_new[NAIVE_MOST];
    quire_tier_key evicted[NAIVE_MOST];
    uint32_t num_evicted = 0;
    draw_keys(p, NAIVE_MOST);
    int want = naive_slots_prepare_store(&p->naive, p->numbers, p->n, &expected);
    int got =
        quire_slots_prepare_store(p->slots, p->keys, p->n, slot_ids, is_new, evicted, &num_evicted);
    assert_int_equal(got, want);
    p->num_refused += want != QUIRE_OK;
    if (want != QUIRE_OK)
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        assert_int_equal(is_new[i], expected.is_new[i]);
        assert_int_equal(slot_ids[i], expected.slot_ids[i]);
    }
    assert_int_equal(num_evicted, expected.num_evicted);
    for (uint32_t i = 0; i < num_evicted; i++)
        assert_int_equal(number_of(&evicted[i]), expected.evicted[i]);
    p->num_evicted += num_evicted;
    if (unit_random_below(&p->rng, 2) == 0)
        return;
    quire_slots_touch(p->slots, p->keys, p->n); /* as an engine does, while it is written */
    naive_slots_touch(&p->naive, p->numbers, p->n);
}

static void load(pair *p)
{
    naive_answer expected;
    uint32_t slot_ids[NAIVE_MOST];
    draw_keys(p, 4);
    int want = naive_slots_prepare_load(&p->naive, p->numbers, p->n, &expected);
    int got = quire_slots_prepare_load(p->slots, p->keys, p->n, slot_ids);
    assert_int_equal(got, want);
    for (uint32_t i = 0; i < p->n && want == QUIRE_OK; i++)
        assert_int_equal(slot_ids[i], expected.slot_ids[i]);
}

/* The slots of the keys that were drawn; one that nobody has for those without. */
static void list_slots(const pair *p, uint32_t *slot_ids)
{
    for (uint32_t i = 0; i < p->n; i++) {
        int slot = p->naive.keys[p->numbers[i]].slot;
        slot_ids[i] = slot >= 0 ? (uint32_t)slot : p->naive.num_slots;
    }
}

/* By their keys, or by their slots. */
static void complete(pair *p)
{
    uint32_t slot_ids[NAIVE_MOST];
    bool by_slot = unit_random_below(&p->rng, 2) == 0;
    if (unit_random_below(&p->rng, 3) == 0) {
        draw_keys(p, 4);
        list_slots(p, slot_ids);
        int got = by_slot ? quire_slots_end_load(p->slots, slot_ids, p->n)
                          : quire_slots_complete_load(p->slots, p->keys, p->n);
        assert_int_equal(got, naive_slots_complete_load(&p->naive, p->numbers, p->n));
        return;
    }
    draw_keys(p, NAIVE_MOST);
    list_slots(p, slot_ids);
    bool is_good = unit_random_below(&p->rng, 6) > 0;
    naive_slots_complete_store(&p->naive, p->numbers, p->n, is_good);
    int got = by_slot ? quire_slots_end_store(p->slots, slot_ids, p->n, is_good)
                      : quire_slots_complete_store(p->slots, p->keys, p->n, is_good);
    assert_int_equal(got, QUIRE_OK);
}

static void expect(pair *p)
{
    draw_keys(p, unit_random_below(&p->rng, 3) == 0 ? 0 : NAIVE_MOST);
    uint32_t request = unit_random_below(&p->rng, NAIVE_REQUESTS);
    uint64_t order = (uint64_t)unit_random_below(&p->rng, 6) * NAIVE_REQUESTS + request;
    int got = quire_slots_expect(p->slots, request, order, p->keys, p->n);
    if (p->naive.policy != QUIRE_SLOTS_LOOKAHEAD)
        assert_int_equal(got, QUIRE_E_DISABLED);
    else
        assert_int_equal(got, naive_slots_expect(&p->naive, request, order, p->numbers, p->n));
}

static void forget(pair *p)
{
    uint32_t number = unit_random_below(&p->rng, NAIVE_KEYS);
    quire_tier_key key = key_of(number);
    if (p->naive.policy != QUIRE_SLOTS_LOOKAHEAD && unit_random_below(&p->rng, 40) == 0)
        assert_int_equal(quire_slots_reset(p->slots), naive_slots_reset(&p->naive));
    else
        assert_int_equal(quire_slots_remove(p->slots, &key), naive_slots_remove(&p->naive, number));
}

static void look_up(pair *p)
{
    uint8_t found[NAIVE_MOST];
    draw_keys(p, NAIVE_MOST);
    assert_int_equal(quire_slots_lookup(p->slots, p->keys, p->n),
                     naive_slots_lookup(&p->naive, p->numbers, p->n));
    quire_slots_lookup_each(p->slots, p->keys, p->n, found);
    for (uint32_t i = 0; i < p->n; i++)
        assert_int_equal(found[i], p->naive.keys[p->numbers[i]].is_ready);
}

/* ---- cases ----------------------------------------------------------------- */

static void step(pair *p)
{
    uint32_t what = unit_random_below(&p->rng, 32);
    if (what < 10) {
        store(p);
    } else if (what < 18) {
        complete(p);
    } else if (what < 22) {
        draw_keys(p, NAIVE_MOST);
        quire_slots_touch(p->slots, p->keys, p->n);
        naive_slots_touch(&p->naive, p->numbers, p->n);
    } else if (what < 25) {
        load(p);
    } else if (what < 29) {
        expect(p);
    } else if (what < 31) {
        look_up(p);
    } else {
        forget(p);
    }
}

static void open_pair(pair *p, quire_slots_policy policy)
{
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.policy = policy;
    config.num_slots = 1 + unit_random_below(&p->rng, NAIVE_SLOTS);
    config.max_expected = unit_random_below(&p->rng, 2) == 0 ? 0 : 40;
    assert_int_equal(quire_slots_create(&config, NULL, &p->slots), QUIRE_OK);
    naive_slots_init(&p->naive, &config);
}

static void compare(quire_slots_policy policy)
{
    static pair p;
    p = (pair){.rng = first_seed + (uint64_t)policy};
    for (uint64_t done = 0; done < num_steps; done++) {
        if (done % CASE_STEPS == 0)
            open_pair(&p, policy);
        step(&p);
        check_same(&p);
        if (done % CHECK_EVERY == 0)
            assert_int_equal(quire_slots_check(p.slots), QUIRE_OK);
        if (done % CASE_STEPS == CASE_STEPS - 1 || done + 1 == num_steps)
            quire_slots_destroy(p.slots);
    }
    printf("%llu steps, %llu evicted, %llu times no space\n", (unsigned long long)num_steps,
           (unsigned long long)p.num_evicted, (unsigned long long)p.num_refused);
    assert_true(p.num_evicted > num_steps / 10 && p.num_refused > num_steps / 1000);
}

static void lru_is_the_naive_one(void **state)
{
    (void)state;
    compare(QUIRE_SLOTS_LRU);
}

static void arc_is_the_naive_one(void **state)
{
    (void)state;
    compare(QUIRE_SLOTS_ARC);
}

static void s3fifo_is_the_naive_one(void **state)
{
    (void)state;
    compare(QUIRE_SLOTS_S3FIFO);
}

static void lookahead_is_the_naive_one(void **state)
{
    (void)state;
    compare(QUIRE_SLOTS_LOOKAHEAD);
}

int main(int argc, char **argv)
{
    first_seed = unit_seed(argc, argv, 9);
    if (argc > 2)
        num_steps = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_is_the_naive_one),
        cmocka_unit_test(arc_is_the_naive_one),
        cmocka_unit_test(s3fifo_is_the_naive_one),
        cmocka_unit_test(lookahead_is_the_naive_one),
    };
    return cmocka_run_group_tests_name("slots_model", tests, NULL, NULL);
}
