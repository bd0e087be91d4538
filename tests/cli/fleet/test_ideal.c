/* The infinite cache: what it has of a prompt, and why a real one has less. By hand: blocks of 16
 * tokens, the trace's own ids of 32. */
#include "base/unit.h"
#include "trace/ideal.h"

#include <string.h>

enum { MOST = 8 };

typedef struct asked {
    trace_request request;
    trace_segment segments[MOST];
    ideal_share share;
} asked;

/* Ids of 32 tokens each, the last of last_tokens. */
static void ask(asked *a, const uint64_t *ids, uint32_t n, uint32_t last_tokens)
{
    memset(a, 0, sizeof *a);
    for (uint32_t i = 0; i < n; i++)
        a->segments[i] = (trace_segment){ids[i] << 8, i + 1 == n ? last_tokens : 32};
    a->request = (trace_request){.prompt = a->segments,
                                 .num_segments = n,
                                 .num_prompt_tokens = 32 * (n - 1) + last_tokens,
                                 .num_output_tokens = 4,
                                 .id_block_size = 32};
}

static ideal_hit hit_of(uint32_t tokens, uint32_t worker, uint32_t believed)
{
    return (ideal_hit){
        .tokens = tokens, .block_size = 16, .worker = worker, .believed_tokens = believed};
}

/* All that a sum of losses has to give. */
static uint64_t sum_of(const ideal_losses *l)
{
    return l->partial + l->last_token + l->not_ready + l->evicted + l->wrong_worker + l->stale -
           l->beyond;
}

static const uint64_t IDS[] = {1, 2, 3};

/* A cache in which worker 0 has computed ids 1, 2 and 3 of 96 tokens. */
static void bring(ideal_cache *c, bool has_workers)
{
    asked first;
    *c = (ideal_cache){.has_workers = has_workers};
    ask(&first, IDS, 3, 32);
    ideal_arrived(c, &first.request, &first.share);
    assert_int_equal(first.share.tokens, 0);
    ideal_computed(c, &first.request, 0);
}

/* The losses of a request that has these ids too, and a new one behind them. */
static ideal_losses lose(ideal_cache *c, ideal_hit hit)
{
    asked next;
    uint64_t ids[] = {IDS[0], IDS[1], IDS[2], 100 + c->seen.count};
    ask(&next, ids, 4, 32);
    ideal_arrived(c, &next.request, &next.share);
    assert_int_equal(next.share.tokens, 96);
    assert_int_equal(next.share.blocks, 3);
    assert_int_equal(next.share.trace_blocks, 4);
    ideal_admitted(c, &next.request, &hit, &next.share);
    assert_int_equal(next.share.tokens, hit.tokens + sum_of(&next.share.losses));
    return next.share.losses;
}

static ideal_losses lose_once(bool has_workers, ideal_hit hit)
{
    ideal_cache c;
    bring(&c, has_workers);
    ideal_losses losses = lose(&c, hit);
    ideal_free(&c);
    return losses;
}

static void reasons_by_worker(void **state)
{
    (void)state;
    assert_int_equal(lose_once(false, hit_of(32, 0, 0)).evicted, 64);
    assert_int_equal(lose_once(false, hit_of(32, 7, 0)).evicted, 64); /* one engine: no workers */
    assert_int_equal(lose_once(true, hit_of(32, 0, 0)).evicted, 64);
    assert_int_equal(lose_once(true, hit_of(32, 1, 0)).wrong_worker, 64);
    assert_int_equal(lose_once(true, hit_of(96, 1, 0)).wrong_worker, 0);
}

static void what_the_router_believed(void **state)
{
    (void)state;
    ideal_losses l = lose_once(true, hit_of(16, 1, 48));
    assert_int_equal(l.stale, 32);
    assert_int_equal(l.wrong_worker, 48);
    l = lose_once(true, hit_of(16, 0, 48));
    assert_int_equal(l.stale, 32);
    assert_int_equal(l.evicted, 48);
    l = lose_once(true, hit_of(0, 1, 1000)); /* not more than the ideal has */
    assert_int_equal(l.stale, 96);
    assert_int_equal(l.wrong_worker, 0);
    assert_int_equal(lose_once(true, hit_of(48, 1, 48)).stale, 0);
    assert_int_equal(lose_once(true, hit_of(48, 1, 16)).stale, 0);
}

static void not_computed_yet(void **state)
{
    (void)state;
    ideal_cache c = {.has_workers = true};
    asked first;
    ask(&first, IDS, 3, 32);
    ideal_arrived(&c, &first.request, &first.share);
    ideal_losses l = lose(&c, hit_of(0, 0, 0));
    assert_int_equal(l.not_ready, 96);
    ideal_computed(&c, &first.request, 1);
    l = lose(&c, hit_of(0, 0, 0));
    assert_int_equal(l.wrong_worker, 96);
    ideal_computed(&c, &first.request, 0); /* both have computed it */
    l = lose(&c, hit_of(0, 0, 0));
    assert_int_equal(l.evicted, 96);
    l = lose(&c, hit_of(0, 2, 0));
    assert_int_equal(l.wrong_worker, 96);
    ideal_free(&c);
}

static void ends_of_prompts(void **state)
{
    (void)state;
    ideal_cache c;
    asked same;
    bring(&c, true);
    ask(&same, IDS, 3, 32); /* the whole prompt came before: one block is computed again */
    ideal_arrived(&c, &same.request, &same.share);
    ideal_hit hit = hit_of(80, 0, 96);
    ideal_admitted(&c, &same.request, &hit, &same.share);
    assert_int_equal(same.share.losses.last_token, 16);
    assert_int_equal(same.share.losses.stale, 0);
    assert_int_equal(same.share.tokens, 80 + sum_of(&same.share.losses));
    asked part;
    ask(&part, IDS, 3, 9); /* 73 tokens: 9 fill no block */
    ideal_arrived(&c, &part.request, &part.share);
    hit = hit_of(64, 0, 0);
    ideal_admitted(&c, &part.request, &hit, &part.share);
    assert_int_equal(part.share.losses.partial, 9);
    assert_int_equal(part.share.losses.partial_requests, 1);
    hit = hit_of(80, 0, 0);
    memset(&part.share.losses, 0, sizeof part.share.losses);
    ideal_admitted(&c, &part.request, &hit, &part.share); /* found more than the ideal has */
    assert_int_equal(part.share.losses.beyond, 16);
    assert_int_equal(part.share.tokens, 80 + sum_of(&part.share.losses));
    ideal_free(&c);
}

static void sums(void **state)
{
    (void)state;
    ideal_losses sum = {.partial = 1, .stale = 2};
    ideal_losses more = {.partial = 10, .last_token = 20, .wrong_worker = 30, .stale = 40};
    ideal_add_losses(&sum, &more);
    assert_int_equal(sum.partial, 11);
    assert_int_equal(sum.last_token, 20);
    assert_int_equal(sum.wrong_worker, 30);
    assert_int_equal(sum.stale, 42);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reasons_by_worker),
                                       cmocka_unit_test(what_the_router_believed),
                                       cmocka_unit_test(not_computed_yet),
                                       cmocka_unit_test(ends_of_prompts), cmocka_unit_test(sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
