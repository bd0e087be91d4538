#include "tier/peer/table.h"

#include "base/count.h"
#include "base/hooks.h"
#include "base/memory.h"
#include "tier/core/key.h"

#include <string.h>

bool qr_peer_table_open(qr_peer_table *table, uint32_t max_slots, const unsigned char *fingerprint,
                        const quire_hooks *hooks)
{
    uint64_t secret[2];
    uint32_t ring = (uint32_t)qr_round_up_pow2(max_slots);
    table->max_slots = max_slots;
    table->index.count = qr_buckets_needed(max_slots);
    table->entries = qr_alloc_large((size_t)max_slots * sizeof *table->entries);
    table->known = qr_alloc_large((size_t)max_slots * sizeof *table->known);
    table->index.all = qr_alloc(table->index.count + (size_t)1, sizeof *table->index.all);
    table->ring.numbers = qr_alloc(ring, sizeof *table->ring.numbers);
    table->ring.capacity = ring;
    if (table->entries == NULL || table->known == NULL || table->index.all == NULL ||
        table->ring.numbers == NULL || qr_random_bytes(hooks, secret, sizeof secret) != 0)
        return false;
    qr_buckets_init(&table->index, max_slots, secret);
    for (size_t i = 0; i < QR_PEER_PRINT_WORDS; i++)
        atomic_init(&table->fingerprint[i], qr_load_u64(fingerprint + 8 * i));
    return true;
}

void qr_peer_table_close(qr_peer_table *table)
{
    qr_free(table->entries);
    qr_free(table->known);
    qr_free(table->index.all);
    qr_free(table->ring.numbers);
}

/* ---- the owner's ------------------------------------------------------------- */

void qr_peer_table_withdraw(qr_peer_table *table, uint32_t slot)
{
    qr_peer_entry *e = &table->entries[slot];
    uint64_t generation = qr_count_get(&e->generation);
    if (generation % 2 == 0)
        return;
    qr_count_set(&e->generation, generation + 1);
    qr_count_set(&table->num_offered, qr_count_get(&table->num_offered) - 1);
    /* Whoever sees a later write to the memory or the entry sees this generation too. */
    atomic_thread_fence(memory_order_seq_cst);
}

void qr_peer_table_offer(qr_peer_table *table, uint32_t slot, const quire_tier_key *key,
                         const void *memory, uint32_t bytes, const uint32_t *crc)
{
    qr_peer_entry *e = &table->entries[slot];
    qr_peer_table_withdraw(table, slot);
    for (size_t i = 0; i < QR_PEER_KEY_WORDS; i++)
        qr_count_set(&e->key[i], qr_load_u64((const unsigned char *)key + 8 * i));
    atomic_store_explicit(&e->memory, (uintptr_t)memory, memory_order_relaxed);
    qr_count_set(&e->sums, bytes | (uint64_t)(crc == NULL ? 0 : *crc) << 32);
    qr_count_set(&e->epoch, qr_count_get(&table->epoch));
    atomic_store_explicit(&e->has_crc, crc != NULL, memory_order_relaxed);
    qr_count_set(&table->num_offered, qr_count_get(&table->num_offered) + 1);
    atomic_store_explicit(&e->generation, qr_count_get(&e->generation) + 1, memory_order_release);
    if (!atomic_exchange_explicit(&e->is_queued, true, memory_order_acq_rel))
        qr_spsc_put(&table->ring, slot);
}

void qr_peer_table_set_identity(qr_peer_table *table, const unsigned char *fingerprint)
{
    qr_count_set(&table->epoch, qr_count_get(&table->epoch) + 1);
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t slot = 0; slot < table->max_slots; slot++)
        qr_peer_table_withdraw(table, slot);
    for (size_t i = 0; i < QR_PEER_PRINT_WORDS; i++)
        qr_count_set(&table->fingerprint[i], qr_load_u64(fingerprint + 8 * i));
    atomic_store_explicit(&table->epoch, qr_count_get(&table->epoch) + 1, memory_order_release);
}

/* ---- the server's ------------------------------------------------------------ */

uint64_t qr_peer_table_epoch(const qr_peer_table *table)
{
    return atomic_load_explicit(&table->epoch, memory_order_acquire);
}

