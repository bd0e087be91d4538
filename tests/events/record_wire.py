#!/usr/bin/env python3
"""Records the bytes that vLLM's encoder makes of events: all shapes, and the edges of every form.

    record_wire.py --out data/wire.txt [--seed N] [--count N]

Each line is a batch: time and rank, its events field by field, then the bytes of vLLM's classes.
vLLM 0.20.0's are arrays, and the bytes of the map form, made with classes declared as newer ones
are, stand behind them. vLLM 0.32.0's are maps: - stands in the place of arrays. Long ones are kept
as length and FNV-1a.

    TIME RANK EVENT...  =  BYTES BYTES

    S;HASHES;PARENT;TOKENS;BLOCK_SIZE;LORA_ID;MEDIUM;LORA_NAME;EXTRA_KEYS;GROUP
    R;HASHES;MEDIUM;GROUP
    C

of 0.32.0 with more fields: S;...;SPEC_KIND;WINDOW;LOCALITY;OWNERSHIP;SESSION_ID
                            R;...;LOCALITY;OWNERSHIP

    hash n12 (number) or x0a0b (bytes)        lists with commas, N*COUNT repeats, - is nil
    text in hexadecimal, t before it          extra keys: a tuple for each hash, / between them,
                                              + between values: t, x, i (number), f TEXT:NUMBER

Needs vLLM 0.20.0, or 0.32.0 for data/0.32/wire.txt; QUIRE_VLLM_PLATFORM names the file to run first
(tests/parity/README.md).
"""
import argparse
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity" / "record"))
from recorder import FNV_OFFSET, FNV_PRIME, MASK64, WIDE_EDGES, load_platform  # noqa: E402

load_platform()

import msgspec  # noqa: E402
from vllm.distributed.kv_events import (AllBlocksCleared, BlockRemoved,  # noqa: E402
                                        BlockStored, KVEventBatch)

LONGEST = 250  # bytes that are kept as they are
NUMBERS = [0, 1, 127, 128, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63,
           (1 << 64) - 1]
SIZES = [0, 1, 15, 16, 31, 32, 33, 255, 256]
TEXTS = ["", "GPU", "CPU", "STORAGE", "größe", "日本語", "\U0001f600", "\x00", "x" * 31, "x" * 32,
         "x" * 255, "x" * 256]


IS_ARRAYS = BlockStored.__struct_config__.array_like


def as_maps(kind, **fields):
    """The same class, but as newer vLLM declares it: no array."""
    return msgspec.defstruct(kind.__name__, [
        (name, object) if name not in fields else (name, object, fields[name])
        for name in kind.__struct_fields__], tag=True, omit_defaults=True)


MAPS = {} if not IS_ARRAYS else {
    BlockStored: as_maps(BlockStored, extra_keys=None, group_idx=None),
    BlockRemoved: as_maps(BlockRemoved, group_idx=None),
    AllBlocksCleared: as_maps(AllBlocksCleared)}


def encode(time, rank, events):
    """Bytes of the two forms; None for arrays where vLLM has none."""
    encoder = msgspec.msgpack.Encoder()
    if not IS_ARRAYS:
        return None, encoder.encode(KVEventBatch(ts=time, events=events, data_parallel_rank=rank))
    maps = [MAPS[type(e)](**{n: getattr(e, n) for n in e.__struct_fields__}) for e in events]
    arrays = KVEventBatch(ts=time, events=events)
    arrays.data_parallel_rank = rank
    plain = encoder.encode(arrays)
    return plain, encoder.encode([time, maps, rank])


def bytes_text(data):
    if data is None:
        return "-"
    if len(data) <= LONGEST:
        return data.hex()
    value = FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * FNV_PRIME) & MASK64
    return f"#{len(data)}:{value:016x}"


# ---- events as text -----------------------------------------------------------


def hash_text(h):
    return "-" if h is None else f"n{h}" if isinstance(h, int) else f"x{h.hex()}"


def text_text(t):
    return "-" if t is None else f"t{t.encode().hex()}"


def tokens_text(tokens):
    if len(tokens) > 8 and len(set(tokens)) == 1:
        return f"{tokens[0]}*{len(tokens)}"
    return ",".join(map(str, tokens))


def value_text(value):
    if isinstance(value, str):
        return text_text(value)
    if isinstance(value, bytes):
        return f"x{value.hex()}"
    if isinstance(value, tuple):
        return f"f{value[0].encode().hex()}:{value[1]}"
    return f"i{value}"


def keys_text(keys):
    if keys is None:
        return "-"
    return "/".join("+".join(value_text(v) for v in t or ()) for t in keys)


def event_text(e):
    if isinstance(e, AllBlocksCleared):
        return "C"
    hashes = ",".join(map(hash_text, e.block_hashes))
    group = "-" if e.group_idx is None else e.group_idx
    more = "" if IS_ARRAYS else f";{text_text(e.locality)};{text_text(e.ownership)}"
    if isinstance(e, BlockRemoved):
        return f"R;{hashes};{text_text(e.medium)};{group}{more}"
    if more:
        window = e.kv_cache_spec_sliding_window
        more = (f";{text_text(e.kv_cache_spec_kind)};{'-' if window is None else window}{more};"
                f"{text_text(e.session_id)}")
    lora = "-" if e.lora_id is None else e.lora_id
    return (f"S;{hashes};{hash_text(e.parent_block_hash)};{tokens_text(e.token_ids)};"
            f"{e.block_size};{lora};{text_text(e.medium)};{text_text(e.lora_name)};"
            f"{keys_text(e.extra_keys)};{group}{more}")


