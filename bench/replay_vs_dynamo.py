#!/usr/bin/env python3
"""One trace through `quire replay` and through NVIDIA Dynamo's replay, in turns, in one run.

Dynamo's `run_mocker_trace_replay` (PyPI: ai-dynamo-runtime) simulates a vLLM-like engine in Rust. Both
get the same file, block size, blocks, sequences and tokens of a step; each has its own time model, so
what they decide differs, and only the time that a replay takes is compared. Quire's time is that of
the whole program, from exec to exit; Dynamo's is that of the call alone, after the import.

    PYTHON_WITH_DYNAMO bench/replay_vs_dynamo.py --quire build/run/cli/quire TRACE

One core for both: taskset -c 1 in front of it.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="Mooncake JSON lines, plain or .zst")
    parser.add_argument("--quire", default="build/run/cli/quire")
    parser.add_argument("--num-gpu-blocks", type=int, default=60000)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    try:
        from dynamo import _core
    except ImportError:
        sys.exit("this Python has no Dynamo: pip install ai-dynamo-runtime==1.6.1")
    engine = {"backend": "vllm", "num_gpu_blocks": options.num_gpu_blocks,
              "block_size": options.block_size, "max_num_seqs": options.max_num_seqs,
              "max_num_batched_tokens": options.max_num_batched_tokens}
    command = [options.quire, "replay", "--quiet", "--num-gpu-blocks", str(options.num_gpu_blocks),
               "--block-size", str(options.block_size), "--max-num-seqs",
               str(options.max_num_seqs), "--max-num-batched-tokens",
               str(options.max_num_batched_tokens), "--json"]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        plain = f"{folder}/trace.jsonl"
        with open(plain, "wb") as file:
            reader = ["zstd", "-dc"] if options.trace.endswith(".zst") else ["cat"]
            subprocess.run([*reader, options.trace], check=True, stdout=file)
        report = f"{folder}/report.json"
        for _ in range(options.rounds):
            start = time.perf_counter()
            subprocess.run([*command, report, plain], check=True)
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            _core.run_mocker_trace_replay([plain], extra_engine_args={"engine": engine},
                                          trace_block_size=512)
            theirs.append(time.perf_counter() - start)
        with open(report, encoding="utf-8") as file:
            requests = json.load(file)["requests"]
    ours.sort()
    theirs.sort()
    middle = options.rounds // 2
    print(f"{requests} requests, {options.num_gpu_blocks} blocks of {options.block_size}; median "
          f"(min .. max) of {options.rounds}")
    for name, times in (("quire replay", ours), ("Dynamo", theirs)):
        print(f"  {name:14} {times[middle]:7.3f} s  ({times[0]:.3f} .. {times[-1]:.3f})")
    print(f"  {theirs[middle] / ours[middle]:.1f} times faster")


if __name__ == "__main__":
    main()
