#include "sched/queues/prefix.h"

#include "sched/sched.h"

/* ---- making ---------------------------------------------------------------- */

void qr_prefix_carve(qr_prefix *p, qr_arena *arena, const quire_sched_config *c)
{
    bool is_on = c->prefix_window > 0;
    p->reqs = qr_arena_take(arena, c->prefix_window, sizeof *p->reqs);
    p->nearest = qr_arena_take(arena, is_on ? (size_t)c->prefix_window + 1 : 0, sizeof *p->nearest);
    p->waits = qr_arena_take(arena, is_on ? c->max_requests : 0, sizeof *p->waits);
}

void qr_prefix_init(qr_prefix *p, const quire_sched_config *c)
{
    p->window = c->prefix_window;
    p->patience = c->prefix_patience > 0 ? c->prefix_patience : QR_PREFIX_PATIENCE;
    p->num = 0;
    p->chosen = 0;
    p->num_overtaking = 0;
    p->admitted = (qr_turns){0};
    for (uint32_t i = 0; p->window > 0 && i < c->max_requests; i++)
        p->waits[i] = (qr_prefix_wait){0};
}

/* ---- what a request finds ---------------------------------------------------- */

/* Whether the request's block i of a group is in the pool. */
static bool is_there(const quire_sched *s, const qr_request *r, const qr_group *group, uint32_t i)
{
    uint32_t first = i * group->hashes_joined;
    const unsigned char *hashes =
        qr_text_hash_row(&s->texts.store, &r->text, first, first + group->hashes_joined);
    qr_key key = {hashes + group->first_key, group->hash_len, group->id};
    return qr_map_get(&s->cache->pool->map, key) != QUIRE_NULL_BLOCK;
}

/* How many of the request's first blocks are in the pool, as if those before one that is there were
 * there too. low is there (or 0), high is not (or past the end). */
static uint32_t search_end(const quire_sched *s, const qr_request *r, const qr_group *group,
                           uint32_t low, uint32_t high)
{
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (is_there(s, r, group, middle - 1))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t count_found(const quire_sched *s, const qr_request *r, const qr_group *group,
                            uint32_t known)
{
    uint32_t most = r->kv.num_hashes / group->hashes_joined;
    uint32_t low = known < most ? known : most;
    if (low > 0 && !is_there(s, r, group, low - 1))
        return search_end(s, r, group, 0, low);
    for (uint32_t step = 1; low < most; step *= 2) { /* mostly it has not grown */
        uint32_t high = step < most - low ? low + step : most;
        if (!is_there(s, r, group, high - 1))
            return search_end(s, r, group, low, high);
        low = high;
    }
    return low;
}

/* Tokens of the request's prefix that are in the pool. Without a group of a full kind no block says
 * anything of those before it, and all of them are looked up. */
static uint32_t count_tokens_found(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    qr_prefix_wait *wait = &s->prefix.waits[index];
    bool may_find = r->kv.seq == 0 && r->num_saved == 0 && r->kv.skip_reading_prefix == 0;
    const qr_group_set *set = &s->cache->sets[0];
    uint32_t num_tokens = 0;
    if (!may_find)
        return 0;
    if (set->is_full) {
        const qr_group *group = &s->cache->groups[set->ids[0]];
        wait->num_found = count_found(s, r, group, wait->num_found);
        return wait->num_found * group->block_size;
    }
    qr_sched_show_all_hashes(s, index);
    int err = qr_cache_get_computed_blocks(s->cache, &r->kv, s->room.spans, &num_tokens);
    qr_assert(err == QUIRE_OK);
    return num_tokens;
}

/* ---- the bound ----------------------------------------------------------------- */

/* Whether one more request may be admitted before it, in one unit. */
static bool is_below(uint64_t overtaken, uint64_t all, uint32_t patience)
{
    return overtaken < (patience - 1) * (all - overtaken);
}

/* Whether no request behind this one may be admitted before it. */
static bool is_barrier(const quire_sched *s, uint32_t index)
{
    const qr_prefix *p = &s->prefix;
    const qr_request *r = &s->table.requests[index];
    const qr_prefix_wait *wait = &p->waits[index];
    if (r->status != QUIRE_REQ_WAITING || r->kv.seq != 0)
        return true;
    return !is_below(wait->overtaken.tokens, p->admitted.tokens - wait->came.tokens, p->patience) ||
           !is_below(wait->overtaken.requests, p->admitted.requests - wait->came.requests,
                     p->patience);
}

void qr_prefix_enter(quire_sched *s, uint32_t index)
{
    s->prefix.waits[index] = (qr_prefix_wait){.came = s->prefix.admitted};
}

/* ---- choosing ------------------------------------------------------------------ */

uint32_t qr_prefix_choose(quire_sched *s)
{
    qr_prefix *p = &s->prefix;
    uint32_t most_found = 0;
    p->chosen = 0;
    p->num = qr_waiting_first(&s->queues.waiting, p->reqs, p->window, p->nearest);
    int32_t priority = s->table.waiters[p->reqs[0]].priority;
    for (uint32_t i = 0; i < p->num; i++) {
        if (s->settings.policy == QUIRE_POLICY_PRIORITY &&
            s->table.waiters[p->reqs[i]].priority != priority)
            break;
        bool is_last = is_barrier(s, p->reqs[i]);
        if (i == 0 && is_last) /* it is next, whatever it finds */
            break;
        uint32_t found = count_tokens_found(s, p->reqs[i]);
        if (i == 0 || found > most_found) {
            most_found = found;
            p->chosen = i;
        }
        if (is_last)
            break;
    }
    return p->reqs[p->chosen];
}

void qr_prefix_admitted(quire_sched *s, uint32_t index, uint32_t num_tokens, bool is_chosen)
{
    qr_prefix *p = &s->prefix;
    p->admitted.tokens += num_tokens;
    p->admitted.requests++;
    if (!is_chosen || p->chosen == 0)
        return;
    for (uint32_t i = 0; i < p->chosen; i++) {
        p->waits[p->reqs[i]].overtaken.tokens += num_tokens;
        p->waits[p->reqs[i]].overtaken.requests++;
    }
    p->num_overtaking++;
    qr_observer_tell(&s->observer, (quire_decision){.kind = QUIRE_DECISION_OVERTOOK,
                                                    .req = qr_sched_req_of(s, index),
                                                    .other = qr_sched_req_of(s, p->reqs[0]),
                                                    .num = p->chosen});
}

/* ---- checking ------------------------------------------------------------------ */

bool qr_prefix_is_valid(const quire_sched *s)
{
    const qr_prefix *p = &s->prefix;
    for (uint32_t i = 0; p->window > 0 && i < s->settings.max_requests; i++) {
        const qr_prefix_wait *wait = &p->waits[i];
        if (!s->table.requests[i].is_in_use)
            continue;
        uint64_t tokens = p->admitted.tokens - wait->came.tokens;
        uint64_t requests = p->admitted.requests - wait->came.requests;
        if (wait->came.tokens > p->admitted.tokens || wait->came.requests > p->admitted.requests ||
            wait->overtaken.tokens > tokens || wait->overtaken.requests > requests)
            return false;
        uint64_t most =
            (p->patience - 1) * (tokens - wait->overtaken.tokens) + s->settings.max_model_len;
        if (wait->overtaken.tokens > most ||
            wait->overtaken.requests > (p->patience - 1) * (requests - wait->overtaken.requests))
            return false;
    }
    return true;
}
