#!/usr/bin/env python3
"""`quire curve` beside naive_lru.py and beside replays: the same hits, block for block.

    test_curve.py PROGRAM [--shared FOLDER] [--long] [--seed N]

Workloads made up here are small and full of prompts that end with their last block full (so that
blocks are computed again, and the pool holds copies); `quire generate` gives larger ones; the public
trace is compared where it is there. --long: more seeds, and ten sizes of the trace instead of four.
"""

import argparse
import functools
import itertools
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import naive_lru  # noqa: E402

TRACE_BLOCKS = 288_500
UNIQUE_IDS = 182_790
# A plain LRU list of the trace's ids that holds 1, 5, 10, 25 % of them, in per cent of all ids.
PUBLISHED = ((1, 5.2), (5, 19.6), (10, 27.9), (25, 35.3))

failures = 0


def expect(what, is_so, *details):
    global failures
    if not is_so:
        failures += 1
        print("FAILED:", what, *details)


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"quire {' '.join(arguments)}: {done.returncode}\n{done.stderr}")
    return done.stdout


def run_json(program, *arguments):
    return json.loads(run(program, *arguments, "--json", "-"))


def curve_rows(program, path, block_size, sizes, *more):
    answer = run_json(program, "curve", path, "--block-size", str(block_size), "--sizes",
                      ",".join(map(str, sizes)), *more)
    return answer, {row["num_blocks"]: row for row in answer["sizes"]}


def replay_hits(program, path, block_size, size, max_model_len=None):
    more = ["--max-model-len", str(max_model_len)] if max_model_len else []
    return run_json(program, "replay", path, "--clock", "serial", "--block-size", str(block_size),
                    "--num-gpu-blocks", str(size + 1), "--quiet", *more)


# ---- small workloads --------------------------------------------------------


def make_workload(seed):
    """Prompts that are heads of prompts before, cut and lengthened; often by whole blocks."""
    rng = random.Random(seed)
    block_size = rng.choice([1, 2, 3, 4, 8])
    history = []
    requests = []
    fresh = 100
    for _ in range(rng.randint(1, 120)):
        if history and rng.random() < 0.85:
            prompt = list(rng.choice(history[-30:]))
            prompt = prompt[: rng.randint(1, len(prompt))]
            if rng.random() < 0.5:
                prompt[-1] = (prompt[-1][0], rng.randint(1, prompt[-1][1]))
        else:
            prompt = [(rng.randint(1, 4), rng.choice([block_size, 3 * block_size, 7]))]
        while rng.random() < 0.4:
            fresh += 1
            prompt.append((fresh, rng.choice([block_size, 2 * block_size, rng.randint(1, 9)])))
        fresh += 1
        content = rng.choice([fresh + 100_000, rng.randint(1000, 1003)])
        output = (content, rng.choice([1, 1, 1, block_size + 1, rng.randint(1, 12)]))
        requests.append((prompt, output))
        history += [prompt, prompt + [output]]
    return block_size, requests


def write_workload(path, requests):
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"quire_workload": 1}\n')
        for number, (prompt, output) in enumerate(requests):
            row = {"time": number, "prompt": prompt, "output": output}
            file.write(json.dumps(row) + "\n")


def most_tokens(requests):
    return max(sum(tokens for _, tokens in prompt) + output[1] for prompt, output in requests)


def check_small(program, folder, seed, with_replay):
    path = os.path.join(folder, f"small-{seed}.jsonl")
    block_size, requests = make_workload(seed)
    write_workload(path, requests)
    blocks = naive_lru.blocks_of(naive_lru.read_trace(path), block_size)
    smallest = max(held for _, _, held in blocks) or 1
    sizes = range(smallest, smallest + 60)
    _, rows = curve_rows(program, path, block_size, sizes)
    for size in sizes:
        name = f"seed {seed}, {size} blocks of {block_size}"
        hits = naive_lru.lru_hits(blocks, size)
        expect(f"{name}: LRU", rows[size]["hit_blocks"] == hits, rows[size]["hit_blocks"], hits)
        hits = naive_lru.min_hits(blocks, size)
        found = rows[size]["belady_hit_blocks"]
        expect(f"{name}: Belady", found == hits, found, hits)
        expect(f"{name}: bound", rows[size]["hit_blocks"] <= found)
    if with_replay:
        for size in (smallest, smallest + 4, smallest + 15):
            if size * block_size < most_tokens(requests):
                continue  # the planner wants room for the longest request that is allowed
            report = replay_hits(program, path, block_size, size, size * block_size)
            expect(f"seed {seed}, {size} blocks: replay",
                   report["hit_blocks"] == rows[size]["hit_blocks"], report["hit_blocks"])


