/* tier/offload/match.c - what a new request finds in the CPU pool. */
#include "tier/offload/offload.h"

uint32_t qr_match_find(const quire_offload *o, const unsigned char *hashes, uint32_t num_hashes,
                       uint32_t num_tokens, uint32_t num_local, quire_block_span *spans)
{
    return qr_host_pool_find(&o->host, hashes, num_hashes, num_tokens, num_local, o->num_flight > 0,
                             spans);
}

/* In the midst of others' work: their scratch is not touched. */
void qr_match_release(quire_offload *o)
{
    qr_offload_match *m = &o->match;
    quire_block freed[QR_COPIES_IN_JOB];
    uint32_t n = 0;
    uint32_t left = 0;
    for (uint32_t g = 0; m->is_pinned && g < o->num_groups; g++)
        left += m->counts[g];
    while (left-- > m->num_known) { /* the last first: it is the first to go */
        if (m->blocks[left] != QUIRE_NULL_BLOCK)
            freed[n++] = m->blocks[left];
        if (n == QR_COPIES_IN_JOB || left == m->num_known) {
            quire_pool_free_blocks(o->cpu, freed, n);
            n = 0;
        }
    }
    m->is_pinned = false;
    m->num_known = 0;
    m->req = 0;
}

void qr_match_take_over(quire_offload *o, quire_req req)
{
    qr_offload_match *m = &o->match;
    if (m->num_known == 0 || m->req != req)
        return;
    m->num_known = 0;
    qr_protect_hand_over(o, req, m->num_local / o->groups[0].block_size);
}

/* A request that was looked up while it waited: its blocks are known, and somebody protects them.
 * What is behind them alone is to be found. Returns how many there are behind those that the engine
 * has, the first in m->blocks; none when their keys are not the request's any more. */
static uint32_t recall_blocks(quire_offload *o, quire_req req, const unsigned char *hashes,
                              uint32_t num_hashes, uint32_t num_local)
{
    qr_offload_match *m = &o->match;
    uint32_t size = o->groups[0].block_size;
    qr_key_form form = o->host.groups[0].key_form;
    uint32_t skipped = num_local / size;
    if (o->num_groups > 1 || o->has_windows || num_local % size != 0)
        return 0;
    uint32_t n = qr_protect_count(o, req);
    if (n <= skipped || n > num_hashes / form.joined)
        return 0;
    qr_protect_list(o, req, m->blocks);
    n -= skipped;
    memmove(m->blocks, m->blocks + skipped, n * sizeof *m->blocks);
    /* blocks with a user keep their keys, and a hash stands for all before it: the last tells */
    quire_bytes last = qr_block_key(form, hashes, skipped + n - 1);
    quire_block_info info;
    bool is_there = quire_pool_get_block(o->cpu, m->blocks[n - 1], &info) == QUIRE_OK &&
                    info.group_id == 0 && info.hash.len == last.len &&
                    memcmp(info.hash.data, last.data, last.len) == 0;
    return is_there ? n : 0;
}

/* Null blocks stay where they are: places count. The first num_known are there already. */
static void keep_match(quire_offload *o, quire_req req, const quire_block_span *spans,
                       uint32_t num_known)
{
    qr_offload_match *m = &o->match;
    uint32_t n = num_known;
    uint32_t pinned = 0;
    for (uint32_t g = 0; g < o->num_groups; g++) {
        m->counts[g] = spans[g].count + (g == 0 ? num_known : 0);
        for (uint32_t i = 0; i < spans[g].count; i++) {
            m->blocks[n++] = spans[g].ids[i];
            if (spans[g].ids[i] != QUIRE_NULL_BLOCK)
                o->scratch[pinned++] = spans[g].ids[i];
        }
    }
    m->req = req;
    m->is_pinned = quire_pool_touch(o->cpu, o->scratch, pinned) == QUIRE_OK;
    m->num_known = m->is_pinned ? num_known : 0;
}

/* A request that finds no room is asked for in each step: what it was told stays true, unless the
 * block behind has come meanwhile. */
static bool is_match_good(const quire_offload *o, quire_req req, uint32_t num_local,
                          const quire_req_info *info)
{
    const qr_offload_match *m = &o->match;
    return m->is_pinned && m->req == req && m->num_local == num_local &&
           m->num_asked == info->num_tokens && m->step + 1 >= o->step;
}

int qr_match_request(void *user, quire_req req, uint32_t num_local, uint32_t *num_external,
                     uint32_t *is_async)
{
    quire_offload *o = user;
    quire_block_span spans[QR_OFFLOAD_MAX_GROUPS];
    quire_req_info info = QUIRE_REQ_INFO_INIT;
    const void *hashes = NULL;
    uint32_t num_hashes = 0;
    *num_external = 0;
    *is_async = 0;
    bool is_known = quire_sched_get_req_info(o->sched, req, &info) == QUIRE_OK;
    bool can_load = o->has_mark && o->num_late == 0 && !o->is_closed;
    if (is_known && can_load && is_match_good(o, req, num_local, &info)) {
        o->match.step = o->step;
        *num_external = o->match.num_tokens;
        *is_async = 1;
        return QUIRE_OK;
    }
    qr_match_release(o);
    if (!can_load || !is_known || /* nothing could be loaded in time */
        quire_sched_get_hashes(o->sched, req, UINT32_MAX, &hashes, &num_hashes) != QUIRE_OK)
        return QUIRE_OK;
    uint32_t num_known = recall_blocks(o, req, hashes, num_hashes, num_local);
    uint32_t num_hit = num_known * o->groups[0].block_size;
    uint32_t num_tokens = qr_host_pool_most_tokens(&o->host, info.num_tokens, num_local);
    uint32_t more = qr_match_find(o, hashes, num_hashes, num_tokens, num_local + num_hit, spans);
    if (more == 0)
        memset(spans, 0, o->num_groups * sizeof *spans);
    num_hit += more;
    if (num_hit > 0)
        keep_match(o, req, spans, num_known); /* before room is made for what a tier has */
    qr_promote_request request = {.req = req,
                                  .hashes = hashes,
                                  .num_hashes = num_hashes,
                                  .num_tokens = num_tokens,
                                  .num_local = num_local,
                                  .num_found = num_local + num_hit};
    if (o->promote != NULL && qr_promote_ask(o->promote, &request)) { /* a tier is fetching more */
        qr_match_release(o);
        return QUIRE_RETRY;
    }
    if (num_hit > 0 && o->match.req != req) /* given up, to make room */
        return QUIRE_RETRY;
    o->match.num_tokens = num_hit;
    o->match.num_local = num_local;
    o->match.num_asked = info.num_tokens;
    o->match.step = o->step;
    *num_external = num_hit;
    *is_async = num_hit > 0;
    return QUIRE_OK;
}
