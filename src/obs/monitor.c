#include "obs/monitor.h"

#include "base/refuse.h"

#include <stddef.h>

enum {
    DEFAULT_EVENT_BYTES = 8 << 20,
    MIN_EVENT_BYTES = 16 << 10,
    DEFAULT_STEPS = 4096,
    MIN_STEPS = 2,      /* one of them may be in the making */
    WALK_SHARE = 8,     /* of the ring, at most this part for what a walk tells in one step */
    MIN_WALK = 8,       /* blocks that then fit at least */
    KEY_ROOM = 64,      /* for what stands beside a block's hash */
    WALK_RECORD = 64,   /* blocks in one PRESENT */
    WALK_PRESENT = 256, /* told in one step */
    WALK_LOOK = 4096    /* looked at */
};

/* ---- making ---------------------------------------------------------------- */

int qr_monitor_config_read(quire_monitor_config *c, const quire_monitor_config *callers)
{
    int err = qr_refuse_reading(c, sizeof *c, callers, "quire_monitor_config");
    if (err != QUIRE_OK)
        return err;
    if (c->event_bytes == 0)
        c->event_bytes = DEFAULT_EVENT_BYTES;
    if (c->num_steps == 0)
        c->num_steps = DEFAULT_STEPS;
    if (c->token_ids == QUIRE_DEFAULT)
        c->token_ids = QUIRE_OFF;
    if (c->residency == QUIRE_DEFAULT)
        c->residency = QUIRE_ON;
    if (c->sample_rate == 0)
        c->sample_rate = 0.01;
    if (c->num_steps < MIN_STEPS)
        c->num_steps = MIN_STEPS;
    if (c->event_bytes < MIN_EVENT_BYTES)
        c->event_bytes = MIN_EVENT_BYTES;
    c->event_bytes = (uint32_t)qr_round_up_pow2(c->event_bytes);
    c->num_steps = (uint32_t)qr_round_up_pow2(c->num_steps);
    return QUIRE_OK;
}

static qr_metrics_shape metrics_shape(const quire_monitor_config *c, const qr_monitor_world *world)
{
    return (qr_metrics_shape){.max_requests = world->max_requests,
                              .max_model_len = world->max_model_len,
                              .num_spec_tokens = world->num_spec_tokens,
                              .num_blocks = world->info.num_blocks,
                              .block_size = world->info.block_size,
                              .enable_caching = world->enable_caching,
                              .has_residency = c->residency == QUIRE_ON};
}

uint32_t qr_monitor_feed_words(const quire_monitor_config *c, const qr_monitor_world *world)
{
    uint32_t least = (uint32_t)qr_round_up_pow2((uint64_t)WALK_SHARE * MIN_WALK *
                                                (world->info.hash_bytes + KEY_ROOM));
    return (c->event_bytes > least ? c->event_bytes : least) / 8;
}

static uint32_t step_words(const qr_monitor_world *world)
{
    size_t bytes = offsetof(quire_monitor_step, tiers) + world->num_tiers * sizeof(quire_tier_step);
    return (uint32_t)((bytes + 7) / 8);
}

quire_monitor *qr_monitor_carve(qr_arena *arena, const quire_monitor_config *c,
                                const qr_monitor_world *world)
{
    quire_monitor *made = qr_arena_take(arena, 1, sizeof *made);
    quire_monitor parts = {.steps_mask = c->num_steps - 1, .step_words = step_words(world)};
    qr_feed_carve(&parts.feed, arena, qr_monitor_feed_words(c, world));
    parts.steps = qr_arena_take(arena, c->num_steps, parts.step_words * sizeof *parts.steps);
    qr_names_carve(&parts.names, arena, c->num_steps, c->num_names);
    qr_maps_carve(&parts.maps, arena, c->map_ms);
    parts.walk_blocks = qr_arena_take(arena, WALK_RECORD, sizeof *parts.walk_blocks);
    parts.walk_hashes = qr_arena_take(arena, WALK_RECORD, world->info.hash_bytes);
    parts.groups = qr_arena_take(arena, world->info.num_groups, sizeof *parts.groups);
    qr_metrics_shape shape = metrics_shape(c, world);
    qr_metrics_carve(&parts.metrics, arena, &shape);
    if (shape.has_residency)
        qr_residency_carve(&parts.residency, arena, shape.num_blocks, c->sample_rate);
    if (made != NULL)
        *made = parts;
    return made;
}

