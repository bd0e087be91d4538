#!/usr/bin/env python3
"""The file tier beside fio, in one run: the same folder, block size and depth, O_DIRECT, at random.

    bench/tier/file.py BUILD/bench/quire_bench_tier_file --folder FOLDER [--rounds 5] [--depth 16]

Rounds take turns, since a disk that is shared with others is not the same from one minute to the next:
what counts is the ratio of the medians. fio: io_uring, registered buffers and file, huge pages where there
are some, no bookkeeping of times. Skips (77) where fio is missing.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

BLOCKS = (("2 MiB", 2 << 20), ("256 KiB", 256 << 10))


def run_tier(arguments, block, direction):
    path = os.path.join(arguments.folder, "quire-bench.slab")
    out = subprocess.run([arguments.program, "--path", path, "--bytes", str(arguments.bytes),
                          "--block", str(block), "--depth", str(arguments.depth),
                          "--seconds", str(arguments.seconds), direction],
                         check=True, capture_output=True, text=True)
    return float(out.stdout)


def run_fio(arguments, block, direction):
    path = os.path.join(arguments.folder, "quire-bench.fio")
    size = arguments.bytes // block * block
    out = subprocess.run(["fio", "--name=b", f"--filename={path}", f"--size={size}", "--direct=1",
                          f"--rw=rand{direction}", f"--bs={block}", f"--iodepth={arguments.depth}",
                          "--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1",
                          "--norandommap=1", "--gtod_reduce=1", "--randrepeat=0", "--time_based=1",
                          f"--runtime={arguments.seconds}", "--overwrite=1",
                          "--output-format=json"],
                         check=True, capture_output=True, text=True)
    job = json.loads(out.stdout[out.stdout.index("{"):])["jobs"][0][direction]
    return job["io_bytes"] / (job["runtime"] / 1000) / 1e9


def show(values):
    return f"{statistics.median(values):5.2f} ({min(values):.2f} .. {max(values):.2f})"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--depth", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=4 << 30)
    arguments = parser.parse_args()
    if shutil.which("fio") is None:
        print("skipped: there is no fio")
        return 77
    print(f"GB/s, median (slowest .. fastest) of {arguments.rounds} rounds in turn, depth "
          f"{arguments.depth}, {arguments.bytes >> 20} MiB, O_DIRECT, at random")
    worst = 1e9
    for name, block in BLOCKS:
        for direction in ("read", "write"):
            ours, theirs = [], []
            for _ in range(arguments.rounds):
                theirs.append(run_fio(arguments, block, direction))
                ours.append(run_tier(arguments, block, direction))
            ratio = statistics.median(ours) / statistics.median(theirs)
            worst = min(worst, ratio)
            print(f"{direction:5} {name:>7}   fio {show(theirs)}   tier {show(ours)}   "
                  f"{100 * ratio:.0f} %", flush=True)
    os.unlink(os.path.join(arguments.folder, "quire-bench.fio"))
    print(f"worst: {100 * worst:.0f} % of fio")
    return 0 if worst >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
