#include "sched/step/states.h"

#include "cache/parts.h"
#include "sched/sched.h"

static bool has_states(const quire_cache_config *c)
{
    bool has_some = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        has_some = has_some || (c->groups[g].spec.kind == QUIRE_LAYER_MAMBA &&
                                c->groups[g].spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN);
    return has_some && c->enable_caching == QUIRE_ON;
}

void qr_states_carve(qr_states *states, qr_arena *arena, const quire_sched_config *c)
{
    quire_connector connector = QUIRE_CONNECTOR_INIT;
    (void)qr_config_read(&connector, sizeof connector, c->connector);
    bool is_on = c->connector != NULL && connector.takes_states != 0 && has_states(c->cache) &&
                 qr_rules_of(c->profile)->takes_parts;
    /* A block may be given back and taken anew between two steps. */
    states->capacity = is_on ? 2 * c->cache->num_blocks : 0;
    states->noted = qr_arena_take(arena, states->capacity, sizeof *states->noted);
    states->told = qr_arena_take(arena, states->capacity, sizeof *states->told);
    states->ended = qr_arena_take(arena, is_on ? c->cache->num_groups : 0, sizeof *states->ended);
}

/* Behind those of the same group and of groups before it. One that there is no room for is an offer
 * less. */
static void note(void *user, uint32_t group, uint32_t block, uint32_t num_tokens)
{
    quire_sched *s = user;
    qr_states *states = &s->states;
    quire_req req = s->observer.taker;
    uint32_t index = qr_sched_index_of(s, req);
    if (index == QR_NIL || states->num_noted == states->capacity)
        return;
    uint32_t at = states->num_noted++;
    for (; at > 0 && states->noted[at - 1].offer.group > group; at--)
        states->noted[at] = states->noted[at - 1];
    states->noted[at] = (qr_noted_state){
        .offer = {.req = req, .group = group, .block = block, .num_tokens = num_tokens},
        .seq = s->table.requests[index].kv.seq};
}

void qr_states_init(quire_sched *s)
{
    if (s->states.capacity == 0)
        return;
    s->cache->on_state = note;
    s->cache->state_user = s;
}

void qr_states_tell(quire_sched *s)
{
    qr_states *states = &s->states;
    quire_step *out = &s->builder.out;
    out->num_states = 0;
    out->states = states->told;
    for (uint32_t i = 0; i < states->num_noted; i++) {
        uint32_t index = qr_sched_index_of(s, states->noted[i].offer.req);
        if (index != QR_NIL && s->table.requests[index].kv.seq == states->noted[i].seq)
            states->told[out->num_states++] = states->noted[i].offer;
    }
    states->num_noted = 0;
}

uint32_t qr_states_end(quire_sched *s, uint32_t index)
{
    const qr_request *r = &s->table.requests[index];
    quire_req req = qr_sched_req_of(s, index);
    uint32_t row = qr_cache_row_of(s->cache, r->kv.seq);
    uint32_t count = 0;
    if (s->states.capacity == 0 || row == QR_NIL || r->num_in_flight != 0)
        return 0;
    for (uint32_t g = 0; g < s->cache->num_groups; g++) {
        uint32_t block;
        uint32_t num_tokens = qr_cache_own_state(s->cache, g, row, &block);
        if (num_tokens > 0 && num_tokens == r->kv.num_computed_tokens)
            s->states.ended[count++] = (quire_state_offer){
                .req = req, .group = g, .block = block, .num_tokens = num_tokens};
    }
    return count;
}
