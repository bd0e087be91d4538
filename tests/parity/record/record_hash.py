"""Records block hashes: whole requests through vLLM's request hasher, and single blocks.

Strings are listed by identity: two entries of one list are two Python objects even when they read
alike, because pickle writes an object that it has met before as a reference.

vLLM 0.20.0 has bare extra keys; 0.32.0 has tuples that begin with a tag, and LoRA's path in them.
"""
import os

import torch
from recorder import SplitMix, token
from release import IS_0_20

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils as utils
from vllm.v1.request import Request

ALGOS = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]
BLOCK_SIZES = [1, 2, 3, 4, 16, 16, 32, 64, 128, 256]
CLASSES = "bhwsmez"  # of tokens that fit 32 bits
WIDE_CLASSES = "lE"
UNITS = ["a", "adapter", "img-", "é", "漢字", "🙂", "\x00", "Ω≈ç"]
# Of NONE_HASH: (unit, how often)
SEEDS = [("0", 1), ("1", 1), ("42", 1), ("4294967295", 1), ("", 0), ("é漢", 1), ("seed ", 9),
         ("s", 255), ("s", 256), ("é", 128)]
PREFIX_BYTES = 8
PARAMS = SamplingParams(max_tokens=1)
HAS_TAGS = not IS_0_20


def repeated(unit, count):
    """A text as the recording shows it: hexadecimal UTF-8, with a count unless that is 1."""
    return unit.encode().hex() if count == 1 else f"{count}*{unit.encode().hex()}"


class Strings:
    """The distinct string objects of one case, as the recording lists them."""

    def __init__(self, rng):
        self.rng = rng
        self.objects, self.texts = [], []

    def make(self, unit, count):
        """A new object, unless CPython has only one of its kind (empty and one-letter strings)."""
        raw = unit.encode()
        made = (raw * count).decode()
        for index, known in enumerate(self.objects):
            if known is made:
                return index
        self.objects.append(made)
        self.texts.append(repeated(unit, count))
        return len(self.objects) - 1

    def draw(self):
        """An object of this case again, one that reads like it, or something new."""
        rng = self.rng
        choice = rng.random()
        if self.objects and choice < 0.2:
            return rng.randrange(len(self.objects))
        if self.objects and choice < 0.3:
            like = self.objects[rng.randrange(len(self.objects))]
            return self.make(like, 1) if like else self.make("a", 0)
        if choice < 0.4:
            return self.make("x", rng.choice([0, 1, 254, 255, 256, 257]))
        if choice < 0.45:
            return self.make(rng.choice(UNITS), rng.randint(100, 700))
        if choice < 0.5:
            return self.make("é", rng.choice([127, 128]))
        return self.make(rng.choice(UNITS) + str(rng.randint(0, 99)), rng.randint(1, 3))

    def draw_path(self):
        """Of an adapter; vLLM refuses an empty one."""
        index = self.draw()
        while not self.objects[index]:
            index = self.draw()
        return index

    def text(self):
        return ",".join(self.texts) or "-"


def make_key(kind, text, more=None):
    """An extra key as vLLM makes it; more: the offset of a feature, the path of an adapter."""
    if not HAS_TAGS:
        return (text, more) if kind == "M" else text
    tag = {"L": "lora", "M": "mm", "S": "cache_salt", "P": "prompt_embeds"}[kind]
    return (tag, text) if more is None else (tag, text, more)


def draw_tokens(kind, stream, count):
    return [token(kind, stream.next()) for _ in range(count)]


class Hasher:
    """A hash function and a NONE_HASH, set the way an engine does at its start."""

    def __init__(self, writer, rng, algo=None, block_size=None):
        self.writer, self.rng = writer, rng
        self.algo = algo or rng.choice(ALGOS)
        self.block_size = block_size or rng.choice(BLOCK_SIZES)
        self.function = get_hash_fn_by_name(self.algo)
        unit, times = rng.choice(SEEDS)
        seeded = rng.random() < 0.7
        drawn = self.set_none_hash(unit * times if seeded else None)
        shown = repeated(unit, times) if seeded else "-"
        if HAS_TAGS and drawn:
            shown = f"?{drawn.hex()}"
        writer.line(f"h {self.algo} {self.block_size} {shown} {utils.NONE_HASH.hex()}")

    def set_none_hash(self, seed):
        """Without a seed vLLM draws 32 random bytes (0.32.0: for xxhash alone); here they come from
        the recording's seed. Returns what was drawn."""
        real = os.urandom
        drawn = []

        def draw(count):
            drawn.append(self.rng.randbytes(count))
            return drawn[-1]
        os.environ.pop("PYTHONHASHSEED", None)
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed
        os.urandom = draw
        try:
            utils.init_none_hash(self.function)
        finally:
            os.urandom = real
        return b"".join(drawn)


