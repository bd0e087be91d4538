/* While an image is read, a record's `ahead` counts the users found so far: rows, pending copies
 * and sinks may not be more than ref_cnt says, or a block would be given back too often. (They may
 * be fewer: blocks can be touched through the pool.) Making the free queue ends this use of it. */
#include "sched/image/image.h"

/* ---- the pool -------------------------------------------------------------- */

static void image_references(qr_image *image, quire_pool *pool)
{
    qr_block *blocks = pool->queue.blocks;
    for (uint32_t b = QUIRE_NULL_BLOCK + 1; b < pool->queue.num_blocks; b++) {
        qr_image_u32(image, &blocks[b].ref_cnt, INT32_MAX);
        if (image->is_reading)
            blocks[b].ahead = 0;
    }
}

static void image_note_users(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (blocks[i] != QUIRE_NULL_BLOCK)
            pool->queue.blocks[blocks[i]].ahead++;
}

/* In a pool with extra keys: whether the key is one, else how many tokens a partial key is for. */
static void image_extra_key(qr_image *image, const quire_pool *pool, uint32_t block, bool *is_extra,
                            uint32_t *num_tokens)
{
    if (pool->extras.heads == NULL)
        return;
    if (!image->is_reading && !*is_extra)
        *num_tokens = pool->extras.heads[block].num_tokens;
    qr_image_bool(image, is_extra);
    qr_image_u32(image, num_tokens, *is_extra ? 0 : QR_MAX_TOKENS);
}

/* Gives the block the key that was read. */
static void image_take_key(qr_image *image, quire_pool *pool, uint32_t block, qr_key key,
                           bool is_extra, uint32_t num_tokens)
{
    qr_extras *extras = &pool->extras;
    bool has_key = qr_block_has_key(&pool->queue.blocks[block]);
    bool is_free = is_extra ? !qr_extras_has_key(extras, &pool->map, block, key) : !has_key;
    qr_image_require(image, key.len > 0 && block != QUIRE_NULL_BLOCK && is_free);
    if (image->is_bad)
        return;
    if (is_extra) {
        qr_image_require(image, qr_extras_add(extras, &pool->map, block, key));
        return;
    }
    qr_map_insert(&pool->map, key, block);
    if (extras->heads != NULL)
        extras->heads[block].num_tokens = num_tokens;
}

/* record: the block's, or that of an extra key. */
static void image_key(qr_image *image, quire_pool *pool, uint32_t record)
{
    qr_map *map = &pool->map;
    uint32_t block = qr_extras_owner(&pool->extras, record);
    bool is_extra = block != record;
    uint32_t num_tokens = 0;
    qr_image_u32(image, &block, pool->queue.num_blocks - 1);
    image_extra_key(image, pool, block, &is_extra, &num_tokens);
    uint16_t group_id = map->blocks[record].group_id;
    uint8_t units = map->blocks[record].key_units;
    qr_image_u16(image, &group_id, QR_MAX_GROUP_ID);
    qr_image_u8(image, &units, (uint8_t)(map->stride / QR_HASH_UNIT));
    uint32_t len = (uint32_t)units * QR_HASH_UNIT;
    if (!image->is_reading) {
        qr_image_put(image, qr_map_hash_of(map, record), len);
        return;
    }
    const unsigned char *hash = qr_image_view(image, len);
    qr_image_require(image, units > 0);
    if (!image->is_bad)
        image_take_key(image, pool, block, (qr_key){hash, len, group_id}, is_extra, num_tokens);
}

/* The blocks of one key, first to last. */
static void image_ring(qr_image *image, quire_pool *pool, uint32_t first)
{
    uint32_t b = first;
    do {
        image_key(image, pool, b);
        b = pool->queue.blocks[b].dup_next;
    } while (b != first);
}

