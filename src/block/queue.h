/* block/queue.h - the free queue: blocks without a user, the next to be taken at the head.
 *
 *      head                                                   tail
 *       v                                                      v
 *      [s] <-> 5 <-> 9 <-> 2 <-> ...  <-> 7 <-> 4 <-> (back to [s], the sentinel)
 *       taken, and evicted,                 just freed,
 *       first                               kept longest
 *
 *      num_free = length of the list;  every block is in it at most once
 *
 * Cached blocks that are wanted are kept back: they join behind all others, and only the others are
 * taken. Whoever wants blocks must give some up when the others do not suffice (see pool.h).
 *
 *      [s] <-> 5 <-> 9 <-> 2 <-> ... <-> 7 <-> 4 <-> 6 <-> 1 <-> (back to [s])
 *                     others join here, before end ^     num_kept of them
 *
 * A queue with two ends (is_two_ended) reuses blocks without content first: a block that has no key
 * joins at the head. The blocks of one call keep their order there: the first is the new head.
 *
 *      [s] <-> 8 <-> 3 <-> 5 <-> 9 <-> 2 <-> ... <-> 7 <-> 4 <-> (back to [s])
 *       just freed, no key ^     just freed, with a key ^
 *
 * Links are kept as the difference (XOR) to the ids beside a block: a record of zeros is a block
 * between its two neighbours by id. A new queue is all blocks in the order of their ids, so only
 * the records at its ends are written in fresh memory, and a block that is never used costs none.
 *
 *      links of 4    { prev ^ 3, next ^ 5 }      { 0, 0 }: between 3 and 5
 *
 * In a large pool neighbours in the queue are strangers in memory, and to walk the list means to
 * wait for memory at every step, since each block alone knows the next. So a block that joins the
 * tail is also noted in the block that joined QR_QUEUE_AHEAD before it: when that one is taken,
 * this one is fetched. A hint may be out of date, which costs a useless fetch and nothing else.
 */
#ifndef QR_BLOCK_QUEUE_H
#define QR_BLOCK_QUEUE_H

#include "block/block.h"

enum { QR_QUEUE_AHEAD = QR_AT_A_TIME(32, 2) }; /* a power of two */

typedef struct qr_queue {
    qr_block *blocks; /* num_blocks records and one more, the sentinel */
    uint32_t num_blocks;
    uint32_t num_free;
    uint32_t recent[QR_QUEUE_AHEAD]; /* the last that joined, in a ring */
    uint32_t num_joined;
    uint32_t end;      /* others join before it: the first that is kept back, or the sentinel */
    uint32_t num_kept; /* from there on */
    bool is_two_ended; /* blocks without a key join at the head */
    uint16_t *wanted;  /* of each block: by how many, and QR_QUEUE_KEPT; NULL: nobody wants any */
} qr_queue;

enum { QR_QUEUE_KEPT = 0x8000, QR_QUEUE_MAX_WANTED = 0x7fff };

/* All blocks from first on, in order of their ids; those before it are in no list. Nobody wants
 * any. */
void qr_queue_init(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first);
/* The same over records of zeros: from first on it writes to the first and the sentinel alone. */
void qr_queue_init_zeros(qr_queue *queue, qr_block *blocks, uint32_t num_blocks, uint32_t first);

/* ---- links: QR_NIL, in no list, stands there as it is ---------------------------- */

static inline uint32_t qr_queue_next_of(const qr_block *blocks, uint32_t block)
{
    return blocks[block].free.next ^ (block + 1);
}

static inline uint32_t qr_queue_prev_of(const qr_block *blocks, uint32_t block)
{
    return blocks[block].free.prev ^ (block - 1);
}

static inline void qr_queue_set_next(qr_block *blocks, uint32_t block, uint32_t next)
{
    blocks[block].free.next = next ^ (block + 1);
}

static inline void qr_queue_set_prev(qr_block *blocks, uint32_t block, uint32_t prev)
{
    blocks[block].free.prev = prev ^ (block - 1);
}

static inline void qr_queue_set_links(qr_block *blocks, uint32_t block, uint32_t prev,
                                      uint32_t next)
{
    qr_link_set(&blocks[block].free, prev ^ (block - 1), next ^ (block + 1));
}

/* ---- reading ---------------------------------------------------------------------- */

/* num_blocks, the sentinel, when it is empty. */
static inline uint32_t qr_queue_head(const qr_queue *queue)
{
    return qr_queue_next_of(queue->blocks, queue->num_blocks);
}

/* The block behind one of the queue: for (b = head; b != num_blocks; b = next). */
static inline uint32_t qr_queue_next(const qr_queue *queue, uint32_t block)
{
    return qr_queue_next_of(queue->blocks, block);
}

static inline bool qr_queue_contains(const qr_queue *queue, uint32_t block)
{
    return qr_link_in_list(&queue->blocks[block].free);
}

/* Taking many from the head: the head is kept in hand and written back once, at the end.
 *      for (b = head, i = 0; i < n; i++) { next = qr_queue_take(queue, b); ... b = next; }
 *      qr_queue_take_end(queue, b, n); */
