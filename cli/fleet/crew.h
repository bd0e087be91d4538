/* cli/fleet/crew.h - threads that do the jobs of one call together, and then wait for the next.
 *
 *      crew_run(c, n, job, user)     job(user, 0..n-1, lane), in any order, each once
 *      lane                          0..num_threads-1: jobs of one lane run one after the other
 *
 * The caller is lane 0. Threads look for jobs for a moment before they sleep: calls come every few
 * hundred microseconds.
 */
#ifndef QUIRE_CLI_FLEET_CREW_H
#define QUIRE_CLI_FLEET_CREW_H

#include <stdint.h>

enum { CREW_MAX_THREADS = 256 };

typedef struct crew crew;
typedef void (*crew_job)(void *user, uint32_t i, uint32_t lane);

/* num_threads: 1 to CREW_MAX_THREADS. NULL: no memory, or no threads. */
crew *crew_open(uint32_t num_threads);
/* Returns when all jobs are done. Jobs must not share anything that one of them changes. */
void crew_run(crew *c, uint32_t num_jobs, crew_job job, void *user);
void crew_close(crew *c);

#endif
