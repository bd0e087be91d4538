#include "sched/pins.h"

#include "base/hooks.h"
#include "base/refuse.h"
#include "sched/sched.h"

/* ---- making ---------------------------------------------------------------- */

int qr_pins_config_check(const quire_sched_config *c)
{
    bool is_vllm = c->profile == QUIRE_PROFILE_VLLM_0_20;
    if (c->max_pins > 0 && (is_vllm || c->cache.enable_caching != QUIRE_ON))
        return qr_refuse("max_pins is %u, but pins need the default profile with prefix caching",
                         c->max_pins);
    return QUIRE_OK;
}

/* The full blocks of one request, in all groups. */
static uint32_t pin_row_blocks(const quire_cache_config *c)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < c->num_groups; g++)
        n += c->max_model_len / c->groups[g].spec.block_size;
    return n < c->num_blocks ? (uint32_t)n : c->num_blocks;
}

void qr_pins_carve(qr_pins *pins, qr_arena *arena, const quire_sched_config *c)
{
    uint32_t row = c->max_pins == 0 ? 0 : pin_row_blocks(&c->cache);
    pins->pins = qr_arena_take(arena, c->max_pins, sizeof *pins->pins);
    pins->rows = qr_arena_take(arena, ((size_t)c->max_pins + 1) * row, sizeof *pins->rows);
    pins->spare = qr_arena_take(arena, row, sizeof *pins->spare);
    pins->users =
        qr_arena_take(arena, c->max_pins == 0 ? 0 : c->cache.num_blocks, sizeof *pins->users);
}

void qr_pins_init(qr_pins *pins, const quire_sched_config *c)
{
    pins->max_pins = c->max_pins;
    pins->row_blocks = c->max_pins == 0 ? 0 : pin_row_blocks(&c->cache);
    pins->num_pins = 0;
    pins->num_blocks = 0;
    if (c->max_pins > 0)
        memset(pins->users, 0, c->cache.num_blocks * sizeof *pins->users);
}

/* ---- letting go ------------------------------------------------------------ */

/* The last one takes its place. */
static void end_pin(quire_sched *s, uint32_t pin)
{
    qr_pins *p = &s->pins;
    const quire_block *row = qr_pins_row(p, pin);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->pins[pin].num_blocks; i++)
        if (--p->users[row[i]] == 0)
            p->spare[n++] = row[i];
    int err = qr_pool_let_go(s->cache->pool, p->spare, n, false);
    qr_assert(err == QUIRE_OK);
    p->num_blocks -= n;
    uint32_t last = --p->num_pins;
    if (pin == last)
        return;
    p->pins[pin] = p->pins[last];
    memcpy(qr_pins_row(p, pin), qr_pins_row(p, last), p->pins[last].num_blocks * sizeof *p->rows);
}

void qr_pins_expire(quire_sched *s)
{
    uint64_t now = qr_now_ns(&s->observer.hooks);
    for (uint32_t i = s->pins.num_pins; i-- > 0;)
        if (s->pins.pins[i].ends_ns <= now)
            end_pin(s, i);
}

bool qr_pins_give_way(quire_sched *s)
{
    const qr_pins *p = &s->pins;
    if (p->num_pins == 0)
        return false;
    uint32_t soonest = 0;
    for (uint32_t i = 1; i < p->num_pins; i++)
        if (p->pins[i].ends_ns < p->pins[soonest].ends_ns)
            soonest = i;
    end_pin(s, soonest);
    return true;
}

void qr_pins_drop_all(quire_sched *s)
{
    while (s->pins.num_pins > 0)
        end_pin(s, s->pins.num_pins - 1);
}

/* The same block at the same place has the same prefix before it. */
void qr_pins_reused(quire_sched *s, uint32_t num_tokens)
{
    for (uint32_t i = s->pins.num_pins; i-- > 0;) {
        const qr_pin *pin = &s->pins.pins[i];
        uint32_t num_hit = num_tokens / s->cache->groups[pin->last_group].block_size;
        quire_block_span blocks = s->spans[pin->last_group];
        if (pin->last_place < num_hit && pin->last_place < blocks.count &&
            blocks.ids[pin->last_place] == pin->last_block)
            end_pin(s, i);
    }
}

