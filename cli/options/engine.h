/* cli/options/engine.h - the options that name a model and a GPU, and what they come to.
 *
 *      static engine_options e = ENGINE_OPTIONS_INIT;
 *      static const option table[] = {ENGINE_MODEL_OPTIONS(e), ENGINE_PLAN_OPTIONS(e), {0}};
 *      ...
 *      engine_setup it;
 *      int status = engine_resolve(&cmd, &e, &it);         0, or an exit status: a sentence is out
 *      time_model_step_ms(&it.time, &work);
 *      engine_plan(&cmd, &e, &it, &result, NULL);          blocks
 */
#ifndef QUIRE_CLI_OPTIONS_ENGINE_H
#define QUIRE_CLI_OPTIONS_ENGINE_H

#include "model/plan_blocks.h"
#include "model/time_model.h"
#include "options.h"
#include "trace/trace.h"

#include <quire/pool.h>

typedef struct engine_options {
    const char *model;
    const char *gpu;
    int quantization;
    uint64_t weight_bytes; /* of the whole model; 0: counted */
    uint64_t gpu_memory;   /* 0: as published; so are the two below */
    double gpu_flops;
    double gpu_bandwidth;
    const char *time_constants;
    gpu_constants constants; /* each negative: the GPU's own */
    plan_settings plan;
} engine_options;

#define ENGINE_OPTIONS_INIT                                                                        \
    {                                                                                              \
        .model = "llama-3.1-8b", .gpu = "H200",                                                    \
        .constants = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,                                  \
                      -1, -1, -1, -1, -1, -1, -1, -1, -1, ""},                                     \
        .plan = {                                                                                  \
            .tp = 1,                                                                               \
            .gpu_memory_utilization = 0.9,                                                         \
            .block_size = 16,                                                                      \
            .max_num_batched_tokens = 8192,                                                        \
            .max_num_seqs = 256                                                                    \
        }                                                                                          \
    }

/* clang-format off */
#define TRACE_FORMATS_HELP                                                                         \
    "mooncake, bailian, azure, burstgpt, sharegpt, agent, lmcache, dynamo, otel, vllm-log, "       \
    "recording or quire"
/* clang-format on */

/* Rows for the trace that a command reads, into its trace_options; skip_help: what is skipped. */
/* clang-format off */
#define TRACE_OPTIONS(t, format_text, skip_help)                                                   \
    {"format", OPTION_TEXT, &(format_text), "NAME", TRACE_FORMATS_HELP, .def = "detected",         \
     .section = "Trace"},                                                                          \
    {"skip-bad", OPTION_SWITCH, &(t).skip_bad, NULL, skip_help, .def = "off"},                     \
    {"max-requests", OPTION_U64, &(t).max_requests, "N", "stop reading after N requests",          \
     .def = "all"},                                                                                \
    {"id-block-size", OPTION_U32, &(t).id_block_size, "TOKENS",                                    \
     "tokens of one block id of the trace", .def = "the format's", .max = 1 << 20}
/* clang-format on */

/* The format of that name, NULL: found out. 0, or an exit status after a sentence. */
int engine_resolve_format(const command *cmd, const char *name, trace_format *format);

extern const char *const engine_quantizations[];
extern const char *const engine_cache_dtypes[];
extern const char *const engine_profiles[]; /* quire_profile */
extern const char *const engine_layouts[];  /* quire_kv_layout */

enum { ENGINE_MAX_TOKENS = 1 << 30 }; /* the library's limit of a request and of a step */

/* Rows of a table of options. */
/* clang-format off */
#define ENGINE_CONSTANT(e, name, member, argument, help, least)                                    \
    ENGINE_CONSTANT_OF(e, name, member, argument, help, least, "the GPU's")
#define ENGINE_OWN_CONSTANT(e, name, member, argument, help, default_text)                         \
    ENGINE_CONSTANT_OF(e, name, member, argument, help, 0, default_text)
#define ENGINE_CONSTANT_OF(e, name, member, argument, help, least, default_text)                   \
    {name, OPTION_REAL, &(e).constants.member, argument, help, .def = default_text, .min = least}

