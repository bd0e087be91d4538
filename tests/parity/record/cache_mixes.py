"""The models whose caches are recorded: which groups of layers they have, and how they are run.

A group is written as a letter, its block size, and options, each a letter and a number:

    F16 full   Q16 TQ full   M16 MLA   K16s32 sink   W16w48 window   V16w48 window MLA
    L16c64 chunked local   S16m1n2 Mamba (mode, speculative blocks)   X16 cross
    h heads (makes specs differ)   w, c on a full group: the window or chunk it carries   e1 EAGLE

vLLM 0.32 has no TQ full and no Mamba mode "all" any more, and cannot start models with sinks; its
mode "align" is not recorded yet. There, plain kinds take their places.
"""
import math
from dataclasses import dataclass, field

import torch
from release import IS_0_20
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.kv_cache_interface import (ChunkedLocalAttentionSpec, CrossAttentionSpec,
                                        FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec,
                                        MambaSpec, MLAAttentionSpec, SinkFullAttentionSpec,
                                        SlidingWindowMLASpec, SlidingWindowSpec)

MODES = ["none", "all", "align"]
DTYPE = torch.float32
CLASSES = {"F": FullAttentionSpec, "M": MLAAttentionSpec, "K": SinkFullAttentionSpec,
           "W": SlidingWindowSpec, "V": SlidingWindowMLASpec, "L": ChunkedLocalAttentionSpec,
           "X": CrossAttentionSpec}
OPTIONS = {"w": "sliding_window", "c": "attention_chunk_size", "s": "sink_len",
           "h": "num_kv_heads", "q": "tq_slot_size"}
if IS_0_20:
    from vllm.v1.kv_cache_interface import TQFullAttentionSpec
    CLASSES["Q"] = TQFullAttentionSpec
else:
    from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
    register_all_kvcache_specs(None)


@dataclass
class Group:
    kind: str
    block_size: int
    options: dict = field(default_factory=dict)
    is_eagle: bool = False

    def text(self):
        shown = "".join(f"{k}{v}" for k, v in self.options.items())
        return f"{self.kind}{self.block_size}{shown}{'e1' if self.is_eagle else ''}"

    def spec(self, extra_retained=0):
        if self.kind == "S":
            return MambaSpec(block_size=self.block_size, shapes=((2, 2),), dtypes=(DTYPE,),
                             mamba_cache_mode=MODES[self.options.get("m", 0)],
                             num_speculative_blocks=self.options.get("n", 0))
        given = {"num_kv_heads": 1, "head_size": 2, "dtype": DTYPE}
        given.update({OPTIONS[k]: v for k, v in self.options.items()})
        if self.kind in "WV" and extra_retained:
            given["extra_retained_tokens"] = extra_retained
        return CLASSES[self.kind](block_size=self.block_size, **given)


# ---- groups --------------------------------------------------------------------


class Draw:
    """Draws groups whose windows and chunks are in proportion to a block size."""

    def __init__(self, rng):
        self.rng = rng
        self.size = rng.choice([1, 2, 4, 4, 4, 8, 16])  # of most blocks

    def full(self, kind="F", scale=1, **options):
        kind = kind if IS_0_20 or kind != "Q" else "F"
        if kind == "Q":
            options["q"] = 3
        if kind == "F" and not options and self.rng.random() < 0.1:
            options["w"] = 3 * self.size
        return Group(kind, self.size * scale, options)

    def sink(self):
        if not IS_0_20:
            return self.full(h=3)
        return Group("K", self.size, {"s": self.size * self.rng.randint(1, 3)})

    def window(self, kind="W", scale=1, most=6):
        window = self.rng.randint(1, most * self.size * scale)
        return Group(kind, self.size * scale, {"w": window})

    def windows(self, count):
        """Windows that all differ."""
        widths = self.rng.sample(range(1, 6 * self.size + count), count)
        return [Group("W", self.size, {"w": w}) for w in widths]

    def chunked(self):
        size = self.size
        chunk = size * self.rng.randint(1, 6)
        if self.rng.random() < 0.15:
            chunk += self.rng.randrange(size)  # chunks that do not end with a block
        return Group("L", size, {"c": chunk})

    def mamba(self, mode, scale=1, spec=None):
        spec = self.rng.choice([0, 0, 1, 2, 3]) if spec is None else spec
        mode = mode if IS_0_20 else 0
        return Group("S", self.size * scale, {"m": mode, "n": spec})

    def cross(self):
        return Group("X", self.size)


