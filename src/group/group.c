#include "group/group.h"

#include "group/mask.h"
#include "group/spec.h"

const qr_group_ops *qr_group_ops_of(quire_layer_kind kind)
{
    switch (kind) {
    case QUIRE_LAYER_FULL:
    case QUIRE_LAYER_TQ_FULL:
    case QUIRE_LAYER_MLA:
    case QUIRE_LAYER_SINK_FULL:
    case QUIRE_LAYER_HIDDEN_STATE:
        return &qr_full_ops;
    case QUIRE_LAYER_RSWA:
        return &qr_rswa_ops;
    case QUIRE_LAYER_CIRCULAR_BUFFER:
        return &qr_ring_ops;
    case QUIRE_LAYER_SLIDING_WINDOW:
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
        return &qr_window_ops;
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return &qr_chunked_ops;
    case QUIRE_LAYER_MAMBA:
        return &qr_mamba_ops;
    case QUIRE_LAYER_CROSS:
        return &qr_cross_ops;
    case QUIRE_LAYER_ENCODER_ONLY:
        break;
    }
    return NULL;
}

static uint32_t skipped_tokens_of(const qr_group *group, uint32_t computed)
{
    return group->ops->skipped_tokens == NULL ? 0 : group->ops->skipped_tokens(group, computed);
}

/* ---- need ------------------------------------------------------------------ */

uint32_t qr_group_count_evictable(const qr_group *group, const uint32_t *blocks, uint32_t n,
                                  int *status)
{
    const qr_queue *queue = &group->pool->queue;
    const qr_block *of_pool = queue->blocks;
    const uint32_t num_blocks = queue->num_blocks;
    const uint32_t key_units = group->hash_len / QR_HASH_UNIT;
    const uint32_t group_id = group->id;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        if (QR_UNLIKELY(blocks[i] >= num_blocks)) {
            *status = QUIRE_E_UNKNOWN_BLOCK;
            return 0;
        }
        const qr_block *b = &of_pool[blocks[i]];
        if (QR_UNLIKELY(b->key_units != key_units || b->group_id != group_id)) {
            *status = QUIRE_E_STALE_HIT;
            return 0;
        }
        count += qr_queue_contains(queue, blocks[i]);
    }
    return count;
}

/* Inline: a request that does not fit is asked about in every step. */
static inline qr_kept kept_hits(const qr_group *group, const qr_want *want)
{
    quire_block_span hits = {0};
    if (want->hits != NULL)
        hits = want->hits[group->id];
    uint32_t skipped_tokens = skipped_tokens_of(group, want->num_kept);
    uint32_t skipped = skipped_tokens / group->block_size;
    qr_kept k = {.skipped = skipped};
    if (hits.count > skipped) {
        k.num_kept = hits.count - skipped;
        k.kept = hits.ids + skipped;
    }
    uint32_t external = want->num_external;
    bool is_cut = skipped > 0 || (skipped_tokens > 0 && group->rules.skips_by_computed);
    if (is_cut && want->total_computed - skipped_tokens < external)
        external = want->total_computed - skipped_tokens;
    if (external == 0)
        return k;
    uint32_t end = qr_ceil_div(want->total_computed, group->block_size);
    uint32_t have = skipped + k.num_kept;
    k.num_external = end > have ? end - have : 0;
    return k;
}

qr_kept qr_group_kept_hits(const qr_group *group, const qr_want *want)
{
    return kept_hits(group, want);
}

/* Most steps need no new block: told without a division. */
static inline bool has_room(const qr_group *group, const qr_row *row, uint32_t num_tokens)
{
    return num_tokens <= (uint64_t)row->num_blocks * group->block_size;
}

