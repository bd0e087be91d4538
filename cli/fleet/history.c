#include "history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double FIRST_WIDTH_S = 0.001;

/* Of a worker at the time of the last event. */
struct history_now {
    double time_s;
    uint32_t waiting;
    uint32_t running;
};

static void add_class(history *h, const char *group, int64_t from, int64_t to)
{
    h->classes[h->num_classes++] = (history_class){.group = group, .from = from, .to = to};
}

/* A class of a priority is added with the first request that has it. */
static void make_classes(history *h)
{
    add_class(h, "prompt", 0, 1024);
    add_class(h, "prompt", 1025, 8192);
    add_class(h, "prompt", 8193, 32768);
    add_class(h, "prompt", 32769, INT64_MAX);
    add_class(h, "turn", 0, 0);
    add_class(h, "turn", 1, INT64_MAX);
}

history *history_open(uint32_t num_workers, const slo *limits)
{
    history *h = calloc(1, sizeof *h);
    if (h == NULL)
        return NULL;
    h->num_workers = num_workers;
    h->workers_per_row = (num_workers + HISTORY_ROWS - 1) / HISTORY_ROWS;
    h->num_rows = (num_workers + h->workers_per_row - 1) / h->workers_per_row;
    h->num_bins = HISTORY_BINS;
    while (h->num_bins > HISTORY_LEAST_BINS && h->num_bins * h->num_rows > HISTORY_CELLS)
        h->num_bins /= 2;
    h->width_s = FIRST_WIDTH_S;
    h->limits = *limits;
    h->cells = calloc((size_t)h->num_rows * h->num_bins, sizeof *h->cells);
    h->bins = calloc(h->num_bins, sizeof *h->bins);
    h->now = calloc(num_workers, sizeof *h->now);
    make_classes(h);
    if (h->cells != NULL && h->bins != NULL && h->now != NULL)
        return h;
    history_close(h);
    return NULL;
}

void history_close(history *h)
{
    if (h == NULL)
        return;
    copies_free(&h->copies);
    prefixes_free(&h->prefixes);
    decisions_free(&h->decisions);
    free(h->cells);
    free(h->bins);
    free(h->now);
    free(h);
}

/* ---- bins --------------------------------------------------------------------- */

static history_cell add_cells(history_cell a, const history_cell *b)
{
    a.waiting_s += b->waiting_s;
    a.running_s += b->running_s;
    a.prompt_tokens += b->prompt_tokens;
    a.hit_tokens += b->hit_tokens;
    return a;
}

static history_bin add_bins(history_bin a, const history_bin *b)
{
    a.arrived += b->arrived;
    a.ended += b->ended;
    a.good += b->good;
    a.prompt_tokens += b->prompt_tokens;
    a.output_tokens += b->output_tokens;
    a.hit_tokens += b->hit_tokens;
    a.believed_tokens += b->believed_tokens;
    a.ideal_tokens += b->ideal_tokens;
    ideal_add_losses(&a.losses, &b->losses);
    a.new_copies += b->new_copies;
    a.new_blocks += b->new_blocks;
    return a;
}

static void merge_bins(history *h)
{
    uint32_t half = h->num_bins / 2;
    for (uint32_t row = 0; row < h->num_rows; row++) {
        history_cell *cells = &h->cells[(size_t)row * h->num_bins];
        for (uint32_t i = 0; i < half; i++)
            cells[i] = add_cells(cells[2 * i], &cells[2 * i + 1]);
        memset(&cells[half], 0, half * sizeof *cells);
    }
    for (uint32_t i = 0; i < half; i++)
        h->bins[i] = add_bins(h->bins[2 * i], &h->bins[2 * i + 1]);
    memset(&h->bins[half], 0, half * sizeof *h->bins);
    h->width_s *= 2;
}

/* The bin of that time. */
static uint32_t bin_at(history *h, double time_s)
{
    h->end_s = time_s > h->end_s ? time_s : h->end_s;
    while (time_s >= h->width_s * h->num_bins)
        merge_bins(h);
    return time_s > 0 ? (uint32_t)(time_s / h->width_s) : 0;
}

static history_cell *cell_at(history *h, uint32_t worker, uint32_t bin)
{
    return &h->cells[(size_t)(worker / h->workers_per_row) * h->num_bins + bin];
}

/* Counts the requests that the worker has had since its last event. */
static struct history_now *advance(history *h, uint32_t worker, double time_s)
{
    struct history_now *now = &h->now[worker];
    uint32_t last = bin_at(h, time_s);
    double from_s = now->time_s;
    if (time_s <= from_s)
        return now;
    now->time_s = time_s;
    if (now->waiting == 0 && now->running == 0)
        return now;
    for (uint32_t bin = bin_at(h, from_s); bin <= last; bin++) {
        history_cell *cell = cell_at(h, worker, bin);
        double to_s = bin == last ? time_s : (bin + 1) * h->width_s;
        cell->waiting_s += now->waiting * (to_s - from_s);
        cell->running_s += now->running * (to_s - from_s);
        from_s = to_s;
    }
    return now;
}

/* ---- requests ------------------------------------------------------------------ */

void history_arrived(history *h, double time_s, uint64_t number, const uint64_t *blocks,
                     uint32_t num_blocks)
{
    h->bins[bin_at(h, time_s)].arrived++;
    if (blocks != NULL && !prefixes_note(&h->prefixes, number, blocks, num_blocks))
        h->has_failed = true;
}

void history_decided(history *h, const routers *r, const router_request *request,
                     const router_answer *answer)
{
    if (!decisions_note(&h->decisions, r, request, answer))
        h->has_failed = true;
}

