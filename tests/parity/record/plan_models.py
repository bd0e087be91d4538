"""Known models by their published shapes, and the layers that vLLM makes of them.

The shapes go through the config classes of transformers, which fill in the models' own patterns,
and then through vLLM's layers: their get_kv_cache_spec is called on stand-ins that carry what the
layer's constructor would have kept. Mamba states and the block size beside them are vLLM's own too.
"""
from contextlib import nullcontext
from types import SimpleNamespace as Name
from unittest import mock

import torch
import transformers

from vllm.model_executor.layers.attention import attention, chunked_local_attention
from vllm.model_executor.layers.attention import cross_attention, mla_attention
from vllm.model_executor.layers.mamba import abstract, mamba_mixer, mamba_mixer2
from vllm.model_executor.layers.mamba.gdn_linear_attn import GatedDeltaNetAttention
from vllm.model_executor.models import bamba, deepseek_v2, jamba, nemotron_h, qwen3_next
from vllm.model_executor.models.config import NemotronHForCausalLMConfig
from vllm.platforms.interface import Platform
from vllm.transformers_utils.config import is_interleaved
from vllm.transformers_utils.configs.nemotron_h import NemotronHConfig
from vllm.transformers_utils.model_arch_config_convertor import ModelArchConfigConvertorBase
from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype

HALF = "float16"


def shape(layers, hidden, heads, kv_heads, length, **more):
    return dict(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                num_key_value_heads=kv_heads, max_position_embeddings=length, **more)


QWEN25 = dict(sliding_window=131072, use_sliding_window=False)
LATENT = dict(kv_lora_rank=512, qk_rope_head_dim=64)
NEMOTRON_PATTERN = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
# name: (model_type, shape)
MODELS = {
    "llama-2-7b": ("llama", shape(32, 4096, 32, 32, 4096, torch_dtype=HALF)),
    "llama-2-13b": ("llama", shape(40, 5120, 40, 40, 4096, torch_dtype=HALF)),
    "llama-2-70b": ("llama", shape(80, 8192, 64, 8, 4096, torch_dtype=HALF)),
    "llama-3.1-8b": ("llama", shape(32, 4096, 32, 8, 131072)),
    "llama-3.1-70b": ("llama", shape(80, 8192, 64, 8, 131072)),
    "llama-3.1-405b": ("llama", shape(126, 16384, 128, 8, 131072)),
    "mistral-7b-v0.1": ("mistral", shape(32, 4096, 32, 8, 32768, sliding_window=4096)),
    "mixtral-8x7b": ("mixtral", shape(32, 4096, 32, 8, 32768)),
    "qwen2.5-7b": ("qwen2", shape(28, 3584, 28, 4, 32768, max_window_layers=28, **QWEN25)),
    "qwen2.5-72b": ("qwen2", shape(80, 8192, 64, 8, 32768, max_window_layers=70, **QWEN25)),
    "qwen3-30b-a3b": ("qwen3_moe", shape(48, 2048, 32, 4, 40960, head_dim=128)),
    "gemma-2-9b": ("gemma2", shape(42, 3584, 16, 8, 8192, head_dim=256, sliding_window=4096)),
    "gemma-3-27b": ("gemma3_text", shape(62, 5376, 32, 16, 131072, head_dim=128,
                                         sliding_window=1024, sliding_window_pattern=6)),
    "gpt-oss-20b": ("gpt_oss", shape(24, 2880, 64, 8, 131072, head_dim=64, sliding_window=128)),
    "gpt-oss-120b": ("gpt_oss", shape(36, 2880, 64, 8, 131072, head_dim=64, sliding_window=128)),
    "deepseek-v2-lite": ("deepseek_v2", shape(27, 2048, 16, 16, 163840, **LATENT)),
    "deepseek-v3": ("deepseek_v3", shape(61, 7168, 128, 128, 163840, **LATENT)),
    "deepseek-v3.2": ("deepseek_v32", shape(61, 7168, 128, 128, 163840, index_head_dim=128,
                                            **LATENT)),
    "llama-4-scout": ("llama4_text", shape(48, 5120, 40, 8, 10485760, head_dim=128,
                                           attention_chunk_size=8192)),
    "phi-3-mini-4k": ("phi3", shape(32, 3072, 32, 32, 4096, sliding_window=2047)),
    "jamba-v0.1": ("jamba", shape(32, 4096, 32, 8, 262144, attn_layer_period=8,
                                  attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4,
                                  mamba_expand=2)),
    "bamba-9b": ("bamba", shape(32, 4096, 32, 8, 262144, attn_layer_indices=[9, 18, 27],
                                mamba_n_heads=128, mamba_d_head=64, mamba_n_groups=1,
                                mamba_d_state=128, mamba_d_conv=4, mamba_expand=2,
                                mamba_chunk_size=256)),
    "nemotron-h-8b": ("nemotron_h", shape(52, 4096, 32, 8, 8192, head_dim=128,
                                          hybrid_override_pattern=NEMOTRON_PATTERN,
                                          mamba_num_heads=128, mamba_head_dim=64, n_groups=8,
                                          ssm_state_size=128, conv_kernel=4, chunk_size=128)),
    "qwen3-next-80b": ("qwen3_next", shape(48, 2048, 16, 2, 262144, head_dim=256,
                                           full_attention_interval=4, linear_num_key_heads=16,
                                           linear_num_value_heads=32, linear_key_head_dim=128,
                                           linear_value_head_dim=128, linear_conv_kernel_dim=4)),
    "whisper-large-v3": ("whisper", dict(decoder_layers=32, decoder_attention_heads=20,
                                         d_model=1280, max_position_embeddings=448,
                                         torch_dtype=HALF)),
}
CONFIGS = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
           "mixtral": transformers.MixtralConfig, "qwen2": transformers.Qwen2Config,
           "qwen3_moe": transformers.Qwen3MoeConfig, "gemma2": transformers.Gemma2Config,
           "gemma3_text": transformers.Gemma3TextConfig, "gpt_oss": transformers.GptOssConfig,
           "deepseek_v2": transformers.DeepseekV2Config,
           "deepseek_v3": transformers.DeepseekV3Config,
           "deepseek_v32": transformers.DeepseekV3Config,
           "llama4_text": transformers.Llama4TextConfig, "phi3": transformers.Phi3Config,
           "jamba": transformers.JambaConfig, "bamba": transformers.BambaConfig,
           "nemotron_h": NemotronHConfig, "qwen3_next": transformers.Qwen3NextConfig,
           "whisper": transformers.WhisperConfig}
