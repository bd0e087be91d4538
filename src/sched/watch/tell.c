/* sched/watch/tell.c - what others are told: snapshots of steps, and all that the monitor shows.
 *
 *      cache ── event ──► + tokens, adapter, keys of the request that caused it ──► monitor
 *            └──────────► observer (who was evicted for whom) ──► the caller's on_event
 *
 * Nothing here decides anything.
 */
#include "hash/extra.h"
#include "sched/sched.h"

/* ---- events ---------------------------------------------------------------- */

/* The tokens of an event's blocks, as far as there are some. */
static void find_pieces(const quire_sched *s, const qr_request *r, qr_feed_entry *entry)
{
    const quire_event *e = entry->event;
    uint32_t page_tokens = s->texts.store.page_tokens;
    uint32_t at = e->first_block * e->block_size;
    uint32_t end = at + e->num_blocks * e->block_size;
    end = end < r->text.num_tokens ? end : r->text.num_tokens;
    qr_feed_piece *piece = s->watch.pieces;
    entry->pieces = piece;
    entry->num_tokens = end > at ? end - at : 0;
    while (at < end) {
        uint32_t room = page_tokens - at % page_tokens;
        uint32_t n = room < end - at ? room : end - at;
        const quire_token *page = qr_text_page_tokens(&s->texts.store, &r->text, at / page_tokens);
        *piece++ = (qr_feed_piece){page + at % page_tokens, n};
        at += n;
    }
}

/* Features and salt; the adapter's name stands in the event itself. */
static void find_keys(const quire_sched *s, const qr_request *r, qr_feed_entry *entry)
{
    const quire_event *e = entry->event;
    qr_extra_cursor cursor = qr_extra_begin(&r->extra, false);
    uint32_t room = qr_feed_max_keys(&s->watch.monitor->feed);
    entry->keys = s->watch.keys;
    for (uint32_t i = 0; i < e->num_blocks; i++) {
        uint64_t start = ((uint64_t)e->first_block + i) * e->block_size;
        size_t n = 0;
        if (e->blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        qr_extra_of_block(&cursor, start, start + e->block_size, s->hasher->keys,
                          s->hasher->max_keys, &n);
        for (size_t k = 0; k < n; k++) {
            const quire_extra_key *key = &s->hasher->keys[k];
            if (key->kind == QUIRE_KEY_LORA_NAME)
                continue;
            if (entry->num_keys < room)
                s->watch.keys[entry->num_keys] = (quire_feed_key){i, *key};
            entry->num_keys += entry->num_keys <= room; /* one too many: the feed says so */
        }
    }
}

static void tell_monitor_event(quire_sched *s, const quire_event *event)
{
    qr_feed_entry entry;
    qr_feed_entry_init(&entry, event);
    uint32_t index =
        event->kind == QUIRE_EVENT_STORED ? qr_sched_index_of(s, s->observer.taker) : QR_NIL;
    if (index != QR_NIL) {
        const qr_request *r = &s->table.requests[index];
        if (r->lora_id != 0) {
            entry.lora_id = r->lora_id;
            entry.lora_name = r->extra.lora_name;
        }
        if (s->watch.monitor->has_token_ids) {
            find_pieces(s, r, &entry);
            if (r->has_extra)
                find_keys(s, r, &entry);
        }
    }
    qr_monitor_add_event(s->watch.monitor, &entry);
}

void qr_sched_take_event(void *user, const quire_event *event)
{
    quire_sched *s = user;
    if (s->watch.monitor != NULL && event->kind != QUIRE_EVENT_REPORTED) /* nothing has changed */
        tell_monitor_event(s, event);
    qr_observer_take_event(&s->observer, event);
}

/* Readers of the monitor know which block has a key: one more has it, and then one less. */
static void tell_key_moved(quire_sched *s, uint32_t from, uint32_t to, uint32_t record)
{
    qr_key key = qr_map_key_of(&s->cache->pool->map, record);
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_STORED,
                         .group_id = key.group_id,
                         .blocks = &to,
                         .num_blocks = 1,
                         .hashes = key.hash,
                         .hash_bytes = key.len,
                         .block_size = s->cache->hash_block_size,
                         .still_cached = 1};
    qr_feed_entry entry;
    qr_feed_entry_init(&entry, &event);
    qr_monitor_add_event(s->watch.monitor, &entry);
    event.kind = QUIRE_EVENT_REMOVED;
    event.blocks = &from;
    qr_feed_entry_init(&entry, &event);
    qr_monitor_add_event(s->watch.monitor, &entry);
}

