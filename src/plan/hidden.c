#include "plan/hidden.h"

#include "plan/groups.h"

qr_layers qr_plan_set_hidden_aside(quire_plan *plan)
{
    uint32_t num_hidden = 0;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < plan->order.count; i++) {
        uint32_t layer = plan->order.ids[i];
        if (plan->specs[layer].kind == QUIRE_LAYER_HIDDEN_STATE)
            plan->members[num_hidden++] = layer;
        else
            plan->order.ids[kept++] = layer;
    }
    plan->order.count = kept;
    uint32_t *behind = plan->order.ids + kept;
    memcpy(behind, plan->members, num_hidden * sizeof *behind);
    return (qr_layers){behind, num_hidden};
}

static void add_hidden_group(quire_plan *plan, uint32_t layer)
{
    qr_plan_group *group = qr_plan_add_group(plan);
    group->layers.ids[group->layers.count++] = layer;
    group->spec = plan->specs[layer];
    group->is_alone = true;
}

void qr_plan_add_hidden_packed(quire_plan *plan, qr_layers hidden)
{
    for (uint32_t i = 0; i < hidden.count; i++)
        add_hidden_group(plan, hidden.ids[i]);
}

static uint64_t token_bytes(const quire_layer_spec *spec)
{
    return qr_mul_u64((uint64_t)spec->num_kv_heads * spec->head_size,
                      quire_dtype_bytes(spec->dtype));
}

static bool grow_spec(quire_layer_spec *spec, uint64_t times)
{
    uint64_t block_size = qr_mul_u64(spec->block_size, times);
    if (block_size > UINT32_MAX)
        return false;
    spec->page_size_padded = qr_mul_u64(spec->page_size_padded, times);
    spec->block_size = (uint32_t)block_size;
    return true;
}

/* Makes all blocks of the groups this many times as large. */
static bool grow_groups(quire_plan *plan, uint64_t times)
{
    bool fits = true;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        qr_plan_group *group = &plan->groups[g];
        fits = fits && grow_spec(&group->spec, times);
        for (uint32_t i = 0; i < group->layers.count && fits; i++)
            fits = grow_spec(&plan->specs[group->layers.ids[i]], times);
    }
    return fits;
}

/* Divisors come in pairs, of which one is not above the root: 65,536 at most are tried. */
static uint32_t largest_divisor(uint32_t value, uint64_t most)
{
    uint32_t largest = 1;
    for (uint64_t small = 1; small * small <= value; small++) {
        uint64_t large = value / small;
        if (value % small != 0)
            continue;
        if (large <= most)
            return (uint32_t)large;
        largest = small <= most ? (uint32_t)small : largest;
    }
    return largest;
}

int qr_plan_add_hidden_pages(quire_plan *plan, qr_layers hidden)
{
    uint64_t page = qr_page_bytes(&plan->groups[0].spec);
    uint64_t most = 0;
    uint64_t common = 0;
    for (uint32_t i = 0; i < hidden.count; i++) {
        uint64_t bytes = token_bytes(&plan->specs[hidden.ids[i]]);
        most = bytes > most ? bytes : most;
    }
    uint64_t times = qr_cdiv_u64(most, page);
    if (times > 1) {
        if (!grow_groups(plan, times))
            return QUIRE_E_MIXED;
        page = qr_mul_u64(page, times);
    }
    for (uint32_t g = 0; g < plan->num_groups; g++)
        common = qr_gcd(common, plan->groups[g].spec.block_size);
    for (uint32_t i = 0; i < hidden.count; i++) {
        quire_layer_spec *spec = &plan->specs[hidden.ids[i]];
        uint64_t held = page / token_bytes(spec);
        spec->page_size_padded = page;
        *spec =
            qr_page_with_block_size(spec, largest_divisor((uint32_t)common, held == 0 ? 1 : held));
        if (qr_page_bytes(spec) == 0)
            return QUIRE_E_MIXED;
        add_hidden_group(plan, hidden.ids[i]);
    }
    return QUIRE_OK;
}
