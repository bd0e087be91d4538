"""What planning in vLLM 0.32 has besides: layouts, tokens in flight, what backends make of a spec."""
from dataclasses import dataclass, replace
from types import SimpleNamespace as Name

from release import IS_0_20

from vllm.v1 import kv_cache_interface as kvi

# As quire_kv_layout numbers them.
LAYOUTS = [None, "LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"]
# As quire_kv_quant numbers them.
QUANTS = ["NONE", "FP8_PER_TENSOR", "INT8_PER_TOKEN_HEAD", "FP8_PER_TOKEN_HEAD", "NVFP4"]
MAMBA_ENUMS = None
DS_MLA_BYTES = {None: 656, "deepseek_v4": 584}  # of a state, as vLLM's layers say

if not IS_0_20:
    from vllm.v1.attention.backends.flashinfer import FlashInferBackend
    from vllm.v1.attention.backends.registry import MambaAttentionBackendEnum as Mamba
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend
    from vllm.v1.kv_cache_layout import KVCacheLayout
    MAMBA_ENUMS = [Mamba.MAMBA2, Mamba.MAMBA1, Mamba.LINEAR, Mamba.SHORT_CONV, Mamba.GDN_ATTN]


def quant_mode(number):
    return kvi.KVQuantMode[QUANTS[number]]


def quant_number(mode):
    return 0 if mode is None else QUANTS.index(mode.name)


def customize(spec):
    """The spec as the attention backend of its quantisation makes it; 0.20 has no such step."""
    if IS_0_20 or not isinstance(spec, kvi.AttentionSpec):
        return spec
    if isinstance(spec, (kvi.MLAAttentionSpec, kvi.SlidingWindowMLASpec)):
        if spec.cache_dtype_str != "fp8_ds_mla":
            return spec
        return replace(spec, state_content_bytes=DS_MLA_BYTES[spec.model_version])
    return FlashInferBackend.customize_spec(TritonAttentionBackend.customize_spec(spec))


@dataclass
class Layout:
    """The settings of a case."""
    number: int
    in_flight: int
    lookahead: int
    mtp: bool

    @classmethod
    def default(cls, step):
        return cls(1, step, 0, False)

    @classmethod
    def draw(cls, rng, step):
        return cls(rng.choice([1, 1, 1, 2, 3, 4, 4, 5, 6]), step * rng.choice([1, 1, 2, 3]),
                   rng.choice([0, 0, 1, 1, 3]), rng.random() < 0.5)

    def text(self):
        return f" {self.number} {self.in_flight} {self.lookahead} {int(self.mtp)}"


def newer_config(config, p):
    """Adds what vLLM 0.32's functions read besides; p.eagle: a drafter that drops blocks."""
    layout = p.newer
    config.max_in_flight_tokens = layout.in_flight
    config.num_prefill_lookahead_tokens = layout.lookahead
    config.attention_config = Name(hisparse_config=None)
    config.device_config = Name(device_type="cuda")
    config.parallel_config.tensor_parallel_size = 1
    config.cache_config.prefix_match_unit = p.hash or None
    config.cache_config.prefix_cache_retention_interval = 0
    config.cache_config.get_resolved_kv_cache_layout = (
        lambda: KVCacheLayout[LAYOUTS[layout.number]])
    config.model_config.hf_config = Name(model_type=getattr(p, "model_type", "llama"))
    if p.eagle:
        config.speculative_config = Name(use_eagle=lambda: True, use_eagle_block_drop=lambda: True,
                                         method="mtp" if layout.mtp else "eagle")
    return config
