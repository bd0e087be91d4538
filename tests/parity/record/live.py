#!/usr/bin/env python3
"""Records fresh seeds with vLLM and replays them through Quire.

    live.py BUILD_DIR [--seed N] [--scale X] [--mixes NAME] [KIND ...]

Two environment variables say where vLLM is: QUIRE_VLLM_PYTHON is a Python that has vLLM 0.20.0 or
(name the kinds: hash, queue, map, pool, cache, plan, sched) 0.32.0, QUIRE_VLLM_PLATFORM the file that it must run first.
The seed comes from the clock unless given, and is printed: the same seed records the same file.
Ends with 1 when anything differs, and keeps that recording.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
# kind: (seeds, checks for each, what a check is called)
PLAN = {"hash": (1000, 24, "vectors"), "queue": (200, 100, "operations"),
        "map": (200, 100, "operations"), "pool": (300, 300, "operations"),
        "table": (200, 40, "operations"), "cache": (3000, 110, "operations"),
        "plan": (20, 150, "plans"), "sched": (3000, 110, "operations"),
        "slots": (3000, 100, "operations"), "offload": (1000, 100, "operations")}


def parse():
    parser = argparse.ArgumentParser(description="Record fresh seeds with vLLM and replay them.")
    parser.add_argument("build_dir", type=Path)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(PLAN))
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1000 % 10**10)
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of seeds")
    parser.add_argument("--mixes", default="", help="cache and sched: the mixes, as record.py says")
    args = parser.parse_intermixed_args()
    unknown = set(args.kinds) - set(PLAN)
    if unknown:
        parser.error(f"no such kind: {', '.join(sorted(unknown))}")
    return args


def record(kind, seed, seeds, out, mixes):
    """Runs record.py under vLLM's Python; True when it wrote the file."""
    python = os.environ.get("QUIRE_VLLM_PYTHON")
    if not python or not os.environ.get("QUIRE_VLLM_PLATFORM"):
        sys.exit("live.py: set QUIRE_VLLM_PYTHON and QUIRE_VLLM_PLATFORM")
    command = [python, "-B", HERE / "record.py", kind, "--seed", str(seed), "--runs", str(seeds),
               "--count", str(PLAN[kind][1]), "--out", out, "--edges", "--explain",
               "--mixes", mixes]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
    return done.returncode == 0


def replay(kind, build_dir, path):
    """Runs the replayer; the number of checks it made, or None when something differs."""
    done = subprocess.run([build_dir / "tests" / "parity" / f"parity_{kind}", path],
                          capture_output=True, text=True)
    text = done.stdout + done.stderr
    compared = re.search(r": (\d+) seeds, (\d+) compared", text)
    if done.returncode != 0 or compared is None:
        print(text, file=sys.stderr)
        return None
    return int(compared.group(2))


def run_kind(kind, args, folder):
    """Records and replays one kind; True when nothing differs."""
    _, _, noun = PLAN[kind]
    seeds = max(1, round(PLAN[kind][0] * args.scale))
    path = folder / f"{kind}.txt"
    if not record(kind, args.seed, seeds, path, args.mixes):
        print(f"live {kind}: the recorder failed")
        return False
    compared = replay(kind, args.build_dir, path)
    if compared is None:
        print(f"live {kind}: DIFFERENCES, seeds {args.seed} to {args.seed + seeds - 1}, {path}")
        return False
    print(f"live {kind}: {seeds:,} seeds, {compared:,} {noun}, 0 differences", flush=True)
    return True


def main():
    args = parse()
    folder = Path(tempfile.mkdtemp(prefix="quire-parity-"))
    print(f"live: first seed {args.seed}", flush=True)
    results = [run_kind(kind, args, folder) for kind in args.kinds or PLAN]
    if all(results):
        shutil.rmtree(folder)
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
