/* api/plan_api.c - quire/plan.h, layer.h and model.h: argument checks, then one call inward. */
#include "base/config.h"
#include "plan/model.h"
#include "plan/plan.h"

static bool plan_ok(const quire_plan *plan)
{
    return plan != NULL && plan->magic == QR_PLAN_MAGIC;
}

/* ---- making ---------------------------------------------------------------- */

int quire_plan_create(const quire_plan_params *params, const quire_allocator *allocator,
                      quire_plan **plan)
{
    quire_plan_params c;
    if (plan == NULL)
        return QUIRE_E_ARGUMENT;
    int err = qr_plan_params_read(&c, params);
    if (err != QUIRE_OK)
        return err;
    qr_owner owner;
    qr_arena arena;
    qr_arena size = qr_arena_plan();
    qr_plan_carve(&size, &c);
    err = qr_owner_begin(&owner, allocator, &size, &arena);
    if (err != QUIRE_OK)
        return err;
    quire_plan *made = qr_plan_carve(&arena, &c);
    qr_arena_seal(&arena);
    err = qr_plan_build(made, &c);
    if (err != QUIRE_OK) {
        qr_owner_release(&owner);
        return err;
    }
    made->owner = owner;
    *plan = made;
    return QUIRE_OK;
}

void quire_plan_destroy(quire_plan *plan)
{
    if (!plan_ok(plan))
        return;
    plan->magic = 0;
    qr_owner_release(&plan->owner);
}

/* ---- looking --------------------------------------------------------------- */

int quire_plan_get_info(const quire_plan *plan, quire_plan_info *info)
{
    if (!plan_ok(plan) || info == NULL)
        return QUIRE_E_ARGUMENT;
    quire_plan_info own = {.size = sizeof(quire_plan_info),
                           .num_groups = plan->num_groups,
                           .num_workers = plan->num_workers,
                           .num_blocks = plan->num_blocks,
                           .max_model_len = plan->limits.max_model_len,
                           .num_tokens = plan->num_tokens,
                           .block_size = plan->block_size,
                           .hash_block_size = plan->hash_block_size};
    return qr_struct_out(info, &own, sizeof own);
}

int quire_plan_get_group(const quire_plan *plan, uint32_t group, quire_plan_group *out)
{
    if (!plan_ok(plan) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (group >= plan->num_groups)
        return QUIRE_E_RANGE;
    const qr_plan_group *g = &plan->groups[group];
    bool differ = plan->shape == QR_PLAN_ONE_TYPE || plan->shape == QR_PLAN_TUPLES;
    uint64_t page_bytes = differ ? 0 : qr_spec_page_bytes(&g->spec);
    for (uint32_t i = 0; differ && i < g->layers.count; i++)
        page_bytes += qr_plan_page_bytes(plan, g->layers.ids[i]);
    quire_plan_group own = {.size = sizeof(quire_plan_group),
                            .spec = g->spec,
                            .layers = g->layers.ids,
                            .num_layers = g->layers.count,
                            .page_bytes = page_bytes,
                            .layers_differ = differ,
                            .is_eagle = g->is_eagle};
    return qr_struct_out(out, &own, sizeof own);
}

int quire_plan_get_worker(const quire_plan *plan, uint32_t worker, quire_plan_share *out)
{
    if (!plan_ok(plan) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (worker >= plan->num_workers)
        return QUIRE_E_RANGE;
    const qr_plan_share *share = &plan->shares[worker];
    uint64_t used = 0;
    for (uint32_t i = 0; i < share->num_tensors; i++)
        used += share->tensors[i].page_bytes * plan->num_blocks;
    quire_plan_share own = {.size = sizeof(quire_plan_share),
                            .memory_bytes = share->memory_bytes,
                            .needed_bytes = share->needed_bytes,
                            .used_bytes = used,
                            .max_concurrency = share->max_concurrency,
                            .num_layers = share->layers.count,
                            .num_tensors = share->num_tensors};
    return qr_struct_out(out, &own, sizeof own);
}

int quire_plan_get_tensor(const quire_plan *plan, uint32_t worker, uint32_t tensor,
                          quire_plan_tensor *out)
{
    if (!plan_ok(plan) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (worker >= plan->num_workers || tensor >= plan->shares[worker].num_tensors)
        return QUIRE_E_RANGE;
    const qr_plan_tensor *t = &plan->shares[worker].tensors[tensor];
    *out = (quire_plan_tensor){t->page_bytes * plan->num_blocks, t->layers.ids, t->layers.count};
    return QUIRE_OK;
}

int quire_plan_get_layer(const quire_plan *plan, uint32_t layer, quire_layer_spec *out)
{
    if (!plan_ok(plan) || out == NULL)
        return QUIRE_E_ARGUMENT;
    if (layer >= plan->num_layers)
        return QUIRE_E_RANGE;
    *out = plan->specs[layer];
    return QUIRE_OK;
}

int quire_plan_cache_config(const quire_plan *plan, quire_cache_config *config)
{
    if (!plan_ok(plan) || config == NULL)
        return QUIRE_E_ARGUMENT;
    if (!qr_struct_is_out(config, sizeof *config) ||
        config->size < offsetof(quire_cache_config, profile)) /* behind all that is set here */
        return QUIRE_E_CONFIG;
    config->num_blocks = plan->num_blocks;
    config->groups = plan->num_groups > 0 ? plan->group_configs : NULL;
    config->num_groups = plan->num_groups;
    config->max_model_len = plan->limits.max_model_len;
    config->max_num_batched_tokens = plan->limits.max_num_batched_tokens;
    config->max_encoder_tokens = plan->limits.max_encoder_tokens;
    /* With one group, the cache's own default is right. */
    config->hash_block_size = plan->caching && plan->num_groups > 1 ? plan->hash_block_size : 0;
    config->enable_caching = plan->caching ? QUIRE_ON : QUIRE_OFF;
    config->use_eagle = plan->use_eagle ? QUIRE_ON : QUIRE_OFF;
    config->dcp_world_size = plan->dcp_world_size;
    config->pcp_world_size = plan->pcp_world_size;
    return QUIRE_OK;
}

/* ---- layers and models ------------------------------------------------------ */

uint64_t quire_layer_page_bytes(const quire_layer_spec *spec)
{
    return spec == NULL ? 0 : qr_spec_page_bytes(spec);
}

int quire_model_layers(const quire_model_params *params, quire_layer_spec *layers,
                       uint32_t capacity, uint32_t *num_layers)
{
    quire_model_params p;
    if (num_layers == NULL || (layers == NULL && capacity > 0))
        return QUIRE_E_ARGUMENT;
    int err = qr_model_params_read(&p, params);
    return err == QUIRE_OK ? qr_model_layers(&p, layers, capacity, num_layers) : err;
}
