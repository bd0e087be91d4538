/* tier/peer/peer_kit.h - a server with blocks, and a tier that asks it.
 *
 *      peer_kit k = {.num_blocks = 20};  peer_serve(&k);  peer_connect(&k);
 *      peer_do(&k, QUIRE_TIER_LOAD, key, num_keys) ──► k.ios[i].status; DONE: bytes are compared
 *      peer_end(&k)     nothing is left: jobs, connections
 *
 * Blocks have a pattern that belongs to their key. */
#ifndef PEER_KIT_H
#define PEER_KIT_H

#include "base/unit.h"
#include "tier/core/faulty.h"

#include <quire/tier_peer.h>

enum { PEER_MAX_IOS = 300 };
#define PEER_SECRET "a secret of the tests"

typedef struct peer_kit {
    /* before serve and connect; 0: a default */
    uint32_t num_blocks;
    uint32_t bytes; /* of a block; 0 = 10,000 */
    uint32_t deadline_ms;
    quire_peer_server_config server_config;
    quire_tier_peer_config config;
    quire_tier_config common;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];

    quire_peer_server *server;
    unsigned char *memory; /* num_blocks blocks, that the server offers: slot n has key n */
    quire_tier *tier;
    quire_tier_peer *peer;
    char address[128];
    quire_tier_job job;
    quire_tier_io ios[PEER_MAX_IOS];
    unsigned char *into; /* PEER_MAX_IOS blocks */
    char log[2048];
} peer_kit;

int peer_serve(peer_kit *k); /* all blocks are offered, every other one with its CRC */
int peer_connect(peer_kit *k);
void peer_offer(peer_kit *k, uint32_t slot, uint32_t key);
void peer_fill(peer_kit *k, quire_tier_op op, uint32_t key, uint32_t num);
void peer_wait(peer_kit *k);
void peer_do(peer_kit *k, quire_tier_op op, uint32_t key, uint32_t num);
uint32_t peer_status_count(const peer_kit *k, quire_tier_status status);
quire_peer_server_stats peer_served(const peer_kit *k);
quire_tier_peer_stats peer_stats(const peer_kit *k);
void peer_leave(peer_kit *k); /* the tier is closed */
void peer_end(peer_kit *k);
uint64_t peer_now_ms(void);
void peer_sleep_ms(int ms);

/* A connection of the test's own, and its handshake: the descriptor, or -1. */
int peer_raw_connect(uint32_t port);
bool peer_raw_handshake(int fd, const char *secret, const unsigned char *fingerprint);
/* Whole, or false. */
bool peer_raw_read(int fd, void *to, size_t bytes);
bool peer_raw_write(int fd, const void *from, size_t bytes);

#endif
