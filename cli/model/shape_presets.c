/* shape_presets.c - shapes of well-known models, as their config.json states them. */
#include "shape.h"

#define MODEL(label, type, layers, width, heads, kv, head, inner, words, len, ...)                 \
    {                                                                                              \
        .name = label, .model_type = type, .num_layers = layers, .hidden = width,                  \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = head, .ffn = inner, .vocab = words,    \
        .max_model_len = len, __VA_ARGS__                                                          \
    }

#define EXPERTS(number, active, inner)                                                             \
    .num_experts = number, .num_active_experts = active, .expert_ffn = inner

#define LLAMA2(label, layers, width, heads, kv, inner)                                             \
    MODEL(label, "llama", layers, width, heads, kv, 128, inner, 32000, 4096, .is_tied = false)

#define LLAMA(label, layers, width, heads, kv, inner, len, tied)                                   \
    MODEL(label, "llama", layers, width, heads, kv, (width) / (heads), inner, 128256, len,         \
          .is_tied = tied)

#define MISTRAL(label, layers, width, heads, inner, words, len)                                    \
    MODEL(label, "mistral", layers, width, heads, 8, 128, inner, words, len, .is_tied = false)

#define QWEN2(label, layers, width, heads, kv, inner, words, tied)                                 \
    MODEL(label, "qwen2", layers, width, heads, kv, (width) / (heads), inner, words, 32768,        \
          .is_tied = tied)

#define QWEN3(label, layers, width, heads, inner, tied)                                            \
    MODEL(label, "qwen3", layers, width, heads, 8, 128, inner, 151936, 40960, .is_tied = tied)

#define QWEN3_MOE(label, layers, width, heads, inner)                                              \
    MODEL(label, "qwen3_moe", layers, width, heads, 4, 128, 0, 151936, 40960,                      \
          EXPERTS(128, 8, inner))

#define MIXTRAL(label, layers, width, heads, inner, len)                                           \
    MODEL(label, "mixtral", layers, width, heads, 8, 128, 0, 32000, len, EXPERTS(8, 2, inner))

#define GEMMA2(label, layers, width, heads, kv, head, inner)                                       \
    MODEL(label, "gemma2", layers, width, heads, kv, head, inner, 256000, 8192, .is_tied = true,   \
          .window = 4096)

#define GEMMA3(label, layers, width, heads, kv, head, inner)                                       \
    MODEL(label, "gemma3_text", layers, width, heads, kv, head, inner, 262208, 131072,             \
          .is_tied = true, .window = 1024, .window_pattern = 6)

#define GPT_OSS(label, layers, experts)                                                            \
    MODEL(label, "gpt_oss", layers, 2880, 64, 8, 64, 0, 201088, 131072, EXPERTS(experts, 4, 2880), \
          .window = 128, .weights = SHAPE_MXFP4_EXPERTS)

#define DEEPSEEK(label, type, heads, experts, dense, words, len)                                   \
    MODEL(label, type, 61, 7168, heads, heads, 192, 18432, words, len, EXPERTS(experts, 8, 2048),  \
          .shared_ffn = 2048, .num_dense_layers = dense, .q_lora_rank = 1536, LATENT,              \
          .weights = SHAPE_FP8)

#define LATENT                                                                                     \
    .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128

