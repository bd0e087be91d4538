#include "active_blocks.h"

#include "output/grown.h"
#include "pair_map.h"

#define NONE ACTIVE_NONE

typedef struct holder {
    uint32_t worker;
    uint32_t holds;
} holder;

typedef struct run {
    uint64_t *names;
    holder *holders;
    uint32_t length; /* 0: a free run, without names; its holders are used again */
    uint32_t names_room;
    uint32_t num_holders;
    uint32_t holders_room;
    uint32_t parent; /* NONE: at the root; of a free run: the next free one */
} run;

struct active_blocks {
    pair_map first; /* the first name of a run, to the run */
    run *runs;
    uint32_t num_runs; /* with free ones */
    uint32_t runs_room;
    uint32_t num_used;
    uint32_t free_run;
    uint32_t max_workers;
    uint64_t *blocks_of; /* by worker */
};

active_blocks *active_blocks_open(uint32_t max_workers)
{
    active_blocks *active = calloc(1, sizeof *active);
    if (active == NULL)
        return NULL;
    active->free_run = NONE;
    active->max_workers = max_workers;
    active->blocks_of = calloc(max_workers, sizeof *active->blocks_of);
    if (active->blocks_of == NULL) {
        free(active);
        return NULL;
    }
    return active;
}

void active_blocks_close(active_blocks *active)
{
    if (active == NULL)
        return;
    for (uint32_t i = 0; i < active->num_runs; i++) {
        free(active->runs[i].names);
        free(active->runs[i].holders);
    }
    pair_map_free(&active->first);
    free(active->runs);
    free(active->blocks_of);
    free(active);
}

/* ---- the tree -------------------------------------------------------------- */

/* How far the run and the names agree. */
static uint32_t agree(const run *r, const uint64_t *names, uint32_t n)
{
    uint32_t most = r->length < n ? r->length : n;
    uint32_t i = 0;
    while (i < most && r->names[i] == names[i])
        i++;
    return i;
}

void active_blocks_leading(const active_blocks *active, const uint64_t *names, uint32_t n,
                           uint32_t *leading)
{
    memset(leading, 0, active->max_workers * sizeof *leading);
    for (uint32_t at = 0; at < n;) {
        uint32_t id = pair_map_get(&active->first, names[at], 0);
        if (id == NONE)
            return;
        const run *r = &active->runs[id];
        uint32_t same = agree(r, names + at, n - at);
        at += same;
        for (uint32_t i = 0; i < r->num_holders; i++)
            leading[r->holders[i].worker] = at;
        if (same < r->length)
            return;
    }
}

static void free_run(active_blocks *active, uint32_t id)
{
    run *r = &active->runs[id];
    pair_map_remove(&active->first, r->names[0], 0);
    free(r->names); /* another run is of another length */
    r->names = NULL;
    r->names_room = 0;
    r->length = r->num_holders = 0;
    r->parent = active->free_run;
    active->free_run = id;
    active->num_used--;
}

/* A run without holders. */
static uint32_t make_run(active_blocks *active, const uint64_t *names, uint32_t n, uint32_t parent)
{
    uint32_t id = active->free_run;
    if (id != NONE) {
        active->free_run = active->runs[id].parent;
    } else {
        if (!grow(&active->runs, active->num_runs, &active->runs_room, NONE - 1,
                  sizeof *active->runs))
            return NONE;
        id = active->num_runs++;
        active->runs[id] = (run){0};
    }
    run *r = &active->runs[id];
    r->names = malloc(n * sizeof *r->names);
    r->names_room = n;
    r->parent = parent;
    if (r->names == NULL || !pair_map_set(&active->first, names[0], 0, id)) {
        free(r->names);
        r->names = NULL;
        r->names_room = 0;
        r->parent = active->free_run;
        active->free_run = id;
        return NONE;
    }
    memcpy(r->names, names, n * sizeof *names);
    r->length = n;
    active->num_used++;
    return id;
}

