"""Kills a process that writes to a file tier, at any time, and starts it again: what it then finds was
stored, and it finds something.

    test_kill.py PROGRAM [--cycles N] [--seed N] [--modes uring,threads,shared]

Every tenth life ends by itself, so that both kinds of ends follow each other.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time


class Cycles:
    """One file, or shared directory, and its lives."""

    def __init__(self, program, mode, seed, folder):
        self.program = program
        self.mode = mode
        self.random = random.Random(seed)
        self.path = folder if mode == "shared" else os.path.join(folder, "slab")
        self.found = []

    def start(self):
        seed = self.random.randrange(1, 1 << 30)
        return subprocess.Popen([self.program, self.path, self.mode, str(seed)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def live(self, is_clean):
        life = self.start()
        if not is_clean and self.random.random() < 0.1:
            time.sleep(self.random.uniform(0, 0.02))  # while it opens
            life.kill()
            _, errors = life.communicate()
            return check_errors(errors)
        line = life.stdout.readline()
        if not line.startswith("found "):
            _, errors = life.communicate()
            return f"it did not open: {line}{errors}"
        self.found.append(int(line.split()[1]))
        time.sleep(self.random.uniform(0, 0.03))
        if not is_clean:
            life.kill()
        _, errors = life.communicate()
        if is_clean and life.returncode != 0:
            return f"ended with {life.returncode}: {errors}"
        return check_errors(errors)


def check_errors(errors):
    return f"it said: {errors}" if errors else None


def count_unfinished(folder):
    return sum(name.startswith(".tmp-") for _, _, names in os.walk(folder) for name in names)


def run_mode(arguments, mode):
    with tempfile.TemporaryDirectory(prefix="quire-kill-") as folder:
        cycles = Cycles(arguments.program, mode, arguments.seed, folder)
        for i in range(arguments.cycles):
            problem = cycles.live(is_clean=i % 10 == 9)
            if problem:
                print(f"{mode}, life {i}, seed {arguments.seed}: {problem}", file=sys.stderr)
                return False
        later = cycles.found[2:]
        print(f"{mode}: {arguments.cycles} lives, found {min(later)} to {max(later)} blocks, "
              f"{sum(later) / len(later):.1f} on average")
        if mode == "shared" and count_unfinished(folder) > 0:
            print("unfinished files are left", file=sys.stderr)
            return False
        return sum(later) > 2 * len(later)  # one is stored by each life before it counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--modes", default="uring,threads,shared")
    arguments = parser.parse_args()
    results = [run_mode(arguments, mode) for mode in arguments.modes.split(",")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
