/* tier/slots/naive_slots.h - quire/slots.h with arrays, linear search and copies of everything.
 *
 * Keys are small numbers. Each function reads as its contract does; what is evicted is looked for
 * one by one, and a call that cannot be done puts back a copy of the whole. Nothing here is shared
 * with the library.
 */
#ifndef SLOTS_NAIVE_SLOTS_H
#define SLOTS_NAIVE_SLOTS_H

#include <quire/slots.h>

#include <stdbool.h>

enum {
    NAIVE_KEYS = 64,
    NAIVE_SLOTS = 48,
    NAIVE_LISTS = 4,
    NAIVE_REQUESTS = 12,
    NAIVE_MOST = 24 /* keys in a call */
};

typedef struct naive_key {
    int slot; /* -1: none */
    uint32_t users;
    bool is_ready;
    bool is_named;
    uint32_t uses;    /* S3FIFO */
    uint64_t used_at; /* LOOKAHEAD */
} naive_key;

/* Numbers of keys, the oldest first. */
typedef struct naive_list {
    uint32_t keys[2 * NAIVE_KEYS];
    uint32_t count;
} naive_list;

typedef struct naive_request {
    uint64_t order;
    uint32_t keys[NAIVE_MOST];
    uint32_t n; /* 0: it does not wait */
} naive_request;

typedef struct naive_slots {
    quire_slots_policy policy;
    uint32_t num_slots;
    uint32_t max_expected;
    naive_key keys[NAIVE_KEYS];
    naive_list lists[NAIVE_LISTS];
    naive_request requests[NAIVE_REQUESTS];
    uint32_t num_fresh;
    uint32_t free_slots[NAIVE_SLOTS];
    uint32_t num_free;
    double target;
    uint64_t clock;
} naive_slots;

/* What a call answers, besides its status. */
typedef struct naive_answer {
    uint32_t slot_ids[NAIVE_MOST];
    uint8_t is_new[NAIVE_MOST];
    uint32_t evicted[NAIVE_SLOTS];
    uint32_t num_evicted;
} naive_answer;

void naive_slots_init(naive_slots *s, const quire_slots_config *config);
uint32_t naive_slots_lookup(const naive_slots *s, const uint32_t *keys, uint32_t n);
void naive_slots_touch(naive_slots *s, const uint32_t *keys, uint32_t n);
int naive_slots_prepare_load(naive_slots *s, const uint32_t *keys, uint32_t n,
                             naive_answer *answer);
int naive_slots_complete_load(naive_slots *s, const uint32_t *keys, uint32_t n);
int naive_slots_prepare_store(naive_slots *s, const uint32_t *keys, uint32_t n,
                              naive_answer *answer);
void naive_slots_complete_store(naive_slots *s, const uint32_t *keys, uint32_t n, bool is_good);
int naive_slots_remove(naive_slots *s, uint32_t key);
uint32_t naive_slots_reset(naive_slots *s);
int naive_slots_expect(naive_slots *s, uint32_t request, uint64_t order, const uint32_t *keys,
                       uint32_t n);

#endif
