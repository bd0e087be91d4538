#include "block/pool.h"

#include "base/hooks.h"
#include "base/refuse.h"
#include "base/rules.h"

enum { DEFAULT_HASH_BYTES = 32 };

/* ---- making ---------------------------------------------------------------- */

int qr_pool_config_read(quire_pool_config *config, const quire_pool_config *callers)
{
    int err = qr_refuse_reading(config, sizeof *config, callers, "quire_pool_config");
    if (err != QUIRE_OK)
        return err;
    if (config->enable_caching == QUIRE_DEFAULT)
        config->enable_caching = QUIRE_ON;
    if (config->hash_bytes == 0)
        config->hash_bytes = DEFAULT_HASH_BYTES;
    if (config->hash_bytes % QR_HASH_UNIT != 0)
        err = qr_refuse("invalid hash_bytes %u (expected a multiple of %d)", config->hash_bytes,
                        (int)QR_HASH_UNIT);
    return err;
}

quire_pool *qr_pool_carve(qr_arena *arena, const quire_pool_config *config, uint32_t num_extras)
{
    uint32_t n = config->num_blocks;
    quire_pool *pool = qr_arena_take(arena, 1, sizeof *pool);
    qr_block *blocks = qr_arena_take(arena, (size_t)n + 1 + num_extras, sizeof *blocks);
    uint8_t *holds = qr_arena_take(arena, n, sizeof *holds);
    qr_map map = {.stride = config->hash_bytes};
    qr_extras extras = {0};
    if (config->enable_caching == QUIRE_ON)
        qr_map_carve(&map, arena, num_extras > 0 ? n + 1 + num_extras : n, config->hash_bytes);
    if (num_extras > 0)
        qr_extras_carve(&extras, arena, n, num_extras);
    if (pool != NULL)
        *pool = (quire_pool){.map = map,
                             .extras = extras,
                             .holds = holds,
                             .is_fresh = arena->is_zero,
                             .queue = {.blocks = blocks, .num_blocks = n}};
    return pool;
}

int qr_pool_init(quire_pool *pool, const quire_pool_config *config)
{
    uint64_t secret[2];
    int err = qr_random_bytes(&config->hooks, secret, sizeof secret);
    if (err != QUIRE_OK)
        return err;
    pool->magic = QR_POOL_MAGIC;
    pool->enable_caching = config->enable_caching == QUIRE_ON;
    pool->num_reserved = 0;
    pool->num_held = 0;
    pool->residency = NULL;
    pool->on_event = config->on_event;
    pool->event_user = config->event_user;
    qr_block *blocks = pool->queue.blocks;
    size_t num_records = (size_t)config->num_blocks + 1 + pool->extras.num_extras;
    if (!pool->is_fresh) {
        memset(blocks, 0, num_records * sizeof *blocks);
        memset(pool->holds, 0, config->num_blocks);
    }
    qr_queue_init_zeros(&pool->queue, blocks, config->num_blocks, QUIRE_NULL_BLOCK + 1);
    pool->queue.is_two_ended = qr_rules_of(config->profile)->reuses_empty_first;
    if (pool->enable_caching)
        qr_map_init(&pool->map, blocks, pool->is_fresh, secret);
    if (pool->extras.heads != NULL)
        qr_extras_clear(&pool->extras);
    for (uint32_t i = 0; i < QR_POOL_SCOUTS; i++)
        pool->scouted[i] = QUIRE_NULL_BLOCK;
    qr_pool_publish(pool);
    return QUIRE_OK;
}

/* ---- small parts ----------------------------------------------------------- */

int qr_pool_check_hash_len(const quire_pool *pool, size_t len)
{
    bool ok = len > 0 && len <= pool->map.stride && len % QR_HASH_UNIT == 0;
    return ok ? QUIRE_OK : QUIRE_E_RANGE;
}

