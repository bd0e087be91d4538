#include "page.h"

#include "output/grown.h"
#include "store.h"

#include <stdlib.h>
#include <string.h>

static char *copy_text(const char *text)
{
    return text != NULL ? strdup(text) : NULL;
}

page *page_open(const page_meta *meta)
{
    page *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->title = copy_text(meta->title != NULL ? meta->title : "Quire replay");
    p->trace = copy_text(meta->trace);
    p->model = copy_text(meta->model);
    p->gpu = copy_text(meta->gpu);
    p->block_size = meta->block_size;
    p->bytes_per_block = meta->bytes_per_block;
    p->options = json_incref(meta->options);
    for (uint32_t i = 0; i < meta->num_tiers && i < PAGE_MAX_TIERS; i++) {
        p->tiers[i].name = copy_text(meta->tiers[i].name);
        p->tiers[i].total = meta->tiers[i].total;
        p->num_tiers++;
    }
    p->num_series = NUM_SERIES + TIER_SERIES * p->num_tiers;
    p->row_bytes = sizeof(page_row) + p->num_series * sizeof(page_stat);
    p->max_rows = meta->max_rows > 0 ? (meta->max_rows + 1) / 2 * 2 : PAGE_MAX_ROWS;
    p->points_per_row = 1;
    p->idle_us = 1000;
    p->steps_per_mark = 1;
    for (uint32_t i = 0; i < PAGE_NUM_POOLS; i++)
        p->frames[i].stride = 1;
    p->preempted.stride = 1;
    p->others.stride = 1;
    return p;
}

static void free_sample(page_sample *sample)
{
    for (uint32_t i = 0; i < sample->num; i++)
        free((page_interval *)(uintptr_t)sample->requests[i].preempted);
    free(sample->requests);
    *sample = (page_sample){0};
}

void page_close(page *p)
{
    if (p == NULL)
        return;
    for (uint32_t i = 0; i < p->num_tiers; i++)
        free((char *)(uintptr_t)p->tiers[i].name);
    json_decref(p->options);
    free(p->title);
    free(p->trace);
    free(p->model);
    free(p->gpu);
    free(p->rows);
    free(p->marks);
    for (uint32_t i = 0; i < PAGE_NUM_POOLS; i++)
        free(p->frames[i].frames);
    free_sample(&p->preempted);
    free_sample(&p->others);
    free(p);
}

/* Room for one more element, up to `most`. False: full, or no memory. */
static bool make_room(page *p, void *elements, uint32_t *capacity, uint32_t num, size_t bytes,
                      uint32_t most)
{
    bool is_room = grow(elements, num, capacity, most, bytes);
    p->is_failed |= !is_room && num < most;
    return is_room;
}

/* ---- rows ------------------------------------------------------------------ */

static void add_row(const page *p, page_row *to, const page_row *row)
{
    if (to->num_steps == 0)
        to->step = row->step;
    to->num_points += row->num_points;
    to->num_steps += row->num_steps;
    to->hit_tokens += row->hit_tokens;
    to->external_tokens += row->external_tokens;
    to->query_tokens += row->query_tokens;
    for (uint32_t i = 0; i < p->num_series; i++) {
        page_stat *a = &to->stats[i];
        const page_stat *b = &row->stats[i];
        a->min = a->min < b->min ? a->min : b->min;
        a->max = a->max > b->max ? a->max : b->max;
        a->sum += b->sum;
    }
}

static bool is_idle(const page_row *row)
{
    return row->num_steps == 0;
}

/* Whether a row that ends at end_us is idle time with a row of its own. */
static bool is_kept_idle(const page *p, const page_row *row, uint64_t end_us)
{
    return is_idle(row) && end_us - row->time_us >= p->idle_us;
}

/* Where a row ends: where the next one begins; the last one at end_us. */
static uint64_t row_end(const page *p, uint32_t index, uint64_t end_us)
{
    return index + 1 < p->num_rows ? page_row_at(p, index + 1)->time_us : end_us;
}

/* Idle times that follow each other become one row: their length counts as a whole. */
static void merge_idle_rows(page *p)
{
    uint32_t num = 1;
    for (uint32_t i = 1; i < p->num_rows; i++) {
        page_row *last = page_row_at(p, num - 1);
        const page_row *row = page_row_at(p, i);
        if (is_idle(last) && is_idle(row))
            add_row(p, last, row);
        else
            memmove(page_row_at(p, num++), row, p->row_bytes);
    }
    p->num_rows = num;
}

