#include "tier/slots/index.h"

void qr_slots_index_insert(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_insert(index, tag, node + 1);
}

void qr_slots_index_remove(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_remove(index, tag, node + 1);
}

uint32_t qr_slots_index_distance(const qr_buckets *index, uint32_t tag, uint32_t node)
{
    uint64_t place = qr_buckets_find_id(index, tag, node + 1);
    return place == QR_NO_PLACE ? 0 : qr_buckets_distance(index, tag, place);
}