qr_need qr_group_need_for(const qr_group *group, const qr_want *want, uint32_t num_tokens)
{
    const qr_row *row = want->row == QR_NIL ? NULL : &group->rows[want->row];
    if (QR_LIKELY(row != NULL && row->is_settled && has_room(group, row, num_tokens)))
        return (qr_need){0};
    uint32_t required = qr_ceil_div(num_tokens, group->block_size);
    bool is_capped = want->for_admission || (group->quirks & QR_QUIRK(ADMISSION_CAP_PER_STEP)) != 0;
    uint32_t capped =
        is_capped && required > group->admission_cap ? group->admission_cap : required;
    if (row != NULL && row->is_settled) /* no hits can come: the new blocks alone */
        return (qr_need){.predicted = capped > row->num_blocks ? capped - row->num_blocks : 0,
                         .taken = required - row->num_blocks};

    if (QR_UNLIKELY(row != NULL && want->keeps_hits))
        return (qr_need){.status = QUIRE_E_ARGUMENT};
    uint32_t have = row == NULL ? 0 : row->num_blocks;
    qr_kept k = kept_hits(group, want);
    qr_need need = {0};
    uint32_t evictable = qr_group_count_evictable(group, k.kept, k.num_kept, &need.status);
    uint32_t covered = have + (want->hits == NULL ? 0 : want->hits[group->id].count);
    uint32_t start = k.skipped > covered ? k.skipped : covered;
    need.predicted = (int64_t)(capped > start ? capped - start : 0) + evictable;
    uint32_t kept_end = want->keeps_hits ? k.skipped + k.num_kept : have;
    need.taken = (int64_t)(required > kept_end ? required - kept_end : 0) + evictable;
    if (!is_capped)
        need.predicted = need.taken;
    if (QR_UNLIKELY(qr_want_ends_inside(group, want))) { /* its copy */
        need.predicted++;
        need.taken += k.num_kept > 0;
        if (need.status == QUIRE_OK)
            need.status = qr_want_check_inside(group, want);
    }
    return need;
}

qr_need qr_group_need(const qr_group *group, const qr_want *want)
{
    return qr_group_need_for(group, want, want->num_tokens);
}

/* ---- skipped blocks -------------------------------------------------------- */

void qr_group_skipped_range(const qr_group *group, uint32_t row, uint32_t computed, uint32_t *first,
                            uint32_t *end)
{
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    uint32_t last = skipped_tokens_of(group, computed) / group->block_size;
    if (last > group->rows[row].num_blocks)
        last = group->rows[row].num_blocks;
    uint32_t i = last;
    while (i > 0 && blocks[i - 1] != QUIRE_NULL_BLOCK)
        i--;
    *first = i;
    *end = last;
}

void qr_group_remove_to(qr_group *group, uint32_t row, uint32_t computed)
{
    uint32_t first;
    uint32_t end;
    qr_group_skipped_range(group, row, computed, &first, &end);
    if (first == end)
        return;
    uint32_t *blocks = qr_group_row_blocks(group, row) + first;
    qr_pool_free_row(group->pool, blocks, end - first);
    memset(blocks, 0, (size_t)(end - first) * sizeof *blocks); /* QUIRE_NULL_BLOCK */
}

uint32_t qr_group_count_to(const qr_group *group, uint32_t row, uint32_t computed)
{
    uint32_t first;
    uint32_t end;
    uint32_t count = 0;
    qr_group_skipped_range(group, row, computed, &first, &end);
    const uint32_t *blocks = qr_group_row_blocks(group, row);
    for (uint32_t i = first; i < end; i++)
        count += qr_pool_is_one_user(group->pool, blocks[i]);
    return count;
}

/* ---- taking blocks --------------------------------------------------------- */

void qr_group_init_row(qr_group *group, uint32_t row)
{
    group->rows[row] = (qr_row){.last_state = QR_NIL};
    if (group->parts != NULL)
        group->parts[row] = QR_NO_PART;
}

/* n blocks, of which the first num_loaded need not be zeroed. */
static void take_some_loaded(qr_group *group, uint32_t row, uint32_t n, uint32_t num_loaded)
{
    qr_row *r = &group->rows[row];
    qr_assert(r->num_blocks + n <= group->max_row);
    uint32_t *tail = qr_group_row_blocks(group, row) + r->num_blocks;
    int err = qr_pool_get_new_blocks(group->pool, n, tail);
    qr_assert(err == QUIRE_OK); /* need was not more than there were */
    r->num_blocks += n;
    if (group->tracks_new && num_loaded < n)
        qr_fresh_add(group->fresh, group->pool, group->id, tail + num_loaded, n - num_loaded);
}

void qr_group_take(qr_group *group, uint32_t row, uint32_t n)
{
    take_some_loaded(group, row, n, 0);
}

uint32_t qr_group_allocate_for(qr_group *group, uint32_t row, uint32_t num_tokens)
{
    if (has_room(group, &group->rows[row], num_tokens))
        return 0;
    uint32_t n = qr_ceil_div(num_tokens, group->block_size) - group->rows[row].num_blocks;
    qr_group_take(group, row, n);
    return n;
}

