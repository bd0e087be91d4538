/* cmd_plan.c - `quire plan`: what fits on a GPU.
 *
 *      GPU memory ─► weights, activations, KV cache ─► blocks ─► tokens ─► requests at one time
 *
 * and what another block size would change: small blocks waste less of the last one, large ones
 * make shorter tables and fewer hashes.
 */
#include "commands.h"
#include "options/engine.h"
#include "options/plan_choices.h"
#include "output/json_print.h"
#include "output/made_by.h"

#include <quire/cost.h>

#include <inttypes.h>
#include <stdio.h>

#define GIB ((double)(UINT64_C(1) << 30))

static struct {
    engine_options engine;
    plan_choice_options choices;
    uint32_t mean_tokens;
    bool json;
    bool list;
} o = {.engine = ENGINE_OPTIONS_INIT, .choices = PLAN_CHOICE_OPTIONS_INIT, .mean_tokens = 2048};

static const option table[] = {
    {"mean-tokens", OPTION_U32, &o.mean_tokens, "TOKENS",
     "mean tokens of a request, for the table of block sizes and for swap", .def = "2048", .min = 1,
     .max = 1 << 24},
    {"json", OPTION_SWITCH, &o.json, NULL, "print JSON", .def = "off", .role = OPTION_OUTPUT},
    {"list", OPTION_SWITCH, &o.list, NULL, "list the known models and GPUs", .def = "off",
     .role = OPTION_OUTPUT},
    ENGINE_MODEL_OPTIONS(o.engine),
    ENGINE_PLAN_OPTIONS(o.engine),
    PLAN_CHOICE_OPTIONS(o.choices),
    {0}};

/* ---- lists --------------------------------------------------------------- */

static void list_presets(void)
{
    char message[GPU_MESSAGE_BYTES];
    gpu g;
    printf("%-20s %8s %8s %7s %10s %12s\n", "model", "total B", "active B", "layers", "KV B/token",
           "tokens");
    for (uint32_t i = 0; shape_preset(i); i++) {
        const shape *s = shape_preset(i);
        quire_layer_spec layers[SHAPE_MAX_LAYERS];
        uint32_t num_layers = 0;
        shape_size size = shape_measure(s);
        shape_layers(s, &(shape_layers_params){.block_size = 16}, layers, &num_layers);
        printf("%-20s %8.2f %8.2f %7u %10" PRIu64 " %12u\n", s->name,
               (double)size.total_params / 1e9, (double)size.active_params / 1e9, s->num_layers,
               quire_cost_block_bytes(layers, num_layers) / 16, s->max_model_len);
    }
    printf("\n%-20s %8s %12s %12s %8s\n", "GPU", "GiB", "bf16 TFLOPS", "fp8 TFLOPS", "TB/s");
    for (uint32_t i = 0; gpu_preset_name(i); i++)
        if (gpu_find(gpu_preset_name(i), &g, message))
            printf("%-20s %8.1f %12.1f %12.1f %8.3f%s\n", g.name, (double)g.memory_bytes / GIB,
                   g.bf16_tflops, g.fp8_tflops, g.bandwidth_tbps,
                   g.is_fitted ? "  time model fitted" : "");
}

/* ---- block sizes --------------------------------------------------------- */

typedef struct size_row {
    uint32_t block_size;
    bool fits;
    plan_result plan;
    double waste;         /* share of a request's blocks that is empty on average */
    double tables_bytes;  /* of max_num_seqs requests, 4 bytes a block and group */
    double hash_per_1000; /* hashes for 1,000 tokens */
    double pool_bytes;    /* metadata of all blocks */
} size_row;

enum { NUM_SIZES = 7, MIN_SIZE = 4, BLOCK_RECORD_BYTES = 80 };

/* A last block is half full on average: (block size - 1) / 2 tokens of a request are lost. */
static double mean_waste(uint32_t mean_tokens, uint32_t block_size)
{
    double lost = (block_size - 1) / 2.0;
    return lost / (mean_tokens + lost);
}

static void fill_size_row(const engine_setup *setup, const plan_settings *settings,
                          uint32_t block_size, size_row *row)
{
    char message[PLAN_MESSAGE_BYTES];
    plan_settings other = *settings;
    other.block_size = block_size;
    *row = (size_row){.block_size = block_size};
    row->fits = plan_num_blocks(&setup->shape, &setup->gpu, &other, &row->plan, NULL, message) == 0;
    row->waste = mean_waste(o.mean_tokens, block_size);
    row->hash_per_1000 = 1000.0 / block_size;
    row->tables_bytes = 4.0 * row->plan.num_groups * o.engine.plan.max_num_seqs *
                        ((double)o.mean_tokens / block_size + 1);
    row->pool_bytes = (double)BLOCK_RECORD_BYTES * row->plan.num_blocks;
}

