/* cmd_trace_scale.c - `quire trace scale`: a trace with more or fewer requests, faster or slower.
 *
 *      --requests 25 of a trace of 10      copy 0 (10)  copy 1 (10)  half of copy 2 (5)
 *                                          fresh contents and sessions in each; one after the other
 *      --requests 5                        whole sessions, chosen by a hash, up to 5 requests
 *
 * The trace is read once to count, where that is needed, and once for each copy.
 */
#include "commands.h"
#include "options/engine.h"
#include "output/grown.h"
#include "output/interrupt.h"
#include "replay/report.h"
#include "trace/content.h"
#include "workload/rewrite.h"

#include <math.h>
#include <stdlib.h>

/* An arrival and all that goes back to it. */
typedef struct arrival_count {
    uint64_t order; /* by hash: the first are kept */
    uint64_t index;
    uint64_t num_requests;
    double time_s;
} arrival_count;

static struct {
    trace_options trace;
    const char *format;
    const char *out;
    double speed;
    double rate;
    uint64_t num_requests;
    uint64_t seed;
    bool keeps_think;
    bool has_speed;
    /* found in the first reading */
    arrival_count *arrivals;
    uint64_t num_arrivals;
    uint64_t room;
    uint64_t total;
    double span_s;
    /* of the copy that is written */
    bool is_thinned;
    bool *is_kept; /* by arrival */
    double start_s;
} o = {.out = "-", .speed = 1, .seed = 1};

static const option table[] = {
    {"requests", OPTION_U64, &o.num_requests, "N",
     "more: the trace is repeated with fresh contents; fewer: whole sessions are dropped",
     .def = "as many as there are", .min = 1, .max = 1e15, .section = "What changes"},
    {"speed", OPTION_REAL, &o.speed, "FACTOR", "times and think times are divided by it",
     .def = "1", .min = 1e-6, .max = 1e9, .is_given = &o.has_speed},
    {"rate", OPTION_REAL, &o.rate, "R",
     "arrivals a second, on average: of sessions where there are sessions; instead of --speed",
     .def = "as it is", .min = 1e-9, .max = 1e9},
    {"keep-think", OPTION_SWITCH, &o.keeps_think, NULL, "think times stay as they are",
     .def = "off"},
    {"seed", OPTION_U64, &o.seed, "N", "another seed drops other sessions", .def = "1"},
    REWRITE_OPTIONS(o.trace, o.format, o.out),
    {0}};

/* ---- counting --------------------------------------------------------------------- */

static rewrite_answer count(void *user, trace_request *request, root *it, bool is_new)
{
    (void)user;
    if (is_new) {
        if (!reserve(&o.arrivals, o.num_arrivals + 1, &o.room, sizeof *o.arrivals))
            return REWRITE_FAILED;
        o.arrivals[o.num_arrivals++] = (arrival_count){
            .order = content_of(o.seed, it->key, 0), .index = it->index, .time_s = request->time_s};
        o.span_s = request->time_s > o.span_s ? request->time_s : o.span_s;
    }
    o.arrivals[it->index].num_requests++;
    o.total++;
    return REWRITE_KEEP;
}