/* Takes the extra with this hash to the front of a list. */
static void image_take_first(qr_image *image, const quire_pool *pool, uint32_t *first,
                             const unsigned char *hash, uint32_t len)
{
    const qr_extras *extras = &pool->extras;
    uint32_t *link = first;
    while (*link != 0 && (pool->map.blocks[*link].key_units * (uint32_t)QR_HASH_UNIT != len ||
                          memcmp(qr_map_hash_of(&pool->map, *link), hash, len) != 0))
        link = &extras->nexts[*link - extras->base];
    uint32_t extra = *link;
    qr_image_require(image, extra != 0);
    if (image->is_bad)
        return;
    *link = qr_extras_next(extras, extra);
    extras->nexts[extra - extras->base] = *first;
    *first = extra;
}

/* Rings do not say in which order a block got its extra keys. */
static void image_extra_order(qr_image *image, quire_pool *pool, uint32_t block)
{
    const qr_extras *extras = &pool->extras;
    uint32_t *link = &extras->heads[block].first;
    if (*link == 0 || qr_extras_next(extras, *link) == 0)
        return;
    for (; *link != 0 && !image->is_bad; link = &extras->nexts[*link - extras->base]) {
        uint8_t units = pool->map.blocks[*link].key_units;
        qr_image_u8(image, &units, (uint8_t)(pool->map.stride / QR_HASH_UNIT));
        uint32_t len = (uint32_t)units * QR_HASH_UNIT;
        if (!image->is_reading) {
            qr_image_put(image, qr_map_hash_of(&pool->map, *link), len);
            continue;
        }
        const unsigned char *hash = qr_image_view(image, len);
        if (hash != NULL)
            image_take_first(image, pool, link, hash, len);
    }
}

static void image_keys(qr_image *image, quire_pool *pool)
{
    const qr_block *blocks = pool->queue.blocks;
    uint32_t num_records = pool->map.num_blocks; /* blocks, and extra keys if there are any */
    uint32_t count = 0;
    if (!pool->enable_caching)
        return;
    for (uint32_t b = 0; b < num_records && !image->is_reading; b++)
        count += qr_block_has_key(&blocks[b]);
    qr_image_u32(image, &count, num_records - 1);
    for (uint32_t i = 0; i < count && image->is_reading && !image->is_bad; i++)
        image_key(image, pool, QUIRE_NULL_BLOCK);
    for (uint32_t b = 0; b < num_records && !image->is_reading; b++)
        if (blocks[b].is_first)
            image_ring(image, pool, b);
    bool has_extras = pool->extras.heads != NULL;
    for (uint32_t b = 0; has_extras && !image->is_bad && b < pool->queue.num_blocks; b++) {
        qr_image_require(image, pool->extras.heads[b].first == 0 || qr_block_has_key(&blocks[b]));
        image_extra_order(image, pool, b);
    }
}

static void image_empty_queue(qr_image *image, quire_pool *pool)
{
    qr_block *blocks = pool->queue.blocks;
    for (uint32_t b = QUIRE_NULL_BLOCK + 1; b < pool->queue.num_blocks; b++)
        qr_image_require(image, blocks[b].ahead <= blocks[b].ref_cnt);
    uint16_t *wanted = pool->queue.wanted; /* all zeros: a new scheduler has looked at nobody */
    bool is_two_ended = pool->queue.is_two_ended;
    qr_queue_init(&pool->queue, blocks, pool->queue.num_blocks, pool->queue.num_blocks);
    pool->queue.wanted = wanted;
    pool->queue.is_two_ended = is_two_ended;
    pool->num_cached = 0;
}

static void image_join_queue(qr_image *image, quire_pool *pool, uint32_t block)
{
    const qr_block *b = &pool->queue.blocks[block];
    qr_image_require(image, block != QUIRE_NULL_BLOCK && b->ref_cnt == 0 &&
                                pool->holds[block] == 0 && !qr_queue_contains(&pool->queue, block));
    if (image->is_bad)
        return;
    qr_queue_append(&pool->queue, block);
    pool->num_cached += qr_block_has_key(b);
}

