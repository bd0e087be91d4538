#include "run.h"
#include "snapshots.h"

#include <stdlib.h>
#include <string.h>

/* ---- each request ----------------------------------------------------------- */

static double ms_between(double from_s, double to_s)
{
    return from_s < 0 || to_s < 0 ? 0 : (to_s - from_s) * 1e3;
}

static void write_csv(const replay *r, const live *l, double end_s)
{
    FILE *out = r->settings->requests_csv;
    const trace_request *q = &l->from->request;
    double arrival_s = l->from->time_s;
    char tpot[32] = ""; /* of a request with one token: none, and no 0 that means would count */
    if (l->num_generated > 1)
        snprintf(tpot, sizeof tpot, "%.3f", tally_tpot_ms(l, end_s));
    fprintf(out, "%llu,%llu,%llu,%u,%.6f,%.6f,%.6f,%.6f,%u,%u,%u,%u,%.3f,%s,%.3f,%.3f",
            (unsigned long long)replay_id(l), (unsigned long long)q->line,
            (unsigned long long)q->session, q->turn, arrival_s, l->scheduled_s, l->first_token_s,
            end_s, q->num_prompt_tokens, l->num_generated, l->hit_tokens, l->num_preempted,
            ms_between(arrival_s, l->first_token_s), tpot, ms_between(arrival_s, end_s),
            ms_between(arrival_s, l->scheduled_s));
    if (slo_is_set(&r->settings->slo))
        fprintf(out, ",%d", tally_is_good(r, l, end_s));
    if (r->num_tiers > 0)
        fprintf(out, ",%u", l->split.gpu);
    for (uint32_t i = 0; i < r->num_tiers; i++)
        fprintf(out, ",%u", l->split.tiers[i]);
    if (r->settings->swap.num_blocks > 0)
        fprintf(out, ",%u", l->num_swaps);
    fputc('\n', out);
}

/* One more column for each place that hits come from. */
static void write_csv_head(const replay *r)
{
    FILE *out = r->settings->requests_csv;
    fputs("request,line,session,turn,arrival_s,scheduled_s,first_token_s,end_s,prompt_tokens,"
          "output_tokens,hit_tokens,preemptions,ttft_ms,tpot_ms,e2e_ms,queue_ms",
          out);
    if (slo_is_set(&r->settings->slo))
        fputs(",meets_slo", out);
    if (r->num_tiers > 0)
        fputs(",gpu_tokens,cpu_tokens", out);
    for (uint32_t i = 0; i + 1 < r->num_tiers; i++)
        fprintf(out, ",%s_tokens", tiers_label(r->settings->tiers.lower[i].kind));
    if (r->settings->swap.num_blocks > 0)
        fputs(",swaps", out);
    fputc('\n', out);
}

/* ---- a trace for ui.perfetto.dev -------------------------------------------- */

/* Requests are slices of their own, counters and steps have a track each. Times in microseconds. */
static FILE *next_event(replay *r)
{
    FILE *out = r->settings->perfetto;
    fputs(r->num_events++ == 0 ? "\n" : ",\n", out);
    return out;
}

static void write_slice(replay *r, const live *l, const char *name, double from_s, double to_s)
{
    unsigned long long id = replay_id(l);
    if (from_s < 0 || to_s < from_s)
        return;
    fprintf(next_event(r),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"b\",\"id\":%llu,\"pid\":2,\"tid\":1,"
            "\"ts\":%.3f,\"args\":{\"request\":%llu,\"prompt_tokens\":%u,\"hit_tokens\":%u}}",
            name, id, from_s * 1e6, id, l->from->request.num_prompt_tokens, l->hit_tokens);
    fprintf(next_event(r),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"e\",\"id\":%llu,\"pid\":2,\"tid\":1,"
            "\"ts\":%.3f}",
            name, id, to_s * 1e6);
}

static void write_slices(replay *r, const live *l, double end_s)
{
    uint32_t n = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS;
    write_slice(r, l, "waiting", l->from->time_s, l->scheduled_s);
    write_slice(r, l, "prefill", l->scheduled_s, l->first_token_s);
    write_slice(r, l, "decode", l->first_token_s, end_s);
    for (uint32_t i = 0; i < n; i++)
        write_slice(r, l, "preempted", l->preempted[i].from_s, l->preempted[i].to_s);
}

enum { COUNTERS_EVERY_MS = 20 };

