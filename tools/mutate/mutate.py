#!/usr/bin/env python3
"""Changes the library in one place at a time, and sees whether a test notices.

    tools/mutate/mutate.py                          200 mutants of all rooms, seed 1
    tools/mutate/mutate.py --mutants 600 --jobs 16 --json build/mutants.json
    tools/mutate/mutate.py --rooms block,group --seed 7
    tools/mutate/mutate.py --only src/block/pool.c:120      every mutant of one line
    tools/mutate/mutate.py --earlier build/mutants.json     go on where an earlier run ended
    tools/mutate/mutate.py --earlier build/mutants.json --again     try its survivors again

A mutant is one operator, constant, condition or statement changed (points.py). Each job has a copy
of the sources and a build of its own under --work. A mutant counts as

    killed      a test fails, crashes, runs into its timeout, or a sanitizer reports
    survived    all tests pass: a test is missing, or the change makes no difference
    same        the object file did not change, or the mutant does not compile: not counted

The tests of the mutant's room come first, quick ones before slow ones; the first that fails ends
the mutant; a test whose program the mutant is not part of is not run. Exit status: 0 when at least
--least per cent of the counted mutants were killed.
"""

import argparse
import collections
import hashlib
import json
import multiprocessing
import multiprocessing.pool
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

sys.dont_write_bytecode = True
from points import Point, points_of  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ["base", "hash", "block", "group", "cache", "sched", "tier"]
CORE_TESTS = r"^(base|hash|block|group|cache|plan|sched|obs|api|coverage|model|parity)_"
TIER_TESTS = r"^(tier_|parity_(slots|offload)|engine_(test|proof)$)"
LINKED = ["CMakeLists.txt", "cmake", "include", "tests", "cli", "bench", "viewer", "examples"]
SETTINGS = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_C_FLAGS_RELEASE=-O1 -w -DQUIRE_NO_PREFETCH",
            "-DQUIRE_UNITY=OFF", "-DQUIRE_BUILD_CLI=OFF", "-DQUIRE_BUILD_BENCH=OFF",
            "-DQUIRE_BUILD_EXAMPLES=OFF", "-DQUIRE_BUILD_EVENTS=OFF", "-DQUIRE_BUILD_HTTP=OFF",
            "-DQUIRE_ASSERT_LEVEL=2", "-DQUIRE_SANITIZE=address,undefined"]


def run(command, timeout=None, **more):
    """The exit status, None after a timeout; the whole process group ends with it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True, **more)
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def digest(file):
    return hashlib.sha256(file.read_bytes()).digest()


class Bench:
    """One job's copy of the sources, its build, and the tests with the time that each takes."""

    def __init__(self, folder, args):
        self.tree = Path(folder) / "tree"
        self.build = Path(folder) / "build"
        self.args = args
        self.programs = {}

    def prepare(self):
        shutil.rmtree(self.tree, ignore_errors=True)
        self.tree.mkdir(parents=True)
        for name in LINKED:
            (self.tree / name).symlink_to(ROOT / name)
        shutil.copytree(ROOT / "src", self.tree / "src")
        command = ["cmake", "-S", str(self.tree), "-B", str(self.build), "-G", self.args.generator]
        log = Path(str(self.build) + ".log")
        self.build.mkdir(parents=True, exist_ok=True)
        with log.open("w") as out:
            subprocess.run(command + SETTINGS + self.args.cmake, check=True, stdout=out, stderr=out)
            subprocess.run(self.make("all"), check=True, stdout=out, stderr=out)

    def make(self, target):
        return ["cmake", "--build", str(self.build), "--target", target]

    def tests(self):
        listed = subprocess.run(["ctest", "--show-only=json-v1"], cwd=self.build, check=True,
                                capture_output=True, text=True).stdout
        found = []
        for test in json.loads(listed)["tests"]:
            command = test.get("command")
            if not command or not re.search(f"{CORE_TESTS}|{TIER_TESTS}", test["name"]):
                continue
            program = Path(command[0])
            if self.build in program.parents and re.search(self.args.tests, test["name"]):
                found.append((test["name"], command, program.name))
        return found

    def object_of(self, path):
        """The digest of the object file of a source, None for a header."""
        room = "quire_tier_objects" if path.startswith("src/tier/") else "quire_objects"
        base = "src/tier/" if path.startswith("src/tier/") else ""
        file = self.build / base / "CMakeFiles" / f"{room}.dir" / f"{path[len(base):]}.o"
        return digest(file) if file.exists() else None

    def passes(self, test, seconds, before=None):
        """Whether a test passes; None for one whose program is as it was before."""
        name, command, program = test
        if run(self.make(program)) != 0:
            return False
        if before is not None and digest(Path(command[0])) == before[name]:
            return None
        return run(command, timeout=seconds, cwd=self.build) in (0, 77)

    def judge(self, point, tests, seconds):
        """("killed", test), ("survived", None) or ("same", why)."""
        file = self.tree / point.path
        text = file.read_text()
        before = self.object_of(point.path)
        file.write_text(point.apply(text))
        try:
            library = "quire_tier_static" if point.path.startswith("src/tier/") else "quire_static"
            if run(self.make(library)) != 0:
                return "same", "does not compile"
            if before is not None and self.object_of(point.path) == before:
                return "same", "the object file is the same"
            has_run = False
            for test in tests:
                passed = self.passes(test, 10 + 6 * seconds[test[0]], self.programs)
                if passed is False:
                    return "killed", test[0]
                has_run = has_run or passed
            return ("survived", None) if has_run else ("same", "every program is the same")
        finally:
            file.write_text(text)
            run(self.make(library))


