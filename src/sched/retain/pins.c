#include "sched/retain/pins.h"

#include "base/hooks.h"
#include "sched/sched.h"

/* ---- making ---------------------------------------------------------------- */

void qr_pins_carve(qr_pins *pins, qr_arena *arena, const quire_sched_config *c)
{
    uint32_t row = c->max_pins == 0 ? 0 : qr_cache_most_full_blocks(c->cache);
    pins->pins = qr_arena_take(arena, c->max_pins, sizeof *pins->pins);
    pins->rows = qr_arena_take(arena, ((size_t)c->max_pins + 1) * row, sizeof *pins->rows);
    pins->spare = qr_arena_take(arena, row, sizeof *pins->spare);
    pins->heap = qr_arena_take(arena, c->max_pins, sizeof *pins->heap);
    uint32_t num_blocks = c->max_pins == 0 ? 0 : c->cache->num_blocks;
    pins->users = qr_arena_take(arena, num_blocks, sizeof *pins->users);
    pins->by_last = qr_arena_take(arena, num_blocks, sizeof *pins->by_last);
}

void qr_pins_init(qr_pins *pins, const quire_sched_config *c)
{
    pins->max_pins = c->max_pins;
    pins->row_blocks = c->max_pins == 0 ? 0 : qr_cache_most_full_blocks(c->cache);
    pins->num_pins = 0;
    pins->num_blocks = 0;
    for (uint32_t b = 0; c->max_pins > 0 && b < c->cache->num_blocks; b++) {
        pins->users[b] = 0;
        pins->by_last[b] = QR_NIL;
    }
}

/* ---- by time ----------------------------------------------------------------- */

static bool ends_before(const qr_pins *p, uint32_t a, uint32_t b)
{
    uint64_t end_a = p->pins[a].ends_ns;
    uint64_t end_b = p->pins[b].ends_ns;
    return end_a < end_b || (end_a == end_b && a < b);
}

static void pin_heap_put(qr_pins *p, uint32_t place, uint32_t pin)
{
    p->heap[place] = pin;
    p->pins[pin].place = place;
}

static void pin_heap_rise(qr_pins *p, uint32_t place, uint32_t pin)
{
    for (; place > 0 && ends_before(p, pin, p->heap[(place - 1) / 2]); place = (place - 1) / 2)
        pin_heap_put(p, place, p->heap[(place - 1) / 2]);
    pin_heap_put(p, place, pin);
}

static void pin_heap_sink(qr_pins *p, uint32_t place, uint32_t pin, uint32_t count)
{
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child + 1 < count && ends_before(p, p->heap[child + 1], p->heap[child]))
            child++;
        if (child >= count || !ends_before(p, p->heap[child], pin))
            break;
        pin_heap_put(p, place, p->heap[child]);
        place = child;
    }
    pin_heap_put(p, place, pin);
}

/* Takes the pin out of a heap of `count`. */
static void pin_heap_remove(qr_pins *p, uint32_t pin, uint32_t count)
{
    uint32_t place = p->pins[pin].place;
    uint32_t moved = p->heap[count - 1];
    if (moved == pin)
        return;
    if (place > 0 && ends_before(p, moved, p->heap[(place - 1) / 2]))
        pin_heap_rise(p, place, moved);
    else
        pin_heap_sink(p, place, moved, count - 1);
}

/* ---- by last block ----------------------------------------------------------- */

static void pin_ring_enter(qr_pins *p, uint32_t pin)
{
    uint32_t *first = &p->by_last[p->pins[pin].last_block];
    uint32_t next = *first == QR_NIL ? pin : *first;
    uint32_t prev = *first == QR_NIL ? pin : p->pins[*first].link.prev;
    p->pins[pin].link = (qr_link){.prev = prev, .next = next};
    p->pins[prev].link.next = pin;
    p->pins[next].link.prev = pin;
    *first = pin;
}

static void pin_ring_leave(qr_pins *p, uint32_t pin)
{
    uint32_t *first = &p->by_last[p->pins[pin].last_block];
    qr_link link = p->pins[pin].link;
    p->pins[link.prev].link.next = link.next;
    p->pins[link.next].link.prev = link.prev;
    if (*first == pin)
        *first = link.next == pin ? QR_NIL : link.next;
}

void qr_pins_enter(qr_pins *p)
{
    uint32_t pin = p->num_pins++;
    pin_heap_rise(p, pin, pin);
    pin_ring_enter(p, pin);
}

/* Out of the heap and its ring; the last pin takes its number. */
static void pin_leave(qr_pins *p, uint32_t pin)
{
    uint32_t last = p->num_pins - 1;
    pin_heap_remove(p, pin, p->num_pins);
    pin_ring_leave(p, pin);
    p->num_pins--;
    if (pin == last)
        return;
    pin_ring_leave(p, last);
    p->pins[pin] = p->pins[last];
    memcpy(qr_pins_row(p, pin), qr_pins_row(p, last), p->pins[last].num_blocks * sizeof *p->rows);
    pin_ring_enter(p, pin);
    pin_heap_rise(p, p->pins[pin].place, pin); /* a smaller number: among equals it ends sooner */
}

