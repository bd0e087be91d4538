/* cli/fleet/links.h - transfers that share links, each at its max-min fair rate.
 *
 *      prefill 0 ══ 100 ══╗                 ╔══ 100 ══ decode 0     transfer 0 ─► 0: 50
 *                         ╠══ total 180 ════╣                       transfer 0 ─► 1: 50
 *      prefill 1 ══ 100 ══╝                 ╚══ 100 ══ decode 1     transfer 1 ─► 1: 50
 *
 * link       carries `bandwidth` bytes a second, shared by the transfers over it. A network card
 *            that sends and receives at the same time is two links.
 * transfer   bytes over one to LINKS_MAX_ROUTE links at once. It waits its latency, then moves its
 *            bytes, then ends. Without bytes it ends after its latency.
 * rate       of all transfers: max-min fair. No transfer can be faster unless one that is not
 *            faster than it becomes slower. So each transfer has a bottleneck:
 *
 *      bottleneck: a link that is full, on which no other transfer is faster
 *      sum of the rates over a link <= its bandwidth
 *
 * Rates are computed again when a transfer begins or ends and when a bandwidth changes, but only
 * rates that can change (links_rates.c). Nothing is allocated after links_create. The same calls
 * give the same answers, bit for bit. Not for several threads.
 *
 *      links_start ─► links_next_s ─► links_advance(that time) ─► links_take: what has ended
 *
 * Times are in seconds and never decrease from call to call; a time before the last one counts as
 * that one. Each call first advances to its time.
 */
#ifndef QUIRE_CLI_FLEET_LINKS_H
#define QUIRE_CLI_FLEET_LINKS_H

#include <stdbool.h>
#include <stdint.h>

enum { LINKS_MAX_ROUTE = 4, LINKS_NONE = UINT32_MAX };

typedef struct links links;

typedef enum links_outcome {
    LINKS_DONE,
    LINKS_FAILED /* one of its links failed (links_fail) */
} links_outcome;

typedef struct links_ended {
    uint64_t user; /* of links_start */
    double time_s;
    double left_bytes; /* 0 when it is done */
    links_outcome outcome;
} links_ended;

/* Links without bandwidth (0), which links_set_bandwidth gives them. max_transfers at a time, with
 * those that have ended and were not taken yet. NULL: not enough memory, or a count of 0. */
links *links_create(uint32_t num_links, uint32_t max_transfers);
void links_destroy(links *l);

/* Of a link, from now on; 0: its transfers stand still, and go on when it has bandwidth again. */
void links_set_bandwidth(links *l, double now_s, uint32_t link, double bytes_per_s);

/* The transfer's number until it ends. LINKS_NONE, and nothing has changed: there are max_transfers
 * already, the route has no link, more than LINKS_MAX_ROUTE, one twice or one that there is not, or
 * bytes or latency are negative or not finite. */
uint32_t links_start(links *l, double now_s, double latency_s, double bytes, const uint32_t *route,
                     uint32_t num_route, uint64_t user);
/* The transfer is forgotten; links_take does not report it. The bytes that were not moved. */
double links_cancel(links *l, double now_s, uint32_t transfer);
/* All transfers over the link end as LINKS_FAILED. The link stays, for others. */
void links_fail(links *l, double now_s, uint32_t link);

/* When links_advance has something to do next: a transfer ends, or begins after its latency.
 * HUGE_VAL: never. */
double links_next_s(const links *l);
void links_advance(links *l, double now_s);
/* The next transfer that has ended, by time, then by start. False: none. */
bool links_take(links *l, links_ended *ended);

/* Bytes a second now; 0 while it waits its latency. */
double links_rate(const links *l, uint32_t transfer);
/* Of a link now: the sum of the rates over it. */
double links_load(const links *l, uint32_t link);
/* Bytes that transfers moved over a link until they ended, failed or were cancelled. */
double links_moved(const links *l, uint32_t link);
uint32_t links_num_open(const links *l); /* started, and not ended or cancelled */

#endif
