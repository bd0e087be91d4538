/* cache/retain.h - which groups have a mask (rule retains_boundaries, group/mask.h), and keys where
 * a request ends or is preempted (rule retains_ends).
 *
 *      window of 2 blocks, the prompt ends in block 2, the request is preempted in block 7
 *
 *      blocks    0   1   2   3   4   5   6   7
 *      keys      x   x   .   .   .   x   x        5 and 6: the request goes on there, and so does a
 *                                                 later one whose prompt begins with all of it
 *
 * The window moves on while a block is filled. If it is no multiple of the block size, its first
 * block may be gone before the last one is full: then there are no such keys.
 */
#ifndef QR_CACHE_RETAIN_H
#define QR_CACHE_RETAIN_H

#include "cache/cache.h"

/* Whether only some full blocks of the group get keys. */
bool qr_retain_has_mask(const quire_cache_config *config, uint32_t group);
/* The fields that say which: QUIRE_OK, or refused. multiple: tokens that are whole blocks in every
 * group. */
int qr_retain_check(const quire_cache_config *config, uint32_t multiple, bool any_eagle);

/* In a cache that retains_ends: the first hash that qr_retain_end looks at; QR_NIL: it gives no
 * key. */
uint32_t qr_retain_first_hash(const quire_cache *cache, uint32_t row, uint32_t num_tokens);
/* The request ends or is preempted, and shows its hashes from there on: blocks of windows get keys
 * with which it, or a later one that begins with its num_tokens tokens, can go on. */
void qr_retain_end(quire_cache *cache, const quire_cache_request *request, uint32_t row,
                   uint32_t num_tokens);

#endif
