#include "rewrite.h"

#include "options/engine.h"
#include "output/failure.h"
#include "output/grown.h"
#include "output/interrupt.h"
#include "output/made_by.h"
#include "replay/report.h"

#include <stdlib.h>
#include <string.h>

enum { SHOW_MS = 100, SHOW_EVERY = 256 };

trace_reader *rewrite_reader(rewrite *job)
{
    trace_reader *reader = trace_open_all(job->paths, job->num_paths, job->trace);
    if (reader == NULL) {
        progress_end(&job->progress);
        command_failed(job->cmd, "%s", failure());
        return NULL;
    }
    job->format = trace_reader_format(reader);
    return reader;
}

static void show(rewrite *job, const trace_reader *reader, uint64_t num_requests)
{
    char what[96];
    double now_s = progress_clock();
    if (!job->progress.is_on || now_s < job->shown_s + SHOW_MS * 1e-3)
        return;
    job->shown_s = now_s;
    uint64_t size = trace_size(reader);
    double part = size > 0 ? (double)trace_position(reader) / (double)size : -1;
    double copies = job->copies > 1 ? job->copies : 1;
    snprintf(what, sizeof what, "%s requests read", report_number(num_requests));
    progress_show(&job->progress, part >= 0 ? (job->num_done + part) / copies : -1, -1, what);
}

/* ---- reading -------------------------------------------------------------------- */

static bool reserve_after(rewrite *job, uint32_t wanted)
{
    uint64_t room = job->after_room;
    bool ok = reserve(&job->after, wanted, &room, sizeof *job->after);
    job->after_room = (uint32_t)room;
    return ok;
}

/* Names of requests that are dropped are no longer waited for. */
static bool filter_after(rewrite *job, const roots *r, trace_request *request)
{
    if (!reserve_after(job, request->num_after))
        return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < request->num_after; i++) {
        const root *it = roots_of_number(r, request->after[i]);
        if (it == NULL || it->is_kept)
            job->after[n++] = request->after[i];
    }
    request->after = job->after;
    request->num_after = n;
    return true;
}

static int write_request(rewrite *job, trace_request *request, bool has_contents)
{
    if (!job->has_first) {
        job->has_first = true;
        job->first_s = request->time_s;
    }
    request->time_s -= job->first_s;
    job->num_written++;
    if (workload_write(job->to, request, has_contents))
        return 0;
    progress_end(&job->progress);
    return command_failed(job->cmd, "%s", failure());
}

/* One reading: `change` decides, and what it keeps is written where there is a writer. */
static int read_all(rewrite *job, rewrite_change *change, void *user, bool is_written)
{
    trace_request request;
    roots r = {0};
    int status = 0;
    int more = 0;
    uint64_t n = 0;
    trace_reader *reader = job->reader != NULL ? job->reader : rewrite_reader(job);
    job->reader = NULL;
    if (reader == NULL)
        return COMMAND_FAILED;
    bool may_wait = trace_may_wait(job->format);
    rewrite_answer answer = REWRITE_KEEP;
    while (status == 0 && answer < REWRITE_END && !interrupt_came() &&
           (more = trace_next(reader, &request)) == 1) {
        if (++n % SHOW_EVERY == 0)
            show(job, reader, n);
        bool is_new = true;
        root *it = change != NULL ? roots_of(&r, &request, may_wait, &is_new) : NULL;
        answer = change == NULL ? REWRITE_KEEP
                 : it == NULL   ? REWRITE_FAILED
                                : change(user, &request, it, is_new);
        if (it != NULL && is_new)
            it->is_kept = answer == REWRITE_KEEP;
        if (answer == REWRITE_KEEP && change != NULL && !filter_after(job, &r, &request))
            answer = REWRITE_FAILED;
        if (answer == REWRITE_KEEP && is_written)
            status = write_request(job, &request, trace_has_contents(reader));
    }
    progress_end(&job->progress);
    if (answer == REWRITE_FAILED)
        status = command_failed(job->cmd, "not enough memory after %s requests", report_number(n));
    else if (more < 0 && !interrupt_came())
        status = command_failed(job->cmd, "%s", trace_error(reader));
    job->num_read = n;
    job->num_bad = trace_num_bad(reader);
    job->num_done++;
    trace_close(reader);
    roots_free(&r);
    return interrupt_status(status);
}

int rewrite_scan(rewrite *job, rewrite_change *look, void *user)
{
    return read_all(job, look, user, false);
}

int rewrite_read(rewrite *job)
{
    return read_all(job, job->change, job->user, true);
}

/* ---- the file ------------------------------------------------------------------- */

bool rewrite_is_stdin(const command *cmd)
{
    for (int i = 0; i < cmd->num_arguments; i++)
        if (strcmp(cmd->arguments[i], "-") == 0)
            return true;
    return false;
}

static char *record_of(const rewrite *job)
{
    json_t *record = job->is_anonymous ? NULL : made_by(job->cmd);
    if (record == NULL)
        return NULL;
    json_object_set_new(record, "trace", made_by_traces(job->paths, job->num_paths));
    char *text = json_dumps(record, JSON_REAL_PRECISION(12));
    json_decref(record);
    return text;
}

/* The format decides whether requests have names, so the trace is opened before. */
int rewrite_open(rewrite *job)
{
    job->reader = rewrite_reader(job);
    if (job->reader == NULL)
        return COMMAND_FAILED;
    job->made_by = record_of(job);
    job->writer.kind = command_word(job->cmd);
    job->writer.made_by = job->made_by;
    job->writer.has_names = trace_may_wait(job->format);
    job->file = packed_open(job->out);
    if (job->file == NULL)
        return command_failed(job->cmd, "--out: %s", failure());
    job->to = workload_open(packed_text(job->file), &job->writer);
    return job->to != NULL ? 0 : command_failed(job->cmd, "not enough memory");
}

static void say_counts(const rewrite *job)
{
    if (job->num_bad > 0)
        fprintf(stderr, "quire %s: %s invalid records skipped\n", job->cmd->name,
                report_number(job->num_bad));
    if (job->change != NULL)
        fprintf(stderr, "quire %s: %s requests written\n", job->cmd->name,
                report_number(job->num_written));
}

int rewrite_close(rewrite *job, int status)
{
    if (status == 0 && job->num_written == 0)
        status = command_failed(job->cmd, "no request is left to write");
    if (status != 0)
        packed_discard(job->file);
    else if (!packed_close(job->file))
        status = command_failed(job->cmd, "--out: %s", failure());
    if (status == 0)
        say_counts(job);
    workload_close(job->to);
    trace_close(job->reader);
    free(job->made_by);
    free(job->after);
    return status;
}

int rewrite_begin(rewrite *job)
{
    interrupt_catch();
    progress_begin(&job->progress, true);
    return rewrite_open(job);
}

int rewrite_run(rewrite *job)
{
    int status = rewrite_begin(job);
    if (status == 0)
        status = rewrite_read(job);
    return rewrite_close(job, status);
}
