/* block/block.h - the record of one KV block: one cache line, ids instead of pointers.
 *
 *      | links, users, hints, ring of its key ... | hash of its key |
 *        32 bytes                                   32 bytes
 *
 *      users    key       queue      state
 *      > 0      any       not in it  active    ('A')
 *      0        yes       in it      cached    ('C')
 *      0        no        in it      empty     ('E')
 *      -        no        not in it  null      ('N'), block 0 alone
 */
#ifndef QR_BLOCK_BLOCK_H
#define QR_BLOCK_BLOCK_H

#include "base/list.h"

#include <quire/config.h>

/* Hashes are 16 or 32 bytes, or several of these joined. */
enum {
    QR_HASH_UNIT = 16,
    QR_BLOCK_HASH_BYTES = 32,
    QR_MAX_HASH_BYTES = 255 * QR_HASH_UNIT,
    QR_MAX_GROUP_ID = 65535
};

typedef struct qr_block {
    qr_link free;      /* in the free queue, as queue.h keeps it */
    uint32_t ref_cnt;  /* users that are requests; holds are in pool.h */
    uint32_t ahead;    /* a hint: the block some places behind it in the free queue, see queue.h;
                          0: not known */
    uint32_t tag;      /* of its key, in the index */
    uint32_t dup_next; /* ring of the blocks with the same key, in the order they were cached; */
    uint32_t dup_prev; /* a block alone is its own ring; meaningless without a key */
    uint16_t group_id; /* of its key */
    uint8_t key_units; /* bytes of its key's hash / QR_HASH_UNIT, 0: no key */
    bool is_first : 1; /* of its key: this one is in the index */
    bool mark : 1;     /* used inside one call, to see a block twice */
    unsigned char hash[QR_BLOCK_HASH_BYTES]; /* of its key, where none of the pool's is longer */
} qr_block;

static inline uint32_t qr_block_key_len(const qr_block *block)
{
    return (uint32_t)block->key_units * QR_HASH_UNIT;
}

static inline bool qr_block_has_key(const qr_block *block)
{
    return block->key_units > 0;
}

_Static_assert(sizeof(qr_block) == 64, "a block record is one cache line");

#endif