void history_routed(history *h, uint32_t worker, double time_s)
{
    advance(h, worker, time_s)->waiting++;
}

void history_left_out(history *h, uint32_t worker, double time_s)
{
    struct history_now *now = advance(h, worker, time_s);
    now->waiting -= now->waiting > 0;
}

void history_admitted(history *h, uint32_t worker, double time_s)
{
    struct history_now *now = advance(h, worker, time_s);
    now->waiting -= now->waiting > 0;
    now->running++;
}

void history_left(history *h, uint32_t worker, double time_s)
{
    struct history_now *now = advance(h, worker, time_s);
    now->running -= now->running > 0;
}

void history_first_token(history *h, uint32_t worker, double time_s, const history_prompt *p)
{
    uint32_t bin = bin_at(h, time_s);
    history_cell *cell = cell_at(h, worker, bin);
    cell->prompt_tokens += p->prompt_tokens;
    cell->hit_tokens += p->hit_tokens;
    history_bin *b = &h->bins[bin];
    b->prompt_tokens += p->prompt_tokens;
    b->hit_tokens += p->hit_tokens;
    b->believed_tokens += p->believed_tokens;
    b->ideal_tokens += p->ideal->tokens;
    ideal_add_losses(&b->losses, &p->ideal->losses);
    decisions_found(&h->decisions, p->number, p->hit_tokens);
}

static void note_time(history *h, history_time which, double time_ms)
{
    double us = time_ms * 1e3;
    history_latency *t = &h->times[which];
    double at = us < 1 ? 0 : floor(HISTORY_OCTAVE * log2(us));
    t->count++;
    t->bins[at < HISTORY_LATENCY_BINS ? (uint32_t)at : HISTORY_LATENCY_BINS - 1]++;
}

static void count_in(history_class *c, bool is_good)
{
    c->ended++;
    c->good += is_good;
}

/* Each request is in one class of each group. The last class has all priorities that have none of
 * their own. */
static void note_classes(history *h, const history_end *end, bool is_good)
{
    uint32_t n = h->num_classes;
    bool has_priority = false;
    for (uint32_t i = 0; i < n; i++) {
        history_class *c = &h->classes[i];
        int64_t value = c->group[0] == 't' ? end->turn : end->prompt_tokens;
        bool is_priority = strcmp(c->group, "priority") == 0;
        value = is_priority ? end->priority : value;
        bool is_in = value >= c->from && value <= c->to;
        has_priority |= is_priority && is_in;
        if (is_in)
            count_in(c, is_good);
    }
    if (has_priority)
        return;
    if (n == HISTORY_CLASSES - 1)
        add_class(h, "priority", INT64_MIN, INT64_MAX);
    else
        add_class(h, "priority", end->priority, end->priority);
    count_in(&h->classes[n], is_good);
}

void history_ended(history *h, uint32_t worker, double time_s, const history_end *end)
{
    struct history_now *now = advance(h, worker, time_s);
    history_bin *b = &h->bins[bin_at(h, time_s)];
    now->running -= now->running > 0;
    b->ended++;
    b->output_tokens += end->output_tokens;
    note_time(h, HISTORY_TTFT, end->ttft_ms);
    note_time(h, HISTORY_E2E, end->e2e_ms);
    note_time(h, HISTORY_QUEUE, end->queue_ms);
    if (end->tpot_ms >= 0)
        note_time(h, HISTORY_TPOT, end->tpot_ms);
    if (!slo_is_set(&h->limits))
        return;
    bool is_good = slo_is_met(&h->limits, end->ttft_ms, end->tpot_ms, end->e2e_ms);
    b->good += is_good;
    note_classes(h, end, is_good);
}

/* ---- caches -------------------------------------------------------------------- */

static void count_copies(history *h, double time_s, uint64_t pairs_before, uint64_t blocks_before)
{
    history_bin *b = &h->bins[bin_at(h, time_s)];
    b->new_copies += (int64_t)(h->copies.num_pairs - pairs_before);
    b->new_blocks += (int64_t)(h->copies.num_blocks - blocks_before);
}

void history_stored(history *h, uint32_t worker, double time_s, const uint64_t *names, uint32_t n)
{
    copies *c = &h->copies;
    uint64_t pairs = c->num_pairs;
    uint64_t blocks = c->num_blocks;
    for (uint32_t i = 0; i < n; i++)
        if (!copies_add(c, names[i], worker))
            h->has_failed = true;
    count_copies(h, time_s, pairs, blocks);
}

void history_removed(history *h, uint32_t worker, double time_s, const uint64_t *names, uint32_t n)
{
    uint64_t pairs = h->copies.num_pairs;
    uint64_t blocks = h->copies.num_blocks;
    for (uint32_t i = 0; i < n; i++)
        copies_remove(&h->copies, names[i], worker);
    count_copies(h, time_s, pairs, blocks);
}

void history_cleared(history *h, uint32_t worker, double time_s)
{
    uint64_t pairs = h->copies.num_pairs;
    uint64_t blocks = h->copies.num_blocks;
    if (!copies_clear(&h->copies, worker))
        h->has_failed = true;
    count_copies(h, time_s, pairs, blocks);
}

/* ---- the end -------------------------------------------------------------------- */

void history_finish(history *h, double end_s)
{
    for (uint32_t i = 0; i < h->num_workers; i++)
        advance(h, i, end_s);
}

uint32_t history_used_bins(const history *h)
{
    return h->end_s > 0 ? (uint32_t)(h->end_s / h->width_s) + 1 : 1;
}

bool history_is_whole(const history *h)
{
    return !h->has_failed;
}
