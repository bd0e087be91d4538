#include "sched/retain/swap.h"

#include "base/hooks.h"
#include "sched/sched.h"

/* ---- making it -------------------------------------------------------------- */

static void carve_moves(qr_swap_moves *moves, qr_arena *arena, uint32_t num_slots)
{
    moves->blocks = qr_arena_take(arena, num_slots, sizeof *moves->blocks);
    moves->slots = qr_arena_take(arena, num_slots, sizeof *moves->slots);
}

void qr_swap_carve(qr_swap *swap, qr_arena *arena, uint32_t num_slots)
{
    swap->num_slots = num_slots;
    swap->slots = qr_arena_take(arena, num_slots, sizeof *swap->slots);
    carve_moves(&swap->out, arena, num_slots);
    carve_moves(&swap->asked, arena, num_slots);
    carve_moves(&swap->in, arena, num_slots);
}

void qr_swap_init(qr_swap *swap, const quire_sched_config *c)
{
    swap->setup_ns = c->swap_setup_ns;
    swap->block_ns = c->swap_block_ns;
    swap->token_ns = c->recompute_token_ns;
    qr_cost_init(&swap->learned_move, 0, 0);
    qr_cost_init(&swap->learned_compute, 0, 0);
    swap->first_free = QR_NIL;
    for (uint32_t slot = swap->num_slots; slot-- > 0;) {
        swap->slots[slot] = (qr_swap_slot){.next = swap->first_free, .owner = QR_NIL};
        swap->first_free = slot;
    }
    swap->num_free = swap->num_slots;
}

/* ---- which blocks ----------------------------------------------------------- */

/* Tokens whose KV is in the blocks for good. Steps in flight are computed before the copies are
 * made, and what they write for tokens that are known is right whatever comes out; behind those are
 * placeholders and drafts. The last known token must be computed, to have something to sample from.
 */
static uint32_t sure_tokens(const qr_request *r)
{
    if (r->load_step != 0)
        return 0;
    uint32_t computed = r->kv.num_computed_tokens;
    return computed < r->kv.num_tokens ? computed : r->kv.num_tokens - 1;
}

/* Whether all blocks to be kept are there; *frees: giving them up frees any. What others hold as
 * well need not be kept. */
static bool can_keep(const quire_sched *s, uint32_t num_tokens, bool *frees)
{
    *frees = false;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        qr_saved_range range = qr_group_saved_range(&s->cache->groups[g], num_tokens);
        quire_block_span row = s->room.spans[g];
        for (uint32_t i = range.first; i < range.end; i++) {
            quire_block block = i < row.count ? row.ids[i] : QUIRE_NULL_BLOCK;
            if (block == QUIRE_NULL_BLOCK)
                return false;
            *frees = *frees || qr_pool_is_one_user(s->cache->pool, block);
        }
    }
    return true;
}

/* ---- out -------------------------------------------------------------------- */

static void add_move(qr_swap_moves *moves, quire_block block, uint32_t slot)
{
    moves->blocks[moves->count] = block;
    moves->slots[moves->count++] = slot;
}

static uint32_t take_slot(qr_swap *swap, uint32_t owner)
{
    uint32_t slot = swap->first_free;
    qr_assert(slot != QR_NIL && swap->slots[slot].owner == QR_NIL);
    swap->first_free = swap->slots[slot].next;
    swap->num_free--;
    swap->slots[slot] = (qr_swap_slot){.next = QR_NIL, .owner = owner};
    return slot;
}

static void tell_swapped(const quire_sched *s, uint32_t index, uint32_t num_tokens)
{
    qr_observer_tell(&s->observer,
                     (quire_decision){.kind = QUIRE_DECISION_SWAPPED,
                                      .req = qr_sched_req_of(s, index),
                                      .num = qr_cache_num_saved(s->cache, num_tokens)});
}

/* Copies the row in s->spans into slots, which become the request's chain. Copies on write are made
 * after the swap-outs of the step: what a block is to get by one is read from where it lies. */
static void keep_blocks(quire_sched *s, uint32_t index, uint32_t num_tokens, qr_swap_moves *moves)
{
    qr_swap *swap = &s->swap;
    uint32_t *link = &s->table.requests[index].first_saved;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        qr_saved_range range = qr_group_saved_range(&s->cache->groups[g], num_tokens);
        for (uint32_t i = range.first; i < range.end; i++) {
            *link = take_slot(swap, index);
            add_move(moves, qr_cache_content_of(s->cache, s->room.spans[g].ids[i]), *link);
            link = &swap->slots[*link].next;
        }
    }
    s->table.requests[index].num_saved = num_tokens;
    s->table.waiters[index].is_swapped = true;
    swap->num_requests++;
    tell_swapped(s, index, num_tokens);
}

