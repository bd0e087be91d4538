#include "plan/plan.h"

#include "base/assert.h"
#include "base/hooks.h"
#include "base/refuse.h"
#include "base/rules.h"
#include "plan/block_sizes.h"
#include "plan/buckets.h"
#include "plan/groups.h"
#include "plan/memory.h"
#include "plan/placement.h"
#include "plan/tuples.h"

/* ---- params ---------------------------------------------------------------- */

/* What plans of vLLM 0.32 alone have. */
static int check_newer_fields(const quire_plan_params *p)
{
    if (qr_rules_of(p->profile)->plans_by_layout)
        return QUIRE_OK;
    const qr_field fields[] = {
        QR_FIELD(p, kv_layout, 0, 0),
        QR_FIELD(p, max_in_flight_tokens, 0, 0),
        QR_FIELD(p, num_prefill_lookahead, 0, 0),
        QR_FIELD(p, use_mtp, 0, 0),
    };
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    return qr_refuse_in(err, "profile %d", (int)p->profile);
}

static int check_plan_params(const quire_plan_params *p)
{
    const qr_field fields[] = {
        QR_FIELD(p, num_workers, 1, UINT64_MAX),
        QR_FIELD(p, max_model_len, 1, UINT64_MAX),
        QR_FIELD(p, auto_fit, 0, QUIRE_OFF),
        QR_FIELD(p, hybrid, 0, QUIRE_OFF),
        QR_FIELD(p, use_eagle, 0, QUIRE_OFF),
        QR_FIELD(p, enable_caching, 0, QUIRE_OFF),
        QR_FIELD(p, use_connector, 0, QUIRE_OFF),
        QR_FIELD(p, dcp_world_size, 0, UINT32_MAX / p->pcp_world_size),
        QR_FIELD(p, profile, 0, QUIRE_PROFILE_VLLM_0_32),
        QR_FIELD(p, kv_layout, 0, QUIRE_KV_LAYOUT_BHLNC),
        QR_FIELD(p, use_mtp, 0, QUIRE_OFF),
    };
    int err = qr_refuse_fields(fields, sizeof fields / sizeof *fields);
    if (err == QUIRE_OK)
        err = check_newer_fields(p);
    if (err == QUIRE_OK && p->layers == NULL && p->num_layers > 0)
        return qr_refuse("layers is NULL, but num_layers is %u", p->num_layers);
    if (err == QUIRE_OK && p->workers == NULL)
        return qr_refuse("workers is NULL, but num_workers is %u", p->num_workers);
    for (uint32_t i = 0; i < p->num_layers && err == QUIRE_OK; i++) {
        const quire_layer_spec *spec = &p->layers[i];
        bool by_layout = qr_rules_of(p->profile)->plans_by_layout;
        err = qr_refuse_in(by_layout ? qr_page_check(spec) : qr_spec_check(spec), "layers[%u]", i);
        if (err == QUIRE_OK && !by_layout && qr_spec_is_new(spec))
            err = qr_refuse("layers[%u]: invalid kind %d (only plans of vLLM 0.32 have layers of "
                            "this kind)",
                            i, (int)spec->kind);
        if (err == QUIRE_OK && spec->kind == QUIRE_LAYER_CROSS && p->max_encoder_tokens == 0)
            err = qr_refuse("layers[%u]: cross attention needs max_encoder_tokens", i);
    }
    for (uint32_t w = 0; w < p->num_workers && err == QUIRE_OK; w++)
        if (p->workers[w].layers == NULL && p->workers[w].num_layers > 0)
            err = qr_refuse("workers[%u]: layers is NULL, but num_layers is %u", w,
                            p->workers[w].num_layers);
    return err;
}

int qr_plan_params_read(quire_plan_params *out, const quire_plan_params *params)
{
    int err = qr_refuse_reading(out, sizeof *out, params, "quire_plan_params");
    if (err != QUIRE_OK)
        return err;
    out->dcp_world_size = out->dcp_world_size == 0 ? 1 : out->dcp_world_size;
    out->pcp_world_size = out->pcp_world_size == 0 ? 1 : out->pcp_world_size;
    if (out->max_num_batched_tokens == 0)
        out->max_num_batched_tokens = out->max_model_len;
    return check_plan_params(out);
}

/* ---- memory ---------------------------------------------------------------- */

