#!/usr/bin/env python3
"""What tiers cost a replay: `quire replay` with host memory, and with a file behind it, over the same
without; and the same of NVIDIA Dynamo's replay, in turns, in one run.

Dynamo (PyPI: ai-dynamo-runtime) has host memory (native_host_offload) and storage (g3_offload). Both
get the same file, blocks, sequences, tokens of a step and bandwidths; each has its own time model, so
what they decide differs, and only the time that a replay takes is compared: seconds of the processor,
so that others on the machine matter less. With storage Dynamo takes
over a hundred times as long: that row is measured with the first --storage-requests requests, on both
sides, and on Dynamo's side once.

    PYTHON_WITH_DYNAMO bench/replay_tiers.py --quire build/run/cli/quire TRACE

Without Dynamo the rows of Quire alone. One core for both: taskset -c 1 in front of it.
"""

import argparse
import json
import resource
import subprocess
import tempfile
import time

KV_BYTES_PER_TOKEN = 131072  # llama-3.1-8b, bfloat16
CPU_GBPS, FILE_GBPS, FILE_LATENCY_MS = 55.0, 7.0, 0.1


class Quire:
    def __init__(self, options):
        self.command = [options.quire, "replay", "--quiet", "--num-gpu-blocks",
                        str(options.num_gpu_blocks), "--block-size", str(options.block_size),
                        "--max-num-seqs", str(options.max_num_seqs), "--max-num-batched-tokens",
                        str(options.max_num_batched_tokens)]
        host = ["--cpu-blocks", str(options.cpu_blocks), "--offload", options.offload,
                "--cpu-bandwidth", str(CPU_GBPS)]
        size = options.file_blocks * options.block_size * KV_BYTES_PER_TOKEN
        file = ["--file-tier", str(size), "--file-bandwidth", str(FILE_GBPS), "--file-latency",
                str(1000 * FILE_LATENCY_MS)]
        self.tiers = {"none": [], "host": host, "host + file": [*host, *file]}
        self.found = {}

    def run(self, kind, trace):
        with tempfile.NamedTemporaryFile() as report:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([*self.command, *self.tiers[kind], "--json", report.name, trace],
                           check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            self.found[kind] = json.load(report)
        return taken


class Dynamo:
    def __init__(self, core, options):
        self.core = core
        self.engine = {"backend": "vllm", "num_gpu_blocks": options.num_gpu_blocks,
                       "block_size": options.block_size, "max_num_seqs": options.max_num_seqs,
                       "max_num_batched_tokens": options.max_num_batched_tokens}
        host = {"kv_cache_bytes_per_token": KV_BYTES_PER_TOKEN,
                "native_host_offload": {"num_host_blocks": options.cpu_blocks,
                                        "d2h_bandwidth_gbps": CPU_GBPS,
                                        "h2d_bandwidth_gbps": CPU_GBPS}}
        file = {"g3_offload": {"scope": "worker_local", "num_g3_blocks": options.file_blocks,
                               "read_bandwidth_gbps": FILE_GBPS, "write_bandwidth_gbps": FILE_GBPS,
                               "latency_to_first_byte_ms": FILE_LATENCY_MS}}
        self.tiers = {"none": {}, "host": host, "host + file": {**host, **file}}

    def run(self, kind, trace):
        start = time.process_time()
        self.core.run_mocker_trace_replay(
            [trace], extra_engine_args={"engine": {**self.engine, **self.tiers[kind]}},
            trace_block_size=512)
        return time.process_time() - start


def median(times):
    return sorted(times)[len(times) // 2]


def show(name, times, base):
    ratios = [with_tiers / without for with_tiers, without in zip(times, base)]
    print(f"  {name:24} {median(times):8.3f} s  ({min(times):.3f} .. {max(times):.3f})  "
          f"{median(ratios):6.2f} times the time without tiers "
          f"({min(ratios):.2f} .. {max(ratios):.2f})", flush=True)


def measure(title, runners, kinds, rounds, trace):
    """Rounds in turns: every program, every kind. Prints a row for each: the median of the times,
    and of the ratios of each round, since what else the machine does falls on both."""
    times = {(name, kind): [] for name, _ in runners for kind in kinds[name]}
    for i in range(max(rounds.values())):
        for name, runner in runners:
            for kind in kinds[name]:
                if i < rounds[name]:
                    times[name, kind].append(runner.run(kind, trace))
    print(title)
    for name, _ in runners:
        for kind in kinds[name]:
            show(f"{name}, {kind}", times[name, kind], times[name, "none"])
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="Mooncake JSON lines, plain or .zst")
    parser.add_argument("--quire", default="build/run/cli/quire")
    parser.add_argument("--num-gpu-blocks", type=int, default=60000)
    parser.add_argument("--cpu-blocks", type=int, default=240000)
    parser.add_argument("--file-blocks", type=int, default=1000000)
    parser.add_argument("--offload", default="eager", choices=["eager", "lazy"])
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dynamo-rounds", type=int, default=1, help="of the whole trace")
    parser.add_argument("--storage-requests", type=int, default=300)
    options = parser.parse_args()
    try:
        from dynamo import _core
    except ImportError:
        _core = None
        print("this Python has no Dynamo (pip install ai-dynamo-runtime==1.6.1): Quire alone")
    quire = Quire(options)
    runners = [("Quire", quire)] + ([("Dynamo", Dynamo(_core, options))] if _core else [])
    with tempfile.TemporaryDirectory() as folder:
        plain, part = f"{folder}/trace.jsonl", f"{folder}/part.jsonl"
        with open(plain, "wb") as file:
            reader = ["zstd", "-dc"] if options.trace.endswith(".zst") else ["cat"]
            subprocess.run([*reader, options.trace], check=True, stdout=file)
        with open(plain, "rb") as whole, open(part, "wb") as some:
            some.writelines(line for _, line in zip(range(options.storage_requests), whole))
        everything = ["none", "host", "host + file"]
        measure("the whole trace: median (min .. max)", runners,
                {"Quire": everything, "Dynamo": everything[:2]},
                {"Quire": options.rounds, "Dynamo": options.dynamo_rounds}, plain)
        for kind in everything:
            report = quire.found[kind]
            print(f"    hit rate with {kind}: {100 * report['hit_rate']:.2f} % "
                  f"{report.get('hits_by_tier', '')}")
        if _core:
            measure(f"its first {options.storage_requests} requests", runners,
                    {"Quire": everything, "Dynamo": everything}, {"Quire": 5, "Dynamo": 1}, part)


if __name__ == "__main__":
    main()