def gemma(d):
    window = d.window()
    copies = [Group("W", d.size, dict(window.options)) for _ in range(d.rng.randint(2, 5))]
    groups = [d.full()] + copies
    if d.rng.random() < 0.4:
        d.rng.shuffle(groups)
    return groups


def two_sizes(d):
    scale = d.rng.choice([2, 2, 3, 4])
    return d.rng.choice([lambda: [d.full(), d.window(scale=scale)],
                         lambda: [d.full(scale=scale), d.window()],
                         lambda: [d.window(), d.full(scale=scale)]])()


def small_window(d):
    """Several places in a block of the full group where a window's blocks may end."""
    scale = d.rng.choice([2, 3, 4])
    return [d.full(scale=scale), d.window(most=2)]


def many_drops(d):
    """Three sets or more, of which some drop a block: a shorter hit makes them drop again."""
    groups = [d.full()] + d.windows(2) + [d.mamba(1, spec=0)]
    groups = groups[d.rng.randint(0, 1):]
    for i in d.rng.sample(range(len(groups)), d.rng.randint(1, 2)):
        groups[i].is_eagle = True
    return groups


def three_sizes(d):
    return [d.full(scale=d.rng.choice([2, 3])), d.window(scale=d.rng.choice([1, 2])),
            d.window("V", scale=d.rng.choice([2, 4]))]


def two_full(d):
    second = d.rng.choice([lambda: d.full(h=2), lambda: d.full("M"), lambda: d.full("Q"),
                           lambda: d.full(scale=2), lambda: d.sink()])()
    groups = [d.full(c=4 * d.size), second, d.window()]
    if d.rng.random() < 0.5:
        d.rng.shuffle(groups)
    return groups


def with_states(d):
    """As Mamba hybrids are: several groups of equal states."""
    state = d.mamba(d.rng.randint(0, 2))
    return [d.full()] + [Group("S", d.size, dict(state.options)) for _ in range(d.rng.randint(2, 3))]


def anything(d):
    """Groups of any kinds and sizes, among them two that differ."""
    kinds = [lambda scale: d.full("F", scale), lambda scale: d.full("M", scale),
             lambda scale: d.full("Q", scale), lambda scale: d.window("W", scale),
             lambda scale: d.window("V", scale), lambda scale: d.mamba(d.rng.randint(0, 2), scale)]
    groups = [d.rng.choice(kinds)(d.rng.choice([1, 1, 2, 3])) for _ in range(d.rng.randint(2, 5))]
    if all(g.text() == groups[0].text() for g in groups):
        groups.append(d.sink())
    return groups


def flagged(d):
    groups = d.rng.choice([gemma, two_sizes, lambda d: [d.full()] + d.windows(2),
                           lambda d: [d.full(), d.mamba(1)]])(d)
    chosen = d.rng.sample(range(len(groups)), d.rng.randint(1, 2))
    for i in chosen:
        groups[i].is_eagle = True
    return groups


