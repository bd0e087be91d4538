/* cmd_plan.c - `quire plan`: what fits on a GPU.
 *
 *      GPU memory ─► weights, activations, KV cache ─► blocks ─► tokens ─► requests at one time
 *
 * and what another block size would change: small blocks waste less of the last one, large ones
 * make shorter tables and fewer hashes.
 */
#include "commands.h"
#include "options/engine.h"
#include "options/memory_options.h"
#include "options/tiers_options.h"
#include "output/json_print.h"
#include "output/made_by.h"

#include <quire/cost.h>

#include <inttypes.h>
#include <stdio.h>

#define GIB ((double)(UINT64_C(1) << 30))

static struct {
    engine_options engine;
    tiers_options tiers; /* of it, host memory and the link to it */
    swap_options swap;
    pressure_options pressure;
    uint32_t mean_tokens;
    bool json;
    bool list;
} o = {.engine = ENGINE_OPTIONS_INIT, .tiers = TIERS_OPTIONS_INIT, .mean_tokens = 2048};

static const option table[] = {
    {"mean-tokens", OPTION_U32, &o.mean_tokens, "TOKENS",
     "mean tokens of a request, for the table of block sizes and for swap", .def = "2048", .min = 1,
     .max = 1 << 24},
    {"json", OPTION_SWITCH, &o.json, NULL, "print JSON", .def = "off", .role = OPTION_OUTPUT},
    {"list", OPTION_SWITCH, &o.list, NULL, "list the known models and GPUs", .def = "off",
     .role = OPTION_OUTPUT},
    ENGINE_MODEL_OPTIONS(o.engine),
    ENGINE_PLAN_OPTIONS(o.engine),
    PRESSURE_OPTIONS(o.pressure),
    SWAP_OPTIONS(o.swap),
    TIERS_CPU_OPTIONS(o.tiers),
    {0}};

/* ---- lists --------------------------------------------------------------- */

