#include "ideal.h"

#include "content.h"

/* What a segment is known by. A trace's own block ids stand for all that is before them; other
 * contents are chained here. */
static uint64_t segment_id(const trace_request *q, uint32_t i, uint64_t before)
{
    const trace_segment *segment = &q->prompt[i];
    if (q->id_block_size > 0)
        return segment->content;
    return content_of(before, segment->content, segment->num_tokens);
}

static uint64_t worker_id(uint64_t id, uint32_t worker)
{
    return content_of(id, worker, 1);
}

/* Its ids will be looked for: all wait for memory together. */
static void fetch_ids(const ideal_cache *c, const trace_request *q)
{
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments; i++) {
        id = segment_id(q, i, id);
        id_set_fetch(&c->seen, id);
    }
}

static void fetch_ids_of(const ideal_cache *c, const trace_request *q, uint32_t worker)
{
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments && c->has_workers; i++) {
        id = segment_id(q, i, id);
        id_set_fetch(&c->by_worker, worker_id(id, worker));
    }
}

void ideal_arrived(ideal_cache *c, const trace_request *q, ideal_share *share)
{
    bool is_leading = true;
    bool ends_with_output = false;
    uint64_t id = 0;
    fetch_ids(c, q);
    for (uint32_t i = 0; i < q->num_segments; i++) {
        id = segment_id(q, i, id);
        bool was_there = id_set_add(&c->seen, id);
        is_leading = is_leading && was_there;
        if (is_leading) {
            share->tokens += q->prompt[i].num_tokens;
            ends_with_output = id_set_has(&c->outputs, id);
        }
        if (q->id_block_size > 0) {
            share->trace_blocks++;
            share->blocks += is_leading;
        }
    }
    share->tokens -= ends_with_output; /* the last token that a request generates is not computed */
    if (q->id_block_size == 0) {       /* a later prompt may go on behind what this one generates */
        uint64_t output = content_of(id, q->output_content, q->num_output_tokens);
        id_set_add(&c->seen, output);
        id_set_add(&c->outputs, output);
    }
}

/* Tokens [first, end) of the prompt that the real cache had not, by reason. */
static void count_missing(const ideal_cache *c, const trace_request *q, const ideal_hit *hit,
                          uint64_t first, uint64_t end, ideal_losses *losses)
{
    uint64_t at = 0;
    uint64_t id = 0;
    for (uint32_t i = 0; i < q->num_segments && at < end; i++) {
        uint64_t next = at + q->prompt[i].num_tokens;
        uint64_t from = at > first ? at : first;
        uint64_t to = next < end ? next : end;
        id = segment_id(q, i, id);
        at = next;
        if (from >= to)
            continue;
        if (!id_set_is_computed(&c->seen, id))
            losses->not_ready += to - from;
        else if (!c->has_workers || id_set_has(&c->by_worker, worker_id(id, hit->worker)))
            losses->evicted += to - from;
        else
            losses->wrong_worker += to - from;
    }
    if (at < end) /* segments are shorter than the prompt says: nothing computed it */
        losses->not_ready += end - (at > first ? at : first);
}

void ideal_admitted(const ideal_cache *c, const trace_request *q, const ideal_hit *hit,
                    ideal_share *share)
{
    ideal_losses *losses = &share->losses;
    uint64_t block_size = hit->block_size;
    uint64_t whole = share->tokens / block_size * block_size;
    losses->partial += share->tokens - whole;
    losses->partial_requests += whole < share->tokens;
    uint64_t reachable = whole;
    if (whole > 0 && whole == q->num_prompt_tokens) {
        reachable -= block_size;
        losses->last_token += block_size;
        losses->last_token_requests++;
    }
    if (hit->tokens >= reachable) {
        losses->beyond += hit->tokens - reachable;
        return;
    }
    uint64_t first = hit->tokens;
    if (hit->believed_tokens > first) {
        uint64_t believed = hit->believed_tokens < reachable ? hit->believed_tokens : reachable;
        losses->stale += believed - first;
        first = believed;
    }
    count_missing(c, q, hit, first, reachable, losses);
}

void ideal_computed(ideal_cache *c, const trace_request *q, uint32_t worker)
{
    uint64_t id = 0;
    fetch_ids(c, q);
    fetch_ids_of(c, q, worker);
    for (uint32_t i = 0; i < q->num_segments; i++) {
        id = segment_id(q, i, id);
        id_set_mark_computed(&c->seen, id);
        if (c->has_workers)
            id_set_add(&c->by_worker, worker_id(id, worker));
    }
    if (q->id_block_size > 0)
        return;
    uint64_t output = content_of(id, q->output_content, q->num_output_tokens);
    id_set_mark_computed(&c->seen, output);
    if (c->has_workers)
        id_set_add(&c->by_worker, worker_id(output, worker));
}

void ideal_add_losses(ideal_losses *sum, const ideal_losses *losses)
{
    for (size_t i = 0; i < sizeof *sum / sizeof(uint64_t); i++) /* nothing but counts */
        ((uint64_t *)sum)[i] += ((const uint64_t *)losses)[i];
}

bool ideal_gave_up(const ideal_cache *c)
{
    return c->seen.gave_up || c->by_worker.gave_up;
}

void ideal_free(ideal_cache *c)
{
    id_set_free(&c->seen);
    id_set_free(&c->outputs);
    id_set_free(&c->by_worker);
}
