/* cli/sweep/front.h - which points of a sweep over fleets are worth their GPUs.
 *
 *      TTFT p99 |  a          o            a, b, c: no point has fewer GPUs and a shorter time.
 *               |      b         o         They are the Pareto front; for the others (o) another
 *               |             c            point is better in both.
 *               +------------------ GPUs
 */
#ifndef QUIRE_CLI_SWEEP_FRONT_H
#define QUIRE_CLI_SWEEP_FRONT_H

#include "sweep.h"

/* Whether the points of the sweep are fleets: it has an axis of workers or routers. */
bool sweep_has_fleets(const sweep *s);

/* The points on the front of GPUs and of a number of the report, from the fewest GPUs on. Equal
 * points are all on it. points has room for num_points. False: no memory. */
bool sweep_front(const sweep *s, const char *path, uint32_t *points, uint32_t *num);

#endif
