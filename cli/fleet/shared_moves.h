/* cli/fleet/shared_moves.h - what workers load from the shared tier and store there, in time.
 *
 *      LOAD    asked for at t ── latency ──► bytes ──► the worker hears of its end
 *      STORE   asked for at t ── latency ──► places, evictions ──► waits for the worker's stores
 *              before it ── latency ──► bytes ──► all workers find the blocks
 *
 * No change of the tier that another worker could see comes earlier than one latency after what
 * has caused it. So workers advance alone until then, and the tier changes between windows alone
 * (fleet.h), in the order of time, then worker.
 *
 * Loads and stores are transfers of max-min fair rates over two links of the tier, one for each
 * direction, and one link of the worker, if --shared-tier limits it. A worker's stores move one
 * after the other. A block that is evicted while it is loaded still arrives.
 */
#ifndef QUIRE_CLI_FLEET_SHARED_MOVES_H
#define QUIRE_CLI_FLEET_SHARED_MOVES_H

#include "output/distribution.h"
#include "worker.h"

typedef struct shared_spec {
    uint64_t num_blocks; /* 0: bytes */
    uint64_t bytes;
    double bytes_per_s;        /* of all workers together, each way */
    double client_bytes_per_s; /* of each worker, both ways together; 0: no limit */
    double latency_s;          /* at least 1e-6 */
} shared_spec;

/* "blocks=100000,bandwidth=100,client-bandwidth=25,latency=200". 0; or -1, and a sentence
 * (failure.h) that names the field, its value and its range. */
int shared_spec_read(const char *text, shared_spec *spec);

typedef struct shared_stats {
    shared_tier_counts tier;
    uint64_t block_bytes;
    uint64_t loads; /* that ended; of them, */
    uint64_t failed_loads;
    uint64_t loaded_blocks; /* by loads that did not fail */
    uint64_t failed_blocks; /* of loads: computed again */
    uint64_t stores;        /* transfers that ended, failed ones too */
    uint64_t most_loads;    /* at one time */
    uint64_t outages;
    double load_bytes; /* over the links of the tier */
    double store_bytes;
    distribution load_ms; /* from the question to the end */
} shared_stats;

typedef struct shared_moves shared_moves;

/* NULL, and a sentence. The tier is there before the workers, which are told of in
 * shared_moves_bind. */
shared_moves *shared_moves_open(const shared_spec *spec, uint64_t block_bytes,
                                uint32_t num_workers);
/* The workers are made. False: no memory. */
bool shared_moves_bind(shared_moves *m, worker *workers);
void shared_moves_close(shared_moves *m);
const shared_tier *shared_moves_tier(const shared_moves *m);

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

/* The distribution is the caller's to free. */
shared_stats shared_moves_finish(shared_moves *m);

#endif
