#include "tier/slots_index.h"

void qr_slots_index_carve(qr_buckets *index, uint32_t max_nodes, qr_carve *carve)
{
    index->count = qr_buckets_needed(max_nodes);
    index->all = qr_carve_take(carve, index->count, sizeof *index->all);
}

static uint64_t fold_words(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint32_t qr_slots_index_tag(const qr_buckets *index, const quire_tier_key *key)
{
    uint64_t words[5];
    memcpy(words, key, sizeof words);
    uint64_t a = index->secret[0];
    uint64_t b = index->secret[1];
    uint64_t h = fold_words(words[0] ^ a, words[1] ^ b) ^ fold_words(words[2] ^ b, words[3] ^ ~a);
    return qr_tag_fold(fold_words(h ^ a, words[4] ^ ~b));
}

void qr_slots_index_insert(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_insert(index, tag, node + 1);
}

void qr_slots_index_remove(qr_buckets *index, uint32_t tag, uint32_t node)
{
    qr_buckets_remove_id(index, tag, node + 1);
}

uint32_t qr_slots_index_distance(const qr_buckets *index, uint32_t tag, uint32_t node)
{
    uint64_t place = qr_buckets_find_id(index, tag, node + 1);
    return place == QR_NO_PLACE ? 0 : qr_buckets_distance(index, tag, place);
}
