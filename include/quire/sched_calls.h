/* quire/sched_calls.h - short forms of calls of quire/sched.h, which includes this header.
 *
 * Each function is one call of another function, and has its statuses.
 */
#ifndef QUIRE_SCHED_CALLS_H
#define QUIRE_SCHED_CALLS_H

#include "sched.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ends every request, in the order in which the requests were added. */
static inline int quire_sched_finish_all(quire_sched *sched, quire_req_status status,
                                         uint32_t *num_finished)
{
    return quire_sched_finish(sched, NULL, UINT32_MAX, status, num_finished);
}

/* Ends all pins of finished requests: quire_sched_pin with req 0 and ttl_ns 0. */
static inline int quire_sched_drop_pins(quire_sched *sched)
{
    return quire_sched_pin(sched, 0, 0);
}

/* The user pointer of a request; NULL if the request does not exist. */
static inline void *quire_sched_get_user(const quire_sched *sched, quire_req req)
{
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    return quire_sched_get_req_info(sched, req, &info) == QUIRE_OK ? info.user : NULL;
}

static inline uint32_t quire_sched_get_num_unfinished(const quire_sched *sched)
{
    return quire_sched_get_counts(sched).num_unfinished;
}

/* The blocks of the pool by state. Any thread. */
static inline quire_usage quire_sched_get_usage(const quire_sched *sched)
{
    return quire_cache_get_usage(quire_sched_get_cache(sched));
}

/* Preempts with mode SWAP, and does not admit the request before quire_sched_resume. A request
 * without blocks or computed tokens is only kept from admission. QUIRE_BUSY, QUIRE_FULL and
 * QUIRE_E_DISABLED as for preempt. */
static inline int quire_sched_offload(quire_sched *sched, quire_req req)
{
    return quire_sched_preempt(sched, req, QUIRE_PREEMPT_OFFLOAD);
}

#ifdef __cplusplus
}
#endif
#endif