#define ENGINE_MODEL_OPTIONS(e)                                                                    \
    {"model", OPTION_TEXT, &(e).model, "NAME|FILE", "preset, or a config.json of Hugging Face",    \
     .def = "llama-3.1-8b", .preset = shape_preset_name, .section = "Model and GPU"},              \
    {"gpu", OPTION_TEXT, &(e).gpu, "NAME", "preset; quire plan --list shows them", .def = "H200",  \
     .preset = gpu_preset_name},                                                                   \
    {"tp", OPTION_U32, &(e).plan.tp, "N", "GPUs that share each layer", .def = "1", .min = 1,      \
     .max = 1024},                                                                                 \
    {"quantization", OPTION_CHOICE, &(e).quantization, "KIND", "how the weights are stored",       \
     .def = "model", .choices = engine_quantizations},                                             \
    {"weight-bytes", OPTION_U64, &(e).weight_bytes, "BYTES",                                       \
     "size of all weights, for models whose weights cannot be counted", .def = "counted",          \
     .max = 1e15},                                                                                 \
    {"kv-cache-dtype", OPTION_CHOICE, &(e).plan.cache_dtype, "KIND",                               \
     "how keys and values are stored", .def = "auto", .choices = engine_cache_dtypes},             \
    {"gpu-memory", OPTION_U64, &(e).gpu_memory, "BYTES", "memory of one GPU",                      \
     .def = "the preset's", .min = 1, .max = 1e15},                                                \
    {"gpu-flops", OPTION_REAL, &(e).gpu_flops, "TFLOPS",                                           \
     "peak rate in bfloat16; the time model is scaled by it", .def = "the preset's",               \
     .min = 0.001},                                                                                \
    {"gpu-bandwidth", OPTION_REAL, &(e).gpu_bandwidth, "TB/S",                                     \
     "bandwidth of its memory; the time model is scaled by it", .def = "the preset's",             \
     .min = 0.001},                                                                                \
    {"time-constants", OPTION_TEXT, &(e).time_constants, "FILE",                                   \
     "constants of the time model, as quire time --calibrate writes them",                         \
     .section = "Time model"},                                                                     \
    ENGINE_CONSTANT(e, "matmul-tflops", matmul_tflops, "TFLOPS", "rate of matrix products", 0.001),\
    ENGINE_CONSTANT(e, "attention-tflops", attention_tflops, "TFLOPS", "rate of attention", 0.001),\
    ENGINE_CONSTANT(e, "weight-tbps", weight_tbps, "TB/S",                                         \
                    "rate at which weights are read", 0.0001),                                     \
    ENGINE_CONSTANT(e, "kv-tbps", kv_tbps, "TB/S",                                                 \
                    "rate at which keys, values and activations are moved", 0.0001),               \
    ENGINE_CONSTANT(e, "layer-us", layer_us, "US", "fixed cost of a layer", 0),                    \
    ENGINE_CONSTANT(e, "activations", activations, "TIMES", "how often activations are moved", 0), \
    ENGINE_CONSTANT(e, "softness", softness, "P",                                                  \
                    "exponent of the soft maximum of compute and weights", 1),                     \
    ENGINE_CONSTANT(e, "step-ms", step_ms, "MS",                                                   \
                    "fixed cost of a step: the engine's own work", 0),                             \
    ENGINE_CONSTANT(e, "all-reduce-us", all_reduce_us, "US",                                       \
                    "fixed cost of an exchange between GPUs", 0),                                  \
    ENGINE_CONSTANT(e, "link-gbps", link_gbps, "GB/S",                                             \
                    "rate of the links between GPUs, one direction", 0.001),                       \
    ENGINE_OWN_CONSTANT(e, "roofline", roofline, "TIMES",                                          \
                        "how often all of the above but --step-ms is counted",                     \
                        "1, or the file's"),                                                       \
    ENGINE_OWN_CONSTANT(e, "request-us", request_us, "US",                                         \
                        "cost of each request of a step", "0, or the file's"),                     \
    ENGINE_OWN_CONSTANT(e, "token-us", token_us, "US",                                             \
                        "cost of each new token of a step", "0, or the file's"),                   \
    ENGINE_OWN_CONSTANT(e, "context-ns", context_ns, "NS",                                         \
                        "cost of each token that a step reads", "0, or the file's"),               \
    ENGINE_OWN_CONSTANT(e, "pair-ns", pair_ns, "NS",                                               \
                        "cost of each pair of a prompt's token and one that it attends to",        \
                        "0, or the file's"),                                                       \
    ENGINE_OWN_CONSTANT(e, "gap-ms", gap_ms, "MS",                                                 \
                        "from the end of a step to the next one (not with --async-scheduling)",    \
                        "0, or the file's"),                                                       \
    ENGINE_OWN_CONSTANT(e, "gap-request-us", gap_request_us, "US",                                 \
                        "the same, for each request of the step that ended", "0, or the file's"),  \
    ENGINE_OWN_CONSTANT(e, "gap-add-us", gap_add_us, "US",                                         \
                        "the same, for each request that was added", "0, or the file's"),          \
    ENGINE_OWN_CONSTANT(e, "arrival-ms", arrival_ms, "MS",                                         \
                        "from a request's arrival until the scheduler can have it",                \
                        "0, or the file's"),                                                       \
    ENGINE_OWN_CONSTANT(e, "arrival-token-us", arrival_token_us, "US",                             \
                        "the same, for each token of its prompt", "0, or the file's")

