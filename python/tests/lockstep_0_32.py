"""What the lock-step test draws for vLLM 0.32 besides: settings, groups of layers, and how connectors
behave."""
import dataclasses
import math
import random
from types import SimpleNamespace

from lockstep_parts import BLOCK_SIZE


def add_0_32(config, rng: random.Random, depth: int, takes_images: bool):
    """What vLLM 0.32 reads besides. depth: steps in flight."""
    sched, spec = config.scheduler_config, config.speculative_config
    sched.max_num_active_seqs = rng.choice([None] * 4 + [max(1, sched.max_num_seqs - 1)])
    sched.long_prefill_token_threshold_adaptive = rng.random() < 0.3
    sched.watermark = rng.choice([0.0] * 4 + [0.05, 0.2])
    sched.prefill_schedule_interval = 1
    config.cache_config.enable_mamba_shared_prefix_checkpoint = False
    config.observability_config.per_request_spec_decode_metrics = "none"
    config.observability_config.enable_logging_iteration_details = rng.random() < 0.2
    vars(config.model_config).update(
        uses_mrope=False, is_diffusion=False, supports_multimodal_inputs=takes_images,
        runner_type="generate", return_sampling_mask=False)
    drafts = ahead = prefill_ahead = 0
    if spec is not None:
        drafts = spec.num_speculative_tokens
        uses_model = not spec.use_eagle() and rng.random() < 0.3
        ahead = drafts if spec.use_eagle() or uses_model else 0
        prefill_ahead = rng.choice([1, 1, 1, drafts]) if spec.use_eagle() else 0
        drops = spec.use_eagle() and rng.random() < 0.8
        spec.num_speculative_tokens_per_batch_size = None
        spec.use_eagle_block_drop = lambda: drops
        spec.max_num_new_slots_for_drafting = int(uses_model)
    config.is_mm_encoder_only = False
    config.ec_manager_config = SimpleNamespace(get_encoder_cache_manager_obj=lambda: None)
    config.aux_output_config = SimpleNamespace(enabled=False)
    config.attention_config = SimpleNamespace(hisparse_config=None)
    config.num_speculative_tokens, config.num_lookahead_tokens = drafts, ahead
    config.num_prefill_lookahead_tokens = prefill_ahead
    config.max_concurrent_batches = depth
    config.max_in_flight_tokens = depth * sched.max_num_batched_tokens
    config.use_v2_model_runner = rng.random() < 0.4


def settle(pair, groups: list) -> list:
    """Settings of 0.32, drawn after all others; the groups of layers."""
    rng, config = pair.rng, pair.config
    depth = 2 if pair.is_async or config.parallel_config.pipeline_parallel_size > 1 else 1
    add_0_32(config, rng, depth, pair.has_images)
    pair.throttles = rng.random() < 0.1
    config.model_config.return_sampling_mask = rng.random() < 0.1
    config.observability_config.per_request_spec_decode_metrics = rng.choice(
        ["none"] * 8 + ["summary", "detailed"])
    if pair.num_spec and rng.random() < 0.2:  # fewer drafts in large steps
        config.speculative_config.num_speculative_tokens_per_batch_size = [
            (1, 2, pair.num_spec), (3, 64, rng.randint(0, pair.num_spec))]
    config.scheduler_config.disable_chunked_mm_input = rng.random() < 0.15
    config.aux_output_config.enabled = rng.random() < 0.08
    if not pair.is_encoder_decoder:
        groups = drawn_groups(rng, config)
        set_pooling(pair)
    has_window = any("Window" in type(group.kv_cache_spec).__name__ for group in groups)
    has_states = has_kind(groups, "MambaSpec")
    pair.retained = rng.choice([0, 0, None] + [8 * BLOCK_SIZE] * (has_window or has_states))
    if config.kv_transfer_config is not None:
        vars(config.kv_transfer_config).update(
            is_kv_consumer=rng.random() < 0.7, is_kv_producer=True,
            kv_load_failure_policy=rng.choice(["recompute", "fail"]))
    if config.num_prefill_lookahead_tokens > 1:  # as vLLM's plan has it
        for group in groups:
            if hasattr(group.kv_cache_spec, "extra_retained_tokens"):
                change(group, extra_retained_tokens=config.num_prefill_lookahead_tokens - 1)
    if len(groups) > 1 and not pair.is_encoder_decoder:
        set_unlike(rng, groups)
        if has_states:
            set_parts(rng, config, groups)
    if all(has_kind([group], "FullAttentionSpec") or has_kind([group], "MambaSpec")
           for group in groups) and has_kind(groups, "FullAttentionSpec") and rng.random() < 0.1:
        config.parallel_config.decode_context_parallel_size = 2
    set_sizes(pair, groups)
    return groups


def set_parts(rng: random.Random, config, groups: list) -> None:
    """States whose blocks have several hashes: hits end inside of a block. The other groups have
    blocks of the same size, or of one hash."""
    scale = rng.choice([1, 2, 2, 4])
    is_alike = rng.random() < 0.6 and not has_kind(groups, "ChunkedLocalAttentionSpec")
    for group in groups:
        if is_alike or has_kind([group], "MambaSpec"):
            change(group, block_size=scale * BLOCK_SIZE)
    config.cache_config.enable_mamba_shared_prefix_checkpoint = rng.random() < 0.4


