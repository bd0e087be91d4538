/* peers.c - two engines: one loads the KV blocks that the other has in its host memory.
 *
 *      engine A: 24 blocks ──► host memory, 100 blocks ── quire_peer_server
 *                                                               ▲ TCP
 *      engine B: 24 blocks ◄── host memory, 100 blocks ◄── quire_tier_peer
 *
 * Six prompts of ten blocks each go through engine A, which offers what is in its host memory. Then
 * engine B, which has computed nothing, gets the same prompts: it loads all of their blocks from A.
 * toy_engine.h has the engine.
 */
#include "toy_engine.h"

#include <quire/tier_peer.h>

#define SECRET "known to both engines"

enum { CPU_BLOCKS = 101 };

static quire_peer_server *open_server(void)
{
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    quire_peer_server *server;
    quire_peer_server_config config = QUIRE_PEER_SERVER_CONFIG_INIT;
    set_fingerprint(fingerprint);
    config.address = "127.0.0.1:0"; /* any port that is free */
    config.fingerprint = fingerprint;
    config.secret = SECRET;
    config.max_blocks = CPU_BLOCKS;
    must(quire_peer_server_open(&config, &server), "server");
    return server;
}

static quire_tier *open_peer(uint32_t port)
{
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    char address[32];
    quire_tier *tier;
    quire_tier_peer_config config = QUIRE_TIER_PEER_CONFIG_INIT;
    set_fingerprint(fingerprint);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    config.server = address;
    config.fingerprint = fingerprint;
    config.secret = SECRET;
    config.wait_ns = 5000000000;
    must(quire_tier_peer_open(&config, NULL, NULL, &tier, NULL), "peer");
    return tier;
}

static void run_prompts(engine *e, const char *what)
{
    quire_offload_stats stats = QUIRE_OFFLOAD_STATS_INIT;
    for (uint32_t p = 0; p < NUM_PROMPTS; p++)
        run_prompt(e, p);
    must(quire_offload_get_stats(e->offload, &stats), "stats");
    uint64_t from_peer = stats.tiers[0].hit_tokens;
    printf("%s %3u tokens found in its memory, %3llu in its host memory, %3llu in its peer's\n",
           what, e->num_local, (unsigned long long)(stats.hit_tokens - from_peer),
           (unsigned long long)from_peer);
}

int main(void)
{
    engine a = {0};
    engine b = {0};
    quire_peer_server_stats served = QUIRE_PEER_SERVER_STATS_INIT;
    quire_peer_server *server = open_server();
    open_memory(&a, CPU_BLOCKS);
    open_engine(&a, NULL, server);
    run_prompts(&a, "engine A:");
    quire_tier *peer = open_peer(quire_peer_server_port(server));
    open_memory(&b, CPU_BLOCKS);
    open_engine(&b, peer, NULL);
    run_prompts(&b, "engine B:");
    must(quire_peer_server_get_stats(server, &served), "stats");
    printf("A offers %llu blocks and has sent %llu\n", (unsigned long long)served.offered,
           (unsigned long long)served.blocks_sent);
    must(quire_tier_close(peer), "close");
    close_engine(&b);
    free_memory(&b);
    close_engine(&a);
    must(quire_peer_server_close(server), "server"); /* before its memory goes */
    free_memory(&a);
    printf("wrong blocks: %u\n", a.num_wrong + b.num_wrong);
    return a.num_wrong + b.num_wrong == 0 ? 0 : 1;
}