void qr_sched_tell_move(void *user, uint32_t from, uint32_t to)
{
    quire_sched *s = user;
    const qr_extras *extras = &s->cache->pool->extras;
    if (!qr_block_has_key(&s->cache->pool->queue.blocks[to]))
        return;
    tell_key_moved(s, from, to, to);
    for (uint32_t at = extras->heads[to].first; at != 0; at = qr_extras_next(extras, at))
        tell_key_moved(s, from, to, at);
}

/* ---- steps ----------------------------------------------------------------- */

uint32_t qr_sched_list_tiers(const quire_sched *s, quire_tier_usage *tiers)
{
    const qr_observer *o = &s->observer;
    uint32_t n = 0;
    quire_tier_usage *gpu = &tiers[n++];
    memset(gpu, 0, sizeof *gpu);
    gpu->name = "gpu";
    gpu->medium = "GPU";
    gpu->blocks = qr_pool_usage(s->cache->pool);
    gpu->pinned = s->pins.num_blocks;
    gpu->hit_tokens = o->sum_hit_tokens;
    gpu->stored_bytes = QUIRE_UNKNOWN_BYTES;
    gpu->loaded_bytes = QUIRE_UNKNOWN_BYTES;
    gpu->used_bytes = QUIRE_UNKNOWN_BYTES;
    gpu->capacity_bytes = QUIRE_UNKNOWN_BYTES;
    if (s->swap.num_slots > 0)
        tiers[n++] = (quire_tier_usage){.name = "swap",
                                        .medium = "CPU",
                                        .blocks = {.total = s->swap.num_slots,
                                                   .empty = s->swap.num_free,
                                                   .active = s->swap.num_slots - s->swap.num_free},
                                        .stored_blocks = o->sum_swapped_out,
                                        .loaded_blocks = o->sum_swapped_in,
                                        .hit_tokens = o->sum_swapped_tokens,
                                        .stored_bytes = QUIRE_UNKNOWN_BYTES,
                                        .loaded_bytes = QUIRE_UNKNOWN_BYTES,
                                        .used_bytes = QUIRE_UNKNOWN_BYTES,
                                        .capacity_bytes = QUIRE_UNKNOWN_BYTES};
    if (s->partners.has_connector && s->partners.connector.get_tiers != NULL) {
        uint32_t more = s->partners.connector.get_tiers(s->partners.connector.user, tiers + n,
                                                        QUIRE_CONNECTOR_TIERS);
        n += more < QUIRE_CONNECTOR_TIERS ? more : QUIRE_CONNECTOR_TIERS;
    }
    return n;
}

/* Not inline: then it is written where the caller wants it, and not copied there. */
static QR_NOINLINE quire_snapshot make_snapshot(const quire_sched *s, const quire_tier_usage *tiers,
                                                uint32_t num_tiers)
{
    const qr_step_builder *b = &s->builder;
    const qr_observer *o = &s->observer;
    quire_snapshot snapshot = {.step = s->flight.step,
                               .time_ns = qr_now_ns(&o->hooks),
                               .num_running = s->queues.num_running,
                               .num_waiting = s->queues.waiting.count,
                               .num_skipped = s->queues.skipped.count,
                               .num_scheduled = b->out.num_reqs,
                               .num_preempted = s->builder.out.num_preempted,
                               .num_finished = b->out.num_finished,
                               .num_tokens = b->out.total_tokens,
                               .num_hit_tokens = o->num_hit_tokens,
                               .num_external_tokens = o->num_external_tokens,
                               .num_swapped_out_blocks = s->swap.out.count,
                               .num_swapped_in_blocks = s->swap.in.count,
                               .num_swapped = s->swap.num_requests,
                               .num_free_swap_blocks = s->swap.num_free,
                               .num_query_tokens = o->num_query_tokens,
                               .num_pinned = s->pins.num_pins,
                               .num_pinned_blocks = s->pins.num_blocks,
                               .num_overtaking = s->prefix.num_overtaking,
                               .num_watermark_blocks = s->cache->watermark_blocks,
                               .num_new = b->num_new,
                               .num_resumed = b->num_resumed,
                               .num_prefill_tokens = b->num_prefill_tokens,
                               .num_draft_tokens = b->num_draft_tokens,
                               .blocks = tiers[0].blocks,
                               .tiers = tiers,
                               .num_tiers = num_tiers};
    return snapshot;
}