static uint32_t count_kept_idle(const page *p, uint64_t end_us)
{
    uint32_t num = 0;
    for (uint32_t i = 0; i < p->num_rows; i++)
        num += is_kept_idle(p, page_row_at(p, i), row_end(p, i, end_us));
    return num;
}

/* Doubles the points of a row and merges neighbours; the longest idle times stay rows of their own,
 * because a row that stands for work and for hours without work would show work in all of them.
 * Any two rows fit into one, so 5/8 of the rows are left at most. */
static void halve_rows(page *p, uint64_t end_us)
{
    merge_idle_rows(p);
    while (count_kept_idle(p, end_us) > p->max_rows / PAGE_IDLE_SHARE)
        p->idle_us *= 2;
    p->points_per_row *= 2;
    bool is_closed = true; /* nothing may join the last row */
    uint32_t num = 0;
    for (uint32_t i = 0; i < p->num_rows; i++) {
        const page_row *row = page_row_at(p, i);
        bool is_kept = is_kept_idle(p, row, row_end(p, i, end_us));
        page_row *last = num > 0 ? page_row_at(p, num - 1) : NULL;
        if (!is_closed && !is_kept && last->num_points + row->num_points <= p->points_per_row)
            add_row(p, last, row);
        else
            memmove(page_row_at(p, num++), row, p->row_bytes);
        is_closed = is_kept;
    }
    p->num_rows = num;
}

/* Idle time has ended and was short: it joins the row before it where there is room. */
static void close_idle_row(page *p, uint64_t end_us)
{
    if (p->num_rows < 2)
        return;
    page_row *before = page_row_at(p, p->num_rows - 2);
    const page_row *last = page_row_at(p, p->num_rows - 1);
    if (is_idle(last) && !is_idle(before) && !is_kept_idle(p, last, end_us) &&
        before->num_points + last->num_points <= p->points_per_row) {
        add_row(p, before, last);
        p->num_rows--;
    }
}

/* Whether the row is now a part of the last one. How long idle time is, is known at its end. */
static bool join_last_row(page *p, const page_row *row)
{
    if (p->points_per_row == 1 || p->num_rows == 0)
        return false;
    page_row *last = page_row_at(p, p->num_rows - 1);
    if (is_idle(row) ? !is_idle(last)
                     : is_kept_idle(p, last, row->time_us) ||
                           last->num_points + row->num_points > p->points_per_row)
        return false;
    add_row(p, last, row);
    return true;
}

static void put_row(page *p, const page_row *row)
{
    if (p->points_per_row > 1 && !is_idle(row))
        close_idle_row(p, row->time_us);
    if (join_last_row(p, row))
        return;
    if (p->num_rows == p->max_rows) {
        halve_rows(p, row->time_us);
        if (join_last_row(p, row))
            return;
    }
    if (make_room(p, &p->rows, &p->row_capacity, p->num_rows, p->row_bytes, p->max_rows))
        memcpy(page_row_at(p, p->num_rows++), row, p->row_bytes);
}

static void set_stat(page_row *row, uint32_t series, uint64_t value)
{
    uint32_t small = value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
    row->stats[series] = (page_stat){.min = small, .max = small, .sum = small};
}

static void set_usage(page_row *row, uint32_t series, const quire_usage *usage)
{
    set_stat(row, series + SERIES_EMPTY, usage->empty);
    set_stat(row, series + SERIES_CACHED, usage->cached);
    set_stat(row, series + SERIES_ACTIVE, usage->active);
}

static void set_tier(page_row *row, uint32_t series, const page_tier_step *tier)
{
    set_usage(row, series, &tier->blocks);
    set_stat(row, series + TIER_IN, tier->in_blocks);
    set_stat(row, series + TIER_OUT, tier->out_blocks);
    set_stat(row, series + TIER_HITS, tier->hit_tokens);
}

/* A row on the stack, with room for all series. */
typedef union row_room {
    page_row row;
    unsigned char
        bytes[sizeof(page_row) + (NUM_SERIES + TIER_SERIES * PAGE_MAX_TIERS) * sizeof(page_stat)];
} row_room;

static void begin_row(const page *p, row_room *room, uint64_t step, double time_s,
                      const quire_usage *blocks, const page_tier_step *tiers)
{
    memset(room, 0, sizeof *room);
    room->row.step = step;
    room->row.time_us = page_us(time_s);
    room->row.num_points = 1;
    set_usage(&room->row, 0, blocks);
    for (uint32_t i = 0; tiers != NULL && i < p->num_tiers; i++)
        set_tier(&room->row, NUM_SERIES + TIER_SERIES * i, &tiers[i]);
}

