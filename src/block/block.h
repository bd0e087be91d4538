/* block/block.h - the record of one KV block: 32 bytes, ids instead of pointers.
 *
 *      ref_cnt  key_len   queue      state
 *      > 0      any       not in it  active    ('A')
 *      0        > 0       in it      cached    ('C')
 *      0        0         in it      empty     ('E')
 *      -        0         not in it  null      ('N'), block 0 alone
 */
#ifndef QR_BLOCK_BLOCK_H
#define QR_BLOCK_BLOCK_H

#include "base/list.h"

#include <quire/config.h>

typedef struct qr_block {
    qr_link free;      /* in the free queue; first, as base/list.h asks */
    uint32_t ref_cnt;  /* users */
    uint32_t tag;      /* of its key, in the index */
    uint32_t dup_next; /* ring of the blocks with the same key, in the order they were cached; */
    uint32_t dup_prev; /* a block alone is its own ring; meaningless without a key */
    uint32_t group_id; /* of its key */
    uint16_t key_len;  /* bytes of its key's hash, 0: no key */
    bool is_first;     /* of its key: this one is in the index */
    bool mark;         /* used inside one call, to see a block twice */
} qr_block;

_Static_assert(sizeof(qr_block) == 32, "a block record is half a cache line");

#endif