def best_hits(blocks, num_blocks):
    """The hits of the best of all policies, by trying what can be kept after each request."""

    @functools.lru_cache(None)
    def best_from(number, cached):
        if number == len(blocks):
            return 0
        full, num_lookups, num_held = blocks[number]
        hits = 0
        while hits < num_lookups and full[hits] in cached:
            hits += 1
        others = sorted(cached - set(full))
        kept = itertools.combinations(others, min(len(others), num_blocks - num_held))
        return hits + max(best_from(number + 1, frozenset(full).union(some)) for some in kept)

    return best_from(0, frozenset())


def check_bound(seed):
    """That no policy has more hits than Belady's, where all policies can be tried."""
    rng = random.Random(seed)
    requests = []
    for number in range(rng.randint(3, 9)):
        prompt = [(rng.randint(1, 3), rng.randint(1, 3))]
        if rng.random() < 0.6:
            prompt.append((10 + rng.randint(1, 2), rng.randint(1, 2)))
        requests.append((prompt, (100 + number, rng.choice([1, 1, 2]))))
    blocks = tuple((tuple(full), *rest) for full, *rest in naive_lru.blocks_of(requests, 1))
    smallest = max(held for _, _, held in blocks)
    for size in range(smallest, smallest + 4):
        found = naive_lru.min_hits(blocks, size)
        best = best_hits(blocks, size)
        expect(f"bound, seed {seed}, {size} blocks", found == best, found, best)


def check_all_points(program, folder):
    """--points 0: every size, as often as the table is asked; the CSV says the same."""
    path = os.path.join(folder, "points.jsonl")
    block_size, requests = make_workload(7)
    write_workload(path, requests)
    csv_path = os.path.join(folder, "points.csv")
    answer, rows = curve_rows(program, path, block_size, range(1, 200), "--points", "0", "--csv",
                              csv_path)
    points = dict(map(tuple, answer["points"]))
    hits = points[answer["min_blocks"]]
    for size in range(answer["min_blocks"], 200):
        hits = points.get(size, hits)
        expect(f"point {size}", hits == rows[size]["hit_blocks"], hits, rows[size]["hit_blocks"])
    expect("the last point", answer["points"][-1][1] == answer["ideal_hit_blocks"])
    with open(csv_path, encoding="utf-8") as file:
        lines = file.read().splitlines()[1:]
    expect("CSV", [[int(x) for x in line.split(",")[:2]] for line in lines] == answer["points"])


# ---- generated workloads ----------------------------------------------------