bool qr_peer_table_is_same(const qr_peer_table *table, const unsigned char *fingerprint,
                           uint64_t *epoch)
{
    uint64_t before = qr_peer_table_epoch(table);
    bool is_same = before % 2 == 0;
    for (size_t i = 0; i < QR_PEER_PRINT_WORDS; i++)
        is_same &= qr_count_get(&table->fingerprint[i]) == qr_load_u64(fingerprint + 8 * i);
    atomic_thread_fence(memory_order_acquire);
    *epoch = before;
    return is_same && qr_count_get(&table->epoch) == before;
}

bool qr_peer_table_is_standing(const qr_peer_table *table, const qr_peer_offer *offer)
{
    atomic_thread_fence(memory_order_seq_cst); /* after all that was read of the memory */
    return qr_count_get(&table->entries[offer->slot].generation) == offer->generation;
}

static bool read_entry(const qr_peer_table *table, uint32_t slot, qr_peer_offer *offer)
{
    const qr_peer_entry *e = &table->entries[slot];
    uint64_t words[QR_PEER_KEY_WORDS];
    offer->slot = slot;
    offer->generation = atomic_load_explicit(&e->generation, memory_order_acquire);
    for (int i = 0; i < QR_PEER_KEY_WORDS; i++)
        words[i] = qr_count_get(&e->key[i]);
    memcpy(&offer->key, words, sizeof offer->key);
    offer->memory = (const unsigned char *)atomic_load_explicit(&e->memory, memory_order_relaxed);
    uint64_t sums = qr_count_get(&e->sums);
    offer->bytes = (uint32_t)sums;
    offer->crc = (uint32_t)(sums >> 32);
    offer->epoch = qr_count_get(&e->epoch);
    offer->has_crc = atomic_load_explicit(&e->has_crc, memory_order_relaxed);
    return offer->generation % 2 == 1 && qr_peer_table_is_standing(table, offer);
}

static uint32_t find_slot(const qr_peer_table *table, uint32_t tag, const quire_tier_key *key)
{
    qr_buckets_search search = qr_buckets_search_begin(&table->index, tag);
    uint32_t slot;
    do
        slot = qr_slots_search_next(&search);
    while (slot != QR_NIL && !qr_key_is_equal(&table->known[slot].key, key));
    return slot;
}

static void leave_index(qr_peer_table *table, uint32_t slot)
{
    qr_peer_known *known = &table->known[slot];
    if (known->is_indexed)
        qr_slots_index_remove(&table->index, known->tag, slot);
    known->is_indexed = false;
}

/* A key that two slots offer is the newer one's. */
static void index_slot(qr_peer_table *table, const qr_peer_offer *offer)
{
    uint32_t tag = qr_slots_index_tag(&table->index, &offer->key);
    uint32_t before = find_slot(table, tag, &offer->key);
    if (before != QR_NIL)
        leave_index(table, before);
    qr_peer_known *known = &table->known[offer->slot];
    known->key = offer->key;
    known->tag = tag;
    known->is_indexed = true;
    qr_slots_index_insert(&table->index, tag, offer->slot);
}

void qr_peer_table_catch_up(qr_peer_table *table)
{
    uint32_t slot;
    while (qr_spsc_take(&table->ring, &slot)) {
        qr_peer_offer offer;
        /* First this: an offer that comes later queues the slot again. */
        (void)atomic_exchange_explicit(&table->entries[slot].is_queued, false,
                                       memory_order_acq_rel);
        leave_index(table, slot);
        if (read_entry(table, slot, &offer))
            index_slot(table, &offer);
    }
}

bool qr_peer_table_find(qr_peer_table *table, const quire_tier_key *key, uint64_t epoch,
                        qr_peer_offer *offer)
{
    uint32_t slot = find_slot(table, qr_slots_index_tag(&table->index, key), key);
    if (slot == QR_NIL)
        return false;
    if (!read_entry(table, slot, offer) || !qr_key_is_equal(&offer->key, key)) {
        leave_index(table, slot); /* it comes back with its next offer, through the ring */
        return false;
    }
    const qr_peer_known *known = &table->known[slot];
    if (!offer->has_crc && known->crc_generation == offer->generation) {
        offer->crc = known->crc;
        offer->has_crc = true;
    }
    return offer->epoch == epoch;
}

void qr_peer_table_note_crc(qr_peer_table *table, const qr_peer_offer *offer, uint32_t crc)
{
    table->known[offer->slot].crc = crc;
    table->known[offer->slot].crc_generation = offer->generation;
}
