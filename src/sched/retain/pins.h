/* sched/retain/pins.h - blocks of requests that have ended, kept for their next turn.
 *
 *      finished ──► held ──┬── its time is over
 *                          ├── a request has them all as its hit: the next turn is there
 *                          ├── nobody runs, and one that waits finds no room without them
 *                          └── taken back, or the cache is reset
 *
 * Only blocks that can be found again are kept: full ones, with keys. Each pin has a row of them,
 * in the order in which they would have been freed.
 *
 *      heap          numbers of pins, the one that ends soonest first: a step looks at those only
 *                    whose time is over
 *      by_last       of each block, the pins that end with it, as a list: an admission looks at the
 *                    blocks of its hit, and not at all pins
 *
 * Pins have the numbers 0 to num_pins - 1: the last one takes the number of one that ends.
 */
#ifndef QR_SCHED_RETAIN_PINS_H
#define QR_SCHED_RETAIN_PINS_H

#include "base/arena.h"
#include "base/list.h"

#include <quire/sched.h>

typedef struct qr_pin {
    qr_link link;   /* pins with the same last block, a ring; first, as base/list.h asks */
    uint32_t place; /* in the heap */
    quire_req req;  /* that had the blocks */
    uint64_t ends_ns;
    uint32_t num_blocks;
    uint32_t last_group; /* where the last of its blocks is: the block, and its place in the row */
    uint32_t last_place;
    quire_block last_block;
} qr_pin;

typedef struct qr_pins {
    uint32_t max_pins; /* 0: none are taken */
    uint32_t row_blocks;
    uint32_t num_pins;
    uint32_t num_blocks; /* different ones, in all rows */
    qr_pin *pins;        /* num_pins of them, in no order */
    uint32_t *heap;      /* num_pins numbers: smallest (ends_ns, number) first */
    uint32_t *by_last;   /* of each block: a pin whose last block it is; QR_NIL: none */
    quire_block *rows;   /* max_pins x row_blocks, and one more, inside one call */
    quire_block *spare;  /* row_blocks, inside one call */
    uint32_t *users;     /* of each block: pins that keep it. Only the first of them holds it */
} qr_pins;

static inline quire_block *qr_pins_row(const qr_pins *pins, uint32_t pin)
{
    return pins->rows + (size_t)pin * pins->row_blocks;
}

void qr_pins_carve(qr_pins *pins, qr_arena *arena, const quire_sched_config *config);
void qr_pins_init(qr_pins *pins, const quire_sched_config *config);

/* The request ends, and still has its blocks. */
void qr_pins_keep(quire_sched *sched, uint32_t index);
/* A pin whose fields and row are filled in, with the number num_pins, becomes one of the others. */
void qr_pins_enter(qr_pins *pins);
/* Those whose time is over. */
void qr_pins_expire(quire_sched *sched);
/* The request was admitted with a hit of num_tokens; sched->spans has its blocks. */
void qr_pins_reused(quire_sched *sched, quire_req req, uint32_t num_tokens);
/* Lets the one go that would end soonest; false when there is none. */
bool qr_pins_give_way(quire_sched *sched);
void qr_pins_drop_all(quire_sched *sched);
bool qr_pins_are_valid(const quire_sched *sched);

#endif
