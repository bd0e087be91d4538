/* sched/encoder/flags.h - which placeholder tokens take an embedding (quire_mm_input.is_embed): a
 * copy, one
 * bit for each token.
 *
 *      chain    [ 448 flags ] -> [ 448 flags ] -> [ 448 flags ]      chunks of one arena
 *                 feature 0 | feature 1   |   feature 2 |  unused
 *
 * A request has one chain. All features that come with one call of add or continue lie in the chain
 * one after the other, so that at most one chunk of a call is not full. A feature knows its place
 * by the number of flags before it.
 *
 *      chunks of all chains + num_free = num_chunks
 */
#ifndef QR_SCHED_ENCODER_FLAGS_H
#define QR_SCHED_ENCODER_FLAGS_H

#include "base/arena.h"
#include "base/list.h"

enum { QR_FLAG_WORDS = QR_AT_A_TIME(7, 1), QR_FLAGS_IN_CHUNK = 64 * QR_FLAG_WORDS };

typedef struct qr_flag_chunk {
    uint32_t next; /* of the chain, or of the free chunks; QR_NIL: none */
    uint64_t words[QR_FLAG_WORDS];
} qr_flag_chunk;

typedef struct qr_flag_store {
    qr_flag_chunk *chunks;
    uint32_t num_chunks;
    uint32_t num_free;
    uint32_t first_free;
} qr_flag_store;

/* All zeros: an empty chain. */
typedef struct qr_flag_chain {
    uint32_t first; /* of no meaning without chunks */
    uint32_t num_chunks;
} qr_flag_chain;

void qr_flags_carve(qr_flag_store *store, qr_arena *arena, uint32_t num_chunks);
void qr_flags_init(qr_flag_store *store);

static inline uint64_t qr_flags_chunks_for(uint64_t num_flags)
{
    return (num_flags + QR_FLAGS_IN_CHUNK - 1) / QR_FLAGS_IN_CHUNK;
}

/* Takes chunks, all flags 0, for a chain that is empty. False, and no change, when too few are
 * free. */
bool qr_flags_take(qr_flag_store *store, qr_flag_chain *chain, uint32_t num_chunks);
/* Puts `more` behind the chain; more is empty afterwards. */
void qr_flags_join(qr_flag_store *store, qr_flag_chain *chain, qr_flag_chain *more);
/* The same flags in chunks of its own, for a chain that is empty. False as for take. */
bool qr_flags_copy(qr_flag_store *store, const qr_flag_chain *from, qr_flag_chain *to);
void qr_flags_release(qr_flag_store *store, qr_flag_chain *chain);

/* Sets those of n flags from place `first` of the chain on that are not 0 in `from`. */
void qr_flags_write(qr_flag_store *store, const qr_flag_chain *chain, uint64_t first,
                    const uint8_t *from, uint32_t n);
/* How many of n flags from place `first` on are set. */
uint32_t qr_flags_count(const qr_flag_store *store, const qr_flag_chain *chain, uint64_t first,
                        uint32_t n);

/* The chunk behind `chunk` (QR_NIL: the first) of a chain. */
static inline uint32_t qr_flags_next(const qr_flag_store *store, const qr_flag_chain *chain,
                                     uint32_t chunk)
{
    return chunk == QR_NIL ? chain->first : store->chunks[chunk].next;
}

/* Whether the chain has exactly its number of chunks; and the same for the free ones. */
bool qr_flag_chain_is_valid(const qr_flag_store *store, const qr_flag_chain *chain);
bool qr_flags_are_valid(const qr_flag_store *store);

#endif
