"""From vLLM's configs to the numbers that quire._vllm.Core reads; see quire/sched.h. Here is what all
releases have; config.py in the folder of a release has the rest."""
from typing import Any

from vllm.multimodal.encoder_budget import MultiModalBudget
from vllm.v1.core import kv_cache_utils

from .layers import CROSS, MAMBA, MAMBA_MODES, kind_of
from .version import profile

ON, OFF = 1, 2
POLICIES = {"fcfs": 0, "priority": 1}
BFLOAT16 = 2  # no decision depends on it
MAX_BATCHES = 32
MAX_REQUESTS = 65_536
MAX_TEXT_TOKENS = 1 << 26
MAX_LOADING = 1024
REQUEST_BYTES = 4096  # names and stop tokens of a request,
IMAGE_BYTES = 16_384  # and some 100 images of a model that takes them
MAX_ENCODER_ITEMS = 4096


def switch(value: bool) -> int:
    return ON if value else OFF


def refuse_all(missing: dict[str, bool]) -> None:
    """What is not done yet must not be decided wrongly."""
    for name, is_asked in missing.items():
        if is_asked:
            raise NotImplementedError(f"quire.vllm does not support {name}; turn it off, or use "
                                      "vLLM's scheduler")


def group_of(group) -> dict[str, int]:
    """A group's layers, as far as decisions depend on them."""
    spec = group.kv_cache_spec
    made = {"kind": kind_of(spec), "block_size": spec.block_size,
            "is_eagle": int(getattr(group, "is_eagle_group", False))}
    if made["kind"] == MAMBA:
        made["mamba_mode"] = MAMBA_MODES[spec.mamba_cache_mode]
        made["num_speculative_blocks"] = spec.num_speculative_blocks
        return made
    made.update(num_kv_heads=spec.num_kv_heads, head_size=spec.head_size, dtype=BFLOAT16)
    for name in ("sliding_window", "attention_chunk_size", "sink_len", "tq_slot_size"):
        made[name] = getattr(spec, name, None) or 0
    return made


def common_numbers(vllm_config, kv_cache_config, hash_block_size: int, log_stats: bool,
                   is_async: bool) -> dict[str, Any]:
    """The config of a Core, but for images, drafts and what one release alone has."""
    sched, cache = vllm_config.scheduler_config, vllm_config.cache_config
    parallel = vllm_config.parallel_config
    made = {
        "profile": profile(), "policy": POLICIES[sched.policy], "max_num_seqs": sched.max_num_seqs,
        "max_num_batched_tokens": sched.max_num_batched_tokens,
        "max_num_scheduled_tokens": sched.max_num_scheduled_tokens or 0,
        "long_prefill_token_threshold": sched.long_prefill_token_threshold,
        "enable_chunked_prefill": switch(sched.enable_chunked_prefill),
        "reserve_full_sequence": switch(sched.scheduler_reserve_full_isl),
        "disable_chunked_mm_input": switch(sched.disable_chunked_mm_input),
        "async_scheduling": switch(is_async), "max_batches": MAX_BATCHES,
        "log_stats": switch(log_stats), "max_requests": MAX_REQUESTS,
        "max_text_tokens": MAX_TEXT_TOKENS, "max_loading": MAX_LOADING,
        "max_request_bytes": REQUEST_BYTES, "max_encoder_items": MAX_ENCODER_ITEMS,
        "num_blocks": cache.num_gpu_blocks, "max_model_len": vllm_config.model_config.max_model_len,
        "enable_caching": switch(cache.enable_prefix_caching), "hash_block_size": hash_block_size,
        "dcp_world_size": parallel.decode_context_parallel_size,
        "hash_algorithm": getattr(cache, "prefix_caching_hash_algo", "sha256"),
        "none_hash": getattr(kv_cache_utils, "NONE_HASH", b"\0"),
        "tells_tokens": int(parallel.pipeline_parallel_size > 1 and not sched.async_scheduling),
        "groups": [group_of(g) for g in kv_cache_config.kv_cache_groups]}
    if vllm_config.kv_transfer_config is not None:
        policy = vllm_config.kv_transfer_config.kv_load_failure_policy
        made["fail_on_load_error"] = switch(policy != "recompute")
    if vllm_config.model_config.is_encoder_decoder:
        made["is_encoder_decoder"] = ON
    if vllm_config.lora_config is not None:
        made["max_loras"] = vllm_config.lora_config.max_loras
    return made


def add_images(made: dict[str, Any], vllm_config, mm_registry, takes_images: bool) -> None:
    """The limits of an encoder."""
    if takes_images:
        budget = MultiModalBudget(vllm_config, mm_registry)
        made.update(encoder_compute_budget=budget.encoder_compute_budget,
                    encoder_cache_size=budget.encoder_cache_size,
                    max_request_bytes=IMAGE_BYTES)
    if any(group["kind"] == CROSS for group in made["groups"]):
        made["max_encoder_tokens"] = max(made.get("encoder_compute_budget", 0),
                                         made["max_num_batched_tokens"])
