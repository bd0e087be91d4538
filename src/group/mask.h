/* group/mask.h - which full blocks of a row get keys, in a group that has_mask: windows and states.
 *
 *      window of 2 blocks, block size 4, boundaries at multiples of 16, the prompt ends at token 38
 *
 *      blocks    0   1   2   3 | 4   5   6   7 | 8   9        a later request resumes at a boundary
 *      interval 0                  .   .   x   x              the last one in the prompt alone
 *      interval 16       x   x         .   .   x   x          each multiple of 16 besides
 *
 * With EAGLE the block behind a boundary is looked up and dropped: it is kept too.
 */
#ifndef QR_GROUP_MASK_H
#define QR_GROUP_MASK_H

#include "group/group.h"

/* Which blocks of [first, end) of a row can be hits: the row's blocks, or `masked` with null blocks
 * in place of the others. */
const uint32_t *qr_group_mask(qr_group *group, uint32_t row, uint32_t first, uint32_t end);
/* In a window group that has_mask: the blocks of the row that a hit needs with which the request,
 * of num_tokens tokens, goes on after it lost its blocks. Empty: one of them is gone, or there is
 * no such hit. */
qr_saved_range qr_group_end_blocks(const qr_group *group, uint32_t row, uint32_t num_tokens);

#endif
