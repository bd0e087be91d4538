#include "sched/encoder/flags.h"

#include "base/assert.h"

void qr_flags_carve(qr_flag_store *store, qr_arena *arena, uint32_t num_chunks)
{
    *store = (qr_flag_store){.num_chunks = num_chunks};
    store->chunks = qr_arena_take(arena, num_chunks, sizeof *store->chunks);
}

void qr_flags_init(qr_flag_store *store)
{
    store->num_free = store->num_chunks;
    store->first_free = store->num_chunks > 0 ? 0 : QR_NIL;
    for (uint32_t i = 0; i < store->num_chunks; i++)
        store->chunks[i].next = i + 1 < store->num_chunks ? i + 1 : QR_NIL;
}

/* ---- chains ---------------------------------------------------------------- */

bool qr_flags_take(qr_flag_store *store, qr_flag_chain *chain, uint32_t num_chunks)
{
    qr_assert(chain->num_chunks == 0);
    if (num_chunks > store->num_free)
        return false;
    uint32_t *link = &chain->first;
    for (uint32_t i = 0; i < num_chunks; i++) {
        uint32_t chunk = store->first_free;
        store->first_free = store->chunks[chunk].next;
        store->chunks[chunk] = (qr_flag_chunk){.next = QR_NIL};
        *link = chunk;
        link = &store->chunks[chunk].next;
    }
    chain->num_chunks = num_chunks;
    store->num_free -= num_chunks;
    return true;
}

/* The link that ends the chain. */
static uint32_t *chain_end(const qr_flag_store *store, qr_flag_chain *chain)
{
    uint32_t *link = &chain->first;
    for (uint32_t i = 0; i < chain->num_chunks; i++)
        link = &store->chunks[*link].next;
    return link;
}

void qr_flags_join(qr_flag_store *store, qr_flag_chain *chain, qr_flag_chain *more)
{
    if (more->num_chunks == 0)
        return;
    *chain_end(store, chain) = more->first;
    chain->num_chunks += more->num_chunks;
    more->num_chunks = 0;
}

bool qr_flags_copy(qr_flag_store *store, const qr_flag_chain *from, qr_flag_chain *to)
{
    if (!qr_flags_take(store, to, from->num_chunks))
        return false;
    uint32_t old = QR_NIL;
    uint32_t copy = QR_NIL;
    for (uint32_t i = 0; i < from->num_chunks; i++) {
        old = qr_flags_next(store, from, old);
        copy = qr_flags_next(store, to, copy);
        memcpy(store->chunks[copy].words, store->chunks[old].words, sizeof store->chunks[0].words);
    }
    return true;
}

void qr_flags_release(qr_flag_store *store, qr_flag_chain *chain)
{
    if (chain->num_chunks == 0)
        return;
    *chain_end(store, chain) = store->first_free;
    store->first_free = chain->first;
    store->num_free += chain->num_chunks;
    chain->num_chunks = 0;
}

/* ---- flags ----------------------------------------------------------------- */

static uint32_t chunk_at(const qr_flag_store *store, const qr_flag_chain *chain, uint64_t flag)
{
    uint32_t chunk = chain->first;
    for (uint64_t i = flag / QR_FLAGS_IN_CHUNK; i > 0; i--)
        chunk = store->chunks[chunk].next;
    return chunk;
}

void qr_flags_write(qr_flag_store *store, const qr_flag_chain *chain, uint64_t first,
                    const uint8_t *from, uint32_t n)
{
    qr_assert(first + n <= (uint64_t)chain->num_chunks * QR_FLAGS_IN_CHUNK);
    if (n == 0)
        return;
    uint32_t chunk = chunk_at(store, chain, first);
    uint32_t at = (uint32_t)(first % QR_FLAGS_IN_CHUNK);
    for (uint32_t i = 0; i < n; i++, at++) {
        if (at == QR_FLAGS_IN_CHUNK) {
            chunk = store->chunks[chunk].next;
            at = 0;
        }
        store->chunks[chunk].words[at / 64] |= (uint64_t)(from[i] != 0) << at % 64;
    }
}

uint32_t qr_flags_count(const qr_flag_store *store, const qr_flag_chain *chain, uint64_t first,
                        uint32_t n)
{
    qr_assert(first + n <= (uint64_t)chain->num_chunks * QR_FLAGS_IN_CHUNK);
    if (n == 0)
        return 0;
    uint32_t chunk = chunk_at(store, chain, first);
    uint32_t at = (uint32_t)(first % QR_FLAGS_IN_CHUNK);
    uint32_t count = 0;
    while (n > 0) { /* a part of a word at a time */
        if (at == QR_FLAGS_IN_CHUNK) {
            chunk = store->chunks[chunk].next;
            at = 0;
        }
        uint32_t part = 64 - at % 64 < n ? 64 - at % 64 : n;
        uint64_t mask = part == 64 ? UINT64_MAX : (UINT64_C(1) << part) - 1;
        uint64_t flags = store->chunks[chunk].words[at / 64] >> at % 64 & mask;
        count += (uint32_t)__builtin_popcountll(flags);
        at += part;
        n -= part;
    }
    return count;
}

/* ---- checking -------------------------------------------------------------- */

static bool links_are_valid(const qr_flag_store *store, uint32_t first, uint32_t count)
{
    uint32_t at = first;
    for (uint32_t i = 0; i < count; i++) {
        if (at >= store->num_chunks)
            return false;
        at = store->chunks[at].next;
    }
    return at == QR_NIL;
}

bool qr_flag_chain_is_valid(const qr_flag_store *store, const qr_flag_chain *chain)
{
    return chain->num_chunks == 0 || links_are_valid(store, chain->first, chain->num_chunks);
}

bool qr_flags_are_valid(const qr_flag_store *store)
{
    return store->num_free <= store->num_chunks &&
           links_are_valid(store, store->first_free, store->num_free);
}
