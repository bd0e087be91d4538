#include "plan/groups.h"

#include "base/assert.h"
#include "plan/tuples.h"

/* ---- one type -------------------------------------------------------------- */

/* The kind of the first layer decides what "the same" is; order matters, as in vLLM. */
static bool layer_joins_type(const quire_layer_spec *first, const quire_layer_spec *spec)
{
    if (spec->block_size != first->block_size)
        return false;
    if (qr_spec_is_full(first))
        return qr_spec_is_full(spec);
    if (first->kind == QUIRE_LAYER_SLIDING_WINDOW)
        return qr_spec_is_window(spec) && spec->sliding_window == first->sliding_window;
    if (spec->kind != first->kind)
        return false;
    switch (first->kind) {
    case QUIRE_LAYER_SLIDING_WINDOW_MLA:
        return spec->sliding_window == first->sliding_window;
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return spec->attention_chunk_size == first->attention_chunk_size;
    case QUIRE_LAYER_MAMBA:
        return spec->num_speculative_blocks == first->num_speculative_blocks;
    default:
        return true;
    }
}

bool qr_plan_same_type(const quire_plan *plan, qr_layers layers)
{
    for (uint32_t i = 1; i < layers.count; i++)
        if (!layer_joins_type(&plan->specs[layers.ids[0]], &plan->specs[layers.ids[i]]))
            return false;
    return true;
}

static qr_merge merge_layers(quire_plan *plan, qr_layers layers, quire_layer_spec *merged)
{
    for (uint32_t i = 0; i < layers.count; i++)
        plan->merges[i] = &plan->specs[layers.ids[i]];
    return qr_spec_try_merge(plan->merges, layers.count, merged);
}

/* ---- hybrid off ------------------------------------------------------------ */

/* A layer that keeps all tokens, though it looks at some: what vLLM carries over, and no more. */
static void keep_all_tokens(quire_layer_spec *spec, uint32_t latent_block_size)
{
    if (!qr_spec_is_window(spec) && spec->kind != QUIRE_LAYER_CHUNKED_LOCAL)
        return;
    quire_layer_spec full = {.kind = QUIRE_LAYER_FULL,
                             .block_size = spec->block_size,
                             .num_kv_heads = spec->num_kv_heads,
                             .head_size = spec->head_size,
                             .dtype = spec->dtype,
                             .page_size_padded = spec->page_size_padded};
    if (spec->kind == QUIRE_LAYER_SLIDING_WINDOW) {
        full.sliding_window = spec->sliding_window;
    } else if (spec->kind == QUIRE_LAYER_CHUNKED_LOCAL) {
        full.attention_chunk_size = spec->attention_chunk_size;
    } else {
        full.kind = QUIRE_LAYER_MLA;
        full.mla_cache = spec->mla_cache;
        full.mla_version = spec->mla_version;
        full.alignment = spec->alignment;
        full.compress_ratio = spec->compress_ratio;
        *spec = qr_spec_with_block_size(&full, latent_block_size);
        return;
    }
    *spec = qr_spec_resolve(&full);
}

static int make_one_type(quire_plan *plan)
{
    quire_layer_spec merged;
    qr_merge outcome = merge_layers(plan, plan->order, &merged);
    if (outcome == QR_MERGED ||
        (outcome == QR_MERGE_DIFFER && qr_plan_same_type(plan, plan->order)))
        return QUIRE_OK;
    return QUIRE_E_MIXED;
}

static int turn_hybrid_off(quire_plan *plan)
{
    quire_layer_spec merged;
    if (merge_layers(plan, plan->order, &merged) == QR_MERGE_REFUSED)
        return QUIRE_E_MIXED;
    if (make_one_type(plan) == QUIRE_OK)
        return QUIRE_OK;
    uint32_t latent_block_size = 0; /* that of the first full layer */
    for (uint32_t i = 0; i < plan->order.count && latent_block_size == 0; i++)
        if (qr_spec_is_full(&plan->specs[plan->order.ids[i]]))
            latent_block_size = plan->specs[plan->order.ids[i]].block_size;
    if (latent_block_size == 0)
        return QUIRE_E_MIXED;
    for (uint32_t i = 0; i < plan->order.count; i++)
        keep_all_tokens(&plan->specs[plan->order.ids[i]], latent_block_size);
    return make_one_type(plan);
}

/* ---- groups ---------------------------------------------------------------- */

qr_plan_group *qr_plan_add_group(quire_plan *plan)
{
    qr_plan_group *group = &plan->groups[plan->num_groups];
    *group = (qr_plan_group){.layers = {plan->group_layers, 0}};
    if (plan->num_groups > 0) {
        const qr_layers *before = &plan->groups[plan->num_groups - 1].layers;
        group->layers.ids = before->ids + before->count;
    }
    plan->num_groups++;
    return group;
}

static void add_whole_group(quire_plan *plan, qr_plan_shape shape, const quire_layer_spec *spec)
{
    qr_plan_group *group = qr_plan_add_group(plan);
    group->spec = *spec;
    group->layers.count = plan->order.count;
    memcpy(group->layers.ids, plan->order.ids, plan->order.count * sizeof *plan->order.ids);
    plan->shape = shape;
}