void qr_swap_begin(qr_swap *swap)
{
    qr_swap_moves free = swap->out;
    swap->out = swap->asked;
    swap->asked = free;
    swap->asked.count = 0;
    swap->in.count = 0;
    swap->num_tokens_in = 0;
}

bool qr_swap_pays(const quire_sched *s, uint32_t index)
{
    uint32_t num_tokens = sure_tokens(&s->table.requests[index]);
    uint64_t moving =
        s->swap.setup_ns + qr_cache_num_saved(s->cache, num_tokens) * s->swap.block_ns;
    return 2 * moving < num_tokens * s->swap.token_ns;
}

/* ---- what it costs ---------------------------------------------------------- */

static uint64_t clamp_ns(double ns)
{
    return ns < (double)UINT32_MAX ? (uint64_t)ns : UINT32_MAX;
}

void qr_swap_learn_move(qr_swap *swap, uint32_t num_blocks, uint64_t ns)
{
    qr_cost_learn(&swap->learned_move, num_blocks, (double)ns);
    if (!swap->learned_move.is_known)
        return;
    swap->setup_ns = clamp_ns(swap->learned_move.base_ns);
    swap->block_ns = clamp_ns(swap->learned_move.unit_ns);
}

void qr_swap_learn_compute(qr_swap *swap, uint32_t num_tokens, uint64_t ns)
{
    qr_cost_learn(&swap->learned_compute, num_tokens, (double)ns);
    uint64_t token_ns = clamp_ns(swap->learned_compute.unit_ns);
    if (swap->learned_compute.is_known)
        swap->token_ns = token_ns == 0 ? 1 : token_ns;
}

/* ---- a connector that saves ------------------------------------------------- */

static bool has_saver(const quire_sched *s)
{
    return s->partners.has_connector && s->partners.connector.request_preempted != NULL;
}

bool qr_swap_is_on(const quire_sched *s)
{
    return s->swap.num_slots > 0 || has_saver(s);
}

/* How many of the request's tokens the connector has, now or soon. */
static uint32_t save_tokens(quire_sched *s, uint32_t index, bool is_urgent)
{
    qr_request *r = &s->table.requests[index];
    uint32_t num_tokens = sure_tokens(r);
    if (num_tokens == 0 || r->kv.seq == 0)
        return 0;
    qr_sched_cache_end(s, index); /* it saves what has keys */
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    uint32_t n = s->partners.connector.request_preempted(s->partners.connector.user,
                                                         qr_sched_req_of(s, index), s->room.spans,
                                                         num_tokens, is_urgent);
    r->num_hosted = n < num_tokens ? n : num_tokens;
    if (r->num_hosted > 0)
        tell_swapped(s, index, r->num_hosted);
    return r->num_hosted;
}

/* ---- out, asked and in a step ----------------------------------------------- */

int qr_swap_prepare(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    uint32_t num_tokens = sure_tokens(r);
    bool frees;
    if (!qr_swap_is_on(s))
        return QUIRE_E_DISABLED;
    if (r->load_step != 0)
        return QUIRE_BUSY;
    if (has_saver(s) && save_tokens(s, index, false) > 0)
        return QUIRE_OK;
    uint32_t num_blocks = qr_cache_num_saved(s->cache, num_tokens); /* 0: a window of one token */
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    if (num_tokens == 0 || num_blocks == 0 || !can_keep(s, num_tokens, &frees))
        return QUIRE_MISS;
    return num_blocks <= s->swap.num_free ? QUIRE_OK : QUIRE_FULL; /* FULL without any slots, too */
}

void qr_swap_asked(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    qr_assert(r->num_saved == 0 && s->table.waiters[index].queue == 0);
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    keep_blocks(s, index, sure_tokens(r), &s->swap.asked);
}

void qr_swap_out(quire_sched *s, uint32_t index, bool is_urgent)
{
    const qr_request *r = &s->table.requests[index];
    qr_swap *swap = &s->swap;
    uint32_t num_tokens = sure_tokens(r);
    qr_assert(r->num_saved == 0 && s->table.waiters[index].queue == 0);
    if (has_saver(s) && save_tokens(s, index, is_urgent) > 0)
        return;
    if (swap->num_slots == 0 || num_tokens == 0)
        return;
    if (qr_cache_num_saved(s->cache, num_tokens) > swap->num_free || !qr_swap_pays(s, index))
        return;
    bool frees;
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    if (!can_keep(s, num_tokens, &frees) || !frees)
        return;
    qr_assert(swap->in.count == 0); /* a slot that was read in a step is not written in it */
    keep_blocks(s, index, num_tokens, &swap->out);
}

