#include "engine.h"
#include "snapshots.h"

#include <stdlib.h>
#include <string.h>

/* ---- each request ----------------------------------------------------------- */

static double ms_between(double from_s, double to_s)
{
    return from_s < 0 || to_s < 0 ? 0 : (to_s - from_s) * 1e3;
}

static void write_csv(const engine *e, const live *l, double end_s)
{
    FILE *out = e->settings->requests_csv;
    const trace_request *q = &l->from->request;
    double arrival_s = l->from->time_s;
    char tpot[32] = ""; /* of a request with one token: none, and no 0 that means would count */
    if (l->num_generated > 1)
        snprintf(tpot, sizeof tpot, "%.3f", tally_tpot_ms(l, end_s));
    fprintf(out, "%llu,%llu,%llu,%u,%.6f,%.6f,%.6f,%.6f,%u,%u,%u,%u,%.3f,%s,%.3f,%.3f",
            (unsigned long long)live_id(l), (unsigned long long)q->line,
            (unsigned long long)q->session, q->turn, arrival_s, l->scheduled_s, l->first_token_s,
            end_s, q->num_prompt_tokens, l->num_generated, l->hit_tokens, l->num_preempted,
            ms_between(arrival_s, l->first_token_s), tpot, ms_between(arrival_s, end_s),
            ms_between(arrival_s, l->scheduled_s));
    if (slo_is_set(&e->settings->slo))
        fprintf(out, ",%d", tally_is_good(e, l, end_s));
    if (e->num_tiers > 0)
        fprintf(out, ",%u", l->split.gpu);
    for (uint32_t i = 0; i < e->num_tiers; i++)
        fprintf(out, ",%u", l->split.tiers[i]);
    if (e->settings->swap.num_blocks > 0)
        fprintf(out, ",%u", l->num_swaps);
    fputc('\n', out);
}

/* One more column for each place that hits come from. */
static void write_csv_head(const engine *e)
{
    FILE *out = e->settings->requests_csv;
    fputs("request,line,session,turn,arrival_s,scheduled_s,first_token_s,end_s,prompt_tokens,"
          "output_tokens,hit_tokens,preemptions,ttft_ms,tpot_ms,e2e_ms,queue_ms",
          out);
    if (slo_is_set(&e->settings->slo))
        fputs(",meets_slo", out);
    if (e->num_tiers > 0)
        fputs(",gpu_tokens,cpu_tokens", out);
    for (uint32_t i = 0; i + 1 < e->num_tiers; i++)
        fprintf(out, ",%s_tokens", tiers_label(e->settings->tiers.lower[i].kind));
    if (e->settings->swap.num_blocks > 0)
        fputs(",swaps", out);
    fputc('\n', out);
}

/* ---- a trace for ui.perfetto.dev -------------------------------------------- */

/* Requests are slices of their own, counters and steps have a track each. Times in microseconds. */
static FILE *next_event(engine *e)
{
    FILE *out = e->settings->perfetto;
    fputs(e->num_lines++ == 0 ? "\n" : ",\n", out);
    return out;
}

static void write_slice(engine *e, const live *l, const char *name, double from_s, double to_s)
{
    unsigned long long id = live_id(l);
    if (from_s < 0 || to_s < from_s)
        return;
    fprintf(next_event(e),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"b\",\"id\":%llu,\"pid\":2,\"tid\":1,"
            "\"ts\":%.3f,\"args\":{\"request\":%llu,\"prompt_tokens\":%u,\"hit_tokens\":%u}}",
            name, id, from_s * 1e6, id, l->from->request.num_prompt_tokens, l->hit_tokens);
    fprintf(next_event(e),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"e\",\"id\":%llu,\"pid\":2,\"tid\":1,"
            "\"ts\":%.3f}",
            name, id, to_s * 1e6);
}

static void write_slices(engine *e, const live *l, double end_s)
{
    uint32_t n = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS;
    write_slice(e, l, "waiting", l->from->time_s, l->scheduled_s);
    write_slice(e, l, "prefill", l->scheduled_s, l->first_token_s);
    write_slice(e, l, "decode", l->first_token_s, end_s);
    for (uint32_t i = 0; i < n; i++)
        write_slice(e, l, "preempted", l->preempted[i].from_s, l->preempted[i].to_s);
}