/* Neither the null block nor unknown, in one comparison. */
static inline bool is_usable(const quire_pool *pool, uint32_t block)
{
    return QR_LIKELY(block - 1 < pool->queue.num_blocks - 1);
}

/* record: that of the key, the block's own or an extra. Apart, so that a pool without events needs
 * no room for one. */
static QR_NOINLINE void tell_removed(const quire_pool *pool, uint32_t block, uint32_t record,
                                     uint32_t hash_bytes, bool still_cached)
{
    const qr_block *b = &pool->queue.blocks[record];
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_REMOVED,
                         .group_id = b->group_id,
                         .blocks = &block,
                         .num_blocks = 1,
                         .hashes = qr_map_hash_of(&pool->map, record),
                         .hash_bytes = hash_bytes,
                         .still_cached = still_cached};
    pool->on_event(pool->event_user, &event);
}

static void forget_one_key(quire_pool *pool, uint32_t block, uint32_t record)
{
    uint32_t hash_bytes = qr_block_key_len(&pool->queue.blocks[record]);
    bool still_cached = qr_map_remove(&pool->map, record);
    if (pool->on_event != NULL)
        tell_removed(pool, block, record, hash_bytes, still_cached);
}

static QR_NOINLINE void forget_extra_keys(quire_pool *pool, uint32_t block)
{
    qr_extra_head *head = &pool->extras.heads[block];
    head->num_tokens = 0;
    while (head->first != 0) {
        uint32_t extra = head->first;
        qr_extras_drop_first(&pool->extras, block);
        forget_one_key(pool, block, extra);
    }
}

/* Takes all keys from a block that has one, and tells. The counts are right already. */
static void forget_key(quire_pool *pool, uint32_t block)
{
    forget_one_key(pool, block, block);
    if (QR_UNLIKELY(pool->extras.heads != NULL))
        forget_extra_keys(pool, block);
}

/* ---- operations ------------------------------------------------------------ */

/* n blocks from the head. */
static void take_blocks(quire_pool *pool, uint32_t n, uint32_t *out)
{
    uint32_t num_cached = 0;
    uint32_t head = qr_queue_head(&pool->queue);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t block = head;
        qr_block *b = &pool->queue.blocks[block];
        qr_assert_internal(b->ref_cnt == 0);
        head = qr_queue_take(&pool->queue, block);
        if (qr_block_has_key(b)) {
            qr_pool_scout(pool, block);
            num_cached++;
        }
        b->ref_cnt = 1;
        out[i] = block;
    }
    qr_queue_take_end(&pool->queue, head, n);
    pool->num_cached -= num_cached;
    pool->num_allocated += n;
    pool->num_evicted += num_cached;
    qr_pool_publish(pool);
    if (pool->residency != NULL) {
        qr_residency_fetch(pool->residency, pool->queue.blocks[out[n - 1]].ahead);
        qr_residency_take(pool->residency, out, n, pool->enable_caching);
    }
    for (uint32_t i = 0; num_cached > 0 && i < n; i++)
        if (qr_block_has_key(&pool->queue.blocks[out[i]]))
            forget_key(pool, out[i]);
}

/* Some of the blocks are kept for requests that wait: they are released first. */
static QR_NOINLINE bool release_kept_blocks(const quire_pool *pool, uint32_t n)
{
    if (n > pool->queue.num_free)
        return false;
    pool->release_kept(pool->keeper, n);
    return true;
}

