/* cache/rows.c - the blocks of a sequence, the hashes that their keys are made of, and what the
 * cache collects between steps. */
#include "cache/cache.h"
#include "cache/host.h"

uint32_t qr_cache_open_row(quire_cache *cache, quire_seq *seq)
{
    qr_assert(qr_cache_has_row(cache));
    uint32_t row = cache->free_rows[cache->max_requests - 1 - cache->num_seqs++];
    qr_row_state *state = &cache->row_states[row];
    *state = (qr_row_state){.generation = state->generation + 1};
    *seq = (quire_seq)state->generation << 32 | (row + 1);
    return row;
}

void qr_cache_close_row(quire_cache *cache, uint32_t row)
{
    cache->row_states[row].generation++;
    cache->free_rows[cache->max_requests - cache->num_seqs--] = row;
}

void qr_cache_get_blocks(const quire_cache *cache, quire_seq seq, quire_block_span *blocks)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        blocks[g] = (quire_block_span){NULL, 0};
        if (row != QR_NIL)
            blocks[g] =
                (quire_block_span){qr_group_row_blocks(group, row), group->rows[row].num_blocks};
    }
}

void qr_cache_count_common(const quire_cache *cache, uint32_t row, uint32_t *num_blocks)
{
    const qr_block *records = cache->pool->queue.blocks;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        const uint32_t *blocks = qr_group_row_blocks(group, row);
        bool can_share =
            cache->enable_caching && group->ops == &qr_full_ops && !cache->rules.counts_no_common;
        uint32_t end = can_share ? group->rows[row].num_blocks : 0;
        uint32_t i = 0;
        while (i < end && records[blocks[i]].ref_cnt == cache->num_seqs)
            i++;
        num_blocks[g] = i;
    }
}

static uint32_t keyed_in_group(const qr_group *group, uint32_t row)
{
    uint32_t keyed = 0;
    for (uint32_t i = group->rows[row].num_blocks; i-- > 0 && keyed == 0;)
        keyed = qr_group_keyed_tokens(group, row, i);
    return keyed;
}

uint32_t qr_cache_count_keyed(const quire_cache *cache, quire_seq seq)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    uint32_t least = UINT32_MAX;
    for (uint32_t g = 0; row != QR_NIL && g < cache->num_groups; g++) {
        quire_layer_kind kind = cache->groups[g].spec.kind;
        if (kind == QUIRE_LAYER_CROSS || kind == QUIRE_LAYER_CIRCULAR_BUFFER) /* without keys */
            continue;
        uint32_t keyed = keyed_in_group(&cache->groups[g], row);
        least = keyed < least ? keyed : least;
    }
    return least == UINT32_MAX ? 0 : least;
}

/* ---- keys that are missing --------------------------------------------------- */

bool qr_cache_has_uncached(const quire_cache *cache, quire_seq seq, uint32_t num_tokens)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    for (uint32_t g = 0; g < cache->num_groups && row != QR_NIL; g++) {
        const qr_group *group = &cache->groups[g];
        uint64_t next = ((uint64_t)group->rows[row].num_cached + 1) * group->block_size;
        if (group->has_tails || (num_tokens >= next && group->ops != &qr_ring_ops))
            return true;
    }
    return false;
}

/* Of a request whose first num_tokens tokens have their keys in every group. */
static uint32_t first_hash_behind(const quire_cache *cache, uint64_t num_tokens)
{
    uint32_t step = cache->block_multiple; /* all groups' keys begin at its multiples */
    if (num_tokens < 2 * (uint64_t)step || num_tokens == UINT64_MAX)
        return 0;
    return (uint32_t)(num_tokens / step - 1) * (step / cache->hash_block_size);
}

uint32_t qr_cache_first_hash_after(const quire_cache *cache, const quire_block_span *hits)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        uint64_t cached = (uint64_t)hits[g].count * cache->groups[g].block_size;
        bool is_less = cached < first && cache->groups[g].ops != &qr_ring_ops;
        first = is_less ? cached : first;
    }
    return cache->has_tails ? 0 : first_hash_behind(cache, first);
}

/* Tokens of the prompt behind which keys of its end may lie: those of its last three hashes. */
static uint64_t tokens_before_tail(const quire_cache *cache, uint32_t row)
{
    uint32_t num_hashes = (cache->prompts[row].num_tokens - 1) / cache->hash_block_size;
    return num_hashes > 2 ? (uint64_t)(num_hashes - 2) * cache->hash_block_size : 0;
}

