#include "toy_engine.h"

#include "page/page.h"
#include "replay/snapshots.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_SIZE = 16,
    MAX_RUNNING = 128,
    STEP_TOKENS = 2048,
    MAX_LIVE = 4096,
    MAX_TIMES = 1 << 20
};
static const double NEVER = -1;

typedef struct toy_request {
    page_request known;
    page_interval intervals[64];
    uint32_t computed;
    uint32_t generated;
    uint32_t wanted; /* output tokens */
    uint32_t num_blocks;
    uint32_t *blocks;
} toy_request;

typedef struct times {
    double *ms;
    uint32_t num;
} times;

typedef struct toy {
    const toy_options *options;
    page *page;
    FILE *snapshots;
    FILE *requests;
    uint64_t random;
    double now_s;
    double next_arrival_s;
    uint64_t num_requests;

    char *states; /* as quire_pool_draw has them */
    uint64_t *owners;
    uint32_t *queue; /* free blocks, the least recently used first: a ring */
    uint32_t head;
    uint32_t num_free;
    quire_usage usage;
    quire_usage host;
    page_tier_step tier; /* the host's memory as the page is told */

    toy_request *running[MAX_RUNNING];
    uint32_t num_running;
    toy_request *waiting[MAX_LIVE];
    uint32_t num_waiting;

    quire_snapshot step;
    uint64_t query_tokens;
    uint64_t hit_tokens;
    uint64_t all_queries;
    uint64_t prompt_tokens;
    uint64_t output_tokens;
    uint64_t preemptions;
    uint64_t recomputed;
    uint64_t finished;
    quire_usage most;
    times queue_ms;
    times ttft_ms;
    times tpot_ms;
    times e2e_ms;
} toy;

static uint64_t toy_random(toy *t)
{
    t->random ^= t->random << 13;
    t->random ^= t->random >> 7;
    t->random ^= t->random << 17;
    return t->random;
}

static double toy_uniform(toy *t)
{
    return (double)(toy_random(t) >> 11) / 9007199254740992.0 + 1e-12;
}

static double toy_spread(toy *t, double middle, double width)
{
    double normal = 0;
    for (int i = 0; i < 12; i++)
        normal += toy_uniform(t);
    return middle * exp(width * (normal - 6));
}

/* ---- blocks ---------------------------------------------------------------- */

static void set_state(toy *t, uint32_t block, char state)
{
    uint64_t *counts[] = {&t->usage.empty, &t->usage.cached, &t->usage.active};
    static const char NAMES[] = "ECA";
    (*counts[strchr(NAMES, t->states[block]) - NAMES])--;
    (*counts[strchr(NAMES, state) - NAMES])++;
    t->states[block] = state;
}

static void give_back(toy *t, toy_request *r)
{
    for (uint32_t i = r->num_blocks; i-- > 0;) {
        uint32_t full = (r->computed + r->generated) / BLOCK_SIZE;
        set_state(t, r->blocks[i], i < full ? 'C' : 'E');
        t->owners[r->blocks[i]] = 0;
        t->queue[(t->head + t->num_free++) % t->options->num_blocks] = r->blocks[i];
    }
    r->num_blocks = 0;
}

