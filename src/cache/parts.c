#include "cache/parts.h"

#include "group/spec.h"

/* ---- where there are such blocks -------------------------------------------- */

/* By these rules ranks share the blocks of attention groups alone. */
static uint32_t part_block_size(const quire_cache_config *c, uint32_t g)
{
    const quire_layer_spec *spec = &c->groups[g].spec;
    return spec->kind == QUIRE_LAYER_MAMBA ? spec->block_size
                                           : spec->block_size * c->dcp_world_size;
}

static uint32_t part_hash_size(const quire_cache_config *c)
{
    uint32_t divisor = 0;
    for (uint32_t g = 0; g < c->num_groups; g++)
        if (qr_spec_is_cacheable(&c->groups[g].spec))
            divisor = (uint32_t)qr_gcd(part_block_size(c, g), divisor);
    return c->hash_block_size > 0 ? c->hash_block_size : divisor;
}

static bool part_is_aligned(const quire_layer_spec *spec)
{
    return spec->kind == QUIRE_LAYER_MAMBA && spec->mamba_mode == QUIRE_MAMBA_MODE_ALIGN;
}

static bool has_parts_rule(const quire_cache_config *c)
{
    return qr_rules_of(c->profile)->takes_parts && c->enable_caching == QUIRE_ON &&
           c->num_groups > 1;
}

bool qr_cache_takes_parts(const quire_cache_config *c)
{
    bool has_states = false;
    uint32_t size = part_hash_size(c);
    for (uint32_t g = 0; g < c->num_groups && has_parts_rule(c); g++) {
        const quire_layer_spec *spec = &c->groups[g].spec;
        bool is_equal = spec->block_size == size && c->dcp_world_size > 1;
        has_states = has_states || (part_is_aligned(spec) && (spec->block_size > size || is_equal));
        bool can_end_inside = qr_spec_is_full(spec) || spec->kind == QUIRE_LAYER_MAMBA ||
                              !qr_spec_is_cacheable(spec); /* it has no hits at all */
        if (!can_end_inside && part_block_size(c, g) != size)
            return false;
    }
    return has_states;
}

bool qr_cache_copies_parts(const quire_cache_config *c)
{
    bool copies = qr_cache_takes_parts(c);
    for (uint32_t g = 0; g < c->num_groups && has_parts_rule(c); g++)
        copies = copies || (part_is_aligned(&c->groups[g].spec) &&
                            c->groups[g].spec.block_size > part_hash_size(c));
    return copies;
}

bool qr_cache_has_checkpoints(const quire_cache_config *c)
{
    bool has_some = false;
    for (uint32_t g = 0; g < c->num_groups; g++)
        has_some = has_some || (part_is_aligned(&c->groups[g].spec) &&
                                c->groups[g].spec.num_prefill_checkpoint_blocks > 0);
    return has_some;
}

/* ---- copies ------------------------------------------------------------------ */

/* Behind those of the same group and of groups before it, but not among those that were told. */
static void add_copy(quire_cache *cache, quire_block_copy copy, qr_copy_place place)
{
    qr_assert(cache->num_copies < cache->copy_room);
    uint32_t at = cache->num_copies++;
    for (; at > cache->num_told && cache->copies[at - 1].group > copy.group; at--) {
        cache->copies[at] = cache->copies[at - 1];
        cache->copy_places[at] = cache->copy_places[at - 1];
    }
    cache->copies[at] = copy;
    cache->copy_places[at] = place;
}

static void copy_part(quire_cache *cache, uint32_t g, uint32_t row)
{
    qr_group *group = &cache->groups[g];
    qr_row *r = &group->rows[row];
    qr_block *records = cache->pool->queue.blocks;
    uint32_t partial = group->parts[row].partial;
    uint32_t *place = qr_group_row_blocks(group, row) + partial;
    quire_block_copy copy = {.from = *place, .group = g};
    int err = qr_pool_get_new_blocks(cache->pool, 1, &copy.to);
    qr_assert(err == QUIRE_OK && copy.from != QUIRE_NULL_BLOCK);
    if (r->has_state) { /* a running request stays on its block */
        uint32_t num_tokens = qr_group_keyed_tokens(group, row, partial);
        qr_pool_move_keys(cache->pool, copy.from, copy.to);
        records[copy.from].ref_cnt++;
        if (qr_block_has_key(&records[copy.to]))
            qr_mamba_stamp(group, copy.to);
        if (cache->on_state != NULL)
            cache->on_state(cache->state_user, g, copy.to, num_tokens);
    } else { /* the row's use of the block becomes the copy's */
        *place = copy.to;
        records[copy.to].ref_cnt++;
    }
    add_copy(cache, copy, (qr_copy_place){row, partial});
    bool is_aligned = group->spec.mamba_mode == QUIRE_MAMBA_MODE_ALIGN;
    if (!is_aligned && cache->fresh.capacity > 0)
        qr_fresh_add(&cache->fresh, cache->pool, g, &copy.to, 1);
}

