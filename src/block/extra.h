/* block/extra.h - extra keys: a block whose content several keys name.
 *
 *      records   [0] [1] ... [n-1]   [n]        [n+1] [n+2] ...
 *                the blocks          sentinel   extra keys, with the same fields
 *
 *      block 7   key "at 64 tokens"             heads[7].first -> n+2 "at 48 tokens" -> n+1 "at 32"
 *
 * A block of 64 tokens whose prompt ended after 48 of them can be named by either length. Its own
 * record has one key; each further one has a record of its own behind the blocks', in the same
 * index. So keys count once however many blocks have them, and a key's ring has blocks and extras.
 *
 * A pool without extra keys has heads == NULL and none of these records.
 *
 *      a block with extra keys has a key of its own;   used + free extras = num_extras
 */
#ifndef QR_BLOCK_EXTRA_H
#define QR_BLOCK_EXTRA_H

#include "block/map.h"

typedef struct qr_extra_head {
    uint32_t first; /* extra key that the block got first, 0: none */
    uint32_t
        num_tokens; /* that the block's own key stands for, where it is a partial one; else 0 */
} qr_extra_head;

typedef struct qr_extras {
    qr_extra_head *heads; /* of each block */
    uint32_t *owners;     /* of each extra: the block; of a free one: 0 */
    uint32_t *nexts;      /* of each extra: the block's next extra, or the next free one; 0: none */
    uint32_t base;        /* id of the first extra */
    uint32_t num_extras;
    uint32_t first_free; /* id, 0: none */
} qr_extras;

void qr_extras_carve(qr_extras *extras, qr_arena *arena, uint32_t num_blocks, uint32_t num_extras);
/* All are free; keys are taken out of the index by the caller. */
void qr_extras_clear(qr_extras *extras);

static inline uint32_t qr_extras_next(const qr_extras *extras, uint32_t extra)
{
    return extras->nexts[extra - extras->base];
}

/* The block that a lookup has found, by its own or by an extra key. */
static inline uint32_t qr_extras_owner(const qr_extras *extras, uint32_t found)
{
    bool is_extra = extras->heads != NULL && found >= extras->base;
    return QR_UNLIKELY(is_extra) ? extras->owners[found - extras->base] : found;
}

/* Whether the block has this key, as its own or as an extra one. */
bool qr_extras_has_key(const qr_extras *extras, const qr_map *map, uint32_t block, qr_key key);
/* One more key for a block that has one; false, and no change, where no record is free. */
bool qr_extras_add(qr_extras *extras, qr_map *map, uint32_t block, qr_key key);
/* Takes the block's first extra key off its list; the caller takes it out of the index. */
void qr_extras_drop_first(qr_extras *extras, uint32_t block);

bool qr_extras_is_valid(const qr_extras *extras, const qr_map *map);

#endif