static uint32_t layers_on_worker(const quire_plan_params *p, uint32_t worker)
{
    return p->workers[worker].layers == NULL ? p->num_layers : p->workers[worker].num_layers;
}

/* Each layer is in one tensor. Tuples may have empty ones: at most one for each page size that MLA
 * layers have, for each layer. */
static size_t most_tensors(const quire_plan_params *p, uint32_t num_layers)
{
    uint32_t num_latent = 0;
    bool windows = false;
    for (uint32_t i = 0; i < p->num_layers; i++) {
        num_latent += p->layers[i].kind == QUIRE_LAYER_MLA;
        windows = windows || p->layers[i].kind == QUIRE_LAYER_SLIDING_WINDOW_MLA;
    }
    return windows ? qr_mul_size(num_layers, (size_t)num_latent + 1) : num_layers;
}

quire_plan *qr_plan_carve(qr_arena *arena, const quire_plan_params *p)
{
    quire_plan empty = {0};
    quire_plan *plan = qr_arena_take(arena, 1, sizeof *plan);
    quire_plan *to = plan == NULL ? &empty : plan;
    size_t n = p->num_layers;
    *to = empty;
    to->specs = qr_arena_take(arena, n, sizeof *to->specs);
    to->order.ids = qr_arena_take(arena, n, sizeof *to->order.ids);
    to->marks = qr_arena_take(arena, n, sizeof *to->marks);
    to->merges = qr_arena_take(arena, n, sizeof(const quire_layer_spec *));
    to->groups = qr_arena_take(arena, n, sizeof *to->groups);
    to->group_layers = qr_arena_take(arena, n, sizeof *to->group_layers);
    to->group_configs = qr_arena_take(arena, n, sizeof *to->group_configs);
    bool by_layout = qr_rules_of(p->profile)->plans_by_layout;
    to->buckets = by_layout ? qr_arena_take(arena, n, sizeof *to->buckets) : NULL;
    to->members = by_layout ? qr_arena_take(arena, n, sizeof *to->members) : NULL;
    to->shares = qr_arena_take(arena, p->num_workers, sizeof *to->shares);
    for (uint32_t w = 0; w < p->num_workers; w++) {
        qr_plan_share share = {.memory_bytes = p->workers[w].memory_bytes};
        uint32_t count = layers_on_worker(p, w);
        share.layers.ids = qr_arena_take(arena, count, sizeof *share.layers.ids);
        share.parts = qr_arena_take(arena, n, sizeof *share.parts);
        /* By layout a worker may have tensors of layers that it lacks. */
        share.tensors =
            qr_arena_take(arena, by_layout ? n : most_tensors(p, count), sizeof *share.tensors);
        share.tensor_layers =
            qr_arena_take(arena, by_layout ? n : count, sizeof *share.tensor_layers);
        if (plan != NULL)
            plan->shares[w] = share;
    }
    return plan;
}

/* ---- building -------------------------------------------------------------- */

uint64_t qr_plan_spec_page_bytes(const quire_plan *plan, const quire_layer_spec *spec)
{
    return plan->by_layout ? qr_page_bytes(spec) : qr_spec_page_bytes(spec);
}

uint64_t qr_plan_page_bytes(const quire_plan *plan, uint32_t layer)
{
    return qr_plan_spec_page_bytes(plan, &plan->specs[layer]);
}

bool qr_plan_pages_differ(const quire_plan *plan, uint32_t group)
{
    bool differ = plan->shape == QR_PLAN_ONE_TYPE || plan->shape == QR_PLAN_TUPLES ||
                  plan->shape == QR_PLAN_PACKED;
    return differ && !plan->groups[group].is_alone;
}

/* The layers of one worker, without those that keep nothing. marks: 0 for a layer that no worker
 * has had, else 1 + the last that had it. */
static int read_worker(quire_plan *plan, const quire_plan_params *p, uint32_t worker)
{
    qr_plan_share *share = &plan->shares[worker];
    const uint32_t *given = p->workers[worker].layers;
    uint32_t count = layers_on_worker(p, worker);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t layer = given == NULL ? i : given[i];
        if (layer >= plan->num_layers || plan->marks[layer] == worker + 1)
            return qr_refuse("workers[%u].layers[%u] is %u, which is listed twice or not a layer "
                             "(there are %u)",
                             worker, i, layer, plan->num_layers);
        bool keeps = plan->specs[layer].kind != QUIRE_LAYER_ENCODER_ONLY;
        if (keeps && plan->marks[layer] == 0)
            plan->order.ids[plan->order.count++] = layer;
        if (keeps)
            share->layers.ids[share->layers.count++] = layer;
        plan->marks[layer] = worker + 1;
    }
    return QUIRE_OK;
}