uint32_t qr_group_allocate(qr_group *group, const qr_want *want)
{
    return qr_group_allocate_for(group, want->row, want->num_tokens);
}

void qr_group_keep_hits(qr_group *group, const qr_want *want)
{
    qr_row *row = &group->rows[want->row];
    qr_kept k = qr_group_kept_hits(group, want);
    uint32_t *blocks = qr_group_row_blocks(group, want->row);
    qr_assert(row->num_blocks == 0 && k.skipped + k.num_kept <= group->max_row);
    memset(blocks, 0, (size_t)k.skipped * sizeof *blocks); /* QUIRE_NULL_BLOCK */
    if (k.num_kept > 0)
        memcpy(blocks + k.skipped, k.kept, (size_t)k.num_kept * sizeof *blocks);
    uint32_t end = k.skipped + k.num_kept;
    for (uint32_t i = k.skipped, run; i < end; i += run) { /* runs between null blocks */
        run = 1;
        if (blocks[i] == QUIRE_NULL_BLOCK)
            continue;
        while (i + run < end && blocks[i + run] != QUIRE_NULL_BLOCK)
            run++;
        int err = qr_pool_touch(group->pool, blocks + i, run);
        qr_assert(err == QUIRE_OK);
    }
    row->num_blocks = end;
    row->num_cached = end;
    row->is_settled = true;
    if (QR_UNLIKELY(k.num_kept > 0 && qr_want_ends_inside(group, want))) {
        group->parts[want->row].partial = end - 1;
        row->num_cached = end - 1; /* the copy gets its key when it is full */
    }
}

void qr_group_add_external(qr_group *group, const qr_want *want)
{
    uint32_t n = qr_group_kept_hits(group, want).num_external;
    if (n == 0)
        return;
    bool is_zeroed = (group->quirks & QR_QUIRK(LOADS_ARE_ZEROED)) != 0;
    uint32_t num_whole = want->total_computed % group->block_size == 0 ? n : n - 1;
    uint32_t num_loaded = is_zeroed ? 0 : num_whole;
    for (uint32_t i = 0; i < want->num_unzeroed; i++)
        if (want->unzeroed[i] == group->id)
            num_loaded = n;
    take_some_loaded(group, want->row, n, num_loaded);
}

uint32_t qr_group_quiet_tokens(const qr_group *group, uint32_t row, uint32_t computed)
{
    const qr_row *r = &group->rows[row];
    if (group->ops->find == NULL) /* its blocks follow the encoder's tokens, or stay as they are */
        return UINT32_MAX;
    uint64_t quiet = (uint64_t)r->num_blocks * group->block_size;
    uint64_t uncached = ((uint64_t)r->num_cached + 1) * group->block_size - 1;
    if (group->enable_caching && uncached < quiet)
        quiet = uncached;
    if (group->ops->quiet_tokens == NULL)
        return qr_clamp_u32(quiet);
    uint32_t skipped = skipped_tokens_of(group, computed) / group->block_size;
    skipped = skipped < r->num_blocks ? skipped : r->num_blocks;
    bool has_removed =
        skipped == 0 || qr_group_row_blocks(group, row)[skipped - 1] == QUIRE_NULL_BLOCK;
    uint32_t unskipped = has_removed ? group->ops->quiet_tokens(group, computed) : 0;
    return unskipped < quiet ? unskipped : (uint32_t)quiet;
}

/* ---- keys and the end ------------------------------------------------------ */

/* The next blocks without a key, [*first, *end), from *first on. That is all of them, except where
 * a fork's blocks have got theirs through another request. */
static bool find_unkeyed(const qr_group *group, const uint32_t *blocks, uint32_t num_full,
                         uint32_t *first, uint32_t *end)
{
    const qr_block *records = group->pool->queue.blocks;
    uint32_t i = *first;
    while (i < num_full && qr_block_has_key(&records[blocks[i]]))
        i++;
    *first = i;
    while (i < num_full && !qr_block_has_key(&records[blocks[i]]))
        i++;
    *end = i;
    return *first < i;
}

/* A block that was full in part has keys for that part: they make way for the one of the whole. One
 * that is not to get it keeps them. */
