#!/usr/bin/env python3
"""Hits of a prefix cache by pool size, in the plainest way: what `quire curve` is compared with.

    naive_lru.py TRACE --block-size 512 --sizes 1827,9139            one line "size hits" for each
    naive_lru.py TRACE --block-size 512 --sizes 1827 --policy min    Belady's policy instead
    naive_lru.py TRACE --sizes 1827 --policy ids                     the trace's ids, without outputs

It shares nothing with the program: it reads the trace itself (Mooncake's JSON lines or a workload
file, plain or packed with zstd), keeps a queue of free blocks and a dictionary of cached ones, and
does what a pool does with one request after the other.
"""

import argparse
import json
import subprocess
import sys
from collections import OrderedDict

MOONCAKE_ID_TOKENS = 512


def lines_of(path):
    if not path.endswith(".zst"):
        with open(path, encoding="utf-8") as file:
            yield from file
        return
    with subprocess.Popen(["zstd", "-dc", "--long=27", path], stdout=subprocess.PIPE) as unpacker:
        for line in unpacker.stdout:
            yield line.decode()
    if unpacker.returncode != 0:
        raise OSError(f"{path}: zstd says {unpacker.returncode}")


def mooncake_request(row, number):
    segments = []
    left = row["input_length"]
    for name in row["hash_ids"]:
        tokens = min(left, MOONCAKE_ID_TOKENS)
        segments.append((("id", name), tokens))
        left -= tokens
    return segments, (("output", number), row["output_length"])


def workload_request(row, number, sessions):
    """As docs/traces.md has it: "more" goes on behind what the turn before had and generated."""
    session = row.get("session")
    segments = [tuple(pair) for pair in row.get("prompt", [])]
    if "more" in row:
        segments = sessions[session] + [tuple(pair) for pair in row["more"]]
    output = row["output"]
    output = tuple(output) if isinstance(output, list) else (("output", number), output)
    if session is not None:
        sessions[session] = segments + [output]
    return segments, output


def read_trace(path):
    """[(segments of the prompt, segment of the output)]; a segment is (content, tokens)."""
    requests = []
    sessions = {}
    for line in lines_of(path):
        row = json.loads(line)
        if "quire_workload" in row:
            continue
        if "hash_ids" in row:
            requests.append(mooncake_request(row, len(requests)))
        else:
            requests.append(workload_request(row, len(requests), sessions))
    return requests


class Names:
    """A number for each block: the one before it, and its own pieces of contents."""

    def __init__(self):
        self.numbers = {}

    def of(self, segments, block_size, num_full):
        names = []
        before = None
        pieces = []
        filled = 0
        for content, tokens in segments:
            at = 0
            while at < tokens and len(names) < num_full:
                here = min(block_size - filled, tokens - at)
                pieces.append((content, at, here))
                at += here
                filled += here
                if filled == block_size:
                    key = (before, tuple(pieces))
                    before = self.numbers.setdefault(key, len(self.numbers))
                    names.append(before)
                    pieces = []
                    filled = 0
        return names


def blocks_of(requests, block_size):
    """[(names of full blocks, how many of them are looked up, how many blocks are held)]"""
    names = Names()
    result = []
    for segments, (output, output_tokens) in requests:
        prompt = sum(tokens for _, tokens in segments)
        computed = prompt + max(output_tokens, 1) - 1
        num_full = computed // block_size
        full = names.of(segments + [(output, computed)], block_size, num_full)
        result.append((full, max(prompt - 1, 0) // block_size, -(-computed // block_size)))
    return result


def lru_hits(blocks, num_blocks):
    free = OrderedDict((block, None) for block in range(num_blocks))  # taken first: the first
    name_of = {}
    cached = {}  # name -> blocks, in the order in which they were cached
    hits = 0
    for full, num_lookups, num_held in blocks:
        held = []
        for name in full[:num_lookups]:
            if name not in cached:
                break
            held.append(cached[name][0])
        hits += len(held)
        num_hit = len(held)
        for block in held:
            del free[block]
        while len(held) < num_held:
            block, _ = free.popitem(last=False)
            old = name_of.pop(block, None)
            if old is not None:
                cached[old].remove(block)
                if not cached[old]:
                    del cached[old]
            held.append(block)
        for block, name in zip(held[num_hit : len(full)], full[num_hit:]):
            name_of[block] = name
            cached.setdefault(name, []).append(block)
        for block in reversed(held):
            free[block] = None
            if block not in name_of:  # it is of no use: the next to be taken
                free.move_to_end(block, last=False)
    return hits


def min_hits(blocks, num_blocks):
    """Belady: what is looked up last, or never, goes first; of equals the deepest."""
    never = len(blocks)
    uses = {}
    for number, (full, num_lookups, _) in enumerate(blocks):
        for i, name in enumerate(full):
            # What the next user computes anyway need not be kept for it.
            uses.setdefault(name, []).append((number, number if i < num_lookups else never))
    depth = {name: i for full, _, _ in blocks for i, name in enumerate(full)}
    cached = set()
    useless = 0  # blocks without a name
    hits = 0
    for number, (full, num_lookups, num_held) in enumerate(blocks):
        for name in full[:num_lookups]:
            if name not in cached:
                break
            hits += 1
        cached -= set(full)

        def order(name, now=number):
            next_lookup = next((lookup for user, lookup in uses[name] if user > now), never)
            return next_lookup, depth[name]

        excess = num_held + len(cached) + useless - num_blocks
        gone = max(0, min(excess, useless))
        useless -= gone
        excess -= gone
        if excess > 0:
            cached = set(sorted(cached, key=order)[: len(cached) - excess])
        cached |= set(full)
        useless += num_held - len(full)
    return hits


def id_hits(requests, num_blocks):
    """The trace's ids alone in a plain LRU list: all are looked up, nothing is generated."""
    cache = OrderedDict()
    hits = 0
    for segments, _ in requests:
        names = [content for content, _ in segments]
        is_leading = True
        for name in names:
            is_leading = is_leading and name in cache
            hits += is_leading
        for name in reversed(names):
            cache[name] = None
            cache.move_to_end(name)
        while len(cache) > num_blocks:
            cache.popitem(last=False)
    return hits


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("trace")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--sizes", required=True, help="numbers of blocks, with commas")
    parser.add_argument("--policy", choices=("lru", "min", "ids"), default="lru")
    options = parser.parse_args()
    requests = read_trace(options.trace)
    blocks = [] if options.policy == "ids" else blocks_of(requests, options.block_size)
    for size in map(int, options.sizes.split(",")):
        if options.policy == "ids":
            hits = id_hits(requests, size)
        elif options.policy == "min":
            hits = min_hits(blocks, size)
        else:
            hits = lru_hits(blocks, size)
        print(size, hits)
    return 0


if __name__ == "__main__":
    sys.exit(main())
