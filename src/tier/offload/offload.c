#include "tier/offload/offload.h"

#include "base/hooks.h"
#include "base/refuse.h"

/* Copies and jobs are the parent's there. */
static bool is_in_child(const quire_offload *o)
{
    return qr_fork_guard_is_child(&o->guard);
}

/* ---- what the scheduler calls ---------------------------------------------- */

static void on_alloc(void *user, quire_req req, const quire_block_span *blocks,
                     uint32_t num_external)
{
    quire_offload *o = user;
    qr_match_take_over(o, req);
    qr_protect_release(o, req);
    if (o->promote != NULL)
        qr_promote_forget(o->promote, req);
    qr_store_note_alloc(o, req, blocks);
    o->reqs[quire_req_index(req)].num_saved = 0;
    qr_load_begin(o, req, blocks, num_external);
}

static void learn_step(quire_offload *o, uint64_t step)
{
    uint32_t num_tokens;
    uint64_t ns = qr_step_times_end(&o->times, step, &o->hooks, &num_tokens);
    if (ns > 0)
        qr_promote_learn(o->promote, num_tokens, ns);
}

static void *on_build_meta(void *user, const quire_step *step)
{
    quire_offload *o = user;
    o->step = step->step;
    if (o->learns)
        qr_step_times_begin(&o->times, step->step, step->total_tokens, step->num_reqs, &o->hooks);
    o->meta = (quire_offload_meta){.load_event = QUIRE_OFFLOAD_NO_EVENT,
                                   .load_gpu = o->meta_load_gpu,
                                   .load_cpu = o->meta_load_cpu,
                                   .load_reqs = o->meta_reqs,
                                   .store_event = QUIRE_OFFLOAD_NO_EVENT,
                                   .store_gpu = o->meta_store_gpu,
                                   .store_cpu = o->meta_store_cpu,
                                   .need_flush = step->num_preempted > 0};
    if (o->is_closed || is_in_child(o))
        return &o->meta;
    o->has_mark = !o->has_device || qr_copy_mark(o);
    qr_store_build(o, step);
    if (o->num_new_loads > 0 && o->has_mark)
        qr_load_build(o, step->blocks_to_zero.count > 0);
    else if (o->num_new_loads > 0)
        qr_load_refuse(o);
    if (o->num_sending + o->num_unsent > 0)
        qr_copy_send(o);
    return &o->meta;
}

static bool can_store(const quire_offload *o)
{
    return o->has_mark && !o->is_refused && o->num_late == 0 && !o->is_closed;
}

static int on_finished(void *user, quire_req req, const quire_block_span *blocks)
{
    (void)blocks;
    quire_offload *o = user;
    qr_protect_release(o, req);
    if (o->match.req == req)
        qr_match_release(o);
    if (o->promote != NULL)
        qr_promote_forget(o->promote, req);
    qr_offload_req *r = qr_offload_find(o, req);
    if (r == NULL)
        return 0;
    if (!o->is_lazy && can_store(o) && r->load_state == QR_LOAD_NONE)
        qr_store_of_one(o, r, UINT32_MAX);
    if (!qr_load_abandon(o, r))
        qr_offload_leave(o, r);
    return 0;
}

static uint32_t on_preempted(void *user, quire_req req, const quire_block_span *blocks,
                             uint32_t num_tokens, int is_urgent)
{
    quire_offload *o = user;
    qr_offload_req *r = qr_offload_find(o, req);
    /* Of a window's blocks the first that a hit needs may have left the window: only where they
     * are stored as they are computed is all of it there. */
    if (o->is_lazy && o->has_windows)
        return 0;
    if (r == NULL || !can_store(o) || r->load_state != QR_LOAD_NONE || is_in_child(o))
        return 0;
    return qr_store_preempted(o, r, blocks, num_tokens, is_urgent != 0);
}

/* What is on the way keeps its blocks until it has ended, and does not count then. */
static void forget_cpu_blocks(quire_offload *o)
{
    qr_match_release(o);
    qr_protect_release_all(o);
    qr_store_drop_all(o);
    qr_load_drop_all(o);
    qr_share_withdraw_all(&o->share);
    for (quire_block block = 1; block < o->num_cpu; block++)
        quire_pool_evict_blocks(o->cpu, &block, 1);
}