static void forget_partial_keys(qr_group *group, const uint32_t *blocks, uint32_t first,
                                uint32_t end)
{
    for (uint32_t i = first; i < end; i++)
        if (qr_pool_is_partial(group->pool, blocks[i]))
            qr_pool_forget_keys(group->pool, blocks[i]);
}

/* Puts the keys of blocks from the one before `first` up to `end` one behind the other. */
static void gather_keys(const qr_group *group, const quire_cache_request *request, uint32_t first,
                        quire_cache_full_params *p, uint32_t end)
{
    const unsigned char *hashes = request->hashes;
    uint32_t from = first > 0 ? first - 1 : 0;
    size_t shown = (size_t)request->first_hash * group->hash_len;
    for (uint32_t i = from; i < end; i++)
        memcpy(group->keys + (size_t)(i - from) * group->hash_len,
               hashes + group->first_key + (size_t)i * group->key_stride - shown, group->hash_len);
    p->hashes = group->keys;
    p->first_hash = from;
}

/* What the rules of vLLM 0.32 change: which of the blocks up to `end` get keys, and which keys. */
static QR_NOINLINE void choose_keys(qr_group *group, uint32_t row,
                                    const quire_cache_request *request, quire_cache_full_params *p,
                                    uint32_t end)
{
    uint32_t first = group->rows[row].num_cached;
    if (group->has_mask)
        p->blocks = qr_group_mask(group, row, first, end);
    if (group->has_tails && group->hashes_joined > 1)
        forget_partial_keys(group, p->blocks, first, end);
    if (group->key_stride != group->hash_len)
        gather_keys(group, request, first, p, end);
}

static inline quire_cache_full_params key_params(const qr_group *group, uint32_t row,
                                                 const quire_cache_request *request)
{
    uint32_t joined = group->hashes_joined;
    return (quire_cache_full_params){
        .size = sizeof(quire_cache_full_params),
        .blocks = qr_group_row_blocks(group, row),
        .hashes = request->hashes,
        .hash_len = group->hash_len,
        .num_hashes = joined == 1 ? request->num_hashes : request->num_hashes / joined,
        .group_id = group->id,
        .block_size = group->block_size,
        .request = request->user,
        .first_hash = joined == 1 ? request->first_hash : request->first_hash / joined};
}

/* Those of blocks [first, end) that have no key get one. */
static inline void cache_run(qr_group *group, uint32_t row, quire_cache_full_params *p,
                             uint32_t first, uint32_t end)
{
    while (find_unkeyed(group, p->blocks, end, &first, &p->num_full_blocks)) {
        p->num_cached_blocks = first;
        qr_pool_cache_row(group->pool, p);
        if (group->ops->cached != NULL)
            group->ops->cached(group, row, first, p->num_full_blocks);
        first = p->num_full_blocks;
    }
}

void qr_group_cache(qr_group *group, uint32_t row, const quire_cache_request *request,
                    uint32_t num_tokens)
{
    qr_row *r = &group->rows[row];
    uint64_t next = ((uint64_t)r->num_cached + 1) * group->block_size;
    if (num_tokens < next)
        return;
    bool is_one = num_tokens - next < group->block_size; /* most often, and without a division */
    uint32_t num_full = is_one ? r->num_cached + 1 : num_tokens / group->block_size;
    quire_cache_full_params p = key_params(group, row, request);
    if (QR_UNLIKELY(group->has_own_keys))
        choose_keys(group, row, request, &p, num_full);
    cache_run(group, row, &p, r->num_cached, num_full);
    r->num_cached = num_full;
    r->is_settled = true;
}

void qr_group_cache_end(qr_group *group, uint32_t row, const quire_cache_request *request,
                        qr_saved_range range)
{
    quire_cache_full_params p = key_params(group, row, request);
    qr_assert_internal(group->key_stride == group->hash_len); /* all hashes of a block, joined */
    cache_run(group, row, &p, range.first, range.end);
}