# ---- drawing ------------------------------------------------------------------


class Draw:
    def __init__(self, seed):
        self.rng = random.Random(f"wire {seed}")

    def maybe(self, make):
        return make() if self.rng.random() < 0.6 else None

    def number(self):
        rng = self.rng
        return rng.choice(NUMBERS) if rng.random() < 0.4 else rng.getrandbits(rng.randint(1, 64))

    def hash(self, as_bytes):
        size = self.rng.choice([16, 32, 32, 64, 0, 1])
        return self.rng.randbytes(size) if as_bytes else self.number()

    def count(self):
        return self.rng.choice([0, 1, 1, 1, 1, 2, 2, 2, 3, 3, 5, self.rng.choice([15, 16, 17])])

    def hashes(self, as_bytes):
        return [self.hash(as_bytes) for _ in range(self.count())]

    def text(self):
        return self.rng.choice(TEXTS if self.rng.random() < 0.1 else TEXTS[:10])

    def token(self):
        return self.rng.choice(WIDE_EDGES + [5, 700, 30000, 128255])

    def tokens(self):
        if self.rng.random() < 0.2:
            return [self.token()] * self.rng.choice([15, 16, 255, 256, 65535, 65536])
        return [self.token() for _ in range(self.count())]

    def value(self):
        rng = self.rng
        return rng.choice([self.text, lambda: rng.randbytes(rng.choice(SIZES if rng.random() < 0.1 else SIZES[:5])), self.token,
                           lambda: (self.text(), self.token())])()

    def keys(self, count):
        return [tuple(self.value() for _ in range(self.rng.choice([1, 1, 1, 1, 2, 2, 3, 16]))) or None
                if self.rng.random() < 0.5 else None for _ in range(count)]

    def stored(self):
        rng, as_bytes = self.rng, self.rng.random() < 0.5
        hashes = self.hashes(as_bytes)
        # One empty tuple list would read like nil.
        keys = self.maybe(lambda: self.keys(len(hashes))) if len(hashes) > 1 else None
        stored = BlockStored(hashes, self.maybe(lambda: self.hash(as_bytes)), self.tokens(),
                             rng.choice([0, 1, 16, 128, 65536, (1 << 32) - 1]),
                             self.maybe(self.token), self.maybe(self.text), self.maybe(self.text),
                             keys, self.maybe(lambda: rng.choice([0, 1, 127, 128, 65535])))
        if not IS_ARRAYS:
            stored.kv_cache_spec_kind = self.maybe(self.text)
            stored.kv_cache_spec_sliding_window = self.maybe(
                lambda: rng.choice([0, 1, 128, 4096, 65536, (1 << 32) - 1]))
            stored.session_id = self.maybe(self.text)
        return self.with_tier(stored)

    def with_tier(self, event):
        if not IS_ARRAYS:
            event.locality = self.maybe(lambda: self.rng.choice(["LOCAL", "REMOTE", ""]))
            event.ownership = self.maybe(self.text)
        return event

    def event(self):
        rng = self.rng
        choice = rng.random()
        if choice < 0.6:
            return self.stored()
        if choice < 0.9:
            return self.with_tier(BlockRemoved(self.hashes(rng.random() < 0.5),
                                               self.maybe(self.text),
                                               self.maybe(lambda: rng.randrange(300))))
        return AllBlocksCleared()

    def batch(self):
        time = self.rng.choice([0.0, 1.5, -0.0, 1e300, 1763222400.25, float("inf")])
        rank = self.maybe(lambda: self.rng.choice([0, 1, 127, 128, 70000]))
        count = self.rng.choice([0, 1, 1, 1, 2, 3])
        return time, rank, [self.event() for _ in range(count)]


def main():
    parser = argparse.ArgumentParser(description="Record the bytes of vLLM's events.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300, help="batches")
    args = parser.parse_args()
    draw, lines, num_events = Draw(args.seed), [], 0
    batches = [draw.batch() for _ in range(args.count)]
    for many in (15, 16, 17):  # lengths at which an array changes its form
        batches.append((2.5, 0, [AllBlocksCleared()] * many))
    for time, rank, events in batches:
        plain, maps = encode(time, rank, events)
        words = [struct.pack(">d", time).hex(), "-" if rank is None else str(rank),
                 *map(event_text, events), "=", bytes_text(plain), bytes_text(maps)]
        lines.append(" ".join(words))
        num_events += len(events)
    Path(args.out).write_text(f"quire-wire 1 {len(lines)} {num_events}\n" + "\n".join(lines)
                              + "\n")
    print(f"recorded {len(lines)} batches, {num_events} events, {args.out}")


if __name__ == "__main__":
    main()
