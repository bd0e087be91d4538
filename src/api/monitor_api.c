/* api/monitor_api.c - quire/monitor.h, residency.h: argument checks, then one call inward. */
#include "api/fields.h"
#include "obs/exposition.h"
#include "obs/monitor.h"

#include <quire/residency.h>

static bool is_monitor(const quire_monitor *m)
{
    return m != NULL && m->magic == QR_MONITOR_MAGIC;
}

/* ---- readers --------------------------------------------------------------- */

struct quire_reader {
    quire_monitor *monitor;
    uint64_t at;
    uint64_t *buffer;
    quire_feed_key *keys;
    qr_owner owner;
};

static quire_reader *reader_carve(qr_arena *arena, quire_monitor *monitor)
{
    const qr_feed *feed = &monitor->feed;
    quire_reader *made = qr_arena_take(arena, 1, sizeof *made);
    quire_reader parts = {.monitor = monitor};
    parts.buffer = qr_arena_take(arena, qr_feed_max_words(feed), sizeof *parts.buffer);
    parts.keys = qr_arena_take(arena, qr_feed_max_keys(feed), sizeof *parts.keys);
    if (made != NULL)
        *made = parts;
    return made;
}

int quire_reader_create(quire_monitor *m, const quire_allocator *allocator, quire_reader **reader)
{
    if (!is_monitor(m) || reader == NULL)
        return QUIRE_E_ARGUMENT;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    reader_carve(&size, m);
    int err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_reader *made = reader_carve(&arena, m);
    qr_arena_seal(&arena);
    made->owner = owner;
    made->at = qr_feed_visible(&m->feed);
    *reader = made;
    return QUIRE_OK;
}

void quire_reader_destroy(quire_reader *reader)
{
    if (reader != NULL)
        qr_owner_release(&reader->owner);
}

int quire_reader_next(quire_reader *reader, quire_feed_event *event)
{
    if (reader == NULL || !qr_struct_is_out(event, sizeof *event))
        return QUIRE_E_ARGUMENT;
    int err = qr_feed_read(&reader->monitor->feed, &reader->at, reader->buffer);
    if (err == QUIRE_LOST)
        atomic_fetch_add_explicit(&reader->monitor->num_late_reads, 1, memory_order_relaxed);
    if (err != QUIRE_OK)
        return err;
    quire_feed_event own;
    qr_feed_parse(reader->buffer, &own, reader->keys);
    own.medium = reader->monitor->metrics.tiers.mediums[own.tier];
    return qr_struct_out(event, &own, sizeof own);
}

/* In the maps, where they are drawn. */
static int draw_pool(quire_monitor *m, const char *name, const quire_pool *pool)
{
    uint32_t tier;
    if (m->maps.period_ns == 0)
        return QUIRE_E_DISABLED;
    if (!qr_monitor_find_tier(m, name, &tier))
        return QUIRE_MISS;
    return qr_maps_add(&m->maps, tier, pool) ? QUIRE_OK : QUIRE_FULL;
}

int quire_monitor_watch_pool(quire_monitor *m, const char *name, const quire_pool *pool,
                             uint32_t *tier)
{
    if (!is_monitor(m) || name == NULL || pool == NULL)
        return QUIRE_E_ARGUMENT;
    if (tier == NULL)
        return draw_pool(m, name, pool);
    if (!qr_monitor_watch_pool(m, name, pool, tier))
        return QUIRE_MISS;
    (void)draw_pool(m, name, pool);
    return QUIRE_OK;
}

int quire_monitor_watch_blocks(quire_monitor *m, uint32_t tier, const quire_watched_blocks *blocks)
{
    quire_watched_blocks room;
    blocks = qr_struct_in(&room, sizeof room, blocks);
    if (!is_monitor(m) || blocks == NULL || blocks->get_key == NULL || blocks->num_blocks == 0)
        return QUIRE_E_ARGUMENT;
    return qr_monitor_watch_blocks(m, tier, blocks) ? QUIRE_OK : QUIRE_E_RANGE;
}

int quire_monitor_tell_event(quire_monitor *m, uint32_t tier, const quire_event *event)
{
    quire_event room;
    event = qr_struct_in(&room, sizeof room, event);
    if (!is_monitor(m) || event == NULL)
        return QUIRE_E_ARGUMENT;
    if (tier == 0 || tier >= QUIRE_MAX_TIERS || m->watched[tier].get_key == NULL)
        return QUIRE_E_RANGE;
    qr_monitor_tell_event(m, tier, event);
    return QUIRE_OK;
}

uint64_t quire_monitor_ask_walk(quire_monitor *m)
{
    if (!is_monitor(m))
        return 0;
    return atomic_fetch_add_explicit(&m->num_walks_asked, 1, memory_order_acq_rel) + 1;
}