/* ---- letting go ------------------------------------------------------------ */

static void tell_pin(const quire_sched *s, const qr_pin *pin, quire_decision_kind kind,
                     quire_req other)
{
    qr_observer_tell(
        &s->observer,
        (quire_decision){.kind = kind, .req = pin->req, .other = other, .num = pin->num_blocks});
}

static void end_pin(quire_sched *s, uint32_t pin, quire_decision_kind why, quire_req other)
{
    qr_pins *p = &s->pins;
    tell_pin(s, &p->pins[pin], why, other);
    const quire_block *row = qr_pins_row(p, pin);
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->pins[pin].num_blocks; i++)
        if (--p->users[row[i]] == 0)
            p->spare[n++] = row[i];
    int err = qr_pool_let_go(s->cache->pool, p->spare, n, false);
    qr_assert(err == QUIRE_OK);
    p->num_blocks -= n;
    pin_leave(p, pin);
}

void qr_pins_expire(quire_sched *s)
{
    const qr_pins *p = &s->pins;
    uint64_t now = qr_now_ns(&s->observer.hooks);
    while (p->num_pins > 0 && p->pins[p->heap[0]].ends_ns <= now)
        end_pin(s, p->heap[0], QUIRE_DECISION_PIN_EXPIRED, 0);
}

bool qr_pins_give_way(quire_sched *s)
{
    const qr_pins *p = &s->pins;
    if (p->num_pins == 0)
        return false;
    end_pin(s, p->heap[0], QUIRE_DECISION_PIN_GAVE_WAY, 0);
    return true;
}

void qr_pins_drop_all(quire_sched *s)
{
    while (s->pins.num_pins > 0)
        end_pin(s, s->pins.num_pins - 1, QUIRE_DECISION_UNPINNED, 0);
}

/* The pin with the largest number whose last block is this one at this place, or QR_NIL. */
static uint32_t find_pin(const qr_pins *p, quire_block block, uint32_t group, uint32_t place)
{
    uint32_t first = p->by_last[block];
    uint32_t found = QR_NIL;
    if (first == QR_NIL)
        return QR_NIL;
    uint32_t at = first;
    do {
        const qr_pin *pin = &p->pins[at];
        if (pin->last_group == group && pin->last_place == place && (found == QR_NIL || at > found))
            found = at;
        at = pin->link.next;
    } while (at != first);
    return found;
}

/* The same block at the same place has the same prefix before it. */
void qr_pins_reused(quire_sched *s, quire_req req, uint32_t num_tokens)
{
    const qr_pins *p = &s->pins;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t num_hit = num_tokens / s->cache->groups[g].block_size;
        quire_block_span blocks = s->room.spans[g];
        for (uint32_t i = 0; i < num_hit && i < blocks.count; i++)
            for (uint32_t pin; (pin = find_pin(p, blocks.ids[i], g, i)) != QR_NIL;)
                end_pin(s, pin, QUIRE_DECISION_UNPINNED, req);
    }
}

/* ---- keeping --------------------------------------------------------------- */

/* Its blocks that have keys, group by group, last to first, as they are freed. */
static uint32_t list_pinned(quire_sched *s, const qr_request *r, qr_pin *pin)
{
    const qr_block *records = s->cache->pool->queue.blocks;
    uint32_t n = 0;
    qr_cache_get_blocks(s->cache, r->kv.seq, s->room.spans);
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        for (uint32_t i = s->room.spans[g].count; i-- > 0;) {
            quire_block block = s->room.spans[g].ids[i];
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
    qr_request *r = &s->table.requests[index];
    qr_pins *p = &s->pins;
    bool is_good = r->status != QUIRE_REQ_FINISHED_ERROR && r->status != QUIRE_REQ_FINISHED_IGNORED;
    if (r->kv.seq == 0 || !is_good)
        return;
    uint64_t now = qr_now_ns(&s->observer.hooks);
    qr_pin pin = {.req = qr_sched_req_of(s, index),
                  .ends_ns = r->pin_ns < UINT64_MAX - now ? now + r->pin_ns : UINT64_MAX};
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
    p->pins[p->num_pins] = pin;
    p->num_blocks += n;
    qr_pins_enter(p);
    tell_pin(s, &pin, QUIRE_DECISION_PINNED, 0);
}

/* ---- checking -------------------------------------------------------------- */

/* Whether the pin stands in the heap and in the ring of its last block. */
static bool pin_is_linked(const qr_pins *p, uint32_t pin)
{
    const qr_pin *r = &p->pins[pin];
    if (r->place >= p->num_pins || p->heap[r->place] != pin || r->link.next >= p->num_pins ||
        r->link.prev >= p->num_pins || p->by_last[r->last_block] >= p->num_pins)
        return false;
    bool is_ordered = r->place == 0 || !ends_before(p, pin, p->heap[(r->place - 1) / 2]);
    return is_ordered && p->pins[r->link.next].link.prev == pin &&
           p->pins[r->link.next].last_block == r->last_block &&
           p->pins[p->by_last[r->last_block]].last_block == r->last_block;
}

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
        if (!ok || !pin_is_linked(p, i))
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