static const shape presets[] = {
    LLAMA("llama-3.1-8b", 32, 4096, 32, 8, 14336, 131072, false),
    LLAMA("llama-3.1-70b", 80, 8192, 64, 8, 28672, 131072, false),
    LLAMA("llama-3.1-405b", 126, 16384, 128, 8, 53248, 131072, false),
    LLAMA("llama-3.2-1b", 16, 2048, 32, 8, 8192, 131072, true),
    LLAMA("llama-3.2-3b", 28, 3072, 24, 8, 8192, 131072, true),
    LLAMA("llama-3.3-70b", 80, 8192, 64, 8, 28672, 131072, false),
    LLAMA("llama-3-8b", 32, 4096, 32, 8, 14336, 8192, false),
    LLAMA("llama-3-70b", 80, 8192, 64, 8, 28672, 8192, false),
    LLAMA2("llama-2-7b", 32, 4096, 32, 32, 11008),
    LLAMA2("llama-2-13b", 40, 5120, 40, 40, 13824),
    LLAMA2("llama-2-70b", 80, 8192, 64, 8, 28672),
    MISTRAL("mistral-7b", 32, 4096, 32, 14336, 32768, 32768),
    MISTRAL("mistral-nemo-12b", 40, 5120, 32, 14336, 131072, 131072),
    MISTRAL("mistral-small-24b", 40, 5120, 32, 32768, 131072, 32768),
    MISTRAL("mistral-large-123b", 88, 12288, 96, 28672, 32768, 131072),
    MIXTRAL("mixtral-8x7b", 32, 4096, 32, 14336, 32768),
    MIXTRAL("mixtral-8x22b", 56, 6144, 48, 16384, 65536),
    QWEN2("qwen2.5-0.5b", 24, 896, 14, 2, 4864, 151936, true),
    QWEN2("qwen2.5-1.5b", 28, 1536, 12, 2, 8960, 151936, true),
    QWEN2("qwen2.5-3b", 36, 2048, 16, 2, 11008, 151936, true),
    QWEN2("qwen2.5-7b", 28, 3584, 28, 4, 18944, 152064, false),
    QWEN2("qwen2.5-14b", 48, 5120, 40, 8, 13824, 152064, false),
    QWEN2("qwen2.5-32b", 64, 5120, 40, 8, 27648, 152064, false),
    QWEN2("qwen2.5-72b", 80, 8192, 64, 8, 29568, 152064, false),
    QWEN3("qwen3-0.6b", 28, 1024, 16, 3072, true),
    QWEN3("qwen3-1.7b", 28, 2048, 16, 6144, true),
    QWEN3("qwen3-4b", 36, 2560, 32, 9728, true),
    QWEN3("qwen3-8b", 36, 4096, 32, 12288, false),
    QWEN3("qwen3-14b", 40, 5120, 40, 17408, false),
    QWEN3("qwen3-32b", 64, 5120, 64, 25600, false),
    QWEN3_MOE("qwen3-30b-a3b", 48, 2048, 32, 768),
    QWEN3_MOE("qwen3-235b-a22b", 94, 4096, 64, 1536),
    GEMMA2("gemma-2-9b", 42, 3584, 16, 8, 256, 14336),
    GEMMA2("gemma-2-27b", 46, 4608, 32, 16, 128, 36864),
    GEMMA3("gemma-3-4b", 34, 2560, 8, 4, 256, 10240),
    GEMMA3("gemma-3-12b", 48, 3840, 16, 8, 256, 15360),
    GEMMA3("gemma-3-27b", 62, 5376, 32, 16, 128, 21504),
    GPT_OSS("gpt-oss-20b", 24, 32),
    GPT_OSS("gpt-oss-120b", 36, 128),
    DEEPSEEK("deepseek-v3", "deepseek_v3", 128, 256, 3, 129280, 163840),
    DEEPSEEK("deepseek-r1", "deepseek_v3", 128, 256, 3, 129280, 163840),
    DEEPSEEK("kimi-k2", "kimi_k2", 64, 384, 1, 163840, 131072),
    MODEL("deepseek-v2-lite", "deepseek_v2", 27, 2048, 16, 16, 192, 10944, 102400, 163840,
          EXPERTS(64, 6, 1408), .shared_ffn = 2 * 1408, .num_dense_layers = 1, LATENT),
    MODEL("phi-4", "phi3", 40, 5120, 40, 10, 128, 17920, 100352, 16384, .is_tied = false),
};

const shape *shape_preset(uint32_t i)
{
    return i < sizeof presets / sizeof *presets ? &presets[i] : NULL;
}

const char *shape_preset_name(uint32_t i)
{
    const shape *preset = shape_preset(i);
    return preset ? preset->name : NULL;
}