static void fill_size_rows(const engine_setup *setup, size_row rows[NUM_SIZES])
{
    plan_settings settings = o.engine.plan;
    settings.num_gpu_blocks = 0;
    for (uint32_t i = 0; i < NUM_SIZES; i++)
        fill_size_row(setup, &settings, (uint32_t)MIN_SIZE << i, &rows[i]);
}

static void print_sizes(const size_row rows[NUM_SIZES])
{
    printf("\nBlock sizes, for requests of %u tokens on average, their ends anywhere in a block\n",
           o.mean_tokens);
    printf("%7s %12s %12s %10s %11s %13s %12s\n", "tokens", "blocks", "wasted", "requests",
           "hashes/1k", "tables MiB", "pool MiB");
    for (uint32_t i = 0; i < NUM_SIZES; i++) {
        const size_row *row = &rows[i];
        if (!row->fits) {
            printf("%7u %12s\n", row->block_size, "does not fit");
            continue;
        }
        double useful = (double)row->plan.num_tokens * (1 - row->waste);
        printf("%7u %12u %11.2f%% %10.0f %11.1f %13.2f %12.1f\n", row->block_size,
               row->plan.num_blocks, 100 * row->waste, useful / o.mean_tokens, row->hash_per_1000,
               row->tables_bytes / 1048576.0, row->pool_bytes / 1048576.0);
    }
}

/* ---- the plan ------------------------------------------------------------ */

static const char *kind_of_layers(quire_layer_kind kind)
{
    switch (kind) {
    case QUIRE_LAYER_FULL:
        return "full attention";
    case QUIRE_LAYER_MLA:
        return "latent attention";
    case QUIRE_LAYER_SLIDING_WINDOW:
        return "sliding window";
    case QUIRE_LAYER_CHUNKED_LOCAL:
        return "chunks of attention";
    case QUIRE_LAYER_MAMBA:
        return "state of linear attention";
    default:
        return "other";
    }
}

static void print_groups(const quire_plan *plan)
{
    quire_plan_info info = QUIRE_PLAN_INFO_INIT;
    quire_plan_group group = QUIRE_PLAN_GROUP_INIT;
    if (quire_plan_get_info(plan, &info) != QUIRE_OK)
        return;
    for (uint32_t i = 0; i < info.num_groups; i++)
        if (quire_plan_get_group(plan, i, &group) == QUIRE_OK)
            printf("  group %-12u %u layers, %s, blocks of %u tokens\n", i, group.num_layers,
                   kind_of_layers(group.spec.kind), group.spec.block_size);
}

static void print_text(const engine_setup *setup, const plan_result *r, const quire_plan *plan)
{
    const shape *s = &setup->shape;
    shape_size size = shape_measure(s);
    printf("%s on %u x %s\n", s->name, o.engine.plan.tp, setup->gpu.name);
    if (!s->needs_weights)
        printf("  parameters         %.2f billion, %.2f of them for each token\n",
               (double)size.total_params / 1e9, (double)size.active_params / 1e9);
    printf("  memory             %.2f GiB, %.2f of them for the engine%s\n",
           (double)setup->gpu.memory_bytes / GIB, (double)r->budget_bytes / GIB,
           o.engine.plan.tp > 1 ? "; all figures are for one GPU" : "");
    printf("  weights            %.2f GiB%s\n", (double)r->weight_bytes / GIB,
           s->weight_bytes > 0 ? " (--weight-bytes)" : "");
    printf("  activations, etc.  %.2f GiB%s\n", (double)r->reserve_bytes / GIB,
           o.engine.plan.reserve_bytes ? "" : " (estimated)");
    printf("  KV cache           %.2f GiB\n", (double)r->used_bytes / GIB);
    printf("  bytes of a token   %" PRIu64 "\n", r->token_bytes);
    printf("  bytes of a block   %" PRIu64 " (%u tokens)\n", r->block_bytes, r->block_size);
    print_groups(plan);
    printf("  blocks             %u and the null block (--num-gpu-blocks %u)\n", r->num_blocks - 1,
           r->num_blocks);
    printf("  tokens             %" PRIu64 "\n", r->num_tokens);
    printf("  requests           %.2f of %u tokens at one time%s\n", r->max_concurrency,
           r->max_model_len,
           o.engine.plan.max_model_len == 0 && r->max_model_len < s->max_model_len
               ? " (longer requests do not fit)"
               : "");
}