/* In portions: what one pass over the blocks has fetched, the next one must still find in cache. */
int qr_pool_get_new_blocks(quire_pool *pool, uint32_t n, uint32_t *out)
{
    enum { PORTION = QR_AT_A_TIME(128, 2) };
    if (n >= pool->queue.num_blocks)
        return QUIRE_E_RANGE;
    if (QR_UNLIKELY(n > qr_queue_num_others(&pool->queue)) && !release_kept_blocks(pool, n))
        return QUIRE_NO_SPACE;
    for (uint32_t done = 0; done < n; done += PORTION)
        take_blocks(pool, n - done < PORTION ? n - done : PORTION, out + done);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

static int add_users(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    qr_block *records = pool->queue.blocks;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_usable(pool, blocks[i]))
            return qr_pool_why_unusable(blocks[i]);
        const qr_block *b = &records[blocks[i]];
        if (QR_UNLIKELY(b->ref_cnt > UINT32_MAX - n))
            return QUIRE_E_OVERFLOW;
        if (qr_link_in_list(&b->free)) { /* leaving the queue writes to its neighbours */
            qr_prefetch_write(&records[qr_queue_prev_of(records, blocks[i])]);
            qr_prefetch_write(&records[qr_queue_next_of(records, blocks[i])]);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (records[blocks[i]].ref_cnt++ == 0)
            qr_pool_begin_use(pool, blocks[i]);
    qr_pool_publish(pool);
    return QUIRE_OK;
}

int qr_pool_touch(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    int err = add_users(pool, blocks, n);
    if (err == QUIRE_OK && pool->residency != NULL)
        qr_residency_touch(pool->residency, blocks, n);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return err;
}

/* Where one is wrong, nothing is changed; hints alone stay changed. */
int qr_pool_free_blocks(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    uint32_t num_cached = 0;
    qr_queue_joining joining = qr_queue_join_begin(&pool->queue);
    for (uint32_t i = 0; i < n; i++) {
        if (i + QR_FREE_AHEAD < n) /* wherever it says: this is harmless */
            qr_prefetch_write(&joining.blocks[blocks[i + QR_FREE_AHEAD]]);
        int err = qr_pool_leave(pool, &joining, blocks[i], &num_cached);
        if (QR_UNLIKELY(err != QUIRE_OK)) {
            while (i-- > 0)
                qr_pool_unleave(pool, &joining, blocks[i]);
            return err;
        }
    }
    qr_queue_join_end(&pool->queue, &joining);
    pool->num_cached += num_cached;
    qr_pool_publish(pool);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

/* ---- users who are no requests --------------------------------------------- */

/* One hold more for each; none where one is wrong. */
static int add_holds(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        int err = QUIRE_OK;
        if (QR_UNLIKELY(!is_usable(pool, blocks[i])))
            err = qr_pool_why_unusable(blocks[i]);
        else if (QR_UNLIKELY(qr_pool_count_holds(pool, blocks[i]) == QR_HOLDS_MOST))
            err = QUIRE_E_OVERFLOW;
        if (QR_LIKELY(err == QUIRE_OK)) {
            pool->holds[blocks[i]]++;
            continue;
        }
        while (i-- > 0)
            pool->holds[blocks[i]]--;
        return err;
    }
    return QUIRE_OK;
}

int qr_pool_hold(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    int err = add_holds(pool, blocks, n);
    if (err != QUIRE_OK)
        return err;
    pool->num_held += n;
    for (uint32_t i = 0; i < n; i++) {
        const qr_block *b = &pool->queue.blocks[blocks[i]];
        if (b->ref_cnt > 0 || (pool->holds[blocks[i]] & QR_HOLDS_ALONE) != 0)
            continue;
        pool->holds[blocks[i]] |= QR_HOLDS_ALONE;
        qr_queue_remove(&pool->queue, blocks[i]);
        pool->num_cached -= qr_block_has_key(b);
    }
    qr_pool_publish(pool);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

static int why_not_held(const quire_pool *pool, uint32_t block)
{
    if (!is_usable(pool, block))
        return qr_pool_why_unusable(block);
    return qr_pool_count_holds(pool, block) == 0 ? QUIRE_E_DOUBLE_FREE : QUIRE_OK;
}

/* Whether each is held as often as it is listed; what is counted down is counted up again. */
static int check_holds(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    int err = QUIRE_OK;
    uint32_t i = 0;
    while (i < n && (err = why_not_held(pool, blocks[i])) == QUIRE_OK)
        pool->holds[blocks[i++]]--;
    while (i-- > 0)
        pool->holds[blocks[i]]++;
    return err;
}

static int let_go_to_tail(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    uint32_t num_cached = 0;
    qr_queue_joining joining = qr_queue_join_begin(&pool->queue);
    for (uint32_t i = 0; i < n; i++) {
        int err = qr_pool_leave_hold(pool, &joining, blocks[i], &num_cached);
        if (QR_UNLIKELY(err != QUIRE_OK)) {
            while (i-- > 0)
                qr_pool_unleave_hold(pool, &joining, blocks[i]);
            return err;
        }
    }
    qr_queue_join_end(&pool->queue, &joining);
    pool->num_cached += num_cached;
    return QUIRE_OK;
}

static int let_go_to_head(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    int err = check_holds(pool, blocks, n);
    for (uint32_t i = n; err == QUIRE_OK && i-- > 0;) { /* each to the head: the first in front */
        if (--pool->holds[blocks[i]] != QR_HOLDS_ALONE)
            continue;
        pool->holds[blocks[i]] = 0;
        if (pool->queue.wanted != NULL && qr_queue_is_wanted(&pool->queue, blocks[i]))
            qr_queue_append(&pool->queue, blocks[i]);
        else
            qr_queue_prepend(&pool->queue, blocks[i]);
        pool->num_cached += qr_block_has_key(&pool->queue.blocks[blocks[i]]);
    }
    return err;
}

int qr_pool_let_go(quire_pool *pool, const uint32_t *blocks, uint32_t n, bool to_head)
{
    int err = to_head ? let_go_to_head(pool, blocks, n) : let_go_to_tail(pool, blocks, n);
    if (err != QUIRE_OK)
        return err;
    pool->num_held -= n;
    qr_pool_publish(pool);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

static inline qr_pool_freeing free_begin(const quire_pool *pool)
{
    return (qr_pool_freeing){.joining = qr_queue_join_begin(&pool->queue)};
}

qr_pool_freeing qr_pool_free_begin(const quire_pool *pool)
{
    return free_begin(pool);
}

static inline void free_part(quire_pool *pool, qr_pool_freeing *freeing, const uint32_t *blocks,
                             uint32_t n)
{
    qr_queue_joining *joining = &freeing->joining;
    for (uint32_t i = n; i-- > 0;) {
        uint32_t block = blocks[i];
        if (i >= QR_FREE_AHEAD)
            qr_prefetch_write(&joining->blocks[blocks[i - QR_FREE_AHEAD]]);
        if (block == QUIRE_NULL_BLOCK)
            continue;
        qr_block *b = &joining->blocks[block];
        qr_assert_internal(is_usable(pool, block) && b->ref_cnt > 0);
        if (--b->ref_cnt == 0)
            qr_pool_end_use(pool, joining, block, &freeing->num_cached);
    }
}

void qr_pool_free_part(quire_pool *pool, qr_pool_freeing *freeing, const uint32_t *blocks,
                       uint32_t n)
{
    free_part(pool, freeing, blocks, n);
}

static inline void free_end(quire_pool *pool, const qr_pool_freeing *freeing)
{
    qr_queue_join_end(&pool->queue, &freeing->joining);
    pool->num_cached += freeing->num_cached;
    qr_pool_publish(pool);
    qr_assert_expensive(qr_pool_is_valid(pool));
}

void qr_pool_free_end(quire_pool *pool, const qr_pool_freeing *freeing)
{
    free_end(pool, freeing);
}

void qr_pool_free_row(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    qr_pool_freeing freeing = free_begin(pool);
    free_part(pool, &freeing, blocks, n);
    free_end(pool, &freeing);
}

static qr_key full_block_key(const quire_cache_full_params *p, uint32_t i)
{
    size_t place = i - p->first_hash;
    return (qr_key){(const unsigned char *)p->hashes + place * p->hash_len, (uint32_t)p->hash_len,
                    p->group_id};
}

/* Marks show the second time. */
int qr_pool_check_uncached(quire_pool *pool, const quire_cache_full_params *p)
{
    qr_block *records = pool->queue.blocks;
    int err = QUIRE_OK;
    uint32_t i = p->num_cached_blocks;
    for (; i < p->num_full_blocks; i++) {
        uint32_t block = p->blocks[i];
        if (block == QUIRE_NULL_BLOCK)
            continue;
        if (!is_usable(pool, block))
            err = qr_pool_why_unusable(block);
        else if (qr_block_has_key(&records[block]) || records[block].mark)
            err = QUIRE_E_ALREADY_CACHED;
        if (err != QUIRE_OK)
            break;
        records[block].mark = true;
    }
    while (i-- > p->num_cached_blocks)
        records[p->blocks[i]].mark = false;
    return err;
}

void qr_pool_tell_stored(const quire_pool *pool, const quire_cache_full_params *p)
{
    if (pool->on_event == NULL)
        return;
    uint32_t first = p->num_cached_blocks;
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_STORED,
                         .group_id = p->group_id,
                         .blocks = p->blocks + first,
                         .num_blocks = p->num_full_blocks - first,
                         .first_block = first,
                         .hashes = full_block_key(p, first).hash,
                         .hash_bytes = (uint32_t)p->hash_len,
                         .block_size = p->block_size,
                         .request = p->request};
    if (first > 0)
        event.parent = (quire_bytes){full_block_key(p, first - 1).hash, p->hash_len};
    pool->on_event(pool->event_user, &event);
}

int qr_pool_cache_full_blocks(quire_pool *pool, const quire_cache_full_params *p)
{
    if (p->num_cached_blocks >= p->num_full_blocks)
        return QUIRE_OK;
    if (p->num_full_blocks > p->num_hashes)
        return QUIRE_E_RANGE;
    if (p->first_hash > 0 && p->first_hash >= p->num_cached_blocks)
        return QUIRE_E_RANGE;
    int err = qr_pool_check_hash_len(pool, p->hash_len);
    if (err == QUIRE_OK)
        err = qr_pool_check_uncached(pool, p);
    if (err != QUIRE_OK)
        return err;
    uint32_t first = p->num_cached_blocks;
    uint32_t n = p->num_full_blocks - first;
    qr_map_insert_run(&pool->map, full_block_key(p, first), p->blocks + first, n);
    for (uint32_t i = first; i < p->num_full_blocks; i++) {
        uint32_t block = p->blocks[i];
        pool->num_cached += qr_queue_contains(&pool->queue, block);
    }
    qr_pool_publish(pool);
    qr_pool_tell_stored(pool, p);
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

void qr_pool_cache_row(quire_pool *pool, const quire_cache_full_params *p)
{
    uint32_t first = p->num_cached_blocks;
    qr_assert(first < p->num_full_blocks && p->num_full_blocks <= p->num_hashes);
    qr_assert(p->first_hash == 0 || p->first_hash < first);
    qr_assert_internal(qr_pool_check_uncached(pool, p) == QUIRE_OK);
    qr_map_insert_run(&pool->map, full_block_key(p, first), p->blocks + first,
                      p->num_full_blocks - first);
    qr_pool_tell_stored(pool, p);
    qr_assert_expensive(qr_pool_is_valid(pool));
}

static void tell_partial(const quire_pool *pool, const qr_partial_key *p)
{
    quire_event event = {.size = sizeof(quire_event),
                         .kind = QUIRE_EVENT_STORED,
                         .group_id = p->key.group_id,
                         .blocks = &p->block,
                         .num_blocks = 1,
                         .first_block = p->num_tokens / p->hash_block_size - 1,
                         .hashes = p->key.hash,
                         .hash_bytes = p->key.len,
                         .block_size = p->hash_block_size,
                         .parent = p->parent,
                         .request = p->request};
    pool->on_event(pool->event_user, &event);
}

void qr_pool_cache_partial(quire_pool *pool, const qr_partial_key *p)
{
    const qr_block *b = &pool->queue.blocks[p->block];
    bool has_extras = pool->extras.heads != NULL;
    qr_extra_head none = {0};
    qr_extra_head *head = has_extras ? &pool->extras.heads[p->block] : &none;
    qr_assert(is_usable(pool, p->block) && b->ref_cnt > 0 && (has_extras || p->is_whole));
    if (p->replaces && qr_block_has_key(b))
        forget_key(pool, p->block);
    bool has_key = qr_block_has_key(b);
    if (has_key && (!has_extras || qr_extras_has_key(&pool->extras, &pool->map, p->block, p->key)))
        return;
    if (head->num_tokens > 0 && head->num_tokens < p->num_tokens)
        forget_key(pool, p->block);
    if (qr_block_has_key(b)) {
        if (!qr_extras_add(&pool->extras, &pool->map, p->block, p->key))
            return;
    } else {
        qr_map_insert(&pool->map, p->key, p->block);
        head->num_tokens = p->is_whole ? 0 : p->num_tokens;
    }
    if (pool->on_event != NULL)
        tell_partial(pool, p);
    qr_assert_expensive(qr_pool_is_valid(pool));
}

void qr_pool_forget_keys(quire_pool *pool, uint32_t block)
{
    qr_assert(pool->queue.blocks[block].ref_cnt > 0);
    forget_key(pool, block);
}

void qr_pool_move_keys(quire_pool *pool, uint32_t from, uint32_t to)
{
    qr_assert(pool->queue.blocks[from].ref_cnt > 0 && pool->queue.blocks[to].ref_cnt > 0);
    qr_assert(!qr_block_has_key(&pool->queue.blocks[to]));
    qr_extras_move(&pool->extras, &pool->map, from, to);
    if (pool->on_move != NULL)
        pool->on_move(pool->move_user, from, to);
    qr_assert_expensive(qr_pool_is_valid(pool));
}

int qr_pool_evict_blocks(quire_pool *pool, const uint32_t *blocks, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!is_usable(pool, blocks[i]))
            return qr_pool_why_unusable(blocks[i]);
    }
    if (pool->residency != NULL)
        qr_residency_evict(pool->residency, blocks, n);
    for (uint32_t i = 0; i < n; i++) {
        const qr_block *b = &pool->queue.blocks[blocks[i]];
        if (!qr_block_has_key(b))
            continue;
        pool->num_cached -= qr_queue_contains(&pool->queue, blocks[i]);
        qr_pool_publish(pool);
        forget_key(pool, blocks[i]);
    }
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}

uint32_t qr_pool_evict_cached(quire_pool *pool, uint32_t n)
{
    const qr_queue *queue = &pool->queue;
    uint32_t count = 0;
    for (uint32_t b = qr_queue_head(queue); count < n && pool->num_cached > 0;
         b = qr_queue_next(queue, b)) {
        if (!qr_block_has_key(&queue->blocks[b]))
            continue;
        int err = qr_pool_evict_blocks(pool, &b, 1);
        qr_assert(err == QUIRE_OK);
        count++;
    }
    return count;
}

int qr_pool_reset_prefix_cache(quire_pool *pool)
{
    if (pool->queue.num_free + pool->num_reserved != pool->queue.num_blocks - 1)
        return QUIRE_BUSY;
    if (pool->enable_caching)
        qr_map_clear(&pool->map);
    if (pool->extras.heads != NULL)
        qr_extras_clear(&pool->extras);
    if (pool->residency != NULL)
        qr_residency_reset(pool->residency);
    pool->num_cached = 0;
    qr_pool_publish(pool);
    if (pool->on_event != NULL) {
        quire_event event = {.size = sizeof(quire_event), .kind = QUIRE_EVENT_CLEARED};
        pool->on_event(pool->event_user, &event);
    }
    qr_assert_expensive(qr_pool_is_valid(pool));
    return QUIRE_OK;
}
