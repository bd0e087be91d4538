/* plan_memory.c - how many tokens fit on a GPU: from a model's config.json to a cache.
 *
 *      config.json  ->  layers  ->  groups, tensors, blocks  ->  a KV cache
 *
 * A model with a window in five of six layers, one with Mamba layers, and one that is too large for
 * its GPU. Parsing config.json is left to the program; here its fields are written out.
 */
#include <quire/cache.h>
#include <quire/cost.h>
#include <quire/model.h>
#include <quire/plan.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_LAYERS 128
#define GIB        (UINT64_C(1) << 30)

static void must(int status, const char *what)
{
    if (status != QUIRE_OK) {
        fprintf(stderr, "%s: %s\n", what, quire_strerror(status));
        exit(1);
    }
}

static const char *kind_name(quire_layer_kind kind)
{
    switch (kind) {
    case QUIRE_LAYER_FULL:
        return "full attention";
    case QUIRE_LAYER_SLIDING_WINDOW:
        return "sliding window";
    case QUIRE_LAYER_MAMBA:
        return "Mamba state";
    default:
        return "other";
    }
}

static void print_plan(const quire_plan *plan)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_share worker = QUIRE_PLAN_SHARE_INIT;
    must(quire_plan_get_info(plan, &info), "info");
    must(quire_plan_get_worker(plan, 0, &worker), "worker");
    for (uint32_t g = 0; g < info.num_groups; g++) {
        quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
        must(quire_plan_get_group(plan, g, &group), "group");
        printf("  group %u   %2u layers, %-14s  block of %6u tokens, page of %" PRIu64 " bytes\n",
               g, group.num_layers, kind_name(group.spec.kind), group.spec.block_size,
               group.page_bytes);
    }
    printf("  blocks    %u in %u tensors, %.2f GiB of %.2f GiB\n", info.num_blocks,
           worker.num_tensors, (double)worker.used_bytes / (double)GIB,
           (double)worker.memory_bytes / (double)GIB);
    printf("  requests  %.2f of %u tokens at one time\n", worker.max_concurrency,
           info.max_model_len);
}

/* The plan's numbers are what a cache is made with. */
static void make_cache(const quire_plan *plan)
{
    quire_cache_config config = QUIRE_CACHE_CONFIG_INIT;
    quire_cache *cache = NULL;
    must(quire_plan_cache_config(plan, &config), "config");
    config.max_requests = 16;
    must(quire_cache_create(&config, NULL, &cache), "cache");
    printf("  cache     %u group(s), hashes of %u tokens\n",
           quire_cache_get_counts(cache).num_groups, quire_cache_get_counts(cache).hash_block_size);
    quire_cache_destroy(cache);
}

static void plan_model(const char *name, quire_model_params model, uint64_t gpu_bytes)
{
    quire_layer_spec layers[MAX_LAYERS];
    quire_plan_shortage shortage = QUIRE_PLAN_SHORTAGE_INIT;
    quire_plan_worker worker = {.memory_bytes = gpu_bytes};
    quire_plan_params params = QUIRE_PLAN_PARAMS_INIT;
    quire_plan *plan = NULL;
    must(quire_model_layers(&model, layers, MAX_LAYERS, &params.num_layers), "layers");
    printf("%s: %u layers, %" PRIu64 " bytes for a block in all of them\n", name, params.num_layers,
           quire_cost_block_bytes(layers, params.num_layers));
    params.layers = layers;
    params.workers = &worker;
    params.num_workers = 1;
    params.max_model_len = model.max_position_embeddings;
    params.max_num_batched_tokens = 8192;
    params.shortage = &shortage;
    int status = quire_plan_create(&params, NULL, &plan);
    if (status == QUIRE_E_MEMORY_LIMIT) {
        printf("  %s\n  a request of %u tokens needs %.2f GiB; one of %u tokens fits\n",
               quire_strerror(status), shortage.max_model_len,
               (double)shortage.needed_bytes / (double)GIB, shortage.fitting_max_len);
        params.auto_fit = QUIRE_ON; /* take the longest that fits */
        status = quire_plan_create(&params, NULL, &plan);
    }
    must(status, "plan");
    print_plan(plan);
    make_cache(plan);
    quire_plan_destroy(plan);
}

int main(void)
{
    quire_model_params gemma = QUIRE_MODEL_PARAMS_INIT; /* Gemma 3 27B */
    gemma.model_type = "gemma3_text";
    gemma.num_hidden_layers = 62;
    gemma.hidden_size = 5376;
    gemma.num_attention_heads = 32;
    gemma.num_key_value_heads = 16;
    gemma.head_dim = 128;
    gemma.sliding_window = 1024;
    gemma.sliding_window_pattern = 6;
    gemma.max_position_embeddings = 131072;
    plan_model("Gemma 3 27B, 24 GiB free", gemma, 24 * GIB);

    quire_model_params next = QUIRE_MODEL_PARAMS_INIT; /* Qwen3-Next 80B on 2 GPUs: one of them */
    next.model_type = "qwen3_next";
    next.num_hidden_layers = 48;
    next.hidden_size = 2048;
    next.num_attention_heads = 16;
    next.num_key_value_heads = 2;
    next.head_dim = 256;
    next.full_attention_interval = 4;
    next.linear_num_key_heads = 16;
    next.linear_num_value_heads = 32;
    next.linear_key_head_dim = 128;
    next.linear_value_head_dim = 128;
    next.linear_conv_kernel_dim = 4;
    next.max_position_embeddings = 262144;
    next.tensor_parallel_size = 2;
    next.mamba_mode = QUIRE_MAMBA_MODE_ALIGN; /* so that prefixes can be cached */
    plan_model("Qwen3-Next 80B, 40 GiB free", next, 40 * GIB);

    quire_model_params llama = QUIRE_MODEL_PARAMS_INIT; /* Llama 3.1 70B */
    llama.model_type = "llama";
    llama.num_hidden_layers = 80;
    llama.hidden_size = 8192;
    llama.num_attention_heads = 64;
    llama.num_key_value_heads = 8;
    llama.max_position_embeddings = 131072;
    plan_model("Llama 3.1 70B, 16 GiB free", llama, 16 * GIB);
    return 0;
}