# ---- requests ------------------------------------------------------------------


def draw_features(rng, strings, total):
    """Features in order of their offsets; now and then one lies inside another or is empty."""
    features, position = [], 0
    for _ in range(rng.randint(1, 6)):
        offset = position + rng.choice([0, 0, 1, rng.randint(0, max(1, total // 4))])
        length = rng.choice([1, 2, rng.randint(1, 8), rng.randint(1, max(1, total // 2))])
        if rng.random() < 0.03:
            length = 0
        if offset >= total:
            break
        features.append((strings.draw(), offset, length))
        position = offset if rng.random() < 0.04 else offset + length
    return features


class RequestCase:
    """One request: its prompt, then tokens in portions, each of them one call of the hasher."""

    def __init__(self, hasher, max_blocks):
        self.hasher, self.rng = hasher, hasher.rng
        rng, size = self.rng, hasher.block_size
        self.strings = Strings(rng)
        self.total = rng.randint(0, max_blocks * size) + rng.randint(1, size)
        self.prompt = rng.choice([self.total, rng.randint(1, self.total)])
        self.seed = rng.randrange(1 << 32)
        self.lora = self.strings.draw() if rng.random() < 0.3 else None
        self.path = self.strings.draw_path() if HAS_TAGS and self.lora is not None else None
        self.salt = self.strings.draw() if rng.random() < 0.3 else None
        self.features = []
        if rng.random() < 0.4:
            self.features = draw_features(rng, self.strings, self.total)
        self.embed_bytes = 0
        if rng.random() < 0.12 and self.prompt <= 600:
            self.embed_bytes = rng.randint(1, 12)

    def embeds(self):
        if not self.embed_bytes:
            return None
        raw = bytearray(SplitMix(self.seed + 1).bytes(self.prompt * self.embed_bytes))
        return torch.frombuffer(raw, dtype=torch.uint8).reshape(self.prompt, self.embed_bytes)

    def header(self):
        def shown(index):
            return "-" if index is None else index
        features = ",".join(f"{s}:{offset}:{length}" for s, offset, length in self.features)
        embeds = f"{self.prompt}x{self.embed_bytes}" if self.embed_bytes else "-"
        lora = shown(self.lora) if self.path is None else f"{self.lora}:{self.path}"
        return (f"r {self.seed} {lora} {shown(self.salt)} {embeds} {features or '-'} "
                f"{self.strings.text()}")

    def make_request(self, tokens):
        texts = self.strings.objects
        path = "path" if self.path is None else texts[self.path]
        lora = None if self.lora is None else LoRARequest(texts[self.lora], 1, path)
        features = [MultiModalFeatureSpec(None, "image", texts[s], PlaceholderRange(offset, length))
                    for s, offset, length in self.features]
        block_hasher = utils.get_request_block_hasher(self.hasher.block_size, self.hasher.function)
        return Request("r", tokens, PARAMS, None, prompt_embeds=self.embeds(),
                       mm_features=features, lora_request=lora, block_hasher=block_hasher,
                       cache_salt=None if self.salt is None else texts[self.salt])

    def record(self):
        writer, rng, stream = self.hasher.writer, self.rng, SplitMix(self.seed)
        writer.line(self.header())
        # A prompt of embeddings alone has zeros for its tokens.
        kind = "z" if self.embed_bytes and rng.random() < 0.5 else rng.choice(CLASSES)
        tokens = draw_tokens(kind, stream, self.prompt)
        request = self.make_request(None if kind == "z" and self.embed_bytes else tokens)
        seen = self.record_call(kind, self.prompt, request, 0)
        while request.num_tokens < self.total:
            n = min(self.total - request.num_tokens, self.draw_portion())
            kind = rng.choice(CLASSES)
            tokens = draw_tokens(kind, stream, n)
            request.append_output_token_ids(tokens[0] if n == 1 else tokens)
            seen = self.record_call(kind, n, request, seen)
        writer.line(f"e {request.block_hashes[-1].hex() if request.block_hashes else '-'}")
        return request.block_hashes

    def draw_portion(self):
        size = self.hasher.block_size
        return self.rng.choice([1, self.rng.randint(1, size), self.rng.randint(1, 12 * size),
                                self.rng.randint(1, 40 * size)])

    def record_call(self, kind, n, request, seen):
        new = request.block_hashes[seen:]
        prefixes = "".join(h[:PREFIX_BYTES].hex() for h in new)
        self.hasher.writer.line(f"a {kind} {n} {prefixes or '-'}", len(new))
        return seen + len(new)


# ---- single blocks -------------------------------------------------------------


def draw_keys(rng, strings):
    """Extra keys as Python has them, and as the recording shows them."""
    keys, shown = [], []
    for kind in rng.choice(["", "", "L", "M", "S", "P", "LM", "MM", "MMM", "LMMS", "LS", "LMSP",
                            "SL", "PMML", "MMMMMMMM"]):
        if kind == "P":
            digest = rng.randbytes(32)
            keys.append(make_key(kind, digest))
            shown.append(f"P:{digest.hex()}")
            continue
        index = strings.draw()
        text = strings.objects[index]
        if kind == "M":
            offset = token("E" if rng.random() < 0.5 else "l", rng.getrandbits(64))
            keys.append(make_key(kind, text, offset))
            shown.append(f"M:{index}:{offset}")
        elif kind == "L" and HAS_TAGS:
            path = strings.draw_path()
            keys.append(make_key(kind, text, strings.objects[path]))
            shown.append(f"L:{index}:{path}")
        else:
            keys.append(make_key(kind, text))
            shown.append(f"{kind}:{index}")
    return tuple(keys) or None, ",".join(shown) or "-"


def draw_parent(rng, previous):
    """(bytes or None, as shown); `@` is the hash of the block before."""
    choice = rng.random()
    if previous is not None and choice < 0.7:
        return previous, "@"
    if choice < 0.85:
        return None, "-"
    parent = rng.randbytes(rng.choice([32, 32, 16, rng.randint(1, 64)]))
    return parent, parent.hex()


def record_block(hasher, previous, kind, count, whole, strings=None, extra=None):
    """One block; `whole` writes all of its digest rather than the first bytes."""
    rng = hasher.rng
    seed = rng.randrange(1 << 32)
    strings = strings or Strings(rng)
    keys, shown_keys = extra or draw_keys(rng, strings)
    parent, shown_parent = draw_parent(rng, previous)
    tokens = draw_tokens(kind, SplitMix(seed), count)
    made = utils.hash_block_tokens(hasher.function, parent, tokens, keys)
    shown = made.hex() if whole else made[:PREFIX_BYTES].hex()
    hasher.writer.line(f"b {shown_parent} {kind} {seed} {count} {shown_keys} {strings.text()} "
                       f"{shown}", 1)
    return made


def record_blocks(hasher, count):
    """Some blocks, most of them with the one before as their parent."""
    previous = None
    for i in range(count):
        kind = hasher.rng.choice(CLASSES + WIDE_CLASSES + WIDE_CLASSES)
        size = hasher.rng.choice([hasher.block_size, hasher.rng.randint(0, hasher.block_size)])
        previous = record_block(hasher, previous, kind, size, i == count - 1)


# ---- keys made of hashes -------------------------------------------------------


def record_keys(hasher, hashes):
    """Group ids packed and unpacked, hashes joined for larger blocks, and the form in events."""
    rng, line = hasher.rng, hasher.writer.line
    group = rng.choice([0, 1, 2, 255, 256, 65536, 0xFFFFFFFF])
    key = utils.make_block_hash_with_group_id(hashes[0], group)
    assert utils.get_block_hash(key) == hashes[0] and utils.get_group_id(key) == group
    line(f"k {group} {hashes[0].hex()} {key.hex()}", 1)
    scale = rng.choice([1, 2, 2, 3, 4])
    some = hashes[:rng.randint(1, 9)]
    joined = utils.BlockHashListWithBlockSize(some, 16, 16 * scale)
    shown = [h.hex() for h in joined]
    line(f"j {scale} {b''.join(some).hex()} {','.join(shown) or '-'}", 1)
    for value in [hashes[-1], *list(joined)[-1:], hashes[-1][:rng.randint(1, 9)]]:
        line(f"x {value.hex()} {utils.maybe_convert_block_hash(value):x}", 1)


# ---- the large and odd ones ----------------------------------------------------


def record_frames(writer, rng):
    """Pickle starts a new frame after 64 KiB: sizes around that, and keys that fall on it."""
    for algo in ALGOS:
        hasher = Hasher(writer, rng, algo, 65536)
        for kind, per_token in [("w", 5), ("b", 2), ("h", 3)]:
            edge = (65536 - 50) // per_token
            for count in range(edge - 4, edge + 9, 1 if kind == "w" else 4):
                record_block(hasher, None, kind, count, True)
        for kind, count in [("w", 20000), ("E", 20000), ("l", 20000), ("m", 40000), ("w", 65536)]:
            record_block(hasher, None, kind, count, True)
        # Long texts: one, one named twice, two that read alike, four.
        for length, order in [(65000, [0]), (30000, [0, 0]), (30000, [0, 1]),
                              (16000, [0, 1, 2, 3])]:
            strings = Strings(rng)
            made = [strings.make("k", length) for _ in range(max(order) + 1)]
            keys = tuple(make_key("M", strings.objects[made[i]], -1) for i in order)
            shown = ",".join(f"M:{made[i]}:-1" for i in order)
            record_block(hasher, None, "w", rng.choice([1, 200, 7000]), True, strings,
                         (keys, shown))
        chained = Hasher(writer, rng, algo, 20000)
        RequestCase(chained, 2).record()


def record_many_keys(writer, rng):
    """So many objects in one block that pickle needs the long form of a reference."""
    for algo in ALGOS:
        hasher = Hasher(writer, rng, algo, 16)
        strings = Strings(rng)
        order = [strings.make(f"f{i}", 1) for i in range(135)]
        order += [order[0], order[-1], order[rng.randrange(len(order))]]
        keys = tuple(make_key("M", strings.objects[i], 0) for i in order)
        record_block(hasher, None, "w", 16, True, strings,
                     (keys, ",".join(f"M:{i}:0" for i in order)))


def record_mm_quirk(writer, rng):
    """Requests of which many features are still to come when the hasher continues."""
    for algo in ALGOS:
        hasher = Hasher(writer, rng, algo, 4)
        for _ in range(6):
            case = RequestCase(hasher, 12)
            case.prompt = min(case.prompt, 6)
            case.total = max(case.total, 24)
            case.features = [(case.strings.draw(), 4 + 3 * i, rng.randint(1, 3)) for i in range(6)]
            case.embed_bytes = 0
            case.record()


def record_overlaps(writer, rng):
    """Features inside others: a bisection by their ends, as 0.32.0 does it, may miss some."""
    for algo in ALGOS:
        hasher = Hasher(writer, rng, algo, 4)
        for _ in range(12):
            case = RequestCase(hasher, 12)
            case.prompt = min(case.prompt, 6)
            case.total = max(case.total, 30)
            offsets = sorted(rng.randint(0, 24) for _ in range(rng.randint(2, 9)))
            case.features = [(case.strings.draw(), offset, rng.choice([1, 2, 3, 9, 20]))
                             for offset in offsets]
            case.embed_bytes = 0
            case.record()


def record_hash(writer, rng, count, edges):
    """Hashers of all kinds, each with some requests, single blocks and keys."""
    goal = writer.count + count
    if edges:
        record_frames(writer, rng)
        record_many_keys(writer, rng)
        record_mm_quirk(writer, rng)
        if HAS_TAGS:
            record_overlaps(writer, rng)
    while writer.count < goal:
        hasher = Hasher(writer, rng)
        room = goal - writer.count
        hashes = []
        for _ in range(rng.randint(1, 3)):
            most = 4 if hasher.block_size > 64 else rng.choice([6, 20, 60, 400])
            hashes += RequestCase(hasher, min(most, room)).record()
        record_blocks(hasher, min(room, rng.randint(1, 4)))
        if hashes and rng.random() < 0.25:
            record_keys(hasher, hashes)