static int read_workers(quire_plan *plan, const quire_plan_params *p)
{
    memset(plan->marks, 0, plan->num_layers * sizeof *plan->marks);
    for (uint32_t w = 0; w < plan->num_workers; w++) {
        int err = read_worker(plan, p, w);
        if (err != QUIRE_OK)
            return err;
    }
    for (uint32_t i = 0; i < plan->num_layers; i++)
        if (plan->marks[i] == 0)
            return qr_refuse("layers[%u] is on no worker", i);
    for (uint32_t w = 0; w < plan->num_workers; w++)
        if (plan->order.count > 0 && plan->shares[w].layers.count == 0)
            return qr_refuse("workers[%u] has no layer that keeps KV", w);
    return QUIRE_OK;
}

/* The parts of the groups on one worker. */
static void project_groups(quire_plan *plan, qr_plan_share *share)
{
    memset(plan->marks, 0, plan->num_layers * sizeof *plan->marks);
    for (uint32_t i = 0; i < share->layers.count; i++)
        plan->marks[share->layers.ids[i]] = 1;
    uint32_t *at = share->layers.ids; /* the parts take the place of the list, which ends here */
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        qr_plan_part *part = &share->parts[g];
        const qr_layers *group = &plan->groups[g].layers;
        part->layers = (qr_layers){at, 0};
        for (uint32_t i = 0; i < group->count; i++)
            if (plan->marks[group->ids[i]] == 1)
                part->layers.ids[part->layers.count++] = group->ids[i];
        part->counted = part->layers.count > 0 ? part->layers : *group;
        at += part->layers.count;
    }
}

/* What a worker's memory holds for requests. vLLM 0.32 leaves out the null block, and takes blocks
 * that were given for the memory. */
static uint64_t usable_bytes(const quire_plan *plan, const quire_plan_params *p,
                             const qr_plan_share *share)
{
    if (!plan->by_layout)
        return share->memory_bytes;
    uint64_t bytes = p->num_blocks_override == 0
                         ? share->memory_bytes
                         : qr_mul_u64(p->num_blocks_override, share->block_bytes);
    return bytes > share->block_bytes ? bytes - share->block_bytes : 0;
}

static int report_shortage(const quire_plan *plan, const quire_plan_params *p, uint32_t worker)
{
    const qr_plan_share *share = &plan->shares[worker];
    uint32_t len = plan->limits.max_model_len;
    uint64_t usable = usable_bytes(plan, p, share);
    quire_plan_shortage own = {.worker = worker,
                               .memory_bytes = usable,
                               .needed_bytes = qr_plan_needed_bytes(plan, share, len),
                               .max_model_len = len,
                               .fitting_max_len = qr_plan_fitting_len(plan, share, usable, len)};
    (void)qr_struct_out(p->shortage, &own, sizeof own);
    return QUIRE_E_MEMORY_LIMIT;
}

static int fit_max_model_len(quire_plan *plan, const quire_plan_params *p)
{
    uint32_t fitting = plan->limits.max_model_len;
    for (uint32_t w = 0; w < plan->num_workers; w++) {
        const qr_plan_share *share = &plan->shares[w];
        uint32_t len = qr_plan_fitting_len(plan, share, usable_bytes(plan, p, share),
                                           plan->limits.max_model_len);
        if (len == 0)
            return report_shortage(plan, p, w);
        fitting = len < fitting ? len : fitting;
    }
    plan->limits.max_model_len = fitting;
    return QUIRE_OK;
}

static int check_memory(quire_plan *plan, const quire_plan_params *p)
{
    if (plan->num_groups == 0)
        return QUIRE_OK;
    for (uint32_t w = 0; w < plan->num_workers && plan->by_layout; w++)
        plan->shares[w].block_bytes = qr_placement_block_bytes(plan, &plan->shares[w]);
    int err = p->auto_fit == QUIRE_ON ? fit_max_model_len(plan, p) : QUIRE_OK;
    for (uint32_t w = 0; w < plan->num_workers && err == QUIRE_OK; w++) {
        qr_plan_share *share = &plan->shares[w];
        share->needed_bytes = qr_plan_needed_bytes(plan, share, plan->limits.max_model_len);
        if (share->needed_bytes > usable_bytes(plan, p, share))
            err = report_shortage(plan, p, w);
    }
    return err;
}

