/* plan_blocks.c - memory of a GPU, less what is no KV cache, through the library's planning. */
#include "plan_blocks.h"

#include "options/options.h"
#include "output/failure.h"

#include <quire/cost.h>

#define GIB ((double)(UINT64_C(1) << 30))

static plan_settings with_defaults(const plan_settings *given)
{
    plan_settings s = *given;
    s.tp = s.tp == 0 ? 1 : s.tp;
    s.gpu_memory_utilization = s.gpu_memory_utilization <= 0 ? 0.9 : s.gpu_memory_utilization;
    s.block_size = s.block_size == 0 ? 16 : s.block_size;
    s.max_num_batched_tokens = s.max_num_batched_tokens == 0 ? 8192 : s.max_num_batched_tokens;
    s.max_num_seqs = s.max_num_seqs == 0 ? 256 : s.max_num_seqs;
    return s;
}

/* The widest moment of a step is inside a feed-forward part, with the hidden states and what is
 * added to them beside it; at its end, logits in bfloat16 and in float32. */
static uint64_t plan_reserve_bytes(const shape *s, const plan_settings *set)
{
    const double other = 0.75 * GIB; /* the driver's context, communication, captured graphs */
    double token_bytes = 2 * (4.0 * s->hidden + 3 * shape_width(s) / set->tp);
    double row_bytes = 6.0 * s->vocab;
    return (uint64_t)(set->max_num_batched_tokens * token_bytes + set->max_num_seqs * row_bytes +
                      other);
}

/* What of the GPU's memory is for what. False where nothing is left. */
static bool share_memory(const shape *s, const gpu *g, const plan_settings *set, plan_result *r)
{
    r->budget_bytes = (uint64_t)((double)g->memory_bytes * set->gpu_memory_utilization);
    r->weight_bytes = shape_measure(s).weight_bytes / set->tp;
    r->reserve_bytes = set->reserve_bytes ? set->reserve_bytes : plan_reserve_bytes(s, set);
    uint64_t taken = r->weight_bytes + r->reserve_bytes;
    r->kv_bytes = r->budget_bytes > taken ? r->budget_bytes - taken : 0;
    if (r->kv_bytes > 0)
        return true;
    r->does_not_fit = true;
    fail_with(
        "%s does not fit: %.1f GiB of weights and %.1f GiB for activations on each of %u GPUs, "
        "of %.1f GiB that may be used of %s's memory; more GPUs (--tp), --quantization or "
        "--gpu-memory-utilization would help",
        s->name, (double)r->weight_bytes / GIB, (double)r->reserve_bytes / GIB, set->tp,
        (double)r->budget_bytes / GIB, g->name);
    return set->num_gpu_blocks > 0; /* whatever the memory: the caller says that it does not fit */
}

static int say_why(int status, const shape *s, const plan_settings *set,
                   const quire_plan_shortage *shortage)
{
    if (status == QUIRE_E_MEMORY_LIMIT)
        return fail_with(
            "a request of %u tokens needs %.2f GiB of KV cache, and there are %.2f GiB; "
            "one of %u tokens would fit (--max-model-len)",
            shortage->max_model_len, (double)shortage->needed_bytes / GIB,
            (double)shortage->memory_bytes / GIB, shortage->fitting_max_len);
    return fail_with("%s with %u tokens in a block on %u GPUs: %s", s->name, set->block_size,
                     set->tp, why_refused(status));
}

static void describe(const quire_plan *plan, plan_result *r)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_share worker = QUIRE_PLAN_SHARE_INIT;
    quire_plan_get_info(plan, &info);
    quire_plan_get_worker(plan, 0, &worker);
    r->used_bytes = worker.used_bytes;
    r->block_bytes = info.num_blocks == 0 ? 0 : worker.used_bytes / info.num_blocks;
    r->num_blocks = info.num_blocks;
    r->block_size = info.block_size;
    r->max_model_len = info.max_model_len;
    r->num_groups = info.num_groups;
    r->num_tokens = info.num_tokens;
    r->max_concurrency = worker.max_concurrency;
}

int plan_num_blocks(const shape *s, const gpu *g, const plan_settings *settings,
                    plan_result *result, quire_plan **plan)
{
    plan_settings set = with_defaults(settings);
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    quire_plan_shortage shortage = QUIRE_PLAN_SHORTAGE_INIT;
    quire_plan_worker worker = {0}; /* those of tensor parallelism are all alike */
    quire_plan_params params = QUIRE_PLAN_PARAMS_INIT;
    quire_plan *made = NULL;
    *result = (plan_result){0};
    if (!share_memory(s, g, &set, result))
        return -1;
    shape_layers_params asked = {
        .tp = set.tp, .block_size = set.block_size, .cache_dtype = set.cache_dtype};
    int status = shape_layers(s, &asked, layers, &params.num_layers);
    if (status != QUIRE_OK)
        return say_why(status, s, &set, &shortage);
    uint64_t block_bytes = quire_cost_block_bytes(layers, params.num_layers);
    for (uint32_t i = 0; i < params.num_layers; i++) /* a state does not grow with the tokens */
        if (layers[i].kind != QUIRE_LAYER_MAMBA)
            result->token_bytes += quire_layer_page_bytes(&layers[i]) / layers[i].block_size;
    worker.memory_bytes = set.num_gpu_blocks > 0
                              ? quire_cost_total_bytes(set.num_gpu_blocks, block_bytes)
                              : result->kv_bytes;
    params.layers = layers;
    params.workers = &worker;
    params.num_workers = 1;
    params.max_model_len = set.max_model_len ? set.max_model_len : s->max_model_len;
    params.auto_fit = set.max_model_len ? QUIRE_OFF : QUIRE_ON;
    params.max_num_batched_tokens = set.max_num_batched_tokens;
    params.num_blocks_override = set.num_gpu_blocks;
    params.shortage = &shortage;
    status = quire_plan_create(&params, NULL, &made);
    if (status != QUIRE_OK)
        return say_why(status, s, &set, &shortage);
    describe(made, result);
    if (plan)
        *plan = made;
    else
        quire_plan_destroy(made);
    return 0;
}
