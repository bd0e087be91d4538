#include "group/checkpoint.h"

bool qr_checkpoint_is_possible(const qr_checkpoint_chunk *c, uint32_t at)
{
    if (c->alignment == 0 || c->start % c->hash_size != 0 || at <= c->start || at >= c->end)
        return false;
    /* The block before the chunk's last one must not be that of its first state. */
    int64_t first = c->start == 0 ? -1 : (int64_t)(c->start - 1) / c->block_size;
    int64_t place = ((int64_t)c->end + c->block_size - 1) / c->block_size - 2;
    return place > first && (uint64_t)c->start + c->hash_size <= at &&
           (at - c->start) % c->alignment == 0;
}