enum { COUNTERS_EVERY_MS = 20 };

static void write_step_event(engine *e, double start_s, double end_s)
{
    const quire_snapshot *s = &e->snapshot;
    fprintf(next_event(e),
            "{\"name\":\"step\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"step\":%llu,\"requests\":%u,\"tokens\":%u,\"prefill\":%u}}",
            start_s * 1e6, (end_s - start_s) * 1e6, (unsigned long long)s->step, s->num_scheduled,
            s->num_tokens, s->num_prefill_tokens);
    if (start_s < e->last_counters_s + COUNTERS_EVERY_MS * 1e-3 && s->num_preempted == 0)
        return;
    e->last_counters_s = start_s;
    fprintf(next_event(e),
            "{\"name\":\"blocks\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"active\":%llu,"
            "\"cached\":%llu,\"empty\":%llu}}",
            start_s * 1e6, (unsigned long long)s->blocks.active,
            (unsigned long long)s->blocks.cached, (unsigned long long)s->blocks.empty);
    fprintf(next_event(e),
            "{\"name\":\"requests\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"running\":%u,"
            "\"waiting\":%u}}",
            start_s * 1e6, s->num_running, s->num_waiting);
}

/* ---- decisions --------------------------------------------------------------- */

static const char *kind_name(quire_decision_kind kind)
{
    static const char *const names[] = {
        "",        "held_up",  "no_room", "preempted", "evicted",     "dropped",     "outgrown",
        "swapped", "overtook", "pinned",  "unpinned",  "pin_expired", "pin_gave_way"};
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "";
}

static const char *reason_name(quire_reason reason)
{
    static const char *const names[] = {"",          "grammar",  "loading", "streaming", "lora",
                                        "connector", "chunk",    "encoder", "align",     "text",
                                        "blocks",    "pressure", "asked",   "offloaded"};
    return (size_t)reason < sizeof names / sizeof *names ? names[reason] : "";
}

static unsigned long long id_of(const engine *e, quire_req req)
{
    quire_req_info info =
        QUIRE_REQ_INFO_INIT; /* a pin outlives its request, whose place may be another's */
    bool is_there = req != 0 && quire_sched_get_req_info(e->sched, req, &info) == QUIRE_OK;
    const live *l = is_there ? engine_live(e, req) : NULL;
    return l == NULL || l->from == NULL ? 0 : live_id(l);
}

void engine_write_decision(engine *e, const quire_decision *d)
{
    FILE *out = e->settings->why;
    fprintf(out, "{\"step\":%llu,\"time_s\":%.6f,\"kind\":\"%s\",\"request\":%llu",
            (unsigned long long)e->result->steps + 1, e->now_s, kind_name(d->kind),
            id_of(e, d->req));
    if (d->reason != QUIRE_REASON_NONE)
        fprintf(out, ",\"reason\":\"%s\"", reason_name(d->reason));
    if (d->other != 0)
        fprintf(out, ",\"other\":%llu", id_of(e, d->other));
    if (d->kind == QUIRE_DECISION_EVICTED)
        fprintf(out, ",\"block\":%u", d->block);
    else
        fprintf(out, ",\"num\":%u", d->num);
    fputs("}\n", out);
    if (d->kind != QUIRE_DECISION_DROPPED)
        return;
    uint64_t tokens = (uint64_t)d->num * e->settings->block_size;
    e->result->dropped_tokens += tokens;
    tally_cost(e, (replay_cost){.request = id_of(e, d->req),
                                .step = e->result->steps + 1,
                                .time_s = e->now_s,
                                .tokens = tokens});
}

/* ---- all of them -------------------------------------------------------------- */

void engine_write_heads(engine *e)
{
    const replay_settings *s = e->settings;
    if (s->requests_csv != NULL)
        write_csv_head(e);
    if (s->snapshots != NULL)
        snapshots_write_meta(s->snapshots, s->meta);
    if (s->perfetto == NULL)
        return;
    fputs("{\"displayTimeUnit\":\"ms\"", s->perfetto);
    if (s->made_by != NULL)
        fprintf(s->perfetto, ",\"otherData\":{\"made_by\":%s}", s->made_by);
    fputs(",\"traceEvents\":[", s->perfetto);
    fputs("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"engine\"}}",
          next_event(e));
    fputs("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,\"args\":{\"name\":\"requests\"}}",
          next_event(e));
}

