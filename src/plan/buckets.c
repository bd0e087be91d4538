#include "plan/buckets.h"

#include "base/assert.h"
#include "plan/groups.h"
#include "plan/hidden.h"
#include "plan/packed.h"

static quire_layer_spec *spec_at_place(const quire_plan *plan, uint32_t place)
{
    return &plan->specs[plan->order.ids[place]];
}

static qr_merge merge_pages(quire_plan *plan, qr_layers layers, quire_layer_spec *merged)
{
    for (uint32_t i = 0; i < layers.count; i++)
        plan->merges[i] = &plan->specs[layers.ids[i]];
    return qr_page_try_merge(plan->merges, layers.count, merged);
}

static bool is_one_type(const quire_plan *plan)
{
    for (uint32_t i = 1; i < plan->order.count; i++)
        if (!qr_page_joins_type(spec_at_place(plan, 0), spec_at_place(plan, i)))
            return false;
    return true;
}

static bool has_layer_kind(const quire_plan *plan, quire_layer_kind kind)
{
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (spec_at_place(plan, i)->kind == kind)
            return true;
    return false;
}

/* ---- layers that keep all tokens -------------------------------------------- */

/* The block size of all full layers; 0 if they have several, or there are none. */
static uint32_t full_block_size(const quire_plan *plan)
{
    uint32_t block_size = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        const quire_layer_spec *spec = spec_at_place(plan, i);
        if (!qr_spec_is_full(spec))
            continue;
        if (block_size != 0 && block_size != spec->block_size)
            return 0;
        block_size = spec->block_size;
    }
    return block_size;
}

/* A layer that keeps all tokens, though it looks at some. */
static void promote_layer(quire_layer_spec *spec, uint32_t block_size)
{
    if (spec->kind != QUIRE_LAYER_SLIDING_WINDOW && spec->kind != QUIRE_LAYER_CHUNKED_LOCAL)
        return;
    uint64_t real = qr_page_real_bytes(spec);
    uint32_t before = spec->block_size;
    spec->kind = QUIRE_LAYER_FULL;
    spec->block_size = block_size == 0 ? before : block_size;
    if (spec->page_size_padded == 0)
        return;
    qr_assert(before > 0);
    uint64_t grown = qr_mul_u64(real, spec->block_size) / before;
    if (spec->page_size_padded < grown)
        spec->page_size_padded = grown;
}

static int check_one_type(quire_plan *plan)
{
    quire_layer_spec merged;
    qr_merge outcome = merge_pages(plan, plan->order, &merged);
    bool fits = outcome == QR_MERGED || (outcome == QR_MERGE_DIFFER && is_one_type(plan));
    return fits ? QUIRE_OK : QUIRE_E_MIXED;
}

/* Makes window and chunked layers beside full layers keep all tokens. Latent windows have a field
 * that full latent layers lack: vLLM fails there. */
static int promote_layers(quire_plan *plan)
{
    bool has_full = false;
    for (uint32_t i = 0; i < plan->order.count; i++)
        has_full = has_full || qr_spec_is_full(spec_at_place(plan, i));
    if (!has_full || has_layer_kind(plan, QUIRE_LAYER_SLIDING_WINDOW_MLA))
        return QUIRE_E_MIXED;
    uint32_t block_size = full_block_size(plan);
    for (uint32_t i = 0; i < plan->order.count; i++)
        promote_layer(spec_at_place(plan, i), block_size);
    return check_one_type(plan);
}

static int promote_for_one_group(quire_plan *plan)
{
    quire_layer_spec merged;
    if (merge_pages(plan, plan->order, &merged) == QR_MERGE_REFUSED)
        return QUIRE_E_MIXED;
    return check_one_type(plan) == QUIRE_OK ? QUIRE_OK : promote_layers(plan);
}

/* ---- pages of one size ------------------------------------------------------ */

typedef enum fit { FITS, FITS_NOT, FITS_BY_PROMOTION } fit;

/* The layer with a page of `largest` bytes. */
static fit fit_page(const quire_layer_spec *spec, uint64_t largest, quire_layer_spec *out)
{
    uint64_t page = qr_page_bytes(spec);
    *out = *spec;
    qr_assert(page > 0); /* qr_page_check */
    if (page == largest)
        return FITS;
    if (spec->kind == QUIRE_LAYER_MAMBA) {
        *out = qr_page_with_padding(spec, largest);
    } else if (largest % page == 0) {
        uint64_t block_size = qr_mul_u64(spec->block_size, largest / page);
        if (block_size > UINT32_MAX)
            return FITS_NOT;
        *out = qr_page_with_block_size(spec, (uint32_t)block_size);
    } else if (spec->kind == QUIRE_LAYER_MLA) {
        return FITS_BY_PROMOTION;
    } else {
        *out = qr_page_with_padding(spec, largest);
    }
    return qr_page_bytes(out) == largest ? FITS : FITS_NOT;
}

