"""What decides the meaning of a block's bytes: engines whose identities differ share no block."""
import os
from typing import Any

from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

from quire._connector import fingerprint

from .regions import Region


def layout_of(kv_caches: dict) -> str:
    """Order of layers, shapes, strides and types: everything about how a page is read."""
    return ";".join(f"{name}:{tensor.dtype}:{list(tensor.shape[1:])}:{list(tensor.stride())}"
                    for name, tensor in kv_caches.items())


def identity_of(vllm_config, kv_cache_config, kv_caches: dict, regions: list[Region],
                namespace: str) -> dict[str, Any]:
    model, cache = vllm_config.model_config, vllm_config.cache_config
    parallel = vllm_config.parallel_config
    _, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    base = min(region.base for region in regions)
    shape = [(region.bytes, (region.base - base) % region.stride) for region in regions]
    return {
        "model": str(model.model), "weights_digest": str(model.revision),
        "tokenizer": f"{model.tokenizer}@{model.tokenizer_revision}",
        "kv_dtype": f"{cache.cache_dtype}/{model.dtype}/{model.quantization}",
        "layout": f"{layout_of(kv_caches)}|{[size for size, _ in shape]}",
        "attention": "|".join(repr(group.kv_cache_spec) for group in kv_cache_config.kv_cache_groups)
                     + f"|{getattr(model.hf_config, 'rope_scaling', None)}"
                     + f"|{getattr(model.hf_config, 'rope_parameters', None)}",
        "hash_algorithm": cache.prefix_caching_hash_algo,
        "hash_seed": os.environ.get("PYTHONHASHSEED", ""), "tenant": namespace,
        "num_layers": len(kv_caches), "block_tokens": hash_block_size,
        "num_groups": len(kv_cache_config.kv_cache_groups),
        "tp_size": parallel.tensor_parallel_size, "pp_size": parallel.pipeline_parallel_size,
        "dcp_size": parallel.decode_context_parallel_size,
        "pcp_size": getattr(parallel, "prefill_context_parallel_size", 1),
        "block_bytes": sum(region.bytes for region in regions)}


def fingerprint_of(*given) -> bytes:
    return fingerprint(identity_of(*given))
