#include "tracks.h"

#include <stdlib.h>

static const double COUNTERS_EVERY_S = 0.02;

typedef struct track {
    uint32_t waiting;
    uint32_t running;
    double told_s; /* the time of the last counter */
} track;

struct tracks {
    FILE *out;
    uint64_t num_lines;
    track *workers;
};

static FILE *next_line(tracks *t)
{
    fputs(t->num_lines++ == 0 ? "\n" : ",\n", t->out);
    return t->out;
}

tracks *tracks_open(FILE *out, uint32_t num_workers, const char *made_by)
{
    tracks *t = calloc(1, sizeof *t);
    track *workers = calloc(num_workers, sizeof *workers);
    if (t == NULL || workers == NULL) {
        free(t);
        free(workers);
        return NULL;
    }
    *t = (tracks){.out = out, .workers = workers};
    fputs("{\"displayTimeUnit\":\"ms\"", out);
    if (made_by != NULL)
        fprintf(out, ",\"otherData\":{\"made_by\":%s}", made_by);
    fputs(",\"traceEvents\":[", out);
    for (uint32_t i = 0; i < num_workers; i++) {
        workers[i].told_s = -1;
        fprintf(next_line(t),
                "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":\"worker "
                "%u\"}}",
                i + 1, i);
    }
    return t;
}

void tracks_close(tracks *t)
{
    if (t == NULL)
        return;
    fputs("\n]}\n", t->out);
    free(t->workers);
    free(t);
}

static void count(tracks *t, uint32_t worker, double time_s)
{
    track *w = &t->workers[worker];
    if (w->told_s >= 0 && time_s < w->told_s + COUNTERS_EVERY_S && w->running + w->waiting > 0)
        return;
    w->told_s = time_s;
    fprintf(next_line(t),
            "{\"name\":\"requests\",\"ph\":\"C\",\"pid\":%u,\"ts\":%.3f,\"args\":{\"running\":%u,"
            "\"waiting\":%u}}",
            worker + 1, time_s * 1e6, w->running, w->waiting);
}

void tracks_routed(tracks *t, uint32_t worker, double time_s)
{
    t->workers[worker].waiting++;
    count(t, worker, time_s);
}

void tracks_admitted(tracks *t, uint32_t worker, double time_s)
{
    t->workers[worker].waiting--;
    t->workers[worker].running++;
    count(t, worker, time_s);
}

void tracks_left_out(tracks *t, uint32_t worker, double time_s)
{
    t->workers[worker].waiting--;
    count(t, worker, time_s);
}

void tracks_left(tracks *t, uint32_t worker, double time_s)
{
    t->workers[worker].running--;
    count(t, worker, time_s);
}

static void write_slice(tracks *t, uint32_t worker, const track_request *r, const char *name,
                        double from_s, double to_s)
{
    unsigned long long id = r->id;
    fprintf(next_line(t),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"b\",\"id\":%llu,\"pid\":%u,\"tid\":1,"
            "\"ts\":%.3f,\"args\":{\"request\":%llu,\"prompt_tokens\":%u,\"hit_tokens\":%u,"
            "\"believed_tokens\":%u}}",
            name, id, worker + 1, from_s * 1e6, id, r->prompt_tokens, r->hit_tokens,
            r->believed_tokens);
    fprintf(next_line(t),
            "{\"name\":\"%s\",\"cat\":\"request\",\"ph\":\"e\",\"id\":%llu,\"pid\":%u,\"tid\":1,"
            "\"ts\":%.3f}",
            name, id, worker + 1, to_s * 1e6);
}

void tracks_ended(tracks *t, uint32_t worker, const track_request *r)
{
    uint32_t first = r->is_apart ? r->prefill_worker : worker;
    t->workers[worker].running--;
    write_slice(t, first, r, "waiting", r->arrival_s, r->scheduled_s);
    write_slice(t, first, r, "prefill", r->scheduled_s,
                r->is_apart ? r->computed_s : r->first_token_s);
    if (r->is_apart)
        write_slice(t, worker, r, "transfer", r->computed_s, r->first_token_s);
    write_slice(t, worker, r, "decode", r->first_token_s, r->end_s);
    count(t, worker, r->end_s);
}
