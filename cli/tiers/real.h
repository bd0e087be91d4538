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

typedef struct tiers_real tiers_real;

/* Host memory, and the device's hooks. NULL, and a sentence. */
tiers_real *tiers_real_open(const tiers_run_config *config, tiers_device *device, char *message,
                            size_t message_bytes);
/* NULL, here and in all that follow: nothing is real. */
void tiers_real_close(tiers_real *r);
void *tiers_real_memory(const tiers_real *r);
/* To which the offload offers its blocks; NULL: none. */
quire_peer_server *tiers_real_server(const tiers_real *r);
void tiers_real_bind(tiers_real *r, quire_sched *sched, quire_offload *offload);
int tiers_real_open_tier(tiers_real *r, const tiers_lower *lower, quire_slots_policy policy,
                         quire_tier **tier, char *message, size_t message_bytes);
uint64_t tiers_real_num_wrong(const tiers_real *r);
void tiers_real_sleep(double seconds);

#endif