/* Beside latent layers with windows, others have no place; nor have windows whose page size none of
 * the worker's full latent layers has. */
static bool all_layers_placed(const qr_plan_share *share)
{
    uint32_t placed = 0;
    for (uint32_t i = 0; i < share->num_tensors; i++)
        placed += share->tensors[i].layers.count;
    return placed == share->layers.count;
}

static bool all_layers_grouped(const quire_plan *plan, const qr_plan_share *share)
{
    uint32_t grouped = 0;
    for (uint32_t g = 0; g < plan->num_groups; g++)
        grouped += share->parts[g].layers.count;
    return grouped == share->layers.count;
}

/* By layout, tensors are made when the number of blocks is known. */
static int make_worker_tensors(const quire_plan *plan, qr_plan_share *share)
{
    if (plan->by_layout)
        return all_layers_grouped(plan, share) ? QUIRE_OK : QUIRE_E_MIXED;
    qr_plan_make_tensors(plan, share);
    for (uint32_t i = 0; i < share->num_tensors; i++)
        share->block_bytes = qr_add_u64(share->block_bytes, share->tensors[i].page_bytes);
    return all_layers_placed(share) ? QUIRE_OK : QUIRE_E_MIXED;
}

/* The blocks that all workers can hold. */
static int count_blocks(quire_plan *plan, const quire_plan_params *p)
{
    uint64_t fewest = UINT64_MAX;
    for (uint32_t w = 0; w < plan->num_workers; w++) {
        qr_plan_share *share = &plan->shares[w];
        int err = make_worker_tensors(plan, share);
        if (err != QUIRE_OK)
            return err;
        bool override = p->num_blocks_override > 0 && plan->num_groups > 0;
        uint64_t blocks = override ? p->num_blocks_override : qr_plan_blocks_in_memory(plan, share);
        if (blocks == 0)
            return report_shortage(plan, p, w);
        if (plan->by_layout && qr_mul_u64(blocks, share->block_bytes) == UINT64_MAX)
            return QUIRE_E_RANGE;
        fewest = blocks < fewest ? blocks : fewest;
    }
    if (fewest > UINT32_MAX)
        return QUIRE_E_RANGE;
    plan->num_blocks = (uint32_t)fewest;
    for (uint32_t w = 0; w < plan->num_workers && plan->num_groups > 0; w++)
        plan->shares[w].max_concurrency = qr_plan_concurrency(plan, &plan->shares[w]);
    int err = QUIRE_OK;
    for (uint32_t w = 0; w < plan->num_workers && plan->by_layout && err == QUIRE_OK; w++)
        err = qr_placement_make_tensors(plan, &plan->shares[w]);
    return err;
}

/* ---- for the scheduler ----------------------------------------------------- */

/* The groups as the scheduler sees them: those of the first worker. */
static void describe_groups(quire_plan *plan)
{
    for (uint32_t g = 0; g < plan->num_groups; g++) {
        qr_plan_group *group = &plan->groups[g];
        const qr_plan_part *part = &plan->shares[0].parts[g];
        if (qr_plan_pages_differ(plan, g))
            group->spec = plan->specs[part->counted.ids[0]];
        plan->group_configs[g] = (quire_group_config){
            .spec = group->spec, .is_eagle = group->is_eagle && part->layers.count > 0};
    }
}

/* Keys and values of an encoder's tokens are not found by hashes of the prompt. */
static bool can_cache(const quire_plan *plan)
{
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (plan->groups[g].spec.kind == QUIRE_LAYER_CROSS)
            return false;
    return plan->num_groups > 0;
}

/* vLLM 0.32 counts what requests of the maximum length hold. */
static uint64_t count_tokens(const quire_plan *plan, uint32_t least_block_size)
{
    if (!plan->by_layout)
        return (uint64_t)(plan->num_blocks / plan->num_groups) * least_block_size *
               plan->limits.cp_world_size;
    double tokens = plan->shares[0].max_concurrency * plan->limits.max_model_len;
    return tokens < 0x1p64 ? (uint64_t)tokens : UINT64_MAX;
}

