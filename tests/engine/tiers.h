/* engine/tiers.h - a file, a Redis server and a peer for engines that come and go.
 *
 * The file outlives an engine, as after a restart; the Redis server outlives all of them. The peer
 * is another engine of this process, which serves its host memory over TCP: each of the two has an
 * engine_tiers of its own (engine/peer.h).
 */
#ifndef ENGINE_TIERS_H
#define ENGINE_TIERS_H

#include <quire/tier_peer.h>

#include <stdbool.h>
#include <sys/types.h>

enum { ENGINE_NUM_TIERS = 3 };

typedef struct engine_tiers {
    char folder[64];
    pid_t redis;     /* 0: not running */
    uint32_t number; /* of the engines' family: names its file and its keys */
    uint32_t port;   /* of the peer's server; 0: there is none yet */
    quire_tier *file;
    quire_tier *remote;
    quire_tier *peer;
    quire_peer_server *server;
} engine_tiers;

/* Which of them an engine has. */
typedef struct engine_tiers_choice {
    bool file;
    bool redis;
    bool peer;
    bool server;
} engine_tiers_choice;

/* 0, or 1: there is no folder. wants_redis: starts a server; where there is none redis stays 0. */
int engine_tiers_create(engine_tiers *tiers, bool wants_redis);
void engine_tiers_destroy(engine_tiers *tiers);

/* The tiers of one engine, over the memory that jobs use. 0, or 1 with a message. */
int engine_tiers_open(engine_tiers *tiers, engine_tiers_choice choice, uint64_t block_bytes,
                      const void *memory, size_t memory_bytes);
/* 0, or 1: one of them does not end. */
int engine_tiers_close(engine_tiers *tiers);
/* After the offload was destroyed, and before its memory is freed. */
void engine_tiers_stop_serving(engine_tiers *tiers);
/* What was stored so far is another family's. */
void engine_tiers_forget(engine_tiers *tiers);

#endif
