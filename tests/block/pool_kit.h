/* block/pool_kit.h - a pool to try things on, where everything can be written as text.
 *
 *      hash        a letter: 'a' is the hash whose bytes are all 'a'
 *      blocks      "NAACE", as quire_pool_draw has it
 *      queue       "3 4 1 2", head to tail
 *      events      "stored 1 2 at 0 ab in 0; removed 2 b; cleared; "
 *
 * Every call through the kit is followed by quire_pool_check.
 */
#ifndef BLOCK_POOL_KIT_H
#define BLOCK_POOL_KIT_H

#include "base/unit.h"

#include <quire/pool.h>

enum { KIT_ROOM = 8192, KIT_TEXT = 1024, KIT_MAX_HASHES = 16, KIT_MAX_HASH_BYTES = 64 };

typedef struct pool_kit {
    quire_pool *pool;
    uint32_t hash_bytes;
    char events[KIT_TEXT];
    _Alignas(QUIRE_ALIGNMENT) unsigned char memory[KIT_ROOM];
    unsigned char before[KIT_ROOM]; /* what kit_remember saw */
} pool_kit;

/* A pool of num_blocks with hashes of 16 bytes, in the kit's own memory. */
void kit_open(pool_kit *kit, uint32_t num_blocks);
/* The same from any config; its events go to the kit. */
void kit_open_with(pool_kit *kit, quire_pool_config config);

/* All of these must succeed. */
void kit_take(pool_kit *kit, uint32_t num_blocks, quire_block *blocks);
void kit_touch(pool_kit *kit, quire_block block);
void kit_free(pool_kit *kit, const quire_block *blocks, uint32_t num_blocks);
void kit_evict(pool_kit *kit, quire_block block);
/* Blocks [cached, full) of a request whose hashes are these letters, from block 0 on. */
void kit_cache(pool_kit *kit, const quire_block *blocks, uint32_t cached, uint32_t full,
               const char *letters, uint32_t group_id);

/* The block of a hash in group 0; 0 when there is none. */
quire_block kit_find(const pool_kit *kit, char letter);

/* count hashes, one for each letter, of the pool's hash_bytes. */
void kit_hashes(const pool_kit *kit, const char *letters, unsigned char *out);

void kit_assert_draw(const pool_kit *kit, const char *wanted);
void kit_assert_queue(const pool_kit *kit, const char *wanted);
void kit_assert_numbers(const pool_kit *kit, uint64_t empty, uint64_t cached, uint64_t active);
/* What was told since the last time. */
void kit_assert_events(pool_kit *kit, const char *wanted);

/* Every byte of the pool, and later: that none has changed, and that nothing was told. */
void kit_remember(pool_kit *kit);
void kit_assert_unchanged(const pool_kit *kit);

#endif