void page_idle(page *p, double time_s, const quire_usage *blocks, const page_tier_step *tiers)
{
    row_room room;
    begin_row(p, &room, p->last_step, time_s, blocks, tiers);
    put_row(p, &room.row);
    p->end_s = time_s > p->end_s ? time_s : p->end_s;
}

/* ---- marks ----------------------------------------------------------------- */

static void halve_marks(page *p)
{
    uint32_t half = p->num_marks / 2;
    for (uint32_t i = 0; i < half; i++) {
        page_mark mark = p->marks[2 * i];
        mark.num += p->marks[2 * i + 1].num;
        p->marks[i] = mark;
    }
    p->num_marks = half;
    p->steps_per_mark *= 2;
}

static void put_mark(page *p, const quire_snapshot *s, double time_s)
{
    p->num_preemptions += s->num_preempted;
    if (p->num_marks == PAGE_MAX_MARKS)
        halve_marks(p);
    page_mark mark = {.step = s->step, .time_us = page_us(time_s), .num = s->num_preempted};
    if (make_room(p, &p->marks, &p->mark_capacity, p->num_marks, sizeof mark, PAGE_MAX_MARKS))
        p->marks[p->num_marks++] = mark;
}

void page_step(page *p, const quire_snapshot *s, double time_s, double duration_s,
               uint64_t query_tokens, const page_tier_step *tiers)
{
    row_room room;
    begin_row(p, &room, s->step, time_s, &s->blocks, tiers);
    page_row *row = &room.row;
    row->num_steps = 1;
    row->hit_tokens = s->num_hit_tokens;
    row->external_tokens = s->num_external_tokens;
    row->query_tokens = query_tokens;
    set_stat(row, SERIES_RUNNING, s->num_running);
    set_stat(row, SERIES_WAITING, (uint64_t)s->num_waiting + s->num_skipped);
    set_stat(row, SERIES_TOKENS, s->num_tokens);
    set_stat(row, SERIES_PREFILL, s->num_prefill_tokens);
    set_stat(row, SERIES_DECODE, s->num_tokens - s->num_prefill_tokens);
    set_stat(row, SERIES_DURATION_US, page_us(time_s + duration_s) - row->time_us);
    put_row(p, row);
    if (s->num_preempted > 0)
        put_mark(p, s, time_s);
    p->num_steps++;
    p->last_step = s->step;
    p->total_blocks = s->blocks.empty + s->blocks.cached + s->blocks.active;
    p->end_s = time_s + duration_s > p->end_s ? time_s + duration_s : p->end_s;
}

/* ---- frames ---------------------------------------------------------------- */

static bool wants_step(const page_frames *f, uint64_t step)
{
    return (step - 1) % f->stride == 0;
}

bool page_wants_blocks(const page *p, page_pool pool, uint64_t step)
{
    return wants_step(&p->frames[pool], step);
}

static void halve_frames(page_frames *f)
{
    f->stride *= 2;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->num_frames; i++)
        if (wants_step(f, f->frames[i].step))
            f->frames[kept++] = f->frames[i];
    f->num_frames = kept;
}

/* 4 bits for `count` of `all` blocks: itself, or 15ths that are 0 and 15 only for none and all. */
static unsigned share_of(uint32_t count, uint32_t all, uint32_t cell_blocks)
{
    if (cell_blocks <= PAGE_EXACT_CELL || count == 0)
        return count;
    if (count == all)
        return 15;
    unsigned share = (unsigned)(((uint64_t)count * 30 / all + 1) / 2);
    return share < 1 ? 1 : share > 14 ? 14 : share;
}

static unsigned char cell_of(const page_frames *f, const char *states, uint32_t num_blocks)
{
    uint32_t cached = 0;
    uint32_t active = 0;
    for (uint32_t i = 0; i < num_blocks; i++) {
        cached += states[i] == 'C';
        active += states[i] == 'A';
    }
    if (f->cell_blocks == 1 && states[0] == 'N')
        return 0xff;
    return (unsigned char)(share_of(active, num_blocks, f->cell_blocks) << 4 |
                           share_of(cached, num_blocks, f->cell_blocks));
}

