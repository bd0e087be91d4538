#!/usr/bin/env python3
"""Records fresh seeds with vLLM and replays them: residency, and what its Prometheus logger shows.

    live.py BUILD_DIR [--seed N] [--scale X]

Two environment variables say where vLLM is: QUIRE_VLLM_PYTHON is a Python that has vLLM 0.20.0,
QUIRE_VLLM_PLATFORM the file that it must run first. Without them the test is skipped (77). The seed
comes from the clock unless given, and is printed. Ends with 1 when anything differs.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# kind: cases
PLAN = {"residency": 600, "metrics": 60}


def main():
    parser = argparse.ArgumentParser(description="Record fresh seeds with vLLM and replay them.")
    parser.add_argument("build_dir", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1000 % 10**10)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()
    python = os.environ.get("QUIRE_VLLM_PYTHON")
    if not python:
        print("skipped: QUIRE_VLLM_PYTHON is not set")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        for kind, cases in PLAN.items():
            path = pathlib.Path(folder) / f"{kind}.txt"
            count = max(1, round(cases * args.scale))
            subprocess.run([python, "-B", HERE / f"record_{kind}.py", "--seed", str(args.seed),
                            "--cases", str(count), "--out", path], check=True, capture_output=True)
            done = subprocess.run([args.build_dir / "tests" / "obs" / f"obs_{kind}_parity", path],
                                  capture_output=True, text=True)
            said = [line for line in done.stdout.splitlines() if line.startswith(kind)]
            if done.returncode != 0 or not said:
                sys.exit(f"live {kind}: DIFFERENCES, seed {args.seed}\n{done.stdout}{done.stderr}")
            print(f"live {said[0]}, seed {args.seed}", flush=True)


main()
