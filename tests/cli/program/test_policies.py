#!/usr/bin/env python3
"""`quire curve --policy` beside naive policies, and lookahead beside LRU on whole traces.

    test_policies.py PROGRAM [--shared FOLDER] [--long] [--seed N]

Small workloads: LRU and lookahead hit what plain dictionaries and sorting hit. Generated ones, and
public ones where they are there: lookahead never hits less than LRU, and with a queue as long as the
trace as much as Belady. --long: more seeds, and five sizes of every public trace.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import naive_lru  # noqa: E402
import test_curve  # noqa: E402

SHARES = (1, 5, 10, 25, 50)  # per cent of the different blocks
TOKENS = 1_900_000  # of the size at which lookahead hits twice what LRU hits
WITHOUT_END = 1 << 24
TRACES = ("mooncake_conversation.jsonl.zst", "azure2023_conv.csv.zst",
          "claude_code_sessions.tar.zst")

failures = 0


def expect(what, is_so, *details):
    global failures
    if not is_so:
        failures += 1
        print("FAILED:", what, *details)


def curve(program, path, backlog, sizes, *more, policies="lru,lookahead"):
    """The answer, and the hits in blocks by size and policy."""
    command = [program, "curve", path, "--policy", policies, "--backlog", str(backlog), "--sizes",
               ",".join(map(str, sizes)), "--points", "2", "--json", "-", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr}")
    answer = json.loads(done.stdout)
    hits = {row["num_blocks"]: {name: value["hit_blocks"]
                                for name, value in row["policies"].items()}
            for row in answer["sizes"]}
    return answer, hits


# ---- naive policies ---------------------------------------------------------


class Waiting:
    """Requests [at, at + backlog] and their lookups."""

    def __init__(self, blocks, at, backlog):
        self.soonest = {}
        for number in range(at, min(at + backlog + 1, len(blocks))):
            full, num_lookups, _ = blocks[number]
            for place, name in enumerate(full[:num_lookups]):
                self.soonest.setdefault(name, (number, place))


def needed_last(cached, own, waiting):
    """What goes first: nobody waits for it and longest not used; else needed last, deepest."""
    others = [name for name in cached if name not in own]
    free = [name for name in others if name not in waiting]
    if free:
        return min(free, key=lambda name: cached[name])
    return max(others, key=lambda name: waiting[name])


def naive_hits(blocks, num_slots, backlog):
    """Of lookahead, or with backlog None of LRU."""
    cached = {}  # name: when it was used last
    clock = hits = 0

    def used(names, waiting):
        nonlocal clock
        for name in reversed(names):
            if name not in waiting:
                clock += 1
                cached[name] = clock

    for number, (full, num_lookups, num_held) in enumerate(blocks):
        waiting = Waiting(blocks, number, backlog).soonest if backlog is not None else {}
        after = Waiting(blocks, number + 1, backlog - 1).soonest if backlog else {}
        partial = [("partial", number, i) for i in range(len(full), num_held)]
        names = (list(full) + partial)[:num_slots]
        found = 0
        while found < min(num_lookups, len(names)) and names[found] in cached:
            found += 1
        hits += found
        missing = [name for name in names if name not in cached]
        used([name for name in names if name in cached], waiting)
        while len(cached) + len(missing) > num_slots:
            del cached[needed_last(cached, set(names), waiting)]
        for name in reversed(missing):
            clock += 1
            cached[name] = clock
        used(names, waiting)
        for name in partial:  # nobody finds it: the next to be taken
            cached.pop(name, None)
        # nobody waits for these any more; those that were not stored since there are too many
        # were never there
        used([name for name in full[:num_lookups] if name in cached and name in waiting], after)
    return hits


def check_small(program, folder, seed):
    path = os.path.join(folder, f"small-{seed}.jsonl")
    block_size, requests = test_curve.make_workload(seed)
    test_curve.write_workload(path, requests)
    blocks = naive_lru.blocks_of(naive_lru.read_trace(path), block_size)
    largest = max(held for _, _, held in blocks) or 1
    sizes = [max(1, largest // 2), largest, largest + 3, largest + 10, largest + 30]
    backlog = (0, 1, 4, 16, WITHOUT_END)[seed % 5]
    _, hits = curve(program, path, backlog, sizes, "--block-size", str(block_size))
    for size in sizes:
        name = f"seed {seed}, {size} blocks of {block_size}, backlog {backlog}"
        want = naive_hits(blocks, size, None)
        expect(f"{name}: LRU", hits[size]["lru"] == want, hits[size]["lru"], want)
        want = naive_hits(blocks, size, min(backlog, len(blocks)))
        expect(f"{name}: lookahead", hits[size]["lookahead"] == want, hits[size], want)


# ---- whole traces -----------------------------------------------------------


def sizes_of(answer):
    return [max(1, int(answer["distinct_blocks"] * share / 100)) for share in SHARES]


def check_never_below(program, path, name, backlog, *more):
    sizes = sizes_of(test_curve.run_json(program, "curve", path, *more))
    _, hits = curve(program, path, backlog, sizes, *more, policies="all")
    for size in sizes:
        row = hits[size]
        print(f"  {name}, {size} blocks: {row}")
        expect(f"{name}, {size} blocks", row["lookahead"] >= row["lru"], row)


def check_bounds(program, path, name, *more):
    """LRU is the curve's; lookahead over all of the trace is Belady's."""
    answer = test_curve.run_json(program, "curve", path, *more)
    sizes = [size for size in sizes_of(answer) if size >= answer["min_blocks"]]
    answer, hits = curve(program, path, WITHOUT_END, sizes, *more)
    for row in answer["sizes"]:
        if row.get("is_too_small"):
            continue
        found = hits[row["num_blocks"]]
        expect(f"{name}: LRU", found["lru"] == row["hit_blocks"], found, row)
        expect(f"{name}: Belady", found["lookahead"] == row["belady_hit_blocks"], found, row)


def check_generated(program, folder, kind, num_requests):
    path = os.path.join(folder, f"{kind}.jsonl")
    subprocess.run([program, "generate", kind, "--requests", str(num_requests), "--seed", "3", "--out",
                    path], check=True, capture_output=True)
    check_never_below(program, path, kind, 32)
    check_bounds(program, path, kind)


def check_conversation(program, path):
    """The size of the promise: 1.9 million tokens, 256 requests wait."""
    size = TOKENS // 512
    _, hits = curve(program, path, 256, [size])
    row = hits[size]
    print(f"  conversation, {size} blocks of 512 tokens: {row}")
    expect("twice as much as LRU", row["lookahead"] >= 2 * row["lru"], row)


def check_refusals(program):
    for arguments, word in ((["--policy", "fifo"], "lookahead"),
                            (["--policy", "lru", "--sample", "0.5"], "--sample")):
        done = subprocess.run([program, "curve", *arguments, "none.jsonl"], capture_output=True,
                              text=True, check=False)
        expect(f"{arguments} is refused", done.returncode != 0 and word in done.stderr, done)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--shared", default="")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("seed", options.seed)
    check_refusals(options.program)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + (300 if options.long else 20)):
            check_small(options.program, folder, seed)
        for kind in ("chat", "multi-turn", "rag", "agent") if options.long else ("chat", "rag"):
            check_generated(options.program, folder, kind, 400 if options.long else 150)
    for name in TRACES:
        path = os.path.join(options.shared, "traces", name)
        if not os.path.exists(path):
            print(f"{name} is not there: not compared")
            continue
        if name.startswith("mooncake"):
            check_conversation(options.program, path)
        if options.long:
            check_never_below(options.program, path, name, 256)
            check_bounds(options.program, path, name)
    print("FAILED" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
