#include "noalloc_cache.h"
#include "base/inner.h"

#include <stdio.h>
#include <string.h>

static uint32_t below(noalloc_cache *c, uint32_t limit)
{
    c->random = c->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(((c->random >> 32) * limit) >> 32);
}

static bool count(noalloc_cache *c, int status)
{
    c->calls++;
    c->no_space += status == QUIRE_NO_SPACE;
    c->full += status == QUIRE_FULL;
    c->failures += status < 0;
    return status == QUIRE_OK;
}

static void on_event(void *user, const quire_event *event)
{
    ((noalloc_cache *)user)->events += event->num_blocks > 0;
}

bool noalloc_cache_start(noalloc_cache *c, uint64_t seed)
{
    const quire_layer_spec attention = {.kind = QUIRE_LAYER_FULL,
                                        .block_size = NOALLOC_BLOCK_SIZE,
                                        .num_kv_heads = 1,
                                        .head_size = 8,
                                        .dtype = QUIRE_DTYPE_FLOAT16};
    quire_group_config groups[NOALLOC_GROUPS] = {
        {.spec = attention}, {.spec = attention}, {.spec = attention}};
    groups[1].spec.kind = QUIRE_LAYER_SLIDING_WINDOW;
    groups[1].spec.sliding_window = 10;
    groups[2].spec =
        (quire_layer_spec){.kind = QUIRE_LAYER_MAMBA,
                           .block_size = NOALLOC_BLOCK_SIZE,
                           .states = {{.num_dims = 1, .dims = {16}, .dtype = QUIRE_DTYPE_FLOAT32}}};
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    memset(c, 0, sizeof *c);
    c->random = seed;
    config.num_blocks = NOALLOC_BLOCKS;
    config.groups = groups;
    config.num_groups = NOALLOC_GROUPS;
    config.max_model_len = NOALLOC_LEN;
    config.max_requests = NOALLOC_REQUESTS - 4;
    config.digest_bytes = NOALLOC_DIGEST;
    config.log_stats = QUIRE_ON;
    config.watermark = 0.02;
    config.max_copies = 16;
    config.event_log_bytes = 1 << 14;
    config.on_event = on_event;
    config.event_user = c;
    return quire_cache_create(&config, NULL, &c->cache) == QUIRE_OK;
}

void noalloc_cache_end(noalloc_cache *c)
{
    quire_cache_destroy(c->cache);
}

/* Prompts of a few families that share their first halves. */
static void draw_prompt(noalloc_cache *c, noalloc_request *q)
{
    unsigned char family = (unsigned char)below(c, 5);
    unsigned char tail = (unsigned char)below(c, 6);
    uint32_t split = below(c, NOALLOC_LEN / NOALLOC_BLOCK_SIZE);
    memset(q, 0, sizeof *q);
    for (uint32_t i = 0; i < NOALLOC_LEN / NOALLOC_BLOCK_SIZE; i++) {
        unsigned char *hash = q->hashes + (size_t)i * NOALLOC_DIGEST;
        hash[0] = (unsigned char)i;
        hash[1] = family;
        hash[2] = i < split ? 255 : (unsigned char)split;
        hash[3] = i < split ? 255 : tail;
    }
    q->r.hashes = q->hashes;
    q->r.num_tokens = 1 + below(c, NOALLOC_LEN / 2);
    q->r.num_hashes = q->r.num_tokens / NOALLOC_BLOCK_SIZE;
}

static void begin(noalloc_cache *c, noalloc_request *q)
{
    quire_block_span hit[NOALLOC_GROUPS];
    quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                    .new_computed_blocks = hit};
    draw_prompt(c, q);
    q->r.was_preempted = below(c, 2);
    count(c,
          quire_cache_get_computed_blocks(c->cache, &q->r, hit, &params.num_new_computed_tokens));
    c->hits += params.num_new_computed_tokens > 0;
    params.num_new_tokens = q->r.num_tokens - params.num_new_computed_tokens;
    if (params.num_new_tokens > 4 && below(c, 4) == 0) {
        params.num_external_computed_tokens = 1 + below(c, params.num_new_tokens - 1);
        params.num_new_tokens -= params.num_external_computed_tokens;
        params.delay_cache_blocks = 1;
    }
    if (!count(c, quire_cache_can_fit_full_sequence(c->cache, &q->r, &params)))
        return;
    if (!count(c, quire_cache_allocate_slots(c->cache, &q->r, &params, NULL)))
        return;
    q->r.num_computed_tokens = q->r.num_tokens;
    if (params.delay_cache_blocks != 0)
        count(c, quire_cache_cache_blocks(c->cache, &q->r, q->r.num_tokens));
}

