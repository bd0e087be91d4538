/* cli/fleet/handoffs_inner.h - what handoffs.c and crash_apart.c share. */
#ifndef QUIRE_CLI_FLEET_HANDOFFS_INNER_H
#define QUIRE_CLI_FLEET_HANDOFFS_INNER_H

#include "handoffs.h"

typedef struct handoff {
    arrival *it; /* the decode worker's, once it is given; NULL: it needs nothing more */
    bool is_given;
    bool is_open;
    bool is_begun;       /* the last step of its prompt; */
    bool is_computed;    /* and that has ended: its blocks are held */
    bool has_no_prefill; /* the prefill worker left it out */
    bool has_blocks;
    bool is_moving;
    bool waits_for_last; /* all layers but the last have come */
    uint32_t prefill;
    uint32_t decode;
    arrival *copy; /* the prefill worker's, until that has computed it or left it out */
    quire_req prefill_req;
    quire_req decode_req;
    double begun_s; /* the last step of its prompt, */
    double ended_s; /* and its end */
    double blocks_s;
    double start_s;
    uint32_t transfer;   /* of the links; LINKS_NONE: none moves or waits its latency */
    uint32_t num_blocks; /* to be moved */
    double last_bytes;   /* of the last layer, if it moves apart and has not begun */
    uint32_t next_free;
    uint32_t next_leased; /* computed before its transfer begins, in the order of time */
    uint32_t prev_leased;
    double lease_end_s;
    bool is_leased;
} handoff;

struct handoffs {
    transfer_settings settings;
    handoff_node *nodes;
    uint32_t *ranks; /* among the nodes of the same role */
    uint32_t num_nodes;
    uint32_t num_decodes;
    links *links; /* of nodes; then of pairs; then of the fabric */
    uint32_t first_pair;
    uint32_t fabric;
    handoff *all;
    uint32_t num_all;
    uint32_t capacity;
    uint32_t first_free;
    uint32_t num_open;
    uint32_t first_leased;
    uint32_t last_leased;
    uint64_t num_moving;
    bool has_changed;
    handoff_stats stats;
};

static inline handoff *handoff_of(const handoffs *h, const arrival *it)
{
    return &h->all[((const fleet_request *)it->note)->remote.handoff];
}

void handoff_end(handoffs *h, handoff *x);
/* The same, and the prefill worker's blocks are needed no longer. False: no memory; so is the next.
 */
bool handoff_release(handoffs *h, handoff *x, double now_s);
/* The decode worker's blocks are filled, or never will be. */
bool handoff_tell_received(handoffs *h, handoff *x, bool has_failed, double now_s);
/* Its transfer, if there is one, will not end. */
void handoff_cancel(handoffs *h, handoff *x, double now_s);

#endif