static int compare_order(const void *a_, const void *b_)
{
    const arrival_count *a = a_;
    const arrival_count *b = b_;
    if (a->order != b->order)
        return a->order < b->order ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Some of the arrivals of a copy. */
typedef struct kept {
    uint64_t count;
    double first_s;
    double last_s;
} kept;

static void keep(kept *k, const arrival_count *it)
{
    k->first_s = k->count == 0 ? it->time_s : fmin(k->first_s, it->time_s);
    k->last_s = fmax(k->last_s, it->time_s);
    k->count++;
}

/* Arrivals in the order of their hashes, as long as they fit. */
static kept keep_arrivals(uint64_t num_requests)
{
    kept k = {0};
    qsort(o.arrivals, o.num_arrivals, sizeof *o.arrivals, compare_order);
    for (uint64_t i = 0; i < o.num_arrivals && num_requests > 0; i++) {
        const arrival_count *it = &o.arrivals[i];
        if (it->num_requests > num_requests)
            continue;
        num_requests -= it->num_requests;
        o.is_kept[it->index] = true;
        keep(&k, it);
    }
    return k;
}

/* ---- writing ---------------------------------------------------------------------- */

static rewrite_answer scale(void *user, trace_request *request, root *it, bool is_new)
{
    (void)user;
    bool is_kept = is_new ? !o.is_thinned || o.is_kept[it->index] : it->is_kept;
    if (!is_kept)
        return REWRITE_DROP;
    request->time_s = (request->time_s + o.start_s) / o.speed;
    if (!o.keeps_think)
        request->think_s /= o.speed;
    return REWRITE_KEEP;
}

/* The mean distance of two arrivals: between the last of a copy and the first of the next. */
static double gap_s(void)
{
    return o.num_arrivals > 1 ? o.span_s / (double)(o.num_arrivals - 1) : 1;
}

/* From the first arrival of all copies to the last, and how many there are. */
static kept whole_trace(uint64_t num_whole, const kept *rest)
{
    double copy_s = o.span_s + gap_s();
    kept all = {.count = num_whole * o.num_arrivals + rest->count, .first_s = 0};
    if (num_whole == 0)
        all.first_s = rest->first_s;
    all.last_s = rest->count > 0 ? (double)num_whole * copy_s + rest->last_s
                                 : (double)num_whole * copy_s - gap_s();
    return all;
}

static int write_copies(rewrite *job)
{
    uint64_t num_whole = o.num_requests > 0 ? o.num_requests / o.total : 1;
    kept rest = keep_arrivals(o.num_requests > 0 ? o.num_requests % o.total : 0);
    kept all = whole_trace(num_whole, &rest);
    int status = 0;
    if (o.rate > 0 && !(all.last_s > all.first_s))
        return command_failed(job->cmd, "--rate %g: all requests come at the same time", o.rate);
    if (o.rate > 0)
        o.speed = o.rate * (all.last_s - all.first_s) / (double)(all.count - 1);
    for (uint64_t copy = 0; copy < num_whole + (rest.count > 0) && status == 0; copy++) {
        o.start_s = (double)copy * (o.span_s + gap_s());
        o.is_thinned = copy == num_whole;
        if (copy > 0)
            workload_begin_copy(job->to);
        status = rewrite_read(job);
    }
    return status;
}

static int run_job(rewrite *job)
{
    bool is_counted = o.num_requests > 0 || o.rate > 0;
    int status = 0;
    interrupt_catch();
    progress_begin(&job->progress, true);
    if (is_counted)
        status = rewrite_scan(job, count, NULL);
    if (status == 0 && is_counted && o.total == 0)
        return command_failed(job->cmd, "%s: contains no requests", job->paths[0]);
    if (status == 0 && is_counted) {
        o.is_kept = calloc(o.num_arrivals, sizeof *o.is_kept);
        job->copies = 1 + (o.num_requests > 0 ? (double)o.num_requests / (double)o.total : 1);
        if (o.is_kept == NULL)
            status = command_failed(job->cmd, "not enough memory");
    }
    if (status == 0)
        status = rewrite_open(job);
    if (status == 0)
        status = is_counted ? write_copies(job) : rewrite_read(job);
    status = rewrite_close(job, status);
    free(o.arrivals);
    free(o.is_kept);
    return status;
}

static int run_scale(void)
{
    if (o.has_speed && o.rate > 0)
        return command_error(&cmd_trace_scale, "--speed and --rate cannot be used together");
    if ((o.num_requests > 0 || o.rate > 0) && rewrite_is_stdin(&cmd_trace_scale))
        return command_error(&cmd_trace_scale,
                             "--requests and --rate read the trace twice, and standard input can "
                             "be read once");
    int status = engine_resolve_format(&cmd_trace_scale, o.format, &o.trace.format);
    if (status != 0)
        return status;
    rewrite job = {.cmd = &cmd_trace_scale,
                   .paths = cmd_trace_scale.arguments,
                   .num_paths = (uint32_t)cmd_trace_scale.num_arguments,
                   .trace = &o.trace,
                   .out = o.out,
                   .change = scale};
    return run_job(&job);
}

command cmd_trace_scale = {
    .name = "trace scale",
    .usage = "trace scale [OPTION]... TRACE...",
    .summary = "makes a trace longer, shorter, faster or slower; sessions stay whole",
    .examples = "  quire trace scale --speed 2 --out fast.jsonl day.jsonl.zst\n"
                "      the same requests in half the time\n"
                "  quire trace scale --requests 1M --out long.jsonl.zst day.jsonl.zst\n"
                "      the day again and again, with fresh contents each time\n"
                "  quire trace scale --requests 2000 --rate 5 --out small.jsonl day.jsonl.zst\n"
                "      sessions with 2,000 requests in all, five arrivals a second\n",
    .options = table,
    .max_arguments = COMMAND_MAX_WORDS,
    .min_arguments = 1,
    .reads_arguments = true,
    .missing = "expected a TRACE: a file, a folder, or - for standard input",
    .run = run_scale,
};
