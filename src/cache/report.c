/* cache/report.c - events for blocks that a lookup found, where the request asks for them.
 *
 *      hit of a window group   [ - ][ - ][ 7 ][ 3 ]      the event has four hashes: those of null
 *                                                        blocks count, though nothing is there
 *
 * vLLM emits them as blocks that were stored; here they have a separate kind, since nothing was.
 */
#include "cache/cache.h"

/* The keys of the first n blocks, one behind the other. */
static const unsigned char *list_keys(const qr_group *group, const unsigned char *hashes,
                                      uint32_t n)
{
    if (group->key_stride == group->hash_len)
        return hashes;
    for (uint32_t i = 0; i < n; i++)
        memcpy(group->keys + (size_t)i * group->hash_len,
               hashes + group->first_key + (size_t)i * group->key_stride, group->hash_len);
    return group->keys;
}

void qr_cache_report_hits(const quire_cache *cache, const quire_cache_request *request,
                          const quire_block_span *blocks)
{
    for (uint32_t g = 0; g < cache->num_groups && cache->pool->on_event != NULL; g++) {
        const qr_group *group = &cache->groups[g];
        /* A block that the hit ends inside of may have no hash of its own: vLLM raises then. */
        uint32_t most = request->num_hashes / group->hashes_joined;
        uint32_t n = blocks[g].count < most ? blocks[g].count : most;
        if (n == 0)
            continue;
        quire_event event = {.size = sizeof(quire_event),
                             .kind = QUIRE_EVENT_REPORTED,
                             .group_id = g,
                             .blocks = blocks[g].ids,
                             .num_blocks = n,
                             .hashes = list_keys(group, request->hashes, n),
                             .hash_bytes = group->hash_len,
                             .block_size = group->block_size,
                             .request = request->user};
        cache->pool->on_event(cache->pool->event_user, &event);
    }
}