/* Nothing changes unless all layers fit. */
static fit fit_pages(quire_plan *plan)
{
    uint64_t largest = 0;
    quire_layer_spec fitted;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        uint64_t page = qr_page_bytes(spec_at_place(plan, i));
        largest = page > largest ? page : largest;
    }
    for (uint32_t i = 0; i < plan->order.count; i++) {
        fit outcome = fit_page(spec_at_place(plan, i), largest, &fitted);
        if (outcome != FITS)
            return outcome;
    }
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (fit_page(spec_at_place(plan, i), largest, &fitted) == FITS)
            *spec_at_place(plan, i) = fitted;
    return FITS;
}

/* ---- buckets ---------------------------------------------------------------- */

/* Writes to marks, for each place in the order, the first place whose layer is equal. */
static void mark_equal_pages(quire_plan *plan)
{
    for (uint32_t i = 0; i < plan->order.count; i++) {
        uint32_t j = 0;
        while (j < i && (plan->marks[j] != j ||
                         !qr_page_equal(spec_at_place(plan, i), spec_at_place(plan, j))))
            j++;
        plan->marks[i] = j;
    }
}

/* Whether the layer at this place merges with those of the bucket, which begins at `bucket`. */
static bool joins_bucket(quire_plan *plan, uint32_t place, uint32_t bucket)
{
    uint32_t count = 0;
    quire_layer_spec merged;
    for (uint32_t i = bucket; i < place; i++)
        if (plan->marks[i] == i && plan->buckets[i] == bucket)
            plan->merges[count++] = spec_at_place(plan, i);
    plan->merges[count++] = spec_at_place(plan, place);
    return qr_page_try_merge(plan->merges, count, &merged) == QR_MERGED;
}

/* Writes to buckets, for each place, the first place of its bucket. */
static void fill_buckets(quire_plan *plan)
{
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (plan->marks[i] != i) {
            plan->buckets[i] = plan->buckets[plan->marks[i]];
            continue;
        }
        uint32_t bucket = 0;
        while (bucket < i && (plan->buckets[bucket] != bucket || !joins_bucket(plan, i, bucket)))
            bucket++;
        plan->buckets[i] = bucket;
    }
}

/* The layers of a bucket: equal layers one after another. */
static qr_layers list_bucket(const quire_plan *plan, uint32_t bucket)
{
    qr_layers layers = {plan->members, 0};
    for (uint32_t first = bucket; first < plan->order.count; first++)
        for (uint32_t i = first;
             plan->marks[first] == first && plan->buckets[first] == bucket && i < plan->order.count;
             i++)
            if (plan->marks[i] == first)
                layers.ids[layers.count++] = plan->order.ids[i];
    return layers;
}

/* Layers in a group: as many as the smallest bucket has. When no bucket has many more than that, as
 * many as the largest has, which wastes less. */
static uint32_t choose_bucket_group(const quire_plan *plan)
{
    uint32_t fewest = UINT32_MAX;
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (plan->buckets[i] != i)
            continue;
        uint32_t count = list_bucket(plan, i).count;
        fewest = count < fewest ? count : fewest;
        most = count > most ? count : most;
    }
    return UINT64_C(2) * most < UINT64_C(3) * fewest ? most : fewest;
}

/* Every num_groups-th layer is in one group, so that each worker has some of each. */
static int split_bucket(quire_plan *plan, qr_layers layers, uint32_t num_groups)
{
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_plan_group *group = qr_plan_add_group(plan);
        for (uint32_t i = g; i < layers.count; i += num_groups)
            group->layers.ids[group->layers.count++] = layers.ids[i];
        if (merge_pages(plan, group->layers, &group->spec) != QR_MERGED)
            return QUIRE_E_MIXED;
    }
    return QUIRE_OK;
}

static int group_by_buckets(quire_plan *plan)
{
    int err = QUIRE_OK;
    plan->shape = QR_PLAN_PAGES;
    mark_equal_pages(plan);
    fill_buckets(plan);
    uint32_t group_size = choose_bucket_group(plan);
    qr_assert(group_size > 0);
    for (uint32_t i = 0; i < plan->order.count && err == QUIRE_OK; i++) {
        if (plan->buckets[i] != i)
            continue;
        qr_layers layers = list_bucket(plan, i);
        err = split_bucket(plan, layers, (uint32_t)qr_cdiv_u64(layers.count, group_size));
    }
    return err;
}

