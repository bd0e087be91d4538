#!/usr/bin/env python3
"""Fresh workloads through vLLM's scheduler, and the same bytes from Quire's: events_wire_parity with
seeds that nobody has seen yet; and vLLM's decoder on fresh batches of Quire's.

    QUIRE_VLLM_PYTHON=... QUIRE_VLLM_PLATFORM=... wire_live.py BUILD_DIR [--seed N] [--runs N]

Skips (77) without QUIRE_VLLM_PYTHON. The seed comes from the clock and is printed; --seed repeats.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SKIPPED = 77


def run(*command, **environment):
    subprocess.run([str(word) for word in command], check=True,
                   env={**os.environ, **environment})


def main():
    parser = argparse.ArgumentParser(description="Compare events with vLLM's, freshly recorded.")
    parser.add_argument("build", type=Path)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 10**6 * 1000 + 1)
    parser.add_argument("--runs", type=int, default=77, help="workloads; 77 mixes take turns")
    args = parser.parse_args()
    python = os.environ.get("QUIRE_VLLM_PYTHON")
    if not python:
        print("skipped: QUIRE_VLLM_PYTHON is not set")
        sys.exit(SKIPPED)
    print(f"seed {args.seed}", flush=True)
    programs = args.build / "tests" / "events"
    with tempfile.TemporaryDirectory() as folder:
        events, lines = f"{folder}/events.bin", f"{folder}/sched.txt"
        run(python, HERE / "record_events.py", "--out", events, "--lines", lines, "--first",
            args.seed, "--runs", args.runs)
        run(programs / "events_wire_parity", lines, QUIRE_EVENTS_RECORDING=events)
    run(sys.executable, HERE / "test_wire_vllm.py", programs / "wire_batches", args.seed, 2000)


if __name__ == "__main__":
    main()
