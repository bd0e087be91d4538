#!/usr/bin/env python3
"""One trace through `quire fleet` and through NVIDIA Dynamo's replay, in turns: processor seconds and memory.

    PYTHON_WITH_DYNAMO bench/fleet_vs_dynamo.py --quire build/release/cli/quire TRACE [--case 16]...

Each side is a process of its own in each round. Both get the same file, arrivals, workers, block size, blocks,
sequences and tokens of a step, and the same router: `kv_router` with its defaults there, `dynamo-kv` here. What
differs: each has its own model of a step's time, so queues, batches and hits differ; Dynamo draws ties differently in
each run. Quire's processor seconds are those of the whole program, Dynamo's those of the call, after the import.
The peak memory is that of the process, with Python on Dynamo's side (about 60 MB).

8P+8D: eight engines compute prompts and eight generate. KV moves at 50 GB/s from the end of a prompt on, all of the prompt
or only what the other engine has not got (Dynamo: full_prompt, destination_missing). Dynamo has one link for each
pair of engines; here each engine's network has that rate. "shared tier": 16 engines with a storage tier behind them, and
the first 300 requests alone: Dynamo needs minutes for them. Its tier needs host memory in front of it, which is small.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

import dynamo_peer as peer

LINK_GB_S = 50
TIER_REQUESTS = 300
TIER = {"blocks": 1_000_000, "GB/S": 7.0, "latency_us": 100}
CASES = {"16": (16, 16), "64": (64, 64), "256": (256, 256), "8P+8D": (16, 8), "shared tier": (16, 16)}


def of_case(name):
    """What each side gets for it: our arguments, and the arguments of Dynamo's call."""
    workers, speed = CASES[name]
    theirs = {"arrival_speedup_ratio": speed}
    if name == "8P+8D":
        ours = ["--pool", "prefill:8", "--pool", "decode:8", "--transfer", "pull", "--transfer-part", "all",
                "--node-bandwidth", str(LINK_GB_S)]
        theirs |= {"num_prefill_workers": 8, "num_decode_workers": 8}
    else:
        ours = ["--workers", str(workers)]
        theirs |= {"num_workers": workers}
    if name == "shared tier":
        ours += ["--shared-tier", f"blocks={TIER['blocks']},bandwidth={TIER['GB/S']},latency={TIER['latency_us']}"]
    return [*ours, "--speed", str(speed)], theirs


def head_of(plain, folder):
    """The first requests of the trace."""
    short = f"{folder}/head.jsonl"
    with open(plain, "rb") as file, open(short, "wb") as out:
        out.writelines(line for line, _ in zip(file, range(TIER_REQUESTS)))
    return short


def engines_of(name, engine):
    """Dynamo's engines of a case."""
    if name == "8P+8D":
        link = {"kv_bytes_per_token": 131072, "kv_transfer_bandwidth": LINK_GB_S,
                "kv_transfer_timing_mode": "full_prompt"}
        return {f"{role}_engine_args": {"engine": {**engine["engine"], **link, "worker_type": role}}
                for role in ("prefill", "decode")}
    if name == "shared tier":
        tier = {"scope": "cluster_shared", "num_g3_blocks": TIER["blocks"], "read_bandwidth_gbps": TIER["GB/S"],
                "write_bandwidth_gbps": TIER["GB/S"], "latency_to_first_byte_ms": TIER["latency_us"] / 1000}
        host = {"num_host_blocks": 20000, "d2h_bandwidth_gbps": 55.0, "h2d_bandwidth_gbps": 55.0}
        engine = {"engine": {**engine["engine"], "kv_cache_bytes_per_token": 131072, "native_host_offload": host,
                             "g3_offload": tier}}
    return {"extra_engine_args": engine}


def child(plain, name, engine):
    """Dynamo's side."""
    core = peer.core()
    before = resource.getrusage(resource.RUSAGE_SELF)
    core.run_mocker_trace_replay([plain], trace_block_size=512, router_mode="kv_router",
                                 **engines_of(name, json.loads(engine)), **of_case(name)[1])
    after = resource.getrusage(resource.RUSAGE_SELF)
    print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measured(command):
    """The processor seconds that it says, or else its own; peak MB."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{command[0]} failed with {process.returncode}")
        out.seek(0)
        said = out.read().split()
    seconds = float(said[-1]) if said else usage.ru_utime + usage.ru_stime
    return seconds, usage.ru_maxrss / 1024


def middle(values):
    return sorted(values)[len(values) // 2]


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", help="Mooncake JSON lines, plain or .zst")
    parser.add_argument("--quire", default="build/release/cli/quire")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--case", action="append", choices=CASES, help="only these")
    peer.add_engine(parser)
    options = parser.parse_args()
    engine = json.dumps(peer.of_dynamo(options))
    print("| workers | arrivals | quire, s | MB | Dynamo, s | MB | time | memory |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        plain = peer.plain_trace(options.trace, folder)
        for name in options.case or CASES:
            workers, speed = CASES[name]
            ours, theirs = [], []
            trace = head_of(plain, folder) if name == "shared tier" else plain
            for _ in range(options.rounds):
                ours.append(measured([options.quire, "fleet", "--quiet", *peer.of_quire(options),
                                      *of_case(name)[0], "--router", "dynamo-kv", "--threads",
                                      str(options.threads), trace]))
                theirs.append(measured([sys.executable, __file__, "--child", trace, name, engine]))
            (our_s, our_mb), (their_s, their_mb) = (
                (middle([s for s, _ in side]), middle([m for _, m in side]))
                for side in (ours, theirs))
            print(f"| {name} | x{speed} | {our_s:.2f} | {our_mb:,.0f} | {their_s:.2f} | "
                  f"{their_mb:,.0f} | {their_s / our_s:.1f} times less | {our_mb / their_mb:.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