static inline uint32_t qr_queue_take(qr_queue *queue, uint32_t block)
{
    qr_block *b = &queue->blocks[block];
    qr_assert_internal(block != queue->num_blocks);
    uint32_t next = qr_queue_next_of(queue->blocks, block);
    qr_prefetch_write(&queue->blocks[b->ahead]);
    qr_link_clear(&b->free);
    return next;
}

static inline void qr_queue_take_end(qr_queue *queue, uint32_t head, uint32_t n)
{
    qr_queue_set_next(queue->blocks, queue->num_blocks, head);
    qr_queue_set_prev(queue->blocks, head, queue->num_blocks);
    queue->num_free -= n;
    qr_assert_internal(queue->num_kept <= queue->num_free);
}

/* The blocks that can be taken: those that are not kept back. */
static inline uint32_t qr_queue_num_others(const qr_queue *queue)
{
    return queue->num_free - queue->num_kept;
}

/* Joining many at the tail, with the tail in hand:
 *      joining = qr_queue_join_begin(queue);
 *      qr_queue_join(queue, &joining, b), for each; qr_queue_unjoin(&joining) takes the last back
 *      qr_queue_join_end(queue, &joining), if any are left */
typedef struct qr_queue_joining {
    qr_block *blocks; /* copies, which the compiler knows that no store into a record changes */
    uint32_t sentinel;
    uint32_t tail; /* before end */
    uint32_t end;
    uint32_t num_joined;
    uint32_t num_kept; /* of them */
    bool is_two_ended;
    uint32_t num_front; /* those for the head, a chain of their own until the end */
    uint32_t front_first;
    uint32_t front_last;
} qr_queue_joining;

static inline qr_queue_joining qr_queue_join_begin(const qr_queue *queue)
{
    uint32_t sentinel = queue->num_blocks;
    return (qr_queue_joining){.blocks = queue->blocks,
                              .sentinel = sentinel,
                              .tail = qr_queue_prev_of(queue->blocks, queue->end),
                              .end = queue->end,
                              .num_joined = queue->num_joined,
                              .is_two_ended = queue->is_two_ended,
                              .front_last = sentinel};
}

/* Wanted, and with content that can be found. */
static inline bool qr_queue_is_wanted(const qr_queue *queue, uint32_t block)
{
    return (queue->wanted[block] & QR_QUEUE_MAX_WANTED) > 0 &&
           qr_block_has_key(&queue->blocks[block]);
}

static inline void qr_queue_join_kept(qr_queue *queue, qr_queue_joining *joining, uint32_t block)
{
    qr_block *blocks = joining->blocks;
    qr_queue_set_links(blocks, block, joining->tail, joining->end);
    qr_queue_set_next(blocks, joining->tail, block);
    qr_queue_set_prev(blocks, joining->end, block);
    joining->end = block;
    joining->num_kept++;
    queue->wanted[block] |= QR_QUEUE_KEPT;
}

/* Behind those of this call that are for the head too. */
static inline void qr_queue_join_front(qr_queue_joining *joining, uint32_t block)
{
    qr_block *blocks = joining->blocks;
    qr_queue_set_links(blocks, block, joining->front_last, joining->sentinel);
    if (joining->num_front++ == 0)
        joining->front_first = block;
    else
        qr_queue_set_next(blocks, joining->front_last, block);
    joining->front_last = block;
}

static inline void qr_queue_join(qr_queue *queue, qr_queue_joining *joining, uint32_t block)
{
    qr_block *blocks = joining->blocks;
    qr_assert_internal(!qr_link_in_list(&blocks[block].free));
    if (joining->is_two_ended && !qr_block_has_key(&blocks[block])) {
        qr_queue_join_front(joining, block);
        return;
    }
    if (QR_UNLIKELY(queue->wanted != NULL) && qr_queue_is_wanted(queue, block)) {
        qr_queue_join_kept(queue, joining, block);
        return;
    }
    uint32_t place = joining->num_joined++ % QR_QUEUE_AHEAD;
    blocks[queue->recent[place]].ahead = block;
    queue->recent[place] = block;
    qr_queue_set_links(blocks, block, joining->tail, joining->end);
    qr_queue_set_next(blocks, joining->tail, block);
    joining->tail = block;
}

/* Joins n blocks, the last of the row first; nobody wants any. Those beside a block in the row are
 * those beside it in the queue, so its links are written once. Returns how many have a key. */
