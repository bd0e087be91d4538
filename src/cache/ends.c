/* cache/ends.c - keys where a request ends or is preempted (rule retains_ends).
 *
 *      window of 2 blocks, the prompt ends in block 2, the request is preempted in block 7
 *
 *      blocks    0   1   2   3   4   5   6   7
 *      keys      x   x       .   .   x   x           5 and 6: the request goes on there, and so does
 *                                                    a later one whose prompt begins with all of it
 *
 * The window moves on while a block is filled. If it is no multiple of the block size, its first
 * block may be gone before the last one is full: then there are no such keys.
 */
#include "cache/cache.h"

uint32_t qr_cache_first_hash_of_end(const quire_cache *cache, uint32_t row, uint32_t num_tokens)
{
    uint32_t first = QR_NIL;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        qr_saved_range range = qr_group_end_blocks(group, row, num_tokens);
        uint32_t hash = (range.first > 0 ? range.first - 1 : 0) * group->hashes_joined;
        if (range.first < range.end && hash < first)
            first = hash;
    }
    /* In every group a block begins there. */
    uint32_t joined = cache->block_multiple / cache->hash_block_size;
    return first == QR_NIL ? QR_NIL : first / joined * joined;
}

void qr_cache_cache_end(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                        uint32_t num_tokens)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        qr_group *group = &cache->groups[g];
        qr_saved_range range = qr_group_end_blocks(group, row, num_tokens);
        if (range.first < range.end)
            qr_group_cache_end(group, row, request, range);
    }
    qr_assert_expensive(qr_cache_is_valid(cache));
}
