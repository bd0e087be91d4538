/* slots.c - slots of a tier: storing with evictions, hits, and what waits.
 *
 *      store     prepare_store + touch + complete_store of new keys, each evicts one
 *      hit       lookup + touch + prepare_load + complete_load of keys that are there
 *      expect    the keys of a waiting request, in place of those that it waited for before
 *
 * All slots are used, calls have 100 keys. The keys of a ring come again when they were evicted
 * long ago. vllm_slots.py does the same with vLLM's CPUOffloadingManager; the check value is made
 * of the slots that some first calls give.
 */
#include "bench.h"

#include <quire/slots.h>

#include <stdlib.h>

#define FEW_SLOTS   10000u
#define MANY_SLOTS  1000000u
#define SLOTS       100000u
#define CALL_KEYS   100u
#define RING        3u /* times as many keys as slots */
#define FIRST_CALLS 20u
#define WAITING     256u

typedef struct slots_bench {
    quire_slots *slots;
    quire_tier_key *keys;
    uint32_t num_slots;
    uint32_t num_keys;
    uint32_t at; /* the next key to store */
    uint64_t random;
    uint64_t check;
    uint32_t slot_ids[CALL_KEYS];
    uint8_t is_new[CALL_KEYS];
} slots_bench;

static int store_next(slots_bench *s)
{
    const quire_tier_key *keys = s->keys + s->at;
    int status =
        quire_slots_prepare_store(s->slots, keys, CALL_KEYS, s->slot_ids, s->is_new, NULL, NULL);
    quire_slots_touch(s->slots, keys, CALL_KEYS);
    status |= quire_slots_complete_store(s->slots, keys, CALL_KEYS, 1);
    s->at = (s->at + CALL_KEYS) % s->num_keys;
    return status;
}

/* Some calls after which all orders differ: of hits, then of keys that are new. */
static void compute_check(slots_bench *s)
{
    s->check = BENCH_CHECK_START;
    for (uint32_t call = 0; call < FIRST_CALLS; call++) {
        const quire_tier_key *hit = s->keys + (uint64_t)call * 7 * CALL_KEYS % s->num_slots;
        quire_slots_touch(s->slots, hit, CALL_KEYS);
        bench_must(store_next(s), "store");
        for (uint32_t i = 0; i < CALL_KEYS; i++)
            s->check = (s->check ^ s->slot_ids[i]) * UINT64_C(0x100000001b3);
    }
}

static slots_bench *new_slots(uint32_t num_slots, quire_slots_policy policy)
{
    slots_bench *s = bench_memory(sizeof *s);
    quire_slots_config config = QUIRE_SLOTS_CONFIG_INIT;
    config.num_slots = num_slots;
    config.policy = policy;
    *s = (slots_bench){.num_slots = num_slots, .num_keys = RING * num_slots, .random = 1};
    s->keys = bench_memory(s->num_keys * sizeof *s->keys);
    for (uint32_t i = 0; i < s->num_keys; i++) {
        for (uint32_t word = 0; word < 4; word++) {
            uint64_t value = bench_random(&s->random);
            for (uint32_t byte = 0; byte < 8; byte++)
                s->keys[i].hash[8 * word + byte] = (unsigned char)(value >> 8 * byte);
        }
        s->keys[i].group = 0;
        s->keys[i].rank = 0;
    }
    bench_must(quire_slots_create(&config, NULL, &s->slots), "quire_slots_create");
    for (uint32_t i = 0; i < num_slots; i += CALL_KEYS)
        bench_must(store_next(s), "store");
    compute_check(s);
    return s;
}

static void *lru_setup(const bench_case *self)
{
    return new_slots(self->size, QUIRE_SLOTS_LRU);
}

static void *arc_setup(const bench_case *self)
{
    return new_slots(self->size, QUIRE_SLOTS_ARC);
}

static void *s3fifo_setup(const bench_case *self)
{
    return new_slots(self->size, QUIRE_SLOTS_S3FIFO);
}

static const quire_tier_key *draw_there(slots_bench *s)
{
    uint32_t back = CALL_KEYS * (1 + (uint32_t)(bench_random(&s->random) % 50));
    return s->keys + (s->at + s->num_keys - back) % s->num_keys;
}

/* With requests that wait for keys stored lately. */
static void *lookahead_setup(const bench_case *self)
{
    slots_bench *s = new_slots(self->size, QUIRE_SLOTS_LOOKAHEAD);
    for (uint32_t i = 0; i < WAITING; i++)
        bench_must(quire_slots_expect(s->slots, i, i, draw_there(s), CALL_KEYS), "expect");
    return s;
}

static uint64_t store_pass(void *state, bench_timer *timer)
{
    slots_bench *s = state;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < FIRST_CALLS; i++)
        status |= store_next(s);
    bench_stop(timer, (uint64_t)FIRST_CALLS * CALL_KEYS);
    bench_must(status, "store");
    return s->check;
}

static uint64_t hit_pass(void *state, bench_timer *timer)
{
    slots_bench *s = state;
    int status = QUIRE_OK;
    uint32_t found = 0;
    bench_start(timer);
    for (uint32_t i = 0; i < FIRST_CALLS; i++) {
        const quire_tier_key *keys = draw_there(s);
        found += quire_slots_lookup(s->slots, keys, CALL_KEYS);
        quire_slots_touch(s->slots, keys, CALL_KEYS);
        status |= quire_slots_prepare_load(s->slots, keys, CALL_KEYS, s->slot_ids);
        status |= quire_slots_complete_load(s->slots, keys, CALL_KEYS);
    }
    bench_stop(timer, (uint64_t)FIRST_CALLS * CALL_KEYS);
    bench_must(status, "load");
    bench_must(found == FIRST_CALLS * CALL_KEYS ? QUIRE_OK : QUIRE_MISS, "lookup");
    return s->check;
}

static uint64_t expect_pass(void *state, bench_timer *timer)
{
    slots_bench *s = state;
    int status = QUIRE_OK;
    bench_start(timer);
    for (uint32_t i = 0; i < FIRST_CALLS; i++)
        status |= quire_slots_expect(s->slots, i, WAITING + i, draw_there(s), CALL_KEYS);
    bench_stop(timer, (uint64_t)FIRST_CALLS * CALL_KEYS);
    bench_must(status, "expect");
    return s->check;
}

static void slots_teardown(void *state)
{
    slots_bench *s = state;
    quire_slots_destroy(s->slots);
    free(s->keys);
    free(s);
}

#define CASE(text, of_size, make, what)                                                            \
    {                                                                                              \
        .name = "slots/" text, .unit = "ns/block", .unit_ns = 1, .size = (of_size),                \
        .batch = CALL_KEYS, .setup = make##_setup, .pass = what##_pass, .teardown = slots_teardown \
    }

static const bench_case cases[] = {
    CASE("store/lru", SLOTS, lru, store),
    CASE("store/arc", SLOTS, arc, store),
    CASE("store/s3fifo", SLOTS, s3fifo, store),
    CASE("store/lookahead", SLOTS, lookahead, store),
    CASE("hit/lru", SLOTS, lru, hit),
    CASE("hit/arc", SLOTS, arc, hit),
    CASE("hit/s3fifo", SLOTS, s3fifo, hit),
    CASE("hit/lookahead", SLOTS, lookahead, hit),
    CASE("expect/lookahead", SLOTS, lookahead, expect),
    CASE("scale/10k", FEW_SLOTS, lru, store),
    CASE("scale/1M", MANY_SLOTS, lru, store),
};

bench_group bench_slots_group(void)
{
    return (bench_group){cases, sizeof cases / sizeof *cases};
}