static int on_reset(void *user)
{
    quire_offload *o = user;
    if (o->promote != NULL && !qr_promote_can_reset(o->promote)) {
        qr_log(&o->hooks, QUIRE_LOG_ERROR,
               "offload: not reset: a tier is shared with other engines; call "
               "quire_offload_set_identity with a new fingerprint");
        return 1;
    }
    forget_cpu_blocks(o);
    return o->promote != NULL && qr_promote_reset(o->promote) != QUIRE_OK;
}

static void on_update(void *user)
{
    quire_offload *o = user;
    if (o->num_ended_loads > 0)
        qr_load_finish_told(o);
    if (o->num_told_events > 0)
        qr_store_finish_told(o);
}

/* ---- making --------------------------------------------------------- */

static void clear_parts(quire_offload *o)
{
    size_t words = qr_bit_words(o->num_gpu);
    size_t num_rows = o->has_rows ? o->max_requests : 0;
    memset(o->reqs, 0, o->max_requests * sizeof *o->reqs);
    memset(o->next_ready, 0xff, o->max_requests * sizeof *o->next_ready);
    memset(o->row_count, 0, num_rows * o->num_groups * sizeof *o->row_count);
    memset(o->num_stored, 0, (size_t)o->max_requests * o->num_groups * sizeof *o->num_stored);
    memset(o->is_storing, 0, words * sizeof *o->is_storing);
    memset(o->is_used, 0, words * sizeof *o->is_used);
    memset(o->seen, 0, (o->is_lazy ? o->num_gpu : 0) * sizeof *o->seen);
    memset(o->events, 0, o->num_places * sizeof *o->events);
    for (uint32_t i = 0; i < o->max_requests; i++)
        o->reqs[i].load = QR_NO_TRANSFERS;
    o->kept = QR_NO_TRANSFERS;
    qr_transfers_init(o);
    qr_copy_init(o);
    qr_protect_init(o);
}

/* For what comes from a tier: those that wait longest give way. */
static void make_room(void *user, uint32_t num_blocks)
{
    quire_offload *o = user;
    while (quire_pool_get_num_free_blocks(o->cpu) < num_blocks)
        if (!qr_protect_give_way(o))
            return;
}

/* What the CPU pool stores and removes. */
static void take_event(void *user, const quire_event *event)
{
    quire_offload *o = user;
    if (o->monitor != NULL)
        quire_monitor_tell_event(o->monitor, o->monitor_tier, event);
}

static int init_offload(quire_offload *o, const qr_offload_plan *plan, void *cpu, void *promote)
{
    quire_cache_config config = plan->cpu;
    o->has_events = plan->config.events == QUIRE_ON;
    config.on_event = o->has_events ? take_event : NULL;
    config.event_user = o;
    quire_allocator memory = quire_allocator_fixed(cpu, plan->cpu_bytes);
    int err = quire_cache_create(&config, &memory, &o->cpu_cache);
    if (err != QUIRE_OK)
        return err;
    o->cpu = quire_cache_get_pool(o->cpu_cache);
    qr_host_pool_init(&o->host, &config, o->cpu_cache);
    clear_parts(o);
    if (plan->config.device != NULL)
        o->device = *plan->config.device;
    if (plan->lower_bytes > 0)
        o->promote = qr_promote_create_in(promote, &plan->config, o->cpu_cache);
    if (plan->lower_bytes > 0 && o->promote == NULL)
        return qr_refuse("the tiers cannot be used: the random bytes failed, or blocks of another "
                         "size are hashed");
    if (o->promote != NULL)
        qr_promote_set_room(o->promote, make_room, o);
    qr_share_init(&o->share, &plan->config, o->cpu);
    o->block_bytes = plan->config.block_bytes;
    o->learns = o->promote != NULL && plan->config.learns != QUIRE_OFF;
    o->connector = (quire_connector){.size = sizeof(quire_connector),
                                     .user = o,
                                     .get_num_new_matched_tokens = qr_match_request,
                                     .update_state_after_alloc = on_alloc,
                                     .build_meta = on_build_meta,
                                     .request_finished = on_finished,
                                     .request_preempted = on_preempted,
                                     .reset_cache = on_reset,
                                     .update_output = on_update,
                                     .get_tiers = qr_offload_get_tiers};
    qr_fork_guard_init(&o->guard);
    o->magic = QR_OFFLOAD_MAGIC;
    return QUIRE_OK;
}