def check_generated(program, folder, kind):
    path = os.path.join(folder, f"{kind}.jsonl")
    run(program, "generate", kind, "--requests", "300", "--seed", "5", "--out", path)
    blocks = naive_lru.blocks_of(naive_lru.read_trace(path), 16)
    distinct = len({name for full, _, _ in blocks for name in full})
    smallest = max(held for _, _, held in blocks)
    sizes = sorted({max(smallest, distinct * share // 100) for share in (1, 10, 30, 60, 100)})
    answer, rows = curve_rows(program, path, 16, sizes)
    expect(f"{kind}: smallest pool", answer["min_blocks"] == smallest)
    for size in sizes:
        hits = naive_lru.lru_hits(blocks, size)
        found = rows[size]["hit_blocks"]
        expect(f"{kind}, {size} blocks", found == hits, found, hits)
    report = replay_hits(program, path, 16, sizes[1] + 9000)
    _, rows = curve_rows(program, path, 16, [sizes[1] + 9000])
    found = rows[sizes[1] + 9000]["hit_blocks"]
    expect(f"{kind}: replay", report["hit_blocks"] == found, report["hit_blocks"], found)


def check_sampled(program, folder):
    """Estimates are near the exact curve: mostly within their error bars, never far outside."""
    path = os.path.join(folder, "sampled.jsonl")
    run(program, "generate", "mixed", "--requests", "3000", "--seed", "9", "--out", path)
    sizes = range(10_000, 100_000, 10_000)
    exact_answer, exact = curve_rows(program, path, 16, sizes)
    answer, rows = curve_rows(program, path, 16, sizes, "--sample", "0.1")
    outside = 0
    for size in sizes:
        distance = abs(rows[size]["hit_blocks"] - exact[size]["hit_blocks"])
        outside += distance > rows[size]["hit_blocks_error"]
        share = distance / exact_answer["query_blocks"]
        expect(f"sampled, {size} blocks", share < 0.03, share)
        share = abs(rows[size]["belady_hit_blocks"] - exact[size]["belady_hit_blocks"])
        expect(f"sampled Belady, {size} blocks", share < 0.03 * exact_answer["query_blocks"], share)
    expect("error bars", outside <= len(sizes) // 2, outside)
    share = answer["distinct_blocks"] / exact_answer["distinct_blocks"]
    expect("distinct blocks, sampled", 0.95 < share < 1.05, share)


# ---- the public trace -------------------------------------------------------


def check_trace(program, path, is_long):
    requests = naive_lru.read_trace(path)
    blocks = naive_lru.blocks_of(requests, 512)
    shares = (1, 2, 5, 10, 15, 25, 40, 60, 80, 100) if is_long else (1, 5, 10, 25)
    sizes = [UNIQUE_IDS * share // 100 for share in shares]
    start = time.monotonic()
    answer, rows = curve_rows(program, path, 512, sizes)
    print(f"  the curve, all sizes: {time.monotonic() - start:.2f} s")
    expect("blocks of the trace", answer["query_blocks"] == TRACE_BLOCKS, answer["query_blocks"])
    for size in sizes:
        hits = naive_lru.lru_hits(blocks, size)
        found = rows[size]["hit_blocks"]
        print(f"  {size:7} blocks: {found:7} found, naive {hits:7}, {found / 2885:.2f} %")
        expect(f"trace, {size} blocks", found == hits, found, hits)
    for share, published in PUBLISHED:
        size = UNIQUE_IDS * share // 100
        plain = naive_lru.id_hits(requests, size) * 100 / TRACE_BLOCKS
        expect(f"published at {share} %", abs(plain - published) < 0.06, plain)
        # Generated blocks take room and part-filled ones are not found: less. Blocks without a key are
        # reused first, so part-filled ones keep no room, which they do in a list of ids: more.
        found = rows[size]["hit_blocks"] * 100 / TRACE_BLOCKS
        expect(f"near the published at {share} %", -0.6 < found - published < 0.25, found)
    for size in sizes if is_long else sizes[1:2]:
        report = replay_hits(program, path, 512, size)
        expect(f"trace, {size} blocks: replay", report["hit_blocks"] == rows[size]["hit_blocks"],
               report["hit_blocks"], rows[size]["hit_blocks"])
        print(f"  a replay of {size} blocks: {report['wall_s']:.2f} s")


def check_docs(program, folder):
    """The commands of docs/curve.md, as they stand there."""
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/curve.md")
    with open(page, encoding="utf-8") as file:
        scripts = file.read().split("```sh\n")[1:]
    lines = [line for script in scripts for line in script.split("```")[0].splitlines()]
    expect("commands in docs/curve.md", len(lines) >= 3)
    for line in lines:
        words = shlex.split(line)
        expect(line, words[0] == "quire")
        done = subprocess.run([program, *words[1:]], cwd=folder, capture_output=True, text=True,
                              check=False)
        expect(line, done.returncode == 0, done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--shared", default="")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("seed", options.seed)
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.seed, options.seed + (1000 if options.long else 10)):
            check_small(options.program, folder, seed, with_replay=seed % 3 == 0)
        for seed in range(options.seed, options.seed + (50 if options.long else 20)):
            check_bound(seed)
        check_all_points(options.program, folder)
        for kind in ("chat", "multi-turn", "rag", "agent"):
            check_generated(options.program, folder, kind)
        check_sampled(options.program, folder)
        check_docs(os.path.abspath(options.program), folder)
    path = os.path.join(options.shared, "traces", "mooncake_conversation.jsonl.zst")
    if os.path.exists(path):
        check_trace(options.program, path, options.long)
    else:
        print("the public trace is not there: not compared")
    print("FAILED" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
