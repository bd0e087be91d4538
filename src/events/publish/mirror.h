/* events/publish/mirror.h - which keys the pool has, as the publisher's thread knows it.
 *
 *      block    1      2      3      4      |  5 (of block 3)    what each block was told to hold
 *      key      a      -      b      a      |  c
 *      table    a ──► 1 ⇄ 4     b ──► 3     c ──► 5             a key, and the ring of its places
 *
 * A place is a block, or stands behind the blocks for one more key of a block: in the profile of
 * vLLM 0.32 a block may hold several keys. Several blocks may hold one key. A router asks only
 * whether a prefix is there, so it is told of a key when its first block comes and when its last
 * one goes: what qr_mirror_set and qr_mirror_remove answer.
 *
 *      keys <= places <= num_blocks + num_extras;  all memory is taken at creation
 */
#ifndef QR_EVENTS_PUBLISH_MIRROR_H
#define QR_EVENTS_PUBLISH_MIRROR_H

#include "base/buckets.h"

#include <quire/hash.h>

/* A place in the ring of its key. */
typedef struct qr_mirror_place {
    uint32_t next;
    uint32_t prev;
    uint32_t group; /* QR_NIL: it holds no key */
} qr_mirror_place;

/* Of a block: the first place of its further keys. Of such a place: the next of them, or the next
 * free one, and the block. 0: none. */
typedef struct qr_mirror_link {
    uint32_t next;
    quire_block owner;
} qr_mirror_link;

/* What all keys of a group have in common. */
typedef struct qr_mirror_group {
    uint32_t block_size;
    uint32_t hash_len;
} qr_mirror_group;

typedef struct qr_mirror {
    uint32_t num_blocks;
    uint32_t num_places; /* blocks, and places for further keys */
    uint32_t num_groups;
    uint32_t hash_bytes;
    uint32_t num_held;   /* places that hold a key */
    uint32_t num_keys;   /* different ones */
    uint32_t first_free; /* place for a further key; 0: none */
    qr_mirror_place *places;
    qr_mirror_link *links; /* NULL without further keys */
    qr_mirror_group *groups;
    unsigned char *hashes; /* hash_bytes for each place */
    qr_buckets index;      /* of the key's first place; the null block has no key */
} qr_mirror;

typedef struct qr_mirror_config {
    uint32_t num_blocks;
    uint32_t num_extras; /* further keys of all blocks together; 0: a block has one key */
    uint32_t num_groups;
    uint32_t hash_bytes; /* of the longest key */
} qr_mirror_config;

/* QUIRE_E_NOMEM. */
int qr_mirror_create(const qr_mirror_config *config, qr_mirror **mirror_out);
void qr_mirror_destroy(qr_mirror *mirror);

typedef enum qr_mirror_change {
    QR_MIRROR_SAME,   /* the block held this key already */
    QR_MIRROR_FIRST,  /* no other block holds it */
    QR_MIRROR_COPY,   /* another one does too */
    QR_MIRROR_REFUSED /* no such block, group or length of a key, or no room for one more key */
} qr_mirror_change;

/* A key of one block, and how long a block of its group is (a partial key is shorter). */
typedef struct qr_mirror_key {
    uint32_t group;
    uint32_t block_size;
    quire_bytes hash;
} qr_mirror_key;

/* Notes that a block holds a key. Without further keys, one that it held before must have been
 * removed. */
qr_mirror_change qr_mirror_set(qr_mirror *mirror, quire_block block, const qr_mirror_key *key);

/* Whether the place holds a key, and which; the hash is valid until the next change. */
int qr_mirror_get(const qr_mirror *mirror, uint32_t place, qr_mirror_key *key);
/* The block whose key the place holds. */
quire_block qr_mirror_owner(const qr_mirror *mirror, uint32_t place);

/* Notes that a block does not have this key any more. FIRST: it was the last with it; COPY: another
 * one still holds it; SAME: it did not have it. */
qr_mirror_change qr_mirror_remove(qr_mirror *mirror, quire_block block, const qr_mirror_key *key);

void qr_mirror_forget(qr_mirror *mirror);

/* The next place after `after` (0: from the start) that holds a key of the group; 0: no more. With
 * every_copy 0 just one for each key. */
uint32_t qr_mirror_next(const qr_mirror *mirror, uint32_t after, uint32_t group,
                        uint32_t every_copy);

#endif
