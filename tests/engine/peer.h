/* engine/peer.h - another engine of this process, whose host memory is a tier of the engine under
 * test.
 *
 *      requests ─┬─► engine under test ◄─ quire_tier_peer ◄─── TCP ───┐
 *                └─► peer ─ host memory ─ quire_peer_server ──────────┘
 *
 * Each request goes to one of the two, so that a session's earlier turns are often in the other
 * one's memory. The peer is compared with the reference as well. Now and then its host memory is
 * emptied, or it is thrown away in the middle and comes back later, at the same address.
 */
#ifndef ENGINE_PEER_H
#define ENGINE_PEER_H

#include "engine/engine.h"

typedef struct engine_peer {
    engine_setup setup;
    engine_tiers tiers; /* without a folder: the server alone */
    engine engine;
    engine_model *other; /* ENGINE_BREAK_PEER: the model that the peer computes, and */
    engine_counts lies;  /* what came out, which is not counted */
    bool is_there;
    uint32_t rest; /* turns until it comes back */
} engine_peer;

/* Opens it beside an engine of this setup, whose tiers get its address. 0, or 1: engine.message. */
int engine_peer_open(engine_peer *peer, const engine_setup *setup, const engine_model *model,
                     const engine_backend_ops *ops, engine_tiers *tiers, engine_counts *counts);
void engine_peer_close(engine_peer *peer);
/* A step of it; *is_stopped: it was thrown away with its requests instead. 0, or 1. */
int engine_peer_turn(engine_peer *peer, uint64_t *random, bool *is_stopped);
bool engine_peer_is_idle(const engine_peer *peer);

#endif
