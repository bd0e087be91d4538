#!/usr/bin/env python3
"""One trace through `quire fleet` and through NVIDIA Dynamo's replay, in turns: processor seconds and memory.

    PYTHON_WITH_DYNAMO bench/fleet_vs_dynamo.py --quire build/release/cli/quire TRACE [--case 16]...

Each side is a process of its own in each round. Both get the same file, arrivals, workers, block size, blocks,
sequences and tokens of a step, and the same router: `kv_router` with its defaults there, `dynamo-kv` here. What
differs: each has its own model of a step's time, so queues, batches and hits differ; Dynamo draws ties differently in
each run. Quire's processor seconds are those of the whole program, Dynamo's those of the call, after the import.
The peak memory is that of the process, with Python on Dynamo's side (about 60 MB).

The disaggregated case is skipped until `quire fleet` has pools.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile

import dynamo_peer as peer

CASES = {"16": (16, 16), "64": (64, 64), "256": (256, 256), "8P+8D": None}


def child(plain, workers, speed, engine):
    """Dynamo's side."""
    core = peer.core()
    before = resource.getrusage(resource.RUSAGE_SELF)
    core.run_mocker_trace_replay([plain], trace_block_size=512, extra_engine_args=json.loads(engine),
                                 num_workers=int(workers), router_mode="kv_router",
                                 arrival_speedup_ratio=float(speed))
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
            if CASES[name] is None:
                print(f"| {name} | | skipped: `quire fleet` has no pools | | | | | |")
                continue
            workers, speed = (str(n) for n in CASES[name])
            ours, theirs = [], []
            for _ in range(options.rounds):
                ours.append(measured([options.quire, "fleet", "--quiet", *peer.of_quire(options),
                                      "--workers", workers, "--speed", speed, "--router",
                                      "dynamo-kv", "--threads", str(options.threads), plain]))
                theirs.append(measured([sys.executable, __file__, "--child", plain, workers, speed,
                                        engine]))
            (our_s, our_mb), (their_s, their_mb) = (
                (middle([s for s, _ in side]), middle([m for _, m in side]))
                for side in (ours, theirs))
            print(f"| {workers} | x{speed} | {our_s:.2f} | {our_mb:,.0f} | {their_s:.2f} | "
                  f"{their_mb:,.0f} | {their_s / our_s:.1f} times less | {our_mb / their_mb:.2f} |",
                  flush=True)


if __name__ == "__main__":
    main()