static void decode(noalloc_cache *c, noalloc_request *q)
{
    quire_block_span spans[NOALLOC_GROUPS];
    if (q->r.num_tokens == NOALLOC_LEN) {
        count(c, quire_cache_free(c->cache, &q->r));
        return;
    }
    const quire_allocate_params params = {.size = sizeof(quire_allocate_params),
                                          .num_new_tokens = 1,
                                          .num_lookahead_tokens = below(c, 3)};
    q->r.num_tokens++;
    q->r.num_hashes = q->r.num_tokens / NOALLOC_BLOCK_SIZE;
    if (count(c, quire_cache_allocate_slots(c->cache, &q->r, &params, spans)))
        q->r.num_computed_tokens++;
    else
        count(c, quire_cache_free(c->cache, &q->r)); /* preempted */
}

static void fork_request(noalloc_cache *c, const noalloc_request *q)
{
    noalloc_request *child = &c->requests[below(c, NOALLOC_REQUESTS)];
    if (child->r.seq != 0)
        return;
    *child = *q;
    child->r.seq = 0;
    child->r.hashes = child->hashes;
    if (count(c, quire_cache_fork(c->cache, &q->r, &child->r)))
        c->forks++;
}

static void take_copies(noalloc_cache *c)
{
    const quire_block_copy *copies;
    uint32_t num_copies = 0;
    count(c, quire_cache_take_copies(c->cache, &copies, &num_copies));
    c->copies += num_copies;
}

static void take_all(noalloc_cache *c)
{
    quire_block_span ids;
    quire_prefix_stats stats;
    quire_pressure pressure;
    uint64_t lost;
    count(c, quire_cache_take_new_block_ids(c->cache, &ids));
    count(c, quire_cache_take_prefix_stats(c->cache, &stats));
    count(c, quire_cache_take_events(c->cache, on_event, c, &lost));
    count(c, quire_cache_get_pressure(c->cache, &pressure));
    count(c, quire_cache_check(c->cache));
}

static void look(noalloc_cache *c, const noalloc_request *q)
{
    quire_block_span spans[NOALLOC_GROUPS];
    uint32_t common[NOALLOC_GROUPS];
    count(c, quire_cache_get_blocks(c->cache, q->r.seq, spans));
    if (q->r.seq != 0)
        count(c, quire_cache_get_num_common_prefix_blocks(c->cache, q->r.seq, common));
    (void)quire_cache_get_usage(c->cache);
    (void)quire_usage_level(quire_cache_get_usage(c->cache));
}

static void reset(noalloc_cache *c)
{
    for (uint32_t i = 0; i < NOALLOC_REQUESTS; i++)
        count(c, quire_cache_free(c->cache, &c->requests[i].r));
    take_copies(c);
    c->resets += count(c, quire_cache_reset_prefix_cache(c->cache));
}

static void act(noalloc_cache *c, noalloc_request *q)
{
    uint32_t dice = below(c, 1000);
    const quire_block victim = below(c, NOALLOC_BLOCKS);
    if (dice < 30)
        count(c, quire_cache_new_step_starts(c->cache));
    else if (dice < 60)
        take_copies(c);
    else if (dice < 70)
        take_all(c);
    else if (dice < 80)
        count(c, inner_evict(c->cache, &victim, 1));
    else if (dice < 90)
        look(c, q);
    else if (dice < 92)
        reset(c);
    else if (q->r.seq == 0)
        begin(c, q);
    else if (dice < 130)
        fork_request(c, q);
    else if (dice < 140)
        count(c, quire_cache_copy_on_write(c->cache, q->r.seq, below(c, q->r.num_tokens), 1));
    else if (dice < 150)
        count(c, inner_remove_skipped(c->cache, q->r.seq, q->r.num_computed_tokens));
    else if (dice < 170)
        count(c, quire_cache_free(c->cache, &q->r));
    else
        decode(c, q);
}

void noalloc_cache_run(noalloc_cache *c, uint64_t calls)
{
    while (c->calls < calls)
        act(c, &c->requests[below(c, NOALLOC_REQUESTS)]);
}

bool noalloc_cache_did_all(const noalloc_cache *c)
{
    return c->failures == 0 && c->hits > 0 && c->no_space > 0 && c->full > 0 && c->forks > 0 &&
           c->copies > 0 && c->resets > 0 && c->events > 0;
}

void noalloc_cache_print(const noalloc_cache *c)
{
    printf("cache        %llu calls, %llu hits, %llu no space, %llu full, %llu forks, %llu copies, "
           "%llu resets, %llu failures\n",
           (unsigned long long)c->calls, (unsigned long long)c->hits,
           (unsigned long long)c->no_space, (unsigned long long)c->full,
           (unsigned long long)c->forks, (unsigned long long)c->copies,
           (unsigned long long)c->resets, (unsigned long long)c->failures);
}