const quire_monitor_info *quire_monitor_get_info(const quire_monitor *m)
{
    return is_monitor(m) ? &m->info : NULL;
}

/* ---- steps ----------------------------------------------------------------- */

uint32_t quire_monitor_get_steps(const quire_monitor *m, uint64_t after, quire_monitor_step *steps,
                                 uint32_t capacity)
{
    uint32_t n = 0;
    bool is_last = after == UINT64_MAX;
    quire_monitor_step own;
    if (!is_monitor(m) || !qr_struct_is_out(steps, sizeof *steps))
        return 0;
    size_t size = steps->size; /* of each: a caller of another version has another size */
    if (size == sizeof *steps && !is_last)
        return qr_monitor_get_steps(m, after, steps, capacity);
    if (is_last)
        return capacity > 0 && qr_monitor_last_step(m, &own) > 0 &&
               qr_struct_out(steps, &own, sizeof own) == QUIRE_OK;
    for (; n < capacity && qr_monitor_get_steps(m, after, &own, 1) == 1; n++) {
        unsigned char *to = (unsigned char *)steps + n * size;
        memcpy(to, &size, sizeof size);
        (void)qr_struct_out(to, &own, sizeof own);
        after = own.step;
    }
    return n;
}

int quire_monitor_get_names(const quire_monitor *m, uint64_t step, quire_step_names *names,
                            quire_name *list, uint32_t capacity)
{
    quire_step_names own;
    if (!is_monitor(m) || !qr_struct_is_out(names, sizeof *names) || list == NULL)
        return QUIRE_E_ARGUMENT;
    if (m->names.most == 0)
        return QUIRE_E_DISABLED;
    if (capacity < 2 * m->names.most)
        return QUIRE_E_TOO_SMALL;
    int err = qr_monitor_get_names(m, step, &own, list);
    return err == QUIRE_OK ? qr_struct_out(names, &own, sizeof own) : err;
}

int quire_monitor_get_map(const quire_monitor *m, uint32_t i, quire_block_map *map,
                          quire_map_cell *cells, uint32_t capacity)
{
    uint32_t tier;
    quire_block_map own;
    if (!is_monitor(m) || !qr_struct_is_out(map, sizeof *map) || cells == NULL)
        return QUIRE_E_ARGUMENT;
    if (m->maps.period_ns == 0)
        return QUIRE_E_DISABLED;
    if (i >= QUIRE_MAX_MAPS)
        return QUIRE_E_RANGE;
    if (capacity < QUIRE_MAP_CELLS)
        return QUIRE_E_TOO_SMALL;
    if (!qr_maps_get(&m->maps, i, &tier, &own, cells))
        return QUIRE_MISS;
    own.name = m->metrics.tiers.names[tier];
    own.medium = m->metrics.tiers.mediums[tier];
    return qr_struct_out(map, &own, sizeof own);
}

uint32_t quire_monitor_get_num_unfinished(const quire_monitor *m)
{
    return is_monitor(m) ? atomic_load_explicit(&m->num_unfinished, memory_order_relaxed) : 0;
}

uint32_t quire_monitor_get_tiers(const quire_monitor *m, quire_tier_usage *tiers, uint32_t capacity)
{
    bool has_room = tiers != NULL || capacity == 0;
    return is_monitor(m) && has_room ? qr_tiers_get(&m->metrics.tiers, tiers, capacity) : 0;
}

/* ---- metrics --------------------------------------------------------------- */

static int write_metrics(const qr_metrics *m, const quire_metrics_format *format, char *text,
                         size_t bytes, size_t *written)
{
    quire_metrics_format f = {.size = sizeof f};
    if (written == NULL || (text == NULL && bytes > 0))
        return QUIRE_E_ARGUMENT;
    int err = format == NULL ? QUIRE_OK : qr_config_read(&f, sizeof f, format);
    if (err == QUIRE_OK)
        err = qr_check_metrics_format(&f);
    if (err != QUIRE_OK)
        return err;
    size_t used = qr_exposition_write(m, &f, text, bytes);
    bool fits = used < bytes;
    *written = fits ? used : used + 1;
    return fits ? QUIRE_OK : QUIRE_E_TOO_SMALL;
}

int quire_monitor_write_metrics(const quire_monitor *m, const quire_metrics_format *format,
                                char *text, size_t bytes, size_t *written)
{
    return is_monitor(m) ? write_metrics(&m->metrics, format, text, bytes, written)
                         : QUIRE_E_ARGUMENT;
}

/* ---- a residency and its metrics beside a pool ------------------------------ */

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
    return write_metrics(&r->metrics, format, text, bytes, written);
}
