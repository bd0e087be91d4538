/* cli/fleet/shared_moves.h - what workers load from storage that they share, and store there.
 *
 *      LOAD    asked for at t ── latency ──► bytes ──► the worker hears of its end
 *      STORE   asked for at t ── latency ──► places, evictions ──► waits for the worker's stores
 *              before it ── latency ──► bytes ──► all workers find the blocks
 *
 * shared tier   one place for all workers. Two links of the tier, one for each direction, and one
 *               link of each worker, if --shared-tier limits it.
 * peer memory   the host memory of each worker is a place: the worker stores there, over its link
 *               to the host, and loads from there. From other workers' places it loads over the
 *               network: a link of each worker for what it sends, and one for what it gets.
 *
 * No change of a place that another worker could see comes earlier than one latency after what
 * has caused it. So workers advance alone until then, and places change between windows alone
 * (fleet.h), in the order of time, then worker.
 *
 * Loads and stores are transfers of max-min fair rates. A worker's stores move one after the other.
 * A block that is evicted while it is loaded still arrives.
 */
#ifndef QUIRE_CLI_FLEET_SHARED_MOVES_H
#define QUIRE_CLI_FLEET_SHARED_MOVES_H

#include "output/distribution.h"
#include "worker.h"

typedef struct shared_spec {
    bool is_peers;       /* the host memory of each worker; else a tier of all */
    uint64_t num_blocks; /* of a place; 0: bytes */
    uint64_t bytes;
    /* Of the tier: of all workers together, each way. Of peers: of each worker's network, so. */
    double bytes_per_s;
    double client_bytes_per_s; /* of the tier: of each worker, both ways together; 0: no limit */
    double host_bytes_per_s;   /* of peers: of each worker to its host, each way */
    double latency_s;          /* at least 1e-6 */
} shared_spec;

/* "blocks=100000,bandwidth=100,client-bandwidth=25,latency=200". 0; or -1, and a sentence
 * (failure.h) that names the field, its value and its range. */
int shared_spec_read(const char *text, shared_spec *spec);
/* "blocks=20000,bandwidth=50,host-bandwidth=55,latency=100": of --peer-memory. */
int shared_spec_read_peers(const char *text, shared_spec *spec);

typedef struct shared_stats {
    bool is_peers;
    shared_tier_counts tier; /* sums over places */
    uint64_t block_bytes;
    uint64_t loads; /* that ended; of them, */
    uint64_t failed_loads;
    uint64_t loaded_blocks; /* by loads that did not fail; of them, */
    uint64_t peer_blocks;   /* from other workers */
    uint64_t failed_blocks; /* of loads: computed again */
    uint64_t stores;        /* transfers that ended, failed ones too */
    uint64_t most_loads;    /* at one time */
    uint64_t outages;
    double load_bytes; /* of peers: over the network and from the own host */
    double store_bytes;
    distribution load_ms; /* from the question to the end */
} shared_stats;

typedef struct shared_moves shared_moves;

/* NULL, and a sentence. Places are made before the workers, which are told of in
 * shared_moves_bind. */
shared_moves *shared_moves_open(const shared_spec *spec, uint64_t block_bytes,
                                uint32_t num_workers);
/* The workers are made. False: no memory. */
bool shared_moves_bind(shared_moves *m, worker *workers);
void shared_moves_close(shared_moves *m);
/* For a worker. NULL: none. */
shared_places shared_moves_places(const shared_moves *m, uint32_t client);

/* What a worker has asked for, in the order of time. Calls that return bool: false: no memory. */
bool shared_moves_ask(shared_moves *m, uint32_t client, const shared_ask *ask);
/* When shared_moves_advance is to be called next; HUGE_VAL: when a worker asks. NULL: never. */
double shared_moves_next_s(const shared_moves *m);
bool shared_moves_advance(shared_moves *m, double now_s);
/* A worker that has heard of a load since the last call; UINT32_MAX: none. */
uint32_t shared_moves_take_changed(shared_moves *m);
/* Loads that workers wait for. */
uint32_t shared_moves_num_loads(const shared_moves *m);

/* From now on. Going down fails all loads and stores; loses: what is stored is lost, too. */
bool shared_moves_set_down(shared_moves *m, double now_s, bool is_down, bool loses);

/* The worker crashes now: its loads fail, and its stores. Of peers: so do loads from its host
 * memory, and what is stored there is lost. */
bool shared_moves_crash(shared_moves *m, double now_s, uint32_t client);

/* The distribution is the caller's to free. */
shared_stats shared_moves_finish(shared_moves *m);

#endif
