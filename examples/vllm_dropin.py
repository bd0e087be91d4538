#!/usr/bin/env python3
"""vLLM's scheduler and Quire's, side by side on the same requests, with vLLM's own objects.

    python examples/vllm_dropin.py [--platform MODULE]

Chats with one long system prompt come in, and there are too few blocks for all of them, so that
prefixes are shared and requests are preempted. The model is made up: a token is a number that
depends on what came before it. In each step both schedulers must decide the same; what they took is
printed at the end. Needs vLLM 0.20.x or 0.32.x and Quire's wheel; --platform names a module to import first
where vLLM finds no GPU.
"""
import argparse
import importlib
import json
import tempfile
import time
from pathlib import Path

BLOCK_SIZE = 16
NUM_BLOCKS = 70
NUM_CHATS = 40
SYSTEM_TOKENS = 200
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
         "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 32000, "max_position_embeddings": 2048}


def make_config(folder: str):
    """A VllmConfig for a small Llama, of which only config.json is there."""
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    (Path(folder) / "config.json").write_text(json.dumps(MODEL))
    config = VllmConfig(
        model_config=ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True),
        scheduler_config=SchedulerConfig.default_factory(
            max_num_seqs=16, max_num_batched_tokens=512, max_model_len=2048,
            async_scheduling=False),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True))
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    return config


def make_scheduler(kind, config):
    """As EngineCore makes it, with the class that --scheduler-cls would name."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    layers = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=2, head_size=16,
                               dtype=torch.float32)
    return kind(vllm_config=config, log_stats=True, block_size=BLOCK_SIZE,
                kv_cache_config=KVCacheConfig(NUM_BLOCKS, [], [KVCacheGroupSpec(["layer"], layers)]),
                structured_output_manager=StructuredOutputManager(config))


def make_requests(hasher):
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    system = [7 * i % 31000 for i in range(SYSTEM_TOKENS)]
    return [Request(f"chat {i}", system + list(range(1000 * i % 30000, 1000 * i % 30000 + 30 + i)),
                    SamplingParams(max_tokens=20 + i % 50), None, arrival_time=float(i),
                    block_hasher=hasher) for i in range(NUM_CHATS)]


def run(scheduler, requests):
    """All requests to their end: what was decided in each step, what was preempted, seconds."""
    from vllm.v1.outputs import ModelRunnerOutput

    steps, preempted, hits, seconds = [], 0, 0, 0.0
    for request in requests:
        scheduler.add_request(request)
    while scheduler.has_unfinished_requests():
        start = time.perf_counter()
        output = scheduler.schedule()
        seconds += time.perf_counter() - start
        names = list(output.num_scheduled_tokens)
        steps.append((output.num_scheduled_tokens,
                      [(new.req_id, new.block_ids) for new in output.scheduled_new_reqs],
                      output.scheduled_cached_reqs.new_block_ids))
        preempted += len(output.preempted_req_ids or ())
        hits += sum(new.num_computed_tokens for new in output.scheduled_new_reqs)
        tokens = [[] if scheduler.requests[name].is_prefill_chunk
                  else [(31 * len(steps) + 17 * i) % 32000] for i, name in enumerate(names)]
        computed = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, tokens)
        start = time.perf_counter()
        scheduler.update_from_output(output, computed)
        seconds += time.perf_counter() - start
    return steps, preempted, hits, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", help="module to import before vLLM, where there is no GPU")
    platform = parser.parse_args().platform
    if platform:
        importlib.import_module(platform)
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.sched import scheduler as theirs

    import quire.vllm as ours

    kv_cache_utils.init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(folder)
        results = []
        for name, kind, make_hasher in (
                ("vLLM", theirs.Scheduler, kv_cache_utils.get_request_block_hasher),
                ("Quire", ours.Scheduler, ours.get_request_block_hasher)):
            requests = make_requests(make_hasher(BLOCK_SIZE, sha256))
            results.append(run(make_scheduler(kind, config), requests))
            steps, preempted, hits, seconds = results[-1]
            print(f"{name:5}  {len(requests)} chats in {len(steps)} steps, {hits} prompt tokens from "
                  f"the cache, {preempted} preemptions; schedule + update "
                  f"{1e6 * seconds / len(steps):.0f} us a step")
    is_same = results[0][0] == results[1][0]
    print("the same tokens and blocks in every step" if is_same else "DIFFERENT decisions")
    print("in a server:  vllm serve MODEL --scheduler-cls quire.vllm.AsyncScheduler")
    print("or:           QUIRE_VLLM=1 vllm serve MODEL")
    return 0 if is_same else 1


if __name__ == "__main__":
    raise SystemExit(main())
