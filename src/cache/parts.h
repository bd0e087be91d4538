/* cache/parts.h - blocks that a prefix ends inside of, by the rules of vLLM 0.32.
 *
 *      blocks of 4 hashes; A's prompt ended behind hash 5:
 *
 *      full     A  [ 7 ][ 3 ]        B has the same 6 hashes, and then goes on differently:
 *               B  [ 7 ][ 9 ]        copy 3 -> 9: what A and B write behind hash 5 is not the same
 *
 *      Mamba    B  [ - ][ 8 ]        likewise; and the state behind hash 5 is A's until it goes on:
 *               A  [ - ][ 5 ]        copy 5 -> 6, and the key is that of 6 from then on
 *
 * A block with such a place in a row is its `partial`, until allocate_slots has made the copy. Both
 * blocks of a copy have one user more until the copy was made. Copies are listed group by group.
 */
#ifndef QR_CACHE_PARTS_H
#define QR_CACHE_PARTS_H

#include "cache/cache.h"

/* Whether hits may end inside a block; and whether there are blocks to be copied, for this or for
 * the ends of prompts. */
bool qr_cache_takes_parts(const quire_cache_config *config);
bool qr_cache_copies_parts(const quire_cache_config *config);
/* Whether Mamba layers can write states of tokens inside a chunk. */
bool qr_cache_has_checkpoints(const quire_cache_config *config);
/* As a group's allocate, with the copy of a block that the row shares. Such a block is new to the
 * request, unless it keeps the block and others get the copy. */
uint32_t qr_cache_allocate_parts(quire_cache *cache, uint32_t group, const qr_want *want);
/* Which states inside the chunk are kept: from the row as it is before its hits; */
void qr_cache_plan_checkpoints(quire_cache *cache, const qr_want *want);
/* the row, which there is by now, gets to know it. */
void qr_cache_note_checkpoints(quire_cache *cache, const qr_want *want);
/* Tells of the states of an aligned group in blocks [first, end) of a row. */
void qr_cache_tell_states(const quire_cache *cache, uint32_t group, uint32_t row, uint32_t first,
                          uint32_t end);
/* A state with a key in a block that the row goes on in: its tokens; 0: there is none. */
uint32_t qr_cache_own_state(const quire_cache *cache, uint32_t group, uint32_t row,
                            uint32_t *block);
/* Of the copies, those that were not told before: the last ones; returns how many. */
uint32_t qr_cache_tell_copies(quire_cache *cache);
/* The first n copies, which were told, have been made. */
void qr_cache_end_copies(quire_cache *cache, uint32_t n);

#endif
