#include "recorded.h"

#include "output/failure.h"
#include "output/grown.h"
#include "verify/recording.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1 << 28, MAX_OPEN = 64 };

/* A step that has no update yet. */
typedef struct open_step {
    uint64_t step;
    uint32_t index;
} open_step;

typedef struct loader {
    recorded *out;
    const time_model *model;
    uint32_t request_room;
    uint32_t step_room;
    uint32_t *computed; /* tokens of each request */
    uint32_t computed_room;
    uint64_t *reqs; /* of the last schedule line */
    uint64_t reqs_room;
    uint32_t num_reqs;
    open_step open[MAX_OPEN];
    uint32_t num_open;
    uint32_t num_live;  /* requests that have not ended */
    uint32_t num_added; /* since the last schedule line */
    bool is_idle;       /* nothing was there since the last update */
    double ended_s;     /* the end of the last step that has an update */
    uint32_t ended;     /* the step that it was of; UINT32_MAX: none */
} loader;

static int no_memory(recording *r)
{
    return fail_with("%s: there is not enough memory for its steps", recording_place(r));
}

static int problem(recording *r, const char *what)
{
    return fail_with("%s: %s", recording_place(r), what);
}

/* ---- requests -------------------------------------------------------------------- */

static int take_request(loader *l, recording *r, const recording_line *line)
{
    recorded *m = l->out;
    if (line->req != m->num_requests + 1)
        return problem(r, "requests are not numbered one after the other");
    if (!grow(&m->requests, m->num_requests, &l->request_room, MAX_ENTRIES, sizeof *m->requests) ||
        !grow(&l->computed, m->num_requests, &l->computed_room, MAX_ENTRIES, sizeof *l->computed))
        return no_memory(r);
    l->computed[m->num_requests] = 0;
    m->requests[m->num_requests++] = (recorded_request){.arrival_s = line->arrival,
                                                        .added_s = line->t,
                                                        .scheduled_s = -1,
                                                        .first_s = -1,
                                                        .last_s = -1,
                                                        .num_prompt_tokens = (uint32_t)line->prompt,
                                                        .was_idle = l->num_live == 0};
    l->num_live++;
    l->num_added++;
    return 0;
}

static int take_end(loader *l, recording *r, const recording_line *line)
{
    recorded *m = l->out;
    if (line->req == 0 || line->req > m->num_requests)
        return problem(r, "\"req\" is not a request of the recording");
    recorded_request *q = &m->requests[line->req - 1];
    q->output = (uint32_t)line->output;
    q->hit = (uint32_t)line->hit;
    q->preemptions = (uint32_t)line->preemptions;
    q->first_s = line->has_tokens ? line->first : -1;
    q->last_s = line->has_tokens ? line->last : -1;
    q->is_whole = line->reason == RECORDING_STOP || line->reason == RECORDING_LENGTH;
    l->num_live -= l->num_live > 0;
    if (l->num_live == 0)
        l->is_idle = true;
    return 0;
}

/* ---- steps ----------------------------------------------------------------------- */

/* The gap before this schedule line, which belongs to the step that ended before. */
static void note_gap(loader *l, const recording_line *line)
{
    recorded *m = l->out;
    bool is_gap = l->ended != UINT32_MAX && !l->is_idle && !m->header.async_scheduling;
    if (is_gap && l->num_open == 0) {
        m->steps[l->ended].gap_ms = (line->t - l->ended_s) * 1e3;
        m->steps[l->ended].num_added = l->num_added;
    }
    l->ended = UINT32_MAX;
    l->num_added = 0;
    l->is_idle = false;
}

/* A request of the recording by its number; NULL: it was not added. */
static recorded_request *request_of(loader *l, uint64_t req)
{
    return req - 1 < l->out->num_requests ? &l->out->requests[req - 1] : NULL;
}

/* Pairs of a request and the tokens that it has already. */
static int take_admitted(loader *l, recording *r, const recording_list *pairs, double time_s)
{
    for (uint32_t i = 0; i + 1 < pairs->count; i += 2) {
        recorded_request *q = request_of(l, pairs->items[i]);
        if (q == NULL)
            return problem(r, "a request is scheduled that was not added");
        l->computed[pairs->items[i] - 1] = (uint32_t)pairs->items[i + 1];
        if (q->scheduled_s < 0)
            q->scheduled_s = time_s;
    }
    return 0;
}

