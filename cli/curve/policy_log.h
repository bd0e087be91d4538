/* cli/curve/policy_log.h - all requests of a trace as identities of blocks, to be run again and
 * again.
 *
 * The curve needs one reading and no log; policies other than LRU need a run for each size.
 */
#ifndef QUIRE_CLI_CURVE_POLICY_LOG_H
#define QUIRE_CLI_CURVE_POLICY_LOG_H

#include "lane.h"

/* A request; its keys begin at first_key. */
typedef struct policy_request {
    uint64_t first_key;
    uint32_t num_lookups;
    uint32_t num_full;
    uint32_t num_held;
} policy_request;

typedef struct policy_log {
    policy_request *requests;
    uint64_t *keys; /* of full blocks */
    uint64_t num_requests;
    uint64_t requests_room;
    uint64_t num_keys;
    uint64_t keys_room;
} policy_log;

/* All zero is an empty log. */
void policy_log_free(policy_log *log);
/* False: no memory. */
bool policy_log_add(policy_log *log, const curve_blocks *blocks);

#endif