# name: (groups, settings that are not drawn)
MIXES = {
    "full": (lambda d: [d.full()], {}),
    "full-off": (lambda d: [d.full()], {"caching": False}),
    "tq": (lambda d: [d.full("Q")], {}),
    "mla": (lambda d: [d.full("M")], {}),
    "sink": (lambda d: [d.sink()], {}),
    "window": (lambda d: [d.window()], {}),
    "window-off": (lambda d: [d.window()], {"caching": False}),
    "window-mla": (lambda d: [d.window("V")], {}),
    "chunked": (lambda d: [d.chunked()], {"eagle": False}),
    "mamba-none": (lambda d: [d.mamba(0)], {}),
    "mamba-all": (lambda d: [d.mamba(1)], {}),
    "mamba-align": (lambda d: [d.mamba(2)], {}),
    "mamba-one": (lambda d: [d.mamba(0)], {"caching": False, "one_block": True}),
    "cross": (lambda d: [d.cross()], {"caching": False}),
    "full+cross": (lambda d: [d.full(), d.cross()], {"caching": False}),
    "full+window": (lambda d: [d.full(), d.window()], {}),
    "full+2windows": (lambda d: [d.full()] + d.windows(2), {}),
    "full+mamba-none": (lambda d: [d.full(), d.mamba(0)], {}),
    "full+mamba-all": (lambda d: [d.full(), d.mamba(1)], {}),
    "full+mamba-align": (lambda d: [d.full(), d.mamba(2)], {}),
    "2full+mamba-align": (lambda d: [d.mamba(2), d.full(h=2), d.full(h=2)], {}),
    "full+chunked": (lambda d: [d.full(), d.chunked()], {"eagle": False}),
    "2windows": (lambda d: d.windows(2), {}),
    "3windows": (lambda d: d.windows(3), {}),
    "2chunked": (lambda d: [d.chunked(), Group("L", d.size, {"c": 7 * d.size})],
                 {"eagle": False}),
    "window+mamba": (lambda d: [d.window(), d.mamba(d.rng.randint(0, 2))], {}),
    "full+window+mamba": (lambda d: [d.full(), d.window(), d.mamba(1)], {}),
    "full+mambas": (with_states, {}),
    "2full+window": (two_full, {}),
    "any": (anything, {}),
    "any-off": (lambda d: anything(d) + [d.chunked(), d.cross()], {"caching": False}),
    "any-eagle": (anything, {"eagle": True}),
    "gemma": (gemma, {}),
    "twins-off": (lambda d: [d.full(h=1), d.full(h=1), d.window()], {"caching": False}),
    "mla+window-mla": (lambda d: [d.full("M"), d.window("V")], {}),
    "sink+window": (lambda d: [d.sink(), d.window()], {}),
    "sizes": (two_sizes, {}),
    "sizes-3": (three_sizes, {}),
    "sizes-mamba": (lambda d: [d.full(), d.mamba(d.rng.randint(1, 2), scale=2)], {}),
    "sizes-state": (lambda d: [d.full(scale=d.rng.choice([2, 3])), d.mamba(d.rng.randint(0, 2))],
                    {}),
    "eagle-full": (lambda d: [d.full(d.rng.choice("FQM"))], {"eagle": True}),
    "eagle-window": (lambda d: [d.window()], {"eagle": True}),
    "eagle-hybrid": (lambda d: [d.full()] + d.windows(d.rng.randint(1, 2)), {"eagle": True}),
    "eagle-mamba": (lambda d: [d.full(), d.mamba(d.rng.randint(0, 2))], {"eagle": True}),
    "eagle-sizes": (two_sizes, {"eagle": True}),
    "eagle-parts": (small_window, {"eagle": True, "roomy": True}),
    "eagle-many": (many_drops, {"eagle": True, "roomy": True}),
    "eagle-flagged": (flagged, {}),
    "parallel": (lambda d: [d.full(d.rng.choice("FFM"))], {"parallel": True}),
    "no-groups": (lambda d: [], {"caching": False}),
    "cap-window": (lambda d: [d.window(most=2)], {"batched": 2}),
    "cap-chunked": (lambda d: [d.chunked()], {"batched": 2, "eagle": False}),
    "cap-hybrid": (lambda d: [d.full(), d.window(most=2)], {"batched": 2}),
}


def prompt_tails(d):
    """Full groups whose blocks join hashes: the prompt's end is a key inside a block."""
    return [d.full(scale=d.rng.choice([2, 3, 4, 6])), d.rng.choice([d.window, d.full])(),
            d.full("M", scale=d.rng.choice([1, 2, 4]))][:d.rng.randint(2, 3)]


def equal_groups(d):
    group = d.rng.choice([d.full, d.window, d.chunked, lambda: d.mamba(0)])()
    return [Group(group.kind, d.size, dict(group.options)) for _ in range(d.rng.randint(2, 3))]


if not IS_0_20:
    for gone in ("tq", "sink", "mamba-all", "mamba-align", "full+mamba-all", "full+mamba-align",
                 "sink+window"):
        del MIXES[gone]
    MIXES.update({
        "tails": (prompt_tails, {}),
        "tails-eagle": (prompt_tails, {"eagle": True}),
        "tails-roomy": (prompt_tails, {"roomy": True}),
        "equal": (equal_groups, {"eagle": False}),
        "equal-eagle": (lambda d: [d.full()] * 2, {"eagle": True}),
        "equal-windows": (lambda d: [d.window()] * 3, {"eagle": True}),
        "parallel+mamba": (lambda d: [d.full(), d.mamba(0, d.rng.choice([1, 2, 4]))],
                           {"parallel": True, "pcp": False}),
        "parallel-full": (lambda d: [d.full(), d.full(h=2, scale=2)], {"parallel": True}),
        "lookahead": (lambda d: [d.rng.choice([d.full, d.window])()],
                      {"eagle": True, "lookahead": True}),
        "lookahead-hybrid": (lambda d: [d.full(), d.window()],
                             {"eagle": True, "lookahead": True}),
        "retain": (lambda d: [d.window(most=3)], {"roomy": True}),
        "retain-hybrid": (lambda d: [d.full()] + d.windows(2), {"roomy": True}),
        "retain-sizes": (small_window, {"roomy": True}),
        "retain-mamba": (lambda d: [d.full(), d.mamba(0)], {"roomy": True}),
    })


