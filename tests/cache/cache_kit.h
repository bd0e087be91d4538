/* cache/cache_kit.h - a small KV cache to try things on, where requests are written as letters.
 *
 *      tokens      "aaaabbbbc"   one letter for each token; the hash of a hash block stands for all
 *                                letters up to its end, so equal beginnings have equal hashes
 *      blocks      "0 0 3 | 4 5" one group after the other, null blocks as 0
 *
 * Every call through the kit must succeed, and is followed by quire_cache_check.
 */
#ifndef CACHE_CACHE_KIT_H
#define CACHE_CACHE_KIT_H

#include "base/unit.h"

#include <quire/cache.h>

enum {
    KIT_MAX_GROUPS = 4,
    KIT_MAX_TOKENS = 256,
    KIT_DIGEST = 16,
    KIT_TEXT = 2048,
    KIT_MAX_BLOCKS = 128
};

/* A request of the caller's: what the cache is shown, and the memory behind it. */
typedef struct kit_request {
    quire_cache_request r;
    unsigned char hashes[KIT_MAX_TOKENS * KIT_DIGEST];
} kit_request;

typedef struct cache_kit {
    quire_cache *cache;
    quire_pool *pool;
    uint32_t num_groups;
    uint32_t hash_block_size;
} cache_kit;

/* Groups of each kind, as small as the kind allows. */
quire_group_config kit_full(uint32_t block_size);
quire_group_config kit_window(uint32_t block_size, uint32_t window);
quire_group_config kit_chunked(uint32_t block_size, uint32_t chunk);
quire_group_config kit_mamba(uint32_t block_size, quire_mamba_mode mode, uint32_t num_speculative);
quire_group_config kit_sink(uint32_t block_size, uint32_t sink_len);
quire_group_config kit_cross(uint32_t block_size);

/* A mix of one to three groups with blocks of `size` tokens, of every kind and mode there is. */
uint32_t kit_draw_groups(uint64_t *random, uint32_t size, quire_group_config *groups);
/* Caching, EAGLE and context parallelism, at random, as far as the groups allow. */
void kit_draw_switches(uint64_t *random, quire_cache_config *config);

/* num_blocks blocks, max_model_len KIT_MAX_TOKENS, digests of KIT_DIGEST bytes. */
quire_cache_config kit_config(const quire_group_config *groups, uint32_t num_groups,
                              uint32_t num_blocks);
void kit_open(cache_kit *kit, const quire_cache_config *config);
void kit_close(cache_kit *kit);

/* A request of these tokens, or the first num_tokens letters of its text from now on. */
void kit_request_init(const cache_kit *kit, kit_request *request, const char *text);
/* Appends one token. */
void kit_append(const cache_kit *kit, kit_request *request, char *text, char token);

/* Looks up, keeps the hit, makes room for the rest of the prompt, and counts all as computed;
 * returns the tokens of the hit. */
uint32_t kit_prefill(cache_kit *kit, kit_request *request);
/* The same, but answers instead of insisting; nothing is counted as computed when it fails. */
int kit_try_prefill(cache_kit *kit, kit_request *request);
/* Room for num_new more tokens, which are computed then. */
int kit_extend(cache_kit *kit, kit_request *request, uint32_t num_new);
void kit_free(cache_kit *kit, kit_request *request);

uint32_t kit_num_free(const cache_kit *kit);
void kit_check(const cache_kit *kit);
/* Takes blocks out of the pool until num_free are left; kit_unfill gives them back. */
uint32_t kit_fill(cache_kit *kit, uint32_t num_free, quire_block *taken);
void kit_unfill(cache_kit *kit, const quire_block *taken, uint32_t num_taken);

/* The text of spans, and of a request's blocks. */
const char *kit_spans(const cache_kit *kit, const quire_block_span *spans);
const char *kit_blocks(const cache_kit *kit, quire_seq seq);

/* All that can be seen of the cache and of some requests, as text: equal texts, equal states. */
void kit_snapshot(const cache_kit *kit, const kit_request *const *requests, uint32_t num_requests,
                  char *text, size_t bytes);

#endif