static int get_pool_key(void *user, quire_block block, quire_bytes *hash, uint32_t *group_id)
{
    quire_block_info info;
    if (quire_pool_get_block(user, block, &info) != QUIRE_OK || info.hash.len == 0)
        return QUIRE_MISS;
    *hash = info.hash;
    *group_id = info.group_id;
    return QUIRE_OK;
}

/* Looks at the pool, and changes nothing. */
static quire_watched_blocks blocks_of_pool(const quire_pool *pool, uint32_t num_blocks)
{
    return (quire_watched_blocks){.size = sizeof(quire_watched_blocks),
                                  .user = (void *)(uintptr_t)pool,
                                  .num_blocks = num_blocks,
                                  .get_key = get_pool_key};
}

int qr_monitor_init(quire_monitor *m, const quire_monitor_config *c, const qr_monitor_world *world,
                    const quire_pool *pool)
{
    uint64_t random[3];
    int err = qr_random_bytes(&c->hooks, random, sizeof random);
    if (err != QUIRE_OK)
        return err;
    m->info = world->info;
    m->info.has_token_ids = c->token_ids == QUIRE_ON;
    m->info.num_names = c->num_names;
    m->info.map_ms = c->map_ms;
    m->info.groups = m->groups;
    m->has_token_ids = c->token_ids == QUIRE_ON;
    m->hooks = c->hooks;
    m->wall_time = c->wall_time;
    m->wall_user = c->wall_user;
    m->watched[0] = blocks_of_pool(pool, m->info.num_blocks);
    m->info.tier_blocks[0] = m->info.num_blocks;
    qr_feed_init(&m->feed);
    qr_metrics_init(&m->metrics);
    if (c->residency == QUIRE_ON)
        qr_residency_init(&m->residency, &m->metrics, c->sample_rate, random);
    for (uint64_t i = 0; i < (m->steps_mask + 1) * m->step_words; i++)
        atomic_init(&m->steps[i], 0);
    qr_names_init(&m->names, m->steps_mask + 1);
    qr_maps_init(&m->maps);
    if (c->map_ms > 0)
        (void)qr_maps_add(&m->maps, 0, pool); /* the first one: there is room */
    qr_versions_init(&m->step_versions);
    atomic_init(&m->num_walks_asked, 0);
    atomic_init(&m->num_unfinished, 0);
    atomic_init(&m->num_late_reads, 0);
    m->magic = QR_MONITOR_MAGIC;
    return QUIRE_OK;
}

/* ---- events ---------------------------------------------------------------- */

void qr_monitor_add_event(quire_monitor *m, const qr_feed_entry *entry)
{
    m->has_events = true;
    qr_metrics_add(&m->metrics, QR_METRIC_EVENTS, (uint32_t)entry->kind - QUIRE_FEED_STORED, 1);
    if (QR_LIKELY(qr_feed_add(&m->feed, entry)))
        return;
    qr_metrics_add(&m->metrics, QR_METRIC_EVENTS_LOST, 0, 1);
}

static double wall_seconds(const quire_monitor *m)
{
    return m->wall_time != NULL ? m->wall_time(m->wall_user) : qr_wall_seconds();
}

/* Blocks of one record have keys of one group and length. */
static void tell_present(quire_monitor *m, quire_event *run)
{
    if (run->num_blocks == 0)
        return;
    run->block_size = run->group_id < m->info.num_groups ? m->groups[run->group_id].block_size : 0;
    qr_feed_entry present = {.kind = QUIRE_FEED_PRESENT, .event = run, .tier = m->walk_tier};
    qr_feed_add(&m->feed, &present);
    run->num_blocks = 0;
}

/* Whether a walk is under way, or begins. */
static bool is_asked_to_walk(quire_monitor *m)
{
    uint64_t asked = atomic_load_explicit(&m->num_walks_asked, memory_order_acquire);
    if (!m->is_walking && asked != m->walk_number) {
        m->is_walking = true;
        m->walk_number = asked;
        m->walk_tier = 0;
        m->walk_next = 0;
    }
    return m->is_walking;
}

