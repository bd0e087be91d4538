#include "roots.h"

#include "output/grown.h"
#include "trace/content.h"

#include <stdlib.h>

/* What a key stands for: a session's number is not a request's. */
enum { KEY_SESSION = 1, KEY_REQUEST };

bool trace_may_wait(trace_format format)
{
    return format == TRACE_MOONCAKE || format == TRACE_MOONCAKE_DELTA || format == TRACE_AGENT ||
           format == TRACE_QUIRE || format == TRACE_DYNAMO || format == TRACE_MIXED;
}

static root new_root(roots *r, const trace_request *q)
{
    uint64_t key = q->session != 0 ? content_of(KEY_SESSION, q->session, q->part)
                                   : content_of(KEY_REQUEST, q->number, q->part);
    return (root){.index = r->count++, .key = key, .time_s = q->time_s};
}

/* The place in `all`, from 1 on, of what it waits for; 0: nothing that is known. */
static uint64_t find_waited(const roots *r, const trace_request *q)
{
    uint64_t at = q->session != 0 && q->turn > 0 ? number_map_get(&r->sessions, q->session) : 0;
    for (uint32_t i = 0; i < q->num_after && at == 0; i++)
        at = number_map_get(&r->requests, q->after[i]);
    return at;
}

/* The session and the request lead to it. */
static bool note(roots *r, const trace_request *q, bool may_wait, uint64_t at)
{
    if (q->session != 0) {
        uint64_t *number = number_map_at(&r->sessions, q->session);
        if (number == NULL)
            return false;
        *number = at;
    }
    uint64_t *number = may_wait ? number_map_at(&r->requests, q->number) : NULL;
    if (number != NULL)
        *number = at;
    return number != NULL || !may_wait;
}

root *roots_of(roots *r, const trace_request *q, bool may_wait, bool *is_new)
{
    uint64_t at = request_waits(q) ? find_waited(r, q) : 0;
    *is_new = at == 0;
    if (at == 0 && !may_wait && q->session == 0) {
        r->last = new_root(r, q);
        return &r->last;
    }
    if (at == 0) {
        if (!reserve(&r->all, r->num_all + 1, &r->room, sizeof *r->all))
            return NULL;
        r->all[r->num_all++] = new_root(r, q);
        at = r->num_all;
    }
    return note(r, q, may_wait, at) ? &r->all[at - 1] : NULL;
}

const root *roots_of_number(const roots *r, uint64_t number)
{
    uint64_t at = number_map_get(&r->requests, number);
    return at > 0 ? &r->all[at - 1] : NULL;
}

void roots_free(roots *r)
{
    number_map_free(&r->sessions);
    number_map_free(&r->requests);
    free(r->all);
    *r = (roots){.all = NULL};
}
