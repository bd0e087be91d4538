/* tier/offload_storing.h - keys whose stores are on the way: each has one at a time.
 *
 *      key ──► print, 64 bits ──► place in the table ──► CPU block that will have the key
 *
 * Two keys of the same print (one of 2^64) pass for one: then a block is not stored, which a cache
 * may do at any time. */
#ifndef QR_TIER_OFFLOAD_STORING_H
#define QR_TIER_OFFLOAD_STORING_H

#include "tier/offload.h"

enum { QR_STORING_LEAST = 1024 };

/* Places for so many CPU blocks: a power of two, at most half full. Fewer are
 * used where less is on the way. */
uint32_t qr_storing_size(uint32_t num_cpu);

static inline uint64_t qr_storing_print(const quire_offload *o, const quire_block_info *info)
{
    uint64_t x = qr_load_u64(info->hash.data) ^ o->secret;
    return (x + UINT64_C(0x9e3779b97f4a7c15) * (info->group_id + 1)) * UINT64_C(0xff51afd7ed558ccd);
}

bool qr_storing_has(const quire_offload *o, uint64_t print);
void qr_storing_add(quire_offload *o, quire_block cpu, uint64_t print);
void qr_storing_remove(quire_offload *o, quire_block cpu);

#endif