void engine_write_request(engine *e, const live *l, double end_s, page_end end)
{
    const replay_settings *s = e->settings;
    const trace_request *q = &l->from->request;
    if (s->requests_csv != NULL)
        write_csv(e, l, end_s);
    if (s->perfetto != NULL)
        write_slices(e, l, end_s);
    if (s->page == NULL)
        return;
    uint32_t n = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS;
    page_request_end(s->page, &(page_request){.id = live_id(l),
                                              .session = q->session,
                                              .turn = q->turn,
                                              .arrival_s = l->from->time_s,
                                              .scheduled_s = l->scheduled_s,
                                              .first_token_s = l->first_token_s,
                                              .end_s = end_s,
                                              .preempted = l->preempted,
                                              .num_preempted = n,
                                              .prompt_tokens = q->num_prompt_tokens,
                                              .output_tokens = l->num_generated,
                                              .hit_tokens = l->hit_tokens,
                                              .end = end});
}

/* Who has which block. */
static void find_owners(engine *e)
{
    quire_req running[PAGE_MAX_OWNERS];
    uint32_t n = quire_sched_get_queue(e->sched, 0, running, PAGE_MAX_OWNERS);
    uint32_t num_groups = quire_cache_get_counts(quire_sched_get_cache(e->sched)).num_groups;
    memset(e->owners, 0, PAGE_MAX_OWNERS * sizeof *e->owners);
    for (uint32_t i = 0; i < n && i < PAGE_MAX_OWNERS; i++) {
        quire_sched_get_blocks(e->sched, running[i], e->spans);
        for (uint32_t g = 0; g < num_groups; g++)
            for (uint32_t k = 0; k < e->spans[g].count; k++)
                e->owners[e->spans[g].ids[k]] = live_id(engine_live(e, running[i]));
    }
}

static void write_host_blocks(engine *e, page *p)
{
    const quire_pool *host = tiers_run_host_pool(e->tiers);
    if (host == NULL || !page_wants_blocks(p, PAGE_HOST, e->snapshot.step))
        return;
    uint32_t num_blocks = (uint32_t)quire_pool_get_usage(host).total;
    if (e->host_states == NULL)
        e->host_states = malloc((size_t)num_blocks + 1); /* and a zero at the end */
    if (e->host_states == NULL)
        return;
    quire_pool_draw(host, 0, num_blocks, e->host_states);
    page_blocks(p, PAGE_HOST, e->snapshot.step, e->host_states, num_blocks, NULL);
}

static void write_blocks(engine *e, page *p)
{
    write_host_blocks(e, p);
    if (!page_wants_blocks(p, PAGE_GPU, e->snapshot.step))
        return;
    quire_pool_draw(quire_cache_get_pool(quire_sched_get_cache(e->sched)), 0, e->num_blocks,
                    e->states);
    bool has_owners = e->num_blocks <= PAGE_MAX_OWNERS;
    if (has_owners)
        find_owners(e);
    page_blocks(p, PAGE_GPU, e->snapshot.step, e->states, e->num_blocks,
                has_owners ? e->owners : NULL);
}

void engine_write_step(engine *e, double start_s, double end_s)
{
    const replay_settings *s = e->settings;
    if (s->page != NULL)
        page_step(s->page, &e->snapshot, start_s, end_s - start_s, e->query_tokens,
                  e->num_tier_steps > 0 ? e->tier_steps : NULL);
    if (s->snapshots != NULL)
        snapshots_write_step(s->snapshots, &e->snapshot, start_s, end_s - start_s, e->query_tokens,
                             e->tier_steps, e->num_tier_steps);
    if (s->perfetto != NULL)
        write_step_event(e, start_s, end_s);
    if (s->page != NULL)
        write_blocks(e, s->page);
}

void engine_write_tails(engine *e)
{
    if (e->settings->perfetto != NULL)
        fputs("\n]}\n", e->settings->perfetto);
}
