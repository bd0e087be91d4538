/* cli/fleet/series.h - what a fleet did in each second, and how long it took to recover.
 *
 *      second        0        1        2        3 ...
 *      first tokens  12       15       0        40       of requests, with the sum of their TTFT
 *      ends          3        9        1        22       of requests, with their output tokens
 *      back          0        0        7        0        requests that went back to the router
 *      ready         16       16       15       15       workers at the end of the second
 *
 * Each event counts in the second that its time is in. Events later than SERIES_MAX_S are left out.
 */
#ifndef QUIRE_CLI_FLEET_SERIES_H
#define QUIRE_CLI_FLEET_SERIES_H

#include <stdbool.h>
#include <stdint.h>

enum { SERIES_MAX_S = 10000000 };

typedef struct series_second {
    uint32_t first_tokens;
    uint32_t ends;
    uint32_t back;
    uint32_t ready;    /* 1 more than there were; 0: as in the second before */
    uint32_t starting; /* valid if ready is not 0; so is the next */
    uint32_t draining;
    uint64_t output_tokens;
    double ttft_s; /* sum */
} series_second;

/* All zero is an empty one. */
typedef struct series {
    series_second *seconds;
    uint32_t num_seconds;
    uint32_t capacity;
    bool no_memory;
} series;

void series_free(series *s);
void series_first_token(series *s, double time_s, double ttft_s);
void series_end(series *s, double time_s, uint32_t num_tokens);
void series_back(series *s, double time_s, uint32_t num_requests);
void series_workers(series *s, double time_s, uint32_t ready, uint32_t starting, uint32_t draining);

/* The mean TTFT of the SERIES_BEFORE_S seconds that end before the second of time_s; NAN: no
 * request had its first token then. */
enum { SERIES_BEFORE_S = 60, SERIES_WINDOW_S = 10 };
double series_ttft_before(const series *s, double time_s);
/* The end of the first SERIES_WINDOW_S seconds, none of which begins before time_s, in which
 * requests had their first token and their mean TTFT is at most `limit_s`; HUGE_VAL: there are
 * none. */
double series_ttft_back_s(const series *s, double time_s, double limit_s);

#endif
