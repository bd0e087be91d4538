#!/usr/bin/env python3
"""The same requests through `quire replay` and through vLLM 0.20.0's own Scheduler, in one run.

    quire replay --profile vllm-0.20 --trace STEPS ...     decisions and the time of each step
    vLLM's Scheduler                                        the same trace; a step lasts as long as
                                                            the time model said for that step

Compared step by step: requests running, new and resumed, tokens, preemptions, hits, blocks in use;
and at the end hit tokens, preemptions and steps. The first difference is printed with both values,
and the exit status is then 1. vLLM's time is that of add_request (hashing included), schedule and
update_from_output, and of making the ModelRunnerOutput that the last one wants; in brackets without
that. Reading the trace, making prompts and comparing are not in it. Quire's time is that of the
whole program, from exec to exit.

    PYTHON_WITH_VLLM bench/replay_vs_vllm.py --quire build/run/cli/quire TRACE

QUIRE_VLLM_PLATFORM names a module that lets vLLM be imported without a GPU.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

MASK = (1 << 64) - 1


def content_of(kind: int, a: int, b: int) -> int:
    """cli/trace/content.h"""
    x = (kind * 0x9E3779B97F4A7C15 & MASK) ^ a
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK
    x = ((x ^ x >> 32) + b * 0xA0761D6478BD642F) & MASK
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 & MASK
    return x ^ x >> 32


def tokens_of(content: int, count: int, first: int = 0) -> list[int]:
    start, stride = content & 0xFFFFFFFF, content >> 32 | 1
    return [(start + (first + i) * stride) & 0x7FFFFFFF for i in range(count)]


def read_mooncake(path: str, limit: int) -> list[dict]:
    command = ["zstd", "-dc", path] if path.endswith(".zst") else ["cat", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        lines = [json.loads(line) for _, line in zip(range(limit), reader.stdout)]
        reader.kill()
    return lines


def run_quire(options, steps_path: str, report_path: str, algo: str) -> float:
    command = [options.quire, "replay", "--quiet", "--profile", "vllm-0.20", "--json", report_path,
               "--max-requests", str(options.requests), "--block-size", str(options.block_size),
               "--max-num-seqs", str(options.max_num_seqs), "--max-num-batched-tokens",
               str(options.max_num_batched_tokens), "--prefix-caching-hash-algo", algo,
               "--num-gpu-blocks", str(options.num_gpu_blocks), options.trace]
    if steps_path:
        command += ["--trace", steps_path]
    start = time.perf_counter()
    subprocess.run(command, check=True)
    return time.perf_counter() - start


class Vllm:
    """vLLM's scheduler, with a clock that the steps' times move on."""

    def __init__(self, options, max_model_len: int):
        from types import SimpleNamespace

        import vllm_cache
        import vllm_sched
        vllm_cache.BLOCK_SIZE = vllm_sched.BLOCK_SIZE = options.block_size
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import KVCacheConfig

        config = vllm_sched.config_of(options.num_gpu_blocks, options.max_num_seqs, max_model_len,
                                      False)
        config.scheduler_config.max_num_batched_tokens = options.max_num_batched_tokens
        self.scheduler = Scheduler(
            config, KVCacheConfig(options.num_gpu_blocks, [], vllm_cache.groups_of("full")),
            vllm_sched.NoGrammars(), options.block_size, options.block_size,
            SimpleNamespace(supports_multimodal_inputs=lambda _config: False), False,
            log_stats=True)
        function = get_hash_fn_by_name("sha256")
        kv_cache_utils.init_none_hash(function)
        self.hasher = kv_cache_utils.get_request_block_hasher(options.block_size, function)
        self.seconds = 0.0  # in vLLM's own functions
        self.output_seconds = 0.0  # making what update wants
        self.num_steps = self.hit_tokens = self.num_preemptions = 0
        self.outputs = {}

    def add(self, number: int, line: dict, id_block_size: int) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        prompt = []
        for i, block in enumerate(line["hash_ids"]):
            count = min(id_block_size, line["input_length"] - i * id_block_size)
            prompt += tokens_of(content_of(1, block, 0), count)
        name = f"{number:08d}"
        self.outputs[name] = (content_of(2, number, 0), line["input_length"])
        params = SamplingParams(max_tokens=max(1, line["output_length"]))
        start = time.perf_counter()
        self.scheduler.add_request(
            Request(name, prompt, params, None, block_hasher=self.hasher))
        self.seconds += time.perf_counter() - start

    def schedule(self):
        start = time.perf_counter()
        output = self.scheduler.schedule()
        self.seconds += time.perf_counter() - start
        return output

    def update(self, output) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        start = time.perf_counter()
        names = list(output.num_scheduled_tokens)
        sampled = []
        for name in names:
            request = self.scheduler.requests[name]
            content, prompt = self.outputs[name]
            done = request.num_computed_tokens >= request.num_tokens
            place = request.num_computed_tokens - prompt
            sampled.append(tokens_of(content, 1, place) if done else [])
        result = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)
        middle = time.perf_counter()
        self.output_seconds += middle - start
        self.scheduler.update_from_output(output, result)
        self.seconds += time.perf_counter() - middle

    def snapshot(self, output) -> dict:
        """What can be compared with a line of --trace; before the update."""
        cached = output.scheduled_cached_reqs
        pool = self.scheduler.kv_cache_manager.block_pool
        free = pool.get_num_free_blocks()
        return {"num_tokens": output.total_num_scheduled_tokens,
                "num_scheduled": len(output.num_scheduled_tokens),
                "num_running": len(self.scheduler.running),
                "num_new": len(output.scheduled_new_reqs),
                "num_resumed": len(cached.resumed_req_ids),
                "num_preempted": len(output.preempted_req_ids or ()),
                "active": pool.num_gpu_blocks - 1 - free,
                "hits": sum(r.num_computed_tokens for r in output.scheduled_new_reqs)}


def run_vllm(options, lines: list[dict], steps: list[dict], max_model_len: int):
    vllm = Vllm(options, max_model_len)
    now, number = 0.0, 0
    while number < len(lines) or vllm.scheduler.has_unfinished_requests():
        while number < len(lines) and lines[number]["timestamp"] / 1000 <= now:
            vllm.add(number, lines[number], options.id_block_size)
            number += 1
        output = vllm.schedule()
        if output.total_num_scheduled_tokens == 0:
            vllm.update(output)
            now = max(now, lines[number]["timestamp"] / 1000)
            continue
        theirs = vllm.snapshot(output)
        ours = steps[vllm.num_steps]
        for key, value in theirs.items():
            mine = ours["num_hit_tokens"] if key == "hits" else ours[key]
            if key == "hits" and theirs["num_resumed"] > 0:
                continue  # --trace counts those of resumed requests too
            if mine != value:
                sys.exit(f"step {vllm.num_steps + 1}, {now:.3f} s: {key} is {mine} in Quire, "
                         f"{value} in vLLM")
        vllm.num_steps += 1
        vllm.hit_tokens += theirs["hits"]
        vllm.num_preemptions += theirs["num_preempted"]
        vllm.update(output)
        now = max(now, ours["time_s"]) + ours["duration_ms"] / 1000
        if vllm.num_steps % 500 == 0 and sys.stderr.isatty():
            print(f"\r{vllm.num_steps} steps", end="", file=sys.stderr)
    return vllm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="Mooncake JSON lines, plain or .zst")
    parser.add_argument("--quire", default="build/run/cli/quire")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--id-block-size", type=int, default=512)
    parser.add_argument("--num-gpu-blocks", type=int, default=0, help="0: what an H200 has")
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=20,
                        help="of Quire, half before vLLM's and half after; the median counts")
    options = parser.parse_args()
    platform = os.environ.get("QUIRE_VLLM_PLATFORM")
    if platform:
        sys.path.insert(0, str(Path(platform).parent))
        __import__(Path(platform).stem)
    with tempfile.TemporaryDirectory() as folder:
        steps_path, report_path = f"{folder}/steps.jsonl", f"{folder}/report.json"
        if options.num_gpu_blocks == 0:
            plan = subprocess.run([options.quire, "plan", "--json", "--block-size",
                                   str(options.block_size)], check=True, capture_output=True)
            options.num_gpu_blocks = json.loads(plan.stdout)["num_blocks"]
        run_quire(options, steps_path, report_path, "sha256")
        with open(steps_path, encoding="utf-8") as file:
            meta, *steps = [json.loads(line) for line in file]
        report = json.loads(Path(report_path).read_text(encoding="utf-8"))
        times = {"sha256": [], "quire128": []}

        def measure(rounds: int) -> None:
            for algo in list(times) * rounds:
                times[algo].append(run_quire(options, "", f"{folder}/x.json", algo))

        measure(options.rounds // 2)
        lines = read_mooncake(options.trace, options.requests)
        vllm = run_vllm(options, lines, steps, 131072)
        measure(options.rounds - options.rounds // 2)
        for rounds in times.values():
            rounds.sort()
    print(f"{len(lines)} requests, {options.num_gpu_blocks} blocks of {options.block_size}")
    for key, theirs in (("steps", vllm.num_steps), ("hit_tokens", vllm.hit_tokens),
                        ("preemptions", vllm.num_preemptions)):
        same = "identical" if report[key] == theirs else "DIFFERENT"
        print(f"  {key:12} Quire {report[key]:>12,}   vLLM {theirs:>12,}   {same}")
        if report[key] != theirs:
            sys.exit(1)
    total = vllm.seconds + vllm.output_seconds
    print(f"  vLLM's scheduler           {total:9.3f} s  ({vllm.seconds:.3f})")
    for algo, rounds in times.items():
        median = rounds[len(rounds) // 2]
        print(f"  quire replay, {algo:12} {median:9.3f} s  ({rounds[0]:.3f} .. {rounds[-1]:.3f})"
              f"  {total / median:.0f} times faster ({vllm.seconds / median:.0f})")


if __name__ == "__main__":
    main()