/* ---- keeping --------------------------------------------------------------- */

static uint64_t pin_end(uint64_t now, uint64_t ttl_ns)
{
    return ttl_ns < UINT64_MAX - now ? now + ttl_ns : UINT64_MAX;
}

/* Its blocks that have keys, group by group, last to first, as they are freed. */
static uint32_t list_pinned(quire_sched *s, const qr_request *r, qr_pin *pin)
{
    const qr_block *records = s->cache->pool->queue.blocks;
    uint32_t n = 0;
    quire_cache_get_blocks(s->cache, r->kv.seq, s->spans);
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        for (uint32_t i = s->spans[g].count; i-- > 0;) {
            quire_block block = s->spans[g].ids[i];
            bool has_room = n < s->pins.row_blocks &&
                            qr_pool_count_holds(s->cache->pool, block) < QR_HOLDS_MOST;
            if (block == QUIRE_NULL_BLOCK || !qr_block_has_key(&records[block]) || !has_room)
                continue;
            if (n == 0) {
                pin->last_group = g;
                pin->last_place = i;
                pin->last_block = block;
            }
            s->pins.spare[n++] = block;
        }
    }
    return n;
}

void qr_pins_keep(quire_sched *s, uint32_t index)
{
    qr_request *r = &s->requests[index];
    qr_pins *p = &s->pins;
    bool is_good = r->status != QUIRE_REQ_FINISHED_ERROR && r->status != QUIRE_REQ_FINISHED_IGNORED;
    if (r->kv.seq == 0 || !is_good)
        return;
    qr_pin pin = {.ends_ns = pin_end(qr_now_ns(&s->observer.hooks), r->pin_ns)};
    pin.num_blocks = list_pinned(s, r, &pin);
    if (pin.num_blocks == 0)
        return;
    if (p->num_pins == p->max_pins) { /* its blocks are still the request's own, too */
        quire_block *own = qr_pins_row(p, p->max_pins);
        memcpy(own, p->spare, pin.num_blocks * sizeof *own);
        qr_pins_give_way(s);
        memcpy(p->spare, own, pin.num_blocks * sizeof *own);
    }
    quire_block *row = qr_pins_row(p, p->num_pins);
    memcpy(row, p->spare, pin.num_blocks * sizeof *row);
    uint32_t n = 0;
    for (uint32_t i = 0; i < pin.num_blocks; i++)
        if (p->users[row[i]]++ == 0)
            p->spare[n++] = row[i];
    int err = qr_pool_hold(s->cache->pool, p->spare, n);
    qr_assert(err == QUIRE_OK);
    p->pins[p->num_pins++] = pin;
    p->num_blocks += n;
}

/* ---- checking -------------------------------------------------------------- */

bool qr_pins_are_valid(const quire_sched *s)
{
    const qr_pins *p = &s->pins;
    const qr_queue *queue = &s->cache->pool->queue;
    uint64_t num_listed = 0;
    uint64_t num_users = 0;
    uint32_t num_blocks = 0;
    if (p->num_pins > p->max_pins)
        return false;
    for (uint32_t i = 0; i < p->num_pins; i++) {
        const qr_pin *pin = &p->pins[i];
        bool ok = pin->num_blocks > 0 && pin->num_blocks <= p->row_blocks &&
                  pin->last_group < s->cache->num_groups && pin->last_block == qr_pins_row(p, i)[0];
        for (uint32_t b = 0; ok && b < pin->num_blocks; b++) {
            quire_block block = qr_pins_row(p, i)[b];
            ok = block != QUIRE_NULL_BLOCK && block < queue->num_blocks && p->users[block] > 0;
        }
        if (!ok)
            return false;
        num_listed += pin->num_blocks;
    }
    for (uint32_t b = 0; p->max_pins > 0 && b < queue->num_blocks; b++) {
        num_users += p->users[b];
        num_blocks += p->users[b] > 0;
        if (p->users[b] > 0 && qr_pool_count_holds(s->cache->pool, b) == 0)
            return false;
    }
    return num_users == num_listed && num_blocks == p->num_blocks &&
           num_blocks <= s->cache->pool->num_held;
}
