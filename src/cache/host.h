/* cache/host.h - requests whose blocks were moved to host memory, without a scheduler.
 *
 *      row   [ 7 ][ 3 ][ 9 ]   seq: generation, row + 1
 *                │
 *      move_out  v             the copies are the caller's to make: 7 -> 0, 3 -> 1, 9 -> 4
 *      slots [ 0 ][ 1 ][ 4 ]   seq: generation, QR_HOST_SEQ + the first slot
 *                │
 *      move_in   v             blocks that a prefix hit brings back are not copied
 *      row   [ 7 ][ 5 ][ 6 ]
 *
 * As in sched/retain/swap.h, which blocks are kept follows from the number of tokens alone, so a
 * chain of slots is all that there is to remember.
 *
 *      slots in chains + num_free = num_slots;   a chain has the slots that its tokens need
 */
#ifndef QR_CACHE_HOST_H
#define QR_CACHE_HOST_H

#include "base/arena.h"

#include <quire/cache.h>

enum { QR_MAX_HOST_SLOTS = 1 << 28 };
#define QR_HOST_SEQ UINT32_C(0x80000000) /* no row is so large: no other call takes it for one */

typedef struct qr_host_slot {
    uint32_t next;       /* of the same request, or of the free ones; QR_NIL: the last */
    uint32_t generation; /* odd: the first slot of a request */
    uint32_t num_tokens; /* of that request: those that are kept; 0 for all other slots */
} qr_host_slot;

typedef struct qr_host {
    qr_host_slot *slots;
    quire_block_move *moves; /* of the last call: at most one for each slot */
    quire_block_span *hit;   /* of a request that is to come back, one for each group */
    uint32_t num_slots;      /* 0: blocks cannot be moved */
    uint32_t num_free;
    uint32_t first_free;
    uint32_t num_seqs; /* requests that have a chain */
} qr_host;

void qr_host_carve(qr_host *host, qr_arena *arena, const quire_cache_config *config);
void qr_host_init(qr_host *host);
/* Whether the groups have blocks that can be moved to host memory and back. */
bool qr_cache_can_move(const quire_cache_config *config);

/* Blocks of all groups that are kept of so many tokens. */
uint32_t qr_cache_num_saved(const quire_cache *cache, uint32_t num_tokens);
/* The first slot of a request that was moved out, else QR_NIL. */
uint32_t qr_host_slot_of(const quire_cache *cache, quire_seq seq);
/* As quire_cache_move_out and quire_cache_move_in say; num_moves counts host.moves. */
int qr_host_move_out(quire_cache *cache, quire_cache_request *request, uint32_t row,
                     uint32_t *num_moves);
int qr_host_move_in(quire_cache *cache, quire_cache_request *request, uint32_t slot,
                    uint32_t *num_moves);
int qr_host_can_move_in(quire_cache *cache, const quire_cache_request *request, uint32_t slot);
/* Gives the slots of a request back. */
void qr_host_drop(quire_cache *cache, uint32_t first);
/* The slot of a block of a request that was moved out, and *prev that of the block before it in the
 * same group; QR_NIL where none is kept. */
uint32_t qr_host_find(const quire_cache *cache, uint32_t first, uint32_t group, uint32_t index,
                      uint32_t *prev);
bool qr_host_is_valid(const quire_cache *cache);

#endif
