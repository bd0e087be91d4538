/* group/ring.c - circular buffers: one block for each request, written over and over, never cached.
 *
 *      tokens   0 1 2 3 4 5 6 7 8 9          block size 4: the block holds the newest four
 *      block            [ 8 9 6 7 ]
 *
 * The first allocation takes the block, whatever it is for: new tokens or tokens of a load.
 */
#include "group/group.h"

static bool has_block(const qr_group *group, uint32_t row)
{
    return row != QR_NIL && group->rows[row].num_blocks > 0;
}

static qr_need ring_need(const qr_group *group, const qr_want *want)
{
    uint32_t n = !has_block(group, want->row);
    return (qr_need){.predicted = n, .taken = n};
}

static uint32_t ring_allocate(qr_group *group, const qr_want *want)
{
    if (has_block(group, want->row))
        return 0;
    qr_group_take(group, want->row, 1);
    return 1;
}

const qr_group_ops qr_ring_ops = {
    .need = ring_need,
    .allocate = ring_allocate,
};
