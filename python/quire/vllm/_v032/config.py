"""The numbers of a Core for vLLM 0.32."""
from typing import Any

from vllm import envs
from vllm.platforms import current_platform
from vllm.v1.kv_cache_interface import KVCacheGroupRole
from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

from ..config import ON, add_images, common_numbers, refuse_all, switch
from ..layers import MAMBA, kind_of

RETAIN_ALL = 0xFFFFFFFF  # quire/cache.h


def defers_frees(vllm_config) -> bool:
    """Whether vLLM gives blocks back only when the steps in flight have run."""
    transfer = vllm_config.kv_transfer_config
    return (transfer is not None and transfer.is_kv_consumer
            and vllm_config.max_concurrent_batches > 1)


def decode_interval(vllm_config) -> int:
    """Steps from one token of a request to its next one, with the V2 model runner."""
    if current_platform.is_xpu() and not envs.VLLM_XPU_PP_MICROBATCH:
        return 1
    return vllm_config.parallel_config.pipeline_parallel_size


def drafts_by_batch(vllm_config) -> list[int]:
    """The number of drafts after a step of 1, 2, ... requests."""
    sched, spec = vllm_config.scheduler_config, vllm_config.speculative_config
    return build_dynamic_sd_schedule_lookup(
        spec.num_speculative_tokens_per_batch_size, vllm_max_batch_size=sched.max_num_seqs,
        vllm_num_speculative_tokens=vllm_config.num_speculative_tokens)[1:]


def refuse(vllm_config) -> None:
    """What is not done, as far as the config says it."""
    refuse_all({
        "diffusion models": vllm_config.model_config.is_diffusion,
        "HiSparse": vllm_config.attention_config.hisparse_config is not None,
        "custom encoder cache managers":
            vllm_config.ec_manager_config.get_encoder_cache_manager_obj() is not None})


def refuse_groups(vllm_config, kv_cache_config) -> None:
    """What is not done of the cache's groups: layers of other kinds first."""
    groups = kv_cache_config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    kinds = [kind_of(spec) for spec in specs]
    is_split = vllm_config.parallel_config.decode_context_parallel_size > 1
    refuse_all({
        "bounded replay (DeepSeek V4.1)": any(spec.prefix_replay_tokens > 0 for spec in specs),
        "caches in host memory": any(group.host_resident for group in groups),
        "groups with a role of their own":
            any(group.role != KVCacheGroupRole.DEFAULT for group in groups),
        "decode context parallelism with attention layers that are not sharded":
            is_split and any(kind != MAMBA and not getattr(spec, "dcp_sharded", True)
                             for spec, kind in zip(specs, kinds))})


def tell_apart(groups: list[dict[str, int]], specs: list) -> None:
    """Groups with equal specs are looked up together. Specs may differ in fields that decide nothing
    else (tokens_per_state, roles, precision): a number of heads for each spec stands for all."""
    for group, spec in zip(groups, specs):
        if "num_kv_heads" in group:
            group["num_kv_heads"] = 1 + specs.index(spec)


def numbers_of(vllm_config, kv_cache_config, hash_block_size: int, mm_registry, log_stats: bool,
               is_async: bool) -> dict[str, Any]:
    """The config of a Core; what is not done was refused before."""
    sched, spec = vllm_config.scheduler_config, vllm_config.speculative_config
    made = common_numbers(vllm_config, kv_cache_config, hash_block_size, log_stats, is_async)
    tell_apart(made["groups"], [g.kv_cache_spec for g in kv_cache_config.kv_cache_groups])
    retained = kv_cache_config.prefix_cache_retention_interval
    ahead = vllm_config.num_prefill_lookahead_tokens
    is_aligned = vllm_config.cache_config.mamba_cache_mode == "align"
    made.update(
        mamba_block_size=vllm_config.cache_config.block_size if is_aligned else 0,
        defers_frees=int(defers_frees(vllm_config)),
        returns_masks=int(vllm_config.model_config.return_sampling_mask),
        is_v2=int(vllm_config.use_v2_model_runner), watermark=float(sched.watermark),
        max_num_active_seqs=sched.max_num_active_seqs or 0,
        long_prefill_token_threshold_adaptive=switch(sched.long_prefill_token_threshold_adaptive),
        is_encoder_only=switch(vllm_config.is_mm_encoder_only),
        is_pooling_model=switch(vllm_config.model_config.runner_type == "pooling"),
        max_in_flight_tokens=vllm_config.max_in_flight_tokens,
        prefix_cache_retention_interval=RETAIN_ALL if retained is None else retained,
        track_new_blocks=switch(kv_cache_config.needs_kv_cache_zeroing),
        mamba_shared_prefix_checkpoint=switch(
            vllm_config.cache_config.enable_mamba_shared_prefix_checkpoint))
    extra = max((getattr(group.kv_cache_spec, "extra_retained_tokens", 0)
                    for group in kv_cache_config.kv_cache_groups), default=0)
    if extra:  # tokens that windows keep for the draft modules' look ahead
        made["num_prefill_lookahead"] = extra + 1
    add_images(made, vllm_config, mm_registry, vllm_config.model_config.supports_multimodal_inputs)
    if spec is not None:
        made.update(num_spec_tokens=vllm_config.num_speculative_tokens,
                    num_lookahead_tokens=vllm_config.num_lookahead_tokens,
                    num_draft_slots=spec.max_num_new_slots_for_drafting,
                    num_prefill_lookahead_tokens=ahead,
                    num_prefill_lookahead=max(ahead, made.get("num_prefill_lookahead", 0)))
        if spec.use_eagle_block_drop():
            made["use_eagle"] = ON
        if spec.num_speculative_tokens_per_batch_size:
            made["num_spec_tokens_by_batch"] = drafts_by_batch(vllm_config)
    if is_async and vllm_config.use_v2_model_runner:
        made["decode_interval"] = decode_interval(vllm_config)
    return made
