#!/usr/bin/env python3
"""What `quire replay --lookahead N` changes: hits, preemptions, tokens computed again, latency.

Each run is replayed without lookahead and with each N. A row is marked "!" where lookahead is worse by
more than 2 %: fewer hit tokens, more tokens computed again (and more than 1,000), or a higher
median TTFT.

    bench/lookahead.py --quire build/release/cli/quire --traces DIR [--lookahead 256] [RUN ...]

A replay is deterministic, but one different hit changes which requests run together and all that
follows: the same run in a pool that is 0.5 % larger may have 20 % more preemptions. --sizes 8 replays
each run in eight pools of 98 to 101.5 % of its size and prints the means.

DIR has mooncake_conversation.jsonl.zst and claude_code_sessions.tar.zst; a run whose trace is not
found is skipped. The run "demo" is what ./run replays.
"""

import argparse
import json
import pathlib
import resource
import subprocess
import tempfile

MOONCAKE, CLAUDE = "mooncake_conversation.jsonl.zst", "claude_code_sessions.tar.zst"
DEMO = ["generate", "mixed", "--mix", "agent=1,chat=30", "--requests", "6000", "--rate", "2.2"]
RUNS = {
    "mooncake, --speed 0.5": (MOONCAKE, ["--speed", "0.5"]),
    "mooncake": (MOONCAKE, []),
    "mooncake, 3,000 requests, 16,000 blocks":
        (MOONCAKE, ["--max-requests", "3000", "--num-gpu-blocks", "16000"]),
    "demo, 16,000 blocks": ("demo", ["--num-gpu-blocks", "16000"]),
    "claude, 20,000 blocks": (CLAUDE, ["--num-gpu-blocks", "20000", "--skip-bad"]),
    "mooncake, --speed 0.4": (MOONCAKE, ["--speed", "0.4"]),
    "claude": (CLAUDE, ["--skip-bad"]),
    "demo": ("demo", []),
    "mooncake, 118,750 blocks, 64 sequences":
        (MOONCAKE, ["--num-gpu-blocks", "118750", "--max-num-seqs", "64"]),
}


def replay(quire, trace, arguments):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([quire, "replay", "--quiet", *arguments, "--json", report, trace],
                       check=True, stderr=subprocess.DEVNULL)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        found = json.loads(report.read_text())
    return found, seconds


def values(found):
    """hit tokens, hit rate, preemptions, tokens computed again, TTFT p50 and p99 in s"""
    ttft = found["ttft_ms"]
    return (found["hit_tokens"], 100 * found["hit_rate"], found["preemptions"],
            found["recomputed_tokens"], ttft["p50"] / 1000, ttft["p99"] / 1000)


def is_worse(with_it, without):
    hits, _, _, again, ttft, _ = with_it
    return (hits < 0.98 * without[0] or again > max(1.02 * without[3], without[3] + 1000)
            or ttft > 1.02 * without[4])


def measure(options, trace, arguments, lookahead):
    """The means over the sizes; and the seconds of one replay."""
    arguments = [*arguments, "--lookahead", str(lookahead)]
    found, seconds = replay(options.quire, trace, arguments)
    total = found["blocks"]["total"] + 1  # the null block is one of --num-gpu-blocks
    rows = [values(found)] if options.sizes == 1 else []
    for i in range(options.sizes if options.sizes > 1 else 0):
        blocks = int(total * (0.98 + 0.005 * i))
        found, _ = replay(options.quire, trace, [*arguments, "--num-gpu-blocks", str(blocks)])
        rows.append(values(found))
    return [sum(column) / len(rows) for column in zip(*rows)], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--traces", type=pathlib.Path, default=pathlib.Path("../shared/traces"))
    parser.add_argument("--lookahead", default="256", help="N, or several: 1,16,256")
    parser.add_argument("--sizes", type=int, default=1, help="pools of each run")
    parser.add_argument("--times", action="store_true", help="also the seconds that a replay takes")
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"default all: {'; '.join(RUNS)}")
    options = parser.parse_args()
    print("| run | N | hit tokens | hit rate | preemptions | computed again | each "
          "| TTFT p50, s | p99, s |", " seconds |" if options.times else "", sep="")
    print("|---|---|---|---|---|---|---|---|---|", "---|" if options.times else "", sep="")
    num_worse = 0
    with tempfile.TemporaryDirectory() as folder:
        demo = pathlib.Path(folder) / "demo.jsonl.zst"
        subprocess.run([options.quire, *DEMO, "--out", demo], check=True)
        for name in options.runs or RUNS:
            file, arguments = RUNS[name]
            trace = demo if file == "demo" else options.traces / file
            if not trace.exists():
                print(f"| {name} | skipped: no {trace} |")
                continue
            without = None
            for n in [0, *map(int, options.lookahead.split(","))]:
                v, seconds = measure(options, trace, arguments, n)
                without = without or v
                worse = is_worse(v, without)
                num_worse += worse
                print(f"| {name} | {n}{' !' if worse else ''} | {v[0]:,.0f} | {v[1]:.2f} % "
                      f"| {v[2]:.0f} | {v[3]:,.0f} | {v[3] / max(v[2], 1):,.0f} "
                      f"| {v[4]:,.2f} | {v[5]:,.2f} |",
                      f" {seconds:.2f} |" if options.times else "", sep="", flush=True)
    print(f"\n{num_worse} worse by more than 2 %")


if __name__ == "__main__":
    main()
