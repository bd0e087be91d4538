/* sched/step/reset.c - the prefix cache is emptied, with the running requests preempted or without.
 *
 *      ask    would every block be free? does the connector agree?      no: nothing has changed
 *      do     preempt, drop pins, lookahead and swapped state, empty the cache: cannot fail
 *
 * vLLM 0.20.0 does the parts one after the other and then says whether all of them worked:
 * QUIRE_QUIRK_RESET_IN_PARTS.
 */
#include "sched/sched.h"

static uint64_t count_row_blocks(const quire_sched *s, quire_seq seq)
{
    uint64_t count = 0;
    uint32_t row = qr_cache_row_of(s->cache, seq);
    for (uint32_t g = 0; g < s->cache->num_groups && row != QR_NIL; g++) {
        const qr_group *group = &s->cache->groups[g];
        const uint32_t *blocks = qr_group_row_blocks(group, row);
        for (uint32_t i = 0; i < group->rows[row].num_blocks; i++)
            count += blocks[i] != QUIRE_NULL_BLOCK;
    }
    return count;
}

/* Whether no block would have a user if the pins were gone, and the running requests too. Users
 * are counted, not blocks: a block may have several. */
static bool would_be_free(const quire_sched *s, bool without_running)
{
    const quire_pool *pool = s->cache->pool;
    uint64_t users = 0;
    for (uint32_t block = QUIRE_NULL_BLOCK + 1; block < pool->queue.num_blocks; block++)
        users += pool->queue.blocks[block].ref_cnt;
    uint64_t leaving = pool->num_reserved;
    for (uint32_t i = 0; without_running && i < s->queues.num_running; i++)
        leaving += count_row_blocks(s, s->table.requests[s->queues.running[i]].kv.seq);
    return users == leaving && pool->num_held == s->pins.num_blocks;
}

static bool reset_connector(quire_sched *s)
{
    const quire_connector *c = &s->partners.connector;
    if (!s->partners.has_connector && s->settings.rules.delivers_stale)
        return true;
    if (!s->partners.has_connector || (c->reset_cache != NULL && c->reset_cache(c->user) != 0))
        return false;
    for (uint32_t i = 0; i < s->settings.max_requests; i++)
        s->table.requests[i].num_hosted = 0;
    if (s->settings.log_stats)
        s->partners.connector_stats.was_reset = 1;
    return true;
}

static void preempt_all(quire_sched *s)
{
    qr_swap_drop_all(s); /* first, so that those which run come before those that wait */
    while (s->queues.num_running > 0) {
        uint32_t index = s->queues.running[--s->queues.num_running];
        qr_sched_preempt(s, index);
        s->table.requests[index].num_placeholders = 0;
        s->table.requests[index].is_plain = false;
        s->table.requests[index].drops_stale = true;
        if (s->settings.rules.lists_reset)
            s->ended.asked[s->ended.num_asked++] = qr_sched_req_of(s, index);
        if (s->settings.rules.delivers_stale)
            continue;
        if ((s->settings.quirks & QR_QUIRK(RESET_DROPS_ONE)) != 0)
            s->table.requests[index].discards_async = true;
        else
            qr_request_void_steps(&s->table.requests[index], s->flight.step);
    }
    /* As if they had not been in the last step: the workers forget them. */
    s->flight.first_valid_step = s->flight.step + 1;
}

static int empty_cache(quire_sched *s, bool with_running)
{
    if (with_running)
        preempt_all(s);
    qr_pins_drop_all(s);
    qr_lookahead_drop_all(s);
    int err = qr_cache_reset(s->cache);
    if (err == QUIRE_OK)
        qr_swap_drop_all(s);
    return err;
}

int qr_sched_reset_prefix_cache(quire_sched *s, bool with_running, bool with_connector)
{
    if ((s->settings.quirks & QR_QUIRK(RESET_IN_PARTS)) != 0) {
        int err = empty_cache(s, with_running);
        return !with_connector || reset_connector(s) ? err : QUIRE_BUSY;
    }
    if (with_connector && !s->partners.has_connector)
        return QUIRE_E_ARGUMENT;
    if (!would_be_free(s, with_running) || (with_connector && !reset_connector(s)))
        return QUIRE_BUSY;
    int err = empty_cache(s, with_running);
    qr_assert(err == QUIRE_OK);
    qr_assert_expensive(qr_sched_is_valid(s));
    return QUIRE_OK;
}
