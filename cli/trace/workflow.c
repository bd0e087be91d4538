#include "workflow.h"

#include "output/grown.h"

#include <math.h>
#include <stdlib.h>

#define NONE UINT32_MAX

/* A key and the request, or the session, that has it. */
typedef struct entry {
    uint64_t key;
    uint32_t index;
} entry;

/* The requests of a session: `sorted[first .. first + num)`, by start. */
typedef struct session {
    uint64_t key;
    uint64_t parent;
    uint32_t first;
    uint32_t num;
    uint32_t last_end; /* the request that ended last */
    bool is_launched;
} session;

typedef struct edge {
    uint32_t waiter;
    uint32_t wait;
} edge;

typedef struct work {
    workflow_request *requests;
    uint32_t num;
    entry *ids;       /* by id */
    entry *by_key;    /* sessions by key */
    uint32_t *sorted; /* requests by (session, start, end) */
    session *sessions;
    uint32_t num_sessions;
    edge *edges;
    uint32_t num_edges;
    uint32_t edge_room;
    workflow_problem problem;
    uint32_t at;
} work;

static bool fail(work *w, workflow_problem problem, uint32_t at)
{
    if (w->problem == WORKFLOW_OK) {
        w->problem = problem;
        w->at = at;
    }
    return false;
}

/* ---- order -------------------------------------------------------------------- */

/* qsort has no argument for its function: what decides is copied beside the index. */
typedef struct place {
    uint64_t session;
    double start_ms;
    double end_ms;
    uint32_t index;
} place;

