/* base/list.h - doubly linked lists inside arrays, linked by index.
 *
 *      array      0        1        2        3        4 = sentinel
 *               +--------+--------+--------+--------+--------+
 *        prev   |   4    |  NIL   |   0    |  NIL   |   2    |      list: 0, 2
 *        next   |   2    |  NIL   |   4    |  NIL   |   0    |      1 and 3 are in no list
 *               +--------+--------+--------+--------+--------+
 *
 * The link is the first field of the element; the list is a ring through a sentinel element, so
 * that no operation has a special case. The functions are inline and get the element's size as a
 * constant, which the compiler folds into the address arithmetic.
 *
 *      e is in a list  <=>  e.next != QR_NIL  <=>  e.prev != QR_NIL
 *      next(prev(e)) = prev(next(e)) = e
 */
#ifndef QR_BASE_LIST_H
#define QR_BASE_LIST_H

#include "base/assert.h"
#include "base/bits.h"

typedef struct qr_link {
    uint32_t prev;
    uint32_t next;
} qr_link;

static inline qr_link *qr_link_at(void *elements, size_t stride, uint32_t index)
{
    return (qr_link *)(void *)((unsigned char *)elements + (size_t)index * stride);
}

static inline bool qr_link_in_list(const qr_link *link)
{
    return link->next != QR_NIL;
}

/* Both at once: one store, since the two lie side by side. */
static inline void qr_link_set(qr_link *link, uint32_t prev, uint32_t next)
{
    qr_store_u64(link, (uint64_t)next << 32 | prev);
}

static inline void qr_link_clear(qr_link *link)
{
    qr_link_set(link, QR_NIL, QR_NIL);
}

/* An empty list: the sentinel alone in its ring. */
static inline void qr_list_init(void *elements, size_t stride, uint32_t sentinel)
{
    qr_link *s = qr_link_at(elements, stride, sentinel);
    s->prev = sentinel;
    s->next = sentinel;
}

/* Puts `index` before `where`; before the sentinel means at the tail. */
static inline void qr_list_insert_before(void *elements, size_t stride, uint32_t where,
                                         uint32_t index)
{
    qr_link *w = qr_link_at(elements, stride, where);
    qr_link *e = qr_link_at(elements, stride, index);
    qr_assert_internal(!qr_link_in_list(e));
    e->prev = w->prev;
    e->next = where;
    qr_link_at(elements, stride, w->prev)->next = index;
    w->prev = index;
}

static inline void qr_list_remove(void *elements, size_t stride, uint32_t index)
{
    qr_link *e = qr_link_at(elements, stride, index);
    qr_assert_internal(qr_link_in_list(e));
    qr_link_at(elements, stride, e->prev)->next = e->next;
    qr_link_at(elements, stride, e->next)->prev = e->prev;
    qr_link_clear(e);
}

/* ---- chains: the same with two ends, where there is no room for a sentinel ------- */

/* Both QR_NIL: empty. The link may lie anywhere in the element: links is that of element 0. */
typedef struct qr_chain {
    uint32_t first;
    uint32_t last;
} qr_chain;

static const qr_chain QR_CHAIN_EMPTY = {QR_NIL, QR_NIL};

/* Puts `index` before `where`; QR_NIL: at the end. */
static inline void qr_chain_insert(qr_chain *chain, qr_link *links, size_t stride, uint32_t where,
                                   uint32_t index)
{
    qr_link *e = qr_link_at(links, stride, index);
    uint32_t *behind = where == QR_NIL ? &chain->last : &qr_link_at(links, stride, where)->prev;
    e->prev = *behind;
    e->next = where;
    *(e->prev == QR_NIL ? &chain->first : &qr_link_at(links, stride, e->prev)->next) = index;
    *behind = index;
}

static inline void qr_chain_remove(qr_chain *chain, qr_link *links, size_t stride, uint32_t index)
{
    const qr_link *e = qr_link_at(links, stride, index);
    *(e->prev == QR_NIL ? &chain->first : &qr_link_at(links, stride, e->prev)->next) = e->next;
    *(e->next == QR_NIL ? &chain->last : &qr_link_at(links, stride, e->next)->prev) = e->prev;
}

#endif
