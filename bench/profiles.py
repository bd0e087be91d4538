#!/usr/bin/env python3
"""What the profiles decide differently: hit rates and preemptions of vllm-0.20, vllm-0.32 and default.

    bench/profiles.py --quire build/release/cli/quire --traces DIR [--model NAME]... [--max-requests N]

Prints one table for each model, by default a dense one and a hybrid one (full attention and sliding
windows). Each cell is one replay, and a replay is deterministic. DIR has
mooncake_conversation.jsonl.zst, claude_code_sessions.tar.zst and azure2023_conv.csv.zst; a run whose
trace is not found is skipped. `retains all` is vllm-0.32 with --prefix-cache-retention-interval all.
The blocks of a pool depend on the profile too: vLLM 0.32 plans in its own way.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

RUNS = {
    "mooncake, --speed 0.4": ("mooncake_conversation.jsonl.zst", ["--speed", "0.4"]),
    "mooncake, --speed 1": ("mooncake_conversation.jsonl.zst", []),
    "claude, --speed 1": ("claude_code_sessions.tar.zst", []),
    "claude, --speed 10": ("claude_code_sessions.tar.zst", ["--speed", "10"]),
    "azure, --speed 20": ("azure2023_conv.csv.zst", ["--speed", "20"]),
}
MODELS = ["llama-3.1-8b", "gpt-oss-120b"]
VLLM_0_32 = ["--profile", "vllm-0.32"]
PROFILES = {
    "vllm-0.20": ["--profile", "vllm-0.20"],
    "vllm-0.32": VLLM_0_32,
    "vllm-0.32, retains all": [*VLLM_0_32, "--prefix-cache-retention-interval", "all"],
    "default": [],
}


def replay(options, trace, arguments):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [options.quire, "replay", "--quiet", "--skip-bad", *arguments, "--json", report]
        if options.max_requests:
            command += ["--max-requests", str(options.max_requests)]
        subprocess.run([*command, trace], check=True, stderr=subprocess.DEVNULL)
        return json.loads(report.read_text())


def row(name, profile, report):
    hits = f"{100 * report['hit_rate']:.2f} %" if report["has_contents"] else "-"
    ttft = report["ttft_ms"]
    return (f"| {name} | {profile} | {hits} | {report['preemptions']:,} "
            f"| {report['recomputed_tokens']:,} | {ttft['p50'] / 1000:,.2f} "
            f"| {ttft['p99'] / 1000:,.1f} |")


def table(options, model):
    print(f"{model}:\n")
    print("| trace | profile | hit rate | preemptions | tokens computed again | TTFT p50, s | p99, s |")
    print("|---|---|---|---|---|---|---|")
    for name, (file, arguments) in RUNS.items():
        trace = options.traces / file
        if not trace.exists():
            print(f"| {name} | skipped: no {trace} |")
            continue
        for profile, more in PROFILES.items():
            report = replay(options, trace, ["--model", model, *arguments, *more])
            print(row(name, profile, report), flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--traces", type=pathlib.Path, default=pathlib.Path("../shared/traces"))
    parser.add_argument("--model", action="append", help=f"default: {' and '.join(MODELS)}")
    parser.add_argument("--max-requests", type=int, help="of each trace; default all")
    options = parser.parse_args()
    for model in options.model or MODELS:
        table(options, model)


if __name__ == "__main__":
    main()