static int compare_places(const void *a_, const void *b_)
{
    const place *a = a_;
    const place *b = b_;
    if (a->session != b->session)
        return a->session < b->session ? -1 : 1;
    if (a->start_ms != b->start_ms)
        return a->start_ms < b->start_ms ? -1 : 1;
    if (a->end_ms != b->end_ms)
        return a->end_ms < b->end_ms ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Requests by start, then end, then as they stand in the file; by session first, or not. */
static uint32_t *sort_requests(const work *w, bool by_session)
{
    place *places = malloc((w->num + 1) * sizeof *places);
    uint32_t *sorted = malloc((w->num + 1) * sizeof *sorted);
    if (places == NULL || sorted == NULL) {
        free(places);
        free(sorted);
        return NULL;
    }
    for (uint32_t i = 0; i < w->num; i++) {
        const workflow_request *r = &w->requests[i];
        places[i] = (place){by_session ? r->session : 0, r->start_ms, r->end_ms, i};
    }
    qsort(places, w->num, sizeof *places, compare_places);
    for (uint32_t i = 0; i < w->num; i++)
        sorted[i] = places[i].index;
    free(places);
    return sorted;
}

static int compare_entries(const void *a_, const void *b_)
{
    const entry *a = a_;
    const entry *b = b_;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* The index of that key; NONE: there is none. */
static uint32_t find(const entry *entries, uint32_t num, uint64_t key)
{
    uint32_t low = 0;
    uint32_t high = num;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (entries[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low < num && entries[low].key == key ? entries[low].index : NONE;
}

/* ---- requests and sessions ------------------------------------------------------ */

static bool list_ids(work *w)
{
    w->ids = malloc((w->num + 1) * sizeof *w->ids);
    if (w->ids == NULL)
        return fail(w, WORKFLOW_NO_MEMORY, 0);
    for (uint32_t i = 0; i < w->num; i++) {
        workflow_request *r = &w->requests[i];
        w->ids[i] = (entry){r->id, i};
        r->session_number = 0;
        r->turn = 0;
        r->is_last_turn = false;
        r->num_waits = 0;
    }
    qsort(w->ids, w->num, sizeof *w->ids, compare_entries);
    for (uint32_t i = 1; i < w->num; i++)
        if (w->ids[i].key == w->ids[i - 1].key)
            return fail(w, WORKFLOW_SAME_ID, w->ids[i].index);
    return true;
}

/* One more request of the session. */
static bool join(work *w, session *s, uint32_t i)
{
    workflow_request *r = &w->requests[i];
    const workflow_request *last = &w->requests[s->last_end];
    if (r->parent != 0 && s->parent != 0 && r->parent != s->parent)
        return fail(w, WORKFLOW_TWO_PARENTS, i);
    s->parent = r->parent != 0 ? r->parent : s->parent;
    r->turn = s->num++;
    if (r->end_ms >= last->end_ms)
        s->last_end = i;
    return true;
}

static bool list_sessions(work *w)
{
    w->sorted = sort_requests(w, true);
    w->sessions = malloc((w->num + 1) * sizeof *w->sessions);
    w->by_key = malloc((w->num + 1) * sizeof *w->by_key);
    if (w->sorted == NULL || w->sessions == NULL || w->by_key == NULL)
        return fail(w, WORKFLOW_NO_MEMORY, 0);
    for (uint32_t k = 0; k < w->num; k++) {
        uint32_t i = w->sorted[k];
        workflow_request *r = &w->requests[i];
        session *s = w->num_sessions > 0 ? &w->sessions[w->num_sessions - 1] : NULL;
        if (r->session == 0)
            continue;
        if (s == NULL || s->key != r->session) {
            s = &w->sessions[w->num_sessions];
            *s = (session){.key = r->session, .first = k, .last_end = i};
            w->by_key[w->num_sessions] = (entry){r->session, w->num_sessions};
            w->num_sessions++;
        }
        if (!join(w, s, i))
            return false;
    }
    for (uint32_t k = 0; k < w->num_sessions; k++) {
        const session *s = &w->sessions[k];
        w->requests[w->sorted[s->first + s->num - 1]].is_last_turn = true;
    }
    return true; /* by_key is sorted, as the sessions are */
}

static session *session_of(work *w, uint64_t key)
{
    uint32_t i = find(w->by_key, w->num_sessions, key);
    return i != NONE ? &w->sessions[i] : NULL;
}

/* ---- who waits for whom ----------------------------------------------------------- */

static bool add_wait(work *w, uint32_t waiter, uint32_t wait)
{
    if (!grow(&w->edges, w->num_edges, &w->edge_room, UINT32_MAX, sizeof *w->edges))
        return fail(w, WORKFLOW_NO_MEMORY, 0);
    w->edges[w->num_edges++] = (edge){waiter, wait};
    return true;
}

static bool wait_for_turns(work *w)
{
    for (uint32_t k = 0; k < w->num_sessions; k++) {
        const session *s = &w->sessions[k];
        for (uint32_t i = 1; i < s->num; i++)
            if (!add_wait(w, w->sorted[s->first + i], w->sorted[s->first + i - 1]))
                return false;
    }
    return true;
}

/* A request of that id in the parent session of the child; NONE: it is not there. */
static uint32_t find_in_parent(work *w, const session *child, uint64_t id)
{
    uint32_t i = find(w->ids, w->num, id);
    return i != NONE && w->requests[i].session == child->parent ? i : NONE;
}

static bool wait_for_launches(work *w, const workflow_launch *launches, uint32_t num_launches)
{
    for (uint32_t i = 0; i < num_launches; i++) {
        const workflow_launch *l = &launches[i];
        session *child = session_of(w, l->child);
        if (child == NULL)
            continue; /* it was not recorded: the wait stays a part of the think time */
        if (child->is_launched)
            return fail(w, WORKFLOW_TWO_LAUNCHES, i);
        child->is_launched = true;
        uint32_t source = find_in_parent(w, child, l->source);
        uint32_t consumer = l->consumer != 0 ? find_in_parent(w, child, l->consumer) : NONE;
        if (source == NONE || (l->consumer != 0 && consumer == NONE))
            return fail(w, WORKFLOW_UNKNOWN_LAUNCH, i);
        if (!add_wait(w, w->sorted[child->first], source))
            return false;
        if (consumer != NONE && !add_wait(w, consumer, child->last_end))
            return false;
    }
    return true;
}

/* The first place of the session whose request starts at time_ms or later (or_equal), or later. */
static uint32_t first_from(const work *w, const session *s, double time_ms, bool or_equal)
{
    uint32_t low = 0;
    uint32_t high = s->num;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        double start_ms = w->requests[w->sorted[s->first + middle]].start_ms;
        bool is_from = or_equal ? start_ms >= time_ms : start_ms > time_ms;
        if (is_from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool wait_for_children(work *w)
{
    for (uint32_t k = 0; k < w->num_sessions; k++) {
        const session *child = &w->sessions[k];
        const session *parent = child->parent != 0 ? session_of(w, child->parent) : NULL;
        if (parent == NULL || parent == child || child->is_launched)
            continue;
        uint32_t first = w->sorted[child->first];
        uint32_t behind = first_from(w, parent, w->requests[first].start_ms, false);
        if (behind > 0 && !add_wait(w, first, w->sorted[parent->first + behind - 1]))
            return false;
        uint32_t join_at = first_from(w, parent, w->requests[child->last_end].end_ms, true);
        if (join_at < parent->num &&
            !add_wait(w, w->sorted[parent->first + join_at], child->last_end))
            return false;
    }
    return true;
}

/* The waits of a request stand together, each once. */
static bool gather_waits(work *w, workflow *result)
{
    for (uint32_t i = 0; i < w->num_edges; i++)
        w->requests[w->edges[i].waiter].num_waits++;
    uint32_t first = 0;
    for (uint32_t i = 0; i < w->num; i++) {
        w->requests[i].first_wait = first;
        first += w->requests[i].num_waits;
        w->requests[i].num_waits = 0;
    }
    result->waits = malloc((w->num_edges + 1) * sizeof *result->waits);
    if (result->waits == NULL)
        return fail(w, WORKFLOW_NO_MEMORY, 0);
    for (uint32_t i = 0; i < w->num_edges; i++) {
        workflow_request *r = &w->requests[w->edges[i].waiter];
        uint32_t *waits = result->waits + r->first_wait;
        bool is_known = false;
        for (uint32_t k = 0; k < r->num_waits; k++)
            is_known = is_known || waits[k] == w->edges[i].wait;
        if (!is_known)
            waits[r->num_waits++] = w->edges[i].wait;
    }
    result->num_waits = w->num_edges;
    return true;
}

/* ---- the order of the requests ------------------------------------------------------ */

typedef struct visit {
    uint32_t request;
    uint32_t next; /* of its waits */
} visit;

/* Waits first. `sorted` is by start; `order` gets the requests, `root` the place in `order` of the
 * latest request without waits that each goes back to. */
static bool order_waits_first(work *w, workflow *result, const uint32_t *sorted, uint32_t *root,
                              visit *stack)
{
    enum { NEW, BEGUN, DONE };
    unsigned char *marks = calloc(w->num + 1, 1);
    uint32_t num = 0;
    if (marks == NULL)
        return fail(w, WORKFLOW_NO_MEMORY, 0);
    for (uint32_t k = 0; k < w->num; k++) {
        uint32_t depth = 0;
        if (marks[sorted[k]] != NEW)
            continue;
        stack[depth++] = (visit){sorted[k], 0};
        marks[sorted[k]] = BEGUN;
        while (depth > 0) {
            visit *v = &stack[depth - 1];
            const workflow_request *r = &w->requests[v->request];
            if (v->next < r->num_waits) {
                uint32_t wait = result->waits[r->first_wait + v->next++];
                if (marks[wait] == BEGUN) {
                    free(marks);
                    return fail(w, WORKFLOW_CYCLE, wait);
                }
                if (marks[wait] == NEW) {
                    marks[wait] = BEGUN;
                    stack[depth++] = (visit){wait, 0};
                }
                continue;
            }
            uint32_t latest = r->num_waits == 0 ? num : 0;
            for (uint32_t i = 0; i < r->num_waits; i++) {
                uint32_t of = root[result->waits[r->first_wait + i]];
                latest = of > latest ? of : latest;
            }
            root[v->request] = latest;
            result->order[num++] = v->request;
            marks[v->request] = DONE;
            depth--;
        }
    }
    free(marks);
    return true;
}

/* Requests of one root together, otherwise as they are: by counting. */
static bool group_by_root(work *w, workflow *result, const uint32_t *root)
{
    uint32_t *counts = calloc((size_t)w->num + 1, sizeof *counts);
    uint32_t *grouped = malloc((w->num + 1) * sizeof *grouped);
    if (counts != NULL && grouped != NULL) {
        for (uint32_t i = 0; i < w->num; i++)
            counts[root[i] + 1]++;
        for (uint32_t i = 1; i <= w->num; i++)
            counts[i] += counts[i - 1];
        for (uint32_t i = 0; i < w->num; i++)
            grouped[counts[root[result->order[i]]]++] = result->order[i];
        free(result->order);
        result->order = grouped;
        grouped = NULL;
    } else {
        fail(w, WORKFLOW_NO_MEMORY, 0);
    }
    free(counts);
    free(grouped);
    return w->problem == WORKFLOW_OK;
}

static bool find_order(work *w, workflow *result)
{
    uint32_t *sorted = sort_requests(w, false);
    uint32_t *root = malloc((w->num + 1) * sizeof *root);
    visit *stack = malloc((w->num + 1) * sizeof *stack);
    result->order = malloc((w->num + 1) * sizeof *result->order);
    bool ok = sorted != NULL && root != NULL && stack != NULL && result->order != NULL;
    if (!ok)
        fail(w, WORKFLOW_NO_MEMORY, 0);
    ok = ok && order_waits_first(w, result, sorted, root, stack) && group_by_root(w, result, root);
    free(stack);
    free(root);
    free(sorted);
    return ok;
}

static void find_think_times(const work *w, const workflow *result)
{
    for (uint32_t i = 0; i < w->num; i++) {
        workflow_request *r = &w->requests[i];
        double end_ms = -HUGE_VAL;
        for (uint32_t k = 0; k < r->num_waits; k++)
            end_ms = fmax(end_ms, w->requests[result->waits[r->first_wait + k]].end_ms);
        r->think_ms = r->num_waits > 0 ? fmax(r->start_ms - end_ms, 0) : 0;
    }
}

/* Sessions get their numbers in the order in which they begin. */
static void number_sessions(work *w, const workflow *result)
{
    uint64_t num = 0;
    for (uint32_t i = 0; i < w->num; i++) {
        const workflow_request *first = &w->requests[result->order[i]];
        if (first->session == 0 || first->turn != 0)
            continue;
        const session *s = session_of(w, first->session);
        num++;
        for (uint32_t k = 0; k < s->num; k++)
            w->requests[w->sorted[s->first + k]].session_number = num;
    }
}

workflow_problem workflow_find(workflow *result, workflow_request *requests, uint32_t num_requests,
                               const workflow_launch *launches, uint32_t num_launches, uint32_t *at)
{
    work w = {.requests = requests, .num = num_requests};
    *result = (workflow){.num_requests = num_requests};
    bool ok = list_ids(&w) && list_sessions(&w) && wait_for_turns(&w) &&
              wait_for_launches(&w, launches, num_launches) && wait_for_children(&w) &&
              gather_waits(&w, result) && find_order(&w, result);
    if (ok) {
        number_sessions(&w, result);
        find_think_times(&w, result);
    } else {
        workflow_free(result);
    }
    *at = w.at;
    free(w.ids);
    free(w.by_key);
    free(w.sorted);
    free(w.sessions);
    free(w.edges);
    return w.problem;
}

void workflow_free(workflow *w)
{
    free(w->order);
    free(w->waits);
    *w = (workflow){.order = NULL};
}
