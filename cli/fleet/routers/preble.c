/* preble.c - Preble's E2: exploit or explore; declared in policies.h.
 *
 *      hit > part of the prompt    of the workers with the longest hit, the one with the fewest
 *                                  requests of the last window
 *      else                        the smallest L + M + P
 *
 *      L   work sent to the worker in the window: prefill of what was not found, and decoding
 *      M   prefill of the blocks that this prompt evicts, times the part of the window's prompts
 *          that was found
 *      P   prefill of this prompt behind the worker's hit
 *
 * Times are those of the fleet's time model instead of tables of one GPU.
 */
#include "output/grown.h"
#include "pick.h"
#include "policies.h"

#include <stdlib.h>
#include <string.h>

enum { THRESHOLD, WINDOW_S, DECODE_LENGTH, NUM_VALUES };

static const router_option options[] = {
    [THRESHOLD] = {"prefix-threshold", "part of the prompt that the longest hit must exceed", 0.5,
                   0, 1, false, NULL},
    [WINDOW_S] = {"window-s", "seconds of the past that count as load", 180, 0, 1e9, false, NULL},
    [DECODE_LENGTH] = {"decode-length", "expected output tokens", 45, 0, 1e9, true, NULL},
    {0}};

typedef struct sent {
    double time_s;
    double work_s;
    uint32_t worker;
    uint32_t num_prompt_tokens;
    uint32_t num_hit_tokens;
} sent;

typedef struct window {
    double work_s;
    uint64_t num_requests;
    uint64_t num_prompt_tokens;
    uint64_t num_hit_tokens;
} window;

typedef struct preble {
    double values[NUM_VALUES];
    sent *entries; /* [first, num_entries), in the order of time */
    uint32_t first;
    uint32_t num_entries;
    uint32_t room;
    window windows[]; /* by worker */
} preble;

static bool open_preble(const double *values, uint32_t max_workers, void **state, char why[256])
{
    preble *p = calloc(1, sizeof *p + max_workers * sizeof *p->windows);
    (void)why;
    *state = p;
    if (p == NULL)
        return false;
    memcpy(p->values, values, sizeof p->values);
    return true;
}

static void close_preble(void *state)
{
    free(((preble *)state)->entries);
    free(state);
}

static void forget_old(preble *p, double now_s)
{
    while (p->first < p->num_entries && p->entries[p->first].time_s + p->values[WINDOW_S] < now_s) {
        const sent *old = &p->entries[p->first++];
        window *w = &p->windows[old->worker];
        w->num_requests--;
        w->work_s = w->num_requests == 0 ? 0 : w->work_s - old->work_s;
        w->num_prompt_tokens -= old->num_prompt_tokens;
        w->num_hit_tokens -= old->num_hit_tokens;
    }
}

/* Entries move to the front when half of the array is forgotten. Without memory the request does
 * not count as load. */
static void remember(preble *p, const sent *entry)
{
    if (p->first > 0 && p->num_entries == p->room && 2 * p->first >= p->num_entries) {
        p->num_entries -= p->first;
        memmove(p->entries, p->entries + p->first, p->num_entries * sizeof *p->entries);
        p->first = 0;
    }
    if (!grow(&p->entries, p->num_entries, &p->room, UINT32_MAX, sizeof *p->entries))
        return;
    window *w = &p->windows[entry->worker];
    p->entries[p->num_entries++] = *entry;
    w->work_s += entry->work_s;
    w->num_requests++;
    w->num_prompt_tokens += entry->num_prompt_tokens;
    w->num_hit_tokens += entry->num_hit_tokens;
}

static double prefill_s(const router_ask *ask, uint32_t worker, uint32_t cached, uint32_t fresh)
{
    return ask->costs->prefill_s(ask->costs->context, worker, cached, fresh);
}

static double evict_s(const preble *p, const router_ask *ask, uint32_t worker)
{
    const window *past = &p->windows[worker];
    const router_worker *w = &ask->workers[worker];
    uint64_t fresh = ask->request->num_blocks - router_hit_blocks(&ask->hits[worker]);
    uint64_t wanted = w->known_blocks + fresh;
    if (wanted <= w->num_blocks || past->num_prompt_tokens == 0)
        return 0;
    uint64_t evicted = wanted - w->num_blocks < fresh ? wanted - w->num_blocks : fresh;
    double found = (double)past->num_hit_tokens / (double)past->num_prompt_tokens;
    return found * prefill_s(ask, worker, 0, (uint32_t)evicted * ask->request->block_size);
}

static double prompt_s(const router_ask *ask, uint32_t worker)
{
    uint32_t hit = pick_hit_tokens(ask, worker);
    return prefill_s(ask, worker, hit, ask->request->num_prompt_tokens - hit);
}

static double decode_s(const preble *p, const router_ask *ask, uint32_t worker)
{
    double step_s =
        ask->costs->decode_s(ask->costs->context, worker, 1, ask->request->num_prompt_tokens);
    return p->values[DECODE_LENGTH] * step_s;
}

static void explore(const preble *p, const router_ask *ask, router_choice *choice)
{
    pick best = pick_smallest(PICK_FIRST);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        pick_offer(&best, ask, w, p->windows[w].work_s + evict_s(p, ask, w) + prompt_s(ask, w));
    }
    pick_choose(&best, choice);
    choice->reason = "explore: least work";
}

static void exploit(const preble *p, const router_ask *ask, uint32_t longest, router_choice *choice)
{
    pick best = pick_smallest(PICK_FIRST);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t w = ask->candidates[i];
        if (pick_hit_tokens(ask, w) == longest)
            pick_offer(&best, ask, w, (double)p->windows[w].num_requests);
    }
    pick_choose(&best, choice);
    choice->reason = "exploit: longest hit";
}

static void choose_preble(void *state, const router_ask *ask, router_choice *choice)
{
    preble *p = state;
    uint32_t longest = 0;
    forget_old(p, ask->request->time_s);
    for (uint32_t i = 0; i < ask->num_candidates; i++) {
        uint32_t hit = pick_hit_tokens(ask, ask->candidates[i]);
        longest = hit > longest ? hit : longest;
    }
    if (longest > p->values[THRESHOLD] * ask->request->num_prompt_tokens)
        exploit(p, ask, longest, choice);
    else
        explore(p, ask, choice);
    uint32_t w = choice->worker;
    choice->terms[0] = p->windows[w].work_s;
    choice->terms[1] = evict_s(p, ask, w);
    choice->terms[2] = prompt_s(ask, w);
    choice->work = ask->role == ROUTER_DECODE    ? decode_s(p, ask, w)
                   : ask->role == ROUTER_PREFILL ? prompt_s(ask, w)
                                                 : prompt_s(ask, w) + decode_s(p, ask, w);
}

static void notify_preble(void *state, const router_event *event)
{
    preble *p = state;
    if (event->kind == ROUTER_EVENT_ROUTED)
        remember(p, &(sent){event->time_s, event->work, event->worker, event->num_prompt_tokens,
                            event->num_cached_tokens});
}

const router_policy policy_preble = {
    .version = ROUTER_POLICY_VERSION,
    .name = "preble",
    .summary = "Preble: the longest hit if it is most of the prompt, else the least work",
    .is_cost = true,
    .terms = {"s of work in the window", "s to evict", "s for the prompt"},
    .options = options,
    .knowledge = {.index = ROUTER_INDEX_APPROXIMATE},
    .open = open_preble,
    .close = close_preble,
    .choose = choose_preble,
    .notify = notify_preble,
};