uint32_t qr_cache_allocate_parts(quire_cache *cache, uint32_t g, const qr_want *want)
{
    qr_group *group = &cache->groups[g];
    qr_row *row = &group->rows[want->row];
    uint32_t partial = group->parts[want->row].partial;
    bool is_new = !row->has_state;
    if (partial != QR_NIL)
        copy_part(cache, g, want->row);
    uint32_t n = group->ops->allocate(group, want);
    group->parts[want->row].partial = QR_NIL;
    return partial != QR_NIL && is_new ? row->num_blocks - partial : n;
}

uint32_t qr_cache_tell_copies(quire_cache *cache)
{
    uint32_t n = cache->num_copies - cache->num_told;
    cache->num_told = cache->num_copies;
    return n;
}

/* As one: blocks without a key come to the head of the queue in this order. */
void qr_cache_end_copies(quire_cache *cache, uint32_t n)
{
    qr_assert(n <= cache->num_told);
    qr_pool_freeing freeing = qr_pool_free_begin(cache->pool);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t both[2] = {cache->copies[i].to, cache->copies[i].from};
        qr_pool_free_part(cache->pool, &freeing, both, 2);
    }
    qr_pool_free_end(cache->pool, &freeing);
    uint32_t left = cache->num_copies - n;
    memmove(cache->copies, cache->copies + n, left * sizeof *cache->copies);
    memmove(cache->copy_places, cache->copy_places + n, left * sizeof *cache->copy_places);
    cache->num_copies = left;
    cache->num_told -= n;
    qr_assert_expensive(qr_cache_is_valid(cache));
}

/* ---- states ------------------------------------------------------------------ */

void qr_cache_tell_states(const quire_cache *cache, uint32_t g, uint32_t row, uint32_t first,
                          uint32_t end)
{
    const qr_group *group = &cache->groups[g];
    for (uint32_t i = first; i < end && part_is_aligned(&group->spec); i++) {
        uint32_t num_tokens = qr_group_keyed_tokens(group, row, i); /* the null block has no key */
        if (num_tokens > 0)
            cache->on_state(cache->state_user, g, qr_group_row_blocks(group, row)[i], num_tokens);
    }
}

uint32_t qr_cache_own_state(const quire_cache *cache, uint32_t g, uint32_t row, uint32_t *block)
{
    const qr_group *group = &cache->groups[g];
    uint32_t partial = qr_group_part(group, row).partial;
    if (!part_is_aligned(&group->spec) || partial == QR_NIL || !group->rows[row].has_state)
        return 0;
    *block = qr_group_row_blocks(group, row)[partial];
    return qr_group_keyed_tokens(group, row, partial);
}

/* ---- checkpoints ------------------------------------------------------------ */

void qr_cache_plan_checkpoints(quire_cache *cache, const qr_want *want)
{
    for (uint32_t g = 0; g < cache->num_groups; g++)
        cache->groups[g].next_checkpoint = qr_mamba_plan_checkpoint(&cache->groups[g], want);
}

void qr_cache_note_checkpoints(quire_cache *cache, const qr_want *want)
{
    for (uint32_t g = 0; g < cache->num_groups; g++) {
        const qr_group *group = &cache->groups[g];
        qr_part *part = &group->parts[want->row];
        part->checkpoint_end = group->next_checkpoint;
        part->checkpoint = QR_NIL;
        if (part->checkpoint_end > 0)
            part->checkpoint = qr_ceil_div(want->num_main, group->block_size) - 2;
    }
}