/* Adds block walk_next to the run where it has a key; returns whether it has. */
static bool walk_block(quire_monitor *m, quire_event *run)
{
    const quire_watched_blocks *watched = &m->watched[m->walk_tier];
    quire_bytes hash;
    uint32_t group_id;
    if (watched->get_key(watched->user, m->walk_next, &hash, &group_id) != QUIRE_OK)
        return false;
    if (run->num_blocks == WALK_RECORD || group_id != run->group_id || hash.len != run->hash_bytes)
        tell_present(m, run);
    run->group_id = group_id;
    run->hash_bytes = (uint32_t)hash.len;
    m->walk_blocks[run->num_blocks] = m->walk_next;
    memcpy(m->walk_hashes + (size_t)run->num_blocks * hash.len, hash.data, hash.len);
    run->num_blocks++;
    return true;
}

/* On to the next tier; false: that was the last one. */
static bool walk_on(quire_monitor *m)
{
    m->walk_next = 0;
    do
        m->walk_tier++;
    while (m->walk_tier < QUIRE_MAX_TIERS && m->watched[m->walk_tier].get_key == NULL);
    return m->walk_tier < QUIRE_MAX_TIERS;
}

/* What a walk tells stands between what happens: a listener that notes the last that was said of
 * each block is right at its end, whatever changed on the way. */
static void walk_pools(quire_monitor *m)
{
    if (!is_asked_to_walk(m))
        return;
    quire_event run = {
        .size = sizeof(quire_event), .blocks = m->walk_blocks, .hashes = m->walk_hashes};
    uint32_t told = 0;
    uint32_t most =
        (uint32_t)((m->feed.mask + 1) * 8 / WALK_SHARE / (m->info.hash_bytes + KEY_ROOM));
    most = most < WALK_PRESENT ? most : WALK_PRESENT;
    bool has_more = true;
    for (uint32_t looked = 0; has_more && looked < WALK_LOOK && told < most; looked++) {
        told += walk_block(m, &run);
        if (++m->walk_next < m->info.tier_blocks[m->walk_tier])
            continue;
        tell_present(m, &run);
        has_more = walk_on(m);
    }
    if (has_more) {
        tell_present(m, &run);
        return;
    }
    m->is_walking = false;
    qr_feed_entry walked = {.kind = QUIRE_FEED_WALKED, .number = m->walk_number};
    qr_feed_add(&m->feed, &walked);
}

/* ---- other pools ------------------------------------------------------------ */

bool qr_monitor_find_tier(const quire_monitor *m, const char *name, uint32_t *tier)
{
    const qr_tiers *tiers = &m->metrics.tiers;
    for (uint32_t i = 1; i < tiers->count; i++) {
        if (strcmp(tiers->names[i], name) != 0)
            continue;
        *tier = i;
        return true;
    }
    return false;
}

bool qr_monitor_watch_pool(quire_monitor *m, const char *name, const quire_pool *pool,
                           uint32_t *tier)
{
    if (!qr_monitor_find_tier(m, name, tier))
        return false;
    quire_watched_blocks blocks = blocks_of_pool(pool, (uint32_t)quire_pool_get_usage(pool).total);
    return qr_monitor_watch_blocks(m, *tier, &blocks);
}

static bool has_keys(const quire_watched_blocks *blocks)
{
    quire_bytes hash;
    uint32_t group_id;
    for (uint32_t i = 0; i < blocks->num_blocks; i++)
        if (blocks->get_key(blocks->user, i, &hash, &group_id) == QUIRE_OK)
            return true;
    return false;
}

bool qr_monitor_watch_blocks(quire_monitor *m, uint32_t tier, const quire_watched_blocks *blocks)
{
    if (tier == 0 || tier >= m->metrics.tiers.count)
        return false;
    m->watched[tier] = *blocks;
    m->info.tier_blocks[tier] = blocks->num_blocks;
    if (has_keys(blocks))
        m->info.has_content = 1;
    return true;
}

