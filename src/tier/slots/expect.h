/* tier/slots/expect.h - what waiting requests will use, and which of it is needed last.
 *
 *      request 7, order 3     ●─────●─────●          a record for each of its keys
 *      request 9, order 8     ●─────●─────┼─────●
 *                             │     │     │     │
 *      node of a key          A     B     C     D     its records, the soonest first
 *
 *      heap over idle nodes by their soonest record: the furthest order on top, then the deepest
 *
 * A key may be expected before it is stored, and after it was evicted: its node stays known as long
 * as it has a record.
 *
 *      records in use <= max_expected;  heap = expected nodes that are idle
 */
#ifndef QR_TIER_SLOTS_EXPECT_H
#define QR_TIER_SLOTS_EXPECT_H

#include "base/arena.h"
#include "base/list.h"
#include "tier/slots/index.h"

#include <quire/slots.h>

typedef struct qr_expect_record {
    qr_link link; /* of the same key: the one needed sooner, and the one needed later */
    uint32_t node;
    uint32_t request;
    uint32_t position; /* among the request's keys */
    uint32_t before;   /* of the same request; of a free one: the next free one */
} qr_expect_record;

typedef struct qr_expect_request {
    uint64_t id;
    uint64_t order;
    uint32_t last; /* record, from which `before` leads to the first; QR_NIL: the entry is free */
    uint32_t next_free;
} qr_expect_request;

typedef struct qr_expect_node {
    qr_chain records; /* the soonest first; empty: nobody waits for it */
    uint32_t heap_at; /* QR_NIL: not in the heap */
} qr_expect_node;

typedef struct qr_expect {
    qr_expect_record *records;
    qr_expect_request *requests;
    qr_expect_node *nodes; /* NULL: the policy does not look ahead */
    uint32_t *heap;
    qr_buckets index; /* of requests */
    uint32_t max_expected;
    uint32_t num_records;
    uint32_t free_records;
    uint32_t free_requests;
    uint32_t heap_size;
} qr_expect;

void qr_expect_carve(qr_expect *expect, uint32_t num_slots, uint32_t num_nodes,
                     uint32_t max_expected, qr_arena *arena);
void qr_expect_init(qr_expect *expect, uint32_t num_nodes, const uint64_t secret[2]);

static inline bool qr_expect_has(const qr_expect *expect, uint32_t node)
{
    return expect->nodes != NULL && expect->nodes[node].records.first != QR_NIL;
}

/* The entry of a request; QR_NIL. */
uint32_t qr_expect_find(const qr_expect *expect, uint64_t request);
/* A new entry, without records; there is one while there are records. */
uint32_t qr_expect_open(qr_expect *expect, uint64_t request, uint64_t order);
/* Gives back an entry without records. */
void qr_expect_close(qr_expect *expect, uint32_t entry);
/* One key more of a request; there is a record. */
void qr_expect_add(qr_expect *expect, uint32_t entry, uint32_t node, uint32_t position);
/* One key less, the deepest; returns its node. */
uint32_t qr_expect_drop_last(qr_expect *expect, uint32_t entry);

/* The node that is needed last. */
uint32_t qr_expect_top(const qr_expect *expect);
void qr_expect_heap_add(qr_expect *expect, uint32_t node);
void qr_expect_heap_remove(qr_expect *expect, uint32_t node);
/* Its soonest record is another one. */
void qr_expect_heap_move(qr_expect *expect, uint32_t node);

bool qr_expect_is_valid(const qr_expect *expect, uint32_t num_nodes);

#endif
