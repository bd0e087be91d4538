#!/usr/bin/env python3
"""llm-d's 73-capacity benchmark through `quire fleet`: four routing policies, beside the published GPU figures.

    bench/fleet_llmd.py --quire build/release/cli/quire [--policy NAME]...

The benchmark (llm-d-kv-cache, benchmarking/73-capacity): 8 pods of Qwen3-32B, each on two H100, with a KV cache of
307,328 tokens; 150 groups of 5 prompts with 6,000 common and 1,200 own tokens; 1,000 output tokens. A warm-up, then
16 stages of 3 to 60 requests a second. The load generator (inference-perf) shuffles the 750 prompts once, starts
each stage with the first of them, and starts a stage when the one before has ended. A second of a stage has a Poisson
number of requests, spread over it exactly. Here a gap of --gap seconds stands for the end of a stage: a cache does
not change while nothing runs. If a stage has not ended by then, the program fails.

Figures are those of the load generator: output tokens / (last end - first arrival) of a stage, time from arrival to
first token; the summary is the mean over the 16 stages, as published. Blocks of 64 tokens are the
benchmark's. All else, the time model too, is the default of `quire fleet`.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

STAGES = [(15, 50), (3, 20), (10, 20), (15, 20), (20, 38), (22, 34), (25, 30), (30, 25), (35, 21), (40, 38),
          (43, 36), (46, 33), (49, 30), (52, 29), (55, 27), (57, 26), (60, 25)]  # requests a second, seconds
GROUPS, PROMPTS, SYSTEM, QUESTION, OUTPUT = 150, 5, 6000, 1200, 1000

# The scorers and weights of the benchmark's configurations; then what was published.
POLICIES = {
    "precise": ("llm-d-precise:prefix=3,kv=2,queue=2", (8730, 0.298, 0.542)),
    "estimated": ("llm-d:prefix=1,kv=1,queue=1", (6944, 13.316, 31.083)),
    "random": ("random", (4429, 45.281, 92.551)),
    "load": ("llm-d:prefix=0,kv=1,queue=1", (4266, 46.987, 94.865)),
}
# Mean TTFT by stage, from 3 to 60 requests a second.
PUBLISHED_TTFT = {
    "precise": [0.291, 0.335, 0.249, 0.363, 0.300, 0.303, 0.296, 0.275, 0.269, 0.281, 0.293, 0.311, 0.288, 0.308,
                0.319, 0.283],
    "estimated": [0.300, 0.271, 0.232, 0.329, 0.407, 0.370, 0.373, 2.780, 13.160, 16.941, 18.081, 19.111, 21.940,
                  22.327, 23.423, 24.281],
    "random": [0.622, 0.826, 1.278, 25.073, 28.185, 30.689, 32.212, 34.043, 54.196, 53.247, 53.572, 56.130, 56.035,
               54.844, 56.803, 57.426],
    "load": [0.944, 2.241, 4.013, 29.229, 28.710, 32.534, 32.831, 33.874, 53.545, 53.802, 56.746, 55.208, 58.807,
             58.467, 61.750, 58.497],
}


def arrivals(rng, rate, seconds):
    """Times of rate x seconds requests: each second a Poisson number of them."""
    left, second = rate * seconds, 0
    while left > 0:
        count, time = 0, rng.expovariate(rate)
        while time < 1:
            count, time = count + 1, time + rng.expovariate(rate)
        gaps = [rng.expovariate(1) for _ in range(count)]
        at = second
        for gap in gaps[:left]:
            at += gap / sum(gaps)
            yield at
        left, second = left - count, second + 1


def write_trace(path, options):
    """The trace, and the number of requests of each stage."""
    rng = random.Random(options.seed)
    prompts = [(group, user) for group in range(GROUPS) for user in range(PROMPTS)]
    rng.shuffle(prompts)
    start = 0.0
    with open(path, "w") as out:
        print(json.dumps({"quire_workload": 1, "kind": "llm-d 73-capacity", "seed": options.seed}), file=out)
        for rate, seconds in STAGES:
            last = start
            for i, at in enumerate(arrivals(rng, rate, seconds)):
                group, user = prompts[i % len(prompts)]
                system = 1 + group
                question = 1 + GROUPS + group * PROMPTS + user
                last = start + at
                print(json.dumps({"time": round(last, 6), "prompt": [[system, SYSTEM], [question, QUESTION]],
                                  "output": OUTPUT}), file=out)
            start = last + options.gap
    return [rate * seconds for rate, seconds in STAGES]


def percentile(values, share):
    values = sorted(values)
    at = share * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (at - low) * (values[high] - values[low])


def run(options, trace, counts, policy):
    """One row of figures for each stage, without the warm-up, and the report."""
    with tempfile.TemporaryDirectory() as folder:
        rows, report = pathlib.Path(folder) / "requests.csv", pathlib.Path(folder) / "report.json"
        subprocess.run([options.quire, "fleet", "--quiet", "--deterministic", "--threads", str(options.threads),
                        "--workers", "8", "--model", "qwen3-32b", "--gpu", "H100", "--tp", "2",
                        "--block-size", "64", "--num-gpu-blocks", str(307328 // 64), *options.extra,
                        "--router", policy, "--csv", rows, "--json", report, trace], check=True)
        with open(rows) as file:
            requests = sorted(csv.DictReader(file), key=lambda row: int(row["request"]))
        report = json.loads(report.read_text())
    stages, first, ended = [], 0, 0.0
    for (rate, _), count in zip(STAGES, counts):
        stage = requests[first:first + count]
        first += count
        begin = min(float(row["arrival_s"]) for row in stage)
        if begin < ended:
            sys.exit(f"--gap {options.gap}: a stage began {ended - begin:.0f} s before the end of the stage before")
        ended = max(float(row["end_s"]) for row in stage)
        ttft = [float(row["ttft_ms"]) / 1000 for row in stage]
        stages.append({
            "rate": rate,
            "tokens_s": OUTPUT * count / (ended - begin),
            "ttft": statistics.fmean(ttft),
            "ttft_p90": percentile(ttft, 0.9),
            "tpot": statistics.fmean(float(row["tpot_ms"]) / 1000 for row in stage),
            "hits": sum(int(row["hit_tokens"]) for row in stage) / sum(int(row["prompt_tokens"]) for row in stage),
        })
    if first != len(requests):
        sys.exit(f"{len(requests)} requests ended, and the trace has {first}")
    return stages[1:], report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--policy", action="append", choices=POLICIES, help="only these")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the prompts and of the arrivals")
    parser.add_argument("--gap", type=float, default=2000, help="seconds between two stages")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("extra", nargs="*", help="after --: further options of quire fleet")
    options = parser.parse_args()
    names = options.policy or list(POLICIES)
    results = {}
    print("| policy | tokens/s | published | TTFT mean, s | published | p90 | published | TPOT, ms | found | preemptions |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "llm-d.jsonl"
        counts = write_trace(trace, options)
        for name in names:
            policy, (tokens_s, ttft, p90) = POLICIES[name]
            stages, report = run(options, trace, counts, policy)
            results[name] = stages
            mean = {key: statistics.fmean(stage[key] for stage in stages) for key in stages[0]}
            print(f"| {name}: `{policy}` | {mean['tokens_s']:,.0f} | {tokens_s:,} | {mean['ttft']:.3f} | {ttft:.3f} | "
                  f"{mean['ttft_p90']:.3f} | {p90:.3f} | {1000 * mean['tpot']:.1f} | {100 * mean['hits']:.1f} % | "
                  f"{report['preemptions']:,} |", flush=True)
    print("\nTTFT mean of each stage, s, and published:\n")
    print("| requests/s | " + " | ".join(f"{name} | published" for name in names) + " |")
    print("|---|" + "---|---|" * len(names))
    for i, (rate, _) in enumerate(STAGES[1:]):
        print(f"| {rate} | " + " | ".join(f"{results[name][i]['ttft']:.2f} | {PUBLISHED_TTFT[name][i]:.2f}"
                                          for name in names) + " |")
    print("\nOutput tokens/s of each stage; hits, % of prompt tokens; time per output token, ms:\n")
    print("| requests/s | " + " | ".join(f"{name} | hits | TPOT" for name in names) + " |")
    print("|---|" + "---|---|---|" * len(names))
    for i, (rate, _) in enumerate(STAGES[1:]):
        print(f"| {rate} | " + " | ".join(f"{stage['tokens_s']:,.0f} | {100 * stage['hits']:.0f} | {1000 * stage['tpot']:.0f}"
                                          for stage in (results[name][i] for name in names)) + " |")


if __name__ == "__main__":
    main()