void qr_monitor_tell_event(quire_monitor *m, uint32_t tier, const quire_event *event)
{
    quire_event told = *event;
    qr_feed_entry entry;
    if (told.block_size == 0 && told.group_id < m->info.num_groups)
        told.block_size = m->groups[told.group_id].block_size;
    qr_feed_entry_init(&entry, &told);
    entry.tier = tier;
    qr_monitor_add_event(m, &entry);
}

/* ---- batches ---------------------------------------------------------------- */

void qr_monitor_end_batch(quire_monitor *m)
{
    if (m->has_events) {
        qr_feed_entry end = {
            .kind = QUIRE_FEED_BATCH, .number = m->num_batches++, .time = wall_seconds(m)};
        qr_feed_add(&m->feed, &end);
        m->has_events = false;
    }
    uint64_t late = atomic_load_explicit(&m->num_late_reads, memory_order_relaxed);
    qr_metrics_add(&m->metrics, QR_METRIC_READERS_LATE, 0, late - m->num_late_told);
    m->num_late_told = late;
    walk_pools(m);
    if (m->feed.head != atomic_load_explicit(&m->feed.visible, memory_order_relaxed))
        qr_feed_show(&m->feed);
}

/* ---- steps ----------------------------------------------------------------- */

uint64_t qr_monitor_claim_step(quire_monitor *m)
{
    return qr_versions_begin(&m->step_versions) & m->steps_mask;
}

void qr_monitor_add_step(quire_monitor *m, const quire_monitor_step *step)
{
    _Atomic uint64_t *to = m->steps + qr_monitor_claim_step(m) * m->step_words;
    qr_words_put(to, step, m->step_words);
    qr_versions_end(&m->step_versions);
}

/* Step number `count` since the monitor was made; false when it was overwritten meanwhile. */
static bool read_step(const quire_monitor *m, uint64_t count, quire_monitor_step *step)
{
    const _Atomic uint64_t *from = m->steps + (count & m->steps_mask) * m->step_words;
    uint64_t words[QR_STEP_WORDS] = {0};
    qr_words_take(from, words, m->step_words);
    memcpy(step, words, sizeof *step);
    return qr_versions_is_whole(&m->step_versions, count, m->steps_mask + 1);
}

uint64_t qr_monitor_last_step(const quire_monitor *m, quire_monitor_step *step)
{
    uint64_t visible;
    do
        visible = qr_versions_seen(&m->step_versions);
    while (visible > 0 && !read_step(m, visible - 1, step));
    return visible;
}

int qr_monitor_get_names(const quire_monitor *m, uint64_t step, quire_step_names *names,
                         quire_name *list)
{
    quire_monitor_step last;
    uint64_t visible = qr_monitor_last_step(m, &last);
    if (visible == 0 || step > last.step || last.step - step >= visible)
        return QUIRE_MISS;
    uint64_t count = visible - 1 - (last.step - step); /* steps follow each other */
    qr_names_get(&m->names, count & m->steps_mask, names, list);
    bool is_whole = qr_versions_is_whole(&m->step_versions, count, m->steps_mask + 1);
    return is_whole && names->step == step ? QUIRE_OK : QUIRE_MISS;
}

uint32_t qr_monitor_get_steps(const quire_monitor *m, uint64_t after, quire_monitor_step *steps,
                              uint32_t capacity)
{
    quire_monitor_step last = QUIRE_MONITOR_STEP_INIT;
    if (qr_monitor_last_step(m, &last) == 0 || last.step <= after)
        return 0;
    uint64_t visible = qr_versions_seen(&m->step_versions);
    uint64_t kept =
        visible < m->steps_mask ? visible : m->steps_mask; /* one may be in the making */
    uint64_t count = visible - kept;
    uint32_t n = 0;
    for (; count < visible && n < capacity; count++) {
        if (!read_step(m, count, &steps[n])) {
            n = 0; /* all before it are gone too */
            continue;
        }
        if (n == 0 && steps[0].step < after && after - steps[0].step < visible - count)
            count += after - steps[0].step - 1; /* steps follow each other */
        n += steps[n].step > after;
    }
    return n;
}