/* Groups without keys count where no group has any. */
static bool counts_for_hits(const quire_plan *plan, uint32_t group)
{
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (qr_spec_is_cacheable(&plan->groups[g].spec))
            return qr_spec_is_cacheable(&plan->groups[group].spec);
    return true;
}

static int describe_for_scheduler(quire_plan *plan, const quire_plan_params *params)
{
    quire_plan_params p = *params;
    uint32_t least = UINT32_MAX;
    plan->caching =
        p.enable_caching == QUIRE_DEFAULT ? can_cache(plan) : p.enable_caching == QUIRE_ON;
    plan->hashing = plan->caching || p.use_connector == QUIRE_ON;
    describe_groups(plan);
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (plan->groups[g].spec.block_size < least && counts_for_hits(plan, g))
            least = plan->groups[g].spec.block_size;
    if (plan->num_groups > 0)
        plan->num_tokens = count_tokens(plan, least);
    if (p.block_size == 0)
        p.block_size = plan->num_groups > 0 ? least : 16;
    return qr_plan_resolve_block_sizes(plan, &p);
}

static void copy_plan_params(quire_plan *plan, const quire_plan_params *p)
{
    plan->num_layers = p->num_layers;
    plan->num_workers = p->num_workers;
    plan->by_layout = qr_rules_of(p->profile)->plans_by_layout;
    for (uint32_t i = 0; i < p->num_layers; i++)
        plan->specs[i] =
            plan->by_layout ? qr_page_resolve(&p->layers[i]) : qr_spec_resolve(&p->layers[i]);
    plan->limits = (qr_limits){.max_model_len = p->max_model_len,
                               .max_num_batched_tokens = p->max_num_batched_tokens,
                               .max_encoder_tokens = p->max_encoder_tokens,
                               .cp_world_size = p->dcp_world_size * p->pcp_world_size};
    plan->dcp_world_size = p->dcp_world_size;
    plan->pcp_world_size = p->pcp_world_size;
    plan->use_eagle = p->use_eagle == QUIRE_ON;
    plan->use_mtp = p->use_mtp == QUIRE_ON;
    plan->layout = p->kv_layout == QUIRE_KV_LAYOUT_DEFAULT ? QUIRE_KV_LAYOUT_LBNHC : p->kv_layout;
    plan->num_prefill_lookahead = p->num_prefill_lookahead;
    plan->max_in_flight_tokens = p->max_in_flight_tokens;
    uint32_t in_flight =
        p->max_in_flight_tokens > 0 ? p->max_in_flight_tokens : p->max_num_batched_tokens;
    uint32_t lookahead = p->num_prefill_lookahead;
    plan->page_limits =
        (qr_page_limits){.max_model_len = p->max_model_len,
                         .max_in_flight_tokens = in_flight,
                         .max_encoder_tokens = p->max_encoder_tokens,
                         .dcp_world_size = p->dcp_world_size,
                         .extra_retained_tokens = lookahead > 1 ? lookahead - 1 : 0};
}

static bool has_window(const quire_plan *plan)
{
    for (uint32_t g = 0; g < plan->num_groups; g++)
        if (qr_spec_is_window(&plan->groups[g].spec))
            return true;
    return false;
}

int qr_plan_build(quire_plan *plan, const quire_plan_params *p)
{
    copy_plan_params(plan, p);
    int err = read_workers(plan, p);
    bool hybrid = p->hybrid != QUIRE_OFF;
    if (err == QUIRE_OK)
        err = plan->by_layout ? qr_plan_make_buckets(plan, hybrid)
                              : qr_plan_make_groups(plan, hybrid);
    if (err != QUIRE_OK)
        return err;
    for (uint32_t w = 0; w < plan->num_workers; w++)
        project_groups(plan, &plan->shares[w]);
    if (p->dcp_world_size > 1 && has_window(plan))
        return qr_refuse("invalid dcp_world_size %u (expected 1: a layer has a sliding window)",
                         p->dcp_world_size);
    err = check_memory(plan, p);
    if (err == QUIRE_OK)
        err = count_blocks(plan, p);
    if (err == QUIRE_OK)
        err = describe_for_scheduler(plan, p);
    if (err == QUIRE_OK)
        plan->magic = QR_PLAN_MAGIC;
    return err;
}
