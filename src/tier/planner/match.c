/* tier/planner/match.c - what a request finds in the host pool, and asks of tiers. */
#include "tier/planner/planner.h"

void qr_planner_release_match(quire_planner *p)
{
    qr_planner_match *m = &p->match;
    uint32_t total = 0;
    uint32_t n = 0;
    for (uint32_t g = 0; m->is_pinned && g < p->host.num_groups; g++)
        total += m->counts[g];
    while (total-- > 0 && m->is_pinned) /* the last first: it is the first to go */
        if (m->blocks[total] != QUIRE_NULL_BLOCK)
            p->scratch2[n++] = m->blocks[total];
    quire_pool_free_blocks(p->host.pool, p->scratch2, n);
    m->is_pinned = false;
    m->req = 0;
}

static bool pin_match(quire_planner *p, quire_req req, const quire_block_span *spans)
{
    qr_planner_match *m = &p->match;
    uint32_t n = 0;
    uint32_t num_pinned = 0;
    for (uint32_t g = 0; g < p->host.num_groups; g++) {
        m->counts[g] = spans[g].count;
        for (uint32_t i = 0; i < spans[g].count; i++) {
            m->blocks[n++] = spans[g].ids[i];
            if (spans[g].ids[i] != QUIRE_NULL_BLOCK)
                p->scratch[num_pinned++] = spans[g].ids[i];
        }
    }
    m->req = req;
    m->is_pinned = quire_pool_touch(p->host.pool, p->scratch, num_pinned) == QUIRE_OK;
    return m->is_pinned;
}

/* Whether another request loads the first of these blocks into the engine: it will be found there.
 * A request waits for loads that had begun when it began to wait: where the engine does not keep
 * the blocks, it loads them itself then. */
static bool waits_for_load(const quire_planner *p, qr_planner_req *r, const quire_block_span *spans)
{
    quire_block first = QUIRE_NULL_BLOCK;
    for (uint32_t g = 0; g < p->host.num_groups && first == QUIRE_NULL_BLOCK; g++)
        for (uint32_t i = 0; i < spans[g].count && first == QUIRE_NULL_BLOCK; i++)
            first = spans[g].ids[i];
    const qr_planner_slot *slot = &p->slots[first];
    bool waits = p->shares_loads && first != QUIRE_NULL_BLOCK && slot->num_loads > 0 &&
                 (r->waits_since == 0 || slot->last_load <= r->waits_since);
    if (!waits)
        r->waits_since = 0;
    else if (r->waits_since == 0)
        r->waits_since = p->last_load;
    return waits;
}

/* There are batches for so many blocks. */
static bool has_batches(const quire_planner *p)
{
    return p->num_free_batches > p->row_blocks / QR_BATCH_COPIES + p->host.num_groups;
}

int qr_planner_match_request(quire_planner *p, qr_planner_req *r,
                             const quire_planner_request *request, uint32_t num_local,
                             uint32_t *num_external)
{
    qr_planner_match *m = &p->match;
    quire_block_span spans[QR_HOST_MAX_GROUPS];
    *num_external = 0;
    if (m->is_pinned && m->req == r->req && m->num_local == num_local &&
        m->num_asked == request->num_tokens) {
        *num_external = m->num_external;
        return QUIRE_OK;
    }
    qr_planner_release_match(p);
    if (r->load != QR_PLANNER_NO_LOAD || !has_batches(p))
        return QUIRE_OK;
    for (uint32_t g = 0; g < p->host.num_groups; g++)
        if (num_local % p->host.groups[g].block_size != 0)
            return QUIRE_OK;
    uint32_t num_tokens = qr_host_pool_most_tokens(&p->host, request->num_tokens, num_local);
    uint32_t num_hit = qr_host_pool_find(&p->host, request->hashes, request->num_hashes, num_tokens,
                                         num_local, p->num_storing > 0, spans);
    if (num_hit > 0 && waits_for_load(p, r, spans))
        return QUIRE_RETRY;
    if (num_hit > 0 && !pin_match(p, r->req, spans)) /* before room is made for what a tier has */
        return QUIRE_OK;
    qr_promote_request ask = {.req = r->req,
                              .hashes = request->hashes,
                              .num_hashes = request->num_hashes,
                              .num_tokens = num_tokens,
                              .num_local = num_local,
                              .num_found = num_local + num_hit};
    if (p->promote != NULL && qr_promote_ask(p->promote, &ask)) { /* a tier is fetching more */
        qr_planner_release_match(p);
        return QUIRE_RETRY;
    }
    if (num_hit > 0 && m->req != r->req) /* given up, to make room */
        return QUIRE_RETRY;
    m->num_local = num_local;
    m->num_asked = request->num_tokens;
    m->num_external = num_hit;
    *num_external = num_hit;
    return QUIRE_OK;
}
