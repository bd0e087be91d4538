/* shape_presets.c - shapes of well-known models, as their config.json states them. */
#include "shape.h"

#define LLAMA2(label, layers, width, heads, kv, inner)                                             \
    {                                                                                              \
        .name = label, .model_type = "llama", .num_layers = layers, .hidden = width,               \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = 128, .ffn = inner, .vocab = 32000,     \
        .max_model_len = 4096                                                                      \
    }

#define LLAMA(label, layers, width, heads, kv, inner, len, tied)                                   \
    {                                                                                              \
        .name = label, .model_type = "llama", .num_layers = layers, .hidden = width,               \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = (width) / (heads), .ffn = inner,       \
        .vocab = 128256, .max_model_len = len, .is_tied = tied                                     \
    }

#define MISTRAL(label, layers, width, heads, inner, words, len)                                    \
    {                                                                                              \
        .name = label, .model_type = "mistral", .num_layers = layers, .hidden = width,             \
        .num_heads = heads, .num_kv_heads = 8, .head_dim = 128, .ffn = inner, .vocab = words,      \
        .max_model_len = len                                                                       \
    }

#define QWEN2(label, layers, width, heads, kv, inner, words, tied)                                 \
    {                                                                                              \
        .name = label, .model_type = "qwen2", .num_layers = layers, .hidden = width,               \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = (width) / (heads), .ffn = inner,       \
        .vocab = words, .max_model_len = 32768, .is_tied = tied                                    \
    }

#define QWEN3(label, layers, width, heads, inner, tied)                                            \
    {                                                                                              \
        .name = label, .model_type = "qwen3", .num_layers = layers, .hidden = width,               \
        .num_heads = heads, .num_kv_heads = 8, .head_dim = 128, .ffn = inner, .vocab = 151936,     \
        .max_model_len = 40960, .is_tied = tied                                                    \
    }

#define QWEN3_MOE(label, layers, width, heads, inner)                                              \
    {                                                                                              \
        .name = label, .model_type = "qwen3_moe", .num_layers = layers, .hidden = width,           \
        .num_heads = heads, .num_kv_heads = 4, .head_dim = 128, .vocab = 151936,                   \
        .max_model_len = 40960, .num_experts = 128, .num_active_experts = 8, .expert_ffn = inner   \
    }

#define MIXTRAL(label, layers, width, heads, inner, len)                                           \
    {                                                                                              \
        .name = label, .model_type = "mixtral", .num_layers = layers, .hidden = width,             \
        .num_heads = heads, .num_kv_heads = 8, .head_dim = 128, .vocab = 32000,                    \
        .max_model_len = len, .num_experts = 8, .num_active_experts = 2, .expert_ffn = inner       \
    }

#define GEMMA2(label, layers, width, heads, kv, head, inner)                                       \
    {                                                                                              \
        .name = label, .model_type = "gemma2", .num_layers = layers, .hidden = width,              \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = head, .ffn = inner, .vocab = 256000,   \
        .max_model_len = 8192, .is_tied = true, .window = 4096                                     \
    }

#define GEMMA3(label, layers, width, heads, kv, head, inner)                                       \
    {                                                                                              \
        .name = label, .model_type = "gemma3_text", .num_layers = layers, .hidden = width,         \
        .num_heads = heads, .num_kv_heads = kv, .head_dim = head, .ffn = inner, .vocab = 262208,   \
        .max_model_len = 131072, .is_tied = true, .window = 1024, .window_pattern = 6              \
    }

#define GPT_OSS(label, layers, experts)                                                            \
    {                                                                                              \
        .name = label, .model_type = "gpt_oss", .num_layers = layers, .hidden = 2880,              \
        .num_heads = 64, .num_kv_heads = 8, .head_dim = 64, .vocab = 201088,                       \
        .max_model_len = 131072, .num_experts = experts, .num_active_experts = 4,                  \
        .expert_ffn = 2880, .window = 128, .weights = SHAPE_MXFP4_EXPERTS                          \
    }

#define DEEPSEEK(label, type, heads, experts, dense, words, len)                                   \
    {                                                                                              \
        .name = label, .model_type = type, .num_layers = 61, .hidden = 7168, .num_heads = heads,   \
        .num_kv_heads = heads, .head_dim = 192, .ffn = 18432, .vocab = words,                      \
        .max_model_len = len, .num_experts = experts, .num_active_experts = 8, .expert_ffn = 2048, \
        .shared_ffn = 2048, .num_dense_layers = dense, .q_lora_rank = 1536, .kv_lora_rank = 512,   \
        .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128, .weights = SHAPE_FP8   \
    }

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
    {.name = "deepseek-v2-lite",
     .model_type = "deepseek_v2",
     .num_layers = 27,
     .hidden = 2048,
     .num_heads = 16,
     .num_kv_heads = 16,
     .head_dim = 192,
     .ffn = 10944,
     .vocab = 102400,
     .max_model_len = 163840,
     .num_experts = 64,
     .num_active_experts = 6,
     .expert_ffn = 1408,
     .shared_ffn = 2 * 1408,
     .num_dense_layers = 1,
     .kv_lora_rank = 512,
     .qk_nope_head_dim = 128,
     .qk_rope_head_dim = 64,
     .v_head_dim = 128},
    {.name = "phi-4",
     .model_type = "phi3",
     .num_layers = 40,
     .hidden = 5120,
     .num_heads = 40,
     .num_kv_heads = 10,
     .head_dim = 128,
     .ffn = 17920,
     .vocab = 100352,
     .max_model_len = 16384},
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
