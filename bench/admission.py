#!/usr/bin/env python3
"""What `quire replay --prefix-window N` and `--pin-ttl S` change: hits, latency, the longest wait.

    bench/admission.py --quire build/release/cli/quire --traces DIR [--window 64,256] [prefix] [pins]

Prints two tables: prefix-aware admission against FCFS on three traces at two loads each, and pins by
TTL between the turns of sessions. Each row is one replay; a replay is deterministic. DIR has
mooncake_conversation.jsonl.zst, claude_code_sessions.tar.zst and azure2023_conv.csv.zst; a run whose
trace is not found is skipped. --runs N takes the mean over N pools of 100 to 103 % of the size: one
different hit changes all that follows.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

MOONCAKE, AZURE = "mooncake_conversation.jsonl.zst", "azure2023_conv.csv.zst"
CLAUDE = "claude_code_sessions.tar.zst"
GENERATED = {"agents": ["agent", "--requests", "3000", "--seed", "1"],
             "documents": ["rag", "--requests", "2000", "--seed", "1", "--rate", "3"]}
PREFIX = {
    "mooncake, --speed 0.4": (MOONCAKE, ["--speed", "0.4"]),
    "mooncake, --speed 1": (MOONCAKE, []),
    "claude, --speed 1": (CLAUDE, ["--skip-bad"]),
    "claude, --speed 10": (CLAUDE, ["--skip-bad", "--speed", "10"]),
    "azure, --speed 1": (AZURE, []),
    "azure, --speed 20": (AZURE, ["--speed", "20"]),
    "documents, --speed 10, 20,000 blocks":
        ("documents", ["--speed", "10", "--num-gpu-blocks", "20000"]),
}
PINS = {
    "claude": (CLAUDE, ["--skip-bad"]),
    "agents": ("agents", []),
    "agents, 118,750 blocks": ("agents", ["--num-gpu-blocks", "118750"]),
}


def replay(quire, trace, arguments):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([quire, "replay", "--quiet", *arguments, "--json", report, trace],
                       check=True, stderr=subprocess.DEVNULL)
        return json.loads(report.read_text())


def means(options, trace, arguments):
    """hit tokens, hit rate, overtaking, pinned blocks on average, preemptions, TTFT p50, p99 and the
    longest wait in s"""
    found = [replay(options.quire, trace, arguments)]
    total = found[0]["blocks"]["total"] + 1  # the null block is one of --num-gpu-blocks
    for i in range(1, options.runs):
        blocks = int(total * (1 + 0.03 * i / (options.runs - 1)))
        found.append(replay(options.quire, trace, [*arguments, "--num-gpu-blocks", str(blocks)]))
    rows = [(f["hit_tokens"], 100 * f["hit_rate"], f["overtaking"], f["pins"]["mean_blocks"],
             f["preemptions"], f["ttft_ms"]["p50"] / 1000, f["ttft_ms"]["p99"] / 1000,
             f["queue_ms"]["max"] / 1000) for f in found]
    return [sum(column) / len(rows) for column in zip(*rows)]


def table(options, folder, runs, head, settings, column):
    print(f"| run | {head} | hit tokens | hit rate | {column[0]} | preemptions | TTFT p50, s | p99, s "
          "| longest wait, s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name, (file, arguments) in runs.items():
        trace = folder / file if file in GENERATED else options.traces / file
        if not trace.exists():
            print(f"| {name} | skipped: no {trace} |")
            continue
        for shown, more in settings:
            v = means(options, trace, [*arguments, *more])
            print(f"| {name} | {shown} | {v[0]:,.0f} | {v[1]:.2f} % | {v[column[1]]:,.0f} "
                  f"| {v[4]:,.0f} | {v[5]:,.2f} | {v[6]:,.1f} | {v[7]:,.1f} |", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--traces", type=pathlib.Path, default=pathlib.Path("../shared/traces"))
    parser.add_argument("--window", default="64,256", help="N, or several")
    parser.add_argument("--ttl", default="30,300", help="seconds, or several")
    parser.add_argument("--runs", type=int, default=1, help="pools of each run")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="prefix or pins; default both")
    options = parser.parse_args()
    windows = [("FCFS", [])] + [(n, ["--prefix-window", n]) for n in options.window.split(",")]
    ttls = [("0", [])] + [(t, ["--pin-ttl", t]) for t in options.ttl.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, words in GENERATED.items():
            subprocess.run([options.quire, "generate", *words, "--out", folder / file], check=True)
        if "prefix" in (options.tables or ["prefix"]):
            table(options, folder, PREFIX, "window", windows, ("overtaking", 2))
        if "pins" in (options.tables or ["pins"]):
            table(options, folder, PINS, "TTL, s", ttls, ("pinned blocks, mean", 3))


if __name__ == "__main__":
    main()