/* All pages become as large as the largest: a layer with a smaller one gets more tokens in a block.
 */
static int make_pages_equal(quire_plan *plan)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        uint64_t page = qr_plan_page_bytes(plan, plan->order.ids[i]);
        largest = page > largest ? page : largest;
    }
    for (uint32_t i = 0; i < plan->order.count; i++) {
        quire_layer_spec *spec = &plan->specs[plan->order.ids[i]];
        uint64_t page = qr_spec_page_bytes(spec);
        if (page == largest)
            continue;
        if (page == 0 || largest % page != 0)
            return QUIRE_E_MIXED;
        uint64_t block_size = qr_mul_u64(spec->block_size, largest / page);
        if (block_size > UINT32_MAX)
            return QUIRE_E_MIXED;
        *spec = qr_spec_with_block_size(spec, (uint32_t)block_size);
        if (qr_spec_page_bytes(spec) != largest)
            return QUIRE_E_MIXED;
    }
    return QUIRE_OK;
}

/* Writes to marks, for each place in the order, the first place whose layer is equal. */
static void mark_equal_layers(quire_plan *plan)
{
    for (uint32_t i = 0; i < plan->order.count; i++) {
        plan->marks[i] = i;
        for (uint32_t j = 0; j < i; j++)
            if (plan->marks[j] == j &&
                qr_spec_equal(&plan->specs[plan->order.ids[i]], &plan->specs[plan->order.ids[j]])) {
                plan->marks[i] = j;
                break;
            }
    }
}

static uint32_t count_marks(const quire_plan *plan, uint32_t mark)
{
    uint32_t count = 0;
    for (uint32_t i = mark; i < plan->order.count; i++)
        count += plan->marks[i] == mark;
    return count;
}

/* Layers in a group: as many as the rarest kind has. When no kind has many more than that, as many
 * as the most frequent has, which wastes less. */
static uint32_t choose_group_size(const quire_plan *plan)
{
    uint32_t fewest = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (plan->marks[i] != i)
            continue;
        uint32_t count = count_marks(plan, i);
        fewest = count < fewest ? count : fewest;
        most = count > most ? count : most;
    }
    return UINT64_C(2) * most < UINT64_C(3) * fewest ? most : fewest;
}

/* Every num_groups-th layer of a kind is in one group, so that each worker has some of each. */
static int split_kind(quire_plan *plan, uint32_t mark, uint32_t num_groups)
{
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_plan_group *group = qr_plan_add_group(plan);
        uint32_t number = 0;
        for (uint32_t i = mark; i < plan->order.count; i++)
            if (plan->marks[i] == mark && number++ % num_groups == g)
                group->layers.ids[group->layers.count++] = plan->order.ids[i];
        if (merge_layers(plan, group->layers, &group->spec) != QR_MERGED)
            return QUIRE_E_MIXED;
    }
    return QUIRE_OK;
}

static int group_by_pages(quire_plan *plan)
{
    int err = make_pages_equal(plan);
    if (err != QUIRE_OK)
        return err;
    plan->shape = QR_PLAN_PAGES;
    mark_equal_layers(plan);
    uint32_t group_size = choose_group_size(plan);
    qr_assert(group_size > 0);
    for (uint32_t i = 0; i < plan->order.count && err == QUIRE_OK; i++)
        if (plan->marks[i] == i)
            err = split_kind(plan, i, (uint32_t)qr_cdiv_u64(count_marks(plan, i), group_size));
    return err;
}

/* What planning changed must still be a layer: a padding may have become too small. */
static int check_planned(const quire_plan *plan)
{
    if (plan->shape == QR_PLAN_ONE_SPEC)
        return qr_spec_check(&plan->groups[0].spec) == QUIRE_OK ? QUIRE_OK : QUIRE_E_MIXED;
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (qr_plan_page_bytes(plan, plan->order.ids[i]) == 0)
            return QUIRE_E_MIXED;
    return QUIRE_OK;
}

int qr_plan_make_groups(quire_plan *plan, bool hybrid)
{
    plan->num_groups = 0;
    plan->shape = QR_PLAN_EMPTY;
    if (plan->order.count == 0)
        return QUIRE_OK;
    int err = hybrid ? QUIRE_OK : turn_hybrid_off(plan);
    if (err != QUIRE_OK)
        return err;
    quire_layer_spec merged;
    switch (merge_layers(plan, plan->order, &merged)) {
    case QR_MERGED:
        add_whole_group(plan, QR_PLAN_ONE_SPEC, &merged);
        return check_planned(plan);
    case QR_MERGE_REFUSED:
        return QUIRE_E_MIXED;
    case QR_MERGE_DIFFER:
        break;
    }
    if (qr_plan_same_type(plan, plan->order)) {
        add_whole_group(plan, QR_PLAN_ONE_TYPE, &plan->specs[plan->order.ids[0]]);
        return check_planned(plan);
    }
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (plan->specs[plan->order.ids[i]].kind == QUIRE_LAYER_SLIDING_WINDOW_MLA)
            return qr_plan_group_by_tuples(plan);
    return group_by_pages(plan);
}
