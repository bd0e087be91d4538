/* pins.c - blocks that are kept after the end of a turn, for the next one. */
#include "run.h"

/* Requests whose blocks are kept at one time: when there are more, the first to expire goes. */
enum { MAX_PINS = 1024, LONGEST_S = 1000000000 };

/* Where the trace may say so, or --pin-ttl does. */
uint32_t replay_max_pins(const replay *r)
{
    const replay_settings *s = r->settings;
    bool is_asked = s->pin_ttl_s > 0 || r->result->format == TRACE_QUIRE;
    bool can_pin = s->profile == QUIRE_PROFILE_DEFAULT && s->enable_prefix_caching;
    return is_asked && can_pin ? MAX_PINS : 0;
}

/* The trace's own time, or that of --pin-ttl for a turn that another one follows. */
int replay_pin(replay *r, const trace_request *q, quire_req req)
{
    bool goes_on = q->session != 0 && !q->is_last_turn;
    double ttl_s = q->pin_s >= 0 ? q->pin_s : goes_on ? r->settings->pin_ttl_s : 0;
    if (r->max_pins == 0 || ttl_s <= 0)
        return QUIRE_OK;
    r->result->pinned++;
    ttl_s = ttl_s < LONGEST_S ? ttl_s : LONGEST_S;
    return quire_sched_pin(r->sched, req, (uint64_t)(ttl_s * 1e9));
}
