/* cli/fleet/handoffs.h - requests that two workers serve: one computes the prompt, its KV moves,
 * and the other one generates.
 *
 *      pull      prefill ──► decode: blocks ──► transfer ──► decode goes on
 *      push      prefill ────────────┐
 *                decode: blocks ─────┴────────► transfer ──► decode goes on
 *      layers    as push, but the transfer begins with the first layer of the prompt's last step
 *
 *      node of a prefill worker ══╗                    ╔══ node of a decode worker
 *                                 ╠═ pair ═══ fabric ══╣
 *                               ══╝                    ╚══
 *
 * handoff    from the routing of a request to the end of its transfer. The prefill worker gets a
 *            copy of the request, the decode worker the request itself.
 * moved      blocks of the prompt that the decode worker's cache has not, or all of them.
 * failed     a transfer of which all was in vain: at its end the decode worker begins again, and
 *            computes what its own cache has not.
 *
 * lease      how long a prefill worker keeps a computed prompt while no transfer begins. After that
 *            the decode worker computes the prompt.
 *
 * crash      of the decode worker: the request goes back to the router, and the prefill worker
 *            gives up its copy or its blocks. Of the prefill worker: the decode worker computes the
 *            prompt if it waits with blocks; else the request goes back (crash_apart.c).
 *
 * The blocks of the prefill worker stay until the transfer has ended. Both workers hear of the end
 * of a transfer at the end of their next step, an idle one at once. A transfer that ends together
 * with a step is heard of a step later.
 */
#ifndef QUIRE_CLI_FLEET_HANDOFFS_H
#define QUIRE_CLI_FLEET_HANDOFFS_H

#include "links.h"
#include "output/distribution.h"
#include "worker.h"

typedef enum transfer_mode { TRANSFER_PULL, TRANSFER_PUSH, TRANSFER_LAYERS } transfer_mode;
typedef enum transfer_part { TRANSFER_MISSING, TRANSFER_ALL } transfer_part;

typedef struct transfer_settings {
    transfer_mode mode;
    transfer_part part;
    double latency_s;          /* of each transfer: at least 1e-6 */
    double lease_s;            /* more than 0 */
    double pair_bytes_per_s;   /* between two workers; 0: no limit */
    double fabric_bytes_per_s; /* between all of them; 0: no limit */
    double failures; /* part of the transfers that fail, 0 to 1; by the seed and the request */
    uint64_t seed;
} transfer_settings;

/* A worker, for its transfers. */
typedef struct handoff_node {
    worker *worker;
    router_role role;
    double bytes_per_s; /* of its node, each way */
    double block_bytes; /* of a block on all its GPUs */
    uint32_t num_layers;
    uint32_t block_size;
} handoff_node;

/* What came of it. waits and moves: of transfers that ended. */
typedef struct handoff_stats {
    uint64_t prefills;  /* prompts that a prefill worker computed */
    uint64_t transfers; /* that ended, failed ones too */
    uint64_t failed;
    uint64_t cancelled;    /* that did not end: a worker crashed */
    uint64_t expired;      /* leases */
    uint64_t needless;     /* requests of which the decode worker had all */
    uint64_t moved_blocks; /* by transfers that did not fail */
    double moved_bytes;
    uint64_t local_tokens; /* that decode workers found in their own caches */
    /* Prompt tokens of failed transfers, expired leases and prefill workers that crashed, which
     * decode workers computed. */
    uint64_t recomputed_tokens;
    uint64_t most_open;   /* transfers at one time */
    distribution wait_ms; /* from the decode worker's blocks to their KV */
    distribution move_ms; /* from the start of a transfer to its end */
} handoff_stats;

typedef struct handoffs handoffs;

/* NULL: no memory. The nodes are copied. */
handoffs *handoffs_open(const transfer_settings *settings, const handoff_node *nodes,
                        uint32_t num_nodes);
/* Frees requests that no worker has, too. */
void handoffs_close(handoffs *h);

/* The request was routed. Calls that return bool: false: no memory. */
bool handoffs_begin(handoffs *h, arrival *it, uint32_t prefill, uint32_t decode, double now_s);

/* The worker that generates. */
uint32_t handoffs_decode_of(const handoffs *h, const arrival *it);

/* Events of a worker, in the order of their times: ENGINE_COMPUTING; ENGINE_ENDED of a prefill; and
 * ENGINE_LOADING. */
bool handoffs_computing(handoffs *h, const arrival *it, double now_s);
bool handoffs_computed(handoffs *h, const arrival *it, double now_s);
bool handoffs_loading(handoffs *h, const arrival *it, uint32_t num_tokens, double now_s);
/* ENGINE_LEFT_OUT of one of its parts. *rest: the request, if no worker has it or will have it: the
 * caller's. NULL: the other part still goes on, or there is none. */
bool handoffs_left_out(handoffs *h, const arrival *it, double now_s, arrival **rest);
/* The decode worker computes the prompt after a failed transfer; it had so many tokens of it. */
void handoffs_recomputed(handoffs *h, const arrival *it, uint32_t num_cached);

/* When handoffs_advance is to be called next; HUGE_VAL: when there is an event. */
double handoffs_next_s(const handoffs *h);
bool handoffs_advance(handoffs *h, double now_s);
/* Whether calls since the last one have given workers something: their next times have changed. */
bool handoffs_take_changes(handoffs *h);

uint32_t handoffs_num_open(const handoffs *h); /* not ended */
handoff_stats *handoffs_stats(handoffs *h);
/* Bytes that left the node of a prefill worker, or came to that of a decode worker. */
double handoffs_node_bytes(const handoffs *h, uint32_t node);

#endif