static void print_json_sizes(const size_row rows[NUM_SIZES])
{
    bool is_first = true;
    printf("  \"block_sizes\": [");
    for (uint32_t i = 0; i < NUM_SIZES; i++) {
        if (!rows[i].fits)
            continue;
        printf("%s\n    {\"block_size\": %u, \"num_blocks\": %u, \"num_tokens\": %" PRIu64
               ", \"waste\": %.6f, \"hashes_per_1000_tokens\": %.3f, \"table_bytes\": %.0f, "
               "\"pool_bytes\": %.0f}",
               is_first ? "" : ",", rows[i].block_size, rows[i].plan.num_blocks,
               rows[i].plan.num_tokens, rows[i].waste, rows[i].hash_per_1000, rows[i].tables_bytes,
               rows[i].pool_bytes);
        is_first = false;
    }
    printf("],\n  \"made_by\": ");
    made_by_print(stdout, &cmd_plan);
    printf("\n}\n");
}

static void print_json(const engine_setup *setup, const plan_result *r, const plan_choices *choices,
                       const size_row rows[NUM_SIZES])
{
    shape_size size = shape_measure(&setup->shape);
    printf("{\n  \"model\": ");
    json_print_text(stdout, setup->shape.name);
    printf(",\n  \"gpu\": \"%s\",\n  \"tp\": %u,\n  \"fits\": %s,\n", setup->gpu.name,
           o.engine.plan.tp, r->does_not_fit ? "false" : "true");
    printf("  \"total_params\": %" PRIu64 ",\n  \"active_params\": %" PRIu64 ",\n",
           size.total_params, size.active_params);
    printf("  \"memory_bytes\": %" PRIu64 ",\n  \"budget_bytes\": %" PRIu64
           ",\n  \"weight_bytes\": %" PRIu64 ",\n  \"reserve_bytes\": %" PRIu64
           ",\n  \"kv_bytes\": %" PRIu64 ",\n",
           setup->gpu.memory_bytes, r->budget_bytes, r->weight_bytes, r->reserve_bytes,
           r->kv_bytes);
    printf("  \"token_bytes\": %" PRIu64 ",\n  \"block_bytes\": %" PRIu64
           ",\n  \"block_size\": %u,\n  \"num_groups\": %u,\n  \"num_blocks\": %u,\n"
           "  \"usable_blocks\": %u,\n  \"num_tokens\": %" PRIu64 ",\n  \"max_model_len\": %u,\n"
           "  \"max_concurrency\": %.4f,\n",
           r->token_bytes, r->block_bytes, r->block_size, r->num_groups, r->num_blocks,
           r->num_blocks - 1, r->num_tokens, r->max_model_len, r->max_concurrency);
    plan_choices_print_json(choices);
    print_json_sizes(rows);
}

static int run_plan(void)
{
    engine_setup setup;
    plan_result result;
    plan_choices choices;
    size_row rows[NUM_SIZES];
    quire_plan *plan = NULL;
    if (o.list) {
        list_presets();
        return 0;
    }
    int status = engine_resolve(&cmd_plan, &o.engine, &setup);
    if (status == 0)
        status = engine_plan(&cmd_plan, &o.engine, &setup, &result, &plan);
    if (status == 0)
        status =
            plan_choices_resolve(&cmd_plan, &o.choices, &setup, &result, o.mean_tokens, &choices);
    if (status != 0) {
        quire_plan_destroy(plan);
        return status;
    }
    fill_size_rows(&setup, rows);
    if (o.json) {
        print_json(&setup, &result, &choices, rows);
    } else {
        print_text(&setup, &result, plan);
        plan_choices_print(&choices);
        if (setup.shape.linear_conv == 0) /* beside states the block size is not free */
            print_sizes(rows);
    }
    quire_plan_destroy(plan);
    return 0;
}

command cmd_plan = {
    .name = "plan",
    .usage = "plan [OPTION]...",
    .summary = "counts the blocks, tokens and requests that fit for a model on a GPU",
    .examples = "  quire plan --model llama-3.1-70b --gpu H100 --tp 4\n"
                "      blocks, tokens and concurrency on four GPUs\n"
                "  quire plan --model ./config.json --gpu L40S --max-model-len 8192\n"
                "      a model of one's own\n"
                "  quire plan --cpu-memory 64Gi --swap-memory 8Gi --watermark 0.01\n"
                "      blocks of host memory; what swap, watermark and pressure give\n"
                "  quire plan --list\n"
                "      models and GPUs that are known by name\n",
    .options = table,
    .run = run_plan,
};