STATE_MODELS = {"jamba": jamba.JambaForCausalLM, "bamba": bamba.BambaForCausalLM,
                "nemotron_h": nemotron_h.NemotronHForCausalLM,
                "qwen3_next": qwen3_next.Qwen3NextForCausalLM}
# What Quire calls the fields of Nemotron-H.
FIELD_NAMES = {"mamba_num_heads": "mamba_n_heads", "mamba_head_dim": "mamba_d_head",
               "n_groups": "mamba_n_groups", "ssm_state_size": "mamba_d_state",
               "conv_kernel": "mamba_d_conv", "chunk_size": "mamba_chunk_size"}
DTYPES = {"float16": 1, "bfloat16": 2}
CACHE_DTYPES = ["auto", "fp8", "int8_per_token_head", "fp8_per_token_head", "nvfp4", "fp8_ds_mla"]
MODES = ["none", "all", "align"]


class Model:
    """A model in an engine: the layers that vLLM's own code makes."""

    def __init__(self, name, tp=1, block=16, cache="auto", mode="none", spec=0):
        self.name, self.tp, self.cache, self.mode, self.spec = name, tp, cache, mode, spec
        self.model_type, self.fields = MODELS[name]
        self.length = self.fields["max_position_embeddings"]
        fields = {k: v for k, v in self.fields.items() if k != "torch_dtype"}
        self.hf = CONFIGS[self.model_type](**fields)
        self.hf.model_type = self.model_type
        self.dtype = getattr(torch, self.fields.get("torch_dtype", "bfloat16"))
        arch = ModelArchConfigConvertorBase(self.hf, self.hf)
        self.block = block
        self.config = self.make_config(arch)

    def make_config(self, arch):
        """What vLLM's layers read of a VllmConfig."""
        caching = self.mode != "none"
        block_size = {"none": self.length, "align": self.block, "all": self.block}[self.mode]
        model = Name(dtype=self.dtype, hf_config=self.hf, hf_text_config=self.hf,
                     use_mla=arch.is_deepseek_mla(), architecture="",
                     get_head_size=arch.get_head_size,
                     get_num_kv_heads=lambda _: max(1, arch.get_total_num_kv_heads() // self.tp),
                     get_mamba_chunk_size=self.chunk_size)
        cache = Name(block_size=self.block, cache_dtype=self.cache, mamba_cache_mode=self.mode,
                     mamba_block_size=block_size, mamba_page_size_padded=None,
                     mamba_cache_dtype="auto", mamba_ssm_cache_dtype="auto",
                     user_specified_mamba_block_size=False, enable_prefix_caching=caching,
                     sliding_window=None)
        if not is_interleaved(self.hf):
            cache.sliding_window = getattr(self.hf, "sliding_window", None)
        spec = Name(num_speculative_tokens=self.spec) if self.spec else None
        return Name(model_config=model, cache_config=cache, speculative_config=spec,
                    num_speculative_tokens=self.spec,
                    parallel_config=Name(tensor_parallel_size=self.tp))

    def chunk_size(self):
        for name in ("mamba_chunk_size", "chunk_size"):
            if getattr(self.hf, name, None) is not None:
                return getattr(self.hf, name)
        return 2048

    # -- single layers --

    def attention(self, cls, **more):
        model = self.config.model_config
        layer = Name(attn_type="decoder", kv_cache_dtype=self.cache,
                     kv_cache_torch_dtype=kv_cache_dtype_str_to_dtype(self.cache, model),
                     num_kv_heads=model.get_num_kv_heads(None), head_size=model.get_head_size(),
                     head_size_v=model.get_head_size(),
                     sliding_window=self.config.cache_config.sliding_window)
        vars(layer).update(more)
        return cls.get_kv_cache_spec(layer, self.config)

    def full_or_window(self, window=None):
        """What Attention does with per_layer_sliding_window."""
        more = {} if window is None else {"sliding_window": window}
        return self.attention(attention.Attention, **more)

    def latent(self):
        layer = Name(kv_cache_dtype=self.cache, head_size=self.config.model_config.get_head_size())
        return mla_attention.MLAAttention.get_kv_cache_spec(layer, self.config)

    def index(self):
        dim = self.hf.index_head_dim
        layer = Name(cache_config=self.config.cache_config, head_dim=dim + dim // 128 * 4,
                     dtype=torch.uint8)
        return deepseek_v2.DeepseekV32IndexerCache.get_kv_cache_spec(layer, self.config)

    def state(self):
        cls = STATE_MODELS[self.model_type]
        dtypes = cls.get_mamba_state_dtype_from_config(self.config)
        hf, tp = self.hf, self.tp
        if self.model_type == "jamba":
            mixer, kept = mamba_mixer.MambaMixer, Name(
                intermediate_size=hf.mamba_expand * hf.hidden_size,
                ssm_state_size=hf.mamba_d_state, conv_kernel_size=hf.mamba_d_conv)
        elif self.model_type == "bamba":
            mixer, kept = mamba_mixer2.MambaMixer2, Name(
                intermediate_size=hf.mamba_expand * hf.hidden_size, n_groups=hf.mamba_n_groups,
                num_heads=hf.mamba_n_heads, head_dim=hf.mamba_d_head,
                ssm_state_size=hf.mamba_d_state, conv_kernel_size=hf.mamba_d_conv,
                num_spec=self.spec)
        elif self.model_type == "nemotron_h":
            mixer, kept = mamba_mixer2.MambaMixer2, Name(
                intermediate_size=hf.mamba_num_heads * hf.mamba_head_dim, n_groups=hf.n_groups,
                num_heads=hf.mamba_num_heads, head_dim=hf.mamba_head_dim,
                ssm_state_size=hf.ssm_state_size, conv_kernel_size=hf.conv_kernel,
                num_spec=self.spec)
        else:
            mixer, kept = GatedDeltaNetAttention, Name(
                tp_size=tp, num_k_heads=hf.linear_num_key_heads,
                num_v_heads=hf.linear_num_value_heads, head_k_dim=hf.linear_key_head_dim,
                head_v_dim=hf.linear_value_head_dim, conv_kernel_size=hf.linear_conv_kernel_dim,
                num_spec=self.spec)
        name = "get_tensor_model_parallel_world_size"
        with mock.patch.object(mamba_mixer, name, lambda: tp), \
                mock.patch.object(mamba_mixer2, name, lambda: tp):
            states = mixer.get_state_shape(kept)
        layer = Name(get_state_shape=lambda: states, get_state_dtype=lambda: dtypes,
                     mamba_type=mixer.mamba_type.fget(kept))
        return abstract.MambaBase.get_kv_cache_spec(layer, self.config)

    def fit_states(self):
        """Has vLLM choose the block size that makes an attention page hold a state."""
        if self.model_type == "nemotron_h":
            NemotronHForCausalLMConfig.update_mamba_ssm_cache_dtype(
                cache_config=self.config.cache_config, hf_config=Name())
        backend = Name(get_supported_kernel_block_sizes=lambda: [16, 32, 64])
        registry = Name(resolve_model_cls=lambda *_, **__: (STATE_MODELS[self.model_type], ""))
        with mock.patch("vllm.config.vllm.set_current_vllm_config", lambda _: nullcontext()), \
                mock.patch("vllm.model_executor.models.ModelRegistry", registry):
            Platform._align_hybrid_block_size.__func__(Platform, self.config, backend)

    # -- all layers --

    def layers(self):
        hf, kind = self.hf, self.model_type
        if kind in STATE_MODELS:
            self.fit_states()
            types = getattr(hf, "layer_types", None) or hf.layers_block_type
            return [self.state() if t in ("mamba", "linear_attention") else self.full_or_window()
                    for t in types if t not in ("mlp", "moe")]
        count = hf.decoder_layers if kind == "whisper" else hf.num_hidden_layers
        return [spec for i in range(count) for spec in self.layer(i)]

    def layer(self, i):
        hf, kind = self.hf, self.model_type
        if kind == "whisper":
            heads = dict(num_kv_heads=max(1, hf.decoder_attention_heads // self.tp),
                         head_size=hf.d_model // hf.decoder_attention_heads)
            heads["head_size_v"] = heads["head_size"]
            return [self.attention(attention.Attention, **heads),
                    self.attention(cross_attention.CrossAttention, **heads)]
        if kind in ("deepseek_v2", "deepseek_v3", "deepseek_v32"):
            return [self.index(), self.latent()] if kind == "deepseek_v32" else [self.latent()]
        if kind == "llama4_text" and hf.no_rope_layers[i] != 0:
            return [self.attention(chunked_local_attention.ChunkedLocalAttention,
                                   attention_chunk_size=hf.attention_chunk_size)]
        if kind == "gpt_oss":
            return [self.full_or_window(hf.sliding_window if i % 2 == 0 else None)]
        if kind in ("gemma2", "gemma3_text"):
            sliding = hf.layer_types[i] == "sliding_attention"
            return [self.full_or_window(hf.sliding_window if sliding else None)]
        return [self.full_or_window()]

    def fields_text(self):
        """The model and the engine's settings, by the names of quire_model_params."""
        values = {"model_type": self.model_type, **self.fields}
        words = []
        for name, value in values.items():
            if name == "torch_dtype":
                value = DTYPES[value]
            elif name == "use_sliding_window":
                value = 1 if value else 2
            elif isinstance(value, list):
                words.append(f"num_{name}={len(value)}")
                value = ",".join(map(str, value))
            words.append(f"{FIELD_NAMES.get(name, name)}={value}")
        words += [f"block_size={self.block}", f"tensor_parallel_size={self.tp}",
                  f"cache_dtype={CACHE_DTYPES.index(self.cache)}",
                  f"mamba_mode={MODES.index(self.mode)}", f"num_speculative_tokens={self.spec}"]
        return " ".join(words)


def engines(name):
    """The settings that each model is recorded with."""
    kind = MODELS[name][0]
    yield Model(name)
    yield Model(name, tp=4, block=32)
    if kind in STATE_MODELS:
        yield from (Model(name, mode=mode, tp=tp) for mode in MODES[1:] for tp in (1, 2))
        yield Model(name, mode="align", spec=3)
        yield Model(name, mode="all", block=48)
        yield Model(name, cache="fp8")
    elif kind.startswith("deepseek"):
        yield Model(name, block=64, cache="fp8_ds_mla")
        yield Model(name, block=64, cache="fp8", tp=8)
    else:
        yield Model(name, cache="fp8", tp=2)
        yield from (Model(name, cache=cache) for cache in CACHE_DTYPES[2:5])