static bool take_blocks(toy *t, toy_request *r, uint32_t tokens)
{
    uint32_t needed = (tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
    if (needed > r->num_blocks && needed - r->num_blocks > t->num_free)
        return false;
    while (r->num_blocks < needed) {
        uint32_t block = t->queue[t->head];
        t->head = (t->head + 1) % t->options->num_blocks;
        t->num_free--;
        set_state(t, block, 'A');
        t->owners[block] = r->known.id;
        r->blocks[r->num_blocks++] = block;
    }
    return true;
}

/* ---- requests -------------------------------------------------------------- */

static void arrive(toy *t)
{
    while (t->next_arrival_s <= t->now_s && t->num_waiting < MAX_LIVE) {
        uint32_t most = (t->options->num_blocks - 1) * BLOCK_SIZE / 3;
        toy_request *r = calloc(1, sizeof *r);
        r->blocks = calloc(t->options->num_blocks, sizeof *r->blocks);
        double middle = most / 12.0 < 1200 ? most / 12.0 : 1200;
        uint32_t prompt = (uint32_t)toy_spread(t, middle, 0.8) + 1;
        r->wanted = (uint32_t)toy_spread(t, 160, 0.7) + 1;
        if (prompt > most)
            prompt = most;
        if (r->wanted > most)
            r->wanted = most;
        r->known = (page_request){.id = ++t->num_requests,
                                  .session = 1 + toy_random(t) % (t->num_requests / 4 + 1),
                                  .turn = (uint32_t)(toy_random(t) % 5),
                                  .arrival_s = t->next_arrival_s,
                                  .scheduled_s = NEVER,
                                  .first_token_s = NEVER,
                                  .end_s = NEVER,
                                  .preempted = r->intervals,
                                  .prompt_tokens = prompt,
                                  .end = PAGE_END_OPEN};
        t->prompt_tokens += prompt;
        t->waiting[t->num_waiting++] = r;
        /* Load comes in waves, and now and then in a burst. */
        double wave = 1 + 0.6 * sin(t->now_s / 9) + 0.3 * sin(t->now_s / 71);
        double gap = (double)prompt / (16000 * wave);
        t->next_arrival_s += -log(toy_uniform(t)) * (toy_random(t) % 64 < 6 ? gap / 8 : gap);
    }
}

static void preempt_last(toy *t)
{
    toy_request *r = t->running[--t->num_running];
    t->recomputed += r->computed;
    t->preemptions++;
    t->step.num_preempted++;
    give_back(t, r);
    r->computed = 0;
    if (r->known.num_preempted < 64)
        r->intervals[r->known.num_preempted++] = (page_interval){.from_s = t->now_s, .to_s = NEVER};
    memmove(t->waiting + 1, t->waiting, t->num_waiting * sizeof t->waiting[0]);
    t->waiting[0] = r;
    t->num_waiting++;
}

/* Its share of this step, 0: no room for it. */
static uint32_t compute(toy *t, toy_request *r, uint32_t budget)
{
    uint32_t known = r->known.prompt_tokens + r->generated;
    uint32_t left = known > r->computed ? known - r->computed : 1;
    uint32_t tokens = left < budget ? left : budget;
    while (tokens > 0 && !take_blocks(t, r, r->computed + tokens)) {
        if (t->num_running == 0 || t->running[t->num_running - 1] == r)
            return 0;
        preempt_last(t);
    }
    r->computed += tokens;
    t->step.num_tokens += tokens;
    t->step.num_prefill_tokens += left > 1 ? tokens : 0;
    t->step.num_scheduled++;
    return tokens;
}

static void schedule_running(toy *t, uint32_t *budget)
{
    for (uint32_t i = 0; i<t->num_running && * budget> 0; i++) {
        uint32_t tokens = compute(t, t->running[i], *budget);
        if (tokens == 0 && i + 1 == t->num_running)
            preempt_last(t);
        *budget -= tokens;
    }
}

static void admit(toy *t, uint32_t *budget)
{
    while (t->num_waiting > 0 && t->num_running<MAX_RUNNING && * budget> 0) {
        toy_request *r = t->waiting[0];
        uint32_t hits = r->known.prompt_tokens / BLOCK_SIZE * (uint32_t)(toy_random(t) % 80) / 100;
        hits = t->num_requests < 10 ? 0 : hits * BLOCK_SIZE;
        uint32_t all = r->known.prompt_tokens + r->generated;
        if (all / BLOCK_SIZE + 1 > t->num_free || !take_blocks(t, r, hits))
            return;
        t->num_waiting--;
        memmove(t->waiting, t->waiting + 1, t->num_waiting * sizeof t->waiting[0]);
        r->computed = hits;
        t->step.num_hit_tokens += hits;
        t->query_tokens += r->known.prompt_tokens;
        if (r->known.scheduled_s < 0) {
            r->known.scheduled_s = t->now_s;
            r->known.hit_tokens = hits;
        } else {
            r->intervals[r->known.num_preempted - 1].to_s = t->now_s;
        }
        *budget -= compute(t, r, *budget);
        t->running[t->num_running++] = r;
    }
}

static void add_time(times *list, double s)
{
    if (list->ms == NULL)
        list->ms = calloc(MAX_TIMES, sizeof *list->ms);
    if (list->num < MAX_TIMES)
        list->ms[list->num++] = s * 1000;
}

static void finish(toy *t, toy_request *r)
{
    page_request *known = &r->known;
    known->end_s = t->now_s;
    known->end = PAGE_END_STOP;
    known->output_tokens = r->generated;
    add_time(&t->queue_ms, known->scheduled_s - known->arrival_s);
    add_time(&t->ttft_ms, known->first_token_s - known->arrival_s);
    add_time(&t->e2e_ms, known->end_s - known->arrival_s);
    if (r->generated > 1)
        add_time(&t->tpot_ms, (known->end_s - known->first_token_s) / (r->generated - 1));
    t->output_tokens += r->generated;
    t->finished++;
    page_request_end(t->page, known);
    if (t->requests != NULL)
        fprintf(t->requests, "%" PRIu64 ",%" PRIu64 ",%u,%u,%u,%u,%.6f,%.6f,%.6f,%.6f\n", known->id,
                known->session, known->prompt_tokens, known->output_tokens, known->hit_tokens,
                known->num_preempted, known->arrival_s, known->scheduled_s, known->first_token_s,
                known->end_s);
    give_back(t, r);
    free(r->blocks);
    free(r);
}

static void update(toy *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->num_running; i++) {
        toy_request *r = t->running[i];
        if (r->computed >= r->known.prompt_tokens + r->generated) {
            r->generated++;
            if (r->known.first_token_s < 0)
                r->known.first_token_s = t->now_s;
        }
        if (r->generated >= r->wanted)
            finish(t, r);
        else
            t->running[kept++] = r;
    }
    t->num_running = kept;
}