static void image_queue(qr_image *image, quire_pool *pool)
{
    uint32_t count = pool->queue.num_free;
    qr_image_u32(image, &count, pool->queue.num_blocks - 1);
    uint32_t at = qr_queue_head(&pool->queue);
    if (image->is_reading)
        image_empty_queue(image, pool);
    for (uint32_t i = 0; i < count && !image->is_bad; i++) {
        uint32_t block = at;
        qr_image_u32(image, &block, pool->queue.num_blocks - 1);
        if (image->is_reading)
            image_join_queue(image, pool, block);
        else
            at = qr_queue_next(&pool->queue, at);
    }
    if (image->is_reading)
        atomic_store_explicit(&pool->counts,
                              (uint64_t)pool->queue.num_free << 32 | pool->num_cached,
                              memory_order_relaxed);
}

/* ---- rows ------------------------------------------------------------------ */

/* All rows as they would be if nobody used them: qr_image_seq opens those in use. */
static void image_generations(qr_image *image, quire_cache *cache)
{
    for (uint32_t row = 0; row < cache->max_requests; row++) {
        uint32_t generation = cache->row_states[row].generation;
        generation -= qr_cache_row_in_use(cache, row);
        qr_image_u32(image, &generation, UINT32_MAX);
        if (image->is_reading)
            cache->row_states[row] = (qr_row_state){.generation = generation};
    }
}

/* A checkpoint may be planned for a block that there was no room for. */
static void image_part(qr_image *image, const qr_group *group, uint32_t row)
{
    if (group->parts == NULL)
        return;
    qr_part *part = &group->parts[row];
    uint32_t partial = part->partial + 1; /* 0: QR_NIL */
    uint32_t checkpoint = part->checkpoint + 1;
    uint32_t keyed = part->keyed + 1;
    qr_image_u32(image, &partial, group->rows[row].num_blocks);
    if (group->spec.num_prefill_checkpoint_blocks > 0) {
        qr_image_u32(image, &checkpoint, group->max_row);
        qr_image_u32(image, &part->checkpoint_end, INT32_MAX);
        qr_image_u32(image, &keyed, group->max_row);
        qr_image_u32(image, &part->keyed_end, INT32_MAX);
    }
    if (!image->is_reading)
        return;
    part->partial = partial - 1;
    part->checkpoint = checkpoint - 1;
    part->keyed = keyed - 1;
}

static void image_group_row(qr_image *image, qr_group *group, uint32_t row)
{
    qr_row *r = &group->rows[row];
    uint32_t *blocks = qr_group_row_blocks(group, row);
    uint32_t last_state = r->last_state + 1; /* 0: QR_NIL */
    qr_image_u32(image, &r->num_blocks, group->max_row);
    qr_image_u32(image, &r->num_cached, r->num_blocks);
    qr_image_u32(image, &last_state, r->num_blocks);
    uint32_t num_retired = r->num_retired;
    bool is_settled = r->is_settled;
    bool has_state = r->has_state;
    if (group->rules.retires_past_gaps)
        qr_image_u32(image, &num_retired, r->num_blocks);
    qr_image_bool(image, &is_settled);
    qr_image_bool(image, &has_state);
    image_part(image, group, row);
    uint32_t partial = qr_group_part(group, row).partial;
    qr_image_u32s(image, blocks, r->num_blocks, group->pool->queue.num_blocks - 1);
    qr_image_require(image, !has_state || r->num_blocks > group->spec.num_speculative_blocks);
    /* Between calls, only a state that goes on has one: other kinds copy it at once. */
    bool may_be_partial = group->spec.kind == QUIRE_LAYER_MAMBA;
    qr_image_require(image, image->is_bad || partial == QR_NIL ||
                                (may_be_partial && blocks[partial] != QUIRE_NULL_BLOCK));
    if (!image->is_reading || image->is_bad)
        return;
    r->last_state = last_state - 1;
    r->num_retired = num_retired & QR_MOST_RETIRED;
    r->is_settled = is_settled;
    r->has_state = has_state;
    image_note_users(group->pool, blocks, r->num_blocks);
}

