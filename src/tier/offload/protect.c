/* tier/offload/protect.c - what waiting requests will need. */
#include "tier/offload/offload.h"

enum {
    LOOK_EVERY = QR_AT_A_TIME(64, 1), /* polls, once somebody waits */
    FIRST_HASHES = QR_AT_A_TIME(64, 2)
};

void qr_protect_init(quire_offload *o)
{
    o->free_node = QR_NIL;
    for (uint32_t i = o->num_nodes; i-- > 0;) {
        o->nodes[i].next = o->free_node;
        o->free_node = i;
    }
    for (uint32_t i = 0; i < o->max_requests; i++)
        o->reqs[i].protect_last = QR_NIL;
}

/* ---- the nodes of a request -------------------------------------------------- */

static void add_protected(quire_offload *o, qr_offload_req *r, quire_block block)
{
    uint32_t place = r->num_protected++ % QR_NODE_BLOCKS;
    if (place == 0) {
        uint32_t node = o->free_node;
        o->free_node = o->nodes[node].next;
        o->nodes[node].next = r->protect_last;
        r->protect_last = node;
        o->num_nodes--;
    }
    o->nodes[r->protect_last].blocks[place] = block;
}

/* The last one. */
static quire_block take_protected(quire_offload *o, qr_offload_req *r)
{
    uint32_t place = --r->num_protected % QR_NODE_BLOCKS;
    uint32_t node = r->protect_last;
    if (place == 0) {
        r->protect_last = o->nodes[node].next;
        o->nodes[node].next = o->free_node;
        o->free_node = node;
        o->num_nodes++;
    }
    return o->nodes[node].blocks[place];
}

uint32_t qr_protect_count(const quire_offload *o, quire_req req)
{
    const qr_offload_req *r = &o->reqs[quire_req_index(req)];
    return o->looks_ahead && r->ahead == req ? r->num_protected : 0;
}

void qr_protect_list(const quire_offload *o, quire_req req, quire_block *blocks)
{
    const qr_offload_req *r = &o->reqs[quire_req_index(req)];
    uint32_t node = r->protect_last;
    for (uint32_t left = r->num_protected; left > 0; node = o->nodes[node].next) {
        uint32_t first = (left - 1) / QR_NODE_BLOCKS * QR_NODE_BLOCKS;
        memcpy(blocks + first, o->nodes[node].blocks, (left - first) * sizeof *blocks);
        left = first;
    }
}

/* ---- giving back ----------------------------------------------------------- */

/* From the last to the first: the tail of a prompt is evicted before its head. */
static void free_protected(quire_offload *o, qr_offload_req *r)
{
    quire_block blocks[QR_COPIES_IN_JOB];
    qr_count_add(&o->counters.expected_blocks, 0 - (uint64_t)r->num_protected);
    if (r->num_protected > 0 && o->match.num_known > 0 && o->match.req == r->ahead)
        qr_match_release(o); /* it relies on them */
    while (r->num_protected > 0) {
        uint32_t n = 0;
        while (r->num_protected > 0 && n < QR_COPIES_IN_JOB)
            blocks[n++] = take_protected(o, r);
        quire_pool_free_blocks(o->cpu, blocks, n);
    }
}