static void set_levels(quire_sched *s, const quire_tier_usage *tiers, uint32_t num_tiers)
{
    qr_metrics_levels levels = {.num_running = s->queues.num_running,
                                .num_waiting = s->queues.waiting.count,
                                .num_skipped = s->queues.skipped.count,
                                .tiers = tiers,
                                .num_tiers = num_tiers,
                                .num_allocated = s->cache->pool->num_allocated,
                                .num_evicted = s->cache->pool->num_evicted};
    qr_metrics_set_levels(&s->watch.monitor->metrics, &levels);
}

void qr_sched_tell_levels(quire_sched *s)
{
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    if (s->watch.monitor != NULL)
        set_levels(s, tiers, qr_sched_list_tiers(s, tiers));
}

/* Those of the connector, behind the GPU and the swap buffer. */
static void note_tiers(const quire_sched *s, const quire_snapshot *n, quire_monitor_step *step)
{
    uint32_t first = s->swap.num_slots > 0 ? 2 : 1;
    for (uint32_t i = first; i < n->num_tiers; i++) {
        const quire_tier_usage *t = &n->tiers[i];
        step->tiers[step->num_tiers++] = (quire_tier_step){.total = t->blocks.total,
                                                           .empty = t->blocks.empty,
                                                           .cached = t->blocks.cached,
                                                           .active = t->blocks.active,
                                                           .pinned = t->pinned,
                                                           .stored_blocks = t->stored_blocks,
                                                           .loaded_blocks = t->loaded_blocks,
                                                           .hit_tokens = t->hit_tokens,
                                                           .failed_blocks = t->failed_blocks};
    }
}

/* A clock that goes back is the caller's; no time is negative for that. */
static uint64_t span_ns(uint64_t began_ns, uint64_t ended_ns)
{
    return ended_ns > began_ns ? ended_ns - began_ns : 0;
}

/* Those that wait, in the order of service; then those that are held up. */
static uint32_t tell_waiting_names(quire_sched *s, uint64_t place, uint32_t at)
{
    qr_names *names = &s->watch.monitor->names;
    const qr_waiting *queues[] = {&s->queues.waiting, &s->queues.skipped};
    uint32_t count = 0;
    for (uint32_t q = 0; q < 2; q++) {
        uint32_t n = qr_waiting_first(queues[q], names->reqs, names->most - count, names->nearest);
        for (uint32_t i = 0; i < n; i++)
            qr_names_set(names, place, at + count + i, s->table.waiters[names->reqs[i]].id);
        count += n;
    }
    return count;
}

static void tell_names(quire_sched *s, uint64_t step)
{
    qr_names *names = &s->watch.monitor->names;
    uint64_t place = qr_monitor_claim_step(s->watch.monitor);
    uint32_t num_running = s->queues.num_running;
    quire_step_names head = {.size = sizeof(quire_step_names),
                             .step = step,
                             .num_running = num_running < names->most ? num_running : names->most};
    for (uint32_t i = 0; i < head.num_running; i++)
        qr_names_set(names, place, i, s->table.waiters[s->queues.running[i]].id);
    head.num_more_running = num_running - head.num_running;
    head.num_waiting = tell_waiting_names(s, place, head.num_running);
    head.num_more_waiting = s->queues.waiting.count + s->queues.skipped.count - head.num_waiting;
    qr_names_set_head(names, place, &head);
}