static inline uint32_t qr_queue_join_row(qr_queue *queue, qr_queue_joining *joining,
                                         const uint32_t *row, uint32_t n)
{
    qr_block *blocks = joining->blocks;
    uint32_t ends = n < QR_QUEUE_AHEAD ? n : QR_QUEUE_AHEAD;
    uint32_t prev = joining->tail;
    uint32_t num_with_key = 0;
    qr_assert_internal(queue->wanted == NULL && n > 0);
    for (uint32_t i = 0; i < ends; i++) {
        uint32_t place = (joining->num_joined + i) % QR_QUEUE_AHEAD;
        blocks[queue->recent[place]].ahead = row[n - 1 - i];
    }
    qr_queue_set_next(blocks, prev, row[n - 1]);
    for (uint32_t i = n; i-- > 0;) {
        uint32_t next = i > 0 ? row[i - 1] : joining->end;
        qr_queue_set_links(blocks, row[i], prev, next);
        num_with_key += qr_block_has_key(&blocks[row[i]]);
        prev = row[i];
    }
    for (uint32_t i = QR_QUEUE_AHEAD; i < n; i++)
        blocks[row[i]].ahead = row[i - QR_QUEUE_AHEAD];
    joining->tail = prev;
    joining->num_joined += n;
    for (uint32_t i = 0; i < ends; i++)
        queue->recent[(joining->num_joined - 1 - i) % QR_QUEUE_AHEAD] = row[i];
    return num_with_key;
}

/* Takes back the last that joined. */
static inline void qr_queue_unjoin(qr_queue *queue, qr_queue_joining *joining, uint32_t block)
{
    qr_block *blocks = joining->blocks;
    if (joining->num_front > 0 && block == joining->front_last) {
        joining->front_last = qr_queue_prev_of(blocks, block);
        joining->num_front--;
        qr_link_clear(&blocks[block].free);
        return;
    }
    if (block == joining->end) { /* it was kept back */
        qr_assert_internal(queue->wanted != NULL);
        queue->wanted[block] &= QR_QUEUE_MAX_WANTED;
        joining->end = qr_queue_next_of(blocks, block);
        joining->num_kept--;
    } else {
        joining->tail = qr_queue_prev_of(blocks, block);
        joining->num_joined--;
    }
    qr_queue_set_next(blocks, joining->tail, joining->end);
    qr_queue_set_prev(blocks, joining->end, joining->tail);
    qr_link_clear(&blocks[block].free);
}

/* The chain for the head, before all others. */
static inline void qr_queue_join_fronts(qr_queue *queue, const qr_queue_joining *joining)
{
    qr_block *blocks = joining->blocks;
    uint32_t sentinel = joining->sentinel;
    uint32_t head = qr_queue_next_of(blocks, sentinel);
    qr_queue_set_next(blocks, joining->front_last, head);
    qr_queue_set_prev(blocks, head, joining->front_last);
    qr_queue_set_prev(blocks, joining->front_first, sentinel);
    qr_queue_set_next(blocks, sentinel, joining->front_first);
    queue->num_free += joining->num_front;
}

static inline void qr_queue_join_end(qr_queue *queue, const qr_queue_joining *joining)
{
    qr_queue_set_prev(queue->blocks, joining->end, joining->tail);
    queue->end = joining->end;
    queue->num_free += joining->num_joined - queue->num_joined + joining->num_kept;
    queue->num_kept += joining->num_kept;
    queue->num_joined = joining->num_joined;
    if (joining->num_front > 0)
        qr_queue_join_fronts(queue, joining);
}

/* Puts a block that is not in the queue at its head. */
static inline void qr_queue_prepend(qr_queue *queue, uint32_t block)
{
    uint32_t head = qr_queue_head(queue);
    qr_assert_internal(!qr_queue_contains(queue, block));
    qr_queue_set_links(queue->blocks, block, queue->num_blocks, head);
    qr_queue_set_next(queue->blocks, queue->num_blocks, block);
    qr_queue_set_prev(queue->blocks, head, block);
    queue->num_free++;
}

static inline bool qr_queue_is_kept(const qr_queue *queue, uint32_t block)
{
    return queue->wanted != NULL && (queue->wanted[block] & QR_QUEUE_KEPT) != 0;
}

/* Takes out a block that is in the queue, from anywhere. */
static inline void qr_queue_remove(qr_queue *queue, uint32_t block)
{
    if (QR_UNLIKELY(queue->num_kept > 0) && qr_queue_is_kept(queue, block)) {
        queue->wanted[block] &= QR_QUEUE_MAX_WANTED;
        queue->num_kept--;
        if (queue->end == block)
            queue->end = qr_queue_next(queue, block);
    }
    uint32_t prev = qr_queue_prev_of(queue->blocks, block);
    uint32_t next = qr_queue_next_of(queue->blocks, block);
    qr_assert_internal(qr_queue_contains(queue, block));
    qr_queue_set_next(queue->blocks, prev, next);
    qr_queue_set_prev(queue->blocks, next, prev);
    qr_link_clear(&queue->blocks[block].free);
    queue->num_free--;
}

/* One more, or one less, wants the block. */
void qr_queue_want(qr_queue *queue, uint32_t block);
void qr_queue_unwant(qr_queue *queue, uint32_t block);

/* A block that is not in the queue, at its tail. */
void qr_queue_append(qr_queue *queue, uint32_t block);

bool qr_queue_is_valid(const qr_queue *queue);

#endif