void qr_protect_hand_over(quire_offload *o, quire_req req, uint32_t first)
{
    qr_offload_req *r = &o->reqs[quire_req_index(req)];
    if (r->ahead != req || r->num_protected <= first)
        return;
    qr_count_add(&o->counters.expected_blocks, 0 - (uint64_t)(r->num_protected - first));
    while (r->num_protected > first)
        (void)take_protected(o, r);
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

static void protect(quire_offload *o, qr_offload_req *r, const quire_block_span *spans)
{
    for (uint32_t g = 0; g < o->num_groups; g++) {
        uint32_t n = 0;
        uint64_t room = (uint64_t)o->num_nodes * QR_NODE_BLOCKS; /* in the free nodes */
        uint32_t count = spans[g].count < room ? spans[g].count : (uint32_t)room;
        for (uint32_t i = 0; i < count; i++)
            if (spans[g].ids[i] != QUIRE_NULL_BLOCK)
                o->scratch[n++] = spans[g].ids[i];
        if (quire_pool_touch(o->cpu, o->scratch, n) != QUIRE_OK)
            continue;
        for (uint32_t i = 0; i < n; i++)
            add_protected(o, r, o->scratch[i]);
    }
}

/* What the CPU pool has of a request, in tokens. The first hashes mostly tell where that ends: a
 * full kind finds nothing behind a block that is not there. */
static uint32_t find_expected(quire_offload *o, quire_req req, uint32_t num_tokens,
                              quire_block_span *spans)
{
    const void *hashes = NULL;
    uint32_t num_hashes = 0;
    bool is_plain = !o->has_windows && o->num_groups == 1;
    if (is_plain &&
        quire_sched_get_hashes(o->sched, req, FIRST_HASHES, &hashes, &num_hashes) != QUIRE_OK)
        return 0;
    uint32_t num_peeked = num_hashes * o->host.hash_size;
    if (is_plain && num_hashes == FIRST_HASHES && num_peeked < num_tokens) {
        uint32_t num_hit = qr_match_find(o, hashes, num_hashes, num_peeked + 1, 0, spans);
        if (num_hit + o->groups[0].block_size <= num_peeked)
            return num_hit;
    }
    if (quire_sched_get_hashes(o->sched, req, UINT32_MAX, &hashes, &num_hashes) != QUIRE_OK)
        return 0;
    return qr_match_find(o, hashes, num_hashes, num_tokens, 0, spans);
}

/* What the tiers have behind that comes ahead of time. Where no tier has the next block, its hash
 * tells it, and the others need not be touched. */
static void expect_of_tiers(quire_offload *o, quire_req req, uint32_t num_tokens, uint32_t num_hit)
{
    const void *hashes = NULL;
    qr_promote_request request = {.req = req, .num_tokens = num_tokens, .num_found = num_hit};
    uint32_t most = num_hit / o->host.hash_size + 1; /* one group alone joins no hashes */
    if (!qr_promote_needs_all(o->promote) &&
        quire_sched_get_hashes(o->sched, req, most, &hashes, &request.num_hashes) == QUIRE_OK) {
        request.hashes = hashes;
        if (!qr_promote_has_next(o->promote, &request)) {
            qr_promote_prefetch(o->promote, &request);
            return;
        }
    }
    if (quire_sched_get_hashes(o->sched, req, UINT32_MAX, &hashes, &request.num_hashes) !=
            QUIRE_OK ||
        request.num_hashes == 0)
        return;
    request.hashes = hashes;
    qr_promote_prefetch(o->promote, &request);
}

static void expect(quire_offload *o, quire_req req, uint32_t place)
{
    quire_block_span spans[QR_OFFLOAD_MAX_GROUPS];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    qr_offload_req *r = &o->reqs[quire_req_index(req)];
    r->ahead = req;
    r->seen = o->look;
    r->place = place;
    o->expected[o->num_expected++] = quire_req_index(req);
    r->num_expected = UINT32_MAX;
    if (quire_sched_get_req_info(o->sched, req, &info) != QUIRE_OK || info.num_computed_tokens > 0)
        return; /* it has its blocks */
    uint32_t num_hit = find_expected(o, req, info.num_tokens, spans);
    r->num_expected = num_hit;
    if (num_hit > 0)
        protect(o, r, spans);
    qr_count_add(&o->counters.expected_blocks, r->num_protected);
    if (o->promote != NULL && !info.is_offloaded) /* an offloaded request asks when it resumes */
        expect_of_tiers(o, req, info.num_tokens, num_hit);
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
    uint32_t num_waiting = quire_sched_get_counts(o->sched).num_waiting;
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
    for (uint32_t i = 0; i < n; i++) {
        const qr_offload_req *r = &o->reqs[quire_req_index(o->queue[i])];
        bool is_saved = r->req == o->queue[i] && r->ahead == r->req;
        if (is_saved &&
            r->num_saved > r->num_expected) /* stores that were on the way may be there */
            qr_protect_release(o, o->queue[i]);
        if (r->ahead != o->queue[i])
            expect(o, o->queue[i], i);
    }
}
