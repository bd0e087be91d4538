/* cli/live/pace.h - simulated time beside real time.
 *
 *      simulated   0 ────── 10 s ────── 20 s ── ...
 *      real        t0 ───── t0 + 10/X ─ t0 + 20/X          X: the speed
 *
 * If the program falls behind (a slow machine, a sleep), it goes on from there: nothing rushes to
 * catch up. Real times are those of progress_clock().
 */
#ifndef QUIRE_CLI_LIVE_PACE_H
#define QUIRE_CLI_LIVE_PACE_H

#include <stdbool.h>

typedef struct pace {
    double speed; /* simulated seconds per second; 0: as fast as possible */
    bool has_begun;
    double real_s; /* at this real time it was */
    double simulated_s;
} pace;

/* Real seconds until the simulated time; 0 or less: it has come. The first call begins the pace,
 * with simulated time 0. */
double pace_left_s(pace *p, double until_s, double real_s);
/* The simulated time at a real time; with speed 0 the time of the last call of pace_left_s. */
double pace_simulated_s(const pace *p, double real_s);

#endif
