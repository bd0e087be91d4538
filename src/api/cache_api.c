/* api/cache_api.c - quire/cache.h: argument checks, then one call inward. */
#include "api/fields.h"

static bool cache_ok(const quire_cache *cache)
{
    return QR_LIKELY(cache != NULL && cache->magic == QR_CACHE_MAGIC);
}

/* The most that first_hash may be: the keys of the row, or of the hit, up to there are made. With
 * caching off no hash is looked at. */
static uint32_t most_first_hash(const quire_cache *cache, const quire_cache_request *request,
                                const quire_block_span *hits)
{
    if (QR_LIKELY(request->first_hash == 0) || !cache->enable_caching)
        return request->first_hash;
    uint32_t joined = cache->block_multiple / cache->hash_block_size;
    if (request->first_hash % joined != 0)
        return 0;
    if (request->seq == 0 && hits != NULL)
        return qr_cache_first_hash_after(cache, hits);
    return qr_cache_first_needed_hash(cache, request->seq);
}

static bool request_ok(const quire_cache_request *request)
{
    return request != NULL && (request->hashes != NULL || request->num_hashes == 0);
}

static int check_kv_request(const quire_cache *cache, const quire_cache_request *request)
{
    if (!cache_ok(cache) || !request_ok(request))
        return QUIRE_E_ARGUMENT;
    qr_field_limits limits = {.max_model_len = cache->max_model_len,
                              .first_hash = most_first_hash(cache, request, NULL)};
    return qr_check_cache_request(request, &limits);
}

static int check_allocation_params(const quire_cache *cache, const quire_cache_request *request,
                                   const quire_allocate_params *params, uint32_t first_hash)
{
    qr_field_limits limits = {.max_model_len = cache->max_model_len,
                              .max_encoder_tokens = cache->max_encoder_tokens,
                              .first_hash = first_hash};
    int err = qr_check_cache_request(request, &limits);
    if (err == QUIRE_OK && params->num_skip_zeroing_group_ids > 0 &&
        params->skip_zeroing_group_ids == NULL)
        return QUIRE_E_ARGUMENT;
    return err == QUIRE_OK ? qr_check_allocate_params(params, &limits) : err;
}

/* ---- making ---------------------------------------------------------------- */

