/* cli/replay/slo.h - what a request must keep to count for goodput: --slo ttft=2s,tpot=50ms.
 *
 *      ttft    time to first token          us, ms, s or min behind the number
 *      tpot    time per output token after the first; a request of one token has none, and keeps it
 *      e2e     end to end
 */
#ifndef QUIRE_CLI_REPLAY_SLO_H
#define QUIRE_CLI_REPLAY_SLO_H

#include <stdbool.h>

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

#endif
