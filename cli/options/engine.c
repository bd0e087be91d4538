/* engine.c - options to shape, GPU and time model, with a sentence where they name none. */
#include "engine.h"
#include "output/failure.h"

#include <stdio.h>

const char *const engine_quantizations[] = {"model", "none", "fp8", "int4", NULL};
static const shape_weights WEIGHTS[] = {0, SHAPE_BF16, SHAPE_FP8, SHAPE_INT4};
const char *const engine_cache_dtypes[] = {"auto", "fp8", NULL};

int engine_resolve_format(const command *cmd, const char *name, trace_format *format)
{
    *format = name == NULL ? TRACE_DETECT : trace_format_of(name);
    if (name == NULL || *format != TRACE_DETECT)
        return 0;
    return command_error(cmd, "invalid value \"%s\" for --format (see quire %s --help)", name,
                         cmd->name);
}

/* Published figures first, since they scale; a file of constants over them; single ones last. */
static int resolve_gpu(const command *cmd, const engine_options *options, gpu *g)
{
    gpu_constants given = options->constants;
    if (!gpu_find(options->gpu, g))
        return command_error(cmd, "--gpu: %s", failure());
    if (options->gpu_memory > 0)
        g->memory_bytes = options->gpu_memory;
    if (options->gpu_flops > 0)
        gpu_set_flops(g, options->gpu_flops);
    if (options->gpu_bandwidth > 0)
        gpu_set_bandwidth(g, options->gpu_bandwidth);
    if (options->time_constants && !gpu_constants_read(options->time_constants, &g->constants))
        return command_error(cmd, "--time-constants: %s", failure());
    for (uint32_t i = 0; gpu_constant_name(i); i++)
        if (*gpu_constant(&given, i) >= 0)
            *gpu_constant(&g->constants, i) = *gpu_constant(&given, i);
    return 0;
}

int engine_resolve(const command *cmd, const engine_options *options, engine_setup *setup)
{
    quire_layer_spec layers[SHAPE_MAX_LAYERS];
    uint32_t num_layers;
    shape *s = &setup->shape;
    if (shape_find(options->model, s) != 0)
        return command_error(cmd, "--model: %s", failure());
    if (s->needs_weights && options->weight_bytes == 0)
        return command_error(
            cmd,
            "--model: the weights of model_type \"%s\" cannot be counted; give their "
            "size with --weight-bytes (all .safetensors files together)",
            s->model_type);
    s->weight_bytes = options->weight_bytes;
    if (options->quantization > 0)
        s->weights = WEIGHTS[options->quantization];
    setup->cache_dtype = options->plan.cache_dtype;
    setup->tp = options->plan.tp;
    shape_layers_params params = {.tp = setup->tp, .cache_dtype = setup->cache_dtype};
    if (shape_layers(s, &params, layers, &num_layers) != QUIRE_OK)
        return command_error(cmd, "--tp: %u GPUs cannot share the %u heads and %u KV heads of %s",
                             setup->tp, s->num_heads, s->num_kv_heads, s->name);
    int status = resolve_gpu(cmd, options, &setup->gpu);
    if (status != 0)
        return status;
    if (setup->tp > 1)
        snprintf(setup->place, sizeof setup->place, "%u x %s", setup->tp, setup->gpu.name);
    else
        snprintf(setup->place, sizeof setup->place, "%s", setup->gpu.name);
    time_model_init(&setup->time, s, &setup->gpu, setup->tp, setup->cache_dtype);
    return 0;
}

int engine_check_time(const command *cmd, const engine_setup *setup)
{
    if (setup->shape.linear_conv == 0)
        return 0;
    return command_error(
        cmd,
        "--model: %s has layers of linear attention, which the time model does not "
        "know; quire plan takes it",
        setup->shape.name);
}

int engine_plan(const command *cmd, const engine_options *options, const engine_setup *setup,
                plan_result *result, quire_plan **plan)
{
    if (plan_num_blocks(&setup->shape, &setup->gpu, &options->plan, result, plan) != 0)
        return command_error(cmd, "%s", failure());
    if (result->does_not_fit)
        command_error(cmd, "note: %s", failure());
    return 0;
}
