/* cli/replay/verdict.h - whether a run kept up with its requests, in one sentence.
 *
 *      overloaded    more requests came than were served: when the last one came, more than 5 % of
 *                    all were waiting. Latencies then say how long the trace is, not how fast the
 *                    engine is.
 *      queued        the engine kept up on the whole, but one request in 20 waited 1 s or longer
 *      in_time       neither
 *      unknown       requests did not come at times of their own (--clock burst, serial)
 */
#ifndef QUIRE_CLI_REPLAY_VERDICT_H
#define QUIRE_CLI_REPLAY_VERDICT_H

#include "replay.h"

typedef enum verdict_state {
    VERDICT_UNKNOWN,
    VERDICT_IN_TIME,
    VERDICT_QUEUED,
    VERDICT_OVERLOADED
} verdict_state;

typedef struct verdict {
    verdict_state state;
    double arrive_per_s; /* from the first request to the last */
    double served_per_s; /* in the same time */
    char text[256];
} verdict;

verdict verdict_of(replay_result *result);
const char *verdict_name(verdict_state state);
/* Milliseconds in the unit that fits: "113 ms", "12.0 s", "34.6 min". Valid until the eighth call
 * after it. */
const char *verdict_time(double ms);

#endif
