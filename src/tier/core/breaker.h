/* tier/core/breaker.h - keeps work away from a tier, or from one server of it, that fails.
 *
 *               strikes in a row                time is over
 *      CLOSED ────────────────────► OPEN ◄────────────────────► PROBING
 *        ▲                                       it failed          │ one job
 *        └──────────────────────────────────────────────────────────┘ it succeeded
 *
 * strike   a job that got no answer, or none in time. Any success between two sets them to 0.
 * OPEN     for some seconds, twice as many after each probe that failed, up to MOST_TIMES; an
 *          eighth more or less by chance, so that many engines do not come back at once.
 * epoch    grows with each opening and each probe. An outcome counts in the epoch in which its job
 *          was given out: what comes late from before an opening says nothing about now.
 *
 * Pure: the caller brings the time.
 */
#ifndef QR_TIER_CORE_BREAKER_H
#define QR_TIER_CORE_BREAKER_H

#include <quire/tier.h>

#include <stdbool.h>

enum { QR_BREAKER_MOST_TIMES = 12 };

typedef struct qr_breaker {
    quire_tier_health health;
    uint32_t epoch;
    uint32_t strikes;
    uint32_t max_strikes;
    bool has_probe; /* PROBING: the one job is out */
    uint64_t first_ns;
    uint64_t open_ns; /* how long next time, before chance */
    uint64_t until_ns;
    uint64_t random;
    uint64_t num_opened;
} qr_breaker;

void qr_breaker_init(qr_breaker *breaker, uint32_t max_strikes, uint64_t first_ns, uint64_t seed);

/* Whether a job would be let through now; asking changes nothing. */
bool qr_breaker_would_let(const qr_breaker *breaker, uint64_t now_ns);
/* The same for a job that goes on its way now; its epoch is the breaker's after this. */
bool qr_breaker_let(qr_breaker *breaker, uint64_t now_ns);

typedef enum qr_outcome {
    QR_OUTCOME_NONE, /* it was not tried */
    QR_OUTCOME_GOOD,
    QR_OUTCOME_BAD
} qr_outcome;

/* Opens it whatever the strikes: there is no use in trying. */
void qr_breaker_open(qr_breaker *breaker, uint64_t now_ns);

/* What became of a job that was let through in that epoch; once for each. */
void qr_breaker_take(qr_breaker *breaker, uint32_t epoch, qr_outcome outcome, uint64_t now_ns);

#endif
