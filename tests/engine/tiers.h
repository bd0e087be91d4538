/* engine/tiers.h - a file and a Redis server for engines that come and go.
 *
 * The file outlives an engine, as after a restart; the server outlives all of them.
 */
#ifndef ENGINE_TIERS_H
#define ENGINE_TIERS_H

#include <quire/tier.h>

#include <stdbool.h>
#include <sys/types.h>

enum { ENGINE_NUM_TIERS = 2 };

typedef struct engine_tiers {
    char folder[64];
    pid_t redis;     /* 0: not running */
    uint32_t number; /* of the engines' family: names its file and its keys */
    quire_tier *file;
    quire_tier *remote;
} engine_tiers;

/* 0, or 1: there is no folder. wants_redis: starts a server; where there is none redis stays 0. */
int engine_tiers_create(engine_tiers *tiers, bool wants_redis);
void engine_tiers_destroy(engine_tiers *tiers);

/* The tiers of one engine, over the memory that jobs use. 0, or 1 with a message. */
int engine_tiers_open(engine_tiers *tiers, bool has_file, bool has_redis, uint64_t block_bytes,
                      const void *memory, size_t memory_bytes, char *message, size_t bytes);
/* 0, or 1: one of them does not end. */
int engine_tiers_close(engine_tiers *tiers);
/* What was stored so far is another family's. */
void engine_tiers_forget(engine_tiers *tiers);

#endif
