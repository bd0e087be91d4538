/* cli/curve/policies.h - the hits of eviction policies, through the library's own slots.
 *
 *      requests, one at a time     0  1  2 [ 3 ] 4  5  6  7  8
 *                                        at hand └─ backlog ─┘ waiting: expected by LOOKAHEAD
 *
 * The rules are those of the curve (lane.h): a request looks up its leading blocks, holds all
 * its blocks until its end, part-filled ones too, and is then the newest, its first block before
 * its last. So what policies find can be compared with the curve and with Belady's bound. The one
 * difference: the pool computes the last block of a prompt again and then holds it twice; slots
 * never hold a key twice.
 *
 * Of a request that waits only the prompt is known, so only its lookups are expected.
 */
#ifndef QUIRE_CLI_CURVE_POLICIES_H
#define QUIRE_CLI_CURVE_POLICIES_H

#include "lane.h"

#include <quire/slots.h>

/* All requests of a trace as identities of blocks, to be run again and again: the curve needs one
 * reading and no log, policies other than LRU need a run for each size. */
typedef struct policy_request {
    uint64_t first_key;
    uint32_t num_lookups;
    uint32_t num_full;
    uint32_t num_held;
} policy_request;

/* All zero is an empty log; both arrays are to be freed. */
typedef struct policy_log {
    policy_request *requests;
    uint64_t *keys; /* of full blocks */
    uint64_t num_requests;
    uint64_t requests_room;
    uint64_t num_keys;
    uint64_t keys_room;
} policy_log;

/* False: no memory. */
bool policy_log_add(policy_log *log, const curve_blocks *blocks);

/* Blocks found in num_slots slots, where backlog requests wait behind the one at hand. Of a request
 * with more blocks than slots only the first are stored. QUIRE_OK, or QUIRE_E_NOMEM. */
int policy_hits(const policy_log *log, quire_slots_policy policy, uint32_t num_slots,
                uint32_t backlog, uint64_t *hits);

#endif