/* The requests of the step: those of the step before, if the line has none. */
static bool take_reqs(loader *l, const recording_line *line)
{
    if (!line->reqs.is_given)
        return true;
    if (!reserve(&l->reqs, line->reqs.count, &l->reqs_room, sizeof *l->reqs))
        return false;
    if (line->reqs.count > 0)
        memcpy(l->reqs, line->reqs.items, line->reqs.count * sizeof *l->reqs);
    l->num_reqs = line->reqs.count;
    return true;
}

static int take_work(loader *l, recording *r, const recording_line *line, recorded_step *step)
{
    if (!take_reqs(l, line))
        return no_memory(r);
    for (uint32_t i = 0; i < line->preempted.count; i++)
        if (request_of(l, line->preempted.items[i]) != NULL)
            l->computed[line->preempted.items[i] - 1] = 0;
    l->out->num_preemptions += line->preempted.count;
    if (take_admitted(l, r, &line->new_reqs, line->t) != 0 ||
        take_admitted(l, r, &line->resumed, line->t) != 0)
        return -1;
    if (line->tokens.is_given && line->tokens.count != l->num_reqs)
        return problem(r, "\"tokens\" and \"reqs\" are not equally long");
    for (uint32_t i = 0; i < l->num_reqs; i++) {
        if (request_of(l, l->reqs[i]) == NULL)
            return problem(r, "a request is scheduled that was not added");
        uint32_t tokens = line->tokens.is_given ? (uint32_t)line->tokens.items[i] : 1;
        uint32_t *computed = &l->computed[l->reqs[i] - 1];
        step_work_add(l->model, &step->work, tokens, *computed);
        *computed += tokens;
    }
    return 0;
}

static int take_schedule(loader *l, recording *r, const recording_line *line)
{
    recorded *m = l->out;
    recorded_step step = {.start_s = line->t,
                          .ms = -1,
                          .gap_ms = -1,
                          .running = (uint32_t)line->running,
                          .waiting = (uint32_t)line->waiting};
    note_gap(l, line);
    if (take_work(l, r, line, &step) != 0)
        return -1;
    if (step.work.num_tokens == 0)
        return 0;
    if (!grow(&m->steps, m->num_steps, &l->step_room, MAX_ENTRIES, sizeof *m->steps))
        return no_memory(r);
    if (l->num_open == MAX_OPEN)
        return problem(r, "more than 64 steps have no update");
    l->open[l->num_open++] = (open_step){line->step, m->num_steps};
    m->steps[m->num_steps++] = step;
    return 0;
}

static void take_update(loader *l, const recording_line *line)
{
    recorded *m = l->out;
    for (uint32_t i = 0; i < l->num_open; i++) {
        if (l->open[i].step != line->step)
            continue;
        recorded_step *step = &m->steps[l->open[i].index];
        double end_s = step->start_s + line->seconds;
        if (m->header.async_scheduling && l->ended_s > step->start_s)
            step->start_s = l->ended_s; /* it waited for the step before */
        step->ms = (end_s - step->start_s) * 1e3;
        l->ended = l->open[i].index;
        l->ended_s = end_s;
        memmove(&l->open[i], &l->open[i + 1], (l->num_open - i - 1) * sizeof *l->open);
        l->num_open--;
        return;
    }
}

/* ---- all ------------------------------------------------------------------------- */

/* 1: on; 0: nothing behind it can be used; -1: an error. */
static int take_line(loader *l, recording *r, const recording_line *line)
{
    int status = 0;
    switch (line->type) {
    case RECORDING_REQUEST:
        status = take_request(l, r, line);
        break;
    case RECORDING_SCHEDULE:
        status = take_schedule(l, r, line);
        break;
    case RECORDING_UPDATE:
        take_update(l, line);
        break;
    case RECORDING_END:
        status = take_end(l, r, line);
        break;
    case RECORDING_LOST:
        l->out->num_lost = line->lines;
        return 0;
    case RECORDING_CLOSE:
        l->out->is_cut = false;
        break;
    default:
        break;
    }
    l->out->end_s = line->t;
    return status == 0 ? 1 : -1;
}

int recorded_read(const char *path, const time_model *model, recorded *out)
{
    loader l = {.out = out, .model = model, .ended = UINT32_MAX, .is_idle = true};
    const recording_line *line;
    *out = (recorded){.is_cut = true};
    if (recorded_header_read(path, &out->header) != 0)
        return -1;
    recording *r = recording_open(path);
    if (r == NULL)
        return -1;
    int status = 1;
    while (status == 1) {
        status = recording_next(r, &line);
        if (status == 1)
            status = take_line(&l, r, line);
    }
    recording_close(r);
    free(l.computed);
    free(l.reqs);
    return status;
}

void recorded_free(recorded *m)
{
    free(m->requests);
    free(m->steps);
    *m = (recorded){0};
}