def uneven_chunks(d):
    return [d.full(scale=2), d.chunked()]


# What vLLM refuses, when the cache is made or when it is first used: (groups, settings).
REFUSED = [
    (lambda d: [d.full(h=1), d.full(h=1)], {"caching": True}),
    (lambda d: [d.window("V", most=1)] * 3, {"caching": True}),
    (lambda d: [d.cross()], {"caching": True}),
    (lambda d: [d.full(), d.cross()], {"caching": True}),
    (lambda d: [d.chunked()], {"caching": True, "eagle": True}),
    (lambda d: [d.full(), d.chunked()], {"caching": True, "eagle": True}),
    (uneven_chunks, {"caching": True, "eagle": False}),
    (lambda d: [d.full(), d.window()], {"caching": True, "parallel": True}),
    (lambda d: [d.full(), d.window()], {"caching": True, "hash": 5}),
    (lambda d: [d.full()], {"caching": True, "hash": 3}),
    (lambda d: [Group("K", d.size, {"s": 300 * d.size})], {}),
    (lambda d: [Group("K", 4, {"s": 6})], {}),
]
if not IS_0_20:  # groups may be equal; sinks do not start, and intervals must fit
    REFUSED = REFUSED[2:] + [
        (lambda d: [Group("K", d.size, {"s": d.size})], {}),
        (lambda d: [d.full()], {"interval": 64}),
        (lambda d: [d.full(), d.chunked()], {"eagle": False, "interval": 64}),
        (lambda d: [Group("W", 16, {"w": 40})], {"interval": 24}),
        (lambda d: [d.full(), Group("W", 3, {"w": 9})], {"interval": 32}),
        (lambda d: [Group("F", 2), Group("W", 2, {"w": 9})],
         {"caching": True, "eagle": True, "lookahead": True, "modules": 5}),
    ]


# ---- a whole model -------------------------------------------------------------


