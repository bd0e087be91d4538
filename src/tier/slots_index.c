#include "tier/slots_index.h"

#include "base/assert.h"

uint32_t qr_slots_index_capacity(uint64_t max_nodes)
{
    uint64_t capacity = 4 * max_nodes + 1;
    qr_assert(capacity < UINT32_MAX);
    return (uint32_t)capacity;
}

void qr_slots_index_init(qr_slots_index *index, void *memory, uint32_t capacity,
                         const uint64_t secret[2])
{
    index->entries = memory;
    index->capacity = capacity;
    index->used = 0;
    index->secret[0] = secret[0];
    index->secret[1] = secret[1];
}

static uint64_t fold_words(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint32_t qr_slots_index_tag(const qr_slots_index *index, const quire_tier_key *key)
{
    uint64_t words[5];
    memcpy(words, key, sizeof words);
    uint64_t a = index->secret[0];
    uint64_t b = index->secret[1];
    uint64_t h = fold_words(words[0] ^ a, words[1] ^ b) ^ fold_words(words[2] ^ b, words[3] ^ ~a);
    h = fold_words(h ^ a, words[4] ^ ~b);
#ifdef QUIRE_HOSTILE
    return (uint32_t)(h >> 60) << 28; /* every chain is long, every comparison happens */
#else
    return (uint32_t)(h >> 32) ^ (uint32_t)h;
#endif
}

void qr_slots_index_insert(qr_slots_index *index, uint32_t tag, uint32_t node)
{
    qr_assert(index->used < index->capacity / 4);
    uint32_t at = qr_slots_index_home(index, tag);
    while (index->entries[at].node_plus_1 != 0)
        at = qr_slots_index_after(index, at);
    index->entries[at] = (qr_slots_entry){tag, node + 1};
    index->used++;
}

/* How far an entry at `at` is from its home. */
static uint32_t distance_at(const qr_slots_index *index, uint32_t at)
{
    uint32_t home = qr_slots_index_home(index, index->entries[at].tag);
    return at >= home ? at - home : at + index->capacity - home;
}

void qr_slots_index_remove(qr_slots_index *index, uint32_t tag, uint32_t node)
{
    uint32_t at = qr_slots_index_home(index, tag);
    while (index->entries[at].node_plus_1 != node + 1) {
        qr_assert(index->entries[at].node_plus_1 != 0);
        at = qr_slots_index_after(index, at);
    }
    uint32_t gap = at;
    uint32_t gap_width = 0;
    for (;;) {
        at = qr_slots_index_after(index, at);
        gap_width++;
        if (index->entries[at].node_plus_1 == 0)
            break;
        if (distance_at(index, at) >= gap_width) {
            index->entries[gap] = index->entries[at];
            gap = at;
            gap_width = 0;
        }
    }
    index->entries[gap] = (qr_slots_entry){0, 0};
    index->used--;
}

bool qr_slots_index_is_valid(const qr_slots_index *index)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < index->capacity; i++) {
        if (index->entries[i].node_plus_1 == 0)
            continue;
        used++;
        uint32_t at = qr_slots_index_home(index, index->entries[i].tag);
        while (at != i) {
            if (index->entries[at].node_plus_1 == 0)
                return false;
            at = qr_slots_index_after(index, at);
        }
    }
    return used == index->used;
}
