#include "search.h"

static bool is_tried(const search *s, uint32_t workers)
{
    for (uint32_t i = 0; i < s->num_tries; i++)
        if (s->tries[i].workers == workers)
            return true;
    return false;
}

uint32_t search_best(const search *s)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < s->num_tries; i++)
        if (s->tries[i].is_enough && (best == 0 || s->tries[i].workers < best))
            best = s->tries[i].workers;
    return best;
}

/* The most workers below a limit that were not enough; 0: none. */
static uint32_t most_failed(const search *s, uint32_t below)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < s->num_tries; i++) {
        const search_try *t = &s->tries[i];
        if (!t->is_enough && t->workers < below && t->workers > most)
            most = t->workers;
    }
    return most;
}

uint32_t search_least(const search *s)
{
    uint32_t best = search_best(s);
    return most_failed(s, best > 0 ? best : UINT32_MAX) + 1;
}

bool search_is_monotone(const search *s)
{
    uint32_t best = search_best(s);
    for (uint32_t i = 0; best > 0 && i < s->num_tries; i++)
        if (!s->tries[i].is_enough && s->tries[i].workers > best)
            return false;
    return true;
}

/* While no number was enough: twice the last one. */
static uint32_t next_larger(const search *s)
{
    uint32_t last = most_failed(s, UINT32_MAX);
    if (last == s->most)
        return 0;
    return last == 0 ? 1 : last > s->most / 2 ? s->most : 2 * last;
}

uint32_t search_next(const search *s)
{
    uint32_t best = search_best(s);
    if (s->num_tries == SEARCH_MAX_TRIES)
        return 0;
    if (best == 0)
        return next_larger(s);
    uint32_t failed = most_failed(s, best);
    if (best - failed > 1)
        return failed + (best - failed) / 2;
    if (best > 2 && !is_tried(s, best - 2))
        return best - 2;
    if (best < s->most && !is_tried(s, best + 1))
        return best + 1;
    return 0;
}

void search_add(search *s, uint32_t workers, bool is_enough)
{
    s->tries[s->num_tries++] = (search_try){.workers = workers, .is_enough = is_enough};
}
