/* cli/tiers/real.h - real memory, files and servers behind a replay: --real-tiers.
 *
 *      STORE   the slot gets a pattern made of the block's key, and its checksum
 *      ...     host memory ──► file, Redis ──► host memory, perhaps in another run
 *      ...     host memory ──► peer server ──► host memory of another process
 *      LOAD    the slot has the pattern of the key that it is found under, or counts as wrong
 *
 * Copies to the GPU take simulated time, since there is none; what lies behind host memory takes
 * the time that it takes.
 */
#ifndef QUIRE_CLI_TIERS_REAL_H
#define QUIRE_CLI_TIERS_REAL_H

#include "device.h"
#include "run.h"

#include <quire/tier_peer.h>

/* All zero: nothing is real. */
typedef struct tiers_real {
    unsigned char *memory; /* the host's: cpu_blocks * block_bytes */
    size_t memory_bytes;
    uint64_t block_bytes;
    const quire_pool *gpu; /* set when the scheduler is there */
    const quire_pool *cpu;
    unsigned char fingerprint[QUIRE_FINGERPRINT_BYTES];
    tiers_settings settings;
    quire_peer_server *server; /* to which the offload offers its blocks; NULL: none */
    bool has_events;           /* are told */
    uint64_t num_wrong;
} tiers_real;

/* Host memory, the server, the device's hooks. False, and a sentence; to be closed either way. */
bool tiers_real_open(tiers_real *r, const tiers_run_config *config, tiers_device *device);
void tiers_real_close(tiers_real *r);
int tiers_real_open_tier(tiers_real *r, const tiers_lower *lower, quire_slots_policy policy,
                         quire_tier **tier);
void tiers_real_sleep(double seconds);

#endif