int quire_cache_create(const quire_cache_config *config, const quire_allocator *allocator,
                       quire_cache **cache)
{
    quire_cache_config c;
    if (cache == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_check_cache_config(&c, config);
    if (err == QUIRE_OK)
        err = qr_cache_config_read(&c, config);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_cache_carve(&size, &c);
    err = qr_owner_begin_fresh(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_cache *made = qr_cache_carve(&arena, &c);
    qr_arena_seal(&arena);
    err = qr_cache_init(made, &c);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *cache = made;
    return QUIRE_OK;
}

void quire_cache_destroy(quire_cache *cache)
{
    if (!cache_ok(cache))
        return;
    cache->magic = 0;
    cache->pool->magic = 0;
    qr_owner_release(&cache->owner);
}

/* ---- requests -------------------------------------------------------------- */

int quire_cache_get_computed_blocks(quire_cache *cache, const quire_cache_request *request,
                                    quire_block_span *blocks, uint32_t *num_tokens)
{
    if (num_tokens == NULL || request == NULL || request->first_hash > 0)
        return QUIRE_E_ARGUMENT;
    int err = check_kv_request(cache, request);
    if (err == QUIRE_OK && blocks == NULL && cache->num_groups > 0)
        err = QUIRE_E_ARGUMENT;
    return err == QUIRE_OK ? qr_cache_get_computed_blocks(cache, request, blocks, num_tokens) : err;
}

static QR_NOINLINE int check_then_allocate(quire_cache *cache, quire_cache_request *request,
                                           const quire_allocate_params *params,
                                           quire_block_span *new_blocks)
{
    int err = check_allocation_params(cache, request, params,
                                      most_first_hash(cache, request, params->new_computed_blocks));
    return err == QUIRE_OK ? qr_cache_allocate_more(cache, request, params, new_blocks) : err;
}

/* NOLINTBEGIN(misc-no-recursion): once more, with a copy of a struct of another size */
static QR_NOINLINE int allocate_by_other_params(quire_cache *cache, quire_cache_request *request,
                                                const quire_allocate_params *params,
                                                quire_block_span *new_blocks)
{
    quire_allocate_params own;
    bool is_read = qr_config_read(&own, sizeof own, params) == QUIRE_OK;
    return is_read ? quire_cache_allocate_slots(cache, request, &own, new_blocks)
                   : QUIRE_E_ARGUMENT;
}

int quire_cache_allocate_slots(quire_cache *cache, quire_cache_request *request,
                               const quire_allocate_params *params, quire_block_span *new_blocks)
{
    if (!qr_struct_is_ours(params, sizeof *params))
        return allocate_by_other_params(cache, request, params, new_blocks);
    if (!cache_ok(cache) || !request_ok(request))
        return QUIRE_E_ARGUMENT;
    bool is_usual = request->num_tokens <= cache->max_model_len && request->first_hash == 0;
    if (is_usual && qr_cache_allocates_nothing(cache, request, params, new_blocks))
        return QUIRE_OK; /* decoding: the other fields need no check */
    return check_then_allocate(cache, request, params, new_blocks);
}

static QR_NOINLINE int can_allocate_by_other_params(const quire_cache *cache,
                                                    const quire_cache_request *request,
                                                    const quire_allocate_params *params)
{
    quire_allocate_params own;
    bool is_read = qr_config_read(&own, sizeof own, params) == QUIRE_OK;
    return is_read ? quire_cache_can_allocate(cache, request, &own) : QUIRE_E_ARGUMENT;
}

int quire_cache_can_allocate(const quire_cache *cache, const quire_cache_request *request,
                             const quire_allocate_params *params)
{
    if (!qr_struct_is_ours(params, sizeof *params))
        return can_allocate_by_other_params(cache, request, params);
    if (!cache_ok(cache) || !request_ok(request))
        return QUIRE_E_ARGUMENT;
    bool is_whole = params->full_sequence_must_fit != 0; /* reads no hash */
    uint32_t most =
        is_whole ? UINT32_MAX : most_first_hash(cache, request, params->new_computed_blocks);
    int err = check_allocation_params(cache, request, params, most);
    if (err != QUIRE_OK)
        return err;
    return is_whole ? qr_cache_can_fit(cache, request, params)
                    : qr_cache_can_allocate(cache, request, params);
}
/* NOLINTEND(misc-no-recursion) */

int quire_cache_cache_blocks(quire_cache *cache, const quire_cache_request *request,
                             uint32_t num_computed_tokens)
{
    int err = check_kv_request(cache, request);
    if (err != QUIRE_OK)
        return err;
    uint32_t row = qr_cache_row_of(cache, request->seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    return qr_cache_cache_blocks(cache, request, row, num_computed_tokens);
}

int quire_cache_free(quire_cache *cache, quire_cache_request *request)
{
    if (!cache_ok(cache) || request == NULL)
        return QUIRE_E_ARGUMENT;
    return qr_cache_drop(cache, request) ? QUIRE_OK : QUIRE_E_UNKNOWN_SEQ;
}

int quire_cache_reset_prefix_cache(quire_cache *cache)
{
    return cache_ok(cache) ? qr_cache_reset(cache) : QUIRE_E_ARGUMENT;
}

int quire_cache_new_step_starts(quire_cache *cache)
{
    if (!cache_ok(cache))
        return QUIRE_E_ARGUMENT;
    qr_cache_begin_step(cache);
    return QUIRE_OK;
}

/* ---- looking --------------------------------------------------------------- */

int quire_cache_get_blocks(const quire_cache *cache, quire_seq seq, quire_block_span *blocks)
{
    if (!cache_ok(cache) || (blocks == NULL && cache->num_groups > 0))
        return QUIRE_E_ARGUMENT;
    if (seq != 0 && qr_cache_row_of(cache, seq) == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    qr_cache_get_blocks(cache, seq, blocks);
    return QUIRE_OK;
}

int quire_cache_get_num_common_prefix_blocks(const quire_cache *cache, quire_seq seq,
                                             uint32_t *num_blocks)
{
    if (!cache_ok(cache) || (num_blocks == NULL && cache->num_groups > 0))
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    qr_cache_count_common(cache, row, num_blocks);
    return QUIRE_OK;
}

int quire_cache_take_new_block_ids(quire_cache *cache, quire_block_span *ids)
{
    if (!cache_ok(cache) || ids == NULL)
        return QUIRE_E_ARGUMENT;
    *ids = qr_cache_take_fresh(cache);
    return QUIRE_OK;
}

quire_cache_counts quire_cache_get_counts(const quire_cache *cache)
{
    if (!cache_ok(cache))
        return (quire_cache_counts){0};
    return (quire_cache_counts){.num_groups = cache->num_groups,
                                .hash_block_size = cache->hash_block_size,
                                .num_seqs = cache->num_seqs,
                                .shared_prefix_boundary = cache->shared_prefix};
}

quire_pool *quire_cache_get_pool(const quire_cache *cache)
{
    return cache_ok(cache) ? cache->pool : NULL;
}

int quire_cache_take_prefix_stats(quire_cache *cache, quire_prefix_stats *stats)
{
    if (!cache_ok(cache) || stats == NULL)
        return QUIRE_E_ARGUMENT;
    if (!cache->log_stats)
        return QUIRE_E_DISABLED;
    *stats = qr_cache_take_stats(cache);
    return QUIRE_OK;
}

int quire_cache_take_events(quire_cache *cache, void (*visit)(void *user, const quire_event *event),
                            void *user, uint64_t *lost)
{
    if (!cache_ok(cache) || visit == NULL)
        return QUIRE_E_ARGUMENT;
    if (cache->events.size == 0)
        return QUIRE_E_DISABLED;
    uint64_t num_lost = qr_event_log_take(&cache->events, visit, user);
    if (lost != NULL)
        *lost = num_lost;
    return QUIRE_OK;
}

int quire_cache_check(const quire_cache *cache)
{
    if (!cache_ok(cache))
        return QUIRE_E_ARGUMENT;
    return qr_cache_is_valid(cache) ? QUIRE_OK : QUIRE_E_CORRUPT;
}

/* ---- fork, copies, pressure ------------------------------------------------ */

int quire_cache_fork(quire_cache *cache, const quire_cache_request *parent,
                     quire_cache_request *child)
{
    if (!cache_ok(cache) || parent == NULL || child == NULL || child->seq != 0)
        return QUIRE_E_ARGUMENT;
    if (cache->max_copies == 0)
        return QUIRE_E_DISABLED;
    uint32_t row = qr_cache_row_of(cache, parent->seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    return qr_cache_fork(cache, row, UINT32_MAX, &child->seq);
}

int quire_cache_copy_on_write(quire_cache *cache, quire_seq seq, uint32_t first_token,
                              uint32_t num_tokens)
{
    if (!cache_ok(cache))
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (num_tokens > cache->max_model_len || first_token > cache->max_model_len - num_tokens)
        return QUIRE_E_RANGE;
    uint32_t n = qr_cache_count_shared(cache, row, first_token, first_token + num_tokens);
    if (n > cache->pool->queue.num_free)
        return QUIRE_NO_SPACE;
    if (n > cache->max_copies - cache->num_copies)
        return QUIRE_FULL;
    qr_cache_copy_shared(cache, row, first_token, first_token + num_tokens);
    return QUIRE_OK;
}

int quire_cache_take_copies(quire_cache *cache, const quire_block_copy **copies,
                            uint32_t *num_copies)
{
    if (!cache_ok(cache) || copies == NULL || num_copies == NULL)
        return QUIRE_E_ARGUMENT;
    *num_copies = qr_cache_take_copies(cache);
    *copies = cache->copies;
    return QUIRE_OK;
}

int quire_cache_move_out(quire_cache *cache, quire_cache_request *request,
                         const quire_block_move **moves, uint32_t *num_moves)
{
    if (moves == NULL || num_moves == NULL)
        return QUIRE_E_ARGUMENT;
    int err = check_kv_request(cache, request);
    if (err != QUIRE_OK)
        return err;
    if (cache->host.num_slots == 0)
        return QUIRE_E_DISABLED;
    uint32_t row = qr_cache_row_of(cache, request->seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    err = qr_host_move_out(cache, request, row, num_moves);
    if (err == QUIRE_OK)
        *moves = cache->host.moves;
    return err;
}

/* A request that was moved out, and its first slot. */
static int check_moved_out(const quire_cache *cache, const quire_cache_request *request,
                           uint32_t *slot)
{
    int err = check_kv_request(cache, request);
    if (err != QUIRE_OK)
        return err;
    *slot = qr_host_slot_of(cache, request->seq);
    return *slot == QR_NIL ? QUIRE_E_UNKNOWN_SEQ : QUIRE_OK;
}

int quire_cache_move_in(quire_cache *cache, quire_cache_request *request,
                        const quire_block_move **moves, uint32_t *num_moves)
{
    uint32_t slot;
    bool only_asks = moves == NULL && num_moves == NULL;
    if (!only_asks && (moves == NULL || num_moves == NULL))
        return QUIRE_E_ARGUMENT;
    int err = check_moved_out(cache, request, &slot);
    if (err != QUIRE_OK || only_asks)
        return err != QUIRE_OK ? err : qr_host_can_move_in(cache, request, slot);
    err = qr_host_move_in(cache, request, slot, num_moves);
    if (err == QUIRE_OK)
        *moves = cache->host.moves;
    return err;
}

int quire_cache_get_pressure(quire_cache *cache, quire_pressure *pressure)
{
    if (!cache_ok(cache) || pressure == NULL)
        return QUIRE_E_ARGUMENT;
    double level = quire_usage_level(quire_pool_get_usage(cache->pool));
    if (level > cache->preempt_above)
        cache->is_admitting = false;
    else if (level < cache->admit_below)
        cache->is_admitting = true;
    *pressure = (quire_pressure){.level = level,
                                 .should_admit = cache->is_admitting,
                                 .should_preempt = level > cache->preempt_above};
    return QUIRE_OK;
}

/* ---- where blocks and tokens are, what all requests have ---------------------- */

int quire_cache_find_token(const quire_cache *cache, quire_seq seq, uint32_t group, uint32_t token,
                           quire_token_place *place)
{
    if (!cache_ok(cache) || place == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, seq);
    if (row == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (group >= cache->num_groups)
        return QUIRE_E_RANGE;
    const qr_group *g = &cache->groups[group];
    if (g->ops == &qr_mamba_ops || g->ops == &qr_ring_ops)
        return QUIRE_E_ARGUMENT;
    uint32_t index = token / g->block_size;
    if (index >= g->rows[row].num_blocks)
        return QUIRE_E_RANGE;
    uint32_t block = qr_group_row_blocks(g, row)[index];
    if (block == QUIRE_NULL_BLOCK)
        return QUIRE_MISS;
    *place = (quire_token_place){block, index, token % g->block_size};
    return QUIRE_OK;
}

/* Of num_tokens tokens those in the index-th block of a group. */
static uint32_t tokens_in_block(const qr_group *group, uint32_t index, uint32_t num_tokens)
{
    uint64_t first = (uint64_t)index * group->block_size;
    uint64_t rest = num_tokens > first ? num_tokens - first : 0;
    return rest < group->block_size ? (uint32_t)rest : group->block_size;
}

/* The null block is none. */
static uint32_t block_or_none(uint32_t block)
{
    return block == QUIRE_NULL_BLOCK ? UINT32_MAX : block;
}

static void describe_device_block(const quire_cache *cache, const qr_group *group, uint32_t row,
                                  uint32_t index, quire_cache_block *out)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    uint32_t block = blocks[index];
    const qr_block *b = &cache->pool->queue.blocks[block];
    out->block = block_or_none(block);
    out->prev = index > 0 ? block_or_none(blocks[index - 1]) : UINT32_MAX;
    if (block == QUIRE_NULL_BLOCK)
        return;
    out->location = QUIRE_LOCATION_DEVICE;
    out->ref_cnt = b->ref_cnt;
    out->num_holds = qr_pool_count_holds(cache->pool, block);
    out->has_key = qr_block_has_key(b);
}

int quire_cache_get_block(const quire_cache *cache, const quire_cache_request *request,
                          uint32_t group, uint32_t index, quire_cache_block *block)
{
    if (!cache_ok(cache) || request == NULL || block == NULL)
        return QUIRE_E_ARGUMENT;
    uint32_t row = qr_cache_row_of(cache, request->seq);
    uint32_t slot = qr_host_slot_of(cache, request->seq);
    if (row == QR_NIL && slot == QR_NIL)
        return QUIRE_E_UNKNOWN_SEQ;
    if (group >= cache->num_groups)
        return QUIRE_E_RANGE;
    const qr_group *g = &cache->groups[group];
    uint32_t num_tokens =
        row != QR_NIL ? request->num_computed_tokens : cache->host.slots[slot].num_tokens;
    if (index >= (row != QR_NIL ? g->rows[row].num_blocks : qr_ceil_div(num_tokens, g->block_size)))
        return QUIRE_E_RANGE;
    quire_cache_block out = {.block_size = g->block_size, .prev = UINT32_MAX};
    if (row != QR_NIL) {
        describe_device_block(cache, g, row, index, &out);
    } else {
        out.block = qr_host_find(cache, slot, group, index, &out.prev);
        out.location = out.block != QR_NIL ? QUIRE_LOCATION_HOST : QUIRE_LOCATION_NONE;
        out.ref_cnt = out.block != QR_NIL;
    }
    if (out.location != QUIRE_LOCATION_NONE)
        out.num_tokens = tokens_in_block(g, index, num_tokens);
    *block = out;
    return QUIRE_OK;
}

int quire_cache_get_totals(const quire_cache *cache, quire_cache_totals *totals)
{
    if (!cache_ok(cache) || totals == NULL)
        return QUIRE_E_ARGUMENT;
    const qr_host *host = &cache->host;
    quire_cache_totals own = {.num_seqs = cache->num_seqs,
                              .num_moved_out = host->num_seqs,
                              .num_host_blocks = host->num_slots - host->num_free,
                              .num_free_host_blocks = host->num_free,
                              .num_copies = cache->num_copies,
                              .watermark_blocks = cache->watermark_blocks};
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        for (uint32_t row = 0; row < cache->max_requests; row++) {
            const uint32_t *blocks = qr_group_row_blocks(group, row);
            for (uint32_t i = 0; i < group->rows[row].num_blocks; i++)
                own.num_table_blocks += blocks[i] != QUIRE_NULL_BLOCK;
        }
    }
    return qr_struct_out(totals, &own, sizeof own);
}