static bool hold(active_blocks *active, uint32_t id, uint32_t worker, uint32_t holds)
{
    run *r = &active->runs[id];
    uint32_t i = 0;
    while (i < r->num_holders && r->holders[i].worker != worker)
        i++;
    if (i == r->num_holders) {
        if (!grow(&r->holders, i, &r->holders_room, UINT32_MAX, sizeof *r->holders))
            return false;
        r->holders[r->num_holders++] = (holder){worker, 0};
        active->blocks_of[worker] += r->length;
    }
    r->holders[i].holds += holds;
    return true;
}

/* The first `at` blocks of a run become a run of their own, its parent. Requests that end at the
 * old run still do. */
static uint32_t split(active_blocks *active, uint32_t id, uint32_t at)
{
    uint64_t second = active->runs[id].names[at];
    uint64_t first = active->runs[id].names[0];
    uint32_t upper = make_run(active, active->runs[id].names, at, active->runs[id].parent);
    if (upper == NONE) {
        (void)pair_map_set(&active->first, first, 0, id);
        return NONE;
    }
    run *lower = &active->runs[id];
    bool is_ok = pair_map_set(&active->first, second, 0, id);
    for (uint32_t i = 0; i < lower->num_holders && is_ok; i++)
        is_ok = hold(active, upper, lower->holders[i].worker, lower->holders[i].holds);
    for (uint32_t i = 0; i < active->runs[upper].num_holders; i++)
        active->blocks_of[active->runs[upper].holders[i].worker] -= at; /* counted in lower */
    if (!is_ok) {
        pair_map_remove(&active->first, second, 0);
        free_run(active, upper);
        (void)pair_map_set(&active->first, first, 0, id);
        return NONE;
    }
    lower->length -= at;
    memmove(lower->names, lower->names + at, lower->length * sizeof *lower->names);
    lower->parent = upper;
    return upper;
}

/* ---- requests -------------------------------------------------------------- */

static void release(active_blocks *active, uint32_t id, uint32_t worker)
{
    run *r = &active->runs[id];
    uint32_t i = 0;
    while (r->holders[i].worker != worker)
        i++;
    if (--r->holders[i].holds > 0)
        return;
    r->holders[i] = r->holders[--r->num_holders];
    active->blocks_of[worker] -= r->length;
    if (r->num_holders == 0)
        free_run(active, id);
}

/* The run that ends with the last name; made where it is missing. */
static uint32_t find_end(active_blocks *active, const uint64_t *names, uint32_t n)
{
    uint32_t last = NONE;
    for (uint32_t at = 0; at < n;) {
        uint32_t id = pair_map_get(&active->first, names[at], 0);
        if (id == NONE)
            return make_run(active, names + at, n - at, last);
        uint32_t same = agree(&active->runs[id], names + at, n - at);
        last = same < active->runs[id].length ? split(active, id, same) : id;
        if (last == NONE)
            return NONE;
        at += same;
    }
    return last;
}

uint32_t active_blocks_begin(active_blocks *active, uint32_t worker, const uint64_t *names,
                             uint32_t n)
{
    uint32_t last = find_end(active, names, n);
    for (uint32_t id = last; id != NONE; id = active->runs[id].parent) {
        if (hold(active, id, worker, 1))
            continue;
        for (uint32_t held = last; held != id;) {
            uint32_t parent = active->runs[held].parent;
            release(active, held, worker);
            held = parent;
        }
        if (active->runs[id].num_holders == 0)
            free_run(active, id);
        return NONE;
    }
    return last;
}

void active_blocks_end(active_blocks *active, uint32_t worker, uint32_t last)
{
    while (last != NONE) {
        uint32_t parent = active->runs[last].parent;
        release(active, last, worker);
        last = parent;
    }
}

uint64_t active_blocks_of(const active_blocks *active, uint32_t worker)
{
    return active->blocks_of[worker];
}

uint32_t active_blocks_runs(const active_blocks *active)
{
    return active->num_used;
}

uint64_t active_blocks_bytes(const active_blocks *active)
{
    uint64_t bytes = active->first.num_slots * sizeof *active->first.slots +
                     (uint64_t)active->runs_room * sizeof *active->runs;
    for (uint32_t i = 0; i < active->num_runs; i++)
        bytes += (uint64_t)active->runs[i].names_room * sizeof *active->runs[i].names +
                 (uint64_t)active->runs[i].holders_room * sizeof *active->runs[i].holders;
    return bytes;
}