static bool is_idle(const quire_sched *s)
{
    const qr_queues *q = &s->queues;
    return q->num_running + q->waiting.count + q->skipped.count == 0;
}

static void tell_monitor_step(quire_sched *s, const quire_snapshot *n, uint64_t began_ns)
{
    quire_monitor *m = s->watch.monitor;
    quire_monitor_step step = {.size = sizeof(quire_monitor_step),
                               .step = n->step,
                               .time_ns = n->time_ns,
                               .num_running = n->num_running,
                               .num_waiting = n->num_waiting,
                               .num_skipped = n->num_skipped,
                               .num_scheduled = n->num_scheduled,
                               .num_new = n->num_new,
                               .num_resumed = n->num_resumed,
                               .num_preempted = n->num_preempted,
                               .num_finished = n->num_finished,
                               .num_tokens = n->num_tokens,
                               .num_prefill_tokens = n->num_prefill_tokens,
                               .num_draft_tokens = n->num_draft_tokens,
                               .num_query_tokens = n->num_query_tokens,
                               .num_hit_tokens = n->num_hit_tokens,
                               .num_external_tokens = n->num_external_tokens,
                               .num_empty = (uint32_t)n->blocks.empty,
                               .num_cached = (uint32_t)n->blocks.cached,
                               .num_active = (uint32_t)n->blocks.active,
                               .num_swap_slots = s->swap.num_slots - n->num_free_swap_blocks,
                               .update_ns = m->update_ns,
                               .num_pinned = n->num_pinned,
                               .num_pinned_blocks = n->num_pinned_blocks};
    note_tiers(s, n, &step);
    uint64_t ended_ns = m->shares_clock ? n->time_ns : qr_monitor_now(m);
    step.schedule_ns = span_ns(began_ns, ended_ns);
    if (m->names.most > 0)
        tell_names(s, step.step);
    qr_monitor_add_step(m, &step);
    qr_metrics_end_schedule(&m->metrics, &step);
    set_levels(s, n->tiers, n->num_tiers);
    if (m->maps.period_ns > 0)
        qr_maps_end_schedule(&m->maps, step.step, ended_ns, is_idle(s));
}

/* Not inline: its arrays would cost the steps that nobody watches. */
static QR_NOINLINE void tell_watchers(quire_sched *s, uint64_t began_ns)
{
    qr_observer *o = &s->observer;
    quire_tier_usage tiers[QUIRE_MAX_TIERS];
    o->sum_hit_tokens += o->num_hit_tokens;
    o->sum_swapped_out += s->swap.out.count;
    o->sum_swapped_in += s->swap.in.count;
    o->sum_swapped_tokens += s->swap.num_tokens_in;
    uint32_t num_tiers = qr_sched_list_tiers(s, tiers);
    quire_snapshot snapshot = make_snapshot(s, tiers, num_tiers);
    if (s->watch.monitor != NULL)
        tell_monitor_step(s, &snapshot, began_ns);
    if (o->on_snapshot != NULL)
        o->on_snapshot(o->user, &snapshot);
}

void qr_sched_tell_step(quire_sched *s, uint64_t began_ns)
{
    if (s->observer.on_snapshot != NULL || s->watch.monitor != NULL)
        tell_watchers(s, began_ns);
}

void qr_sched_tell_update(quire_sched *s, uint64_t began_ns, uint32_t num_outgrown)
{
    qr_metrics *metrics = qr_sched_timed_metrics(s);
    if (metrics == NULL)
        return;
    qr_metrics_take_outputs(metrics, s->results.outputs, num_outgrown,
                            s->results.result.num_outputs);
    qr_metrics_take_stats(metrics, &s->results.stats);
    qr_sched_tell_levels(s);
    qr_sched_tell_load(s);
    if (s->watch.monitor->maps.period_ns > 0)
        qr_maps_end_update(&s->watch.monitor->maps, s->flight.step, is_idle(s));
    qr_monitor_end_batch(s->watch.monitor);
    s->watch.monitor->update_ns = span_ns(began_ns, qr_monitor_now(s->watch.monitor));
    qr_metrics_end_update(metrics, s->watch.monitor->update_ns);
}
