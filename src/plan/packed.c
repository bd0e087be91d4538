#include "plan/packed.h"

#include "base/assert.h"
#include "plan/groups.h"
#include "plan/placement.h"

/* Layers of one type, and what is known of their pages. */
typedef struct type_bucket {
    qr_layers layers;
    uint32_t num_sizes;
    uint32_t most; /* layers of the page size that most have */
    bool is_balanced;
} type_bucket;

static const quire_layer_spec *packed_spec_at(const quire_plan *plan, uint32_t place)
{
    return &plan->specs[plan->order.ids[place]];
}

bool qr_plan_packs(const quire_plan *plan)
{
    bool differ = false;
    for (uint32_t i = 1; i < plan->order.count; i++)
        differ = differ ||
                 qr_page_bytes(packed_spec_at(plan, i)) != qr_page_bytes(packed_spec_at(plan, 0));
    return differ && qr_layout_has_blocks_outermost(plan->layout);
}

/* ---- buckets ---------------------------------------------------------------- */

/* Writes to buckets, for each place, the first place of its bucket. */
static void fill_type_buckets(quire_plan *plan)
{
    for (uint32_t i = 0; i < plan->order.count; i++) {
        uint32_t b = 0;
        while (b < i && (plan->buckets[b] != b ||
                         !qr_page_joins_type(packed_spec_at(plan, b), packed_spec_at(plan, i))))
            b++;
        plan->buckets[i] = b;
    }
}

static uint64_t page_of(const quire_plan *plan, qr_layers layers, uint32_t i)
{
    return qr_page_bytes(&plan->specs[layers.ids[i]]);
}

static uint32_t count_page(const quire_plan *plan, qr_layers layers, uint64_t page)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < layers.count; i++)
        count += page_of(plan, layers, i) == page;
    return count;
}

static bool is_first_of_page(const quire_plan *plan, qr_layers layers, uint32_t at)
{
    uint32_t i = 0;
    while (page_of(plan, layers, i) != page_of(plan, layers, at))
        i++;
    return i == at;
}

/* The bucket that begins at this place. Its layers are in members, until the next is read. */
static type_bucket read_bucket(quire_plan *plan, uint32_t place)
{
    type_bucket b = {.layers = {plan->members, 0}, .is_balanced = true};
    for (uint32_t i = place; i < plan->order.count; i++)
        if (plan->buckets[i] == place)
            b.layers.ids[b.layers.count++] = plan->order.ids[i];
    for (uint32_t i = 0; i < b.layers.count; i++) {
        if (!is_first_of_page(plan, b.layers, i))
            continue;
        uint32_t count = count_page(plan, b.layers, page_of(plan, b.layers, i));
        b.is_balanced = b.is_balanced && (b.num_sizes == 0 || count == b.most);
        b.most = count > b.most ? count : b.most;
        b.num_sizes++;
    }
    return b;
}

/* ---- repeats ---------------------------------------------------------------- */

/* Layers that balanced buckets lack to be whole numbers of groups of `repeats`. marks: for each
 * place where a balanced bucket begins, its repeats; else 0. */
static uint64_t padding_of(const quire_plan *plan, uint32_t repeats)
{
    uint64_t padding = 0;
    for (uint32_t i = 0; i < plan->order.count; i++)
        padding += (repeats - plan->marks[i] % repeats) % repeats;
    return padding;
}

/* Repeats of a group: never fewer than a bucket of several sizes has, which stays whole; of those
 * the number that pads least, and of these the largest. 0 without such a bucket: nothing is cut. */
static uint32_t choose_repeats(quire_plan *plan)
{
    uint32_t least = 0;
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        plan->marks[i] = 0;
        if (plan->buckets[i] != i)
            continue;
        type_bucket b = read_bucket(plan, i);
        if (!b.is_balanced)
            continue;
        plan->marks[i] = b.most;
        if (b.num_sizes > 1 && b.most > least)
            least = b.most;
        most = b.most > most ? b.most : most;
    }
    uint32_t best = least;
    uint64_t best_padding = UINT64_MAX;
    for (uint32_t repeats = least; least > 0 && repeats <= most; repeats++) {
        uint64_t padding = padding_of(plan, repeats);
        if (padding <= best_padding) {
            best_padding = padding;
            best = repeats;
        }
    }
    return best;
}

static bool is_state(const quire_plan *plan, const type_bucket *b, uint32_t repeats)
{
    const quire_layer_spec *first = &plan->specs[b->layers.ids[0]];
    return first->kind == QUIRE_LAYER_MAMBA || first->kind == QUIRE_LAYER_CIRCULAR_BUFFER ||
           (repeats == 0 && qr_spec_is_window(first));
}

