#include "plan/tuples.h"

#include "base/assert.h"
#include "plan/groups.h"

uint64_t qr_plan_next_page(const quire_plan *plan, qr_layers layers, uint64_t page_bytes)
{
    uint64_t next = UINT64_MAX;
    for (uint32_t i = 0; i < layers.count; i++) {
        uint64_t page = qr_plan_page_bytes(plan, layers.ids[i]);
        if (page > page_bytes && page < next)
            next = page;
    }
    return next == UINT64_MAX ? 0 : next;
}

uint64_t qr_plan_tuple_bytes(const quire_plan *plan, qr_layers layers)
{
    uint64_t bytes = 0;
    for (uint64_t page = qr_plan_next_page(plan, layers, 0); page > 0;
         page = qr_plan_next_page(plan, layers, page))
        bytes = qr_add_u64(bytes, page);
    return bytes;
}

static uint32_t count_pages(const quire_plan *plan, qr_layers layers, uint64_t page_bytes)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        count += qr_plan_page_bytes(plan, layers.ids[i]) == page_bytes;
    return count;
}

uint32_t qr_plan_num_tuples(const quire_plan *plan, qr_layers layers)
{
    uint32_t most = 0;
    for (uint64_t page = qr_plan_next_page(plan, layers, 0); page > 0;
         page = qr_plan_next_page(plan, layers, page)) {
        uint32_t count = count_pages(plan, layers, page);
        most = count > most ? count : most;
    }
    return most;
}

uint32_t qr_plan_layer_of_size(const quire_plan *plan, qr_layers layers, uint64_t page_bytes,
                               uint32_t index)
{
    for (uint32_t i = 0; i < layers.count; i++)
        if (qr_plan_page_bytes(plan, layers.ids[i]) == page_bytes && index-- == 0)
            return layers.ids[i];
    return QR_NIL;
}

/* ---- window layers --------------------------------------------------------- */

static bool is_same_window(const quire_layer_spec *a, const quire_layer_spec *b)
{
    return a->kind == QUIRE_LAYER_SLIDING_WINDOW_MLA && a->kind == b->kind &&
           a->block_size == b->block_size && a->sliding_window == b->sliding_window;
}

/* Those of one block size and window, as the layer at place first is, into layers. */
static void collect_windows(quire_plan *plan, uint32_t first, qr_layers *layers)
{
    const quire_layer_spec *like = &plan->specs[plan->order.ids[first]];
    layers->count = 0;
    for (uint32_t i = first; i < plan->order.count; i++) {
        uint32_t layer = plan->order.ids[i];
        if (is_same_window(&plan->specs[layer], like))
            layers->ids[layers->count++] = layer;
    }
}

static bool is_first_window(const quire_plan *plan, uint32_t place)
{
    const quire_layer_spec *spec = &plan->specs[plan->order.ids[place]];
    if (spec->kind != QUIRE_LAYER_SLIDING_WINDOW_MLA)
        return false;
    for (uint32_t i = 0; i < place; i++)
        if (is_same_window(&plan->specs[plan->order.ids[i]], spec))
            return false;
    return true;
}

/* The number of tuples per group that pads all kinds of layers least, and of those the largest:
 * never fewer than group 0 has. The scratch is used for the layers of one kind. */
static uint32_t choose_num_tuples(quire_plan *plan)
{
    uint32_t least = qr_plan_num_tuples(plan, plan->groups[0].layers);
    uint32_t num_kinds = 0;
    uint32_t most = least;
    qr_layers windows = {plan->marks, 0};
    uint32_t *counts = plan->groups[0].layers.ids + plan->groups[0].layers.count;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (!is_first_window(plan, i))
            continue;
        collect_windows(plan, i, &windows);
        counts[num_kinds] = qr_plan_num_tuples(plan, windows);
        most = counts[num_kinds] > most ? counts[num_kinds] : most;
        num_kinds++;
    }
    qr_assert(least > 0); /* group 0 is not empty */
    uint32_t best = least;
    uint64_t best_padding = UINT64_MAX;
    for (uint32_t d = least; d <= most; d++) {
        uint64_t padding = (d - least % d) % d;
        for (uint32_t k = 0; k < num_kinds; k++)
            padding += (d - counts[k] % d) % d;
        if (padding <= best_padding) {
            best_padding = padding;
            best = d;
        }
    }
    return best;
}