#define ENGINE_PLAN_OPTIONS(e)                                                                     \
    {"gpu-memory-utilization", OPTION_REAL, &(e).plan.gpu_memory_utilization, "SHARE",             \
     "share of the GPU's memory that the engine may take", .def = "0.9", .min = 0.01, .max = 1,    \
     .section = "Memory"},                                                                         \
    {"block-size", OPTION_U32, &(e).plan.block_size, "TOKENS", "tokens per block", .def = "16",    \
     .min = 1, .max = 65536},                                                                      \
    {"max-model-len", OPTION_U32, &(e).plan.max_model_len, "TOKENS",                               \
     "maximum tokens of a request", .def = "the model's, or what fits",                            \
     .max = ENGINE_MAX_TOKENS},                                                                    \
    {"max-num-batched-tokens", OPTION_U32, &(e).plan.max_num_batched_tokens, "TOKENS",             \
     "maximum tokens of a step", .def = "8192", .min = 1, .max = ENGINE_MAX_TOKENS},               \
    {"max-num-seqs", OPTION_U32, &(e).plan.max_num_seqs, "N", "maximum requests of a step",        \
     .def = "256", .min = 1, .max = 1 << 20},                                                      \
    {"num-gpu-blocks", OPTION_U32, &(e).plan.num_gpu_blocks, "N",                                  \
     "blocks of the pool, the null block included, whatever the memory",                           \
     .def = "from the memory", .max = QUIRE_MAX_BLOCKS},                                           \
    {"reserve-memory", OPTION_U64, &(e).plan.reserve_bytes, "BYTES",                               \
     "kept for activations, graphs and the driver", .def = "estimated", .max = 1e15}
/* clang-format on */

/* The profile is the scheduler's, or the plan's own where there is no scheduler. */
/* clang-format off */
#define ENGINE_PROFILE_OPTIONS(e, profile_value, help)                                             \
    {"profile", OPTION_CHOICE, &(profile_value), "KIND", help, .def = "default",                   \
     .choices = engine_profiles},                                                                  \
    {"kv-cache-layout", OPTION_CHOICE, &(e).plan.kv_layout, "NAME",                                \
     "vllm-0.32: the order of layers L, blocks B, heads H and tokens N in memory",                 \
     .def = "LBNHC", .choices = engine_layouts}
/* clang-format on */

typedef struct engine_setup {
    shape shape;
    gpu gpu;
    time_model time;
    quire_cache_dtype cache_dtype;
    uint32_t tp;
    char place[48]; /* "H200", "4 x H100" */
} engine_setup;

/* 0, or an exit status after a sentence on stderr. */
int engine_resolve(const command *cmd, const engine_options *options, engine_setup *setup);
/* Whether the time model knows all its layers; else exit status 2 after a sentence. */
int engine_check_time(const command *cmd, const engine_setup *setup);
int engine_plan(const command *cmd, const engine_options *options, const engine_setup *setup,
                plan_result *result, quire_plan **plan);

#endif
