/* api/residency_api.c - quire/residency.h: a residency and its metrics beside a pool. */
#include <quire/residency.h>

#include "api/metrics_text.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "block/pool.h"
#include "obs/residency.h"

struct quire_residency {
    uint32_t magic;
    quire_pool *pool;
    quire_hooks hooks;
    qr_metrics metrics;
    qr_residency follower;
    qr_owner owner;
};

#define RESIDENCY_MAGIC UINT32_C(0x51525344) /* "QRSD" */

static bool is_pool_of_residency(const quire_pool *pool)
{
    return pool != NULL && pool->magic == QR_POOL_MAGIC;
}

static quire_residency *carve_residency(qr_arena *arena, const quire_residency_config *c,
                                        const quire_pool *pool)
{
    quire_residency *made = qr_arena_take(arena, 1, sizeof *made);
    qr_metrics metrics;
    qr_residency follower;
    qr_metrics_shape shape = {.num_blocks = pool->queue.num_blocks,
                              .enable_caching = pool->enable_caching,
                              .has_residency = true,
                              .is_pool = true};
    qr_metrics_carve(&metrics, arena, &shape);
    qr_residency_carve(&follower, arena, shape.num_blocks, c->sample_rate);
    if (made != NULL)
        *made = (quire_residency){.metrics = metrics, .follower = follower, .hooks = c->hooks};
    return made;
}

/* What can fail comes before the memory. */
static int check_residency(quire_residency_config *c, const quire_residency_config *callers,
                           const quire_pool *pool, uint64_t *random, size_t random_bytes)
{
    int err = qr_check_residency_config(c, callers);
    if (err == QUIRE_OK && c->sample_rate == 0)
        c->sample_rate = 0.01;
    if (err == QUIRE_OK && pool->residency != NULL)
        err = QUIRE_BUSY;
    return err == QUIRE_OK ? qr_random_bytes(&c->hooks, random, random_bytes) : err;
}

int quire_residency_create(const quire_residency_config *config, quire_pool *pool,
                           const quire_allocator *allocator, quire_residency **residency)
{
    quire_residency_config c;
    uint64_t random[3];
    if (residency == NULL || !is_pool_of_residency(pool))
        return QUIRE_E_ARGUMENT;
    int err = check_residency(&c, config, pool, random, sizeof random);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    carve_residency(&size, &c, pool);
    err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_residency *made = carve_residency(&arena, &c, pool);
    qr_arena_seal(&arena);
    qr_metrics_init(&made->metrics);
    qr_residency_init(&made->follower, &made->metrics, c.sample_rate, random);
    made->follower.clock = &made->hooks;
    made->follower.on_end = c.on_end;
    made->follower.user = c.user;
    made->pool = pool;
    made->magic = RESIDENCY_MAGIC;
    made->owner = owner;
    pool->residency = &made->follower;
    *residency = made;
    return QUIRE_OK;
}

void quire_residency_destroy(quire_residency *r)
{
    if (r == NULL || r->magic != RESIDENCY_MAGIC)
        return;
    r->magic = 0;
    r->pool->residency = NULL;
    qr_owner_release(&r->owner);
}

int quire_residency_write_metrics(quire_residency *r, const quire_metrics_format *format,
                                  char *text, size_t bytes, size_t *written)
{
    if (r == NULL || r->magic != RESIDENCY_MAGIC)
        return QUIRE_E_ARGUMENT;
    const quire_tier_usage tier = {.name = "gpu",
                                   .medium = "GPU",
                                   .blocks = quire_pool_get_usage(r->pool),
                                   .stored_bytes = QUIRE_UNKNOWN_BYTES,
                                   .loaded_bytes = QUIRE_UNKNOWN_BYTES};
    qr_metrics_set_pool(&r->metrics, &tier, 1, r->pool->num_allocated, r->pool->num_evicted);
    return qr_metrics_text(&r->metrics, format, text, bytes, written);
}
