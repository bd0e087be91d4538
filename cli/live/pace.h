/* cli/live/pace.h - simulated time beside real time.
 *
 *      simulated   0 ────── 10 s ────── 20 s ── ...
 *      real        t0 ───── t0 + 10/X ─ t0 + 20/X          X: the speed
 *
 * Who falls behind, since the machine is slow or slept, goes on from there: nothing rushes to catch
 * up.
 */
#ifndef QUIRE_CLI_LIVE_PACE_H
#define QUIRE_CLI_LIVE_PACE_H

#include <stdbool.h>

typedef struct pace {
    double speed; /* 0: as fast as it goes */
    bool has_begun;
    double real_s; /* at this real time it was */
    double simulated_s;
} pace;

/* Comes back when the simulated time is there, or when an interrupt came. */
void pace_wait(pace *p, double until_s);

#endif