def order(tests, seconds, path):
    """The tests that may see the mutant: its room's first, then quick ones first."""
    room = path.split("/")[1]
    stem = re.split(r"[_.]", Path(path).name)[0]
    wanted = TIER_TESTS if room == "tier" else CORE_TESTS
    return sorted((t for t in tests if t[0] in seconds and re.search(wanted, t[0])),
                  key=lambda t: (not t[0].startswith(room), stem not in t[0], seconds[t[0]])
                  if seconds[t[0]] < 5 else (True, True, seconds[t[0]]))


def measure(bench, args):
    """How long each test takes, side by side as they will run; those that fail are left out."""

    def seconds_of(test):
        began = time.monotonic()
        passed = bench.passes(test, args.slow)
        return test[0], passed, time.monotonic() - began

    seconds = {}
    with multiprocessing.pool.ThreadPool(args.jobs) as pool:
        for name, passed, taken in pool.imap_unordered(seconds_of, bench.tests()):
            if passed:
                seconds[name] = taken
            else:
                print(f"left out: {name} does not pass here, or takes over {args.slow:.0f} s")
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s for all of them", flush=True)
    return seconds


def work(job, args, seconds, queue, results):
    try:
        do_work(job, args, seconds, queue, results)
    except BaseException:
        results.put(("died", job, traceback.format_exc()))


def do_work(job, args, seconds, queue, results):
    bench = Bench(Path(args.work) / f"job{job}", args)
    if job > 0:
        bench.prepare()
    tests = bench.tests()
    bench.programs = {name: digest(Path(command[0])) for name, command, _ in tests}
    results.put(("ready", job))
    while (pair := queue.get()) is not None:
        began = time.monotonic()
        name, point = pair
        verdict, detail = bench.judge(point, order(tests, seconds, point.path), seconds)
        results.put(("judged", name, point, verdict, detail, time.monotonic() - began))
    results.put(("done", job))


def all_points(rooms):
    """All points by a name that other code's changes leave alone: which line it is does not count."""
    points = {}
    seen = collections.Counter()
    for room in rooms:
        for file in sorted((ROOT / "src" / room).rglob("*.[ch]")):
            path = file.relative_to(ROOT).as_posix()
            if "/cuda/" in path:  # needs a GPU
                continue
            for p in points_of(path, file.read_text()):
                name = f"{p.path} {p.function} {p.kind} {p.old} {p.new}"
                points[f"{seen[name]} {name}"] = p
                seen[name] += 1
    return points


def choose(args):
    """The mutants, (name, point), in the order in which they are tried."""
    points = all_points(args.rooms.split(","))
    if args.only:
        path, _, line = args.only.partition(":")
        points = {name: p for name, p in points.items()
                  if p.path == path and (not line or p.line == int(line))}
    judged = {r["name"]: r["verdict"] for r in args.rows}
    if args.again:
        return [(name, p) for name, p in points.items() if judged.get(name) == "survived"]
    if args.only:
        return list(points.items())
    return sorted(((name, p) for name, p in points.items() if name not in judged),
                  key=lambda pair: hashlib.sha256(f"{args.seed} {pair[0]}".encode()).digest())


