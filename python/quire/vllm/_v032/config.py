"""The numbers of a Core for vLLM 0.32."""
from typing import Any

from vllm.v1.kv_cache_interface import KVCacheGroupRole

from ..config import ON, add_images, common_numbers, refuse_all, switch
from ..layers import kind_of

RETAIN_ALL = 0xFFFFFFFF  # quire/cache.h


def defers_frees(vllm_config) -> bool:
    """Whether vLLM gives blocks back only when the steps in flight have run."""
    transfer = vllm_config.kv_transfer_config
    return (transfer is not None and transfer.is_kv_consumer
            and vllm_config.max_concurrent_batches > 1)


def staggers_decodes(vllm_config) -> bool:
    """Whether a request decodes in every pipeline_parallel_size-th step alone."""
    return (vllm_config.parallel_config.pipeline_parallel_size > 1
            and vllm_config.scheduler_config.async_scheduling and vllm_config.use_v2_model_runner)


def refuse(vllm_config) -> None:
    """What is not done, as far as the config says it."""
    model, spec = vllm_config.model_config, vllm_config.speculative_config
    observed = vllm_config.observability_config
    refuse_all({
        "auxiliary outputs (routed experts)": vllm_config.aux_output_config.enabled,
        "diffusion models": model.is_diffusion,
        "encoder-only engines (mm_encoder_only)": vllm_config.is_mm_encoder_only,
        "encoder connectors with encoder-decoder models":
            vllm_config.ec_transfer_config is not None and model.is_encoder_decoder,
        "HiSparse": vllm_config.attention_config.hisparse_config is not None,
        "custom encoder cache managers":
            vllm_config.ec_manager_config.get_encoder_cache_manager_obj() is not None,
        "return_sampling_mask": model.return_sampling_mask,
        "per_request_spec_decode_metrics": observed.per_request_spec_decode_metrics != "none",
        "num_speculative_tokens_per_batch_size (a number of drafts that follows the batch size)":
            spec is not None and bool(spec.num_speculative_tokens_per_batch_size),
        "prefill_schedule_interval above 1": vllm_config.scheduler_config.prefill_schedule_interval > 1,
        "pipeline parallelism with async scheduling and the V2 model runner":
            staggers_decodes(vllm_config),
        "a KV connector that loads (kv_consumer, kv_both) with several steps in flight (async "
        "scheduling or pipeline parallelism)": defers_frees(vllm_config)})


def refuse_groups(kv_cache_config, dcp_world_size: int) -> None:
    """What is not done of the cache's groups: layers of other kinds first."""
    groups = kv_cache_config.kv_cache_groups
    specs = [group.kv_cache_spec for group in groups]
    for spec in specs:
        kind_of(spec)
    refuse_all({
        "bounded replay (DeepSeek V4.1)": any(spec.prefix_replay_tokens > 0 for spec in specs),
        "layers that cannot be found in the prefix cache":
            any(not spec.prefix_cacheable for spec in specs),
        "caches in host memory": any(group.host_resident for group in groups),
        "groups with a role of their own":
            any(group.role != KVCacheGroupRole.DEFAULT for group in groups),
        "decode context parallelism with layers that are not sharded":
            dcp_world_size > 1 and any(not getattr(spec, "dcp_sharded", True) for spec in specs)})


def numbers_of(vllm_config, kv_cache_config, hash_block_size: int, mm_registry, log_stats: bool,
               is_async: bool) -> dict[str, Any]:
    """The config of a Core; what is not done was refused before."""
    sched, spec = vllm_config.scheduler_config, vllm_config.speculative_config
    made = common_numbers(vllm_config, kv_cache_config, hash_block_size, log_stats, is_async)
    retained = kv_cache_config.prefix_cache_retention_interval
    ahead = vllm_config.num_prefill_lookahead_tokens
    made.update(
        is_v2=int(vllm_config.use_v2_model_runner), watermark=float(sched.watermark),
        max_num_active_seqs=sched.max_num_active_seqs or 0,
        long_prefill_token_threshold_adaptive=switch(sched.long_prefill_token_threshold_adaptive),
        is_pooling_model=switch(vllm_config.model_config.runner_type == "pooling"),
        max_in_flight_tokens=vllm_config.max_in_flight_tokens,
        prefix_cache_retention_interval=RETAIN_ALL if retained is None else retained,
        track_new_blocks=switch(kv_cache_config.needs_kv_cache_zeroing))
    add_images(made, vllm_config, mm_registry, vllm_config.model_config.supports_multimodal_inputs)
    if spec is not None:
        made.update(num_spec_tokens=vllm_config.num_speculative_tokens,
                    num_lookahead_tokens=vllm_config.num_lookahead_tokens,
                    num_draft_slots=spec.max_num_new_slots_for_drafting,
                    num_prefill_lookahead_tokens=ahead, num_prefill_lookahead=ahead)
        if spec.use_eagle_block_drop():
            made["use_eagle"] = ON
    return made