/* ---- the run --------------------------------------------------------------- */

static void show_step(toy *t, double duration_s)
{
    t->step.num_running = t->num_running;
    t->step.num_waiting = t->num_waiting;
    t->step.blocks = t->usage;
    t->host.active = t->step.num_preempted * 7 + toy_random(t) % 20;
    t->host.cached += toy_random(t) % 8;
    if (t->host.cached > t->host.total - t->host.active)
        t->host.cached = t->host.total - t->host.active;
    t->host.empty = t->host.total - t->host.cached - t->host.active;
    t->tier = (page_tier_step){.blocks = t->host,
                               .in_blocks = t->step.num_prefill_tokens / 16,
                               .out_blocks = t->step.num_new * 5,
                               .hit_tokens = t->step.num_external_tokens};
    const page_tier_step *tiers = t->options->num_tiers > 0 ? &t->tier : NULL;
    page_step(t->page, &t->step, t->now_s, duration_s, t->query_tokens, tiers);
    if (t->snapshots != NULL)
        snapshots_write_step(t->snapshots, &t->step, t->now_s, duration_s, t->query_tokens, tiers,
                             t->options->num_tiers);
    if (page_wants_blocks(t->page, PAGE_GPU, t->step.step))
        page_blocks(t->page, PAGE_GPU, t->step.step, t->states, t->options->num_blocks, t->owners);
    t->hit_tokens += t->step.num_hit_tokens;
    t->all_queries += t->query_tokens;
    t->most.active = t->usage.active > t->most.active ? t->usage.active : t->most.active;
    t->most.cached = t->usage.cached > t->most.cached ? t->usage.cached : t->most.cached;
    t->most.empty = t->usage.empty > t->most.empty ? t->usage.empty : t->most.empty;
}

static void run_step(toy *t, uint64_t step)
{
    t->step = (quire_snapshot){.step = step};
    t->query_tokens = 0;
    arrive(t);
    if (t->num_running + t->num_waiting == 0) {
        t->tier = (page_tier_step){.blocks = t->host};
        page_idle(t->page, t->now_s, &t->usage, t->options->num_tiers > 0 ? &t->tier : NULL);
        t->now_s = t->next_arrival_s;
        arrive(t);
    }
    uint32_t budget = STEP_TOKENS;
    schedule_running(t, &budget);
    if (t->step.num_preempted == 0)
        admit(t, &budget);
    double duration_s = 0.008 + 3.1e-5 * t->step.num_prefill_tokens + 4e-5 * t->step.num_scheduled;
    duration_s *= 0.97 + 0.06 * toy_uniform(t);
    show_step(t, duration_s);
    t->now_s += duration_s;
    update(t);
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_times(FILE *out, const char *name, times *list)
{
    double sum = 0;
    for (uint32_t i = 0; i < list->num; i++)
        sum += list->ms[i];
    if (list->num == 0)
        add_time(list, 0);
    qsort(list->ms, list->num, sizeof *list->ms, compare_times);
    fprintf(out, "\"%s\":{\"mean\":%.3f,\"p50\":%.3f,\"p90\":%.3f,\"p99\":%.3f},", name,
            sum / list->num, list->ms[list->num / 2], list->ms[list->num * 9 / 10],
            list->ms[(uint64_t)list->num * 99 / 100]);
    free(list->ms);
}

static char *make_report(toy *t)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    fprintf(out, "{\"requests\":%" PRIu64 ",\"prompt_tokens\":%" PRIu64, t->finished,
            t->prompt_tokens);
    fprintf(out, ",\"output_tokens\":%" PRIu64 ",\"steps\":%" PRIu64, t->output_tokens,
            t->options->num_steps);
    fprintf(out, ",\"hit_tokens\":%" PRIu64 ",\"hit_rate\":%.6f,\"ideal_hit_rate\":%.6f,",
            t->hit_tokens, (double)t->hit_tokens / (double)(t->all_queries + 1),
            1.15 * (double)t->hit_tokens / (double)(t->all_queries + 1));
    fprintf(out, "\"hit_blocks\":%" PRIu64 ",\"query_blocks\":%" PRIu64 ",",
            t->hit_tokens / BLOCK_SIZE, t->all_queries / BLOCK_SIZE);
    fprintf(out, "\"preemptions\":%" PRIu64 ",\"recomputed_tokens\":%" PRIu64 ",", t->preemptions,
            t->recomputed);
    print_times(out, "ttft_ms", &t->ttft_ms);
    print_times(out, "tpot_ms", &t->tpot_ms);
    print_times(out, "e2e_ms", &t->e2e_ms);
    print_times(out, "queue_ms", &t->queue_ms);
    fprintf(out, "\"simulated_s\":%.6f,\"wall_s\":1.5,\"speed_factor\":%.3f,", t->now_s,
            t->now_s / 1.5);
    fprintf(out, "\"blocks\":{\"total\":%" PRIu64 ",\"empty\":%" PRIu64 ",\"cached\":%" PRIu64,
            t->usage.total, t->usage.empty, t->usage.cached);
    fprintf(out, ",\"active\":%" PRIu64 ",\"max_active\":%" PRIu64 ",\"max_cached\":%" PRIu64,
            t->usage.active, t->most.active, t->most.cached);
    fprintf(out, ",\"max_empty\":%" PRIu64 "},\"errors\":0,\"note\":\"</script><b>\"}\n",
            t->most.empty);
    fclose(out);
    return text;
}