static void write_step_event(replay *r, double start_s, double end_s)
{
    const quire_snapshot *s = &r->snapshot;
    fprintf(next_event(r),
            "{\"name\":\"step\",\"cat\":\"step\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"step\":%llu,\"requests\":%u,\"tokens\":%u,\"prefill\":%u}}",
            start_s * 1e6, (end_s - start_s) * 1e6, (unsigned long long)s->step, s->num_scheduled,
            s->num_tokens, s->num_prefill_tokens);
    if (start_s < r->last_counters_s + COUNTERS_EVERY_MS * 1e-3 && s->num_preempted == 0)
        return;
    r->last_counters_s = start_s;
    fprintf(next_event(r),
            "{\"name\":\"blocks\",\"ph\":\"C\",\"pid\":1,\"ts\":%.3f,\"args\":{\"active\":%llu,"
            "\"cached\":%llu,\"empty\":%llu}}",
            start_s * 1e6, (unsigned long long)s->blocks.active,
            (unsigned long long)s->blocks.cached, (unsigned long long)s->blocks.empty);
    fprintf(next_event(r),
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

static unsigned long long id_of(const replay *r, quire_req req)
{
    quire_req_info info =
        QUIRE_REQ_INFO_INIT; /* a pin outlives its request, whose place may be another's */
    bool is_there = req != 0 && quire_sched_get_req_info(r->sched, req, &info) == QUIRE_OK;
    const live *l = is_there ? replay_live(r, req) : NULL;
    return l == NULL || l->from == NULL ? 0 : replay_id(l);
}

void replay_write_decision(replay *r, const quire_decision *d)
{
    FILE *out = r->settings->why;
    fprintf(out, "{\"step\":%llu,\"time_s\":%.6f,\"kind\":\"%s\",\"request\":%llu",
            (unsigned long long)r->result->steps + 1, r->now_s, kind_name(d->kind),
            id_of(r, d->req));
    if (d->reason != QUIRE_REASON_NONE)
        fprintf(out, ",\"reason\":\"%s\"", reason_name(d->reason));
    if (d->other != 0)
        fprintf(out, ",\"other\":%llu", id_of(r, d->other));
    if (d->kind == QUIRE_DECISION_EVICTED)
        fprintf(out, ",\"block\":%u", d->block);
    else
        fprintf(out, ",\"num\":%u", d->num);
    fputs("}\n", out);
    if (d->kind != QUIRE_DECISION_DROPPED)
        return;
    uint64_t tokens = (uint64_t)d->num * r->settings->block_size;
    r->result->dropped_tokens += tokens;
    tally_cost(r, (replay_cost){.request = id_of(r, d->req),
                                .step = r->result->steps + 1,
                                .time_s = r->now_s,
                                .tokens = tokens});
}

/* ---- all of them -------------------------------------------------------------- */

void replay_write_heads(replay *r)
{
    const replay_settings *s = r->settings;
    if (s->requests_csv != NULL)
        write_csv_head(r);
    if (s->snapshots != NULL)
        snapshots_write_meta(s->snapshots, s->meta);
    if (s->perfetto == NULL)
        return;
    fputs("{\"displayTimeUnit\":\"ms\"", s->perfetto);
    if (s->made_by != NULL)
        fprintf(s->perfetto, ",\"otherData\":{\"made_by\":%s}", s->made_by);
    fputs(",\"traceEvents\":[", s->perfetto);
    fputs("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,\"args\":{\"name\":\"engine\"}}",
          next_event(r));
    fputs("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":2,\"args\":{\"name\":\"requests\"}}",
          next_event(r));
}

void replay_write_request(replay *r, const live *l, double end_s, page_end end)
{
    const replay_settings *s = r->settings;
    const trace_request *q = &l->from->request;
    if (s->requests_csv != NULL)
        write_csv(r, l, end_s);
    if (s->perfetto != NULL)
        write_slices(r, l, end_s);
    if (s->page == NULL)
        return;
    uint32_t n = l->num_preempted < REPLAY_INTERVALS ? l->num_preempted : REPLAY_INTERVALS;
    page_request_end(s->page, &(page_request){.id = replay_id(l),
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
static void find_owners(replay *r)
{
    quire_req running[PAGE_MAX_OWNERS];
    uint32_t n = quire_sched_get_queue(r->sched, 0, running, PAGE_MAX_OWNERS);
    uint32_t num_groups = quire_cache_get_counts(quire_sched_get_cache(r->sched)).num_groups;
    memset(r->owners, 0, PAGE_MAX_OWNERS * sizeof *r->owners);
    for (uint32_t i = 0; i < n && i < PAGE_MAX_OWNERS; i++) {
        quire_sched_get_blocks(r->sched, running[i], r->spans);
        for (uint32_t g = 0; g < num_groups; g++)
            for (uint32_t k = 0; k < r->spans[g].count; k++)
                r->owners[r->spans[g].ids[k]] = replay_id(replay_live(r, running[i]));
    }
}

static void write_host_blocks(replay *r, page *p)
{
    const quire_pool *host = tiers_run_host_pool(r->tiers);
    if (host == NULL || !page_wants_blocks(p, PAGE_HOST, r->snapshot.step))
        return;
    uint32_t num_blocks = (uint32_t)quire_pool_get_usage(host).total;
    if (r->host_states == NULL)
        r->host_states = malloc((size_t)num_blocks + 1); /* and a zero at the end */
    if (r->host_states == NULL)
        return;
    quire_pool_draw(host, 0, num_blocks, r->host_states);
    page_blocks(p, PAGE_HOST, r->snapshot.step, r->host_states, num_blocks, NULL);
}

static void write_blocks(replay *r, page *p)
{
    write_host_blocks(r, p);
    if (!page_wants_blocks(p, PAGE_GPU, r->snapshot.step))
        return;
    quire_pool_draw(quire_cache_get_pool(quire_sched_get_cache(r->sched)), 0, r->num_blocks,
                    r->states);
    bool has_owners = r->num_blocks <= PAGE_MAX_OWNERS;
    if (has_owners)
        find_owners(r);
    page_blocks(p, PAGE_GPU, r->snapshot.step, r->states, r->num_blocks,
                has_owners ? r->owners : NULL);
}

void replay_write_step(replay *r, double start_s, double end_s)
{
    const replay_settings *s = r->settings;
    if (s->page != NULL)
        page_step(s->page, &r->snapshot, start_s, end_s - start_s, r->query_tokens,
                  r->num_tier_steps > 0 ? r->tier_steps : NULL);
    if (s->snapshots != NULL)
        snapshots_write_step(s->snapshots, &r->snapshot, start_s, end_s - start_s, r->query_tokens,
                             r->tier_steps, r->num_tier_steps);
    if (s->perfetto != NULL)
        write_step_event(r, start_s, end_s);
    if (s->page != NULL)
        write_blocks(r, s->page);
}

void replay_write_tails(replay *r)
{
    if (r->settings->perfetto != NULL)
        fputs("\n]}\n", r->settings->perfetto);
}
