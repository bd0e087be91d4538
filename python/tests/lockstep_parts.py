"""What the lock-step test draws for both schedulers: configs, groups of layers, and stand-ins for
requests' parts."""
import random
from types import SimpleNamespace

BLOCK_SIZE = 4
MAX_MODEL_LEN = 96
ALPHABET = 12


def drawn_config(rng: random.Random, is_async: bool):
    """What both schedulers read of a VllmConfig."""
    chunked = rng.random() < 0.8
    tokens = rng.choice([8, 24, 64]) if chunked else MAX_MODEL_LEN
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=rng.choice([1, 3, 8]), max_num_scheduled_tokens=None,
            max_num_batched_tokens=tokens, policy=rng.choice(["fcfs", "fcfs", "priority"]),
            long_prefill_token_threshold=rng.choice([0, 0, 5]), enable_chunked_prefill=chunked,
            scheduler_reserve_full_isl=rng.random() < 0.7, async_scheduling=is_async,
            disable_chunked_mm_input=False),
        cache_config=SimpleNamespace(
            num_gpu_blocks=rng.choice([30, 40, 80]), enable_prefix_caching=rng.random() < 0.8,
            mamba_cache_mode="none", block_size=BLOCK_SIZE, prefix_caching_hash_algo="sha256"),
        lora_config=SimpleNamespace(max_loras=2) if rng.random() < 0.3 else None,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=rng.random() < 0.4,
                                         publisher="null"),
        kv_transfer_config=None, ec_transfer_config=None,
        speculative_config=drawn_spec(rng),
        parallel_config=SimpleNamespace(data_parallel_index=0, decode_context_parallel_size=1,
                                        prefill_context_parallel_size=1,
                                        pipeline_parallel_size=rng.choice([1, 1, 1, 2])),
        observability_config=SimpleNamespace(kv_cache_metrics=False, kv_cache_metrics_sample=1.0,
                                             enable_mfu_metrics=False),
        model_config=SimpleNamespace(is_encoder_decoder=False, max_model_len=MAX_MODEL_LEN,
                                     enable_return_routed_experts=False))


def is_0_32() -> bool:
    from vllm import __version__

    return __version__.startswith("0.32.")


def drawn_spec(rng: random.Random):
    if rng.random() < 0.6:
        return None
    is_eagle = rng.random() < 0.5
    return SimpleNamespace(num_speculative_tokens=rng.randint(1, 3), use_eagle=lambda: is_eagle,
                           uses_draft_model=lambda: False)


def drawn_groups(rng: random.Random):
    import torch
    from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheGroupSpec,
                                            SlidingWindowMLASpec, SlidingWindowSpec)

    shape = {"num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}
    full = KVCacheGroupSpec(["full"], FullAttentionSpec(block_size=BLOCK_SIZE, **shape))
    window_spec = rng.choice([SlidingWindowSpec] * 3 + [SlidingWindowMLASpec])
    window = KVCacheGroupSpec(["window"], window_spec(
        block_size=BLOCK_SIZE, sliding_window=rng.randint(2, 24), **shape))
    return rng.choice([[full], [full], [window], [full, window]])
