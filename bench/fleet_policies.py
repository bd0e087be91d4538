#!/usr/bin/env python3
"""What each routing policy gives: hit rate, TTFT, and how far it is behind the oracle.

    bench/fleet_policies.py --quire build/release/cli/quire --traces DIR [--policy NAME]...

Prints the table of docs/routers.md: one row for each policy and trace, each of them one `quire fleet` with the
defaults of the policy. A run is deterministic: the same rows on every machine. DIR has
mooncake_conversation.jsonl.zst, claude_code_sessions.tar.zst and azure2023_conv.csv.zst; a trace that is not
found is skipped. The regret is the mean TTFT less that of the oracle: below 0 where a policy is better, since
the oracle decides for each request alone, and does not know the future.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

RUNS = {
    "Mooncake, 16 workers, --speed 8": (
        "mooncake_conversation.jsonl.zst", ["--workers", "16", "--speed", "8"]),
    "coding agents, 4 workers, --speed 2": (
        "claude_code_sessions.tar.zst", ["--workers", "4", "--speed", "2"]),
    "Azure, 4 workers, --speed 15": (
        "azure2023_conv.csv.zst", ["--workers", "4", "--speed", "15"]),
}
POLICIES = ["oracle", "dynamo-kv", "llm-d", "llm-d-precise", "sgl-cache-aware", "lmetric", "smetric",
            "vllm-kv-aware", "vllm-dp", "production-loadaware", "aibrix-prefix", "conductor", "preble",
            "ray-prefix", "session", "least-loaded", "power-of-two", "round-robin", "random"]


def fleet(options, trace, arguments, policy):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([options.quire, "fleet", "--quiet", "--deterministic", "--skip-bad",
                        "--threads", str(options.threads), *arguments, "--router", policy, "--json",
                        report, trace], check=True, stderr=subprocess.DEVNULL)
        return json.loads(report.read_text())


def percent(tokens, report):
    if not report["has_contents"]:
        return "-"
    return f"{100 * tokens / report['prompt_tokens']:.1f} %"


def row(policy, report, oracle):
    ttft = report["ttft_ms"]
    regret = "-"
    if oracle is not None:
        regret = f"{(ttft['mean'] - oracle['ttft_ms']['mean']) / 1000:+,.2f}"
    believed = percent(report["fleet"]["believed_tokens"], report)
    return (f"| `{policy}` | {percent(report['hit_tokens'], report)} | {believed} | "
            f"{ttft['mean'] / 1000:,.2f} | {ttft['p50'] / 1000:,.2f} | {ttft['p99'] / 1000:,.1f} | "
            f"{regret} | {report['fleet']['spread']['busy']['variation']:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--policy", action="append", help="only these; the oracle is always run")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name, (file, arguments) in RUNS.items():
        trace = options.traces / file
        if not trace.exists():
            print(f"skipped: {trace} is not found\n")
            continue
        print(f"{name}:\n")
        print("| policy | found | believed | TTFT mean, s | p50 | p99 | regret, s | variation of busy |")
        print("|---|---|---|---|---|---|---|---|", flush=True)
        oracle = None
        for policy in POLICIES:
            if options.policy and policy not in options.policy and policy != "oracle":
                continue
            report = fleet(options, trace, arguments, policy)
            print(row(policy, report, oracle), flush=True)
            oracle = oracle or report
        print()


if __name__ == "__main__":
    main()
