#include "tier/offload_protect.h"

#include "tier/offload_match.h"

enum { LOOK_EVERY = 64 }; /* polls, once somebody waits */

void qr_protect_init(quire_offload *o)
{
    uint32_t n = o->looks_ahead ? o->num_cpu : 0;
    o->num_nodes = n;
    o->free_node = QR_NIL;
    for (uint32_t i = n; i-- > 0;) {
        o->nodes[i].next = o->free_node;
        o->free_node = i;
    }
    for (uint32_t i = 0; i < o->max_requests; i++)
        o->reqs[i].protect_first = QR_NIL;
}

/* ---- giving back ----------------------------------------------------------- */

/* From the last to the first, as they are chained: the tail of a prompt is evicted before its
 * head. */
static void free_protected(quire_offload *o, qr_offload_req *r)
{
    quire_block blocks[QR_COPIES_IN_JOB];
    uint32_t node = r->protect_first;
    while (node != QR_NIL) {
        uint32_t n = 0;
        while (node != QR_NIL && n < QR_COPIES_IN_JOB) {
            uint32_t next = o->nodes[node].next;
            qr_prefetch(&o->nodes[o->nodes[node].ahead]);
            blocks[n++] = o->nodes[node].block;
            o->nodes[node].next = o->free_node;
            o->free_node = node;
            node = next;
        }
        quire_pool_free_blocks(o->cpu, blocks, n);
    }
    o->num_nodes += r->num_protected;
    qr_count(&o->counters.expected_blocks, 0 - (uint64_t)r->num_protected);
    r->protect_first = QR_NIL;
    r->num_protected = 0;
}

static void drop_expected(quire_offload *o, uint32_t place)
{
    qr_offload_req *r = &o->reqs[o->expected[place]];
    free_protected(o, r);
    r->ahead = 0;
    o->expected[place] = o->expected[--o->num_expected];
}

void qr_protect_release(quire_offload *o, quire_req req)
{
    qr_offload_req *r = &o->reqs[quire_req_index(req)];
    if (!o->looks_ahead || r->ahead != req)
        return;
    uint32_t place = 0;
    while (o->expected[place] != quire_req_index(req))
        place++;
    drop_expected(o, place);
}

void qr_protect_release_all(quire_offload *o)
{
    while (o->num_expected > 0)
        drop_expected(o, o->num_expected - 1);
}

bool qr_protect_give_way(quire_offload *o)
{
    qr_offload_req *last = NULL;
    for (uint32_t i = 0; i < o->num_expected; i++) {
        qr_offload_req *r = &o->reqs[o->expected[i]];
        if (r->num_protected > 0 && (last == NULL || r->place > last->place))
            last = r;
    }
    if (last == NULL)
        return false;
    free_protected(o, last);
    return true;
}

/* ---- looking --------------------------------------------------------------- */

static void chain_protected(quire_offload *o, qr_offload_req *r, const quire_block *blocks,
                            uint32_t n)
{
    uint32_t last[QR_CHAIN_AHEAD] = {0};
    for (uint32_t i = 0; i < n; i++) {
        uint32_t node = o->free_node;
        uint32_t *ahead = &last[i % QR_CHAIN_AHEAD];
        o->free_node = o->nodes[node].next;
        o->nodes[node].block = blocks[i];
        o->nodes[node].next = r->protect_first;
        o->nodes[node].ahead = *ahead;
        *ahead = r->protect_first = node;
    }
    r->num_protected += n;
    o->num_nodes -= n;
}

static void protect(quire_offload *o, qr_offload_req *r, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t n = 0;
        uint32_t count = spans[g].count < o->num_nodes ? spans[g].count : o->num_nodes;
        for (uint32_t i = 0; i < count; i++)
            if (spans[g].ids[i] != QUIRE_NULL_BLOCK)
                o->scratch[n++] = spans[g].ids[i];
        if (quire_pool_touch(o->cpu, o->scratch, n) == QUIRE_OK)
            chain_protected(o, r, o->scratch, n);
    }
}

static void expect(quire_offload *o, quire_req req, uint32_t place)
{
    quire_block_span spans[QR_OFFLOAD_MAX_GROUPS];
    quire_req_info info;
    const void *hashes = NULL;
    uint32_t num_hashes = 0;
    qr_offload_req *r = &o->reqs[quire_req_index(req)];
    r->ahead = req;
    r->seen = o->look;
    r->place = place;
    o->expected[o->num_expected++] = quire_req_index(req);
    if (quire_sched_req_info(o->sched, req, &info) != QUIRE_OK || info.num_computed_tokens > 0 ||
        quire_sched_get_hashes(o->sched, req, &hashes, &num_hashes) != QUIRE_OK || num_hashes == 0)
        return; /* it has its blocks, or can have none */
    uint32_t num_hit = qr_match_find(o, hashes, num_hashes, info.num_tokens, 0, spans);
    if (num_hit > 0)
        protect(o, r, spans);
    qr_count(&o->counters.expected_blocks, r->num_protected);
    if (o->lower == NULL)
        return;
    qr_lower_request request = {.req = req,
                                .hashes = hashes,
                                .num_hashes = num_hashes,
                                .num_tokens = info.num_tokens,
                                .num_found = num_hit};
    qr_lower_prefetch(o->lower, &request);
}

/* Those that are held up, by a tier perhaps, and those that wait behind them. */
static uint32_t list_waiting(quire_offload *o)
{
    uint32_t held = quire_sched_get_queue(o->sched, 2, o->queue, o->backlog);
    held = held < o->backlog ? held : o->backlog;
    uint32_t room = o->backlog - held;
    uint32_t n = quire_sched_get_queue(o->sched, 1, o->queue + held, room);
    return held + (n < room ? n : room);
}

void qr_protect_look(quire_offload *o)
{
    uint32_t num_waiting = quire_sched_num_waiting(o->sched);
    if (num_waiting == 0) {
        o->last_waiting = 0;
        qr_protect_release_all(o);
        return;
    }
    if (o->last_waiting > 0 && ++o->num_polls % LOOK_EVERY != 0)
        return;
    o->last_waiting = num_waiting;
    o->look++;
    uint32_t n = list_waiting(o);
    for (uint32_t i = 0; i < n; i++) {
        qr_offload_req *r = &o->reqs[quire_req_index(o->queue[i])];
        r->seen = r->ahead == o->queue[i] ? o->look : r->seen;
        r->place = r->ahead == o->queue[i] ? i : r->place;
    }
    for (uint32_t i = o->num_expected; i-- > 0;) /* those that are out of view */
        if (o->reqs[o->expected[i]].seen != o->look)
            drop_expected(o, i);
    for (uint32_t i = 0; i < n; i++)
        if (o->reqs[quire_req_index(o->queue[i])].ahead != o->queue[i])
            expect(o, o->queue[i], i);
}