uint32_t qr_cache_first_needed_hash(const quire_cache *cache, quire_seq seq)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    if (QR_LIKELY(cache->is_plain && cache->num_groups == 1 &&
                  row != QR_NIL)) { /* the same, without the divisions */
        uint32_t num_cached = cache->groups[0].rows[row].num_cached;
        return num_cached < 2 ? 0 : num_cached - 1;
    }
    uint64_t first = row == QR_NIL ? 0 : UINT64_MAX;
    for (uint32_t g = 0; g < cache->num_groups && row != QR_NIL; g++) {
        const qr_group *group = &cache->groups[g];
        uint64_t cached = (uint64_t)group->rows[row].num_cached * group->block_size;
        first = cached < first && group->ops != &qr_ring_ops ? cached : first;
        uint32_t end = qr_group_part(group, row).checkpoint_end;
        if (end > 0 && end - cache->hash_block_size < first) /* its key, and the hash before it */
            first = end - cache->hash_block_size;
    }
    if (cache->has_tails && row != QR_NIL) {
        uint64_t before = tokens_before_tail(cache, row);
        first = before < first ? before : first;
    }
    return first_hash_behind(cache, first);
}

uint32_t qr_cache_end_of_keys(const quire_cache *cache, quire_seq seq, uint32_t num_tokens)
{
    uint32_t row = cache->has_checkpoints ? qr_cache_row_of(cache, seq) : QR_NIL;
    uint32_t most = num_tokens;
    for (uint32_t g = 0; g < cache->num_groups && row != QR_NIL; g++) {
        uint32_t end = qr_group_part(&cache->groups[g], row).checkpoint_end;
        most = end > most ? end : most;
    }
    return most;
}

/* ---- the rest ---------------------------------------------------------------- */

bool qr_cache_drop(quire_cache *cache, quire_cache_request *request)
{
    if (request->seq == 0)
        return true;
    uint32_t row = qr_cache_row_of(cache, request->seq);
    uint32_t slot = qr_host_slot_of(cache, request->seq);
    if (row == QR_NIL && slot == QR_NIL)
        return false;
    if (row != QR_NIL)
        qr_cache_free(cache, row);
    else
        qr_host_drop(cache, slot);
    request->seq = 0;
    return true;
}

void qr_cache_evict(quire_cache *cache, const quire_block *blocks, uint32_t num_blocks)
{
    for (uint32_t i = 0; i < num_blocks; i++)
        if (blocks[i] != QUIRE_NULL_BLOCK)
            qr_pool_evict_blocks(cache->pool, &blocks[i], 1);
}

int qr_cache_reset(quire_cache *cache)
{
    int err = QUIRE_OK;
    if (cache->host.num_seqs > 0)
        err = QUIRE_BUSY;
    else if (cache->num_groups > 0 || !cache->rules.resets_groups_only)
        err = qr_pool_reset_prefix_cache(cache->pool);
    if (err == QUIRE_OK && cache->log_stats)
        cache->stats.was_reset = 1;
    return err;
}

void qr_cache_begin_step(quire_cache *cache)
{
    for (uint32_t g = 0; g < cache->num_groups; g++)
        if (cache->groups[g].stamps != NULL)
            qr_mamba_new_step(&cache->groups[g]);
}

quire_block_span qr_cache_take_fresh(quire_cache *cache)
{
    uint32_t n = qr_fresh_take(&cache->fresh, cache->num_groups);
    return (quire_block_span){cache->fresh.sorted, n};
}

void qr_cache_refresh(quire_cache *cache, quire_seq seq, uint32_t token)
{
    uint32_t row = qr_cache_row_of(cache, seq);
    for (uint32_t g = 0; g < cache->num_groups && row != QR_NIL; g++) {
        const qr_group *group = &cache->groups[g];
        uint32_t num_blocks = group->rows[row].num_blocks;
        uint32_t first = qr_ceil_div(token, group->block_size);
        if (group->tracks_new && first < num_blocks)
            qr_fresh_add(&cache->fresh, cache->pool, g, qr_group_row_blocks(group, row) + first,
                         num_blocks - first);
    }
}

quire_prefix_stats qr_cache_take_stats(quire_cache *cache)
{
    quire_prefix_stats stats = cache->stats;
    cache->stats = (quire_prefix_stats){0};
    return stats;
}
