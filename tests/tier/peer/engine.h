/* tier/peer/engine.h - an engine that shares its host memory, and loads from others that do.
 *
 *      peer_engine a = {.num_cpu = 101};
 *      peer_engine b = {.num_cpu = 101, .sources = {&a}};
 *      peer_engine_open(&a);  peer_engine_run(&a, prompt);  ...  peer_engine_close(&a);
 *
 * The "model" knows what belongs into each block, and looks before it uses one: num_wrong. */
#ifndef PEER_ENGINE_H
#define PEER_ENGINE_H

#include "base/unit.h"

#include <quire.h>
#include <quire/offload.h>
#include <quire/tier_peer.h>

enum {
    PEER_BLOCK_SIZE = 16,
    PEER_BLOCK_BYTES = 4096,
    PEER_GPU_BLOCKS = 25,
    PEER_PROMPT_BLOCKS = 10,
    PEER_PROMPT = PEER_PROMPT_BLOCKS * PEER_BLOCK_SIZE + 1,
    PEER_MAX_SOURCES = 2
};

typedef struct peer_engine {
    /* before open */
    uint32_t num_cpu;
    quire_offload_mode mode;
    const struct peer_engine *sources[PEER_MAX_SOURCES]; /* whose host memory it loads from */
    uint32_t max_hints;
    bool has_events;     /* a monitor, which tells of host memory too */
    uint32_t event_keys; /* of peer tiers: their events are told as well */

    quire_hasher *hasher;
    quire_sched *sched;
    quire_offload *offload;
    quire_device device;
    quire_peer_server *server;
    uint32_t num_tiers;
    quire_tier *tiers[PEER_MAX_SOURCES];
    quire_tier_peer *peers[PEER_MAX_SOURCES];
    unsigned char *blocks;
    unsigned char *slots;
    uint32_t num_local;
    uint32_t num_wrong;
    uint64_t least_offered; /* after each part of a step */
} peer_engine;

void peer_engine_set(peer_engine *e, quire_sched_config *config);
void peer_engine_serve(peer_engine *e);
void peer_engine_open(peer_engine *e);
void peer_engine_close(peer_engine *e);
/* Until the prompt's request has ended and nothing is being copied. */
void peer_engine_run(peer_engine *e, uint32_t prompt);
quire_offload_stats peer_engine_stats(const peer_engine *e);
quire_peer_server_stats peer_engine_served(const peer_engine *e);

#endif
