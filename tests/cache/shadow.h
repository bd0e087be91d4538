/* cache/shadow.h - what the pages of an engine hold, token by token, beside a cache that forks.
 *
 *      sequence    history   17 18 19 41 42      values are never used twice
 *      page 7                17 18 19 41         written where the cache's block tables say
 *      page 9                42
 *
 * A sequence that reads a value which is not of its own history has seen another one's write. The
 * engine's order is kept: room first, then the copies, then the writes.
 */
#ifndef CACHE_SHADOW_H
#define CACHE_SHADOW_H

#include "cache/cache_kit.h"

enum { SHADOW_GROUPS = 2, SHADOW_LEN = 1088, SHADOW_SEQS = 34, SHADOW_BLOCK_SIZE = 16 };

typedef struct shadow_seq {
    quire_cache_request r;
    uint32_t num_planned; /* tokens past the computed ones that are to be written in this step */
    bool is_delayed;      /* its blocks have no keys yet; a later step gives them */
    uint32_t tokens[SHADOW_LEN];
    unsigned char hashes[SHADOW_LEN / 2 * KIT_DIGEST];
} shadow_seq;

typedef struct shadow {
    quire_cache *cache;
    quire_pool *pool;
    quire_group_config groups[SHADOW_GROUPS];
    uint32_t num_groups;
    uint32_t block_size; /* 2 or more, of all groups */
    uint32_t num_blocks;
    uint32_t next_token;
    bool has_delays;
    uint64_t random;
    uint32_t *pages; /* SHADOW_BLOCK_SIZE values each */
    uint32_t *slots; /* of the host buffer, as large */
    uint32_t num_slots;
    uint64_t num_copies;
    uint64_t num_moves;
    uint64_t num_reads;
    shadow_seq seqs[SHADOW_SEQS];
} shadow;

/* config: groups of one block size; the shadow adds max_model_len and the digests' size. */
void shadow_open(shadow *s, const quire_cache_config *config, uint64_t seed);
/* Frees every sequence; then nothing may be in use. */
void shadow_close(shadow *s);

/* A sequence without blocks; NULL when all places are taken. */
shadow_seq *shadow_new(shadow *s);
/* A prompt: the first num_tokens values of a family, the same each time. */
void shadow_prompt(shadow *s, shadow_seq *q, uint32_t family, uint32_t num_tokens);

/* Looks the prompt up and makes room for the rest. A hit may be a block that is written in this
 * very step; what it holds is read at the step's end. With delays, some blocks get no keys yet. */
int shadow_prefill(shadow *s, shadow_seq *q);
/* Room for num_new tokens more, of values that nobody has. */
int shadow_extend(shadow *s, shadow_seq *q, uint32_t num_new);
int shadow_fork(shadow *s, const shadow_seq *parent, shadow_seq *child);
/* New values for tokens that are computed, when nothing is planned. */
bool shadow_is_idle(const shadow *s);
int shadow_rewrite(shadow *s, shadow_seq *q, uint32_t first, uint32_t num_tokens);
void shadow_free(shadow *s, shadow_seq *q);

/* To host slots and back, copied at once; what moves is computed. */
int shadow_move_out(shadow *s, shadow_seq *q);
int shadow_move_in(shadow *s, shadow_seq *q);
/* Whether its blocks are on the device. */
bool shadow_has_blocks(const shadow *s, const shadow_seq *q);

/* Runs the copies that are pending, in any order. */
void shadow_copy(shadow *s);
/* The end of a step: the copies, then what is planned is written and counts as computed. */
void shadow_step(shadow *s);
/* Every sequence reads all that its layers look at. */
void shadow_verify(shadow *s);

#endif
