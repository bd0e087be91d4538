#!/usr/bin/env python3
"""Records what vLLM's Scheduler publishes, byte for byte, in workloads that are recorded already.

    record_events.py --out data/events.bin.zst [--first SEED] [--runs N] [--count STEPS]
                     [--compare ../parity/data/sched1.txt] [--lines FILE] [--limit BYTES]

The workloads are those of tests/parity (record_sched.py), drawn from the same seeds; with --compare
they must come out as the lines of that recording, so that its replayer does the same. A publisher
takes the place of vLLM's: it gets the batches of the real update_from_output, sets the rank as
vLLM's does, the number of the step as time, and keeps what msgspec makes of it. Seeds take turns:
odd ones have numbers as hashes, even ones bytes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES). Groups with
different block sizes have bytes: a joined hash has the number of its last part, and the lines could
not be written from numbers.

    "quire-events 1\\n", first seed, runs, limit (u32 each, little-endian); then for each seed
    u32 number of batches | u32 events | u32 as numbers | u64 FNV-1a of all its batches
    u32 length | bytes    for each batch, in the first seeds, up to limit bytes of batches in all

Needs vLLM 0.20.0 or 0.32.0, of which data/0.32 has `--first 13 --runs 48 --count 60 --lines
data/0.32/sched.txt` (before 13 are mixes with Mamba, whose rules are others); QUIRE_VLLM_PLATFORM names the file to run first (tests/parity/README.md).
"""
import argparse
import os
import struct
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity" / "record"))
from recorder import FNV_OFFSET, FNV_PRIME, MASK64, Writer, load_platform  # noqa: E402

load_platform()

import msgspec  # noqa: E402
from cache_case import Ended  # noqa: E402
from record_sched import Engine  # noqa: E402
from sched_case import SchedCase  # noqa: E402
from sched_mixes import MIXES, Setup  # noqa: E402

from vllm.v1.core import block_pool  # noqa: E402

KINDS = ("BlockStored", "BlockRemoved", "AllBlocksCleared")
NUM_RANKS = 3

whole_hashes = {}  # what an event has as a number, whole
convert = block_pool.maybe_convert_block_hash


def noted_convert(block_hash):
    converted = convert(block_hash)
    whole_hashes[converted] = block_hash
    return converted


block_pool.maybe_convert_block_hash = noted_convert


class Publisher:
    """Stands for vLLM's, and keeps the bytes. `told` events of the queue were described already:
    the recording of the workload describes them after each operation, not with the update."""

    def __init__(self, rank):
        self.rank, self.encoder = rank, msgspec.msgpack.Encoder()
        self.events, self.told = [], 0
        self.num_updates, self.num_events, self.batches = 0, 0, []

    def publish(self, batch):
        self.events += batch.events[self.told:]
        self.told = 0
        batch.ts, batch.data_parallel_rank = float(self.num_updates), self.rank
        self.num_events += len(batch.events)
        self.batches.append(self.encoder.encode(batch))


class Manager:
    """The cache manager, but looking at its events leaves them where they are."""

    def __init__(self, real, publisher):
        self.real, self.publisher = real, publisher

    def __getattr__(self, name):
        return getattr(self.real, name)

    def take_events(self):
        events = self.real.block_pool.kv_event_queue[self.publisher.told:]
        self.publisher.told += len(events)
        return events


class EventCase(SchedCase):
    def __init__(self, writer, setup):
        super().__init__(writer, setup)
        self.published = self.scheduler.kv_event_publisher = Publisher(setup.seed % NUM_RANKS)
        self.manager = Manager(self.manager, self.published)

    def update(self, *given):
        published = self.published
        before, num_events = len(published.batches), published.num_events
        published.num_updates += 1  # steps are updated in their order
        try:
            super().update(*given)
        except Ended:  # the workload ends before this update
            del published.batches[before:]
            published.num_events = num_events
            raise

    def hash_text(self, joined):
        return super().hash_text(whole_hashes.get(joined, joined))


def record(seed, count, compared):
    """One workload: its publisher, and its lines."""
    whole_hashes.clear()
    writer = Writer("sched", seed, 1)
    rng = writer.start_run(seed)
    setup = Setup(list(MIXES)[seed % len(MIXES)], seed, rng)
    setup.has_numbers = seed % 2 if len({g.block_size for g in setup.groups}) == 1 else 0
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(setup.has_numbers)
    case = EventCase(writer, setup)
    try:
        Engine(case, rng.randint(count * 3 // 4, count * 5 // 4)).run()
    except Ended:
        pass
    writer.end_case()
    if compared is not None and compared.get(seed) != writer.lines[1:]:
        sys.exit(f"record_events.py: seed {seed} is not the recorded workload")
    case.published.has_numbers = setup.has_numbers
    return case.published, writer


def read_compared(path):
    """The lines of each seed of a recording."""
    seeds, lines = {}, []
    for line in Path(path).read_text().splitlines()[1:]:
        if line.startswith("seed "):
            lines = seeds[int(line.split()[1])] = []
        else:
            lines.append(line)
    return seeds


def fingerprint(batches):
    value = FNV_OFFSET
    for batch in batches:
        for byte in batch:
            value = ((value ^ byte) * FNV_PRIME) & MASK64
    return value


def save(path, data):
    if not path.endswith(".zst"):
        Path(path).write_bytes(data)
        return
    subprocess.run(["zstd", "-q", "-f", "-19", "-o", path], input=data, check=True)


def main():
    parser = argparse.ArgumentParser(description="Record what vLLM's scheduler publishes.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--first", type=int, default=1, help="seed")
    parser.add_argument("--runs", type=int, default=190, help="how many seeds")
    parser.add_argument("--count", type=int, default=180, help="steps of each, about")
    parser.add_argument("--compare", help="recording of the same workloads")
    parser.add_argument("--lines", help="write the workloads there, as a recording")
    parser.add_argument("--limit", type=int, default=1 << 30, help="bytes of batches to keep")
    args = parser.parse_args()
    compared = read_compared(args.compare) if args.compare else None
    out = [b"quire-events 1\n", struct.pack("<III", args.first, args.runs, args.limit)]
    all_lines = Writer("sched", args.first, args.runs)
    kept, num_events, num_kept = 0, 0, 0
    for seed in range(args.first, args.first + args.runs):
        published, writer = record(seed, args.count, compared)
        batches = published.batches
        out.append(struct.pack("<IIIQ", len(batches), published.num_events, published.has_numbers,
                               fingerprint(batches)))
        num_events += published.num_events
        if kept < args.limit:
            out += [struct.pack("<I", len(b)) + b for b in batches]
            kept += sum(map(len, batches))
            num_kept += published.num_events
        all_lines.lines += writer.lines
        all_lines.count += writer.count
    save(args.out, b"".join(out))
    if args.lines:
        all_lines.save(args.lines)
    print(f"recorded {num_events} events of {args.runs} seeds, {num_kept} of them in full, "
          f"{kept} bytes, {os.path.getsize(args.out)} in {args.out}")


if __name__ == "__main__":
    main()