int quire_offload_create(const quire_offload_config *config, const quire_allocator *allocator,
                         quire_offload **offload)
{
    qr_offload_plan plan;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    quire_offload parts;
    qr_owner owner;
    void *cpu;
    void *promote;
    if (offload == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_offload_read_plan(&plan, config);
    if (err != QUIRE_OK)
        return err;
    (void)qr_offload_carve(&size, &plan, &parts, &cpu, &promote);
    err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_offload *made = qr_offload_carve(&arena, &plan, &parts, &cpu, &promote);
    *made = parts;
    err = init_offload(made, &plan, cpu, promote);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *offload = made;
    return QUIRE_OK;
}

static bool is_offload(const quire_offload *o)
{
    return o != NULL && o->magic == QR_OFFLOAD_MAGIC;
}

int quire_offload_destroy(quire_offload *offload)
{
    if (offload == NULL)
        return QUIRE_OK;
    if (!is_offload(offload))
        return QUIRE_E_ARGUMENT;
    bool is_idle = offload->promote == NULL || qr_promote_is_idle(offload->promote);
    bool has_jobs = offload->num_jobs_out > 0 || !is_idle; /* in a child they are the parent's */
    if (has_jobs && !offload->is_closed && !is_in_child(offload))
        return QUIRE_BUSY;
    qr_share_withdraw_all(&offload->share);
    if (offload->promote != NULL && !offload->is_closed && !is_in_child(offload))
        qr_promote_unwatch_tiers(offload->promote);
    offload->magic = 0;
    quire_cache_destroy(offload->cpu_cache);
    qr_owner_release(&offload->owner);
    return QUIRE_OK;
}

int quire_offload_abandon(quire_offload *offload)
{
    if (!is_offload(offload))
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    offload->is_closed = true;
    qr_share_withdraw_all(&offload->share);
    return QUIRE_OK;
}

const quire_connector *quire_offload_connector(quire_offload *offload)
{
    return is_offload(offload) ? &offload->connector : NULL;
}

int quire_offload_bind(quire_offload *offload, quire_sched *sched)
{
    quire_cache *cache = quire_sched_get_cache(sched);
    if (!is_offload(offload) || cache == NULL)
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    bool is_same = quire_cache_get_counts(cache).num_groups == offload->num_groups &&
                   quire_cache_get_usage(cache).total == offload->num_gpu &&
                   quire_cache_get_counts(cache).hash_block_size == offload->host.hash_size;
    if (!is_same)
        return qr_refuse("the scheduler has other groups, blocks or hashes than the config of the "
                         "offload");
    offload->sched = sched;
    offload->gpu_cache = cache;
    offload->gpu = quire_cache_get_pool(cache);
    quire_same none; /* before the CPU pool has keys: copies then take less time */
    (void)quire_pool_take_same(offload->cpu, offload->gpu, NULL, 0, NULL, NULL, &none);
    quire_monitor *monitor = quire_sched_get_monitor(sched);
    uint32_t *tier = offload->has_events ? &offload->monitor_tier : NULL;
    bool is_watched = quire_monitor_watch_pool(monitor, "host", offload->cpu, tier) == QUIRE_OK;
    if (is_watched && offload->has_events) {
        offload->monitor = monitor;
        if (offload->promote != NULL)
            qr_promote_watch_tiers(offload->promote, monitor, offload->monitor_tier + 1);
    }
    return QUIRE_OK;
}

/* ---- a step ---------------------------------------------------------------- */

static bool is_report_valid(quire_offload *o, const quire_offload_report *report)
{
    for (uint32_t i = 0; i < report->num_loaded; i++)
        if (!qr_load_is_on_the_way(o, report->loaded[i]))
            return false;
    for (uint32_t i = 0; i < report->num_failed; i++)
        if (!qr_load_is_on_the_way(o, report->failed[i]))
            return false;
    for (uint32_t i = 0; i < report->num_stored; i++)
        if (qr_store_event(o, report->stored_events[i]) == NULL)
            return false;
    for (uint32_t i = 0; i < report->num_failed_events; i++)
        if (qr_store_event(o, report->failed_events[i]) == NULL)
            return false;
    return true;
}

static bool has_arrays(const quire_offload_report *report)
{
    return (report->num_loaded == 0 || report->loaded != NULL) &&
           (report->num_failed == 0 || report->failed != NULL) &&
           (report->num_stored == 0 || report->stored_events != NULL) &&
           (report->num_failed_events == 0 || report->failed_events != NULL);
}

/* A request that is listed twice has ended at the first. */
static void end_loads(quire_offload *o, const quire_req *reqs, uint32_t n, bool has_failed)
{
    for (uint32_t i = 0; i < n; i++)
        if (qr_load_is_on_the_way(o, reqs[i]))
            qr_load_end(o, quire_req_index(reqs[i]), has_failed);
}

int quire_offload_tell(quire_offload *offload, const quire_offload_report *report)
{
    quire_offload_report room;
    report = qr_struct_in(&room, sizeof room, report);
    if (!is_offload(offload) || report == NULL || offload->has_device || !has_arrays(report))
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    if (!is_report_valid(offload, report))
        return QUIRE_E_UNKNOWN_REQ;
    end_loads(offload, report->loaded, report->num_loaded, false);
    end_loads(offload, report->failed, report->num_failed, true);
    for (uint32_t i = 0; i < report->num_stored; i++)
        qr_store_report(offload, qr_store_event(offload, report->stored_events[i]),
                        report->stored_counts == NULL ? 1 : report->stored_counts[i]);
    for (uint32_t i = 0; i < report->num_failed_events; i++) {
        qr_offload_event *event = qr_store_event(offload, report->failed_events[i]);
        event->store.has_failed = true;
        qr_store_report(offload, event, 1);
    }
    return QUIRE_OK;
}

int quire_offload_poll(quire_offload *offload, uint64_t step, quire_model_output *output)
{
    if (!is_offload(offload) || !qr_struct_is_out(output, sizeof *output) ||
        offload->sched == NULL || offload->is_closed)
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    if (offload->has_device && offload->num_jobs_out + offload->num_sending > 0)
        qr_copy_poll(offload);
    if (offload->num_events > 0)
        qr_store_note_late(offload);
    if (offload->learns)
        learn_step(offload, step);
    if (offload->promote != NULL)
        qr_promote_poll(offload->promote);
    qr_load_tell(offload, step, output);
    if (offload->looks_ahead)
        qr_protect_look(offload);
    return QUIRE_OK;
}

int quire_offload_learn(quire_offload *offload, uint32_t num_tokens, uint64_t ns)
{
    if (!is_offload(offload))
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    if (offload->promote != NULL)
        qr_promote_learn(offload->promote, num_tokens, ns);
    return QUIRE_OK;
}

int quire_offload_set_identity(quire_offload *offload, const unsigned char *fingerprint)
{
    if (!is_offload(offload) || fingerprint == NULL || offload->is_closed)
        return QUIRE_E_ARGUMENT;
    if (is_in_child(offload))
        return QUIRE_E_SYSTEM;
    if (offload->promote != NULL && !qr_promote_is_idle(offload->promote))
        return QUIRE_BUSY;
    forget_cpu_blocks(offload);
    if (offload->share.server != NULL)
        (void)quire_peer_server_set_identity(offload->share.server, fingerprint);
    return offload->promote == NULL ? QUIRE_OK
                                    : qr_promote_set_identity(offload->promote, fingerprint);
}

/* ---- looking --------------------------------------------------------------- */

int quire_offload_get_stats(const quire_offload *offload, quire_offload_stats *stats)
{
    if (!is_offload(offload))
        return QUIRE_E_ARGUMENT;
    const qr_offload_counters *c = &offload->counters;
    quire_offload_stats own = {.cpu = quire_pool_get_usage(offload->cpu),
                               .stored_blocks = qr_count_get(&c->stored_blocks),
                               .loaded_blocks = qr_count_get(&c->loaded_blocks),
                               .failed_loads = qr_count_get(&c->failed_loads),
                               .failed_stores = qr_count_get(&c->failed_stores),
                               .no_room = qr_count_get(&c->no_room),
                               .hit_tokens = qr_count_get(&c->hit_tokens),
                               .expected_blocks = qr_count_get(&c->expected_blocks),
                               .stores_in_flight = qr_count_get(&c->stores_in_flight),
                               .loads_in_flight = qr_count_get(&c->loads_in_flight)};
    if (offload->promote != NULL)
        qr_promote_add_stats(offload->promote, &own);
    return qr_struct_out(stats, &own, sizeof own);
}

quire_cache *quire_offload_cache(quire_offload *offload)
{
    return is_offload(offload) ? offload->cpu_cache : NULL;
}

int quire_offload_has_pending(const quire_offload *offload)
{
    if (!is_offload(offload))
        return 0;
    return offload->num_events > 0 || offload->kept.count > 0 ||
           (offload->promote != NULL && qr_promote_has_pending(offload->promote));
}

int quire_offload_check(const quire_offload *offload)
{
    return is_offload(offload) ? qr_offload_check(offload) : QUIRE_E_ARGUMENT;
}