static void list_presets(void)
{
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
        if (gpu_find(gpu_preset_name(i), &g))
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

static void fill_size_row(const engine_setup *setup, uint32_t block_size, size_row *row)
{
    plan_settings other = o.engine.plan;
    other.num_gpu_blocks = 0;
    other.block_size = block_size;
    *row = (size_row){.block_size = block_size};
    row->fits = plan_num_blocks(&setup->shape, &setup->gpu, &other, &row->plan, NULL) == 0;
    double lost =
        (block_size - 1) / 2.0; /* tokens of a last block, which is half full on average */
    row->waste = lost / (o.mean_tokens + lost);
    row->hash_per_1000 = 1000.0 / block_size;
    row->tables_bytes = 4.0 * row->plan.num_groups * o.engine.plan.max_num_seqs *
                        ((double)o.mean_tokens / block_size + 1);
    row->pool_bytes = (double)BLOCK_RECORD_BYTES * row->plan.num_blocks;
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

/* ---- choices: host memory, swap, watermark, pressure ---------------------- */

/* Each is left out where it is not asked for. */
typedef struct plan_choices {
    const plan_result *plan;
    uint32_t cpu_blocks; /* 0: no offload; the null block included */
    swap_settings swap;
} plan_choices;

static int resolve_choices(const engine_setup *setup, plan_choices *c)
{
    uint64_t block_bytes = c->plan->block_bytes;
    int status = pressure_check(&cmd_plan, &o.pressure);
    if (status == 0)
        status = tiers_resolve_cpu(&cmd_plan, &o.tiers, block_bytes, &c->cpu_blocks);
    if (status == 0)
        status =
            swap_resolve(&cmd_plan, &o.swap, &o.tiers.link, &setup->time, block_bytes, &c->swap);
    if (status == 0 && c->swap.num_blocks > 0 && setup->shape.linear_conv > 0)
        return command_error(&cmd_plan,
                             "--swap-%s: %s has states of linear attention, which are not swapped",
                             o.swap.blocks > 0 ? "blocks" : "memory", setup->shape.name);
    return status;
}

/* Tokens that the blocks hold, where all groups keep all tokens, as in plan_result. */
static uint64_t tokens_of(const plan_choices *c, uint64_t num_blocks)
{
    return num_blocks * c->plan->block_size / c->plan->num_groups;
}

static uint64_t blocks_of_request(const plan_choices *c)
{
    return quire_cost_blocks_for_tokens(o.mean_tokens, c->plan->block_size) * c->plan->num_groups;
}

/* Usable blocks of the pool up to a mark. */
static uint64_t blocks_at(const plan_choices *c, double part)
{
    return (uint64_t)((double)(c->plan->num_blocks - 1) * part);
}

static uint64_t watermark_blocks(const plan_choices *c)
{
    return quire_cost_watermark_blocks(c->plan->num_blocks, o.pressure.watermark);
}

/* Of a request of mean_tokens: out and back, and computed again, in ms, as the scheduler counts. */
static double swap_ms(const plan_choices *c)
{
    uint64_t one_way_ns = c->swap.setup_ns + blocks_of_request(c) * c->swap.block_ns;
    return 2 * (double)one_way_ns * 1e-6;
}

static double recompute_ms(const plan_choices *c)
{
    return (double)o.mean_tokens * (double)c->swap.token_ns * 1e-6;
}

static void print_memory(const plan_choices *c, const char *name, uint64_t num_blocks,
                         uint32_t null_blocks)
{
    double gib = (double)((num_blocks + null_blocks) * c->plan->block_bytes) / GIB;
    printf("  %-18s %.2f GiB%s: %" PRIu64 " blocks%s, %" PRIu64 " tokens", name, gib,
           o.engine.plan.tp > 1 ? " for each GPU" : "", num_blocks,
           null_blocks > 0 ? " and the null block" : "", tokens_of(c, num_blocks));
    if (o.engine.plan.tp > 1)
        printf("; %.2f GiB in all", gib * o.engine.plan.tp);
    putchar('\n');
}

static void print_swap(const plan_choices *c)
{
    print_memory(c, "swap", c->swap.num_blocks, 0);
    printf("    %.2f preempted requests of %u tokens; one is moved out and back in %.1f ms and "
           "computed\n    again in %.1f ms (a block %.1f us, a token %.1f us): %s\n",
           (double)c->swap.num_blocks / (double)blocks_of_request(c), o.mean_tokens, swap_ms(c),
           recompute_ms(c), (double)c->swap.block_ns * 1e-3, (double)c->swap.token_ns * 1e-3,
           swap_ms(c) < recompute_ms(c) ? "swapped" : "computed again");
}

static void print_choices(const plan_choices *c)
{
    uint32_t pool = c->plan->num_blocks - 1;
    if (o.pressure.watermark > 0)
        printf("  watermark          %" PRIu64
               " blocks stay free when a request is admitted: %" PRIu64
               " tokens for requests that run\n",
               watermark_blocks(c), tokens_of(c, watermark_blocks(c)));
    if (o.pressure.preempt_above > 0)
        printf("  pressure           requests are admitted below %" PRIu64
               " blocks in use, and preempted above %" PRIu64 " (of %u)\n",
               blocks_at(c, pressure_admit_below(&o.pressure)),
               blocks_at(c, o.pressure.preempt_above), pool);
    if (c->swap.num_blocks > 0)
        print_swap(c);
    if (c->cpu_blocks > 0)
        print_memory(c, "host memory", c->cpu_blocks - 1, 1);
}

/* Members of the plan's object, each with a comma behind it. */
static void print_json_choices(const plan_choices *c)
{
    uint64_t block_bytes = c->plan->block_bytes;
    if (o.pressure.watermark > 0)
        printf("  \"watermark_blocks\": %" PRIu64 ",\n", watermark_blocks(c));
    if (o.pressure.preempt_above > 0)
        printf("  \"admit_below_blocks\": %" PRIu64 ",\n  \"preempt_above_blocks\": %" PRIu64 ",\n",
               blocks_at(c, pressure_admit_below(&o.pressure)),
               blocks_at(c, o.pressure.preempt_above));
    if (c->swap.num_blocks > 0)
        printf("  \"swap\": {\"blocks\": %u, \"bytes\": %" PRIu64 ", \"tokens\": %" PRIu64
               ", \"setup_us\": %.3f, \"block_us\": %.3f, \"token_us\": %.3f, \"swap_ms\": %.6f, "
               "\"recompute_ms\": %.6f},\n",
               c->swap.num_blocks, c->swap.num_blocks * block_bytes,
               tokens_of(c, c->swap.num_blocks), (double)c->swap.setup_ns * 1e-3,
               (double)c->swap.block_ns * 1e-3, (double)c->swap.token_ns * 1e-3, swap_ms(c),
               recompute_ms(c));
    if (c->cpu_blocks > 0)
        printf("  \"host\": {\"blocks\": %u, \"usable_blocks\": %u, \"bytes\": %" PRIu64
               ", \"all_bytes\": %" PRIu64 ", \"tokens\": %" PRIu64 "},\n",
               c->cpu_blocks, c->cpu_blocks - 1, c->cpu_blocks * block_bytes,
               c->cpu_blocks * block_bytes * o.engine.plan.tp, tokens_of(c, c->cpu_blocks - 1));
}

/* ---- the plan ------------------------------------------------------------ */

static const char *kind_of_layers(quire_layer_kind kind)
{
    static const char *const names[] = {[QUIRE_LAYER_FULL] = "full attention",
                                        [QUIRE_LAYER_MLA] = "latent attention",
                                        [QUIRE_LAYER_SLIDING_WINDOW] = "sliding window",
                                        [QUIRE_LAYER_CHUNKED_LOCAL] = "chunks of attention",
                                        [QUIRE_LAYER_MAMBA] = "state of linear attention"};
    bool is_known = (size_t)kind < sizeof names / sizeof *names && names[kind] != NULL;
    return is_known ? names[kind] : "other";
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
    printf("  requests           %.2f of %u tokens at a time%s\n", r->max_concurrency,
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
    print_json_choices(choices);
    print_json_sizes(rows);
}

static int run_plan(void)
{
    engine_setup setup;
    plan_result result;
    plan_choices choices = {.plan = &result};
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
        status = resolve_choices(&setup, &choices);
    if (status != 0) {
        quire_plan_destroy(plan);
        return status;
    }
    for (uint32_t i = 0; i < NUM_SIZES; i++)
        fill_size_row(&setup, (uint32_t)MIN_SIZE << i, &rows[i]);
    if (o.json) {
        print_json(&setup, &result, &choices, rows);
    } else {
        print_text(&setup, &result, plan);
        print_choices(&choices);
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
                "      your own model\n"
                "  quire plan --cpu-memory 64Gi --swap-memory 8Gi --watermark 0.01\n"
                "      blocks of host memory; what swap, watermark and pressure give\n"
                "  quire plan --list\n"
                "      models and GPUs that are known by name\n",
    .options = table,
    .run = run_plan,
};
