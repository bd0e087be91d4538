#include "decisions.h"

#include <stdlib.h>
#include <string.h>

enum { WHY_BYTES = 512 };

static void drop(decision *d)
{
    free(d->why);
    d->why = NULL;
}

/* Keeps the requests of every second number that is kept so far. */
static void thin(decisions *d)
{
    uint32_t kept = 0;
    d->every *= 2;
    for (uint32_t i = 0; i < d->count; i++) {
        if (d->list[i].request % d->every == 0)
            d->list[kept++] = d->list[i];
        else
            drop(&d->list[i]);
    }
    d->count = kept;
}

bool decisions_note(decisions *d, const routers *r, const router_request *request,
                    const router_answer *answer)
{
    char why[WHY_BYTES];
    if (d->list == NULL)
        d->list = calloc(DECISIONS_MOST, sizeof *d->list);
    if (d->list == NULL)
        return false;
    d->every = d->every == 0 ? 1 : d->every;
    if (request->number % d->every != 0)
        return true;
    /* A request that waits may be decided often: its latest decision replaces the one before. */
    while (d->count == DECISIONS_MOST && d->every < UINT64_MAX / 2)
        thin(d);
    if (request->number % d->every != 0)
        return true;
    size_t bytes = router_explain(r, request, answer, why, sizeof why) + 1;
    bool is_first = d->count == 0 || d->list[d->count - 1].request != request->number;
    decision *it = is_first ? &d->list[d->count] : &d->list[d->count - 1];
    char *text = malloc(bytes);
    if (text == NULL)
        return false;
    if (!is_first)
        drop(it);
    memcpy(text, why, bytes);
    *it = (decision){.request = request->number,
                     .time_s = request->time_s,
                     .router = answer->router,
                     .worker = answer->action == ROUTER_ROUTE ? answer->worker : ROUTER_NONE,
                     .prompt_tokens = request->num_prompt_tokens,
                     .believed_tokens = answer->believed_blocks * request->block_size,
                     .why = text};
    d->count += is_first;
    return true;
}

void decisions_found(decisions *d, uint64_t request, uint32_t hit_tokens)
{
    if (d->every == 0 || request % d->every != 0)
        return;
    for (uint32_t i = d->count; i-- > 0;) {
        if (d->list[i].request != request || d->list[i].worker == ROUTER_NONE)
            continue;
        d->list[i].hit_tokens = hit_tokens;
        d->list[i].has_first_token = true;
        return;
    }
}

void decisions_free(decisions *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        drop(&d->list[i]);
    free(d->list);
    *d = (decisions){0};
}

void decisions_print(FILE *out, const routers *r, const router_request *request,
                     const router_answer *answer)
{
    static const char *const kinds[] = {"routed", "waits", "refused"};
    char why[WHY_BYTES];
    router_explain(r, request, answer, why, sizeof why);
    fprintf(out, "{\"time_s\":%.6f,\"kind\":\"%s\",\"request\":%llu,\"router\":%u", request->time_s,
            kinds[answer->action], (unsigned long long)request->number + 1, answer->router);
    if (answer->action == ROUTER_ROUTE)
        fprintf(out, ",\"worker\":%u,\"believed_tokens\":%llu", answer->worker,
                (unsigned long long)answer->believed_blocks * request->block_size);
    if (answer->action == ROUTER_ROUTE && answer->prefill_worker != ROUTER_NONE)
        fprintf(out, ",\"prefill_worker\":%u", answer->prefill_worker);
    fputs(",\"why\":\"", out);
    for (const char *c = why; *c != '\0'; c++) { /* a policy of a user's own may say anything */
        if (*c == '"' || *c == '\\')
            fprintf(out, "\\%c", *c);
        else if ((unsigned char)*c < 0x20)
            fprintf(out, "\\u%04x", (unsigned char)*c);
        else
            fputc(*c, out);
    }
    fputs("\"}\n", out);
}