/* Pads each layer's page to the next size of group 0; false when there is none. */
static bool pad_windows(quire_plan *plan, qr_layers windows)
{
    for (uint32_t i = 0; i < windows.count; i++) {
        quire_layer_spec *spec = &plan->specs[windows.ids[i]];
        uint64_t page = qr_spec_page_bytes(spec);
        uint64_t padded = qr_plan_next_page(plan, plan->groups[0].layers, page - 1);
        if (padded == 0)
            return false;
        if (padded > page)
            spec->page_size_padded = padded;
    }
    return true;
}

static bool is_first_of_size(const quire_plan *plan, qr_layers windows, uint32_t place)
{
    uint64_t page = qr_plan_page_bytes(plan, windows.ids[place]);
    for (uint32_t i = 0; i < place; i++)
        if (qr_plan_page_bytes(plan, windows.ids[i]) == page)
            return false;
    return true;
}

/* A tuple is one layer of each page size; group g gets every num_groups-th tuple. */
static void add_tuple_groups(quire_plan *plan, qr_layers windows, uint32_t num_tuples,
                             uint32_t num_groups)
{
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_plan_group *group = qr_plan_add_group(plan);
        for (uint32_t t = g; t < num_tuples; t += num_groups)
            for (uint32_t i = 0; i < windows.count; i++)
                if (is_first_of_size(plan, windows, i))
                    group->layers.ids[group->layers.count++] = qr_plan_layer_of_size(
                        plan, windows, qr_plan_page_bytes(plan, windows.ids[i]), t);
        group->spec = plan->specs[group->layers.ids[0]];
    }
}

static int split_windows(quire_plan *plan, qr_layers windows, uint32_t tuples_per_group)
{
    if (!pad_windows(plan, windows))
        return QUIRE_E_MIXED;
    uint32_t num_tuples = qr_plan_num_tuples(plan, windows);
    for (uint32_t i = 0; i < windows.count; i++)
        if (count_pages(plan, windows, qr_plan_page_bytes(plan, windows.ids[i])) != num_tuples)
            return QUIRE_E_MIXED;
    add_tuple_groups(plan, windows, num_tuples,
                     (uint32_t)qr_cdiv_u64(num_tuples, tuples_per_group));
    return QUIRE_OK;
}

/* ---- all ------------------------------------------------------------------- */

/* With EAGLE the last layer of the model is the draft's. */
static void mark_draft_group(quire_plan *plan)
{
    bool is_v4 = false;
    for (uint32_t i = 0; i < plan->order.count; i++)
        is_v4 =
            is_v4 || plan->specs[plan->order.ids[i]].mla_version == QUIRE_MLA_VERSION_DEEPSEEK_V4;
    if (!plan->use_eagle || !is_v4)
        return;
    uint32_t last = plan->order.ids[plan->order.count - 1];
    for (uint32_t g = 0; g < plan->num_groups; g++)
        for (uint32_t i = 0; i < plan->groups[g].layers.count; i++)
            if (plan->groups[g].layers.ids[i] == last)
                plan->groups[g].is_eagle = true;
}

int qr_plan_group_by_tuples(quire_plan *plan)
{
    plan->shape = QR_PLAN_TUPLES;
    qr_plan_group *latent = qr_plan_add_group(plan);
    for (uint32_t i = 0; i < plan->order.count; i++)
        if (plan->specs[plan->order.ids[i]].kind == QUIRE_LAYER_MLA)
            latent->layers.ids[latent->layers.count++] = plan->order.ids[i];
    if (latent->layers.count == 0 || !qr_plan_same_type(plan, latent->layers))
        return QUIRE_E_MIXED;
    latent->spec = plan->specs[latent->layers.ids[0]];
    uint32_t tuples_per_group = choose_num_tuples(plan);
    qr_layers windows = {plan->marks, 0};
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (!is_first_window(plan, i))
            continue;
        collect_windows(plan, i, &windows);
        int err = split_windows(plan, windows, tuples_per_group);
        if (err != QUIRE_OK)
            return err;
    }
    mark_draft_group(plan);
    return QUIRE_OK;
}
