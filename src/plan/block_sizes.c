#include "plan/block_sizes.h"

#include "base/assert.h"
#include "base/refuse.h"

/* ---- vLLM 0.20 -------------------------------------------------------------- */

static int choose_hash_block_size(quire_plan *plan, const quire_plan_params *p, uint64_t common)
{
    bool mamba_differs = false;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        mamba_differs = mamba_differs || (plan->groups[g].spec.kind == QUIRE_LAYER_MAMBA &&
                                          plan->groups[g].spec.block_size != p->block_size);
    plan->hash_block_size = plan->block_size;
    if (!plan->hashing || mamba_differs)
        return QUIRE_OK;
    if (p->hash_block_size > 0 && common % p->hash_block_size != 0)
        return qr_refuse(
            "invalid hash_block_size %u (expected a divisor of %llu, which divides the "
            "block sizes of all groups)",
            p->hash_block_size, (unsigned long long)common);
    plan->hash_block_size = p->hash_block_size > 0 ? p->hash_block_size : (uint32_t)common;
    return QUIRE_OK;
}

static int resolve_by_ranks(quire_plan *plan, const quire_plan_params *p)
{
    uint64_t block_size = p->block_size;
    uint64_t common = 0;
    if (plan->num_groups <= 1) {
        block_size = qr_mul_u64(block_size, plan->limits.cp_world_size);
        if (block_size > UINT32_MAX)
            return QUIRE_E_RANGE;
        plan->block_size = plan->hash_block_size = (uint32_t)block_size;
        return QUIRE_OK;
    }
    if (plan->limits.cp_world_size > 1)
        return qr_refuse("dcp_world_size %u and pcp_world_size %u: context parallelism needs one "
                         "group, and these layers need %u",
                         p->dcp_world_size, p->pcp_world_size, plan->num_groups);
    block_size = 1;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        uint64_t of_group = plan->groups[g].spec.block_size;
        common = qr_gcd(common, of_group);
        block_size = qr_mul_u64(block_size / qr_gcd(block_size, of_group), of_group);
        if (block_size > UINT32_MAX)
            return QUIRE_E_RANGE;
    }
    plan->block_size = (uint32_t)block_size;
    return choose_hash_block_size(plan, p, common);
}

/* ---- vLLM 0.32 -------------------------------------------------------------- */

/* Mamba states are whole on each rank. */
static uint64_t tokens_of_block(const quire_plan *plan, uint32_t group)
{
    const quire_layer_spec *spec = &plan->groups[group].spec;
    uint32_t ranks = spec->kind == QUIRE_LAYER_MAMBA ? 1 : plan->dcp_world_size;
    return qr_mul_u64(spec->block_size, ranks);
}

static bool has_mamba_outside_align(const quire_plan *plan)
{
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (plan->groups[g].spec.kind == QUIRE_LAYER_MAMBA &&
            plan->groups[g].spec.mamba_mode != QUIRE_MAMBA_MODE_ALIGN)
            return true;
    return false;
}

/* Hits may end inside a block of Mamba in align mode. */
static bool has_partial_hits(const quire_plan *plan)
{
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        const quire_layer_spec *spec = &plan->groups[g].spec;
        bool is_partial = plan->dcp_world_size > 1 ? spec->block_size >= plan->hash_block_size
                                                   : spec->block_size > plan->hash_block_size;
        if (spec->kind == QUIRE_LAYER_MAMBA && is_partial)
            return true;
    }
    return false;
}

/* A hit must not end between tokens that share one latent vector. */
static int check_shared_states(const quire_plan *plan)
{
    uint32_t hit = has_partial_hits(plan) ? plan->hash_block_size : plan->block_size;
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        uint32_t ratio = plan->groups[g].spec.compress_ratio;
        if (ratio > 1 && hit % ratio != 0)
            return qr_refuse("invalid compress_ratio %u of group %u (hits end at multiples of %u "
                             "tokens)",
                             ratio, g, hit);
    }
    return QUIRE_OK;
}

static int resolve_one_group(quire_plan *plan, const quire_plan_params *p)
{
    bool is_sharded = plan->num_groups == 0 || plan->groups[0].spec.kind != QUIRE_LAYER_MAMBA;
    uint64_t block_size = qr_mul_u64(p->block_size, is_sharded ? p->dcp_world_size : 1);
    if (block_size > UINT32_MAX)
        return QUIRE_E_RANGE;
    plan->block_size = plan->hash_block_size = (uint32_t)block_size;
    bool is_other = p->hash_block_size > 0 && p->hash_block_size != plan->hash_block_size;
    if (is_other && plan->hashing && plan->num_groups == 1)
        return qr_refuse("invalid hash_block_size %u (expected %u: there is one group)",
                         p->hash_block_size, plan->hash_block_size);
    return QUIRE_OK;
}

static int resolve_by_groups(quire_plan *plan, const quire_plan_params *p)
{
    uint64_t block_size = 1;
    uint64_t common = 0; /* of groups whose blocks get keys; else of all */
    uint64_t all = 0;
    if (plan->num_groups <= 1)
        return resolve_one_group(plan, p);
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        uint64_t of_group = tokens_of_block(plan, g);
        all = qr_gcd(all, of_group);
        if (qr_spec_is_cacheable(&plan->groups[g].spec))
            common = qr_gcd(common, of_group);
        block_size = qr_mul_u64(block_size / qr_gcd(block_size, of_group), of_group);
        if (block_size > UINT32_MAX)
            return QUIRE_E_RANGE;
    }
    plan->block_size = plan->hash_block_size = (uint32_t)block_size;
    if (!plan->hashing || has_mamba_outside_align(plan))
        return QUIRE_OK;
    common = common == 0 ? all : common;
    plan->hash_block_size = p->hash_block_size > 0 ? p->hash_block_size : (uint32_t)common;
    qr_assert(plan->hash_block_size > 0);
    if (common % plan->hash_block_size != 0)
        return qr_refuse("invalid hash_block_size %u (expected a divisor of %llu, which divides "
                         "the block sizes of all groups)",
                         p->hash_block_size, (unsigned long long)common);
    return check_shared_states(plan);
}

int qr_plan_resolve_block_sizes(quire_plan *plan, const quire_plan_params *p)
{
    return plan->by_layout ? resolve_by_groups(plan, p) : resolve_by_ranks(plan, p);
}
