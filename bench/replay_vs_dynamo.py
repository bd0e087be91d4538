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
import tempfile
import time

import dynamo_peer as peer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="Mooncake JSON lines, plain or .zst")
    parser.add_argument("--quire", default="build/run/cli/quire")
    peer.add_engine(parser)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    core = peer.core()
    engine = peer.of_dynamo(options)
    command = [options.quire, "replay", "--quiet", *peer.of_quire(options), "--json"]
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        plain = peer.plain_trace(options.trace, folder)
        report = f"{folder}/report.json"
        for _ in range(options.rounds):
            start = time.perf_counter()
            subprocess.run([*command, report, plain], check=True)
            ours.append(time.perf_counter() - start)
            start = time.perf_counter()
            core.run_mocker_trace_replay([plain], extra_engine_args=engine, trace_block_size=512)
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