void page_blocks(page *p, page_pool pool, uint64_t step, const char *states, uint32_t num_blocks,
                 const uint64_t *owners)
{
    page_frames *f = &p->frames[pool];
    if (num_blocks == 0 || (f->num_frames > 0 && num_blocks != f->num_blocks))
        return;
    f->num_blocks = num_blocks;
    f->cell_blocks = (num_blocks + PAGE_MAX_CELLS - 1) / PAGE_MAX_CELLS;
    if (f->num_frames == PAGE_MAX_FRAMES)
        halve_frames(f);
    if (!wants_step(f, step))
        return;
    if (!make_room(p, &f->frames, &f->capacity, f->num_frames, sizeof *f->frames, PAGE_MAX_FRAMES))
        return;
    page_frame *frame = &f->frames[f->num_frames++];
    memset(frame, 0, sizeof *frame);
    frame->step = step;
    for (uint32_t first = 0, cell = 0; first < num_blocks; first += f->cell_blocks, cell++) {
        uint32_t left = num_blocks - first;
        frame->cells[cell] =
            cell_of(f, states + first, left < f->cell_blocks ? left : f->cell_blocks);
    }
    if (owners != NULL && num_blocks <= PAGE_MAX_OWNERS) {
        memcpy(frame->owners, owners, num_blocks * sizeof *owners);
        f->has_owners = true;
    }
}

/* ---- requests -------------------------------------------------------------- */

static void halve_sample(page_sample *sample)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sample->num; i++) {
        if (i % 2 == 0)
            sample->requests[kept++] = sample->requests[i];
        else
            free((page_interval *)(uintptr_t)sample->requests[i].preempted);
    }
    sample->num = kept;
    sample->stride *= 2;
}

/* False: no memory. */
static bool put_sample(page_sample *sample, const page_request *request)
{
    if (sample->num == PAGE_MAX_REQUESTS)
        halve_sample(sample);
    if (sample->seen++ % sample->stride != 0)
        return true;
    page_request copy = *request;
    copy.preempted = NULL;
    uint32_t kept = request->num_preempted;
    kept = kept < PAGE_MAX_INTERVALS ? kept : PAGE_MAX_INTERVALS;
    if (kept > 0) {
        page_interval *intervals = malloc(kept * sizeof *intervals);
        if (intervals == NULL)
            return false;
        memcpy(intervals, request->preempted, kept * sizeof *intervals);
        copy.preempted = intervals;
    }
    if (!grow(&sample->requests, sample->num, &sample->capacity, UINT32_MAX, sizeof copy)) {
        free((page_interval *)(uintptr_t)copy.preempted);
        return false;
    }
    sample->requests[sample->num++] = copy;
    return true;
}

/* ---- latencies ------------------------------------------------------------- */

/* Which eighth of its octave, by comparison: logarithms may differ from machine to machine. */
static uint32_t bin_of(double us)
{
    static const double EIGHTHS[] = {1.0905077326652577, 1.189207115002721,  1.2968395546510096,
                                     1.4142135623730951, 1.5422108254079407, 1.681792830507429,
                                     1.8340080864093424};
    uint32_t bin = 0;
    while (us >= 2 && bin + PAGE_BINS_PER_OCTAVE < PAGE_NUM_BINS) {
        us /= 2;
        bin += PAGE_BINS_PER_OCTAVE;
    }
    for (uint32_t i = 0; i < PAGE_BINS_PER_OCTAVE - 1 && us >= EIGHTHS[i]; i++)
        bin++;
    return bin;
}

static void add_latency(page *p, page_latency which, double from_s, double to_s)
{
    if (from_s < 0 || to_s < from_s)
        return;
    page_histogram *histogram = &p->latencies[which];
    histogram->bins[bin_of((to_s - from_s) * 1e6)]++;
    histogram->count++;
}

void page_request_end(page *p, const page_request *r)
{
    add_latency(p, LATENCY_QUEUE, r->arrival_s, r->scheduled_s);
    add_latency(p, LATENCY_TTFT, r->arrival_s, r->first_token_s);
    if (r->end != PAGE_END_OPEN)
        add_latency(p, LATENCY_E2E, r->arrival_s, r->end_s);
    if (r->end != PAGE_END_OPEN && r->output_tokens > 1 && r->first_token_s >= 0)
        add_latency(p, LATENCY_TPOT, 0, (r->end_s - r->first_token_s) / (r->output_tokens - 1));
    page_sample *sample = r->num_preempted > 0 ? &p->preempted : &p->others;
    if (!put_sample(sample, r))
        p->is_failed = true;
}