/* ---- in --------------------------------------------------------------------- */

void qr_swap_in(quire_sched *s, uint32_t index, uint32_t num_local)
{
    const qr_request *r = &s->table.requests[index];
    uint32_t slot = r->first_saved;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        const qr_group *group = &s->cache->groups[g];
        qr_saved_range range = qr_group_saved_range(group, r->num_saved);
        for (uint32_t i = range.first; i < range.end; i++) {
            if (i >= num_local / group->block_size)
                add_move(&s->swap.in, s->room.spans[g].ids[i], slot);
            slot = s->swap.slots[slot].next;
        }
    }
    qr_assert(slot == QR_NIL);
    s->swap.num_tokens_in += r->num_saved > num_local ? r->num_saved - num_local : 0;
    qr_swap_drop(s, index);
}

/* Its slots may become another request's before the next step. */
static void forget_asked(qr_swap *swap, uint32_t index)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < swap->asked.count; i++) {
        if (swap->slots[swap->asked.slots[i]].owner == index)
            continue;
        swap->asked.blocks[left] = swap->asked.blocks[i];
        swap->asked.slots[left++] = swap->asked.slots[i];
    }
    swap->asked.count = left;
}

void qr_swap_drop(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->table.requests[index];
    qr_swap *swap = &s->swap;
    if (r->num_saved == 0)
        return;
    qr_assert(s->table.waiters[index].queue == 0);
    forget_asked(swap, index);
    for (uint32_t slot = r->first_saved; slot != QR_NIL;) {
        uint32_t next = swap->slots[slot].next;
        swap->slots[slot] = (qr_swap_slot){.next = swap->first_free, .owner = QR_NIL};
        swap->first_free = slot;
        swap->num_free++;
        slot = next;
    }
    r->num_saved = 0;
    s->table.waiters[index].is_swapped = false;
    swap->num_requests--;
}

/* Its place among those that wait depends on what it has: out and in again, the last first, so that
 * they keep their order. */
static void drop_queue(quire_sched *s, qr_waiting *queue)
{
    for (uint32_t n = qr_waiting_list(queue, s->room.order); n-- > 0;) {
        uint32_t index = s->room.order[n];
        if (s->table.requests[index].num_saved == 0)
            continue;
        qr_waiting_remove(queue, index);
        qr_swap_drop(s, index);
        qr_waiting_prepend(queue, index);
    }
}

void qr_swap_drop_all(quire_sched *s)
{
    if (s->swap.num_requests == 0)
        return;
    drop_queue(s, &s->queues.waiting);
    drop_queue(s, &s->queues.skipped);
    qr_assert(s->swap.num_requests == 0);
}

/* ---- the walker ------------------------------------------------------------- */

/* A chain of exactly n slots of this owner. */
static bool chain_is_valid(const qr_swap *swap, uint32_t slot, uint32_t owner, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (slot >= swap->num_slots || swap->slots[slot].owner != owner)
            return false;
        slot = swap->slots[slot].next;
    }
    return slot == QR_NIL;
}

bool qr_swap_is_valid(const quire_sched *s)
{
    const qr_swap *swap = &s->swap;
    uint64_t used = 0;
    uint32_t num_requests = 0;
    for (uint32_t i = 0; i < s->settings.max_requests; i++) {
        const qr_request *r = &s->table.requests[i];
        if (s->table.waiters[i].is_swapped != (r->num_saved > 0))
            return false;
        if (r->num_hosted > 0 && (r->kv.seq != 0 || r->num_hosted > r->kv.num_tokens))
            return false;
        if (r->num_saved == 0)
            continue;
        bool waits = r->status == QUIRE_REQ_PREEMPTED || r->status == QUIRE_REQ_WAITING ||
                     r->status == QUIRE_REQ_WAITING_FOR_STREAMING;
        if (!waits || r->num_saved >= r->kv.num_tokens || r->kv.num_computed_tokens != 0 ||
            r->kv.seq != 0)
            return false;
        uint32_t n = qr_cache_num_saved(s->cache, r->num_saved);
        if (!chain_is_valid(swap, r->first_saved, i, n))
            return false;
        used += n;
        num_requests++;
    }
    for (uint32_t i = 0; i < swap->asked.count; i++)
        if (swap->slots[swap->asked.slots[i]].owner == QR_NIL)
            return false;
    return used + swap->num_free == swap->num_slots && num_requests == swap->num_requests &&
           chain_is_valid(swap, swap->first_free, QR_NIL, swap->num_free);
}
