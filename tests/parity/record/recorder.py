"""What all recorders share: the file they write, and the numbers that both languages can draw.

A recording is text. Its first line says what it is and how much of it there must be:

    quire-parity 1 KIND seed FIRST runs RUNS count CHECKS [vllm RELEASE]

RELEASE is 0.20 where none is named.

Then one line for each operation; `seed N` starts each run. Everything random that a line does not
spell out (tokens, embeddings, digests) is drawn from splitmix64 with a seed that the line gives.
"""
import importlib.util
import os
import random
import sys
from pathlib import Path

from release import IS_0_20, RELEASE

FORMAT = 1
MASK64 = (1 << 64) - 1
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3

# The values at which an encoding of integers changes its form.
EDGES = [0, 1, 23, 24, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 16777216, 2147483647,
         -1, -2, -24, -25, -128, -129, -255, -256, -257, -32768, -32769, -65536, -65537,
         -2147483648]
WIDE_EDGES = EDGES + [2147483648, 4294967295, 4294967296, 549755813887, 549755813888,
                      1 << 47, (1 << 55) - 1, 1 << 55, 1 << 62, (1 << 63) - 1,
                      -2147483649, -4294967296, -4294967297, -(1 << 39), -(1 << 39) - 1,
                      -(1 << 55), -(1 << 62), -(1 << 63)]


def load_platform():
    """Runs the file (or host_platform.py of the folder) that QUIRE_VLLM_PLATFORM names."""
    path = Path(os.environ.get("QUIRE_VLLM_PLATFORM", ""))
    if path.is_dir():
        path = path / "host_platform.py"
    if not path.is_file():
        sys.exit("record.py: set QUIRE_VLLM_PLATFORM to the file that prepares vLLM's platform")
    spec = importlib.util.spec_from_file_location("host_platform", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


class SplitMix:
    """splitmix64, as in stream.h."""

    def __init__(self, seed):
        self.state = seed & MASK64

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
        return z ^ (z >> 31)

    def bytes(self, count):
        words = b"".join(self.next().to_bytes(8, "little") for _ in range((count + 7) // 8))
        return words[:count]


def token(kind, x):
    """One token of a class: see the table in README.md."""
    if kind == "z":
        return 0
    if kind == "b":
        return x & 0xFF
    if kind == "h":
        return x & 0xFFFF
    if kind == "w":
        return x & 0x7FFFFFFF
    if kind == "s":
        return ((x & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
    if kind == "m":
        value = (x & 0x7FFFFFFF) >> ((x >> 32) & 31)
        return -1 - value if (x >> 40) & 7 == 0 else value
    if kind == "e":
        return EDGES[x % len(EDGES)]
    if kind == "l":
        value = (x >> 1) >> (x & 63)
        return -1 - value if (x >> 6) & 1 else value
    if kind == "E":
        return WIDE_EDGES[x % len(WIDE_EDGES)]
    raise ValueError(kind)


def digest(family, depth, size):
    """The stand-in for a block hash, where a recording needs hashes but not their making."""
    return SplitMix((family << 32) | depth).bytes(size)


def ids(blocks):
    """A list of block ids as one word."""
    return ",".join(str(b) for b in blocks) or "-"


class Writer:
    """Collects lines, and the running fingerprint of what vLLM answered."""

    def __init__(self, kind, seed, runs, explain=False):
        self.kind, self.seed, self.runs, self.explain = kind, seed, runs, explain
        self.lines = []
        self.count = 0
        self.fingerprint = FNV_OFFSET

    def start_run(self, seed):
        self.lines.append(f"seed {seed}")
        return random.Random(f"{self.kind} {seed}")

    def line(self, text, checks=0):
        self.lines.append(text)
        self.count += checks

    def start_case(self, text):
        """A line after which the fingerprint starts anew."""
        self.fingerprint = FNV_OFFSET
        self.line(text)

    def checked(self, text, answer):
        """A line whose answer goes into the running fingerprint; 12 bits of it are written."""
        value = self.fingerprint
        for byte in answer.encode():
            value = ((value ^ byte) * FNV_PRIME) & MASK64
        self.fingerprint = value
        self.line(f"{text} {value >> 52:03x}", 1)
        if self.explain:
            self.lines.append(f"# {answer}")

    def end_case(self):
        """The whole fingerprint: with it, no bit of any answer of the case is left out."""
        self.line(f"end {self.fingerprint:016x}")

    def save(self, path):
        header = (f"quire-parity {FORMAT} {self.kind} seed {self.seed} runs {self.runs} "
                  f"count {self.count}")
        if not IS_0_20:
            header += f" vllm {RELEASE}"
        Path(path).write_text("\n".join([header, *self.lines]) + "\n")