qr_partial_key qr_group_key_at(const qr_group *group, uint32_t block,
                               const quire_cache_request *request, uint32_t num_tokens)
{
    uint32_t size = group->hash_size;
    uint32_t at = num_tokens / size - 1;
    qr_assert(at >= request->first_hash && at < request->num_hashes);
    const unsigned char *hash = (const unsigned char *)request->hashes +
                                (size_t)(at - request->first_hash) * group->hash_len;
    qr_partial_key key = {.block = block,
                          .key = {hash, group->hash_len, group->id},
                          .num_tokens = num_tokens,
                          .hash_block_size = size,
                          .is_whole = num_tokens % group->block_size == 0,
                          .request = request->user};
    if (at > request->first_hash)
        key.parent = (quire_bytes){hash - group->hash_len, group->hash_len};
    return key;
}

void qr_group_cache_tail(qr_group *group, uint32_t row, const quire_cache_request *request,
                         uint32_t num_tokens)
{
    uint32_t size = group->hash_size;
    /* A lookup of the same prompt leaves one token; with EAGLE it looks at all, and drops some. */
    uint32_t limit = group->prompts[row].num_tokens - !group->drops_eagle;
    uint32_t end = limit / size * size;
    uint32_t index = end / group->block_size;
    if (end == 0 || end > num_tokens || end % group->block_size == 0 ||
        index >= group->rows[row].num_blocks)
        return;
    uint32_t block = qr_group_row_blocks(group, row)[index];
    if (block == QUIRE_NULL_BLOCK)
        return;
    qr_partial_key key = qr_group_key_at(group, block, request, end);
    qr_pool_cache_partial(group->pool, &key);
}

void qr_group_free(qr_group *group, uint32_t row)
{
    qr_pool_free_row(group->pool, qr_group_row_blocks(group, row), group->rows[row].num_blocks);
    qr_group_init_row(group, row);
}

/* ---- lookups --------------------------------------------------------------- */

static qr_key key_of_block(const qr_lookup *lookup, const qr_group *group, uint32_t i)
{
    return (qr_key){qr_lookup_hash(lookup, group, i), group->hash_len, group->id};
}

bool qr_set_find_block(const qr_group_set *set, const qr_lookup *lookup, uint32_t i)
{
    for (uint32_t s = 0; s < set->num_ids; s++) {
        const qr_group *group = &lookup->groups[set->ids[s]];
        uint32_t block = qr_map_get(&group->pool->map, key_of_block(lookup, group, i));
        if (block == QUIRE_NULL_BLOCK)
            return false;
        lookup->out[group->id][i] = qr_extras_owner(&group->pool->extras, block);
    }
    return true;
}

bool qr_set_find_part(const qr_group_set *set, const qr_lookup *lookup, uint32_t hash)
{
    for (uint32_t s = 0; s < set->num_ids; s++) {
        const qr_group *group = &lookup->groups[set->ids[s]];
        qr_key key = {lookup->hashes + (size_t)hash * group->hash_len, group->hash_len, group->id};
        uint32_t block = qr_map_get(&group->pool->map, key);
        if (block == QUIRE_NULL_BLOCK)
            return false;
        lookup->out[group->id][hash / group->hashes_joined] =
            qr_extras_owner(&group->pool->extras, block);
    }
    return true;
}

uint32_t qr_set_find_run(const qr_group_set *set, const qr_lookup *lookup, uint32_t first,
                         uint32_t end)
{
    uint32_t num_hit = 0;
    const qr_group *any = &lookup->groups[set->ids[0]];
    if (QR_UNLIKELY(any->key_stride != any->hash_len)) { /* keys do not lie side by side */
        while (first + num_hit < end && qr_set_find_block(set, lookup, first + num_hit))
            num_hit++;
        return num_hit;
    }
    num_hit = end > first ? end - first : 0;
    for (uint32_t s = 0; s < set->num_ids && num_hit > 0; s++) {
        const qr_group *group = &lookup->groups[set->ids[s]];
        num_hit = qr_map_get_run(&group->pool->map, key_of_block(lookup, group, first), num_hit,
                                 lookup->out[group->id] + first, 1);
    }
    return num_hit;
}

void qr_set_fill_null(const qr_group_set *set, const qr_lookup *lookup, uint32_t end)
{
    for (uint32_t s = 0; s < set->num_ids; s++)
        memset(lookup->out[set->ids[s]], 0, (size_t)end * sizeof(uint32_t));
}

uint32_t qr_align_blocks(uint32_t num_blocks, uint32_t block_size, uint32_t alignment)
{
    if (block_size == alignment)
        return num_blocks;
    while ((uint64_t)num_blocks * block_size % alignment != 0)
        num_blocks--;
    return num_blocks;
}
