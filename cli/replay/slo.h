/* cli/replay/slo.h - limits on latencies: of a request, and of a percentile of all requests.
 *
 *      --slo ttft=2s,tpot=50ms            slo: what a request must keep to count for goodput
 *      --slo ttft_p99=2s,tpot_p99=50ms    slo_targets: what a whole run must keep (quire size)
 *
 *      ttft    time to first token          us, ms, s or min behind the number
 *      tpot    time per output token after the first; a request of one token has none, and keeps it
 *      e2e     end to end
 */
#ifndef QUIRE_CLI_REPLAY_SLO_H
#define QUIRE_CLI_REPLAY_SLO_H

#include <stdbool.h>
#include <stdint.h>

/* Milliseconds; 0: no limit. All 0: there is none. */
typedef struct slo {
    double ttft_ms;
    double tpot_ms;
    double e2e_ms;
} slo;

/* NULL: none. 0, or -1 and a sentence. */
int slo_read(const char *text, slo *limits);
bool slo_is_set(const slo *limits);
/* tpot_ms negative: the request has one token. */
bool slo_is_met(const slo *limits, double ttft_ms, double tpot_ms, double e2e_ms);

/* ---- of all requests ------------------------------------------------------------ */

typedef enum slo_metric { SLO_TTFT, SLO_TPOT, SLO_E2E } slo_metric;

/* "ttft_p99=2s": at least 99 % of requests have at most 2 s. "ttft=2s": all requests. */
typedef struct slo_target {
    char name[24]; /* "ttft_p99" */
    slo_metric metric;
    double share; /* above 0, to 1 */
    double limit_ms;
} slo_target;

enum { SLO_MAX_TARGETS = 16 };

typedef struct slo_targets {
    slo_target list[SLO_MAX_TARGETS];
    uint32_t num;
} slo_targets;

/* 0, or -1 and a sentence. At least one target. */
int slo_targets_read(const char *text, slo_targets *targets);

#endif