void qr_image_seq(qr_image *image, quire_cache *cache, uint32_t num_prompt, quire_seq *seq)
{
    uint32_t place = *seq == 0 ? 0 : (uint32_t)*seq; /* row + 1 */
    qr_image_u32(image, &place, cache->max_requests);
    if (place == 0)
        return;
    uint32_t row = place - 1;
    qr_row_state *state = &cache->row_states[row];
    if (image->is_reading) {
        qr_image_require(image, !qr_cache_row_in_use(cache, row));
        if (image->is_bad)
            return;
        state->generation++;
        cache->num_seqs++;
        *seq = (quire_seq)state->generation << 32 | place;
    }
    if (cache->prompts != NULL && image->version == QR_IMAGE_OLD_VERSION) {
        cache->prompts[row] = (qr_prompt){.num_tokens = num_prompt};
    } else if (cache->prompts != NULL) {
        qr_image_u32(image, &cache->prompts[row].num_tokens, cache->max_model_len);
        qr_image_u32(image, &cache->prompts[row].shared_boundary, cache->max_model_len);
    }
    /* quiet_until stays 0: the next allocation finds it again */
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        image_group_row(image, &cache->groups[g], row);
        uint32_t partial = qr_group_part(&cache->groups[g], row).partial;
        qr_image_require(image, cache->copies_parts || partial == QR_NIL);
    }
}

/* The order in which rows will be used. A row that is listed is marked, to see it twice; the mark
 * means nothing in a row without a user. */
static void image_free_rows(qr_image *image, quire_cache *cache)
{
    uint32_t count = cache->max_requests - cache->num_seqs;
    if (cache->max_requests == 0)
        return;
    qr_image_u32s(image, cache->free_rows, count, cache->max_requests - 1);
    for (uint32_t i = 0; i < count && image->is_reading && !image->is_bad; i++) {
        uint32_t row = cache->free_rows[i];
        qr_image_require(image, !qr_cache_row_in_use(cache, row) &&
                                    cache->row_states[row].quiet_until == 0);
        cache->row_states[row].quiet_until = 1;
    }
}

/* ---- events ---------------------------------------------------------------- */

static void image_event_fields(qr_image *image, quire_event *event, uint64_t *parent_len)
{
    uint32_t kind = (uint32_t)event->kind;
    uint64_t request = (uint64_t)(uintptr_t)event->request;
    *parent_len = event->parent.len;
    qr_image_u32(image, &kind, QUIRE_EVENT_REPORTED);
    qr_image_u32(image, &event->group_id, QR_MAX_GROUP_ID);
    qr_image_u32(image, &event->num_blocks, UINT32_MAX);
    qr_image_u32(image, &event->first_block, UINT32_MAX);
    qr_image_u32(image, &event->hash_bytes, QR_MAX_HASH_BYTES);
    qr_image_u32(image, &event->block_size, UINT32_MAX);
    qr_image_u32(image, &event->still_cached, 1);
    qr_image_u64(image, parent_len, QR_MAX_HASH_BYTES);
    qr_image_u64(image, &request, UINTPTR_MAX);
    if (image->is_reading) {
        event->kind = (quire_event_kind)kind;
        event->request = (void *)(uintptr_t)request;
    }
}

static void image_put_event(void *user, const quire_event *event)
{
    qr_image *image = user;
    quire_event fields = *event;
    uint64_t parent_len;
    uint8_t follows = 1;
    qr_image_u8(image, &follows, 1);
    image_event_fields(image, &fields, &parent_len);
    qr_image_put(image, event->parent.data, event->parent.len);
    qr_image_put(image, event->hashes, (size_t)event->num_blocks * event->hash_bytes);
    qr_image_put(image, event->blocks, (size_t)event->num_blocks * sizeof *event->blocks);
}

static bool image_get_event(qr_image *image, qr_event_log *log, uint32_t num_blocks)
{
    uint8_t follows = 0;
    qr_image_u8(image, &follows, 1);
    if (follows == 0)
        return false;
    quire_event event = QUIRE_EVENT_INIT;
    uint64_t parent_len;
    image_event_fields(image, &event, &parent_len);
    event.parent.len = (size_t)parent_len;
    event.parent.data = qr_image_view(image, event.parent.len);
    event.hashes = qr_image_view(image, (size_t)event.num_blocks * event.hash_bytes);
    event.blocks = (const quire_block *)(const void *)qr_image_view(
        image, (size_t)event.num_blocks * sizeof *event.blocks);
    for (uint32_t i = 0; i < event.num_blocks && !image->is_bad; i++) {
        quire_block block; /* the image may lie anywhere */
        memcpy(&block, (const unsigned char *)event.blocks + i * sizeof block, sizeof block);
        qr_image_require(image, block < num_blocks);
    }
    if (!image->is_bad)
        qr_event_log_add(log, &event); /* which copies bytes, wherever they lie */
    return !image->is_bad;
}