class Tally:
    """What came of the mutants so far."""

    def __init__(self, args):
        self.args = args
        self.rows = args.rows
        self.began = time.monotonic()

    def counted(self):
        return [r for r in self.rows if r["verdict"] != "same"]

    def add(self, name, point, verdict, detail, seconds):
        self.rows = [r for r in self.rows if r["name"] != name]
        self.rows.append({"name": name, "mutant": str(point), "path": point.path, "line": point.line,
                          "kind": point.kind, "verdict": verdict, "by": detail,
                          "seconds": round(seconds, 2)})
        if verdict == "survived":
            print(f"survived: {point}", flush=True)
        if len(self.rows) % 25 == 0:
            self.write()
            print(f"{len(self.counted())} mutants, {time.monotonic() - self.began:.0f} s", flush=True)

    def write(self):
        if self.args.json:
            Path(self.args.json).write_text(json.dumps({"seed": self.args.seed, "mutants": self.rows},
                                                       indent=1) + "\n")

    def report(self):
        rooms = collections.defaultdict(lambda: [0, 0])
        for row in self.counted():
            for room in (row["path"].split("/")[1], "all"):
                rooms[room][0] += 1
                rooms[room][1] += row["verdict"] == "killed"
        for room, (n, killed) in sorted(rooms.items(), key=lambda r: (r[0] == "all", r[0])):
            print(f"{room:8} {n:5} mutants {killed:5} killed {100 * killed / n:6.1f} %")
        self.write()
        return 100 * rooms["all"][1] / max(rooms["all"][0], 1)


def feed(args, points, queue, results):
    """Hands out mutants until enough are counted; gathers what comes back."""
    tally = Tally(args)
    waiting = iter(points)
    wanted = args.mutants
    if args.only or args.again:
        wanted = len(tally.counted()) + len(points) + 1
    under_way = finished = 0
    limit = time.monotonic() + args.seconds if args.seconds else None

    def hand_out():
        nonlocal under_way
        late = limit is not None and time.monotonic() > limit
        if not late and len(tally.counted()) + under_way < wanted:
            pair = next(waiting, None)
            if pair is not None:
                queue.put(pair)
                under_way += 1
                return True
        return False

    idle = 0
    while finished < args.jobs:
        what, *rest = results.get()
        if what == "died":
            sys.exit(f"job {rest[0]} died; its build says more in {args.work}\n{rest[1]}")
        if what == "done":
            finished += 1
            continue
        if what == "judged":
            under_way -= 1
            tally.add(*rest)
        idle += 1
        while idle > 0 and hand_out():
            idle -= 1
        if under_way == 0:
            for _ in range(args.jobs):
                queue.put(None)
    return tally


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=200, help="how many to count (default 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", default=",".join(ROOMS), help="rooms of src/, with commas")
    parser.add_argument("--only", metavar="FILE[:LINE]", help="every mutant of a file or line")
    parser.add_argument("--earlier", metavar="JSON", help="count the verdicts of an earlier --json")
    parser.add_argument("--again", action="store_true", help="try the earlier run's survivors again")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--slow", type=float, default=60, help="leave out tests that take longer, seconds")
    parser.add_argument("--tests", metavar="REGEX", default="", help="run these tests only")
    parser.add_argument("--seconds", type=float, help="begin no mutant after this time")
    parser.add_argument("--least", type=float, default=0, help="fail below this share of killed, per cent")
    parser.add_argument("--work", default=str(ROOT / "build" / "mutate"))
    parser.add_argument("--json", help="write all mutants and verdicts to this file")
    parser.add_argument("--generator", default="Ninja", help="of CMake")
    parser.add_argument("--cmake", action="append", default=[], help="further argument of CMake")
    parser.add_argument("--list", action="store_true", help="print the mutants, run none")
    args = parser.parse_args()
    args.rows = json.loads(Path(args.earlier).read_text())["mutants"] if args.earlier else []
    points = choose(args)
    if args.list:
        for _, point in points:
            print(point)
        return 0
    bench = Bench(Path(args.work) / "job0", args)
    bench.prepare()
    seconds = measure(bench, args)
    queue, results = multiprocessing.Queue(), multiprocessing.Queue()
    jobs = [multiprocessing.Process(target=work, args=(i, args, seconds, queue, results), daemon=True)
            for i in range(args.jobs)]
    for job in jobs:
        job.start()
    share = feed(args, points, queue, results).report()
    return 0 if share >= args.least else 1


if __name__ == "__main__":
    sys.exit(main())
