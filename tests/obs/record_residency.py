#!/usr/bin/env python3
"""Records vLLM's KVCacheMetricsCollector in vLLM's BlockPool, for test_residency_parity.c.

    record_residency.py [--seed N] [--cases N] [--out FILE]

Both sides make the same workload from the same random numbers, so that a case is one line of
numbers, and then what vLLM's histograms have at its end: counts of all buckets, and the sum in
nanoseconds. Time stands still within a step; the draw of a block is a random number of its own.
"""
import argparse
from types import SimpleNamespace

from vllm_metrics import Random, families, histogram, load_platform, make_logger

load_platform()

from vllm.sampling_params import SamplingParams
from vllm.v1.core import kv_cache_metrics
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.request import Request

SEATS = 8
RECENT = 32  # keys that are looked up: older ones are mostly gone
BLOCK_SIZE = 16
HISTOGRAMS = ("vllm:kv_block_lifetime_seconds", "vllm:kv_block_idle_before_evict_seconds",
              "vllm:kv_block_reuse_gap_seconds")


class Case:
    """A pool, its seats, blocks that were hit outside of any seat, and all keys ever given."""

    def __init__(self, seed, num_blocks, rate, caching, pace):
        self.pace = pace
        self.random = Random(seed)
        self.now_ns = 0
        draws = Random(seed ^ 0x5EED)
        kv_cache_metrics.time = SimpleNamespace(monotonic_ns=lambda: self.now_ns)
        kv_cache_metrics.random = SimpleNamespace(random=draws.random)
        self.collector = kv_cache_metrics.KVCacheMetricsCollector(rate)
        self.num_blocks = num_blocks
        self.caching = caching
        self.pool = BlockPool(num_blocks, caching, BLOCK_SIZE, metrics_collector=self.collector)
        self.seats = [[] for _ in range(SEATS)]
        self.cached = [0] * SEATS
        self.family = list(range(SEATS))
        self.num_families = SEATS
        self.held = []
        self.keys = []

    def free_seat(self, seat):
        self.pool.free_blocks(reversed(self.seats[seat]))
        self.seats[seat] = []
        self.cached[seat] = 0
        self.family[seat] = self.num_families
        self.num_families += 1

    def free_held(self):
        for block in self.held:  # one may be there twice, which one call of vLLM's does not bear
            self.pool.free_blocks([block])
        self.held = []

    def take(self, seat, n):
        if n > self.pool.get_num_free_blocks():
            self.free_seat(seat)
            return
        self.seats[seat] += self.pool.get_new_blocks(n)

    def cache(self, seat, share):
        blocks = self.seats[seat]
        full = self.cached[seat] + share % (len(blocks) - self.cached[seat] + 1)
        if full == self.cached[seat] or not self.caching:
            return
        keys = [self.key(self.family[seat], i) for i in range(full)]
        request = Request("r", [0], SamplingParams(max_tokens=1), None)
        request.block_hashes = keys
        self.pool.cache_full_blocks(request, blocks, self.cached[seat], full, BLOCK_SIZE, 0)
        self.keys += keys[self.cached[seat]:]
        self.cached[seat] = full

    @staticmethod
    def key(family, i):
        return family.to_bytes(8, "little") + i.to_bytes(8, "little") + bytes(16)

    def hit(self, place):
        if not self.keys:
            return
        recent = self.keys[-RECENT:]
        found = self.pool.get_cached_block(recent[place % len(recent)], [0])
        if found:
            self.pool.touch(found)
            self.held += found

    def evict(self, n):
        self.pool.evict_blocks({1 + self.random.below(self.num_blocks - 1) for _ in range(n)})

    def reset(self):
        for seat in range(SEATS):
            self.free_seat(seat)
        self.free_held()
        assert self.pool.reset_prefix_cache()

    def step(self):
        scale = self.random.below(4)
        self.now_ns += (1 + self.random.below(1000)) * 10**(self.pace + scale)
        op = self.random.below(20)
        seat = self.random.below(SEATS)
        n = self.random.next() >> 40
        if op < 7:
            self.take(seat, 1 + n % 12)
        elif op < 11:
            self.cache(seat, n)
        elif op < 16:
            for i in range(1 + n % 4):
                self.hit(n + i * i)
        elif op < 17:
            self.free_seat(seat)
        elif op < 18:
            self.free_held()
        elif op < 19:
            self.evict(1 + n % 3)
        elif n % 8 == 0:
            self.reset()


def record(seed, num_blocks, rate, caching, pace, steps):
    logger = make_logger(4096)
    case = Case(seed, num_blocks, rate, caching, pace)
    sums_ns = [0, 0, 0]
    for _ in range(steps):
        case.step()
        events = case.collector.drain_events()
        for e in events:
            sums_ns[0] += round(e.lifetime_seconds * 1e9)
            sums_ns[1] += round(e.idle_seconds * 1e9)
            sums_ns[2] += sum(round(gap * 1e9) for gap in e.reuse_gaps_seconds)
        if events:
            logger.record(SchedulerStats(kv_cache_eviction_events=events), None)
    shown = families()
    lines = [f"case {seed} {num_blocks} {rate} {int(caching)} {pace} {steps}"]
    for name, sum_ns in zip(HISTOGRAMS, sums_ns):
        counts, seconds = histogram(shown[name])
        assert abs(seconds - sum_ns / 1e9) <= 1e-9 * max(1.0, seconds), (seconds, sum_ns)
        lines.append(" ".join(map(str, [sum_ns] + counts)))
    return lines


def main():
    parser = argparse.ArgumentParser(description="Records vLLM's residency histograms.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=30)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    lines = ["# vLLM 0.20.0, record_residency.py: case SEED BLOCKS RATE CACHING PACE STEPS; then",
             "# lifetime, idle and reuse gap: sum in ns, counts of the buckets"]
    for i in range(args.cases):
        seed = args.seed + i
        pick = Random(seed)
        num_blocks = 20 + pick.below(300)
        rate = (1.0, 0.3, 1.0, 0.3, 0.05, 0.3)[i % 6]
        lines += record(seed, num_blocks, rate, i % 12 != 11, 1 + i // 6 % 5, 600)
    with open(args.out, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


main()