static uint32_t groups_of(const type_bucket *b, uint32_t repeats)
{
    return b->is_balanced && repeats > 0 ? (uint32_t)qr_cdiv_u64(b->most, repeats) : 1;
}

/* Page bytes of the largest of the groups that a bucket is cut into. */
static uint64_t widest_group(const quire_plan *plan, const type_bucket *b, uint32_t num_groups)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < b->layers.count; i++) {
        if (!is_first_of_page(plan, b->layers, i))
            continue;
        uint64_t page = page_of(plan, b->layers, i);
        uint64_t count = qr_cdiv_u64(count_page(plan, b->layers, page), num_groups);
        bytes = qr_add_u64(bytes, qr_mul_u64(count, page));
    }
    return bytes;
}

/* Bytes that a block must hold, however buckets of states are cut. */
static uint64_t anchor_bytes(quire_plan *plan, uint32_t repeats)
{
    uint64_t anchor = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (plan->buckets[i] != i)
            continue;
        type_bucket b = read_bucket(plan, i);
        uint32_t groups = is_state(plan, &b, repeats) ? b.layers.count : groups_of(&b, repeats);
        uint64_t bytes = widest_group(plan, &b, groups);
        anchor = bytes > anchor ? bytes : anchor;
    }
    return anchor;
}

/* ---- groups ----------------------------------------------------------------- */

/* The index-th layer of the page size that the layer at `at` has, or QR_NIL. */
static uint32_t layer_of_size(const quire_plan *plan, qr_layers layers, uint32_t at, uint32_t index)
{
    uint64_t page = page_of(plan, layers, at);
    for (uint32_t i = 0; i < layers.count; i++)
        if (page_of(plan, layers, i) == page && index-- == 0)
            return layers.ids[i];
    return QR_NIL;
}

/* Repeats that all page sizes have. */
static uint32_t whole_repeats(const quire_plan *plan, const type_bucket *b)
{
    uint32_t repeats = b->most;
    for (uint32_t i = 0; i < b->layers.count; i++) {
        uint32_t count = count_page(plan, b->layers, page_of(plan, b->layers, i));
        repeats = count < repeats ? count : repeats;
    }
    return repeats;
}

/* A repeat is one layer of each page size; group g gets every num_groups-th repeat. */
static int cut_bucket(quire_plan *plan, const type_bucket *b, uint32_t num_groups)
{
    uint32_t repeats = whole_repeats(plan, b);
    if (num_groups > repeats)
        return QUIRE_E_MIXED; /* a group without layers */
    for (uint32_t g = 0; g < num_groups; g++) {
        qr_plan_group *group = qr_plan_add_group(plan);
        for (uint32_t r = g; r < repeats; r += num_groups)
            for (uint32_t i = 0; i < b->layers.count; i++)
                if (is_first_of_page(plan, b->layers, i))
                    group->layers.ids[group->layers.count++] = layer_of_size(plan, b->layers, i, r);
        group->spec = plan->specs[group->layers.ids[0]];
    }
    return QUIRE_OK;
}

static void keep_bucket(quire_plan *plan, const type_bucket *b)
{
    qr_plan_group *group = qr_plan_add_group(plan);
    group->layers.count = b->layers.count;
    memcpy(group->layers.ids, b->layers.ids, b->layers.count * sizeof *b->layers.ids);
    group->spec = plan->specs[group->layers.ids[0]];
}

int qr_plan_group_packed(quire_plan *plan)
{
    plan->shape = QR_PLAN_PACKED;
    fill_type_buckets(plan);
    uint32_t repeats = choose_repeats(plan);
    uint64_t anchor = anchor_bytes(plan, repeats);
    for (uint32_t i = 0; i < plan->order.count; i++) {
        if (plan->buckets[i] != i)
            continue;
        type_bucket b = read_bucket(plan, i);
        uint64_t num_groups = groups_of(&b, repeats);
        if (is_state(plan, &b, repeats)) {
            uint64_t page = page_of(plan, b.layers, 0);
            uint64_t fitting = anchor / page == 0 ? 1 : anchor / page;
            uint64_t wanted = qr_cdiv_u64(b.layers.count, fitting);
            num_groups = wanted > num_groups ? wanted : num_groups;
        }
        if (num_groups == 1)
            keep_bucket(plan, &b);
        else if (cut_bucket(plan, &b, (uint32_t)num_groups) != QUIRE_OK)
            return QUIRE_E_MIXED;
    }
    return QUIRE_OK;
}
