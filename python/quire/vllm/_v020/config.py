"""The numbers of a Core for vLLM 0.20."""
from typing import Any

from vllm import envs

from ..config import add_images, common_numbers, refuse_all, switch


def refuse(vllm_config) -> None:
    """What is not done."""
    refuse_all({"routed experts": vllm_config.model_config.enable_return_routed_experts})


def numbers_of(vllm_config, kv_cache_config, hash_block_size: int, mm_registry, log_stats: bool,
               is_async: bool) -> dict[str, Any]:
    """The config of a Core."""
    refuse(vllm_config)
    cache, spec = vllm_config.cache_config, vllm_config.speculative_config
    made = common_numbers(vllm_config, kv_cache_config, hash_block_size, log_stats, is_async)
    made.update(pcp_world_size=vllm_config.parallel_config.prefill_context_parallel_size,
                mamba_block_size=cache.block_size if cache.mamba_cache_mode == "align" else 0,
                is_v2=int(envs.VLLM_USE_V2_MODEL_RUNNER))
    add_images(made, vllm_config, mm_registry,
               mm_registry.supports_multimodal_inputs(vllm_config.model_config))
    if spec is not None:
        drafts = spec.num_speculative_tokens
        looks_ahead = spec.use_eagle() or spec.uses_draft_model()
        made.update(num_spec_tokens=drafts, num_lookahead_tokens=drafts if looks_ahead else 0,
                    use_eagle=switch(spec.use_eagle()))
    return made
