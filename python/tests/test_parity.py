"""The recorded hashes of vLLM 0.20.0 and 0.32.0 (tests/parity/data), through Hasher and Chain.

The format is explained in tests/parity/parity_hash.c and hash_case.h; tokens are drawn as the
recorder drew them.
"""

import sys
from pathlib import Path

import pytest

import quire

PARITY = Path(__file__).resolve().parents[2] / "tests" / "parity"
KINDS = {"L": "lora_name", "M": "mm_feature", "S": "cache_salt", "P": "prompt_embeds"}

if not (PARITY / "data" / "hash.txt").exists():
    pytest.skip("no recordings here", allow_module_level=True)
sys.path.insert(0, str(PARITY / "record"))
sys.dont_write_bytecode = True
from recorder import SplitMix, token  # noqa: E402


def text_of(word):
    times, star, unit = word.rpartition("*")
    return bytes.fromhex(unit) * (int(times) if star else 1)


def strings_of(word):
    return [] if word == "-" else [text_of(item) for item in word.split(",")]


def tokens_of(stream, kind, count):
    return [token(kind, stream.next()) for _ in range(count)]


class Case:
    """One pass over the recording: a method for each kind of line."""

    def __init__(self, profile):
        self.profile = profile
        self.hasher = self.chain = self.last = None
        self.checked = 0

    def h(self, algo, block_size, seed, none_hash):
        if seed == "-" and self.profile == "vllm-0.32":
            given = {}  # the seed that vLLM has by default
        elif seed == "-" or seed[0] == "?":  # NONE_HASH was random
            given = {"none_hash": bytes.fromhex(none_hash)}
        else:
            given = {"seed": text_of(seed)}
        self.hasher = quire.Hasher(algo, int(block_size), max_extra_bytes=65535,
                                   profile=self.profile, **given)
        assert self.hasher.none_hash.hex() == none_hash

    def r(self, seed, lora, salt, embeds, features, words):
        strings = strings_of(words)
        extra = {}
        if lora != "-":
            name, *path = map(int, lora.split(":"))
            extra["lora_name"] = strings[name]
            extra.update({"lora_path": strings[i] for i in path})
        if salt != "-":
            extra["cache_salt"] = strings[int(salt)]
        if features != "-":
            parts = [f.split(":") for f in features.split(",")]
            extra["mm_features"] = [(strings[int(s)], int(o), int(n)) for s, o, n in parts]
        if embeds != "-":
            rows, size = map(int, embeds.split("x"))
            data = SplitMix(int(seed) + 1).bytes(rows * size)
            extra["prompt_embeds"] = memoryview(data).cast("B", shape=[rows, size])
        self.chain = self.hasher.chain(**extra)
        self.stream = SplitMix(int(seed))
        self.last = None

    def a(self, kind, count, prefixes):
        new = self.chain.append(tokens_of(self.stream, kind, int(count)))
        assert "".join(h.hex()[:16] for h in new) == prefixes.replace("-", "")
        self.last = new[-1] if new else self.last
        self.checked += len(new)

    def e(self, digest):
        assert digest == "-" if self.last is None else self.last.hex() == digest

    def b(self, parent, kind, seed, count, keys, words, digest):
        before = None if parent == "-" else self.last if parent == "@" else bytes.fromhex(parent)
        strings = strings_of(words)
        given = []
        for key in [] if keys == "-" else keys.split(","):
            letter, value, *more = key.split(":")
            value = bytes.fromhex(value) if letter == "P" else strings[int(value)]
            given.append((KINDS[letter], value, *(map(int, more) if letter == "M" else ())))
            if letter == "L":
                given += [("lora_path", strings[int(i)]) for i in more]
        tokens = tokens_of(SplitMix(int(seed)), kind, int(count))
        self.last = self.hasher.hash_block(before, tokens, given)
        assert self.last.hex().startswith(digest)
        self.checked += 1


@pytest.mark.parametrize("profile, path", [("vllm-0.20", "hash.txt"), ("vllm-0.32", "0.32/hash.txt")])
def test_recorded_hashes(profile, path):
    case = Case(profile)
    for line in (PARITY / "data" / path).read_text().splitlines()[1:]:
        kind, *words = line.split(" ")
        if kind in "hraeb":
            getattr(case, kind)(*words)
    assert case.checked > 10_000