static page *open_page(toy *t)
{
    json_t *options = json_pack("[[s,s],[s,s],[s,s],[s,s],[s,s]]", "block-size", "16",
                                "max-num-seqs", "128", "max-num-batched-tokens", "2,048",
                                "enable-prefix-caching", "on", "scheduling-policy", "fcfs");
    page_tier tier = {.name = "Host memory", .total = t->host.total};
    page_meta meta = {.title = "Quire replay",
                      .trace = "toy & <sons>.jsonl",
                      .model = "llama-3.1-8b",
                      .gpu = "H200",
                      .block_size = BLOCK_SIZE,
                      .bytes_per_block = 2097152,
                      .options = options,
                      .tiers = &tier,
                      .num_tiers = t->options->num_tiers > 0 ? 1 : 0,
                      .max_rows = t->options->max_rows};
    if (t->snapshots != NULL)
        snapshots_write_meta(t->snapshots, &meta);
    page *p = page_open(&meta);
    json_decref(options);
    return p;
}

static void make_pool(toy *t)
{
    uint32_t num = t->options->num_blocks;
    t->states = malloc(num);
    t->owners = calloc(num, sizeof *t->owners);
    t->queue = calloc(num, sizeof *t->queue);
    memset(t->states, 'E', num);
    t->states[0] = 'N';
    for (uint32_t i = 1; i < num; i++)
        t->queue[t->num_free++] = i;
    t->usage = (quire_usage){.total = num, .empty = num - 1, .null_blocks = 1};
    t->host = (quire_usage){.total = 4 * (uint64_t)num, .empty = 4 * (uint64_t)num};
}

static void end_all(toy *t)
{
    toy_request **lists[] = {t->running, t->waiting};
    uint32_t nums[] = {t->num_running, t->num_waiting};
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; i < nums[k]; i++) {
            toy_request *r = lists[k][i];
            r->known.output_tokens = r->generated;
            page_request_end(t->page, &r->known);
            free(r->blocks);
            free(r);
        }
    page_close(t->page);
    free(t->states);
    free(t->owners);
    free(t->queue);
}

static int write_all_files(toy *t)
{
    char *report = make_report(t);
    FILE *out = fopen(t->options->report_path, "w");
    int status = out == NULL || fputs(report, out) < 0 || fclose(out) != 0;
    out = fopen(t->options->page_path, "w");
    status |= out == NULL || !page_write(t->page, out, report) || fclose(out) != 0;
    free(report);
    return status;
}

int toy_run(const toy_options *options)
{
    toy *t = calloc(1, sizeof *t);
    t->options = options;
    t->random = options->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    if (options->snapshots_path != NULL)
        t->snapshots = fopen(options->snapshots_path, "w");
    if (options->requests_path != NULL)
        t->requests = fopen(options->requests_path, "w");
    make_pool(t);
    t->page = open_page(t);
    for (uint64_t step = 1; step <= options->num_steps; step++)
        run_step(t, step);
    int status = write_all_files(t);
    end_all(t);
    if (t->snapshots != NULL && fclose(t->snapshots) != 0)
        status = 1;
    if (t->requests != NULL && fclose(t->requests) != 0)
        status = 1;
    free(t);
    return status;
}
