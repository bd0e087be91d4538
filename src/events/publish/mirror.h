/* events/publish/mirror.h - which keys the pool has, as the publisher's thread knows it.
 *
 *      block    1      2      3      4          what each block was last told to hold
 *      key      a      -      b      a
 *      table    a ──► 1 ⇄ 4     b ──► 3         a key, and the ring of blocks that hold it
 *
 * Several blocks may hold one key. A router asks only whether a prefix is there, so it is told of a
 * key when its first block comes and when its last one goes: what qr_mirror_set and
 * qr_mirror_remove answer.
 *
 *      keys <= blocks <= num_blocks;  all memory is taken at creation
 */
#ifndef QR_EVENTS_PUBLISH_MIRROR_H
#define QR_EVENTS_PUBLISH_MIRROR_H

#include "base/buckets.h"

#include <quire/hash.h>

/* A block of the ring of its key. */
typedef struct qr_mirror_block {
    uint32_t next;
    uint32_t prev;
    uint32_t group; /* QR_NIL: it holds no key */
} qr_mirror_block;

/* What all keys of a group have in common. */
typedef struct qr_mirror_group {
    uint32_t block_size;
    uint32_t hash_len;
} qr_mirror_group;

typedef struct qr_mirror {
    uint32_t num_blocks;
    uint32_t num_groups;
    uint32_t hash_bytes;
    uint32_t num_held; /* blocks that hold a key */
    uint32_t num_keys; /* different ones */
    qr_mirror_block *blocks;
    qr_mirror_group *groups;
    unsigned char *hashes; /* hash_bytes for each block */
    qr_buckets index;      /* of the key's first block; the null block has no key */
} qr_mirror;

/* hash_bytes: of the longest key. QUIRE_E_NOMEM. */
int qr_mirror_create(uint32_t num_blocks, uint32_t num_groups, uint32_t hash_bytes,
                     qr_mirror **mirror_out);
void qr_mirror_destroy(qr_mirror *mirror);

typedef enum qr_mirror_change {
    QR_MIRROR_SAME,   /* the block held this key already */
    QR_MIRROR_FIRST,  /* no other block holds it */
    QR_MIRROR_COPY,   /* another one does too */
    QR_MIRROR_REFUSED /* no such block, group or length of a key */
} qr_mirror_change;

/* A key of one block, and how long a block of its group is. */
typedef struct qr_mirror_key {
    uint32_t group;
    uint32_t block_size;
    quire_bytes hash;
} qr_mirror_key;

/* Notes that a block holds a key. One that it held before must have been removed. */
qr_mirror_change qr_mirror_set(qr_mirror *mirror, quire_block block, const qr_mirror_key *key);

/* Whether the block holds a key, and which; the hash is valid until the next change. */
int qr_mirror_get(const qr_mirror *mirror, quire_block block, qr_mirror_key *key);

/* Notes that a block has no key any more. FIRST: it was the last with its key; COPY: another one
 * still holds it; SAME: it had none. */
qr_mirror_change qr_mirror_remove(qr_mirror *mirror, quire_block block);

void qr_mirror_forget(qr_mirror *mirror);

/* The next block after `after` (0: from the start) that holds a key of the group; 0: no more. With
 * every_copy 0 just one for each key. */
quire_block qr_mirror_next(const qr_mirror *mirror, quire_block after, uint32_t group,
                           uint32_t every_copy);

#endif