static void image_events(qr_image *image, qr_event_log *log, uint32_t num_blocks)
{
    uint8_t follows = 0;
    if (image->is_reading) {
        while (image_get_event(image, log, num_blocks))
            qr_image_require(image, log->num_lost == 0);
    } else {
        qr_event_log copy = *log; /* of which taking does no harm */
        qr_event_log_take(&copy, image_put_event, image);
        qr_image_u8(image, &follows, 0);
    }
    qr_image_u64(image, &log->num_lost, UINT64_MAX);
}

/* ---- the cache ------------------------------------------------------------- */

void qr_image_prefix_stats(qr_image *image, quire_prefix_stats *stats)
{
    uint64_t *const numbers[] = {
        &stats->requests,           &stats->queries,           &stats->hits,
        &stats->preempted_requests, &stats->preempted_queries, &stats->preempted_hits};
    qr_image_u32(image, &stats->was_reset, 1);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        qr_image_u64(image, numbers[i], UINT64_MAX);
}

static void image_fresh(qr_image *image, quire_cache *cache)
{
    qr_fresh *fresh = &cache->fresh;
    qr_image_u32(image, &fresh->count, fresh->capacity);
    qr_image_u32s(image, fresh->ids, fresh->count, cache->pool->queue.num_blocks - 1);
    for (uint32_t i = 0; i < fresh->count && !image->is_bad; i++)
        qr_image_u16(image, &fresh->groups[i], (uint16_t)(cache->num_groups - 1));
}

static void image_copies(qr_image *image, quire_cache *cache)
{
    uint32_t last_block = cache->pool->queue.num_blocks - 1;
    qr_image_u32(image, &cache->num_copies, cache->copy_room);
    if (cache->copies_parts)
        qr_image_u32(image, &cache->num_told, cache->num_copies);
    for (uint32_t i = 0; i < cache->num_copies && !image->is_bad; i++) {
        quire_block_copy *copy = &cache->copies[i];
        qr_image_u32(image, &copy->from, last_block);
        qr_image_u32(image, &copy->to, last_block);
        qr_image_u32(image, &copy->group, cache->num_groups - 1);
        qr_image_u32(image, &cache->copy_places[i].row, cache->max_requests - 1);
        qr_image_u32(image, &cache->copy_places[i].index, cache->groups[copy->group].max_row - 1);
        qr_image_require(image, copy->from != QUIRE_NULL_BLOCK && copy->to != QUIRE_NULL_BLOCK);
        if (!image->is_reading)
            continue;
        image_note_users(cache->pool, &copy->from, 1);
        image_note_users(cache->pool, &copy->to, 1);
    }
}

void qr_image_cache_begin(qr_image *image, quire_cache *cache)
{
    image_references(image, cache->pool);
    image_keys(image, cache->pool);
    image_generations(image, cache);
    qr_image_bool(image, &cache->is_admitting);
    qr_image_prefix_stats(image, &cache->stats);
    for (uint32_t g = 0; g < cache->num_groups; g++)
        qr_image_u32(image, &cache->groups[g].step, UINT32_MAX);
    if (cache->stamps != NULL)
        qr_image_u32s(image, cache->stamps, cache->pool->queue.num_blocks, UINT32_MAX);
}

void qr_image_cache_end(qr_image *image, quire_cache *cache)
{
    image_free_rows(image, cache);
    image_fresh(image, cache);
    image_copies(image, cache);
    for (uint32_t g = 0; g < cache->num_groups && image->is_reading; g++)
        image_note_users(cache->pool, cache->groups[g].sinks, cache->groups[g].num_sinks);
    image_queue(image, cache->pool);
    image_events(image, &cache->events, cache->pool->queue.num_blocks);
}