class Model:
    """One configuration of a mix, drawn."""

    def __init__(self, name, rng, refused=None):
        draw = Draw(rng)
        make, given = refused or MIXES[name]
        self.name, self.groups = name, make(draw)
        self.caching = given.get("caching", rng.random() < 0.93)
        self.eagle = given.get("eagle", rng.random() < (0.8 if "eagle" in name else 0.08))
        self.log_stats = rng.random() < 0.8
        self.max_model_len = draw.size * rng.randint(4, 20) + rng.randrange(draw.size)
        unit = math.lcm(*(g.block_size for g in self.groups))
        if unit > draw.size:
            self.max_model_len = unit * rng.randint(3, max(4, 240 // unit // 2))
        if given.get("one_block"):
            self.groups[0].block_size = self.max_model_len
        self.dcp = self.pcp = 1
        if given.get("parallel"):
            self.dcp, self.pcp = rng.choice([(2, 1), (1, 2), (2, 2), (4, 1), (3, 1), (8, 1)])
            if not given.get("pcp", True):
                self.dcp, self.pcp = max(self.dcp, self.pcp), 1
        self.set_hash_block_size(rng)
        if "hash" in given:
            self.hash_block_size, self.says_hash_block_size = given["hash"], True
        self.set_limits(rng, draw.size, given)
        self.encoder_tokens = 0
        if any(g.kind == "X" for g in self.groups):
            self.encoder_tokens = draw.size * rng.randint(1, 6)
        self.digest_bytes = rng.choice([16, 32])
        self.set_num_blocks(rng, given.get("roomy", False))
        if not IS_0_20:
            self.set_rules(rng, given)

    def set_rules(self, rng, given):
        """What 0.32 has besides: None is "every boundary", 0 the prompt's end alone."""
        self.watermark = rng.choice([0, 0, 0, 0, 10, 25, 40])  # of a hundred blocks
        self.modules = 0  # of multi-module MTP, each of which looks one token further
        if given.get("lookahead"):
            self.modules = min(rng.randint(1, 4), self.scheduler_block_size)
        self.modules = given.get("modules", self.modules)
        self.interval = rng.choice([0, 0, None, self.scheduler_block_size * rng.randint(1, 4)])
        if self.interval and all(g.kind not in "WVS" for g in self.groups):
            self.interval = 0
        self.interval = given.get("interval", self.interval)

    def size_of(self, group):
        """Tokens in a block of a group, over all ranks."""
        if IS_0_20:
            return group.block_size * self.dcp * self.pcp
        return group.block_size * (1 if group.kind == "S" else self.dcp)

    @property
    def scheduler_block_size(self):
        return math.lcm(*(self.size_of(g) for g in self.groups)) if self.groups else 16

    def set_hash_block_size(self, rng):
        if IS_0_20:
            sizes = [g.block_size for g in self.groups] or [16]
            self.hash_block_size = math.gcd(*sizes) * self.dcp * self.pcp
        else:
            self.hash_block_size = math.gcd(*(self.size_of(g) for g in self.groups)) or 16
        self.says_hash_block_size = self.dcp * self.pcp > 1 or rng.random() < 0.5
        smaller = [n for n in (1, 2, 4) if n < self.hash_block_size
                   and self.hash_block_size % n == 0]
        if len(self.groups) > 1 and smaller and rng.random() < 0.2:
            self.hash_block_size = rng.choice(smaller)
            self.says_hash_block_size = True

    def set_limits(self, rng, size, given):
        """Tokens of a step; what the cache is told may be nothing at all."""
        if "batched" in given:
            self.batched = self.told_batched = rng.randint(1, given["batched"] * size)
        else:
            self.batched = rng.choice([size, 2 * size, 3 * size + 1, 8 * size,
                                       self.max_model_len, 2 * self.max_model_len])
            self.told_batched = None if rng.random() < 0.15 else self.batched
        if rng.random() < 0.1:
            self.batched *= rng.randint(2, 4)  # more than the cache was told

    def set_num_blocks(self, rng, roomy):
        """Room for the longest request once, and a little more: little enough to run out."""
        whole = self.dcp * self.pcp
        one = sum(-(-self.max_model_len // (g.block_size * whole)) + g.options.get("n", 0)
                  for g in self.groups if g.kind != "X")
        one += sum(-(-self.encoder_tokens // g.block_size) for g in self.groups if g.kind == "X")
        sinks = sum(g.options["s"] // g.block_size for g in self.groups if g.kind == "K")
        room = one * rng.choice([1.5, 2.5] if roomy else [0.2, 0.4, 0.7, 1.0, 1.0, 1.5, 2.5])
        self.num_blocks = max(2, min(240, 1 + sinks + int(room) + rng.randint(0, 4)))
        if rng.random() < 0.01:
            self.num_blocks = 1 + (sinks if IS_0_20 else min(sinks, 239))

    def line(self):
        numbers = [self.num_blocks, self.max_model_len, self.told_batched or 0, int(self.caching),
                   int(self.eagle), int(self.log_stats), self.dcp, self.pcp,
                   self.hash_block_size if self.says_hash_block_size else 0, self.digest_bytes,
                   self.encoder_tokens]
        if not IS_0_20:
            numbers += ["all" if self.interval is None else self.interval, self.watermark,
                        self.modules]
        return " ".join(["cache", self.name, *map(str, numbers), *(g.text() for g in self.groups)])

    def make(self):
        if not IS_0_20:
            return self.make_0_32()
        groups = [KVCacheGroupSpec([f"layer{i}"], g.spec(), g.is_eagle)
                  for i, g in enumerate(self.groups)]
        return KVCacheManager(KVCacheConfig(self.num_blocks, [], groups), self.max_model_len,
                              self.hash_block_size, self.told_batched, self.caching, self.eagle,
                              self.log_stats, True, self.dcp, self.pcp)

    def make_0_32(self):
        class ZeroingConfig(KVCacheConfig):
            """All new blocks are listed, as if there were caches of several precisions."""
            needs_kv_cache_zeroing = True

        groups = [KVCacheGroupSpec([f"layer{i}"], g.spec(max(0, self.modules - 1)), g.is_eagle)
                  for i, g in enumerate(self.groups)]
        config = ZeroingConfig(self.num_blocks, [], groups,
                               prefix_cache_retention_interval=self.interval)
        return KVCacheManager(config, self.max_model_len, self.scheduler_block_size,
                              self.hash_block_size, self.told_batched, self.caching, self.eagle,
                              self.modules, self.log_stats, True, self.dcp, self.pcp,
                              watermark=self.watermark / 100)