def set_sizes(pair, groups: list) -> None:
    """Blocks of the scheduler, and tokens under one hash: at least those that all blocks are
    multiples of. Ranks share the blocks of attention layers."""
    ranks = pair.config.parallel_config.decode_context_parallel_size
    specs = [group.kv_cache_spec for group in groups]
    sizes = [spec.block_size * (ranks if spec.dcp_sharded else 1) for spec in specs]
    pair.block_size = math.lcm(*sizes)
    pair.hash_block_size = math.gcd(*sizes)
    if has_kind(groups, "MambaSpec"):  # --prefix-match-unit
        pair.hash_block_size = pair.rng.choice([BLOCK_SIZE, pair.hash_block_size])
    elif ranks == 1:
        pair.hash_block_size = BLOCK_SIZE
    pair.config.cache_config.block_size = min(spec.block_size for spec in specs)


def has_kind(groups: list, name: str) -> bool:
    return any(type(group.kv_cache_spec).__name__ == name for group in groups)


def change(group, **fields) -> None:
    group.kv_cache_spec = dataclasses.replace(group.kv_cache_spec, **fields)


def set_pooling(pair) -> None:
    """A model that samples nothing."""
    if pair.num_spec == 0 and not pair.has_sessions and pair.rng.random() < 0.06:
        pair.config.model_config.runner_type, pair.pools = "pooling", True


def set_unlike(rng: random.Random, groups: list) -> None:
    """Groups with blocks of two sizes, or with numbers of two precisions: new blocks are zeroed
    then. vLLM wants one size with chunks."""
    import torch

    layers = [group for group in groups if not has_kind([group], "MambaSpec")]
    is_of_one_size = has_kind(groups, "ChunkedLocalAttentionSpec")
    if rng.random() < 0.4 and not is_of_one_size:
        change(rng.choice(groups), block_size=2 * BLOCK_SIZE)
    if rng.random() < 0.4 and layers:
        change(rng.choice(layers), dtype=torch.float32)


def drawn_groups(rng: random.Random, config) -> list:
    """All kinds of layers and of hybrids."""
    import torch
    from vllm.v1 import kv_cache_interface as specs

    heads = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}

    def full():
        return specs.FullAttentionSpec(**heads)

    def window():
        kind = rng.choice([specs.SlidingWindowSpec] * 3 + [specs.SlidingWindowMLASpec])
        return kind(sliding_window=rng.randint(2, 24), **heads)

    def references():
        return specs.RSWASpec(rswa_window=rng.randint(1, 24), **heads)

    def ring():
        return specs.CircularBufferSpec(**heads)

    def hidden():
        return specs.HiddenStateCacheSpec(**heads)

    def chunks():
        return specs.ChunkedLocalAttentionSpec(attention_chunk_size=rng.choice([8, 12]), **heads)

    def states():
        mode = "align" if config.cache_config.enable_prefix_caching else "none"
        config.cache_config.mamba_cache_mode = mode
        more = checkpoints if mode == "align" else {}
        return specs.MambaSpec(block_size=BLOCK_SIZE, shapes=((2,),), dtypes=(torch.float32,),
                               mamba_cache_mode=mode,
                               num_speculative_blocks=config.num_speculative_tokens, **more)

    checkpoints = {}
    if rng.random() < 0.3:  # layers that write states inside of a chunk
        checkpoints = {"num_prefill_checkpoint_blocks": 1,
                       "prefill_checkpoint_alignment": rng.choice([1, 2, BLOCK_SIZE])}
    kinds = [[full]] * 5 + [[window]] * 2 + [[full, window]] * 3 + [
        [full, window, window], [full, full], [references], [full, ring], [ring, full, window],
        [full, hidden], [references, hidden]]
    if config.num_prefill_lookahead_tokens == 0:  # else vLLM does not start
        kinds += [[chunks], [full, chunks]]
    kinds += [[states]] + [[full, states]] * 3 + [[full, states, states], [full, window, states]]
    if config.kv_transfer_config is not None:  # several groups are rare there
        kinds += [[full]] * 6
    made = [kind() for kind in rng.choice(kinds)]
    return [specs.KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(made)]


def drawn_report(pair, loading: list, received: list[str]) -> dict:
    """Which loads have failed: by block, where there is one group, and by request. In order, since
    requests end in the order of a set."""
    from lockstep_partners import OrderedSet

    rng, theirs = pair.rng, pair.both[0]
    failed = OrderedSet(r.request_id for r in loading if rng.random() < 0.06)
    invalid = []
    holders = loading + list(theirs.running)
    if holders and rng.random() < 0.1 and len(theirs.kv_cache_config.kv_cache_groups) == 1:
        (blocks,) = theirs.kv_cache_manager.get_block_ids(rng.choice(holders).request_id)
        invalid = [b for b in blocks if b != 0][:1]
    if theirs.recompute_kv_load_failures:  # the workers tell the end of a failed load too
        received += [name for name in failed if name not in received and rng.random() < 0.7]
    else:  # what ends does not end twice
        received[:] = [name for name in received if name not in failed]
    return {"failed_recving": failed, "invalid_block_ids": set(invalid)}
