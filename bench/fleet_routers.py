#!/usr/bin/env python3
"""Several routers in front of one fleet: a shared index, a view for each router, and views that are late.

    bench/fleet_routers.py --quire build/release/cli/quire [--workers 60] [--seconds 60] [--router NAME]...

The workload is that of a public measurement (smg pull requests 2438 and 2439: 8 gateways, 240 simulated engines, 611
sessions a second for 180 s): one common prompt of 2,048 tokens, prompts of 10,000 and outputs of 2,100 tokens on
average, with probability 0.5 a second turn after 3 s on average, which adds the output and 512 tokens. No prompt
has more than 24,576 tokens: such a session ends before. An engine has 1.2 M tokens of KV cache in blocks of 256, runs at most 80
requests, computes 80,000 prompt tokens a second, and makes a token in 4.3 ms. Requests go to the routers in turn. Fewer
workers get as many sessions each.

    one router       shares index and loads: what a shared index gives
    own views        each router hears all KV events, and counts its own requests alone
    late views       the same, and KV events reach it --lag ms later
    own decisions    sgl-cache-aware only: each router knows what it has sent itself

Prints the found part of second prompts, the same over all prompts, and the variation (standard deviation / mean) of
requests over workers.
"""

import argparse
import csv
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

PROMPT = [(0.0, 256), (0.216, 5000), (0.530, 10000), (0.994, 20000), (1.0, 24576)]
OUTPUT = [(0.0, 1), (0.351, 1000), (0.513, 2000), (0.998, 5000), (1.0, 6144)]
SYSTEM, SUFFIX, LONGEST, THINK_S, SECOND_TURN = 2048, 512, 24576, 3.0, 0.5
SESSIONS_S = 611 / 240  # for each worker
# A step takes 4.3 ms, and 1 s for 80,000 prompt tokens, whatever the model.
ENGINE = ["--block-size", "256", "--num-gpu-blocks", "4688", "--max-num-seqs", "80", "--max-model-len", "65536",
          "--step-ms", "4.3", "--matmul-tflops", "1200", "--attention-tflops", "1e6", "--weight-tbps", "1e5",
          "--kv-tbps", "1e5", "--layer-us", "0", "--activations", "0.001"]
EVENT_POLICIES = ["production-loadaware", "dynamo-kv"]
OWN_POLICY = "sgl-cache-aware:cache-threshold=0.6,balance-abs-threshold=8,balance-rel-threshold=1.2"


def sample(points, u):
    for (low, a), (high, b) in zip(points, points[1:]):
        if u <= high:
            return max(1, round(a + (b - a) * (u - low) / (high - low)))
    return points[-1][1]


def write_trace(path, options):
    rng = random.Random(options.seed)
    rate, time, session, content = SESSIONS_S * options.workers, 0.0, 0, 1
    with open(path, "w") as out:
        print(json.dumps({"quire_workload": 1, "kind": "two turns", "seed": options.seed}), file=out)
        while True:
            time += rng.expovariate(rate)
            if time >= options.seconds:
                break
            session += 1
            prompt, output = sample(PROMPT, rng.random()), sample(OUTPUT, rng.random())
            own = max(prompt - SYSTEM, 1)
            fits = SYSTEM + own + output + SUFFIX <= LONGEST
            more = rng.random() < SECOND_TURN and fits
            row = {"time": round(time, 6), "session": session, "prompt": [[1, SYSTEM], [content + 1, own]],
                   "output": [content + 2, output]}
            print(json.dumps(row if more else {**row, "last": True}), file=out)
            if more:
                print(json.dumps({"session": session, "think": round(rng.expovariate(1 / THINK_S), 6),
                                  "more": [[content + 3, SUFFIX]],
                                  "output": [content + 4, sample(OUTPUT, rng.random())], "last": True}), file=out)
            content += 4


def run(options, trace, router, arguments):
    with tempfile.TemporaryDirectory() as folder:
        rows, report = pathlib.Path(folder) / "requests.csv", pathlib.Path(folder) / "report.json"
        subprocess.run([options.quire, "fleet", "--quiet", "--deterministic", "--threads", str(options.threads),
                        "--workers", str(options.workers), *ENGINE, "--router", router, *arguments, "--csv", rows,
                        "--json", report, trace], check=True)
        hits = prompts = 0
        by_worker = [0] * options.workers
        with open(rows) as file:
            for row in csv.DictReader(file):
                by_worker[int(row["worker"])] += 1
                if int(row["turn"]) > 0:
                    hits += int(row["hit_tokens"])
                    prompts += int(row["prompt_tokens"])
        return hits / prompts, by_worker, json.loads(report.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--workers", type=int, default=60)
    parser.add_argument("--routers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--lag", type=float, default=1000, help="ms, of late views")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--router", action="append", help="only these policies with KV events")
    options = parser.parse_args()
    several = ["--routers", str(options.routers)]
    runs = [(OWN_POLICY, "one router", []), (OWN_POLICY, "own decisions", several)]
    for router in options.router or EVENT_POLICIES:
        runs += [(router, "one router", []), (router, "own views", several),
                 (router, "late views", [*several, "--kv-lag", str(options.lag)])]
    print("| policy | routers know | found of second prompts | of all prompts | variation of requests | TTFT mean, s |")
    print("|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "turns.jsonl"
        write_trace(trace, options)
        for router, name, arguments in runs:
            found, by_worker, report = run(options, trace, router, arguments)
            print(f"| `{router.split(':')[0]}` | {name} | {100 * found:.1f} % | {100 * report['hit_rate']:.1f} % | "
                  f"{statistics.pstdev(by_worker) / statistics.fmean(by_worker):.3f} | "
                  f"{report['ttft_ms']['mean'] / 1000:.2f} |", flush=True)


if __name__ == "__main__":
    main()