/* ---- all -------------------------------------------------------------------- */

static bool groups_have_all(const quire_plan *plan, uint32_t num_layers)
{
    uint32_t count = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        count += plan->groups[g].layers.count;
    return count == num_layers;
}

/* With MTP or DeepSeek V4 the last layer is a draft layer: marks its group. */
static void mark_draft_layer(quire_plan *plan, uint32_t last, uint32_t num_layers)
{
    bool is_v4 = false;
    for (uint32_t i = 0; i < plan->order.count; i++)
        is_v4 = is_v4 || spec_at_place(plan, i)->mla_version == QUIRE_MLA_VERSION_DEEPSEEK_V4;
    if (!plan->use_eagle || (!plan->use_mtp && !is_v4) || !groups_have_all(plan, num_layers))
        return;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        for (uint32_t i = 0; i < plan->groups[g].layers.count; i++)
            if (plan->groups[g].layers.ids[i] == last)
                plan->groups[g].is_eagle = true;
}

static int group_all(quire_plan *plan, qr_plan_shape shape, const quire_layer_spec *spec)
{
    qr_plan_group *group = qr_plan_add_group(plan);
    group->spec = *spec;
    group->layers.count = plan->order.count;
    memcpy(group->layers.ids, plan->order.ids, plan->order.count * sizeof *plan->order.ids);
    plan->shape = shape;
    return QUIRE_OK;
}

/* Latent pages and window pages that cannot be one size: windows keep all tokens. */
static int group_promoted(quire_plan *plan)
{
    if (has_layer_kind(plan, QUIRE_LAYER_CHUNKED_LOCAL) || !has_layer_kind(plan, QUIRE_LAYER_MLA) ||
        !has_layer_kind(plan, QUIRE_LAYER_SLIDING_WINDOW))
        return QUIRE_E_MIXED;
    int err = promote_layers(plan);
    if (err != QUIRE_OK || !is_one_type(plan))
        return QUIRE_E_MIXED;
    return group_all(plan, QR_PLAN_ONE_TYPE, spec_at_place(plan, 0));
}

/* Layers of hidden states do not count when the draft layer of packed groups is looked for. */
static int group_packed(quire_plan *plan, qr_layers hidden)
{
    int err = qr_plan_group_packed(plan);
    if (err != QUIRE_OK)
        return err;
    mark_draft_layer(plan, plan->order.ids[plan->order.count - 1], plan->order.count);
    qr_plan_add_hidden_packed(plan, hidden);
    return QUIRE_OK;
}

static int group_pages(quire_plan *plan, qr_layers hidden, uint32_t last)
{
    fit outcome = fit_pages(plan);
    if (outcome == FITS_BY_PROMOTION && hidden.count == 0)
        return group_promoted(plan);
    if (outcome != FITS)
        return QUIRE_E_MIXED;
    int err = group_by_buckets(plan);
    if (err == QUIRE_OK && hidden.count > 0)
        err = qr_plan_add_hidden_pages(plan, hidden);
    if (err == QUIRE_OK)
        mark_draft_layer(plan, last, plan->order.count + hidden.count);
    return err;
}

int qr_plan_make_buckets(quire_plan *plan, bool hybrid)
{
    quire_layer_spec merged;
    plan->num_groups = 0;
    plan->shape = QR_PLAN_EMPTY;
    if (plan->order.count == 0)
        return QUIRE_OK;
    int err = hybrid ? QUIRE_OK : promote_for_one_group(plan);
    if (err != QUIRE_OK)
        return err;
    qr_merge outcome = merge_pages(plan, plan->order, &merged);
    if (outcome == QR_MERGED)
        return group_all(plan, QR_PLAN_ONE_SPEC, &merged);
    if (outcome == QR_MERGE_REFUSED)
        return QUIRE_E_MIXED;
    if (is_one_type(plan))
        return group_all(plan, QR_PLAN_ONE_TYPE, spec_at_place(plan, 0));
    uint32_t last = plan->order.ids[plan->order.count - 1];
    qr_layers hidden = qr_plan_set_hidden_aside(plan);
    if (plan->order.count == 0)
        return QUIRE_E_MIXED;
    return qr_plan_packs(plan) ? group_packed(plan, hidden) : group_pages(plan, hidden, last);
}
