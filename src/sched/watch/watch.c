#include "sched/watch/watch.h"

#include "sched/sched.h"

static qr_monitor_world monitor_world(const quire_sched_config *c)
{
    quire_connector connector = QUIRE_CONNECTOR_INIT; /* without one: no function */
    (void)qr_config_read(&connector, sizeof connector, c->connector);
    bool has_tiers = connector.get_tiers != NULL;
    return (qr_monitor_world){.info = {.num_blocks = c->cache->num_blocks,
                                       .num_groups = c->cache->num_groups,
                                       .hash_bytes = qr_cache_hash_bytes(c->cache),
                                       .block_size = c->cache->hash_block_size,
                                       .num_swap_slots = c->num_swap_blocks,
                                       .max_num_seqs = c->max_num_seqs,
                                       .profile = c->profile},
                              .max_requests = c->max_requests,
                              .max_model_len = c->cache->max_model_len,
                              .num_spec_tokens = c->num_spec_tokens,
                              .enable_caching = c->cache->enable_caching == QUIRE_ON,
                              .num_tiers = has_tiers ? QUIRE_CONNECTOR_TIERS : 0};
}

void qr_watch_carve(quire_sched *s, qr_arena *arena, const quire_sched_config *c)
{
    quire_monitor_config config;
    if (c->monitor == NULL || qr_monitor_config_read(&config, c->monitor) != QUIRE_OK)
        return;
    qr_monitor_world world = monitor_world(c);
    s->watch.monitor = qr_monitor_carve(arena, &config, &world);
    uint32_t num_keys = qr_feed_keys_of(qr_monitor_feed_words(&config, &world));
    size_t num_pieces = (size_t)s->texts.store.max_pages + 1;
    s->watch.pieces = qr_arena_take(arena, num_pieces, sizeof *s->watch.pieces);
    s->watch.keys = qr_arena_take(arena, num_keys, sizeof *s->watch.keys);
}

/* A full layer may have a window, too: of its attention, not of its cache. */
static quire_monitor_group monitor_group(const qr_group *group)
{
    bool has_window = group->spec.kind == QUIRE_LAYER_SLIDING_WINDOW ||
                      group->spec.kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
    return (quire_monitor_group){.kind = group->spec.kind,
                                 .block_size = group->block_size,
                                 .sliding_window = has_window ? group->spec.sliding_window : 0};
}

int qr_watch_init(quire_sched *s, const quire_sched_config *c)
{
    quire_monitor_config config;
    if (s->watch.monitor == NULL)
        return QUIRE_OK;
    int err = qr_monitor_config_read(&config, c->monitor);
    qr_monitor_world world = monitor_world(c);
    if (err == QUIRE_OK)
        err = qr_monitor_init(s->watch.monitor, &config, &world, s->cache->pool);
    for (uint32_t g = 0; g < s->cache->num_groups; g++)
        s->watch.monitor->groups[g] = monitor_group(&s->cache->groups[g]);
    if (config.map_ms > 0 && c->max_pins > 0)
        s->watch.monitor->maps.maps[0].pins = s->pins.users;
    s->watch.monitor->shares_clock = config.hooks.now_ns == NULL && c->hooks.now_ns == NULL;
    if (err == QUIRE_OK && config.residency == QUIRE_ON)
        s->cache->pool->residency = &s->watch.monitor->residency;
    return err;
}
