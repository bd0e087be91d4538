"""The schedulers that are recorded: a cache, limits, and what their requests bring along.

A mix fixes what its name says; everything else is drawn, so that settings meet each other.
"""
import math
from dataclasses import replace
from types import SimpleNamespace

from cache_mixes import Draw, Group, has_junctions
from release import IS_0_20
from sched_world import OrderedSet

from vllm.config.kv_events import KVEventsConfig
from vllm.v1.core.encoder_cache_manager import EncoderCacheManager, EncoderDecoderCacheManager
from vllm.v1.core.sched import scheduler as scheduler_module
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

scheduler_module.set = OrderedSet
scheduler_module.logger.setLevel("CRITICAL")  # it reports each failure that a workload makes

ALGORITHMS = ["sha256", "sha256_cbor", "xxhash", "xxhash_cbor"]

# Switches that are on in mixes of extra_mixes.py alone, and their letters in a recording.
EXTRAS = {"takes_states": "t", "pending_frees": "b", "no_block_drop": "n", "encoder_only": "o",
          "encoder_connector": "d", "zeroing": "z"}


def gemma(d):
    window = d.window()
    return [d.full(), window, Group("W", d.size, dict(window.options))]


def sizes(d):
    return d.rng.choice([lambda: [d.full(), d.window(scale=2)],
                         lambda: [d.full(scale=2), d.window()]])()


def align(d, num_drafts):
    return Group("S", d.size, {"m": 2, "n": num_drafts})


FULL = {"groups": lambda d: [d.full()]}
WINDOW = {"groups": lambda d: [d.window()]}
HYBRID = {"groups": lambda d: [d.full(), d.window()]}
MAMBA = {"groups": lambda d: [d.full(), align(d, 0)], "mamba": True, "connector": False}
CROSS = {"groups": lambda d: [d.full(), d.cross()], "caching": False, "encoder_decoder": True,
         "images": 1.0, "connector": False, "sessions": 0.0, "eagle": False}
ASYNC = {"is_async": True}
DEEP = {"is_async": True, "depth": 3}
NGRAM = {"spec": (1, 4), "eagle": False}
EAGLE = {"spec": (1, 4), "eagle": True}
IMAGES = {"images": 0.7}
LOADS = {"connector": True, "loads": 0.5, "loads_later": 0.0, "asks_again": 0.0}
LATER = {"connector": True, "loads": 0.5, "loads_later": 0.8, "asks_again": 0.1}
WILD = {"images": 0.2, "sessions": 0.15, "grammars": 0.15, "pooling": 0.1, "resets": 0.03,
        "aborts": 0.04, "pauses": 0.02, "sends": 0.3, "loads": 0.4, "asks_again": 0.1}
TIGHT = {"room": [0.9, 1.1, 1.3]}

# name: settings that are not drawn
MIXES = {
    "full": {**FULL},
    "full-tight": {**FULL, **TIGHT},
    "full-off": {**FULL, "caching": False},
    "window": {**WINDOW},
    "hybrid": {**HYBRID},
    "gemma": {"groups": gemma},
    "sizes": {"groups": sizes},
    "mla": {"groups": lambda d: [d.full("M")]},
    "chunked-local": {"groups": lambda d: [d.chunked()], "eagle": False},
    "parallel": {**FULL, "parallel": True},
    "mamba": {**MAMBA},
    "mamba-async": {**MAMBA, **ASYNC},
    "mamba-eagle": {"groups": lambda d: [d.full(), align(d, d.drafts)], "mamba": True,
                    "connector": False, **EAGLE},
    "priority": {"priority": True, **TIGHT},
    "priority-async": {"priority": True, **ASYNC, **TIGHT},
    "priority-images": {"priority": True, **IMAGES},
    "whole-prompts": {"chunked": False},
    "long-prefill": {"threshold": True},
    "ngram": {**FULL, **NGRAM},
    "ngram-off": {**FULL, **NGRAM, "caching": False, **TIGHT},
    "eagle": {**FULL, **EAGLE},
    "eagle-hybrid": {**HYBRID, **EAGLE},
    "draft-model": {**FULL, **NGRAM, "draft_model": True},
    "async": {**FULL, **ASYNC},
    "async-tight": {**FULL, **ASYNC, **TIGHT},
    "async-hybrid": {**HYBRID, **ASYNC},
    "async-window": {**WINDOW, **ASYNC, **TIGHT},
    "async-priority-deep": {**DEEP, **TIGHT, "priority": True},
    "async-deep": {**FULL, **DEEP},
    "async-eagle": {**FULL, **ASYNC, **EAGLE},
    "async-eagle-deep": {**FULL, **DEEP, **EAGLE, **TIGHT},
    "async-off": {**FULL, **ASYNC, "caching": False},
    "pipeline": {"is_async": False, "pipeline": True, "depth": 2, "spec": (0, 0)},
    "pipeline-deep": {"is_async": False, "pipeline": True, "depth": 3, "spec": (0, 0), **TIGHT},
    "lora": {"loras": True},
    "lora-async": {"loras": True, **ASYNC},
    "images": {**IMAGES},
    "images-whole": {**IMAGES, "whole_images": True},
    "images-chunks": {"images": 0.9, "priority": True, "album": True, "crowd": True,
                      **TIGHT},
    "images-odd": {**IMAGES, "odd_images": True},
    "images-album": {**IMAGES, "album": True},
    "images-async": {**IMAGES, **ASYNC},
    "images-eagle": {**IMAGES, **EAGLE},
    "encoder-decoder": {**CROSS},
    "encoder-decoder-one": {**CROSS, "one_item": True},
    "pooling": {"pooling": 0.6},
    "grammar": {"grammars": 0.6},
    "grammar-ngram": {"grammars": 0.6, **NGRAM},
    "grammar-async": {"grammars": 0.6, **ASYNC},
    "grammar-async-eagle": {"grammars": 0.6, **ASYNC, **EAGLE},
    "sessions": {**FULL, "sessions": 0.6},
    "sessions-async": {**FULL, "sessions": 0.6, **ASYNC},
    "sessions-images": {**FULL, "sessions": 0.5, **IMAGES},
    "loads": {**LOADS},
    "loads-async": {**LOADS, **ASYNC},
    "loads-later": {**FULL, **LATER},
    "loads-hybrid": {**HYBRID, **LATER},
    "loads-priority": {**LATER, "priority": True},
    "loads-deep": {**FULL, **LATER, **DEEP},
    "loads-resets": {**FULL, **LATER, **ASYNC, "spec": (1, 4), "resets": 0.3},
    "fails-recompute": {**FULL, **LATER, "failures": 0.15, "fails": False},
    "fails-end": {**FULL, **LATER, "failures": 0.15, "fails": True},
    "fails-async": {**FULL, **LATER, **ASYNC, "failures": 0.15},
    "sends": {**LATER, "sends": 0.6},
    "resets": {"resets": 0.1, "aborts": 0.05},
    "resets-async": {"resets": 0.1, **ASYNC},
    "pauses": {"pauses": 0.1},
    "anything": {},
    "anything-async": {**ASYNC},
    "wild": {**WILD},
    "wild-priority": {**WILD, **TIGHT, "priority": True},
    "wild-lora": {**WILD, "loras": True, "connector": True},
    "wild-loads": {**WILD, **FULL, "connector": True, "failures": 0.05},
    "wild-async": {**WILD, **ASYNC},
    "wild-async-eagle": {**WILD, **ASYNC, **EAGLE, **FULL, "connector": True, "sessions": 0.0},
    "wild-deep": {**WILD, **DEEP, **TIGHT, "sessions": 0.0},
    "wild-ngram": {**WILD, **NGRAM, "connector": True},
}


if not IS_0_20:
    MIXES.update({
        "active": {"active": True, "sessions": 0.4},
        "adaptive": {"threshold": True, "adaptive": True},
        "draft-slots": {**FULL, **NGRAM, "draft_model": True, "slots": True},
        "draft-slots-async": {**ASYNC, **NGRAM, "draft_model": True, "slots": True, **TIGHT},
        "multi-module": {**FULL, "spec": (2, 4), "eagle": True, "modules": True},
        "multi-module-images": {**IMAGES, **ASYNC, "spec": (2, 4), "eagle": True, "modules": True},
        "pooling-model": {"pooling_model": True, "pooling": 1.0, "sessions": 0.0, "spec": (0, 0)},
        "watermark": {**TIGHT, "watermark": True},
        "watermark-loads": {**FULL, **LATER, **TIGHT, "watermark": True},
        "losses-hybrid": {**HYBRID, **LATER, "losses": 0.3},
        "losses-async": {**LATER, **ASYNC, "losses": 0.3},
        "fences": {**FULL, **LATER, **ASYNC, **TIGHT, "fences": True},
        "fences-hybrid": {**HYBRID, **LATER, **DEEP, **TIGHT, "sends": 0.4, "fences": True},
        "delivery": {**FULL, **LATER, **DEEP, **TIGHT, "sends": 0.4, "delivers": True},
        "dynamic": {**NGRAM, "is_async": False, "dynamic": True},
        "dynamic-async": {**ASYNC, **NGRAM, "dynamic": True},
        "dynamic-eagle": {**FULL, **DEEP, **EAGLE, **TIGHT, "dynamic": True},
        "stagger": {**DEEP, "stagger": True},
        "stagger-eagle": {**FULL, **ASYNC, **EAGLE, **TIGHT, "stagger": True},
        "throttle": {"throttles": 0.7},
        "throttle-async": {**ASYNC, **TIGHT, "throttles": 0.5},
        "throttle-loads": {**FULL, **LATER, "throttles": 0.7},
    })
    RSWA = {"groups": lambda d: [d.rswa()], "max_output": 1.0}
    RING = {"groups": lambda d: [d.full(), d.ring()]}
    STATES = {"groups": lambda d: [d.full(), d.mamba(0, spec=0)]}
    MIXES.update({
        "rswa": {**RSWA},
        "rswa-async": {**RSWA, **DEEP, **TIGHT},
        "rswa-ngram": {**RSWA, **NGRAM},
        "rswa-eagle": {**RSWA, **EAGLE, **ASYNC},
        "rswa-sessions": {**RSWA, "sessions": 0.6},
        "rswa-sends": {**RSWA, **LATER, "sends": 0.6},
        "rswa-hybrid": {"groups": lambda d: [d.window(), d.rswa(), d.hidden()], "max_output": 1.0},
        "ring": {"groups": lambda d: [d.ring()]},
        "ring-full": {**RING},
        "ring-async": {**RING, **ASYNC, **TIGHT},
        "ring-eagle": {**RING, **EAGLE},
        "ring-loads": {**RING, **LATER, "losses": 0.1},
        "ring-sends": {"groups": lambda d: [d.ring(), d.window(), d.full()], **LATER, "sends": 0.6},
        "ring-mamba": {"groups": lambda d: [d.full(), align(d, 0), d.ring()], "mamba": True,
                       "connector": False},
        "hidden": {"groups": lambda d: [d.full(), d.hidden(d.rng.choice([1, 2]))]},
        "kinds-priority": {"groups": lambda d: [d.rswa(), d.ring(), d.window()], "priority": True,
                           **TIGHT},
        "reports": {**HYBRID, **TIGHT, "reports": 0.7},
        "reports-sizes": {"groups": sizes, "reports": 0.7, "images": 0.3},
        "reports-mamba": {"groups": lambda d: [d.mamba(0, spec=0), d.full(), d.ring()],
                          **LATER, "diverges": True, "reports": 0.6},
        "diverge": {**STATES, **LATER, "diverges": True},
        "diverge-async": {**STATES, **LATER, **ASYNC, **TIGHT, "diverges": True, "losses": 0.1},
        "diverge-ring": {"groups": lambda d: [d.ring(), d.full(), d.mamba(0, spec=0), d.full(h=2)],
                         **LATER, "diverges": True},
        "diverge-eagle": {**STATES, **LATER, **EAGLE, "diverges": True},
    })


class ZeroingConfig(KVCacheConfig):
    """Zeroes new blocks, whatever its groups are."""
    needs_kv_cache_zeroing = True


class Setup:
    """One configuration of a mix, drawn."""

    def __init__(self, name, seed, rng, given=None):
        self.name, self.seed, self.rng, self.given = name, seed, rng, given or MIXES[name]
        self.has_parts = "unit" in self.given
        self.draw = Draw(rng)
        self.draw_drafts()
        self.draw_groups()
        self.draw_habits()
        self.draw_limits()
        self.draw_num_blocks()
        self.draw_new()

    def draw_new(self):
        """What 0.32 has and 0.20 has not."""
        rng = self.rng
        self.draft_slots = self.max_active = self.prefill_lookahead = 0
        self.adaptive = self.pooling_model = self.delivers = self.diverges = False
        self.watermark = self.throttles = 0
        self.stagger, self.dynamic = 1, []
        self.extras = [name for name in EXTRAS if self.given.get(name)]
        if IS_0_20:
            return
        if self.choose("active", 0.05):
            self.max_active = rng.randint(1, self.max_seqs)
        self.adaptive = self.choose("adaptive", 0.3)
        if self.num_spec and self.choose("slots", 0.1):
            self.draft_slots = rng.randint(1, 4)
            self.batched = max(self.batched, 2 + self.draft_slots)
        if self.eagle and self.choose("modules", 0.1) and self.block_size >= self.num_spec:
            self.prefill_lookahead = self.num_spec  # smaller blocks are refused
        self.pooling_model = self.choose("pooling_model", 0.0)
        if self.choose("watermark", 0.1):
            self.watermark = rng.choice([1, 5, 20, 50])  # per cent
        self.delivers = self.connector and self.choose("delivers", 0.2)
        self.diverges = self.connector and self.choose("diverges", 0.3)
        self.reports = self.rate("reports", 0.15, 0.3)
        if self.dcp > 1:  # vLLM takes the block size of one rank, and fails with an assertion
            self.reports = 0.0
        self.losses = self.given.get("losses", rng.choice([0.0, 0.0, 0.1]))
        self.fences = self.connector and self.depth > 1 and self.choose("fences", 0.5)
        self.retention = rng.choice([None, 0, 0])
        if rng.random() < 0.2 and any(g.kind in "WVS" for g in self.groups):
            self.retention = self.block_size * rng.randint(1, 4)
        if self.num_spec and self.choose("dynamic", 0.1):  # drafts after a step of 1, 2, ...
            self.dynamic = [rng.randint(0, self.num_spec) for _ in range(rng.randint(1, 6))]
        if self.is_async and self.choose("stagger", 0.05):
            self.stagger = rng.randint(2, 4)
        self.throttles = self.rate("throttles", 0.05, 0.5)

    def choose(self, name, chance):
        """A switch that the mix fixes, or that is on with this chance."""
        return bool(self.given.get(name, self.rng.random() < chance))

    def rate(self, name, chance, value):
        """A rate that the mix fixes, or that is above 0 with this chance."""
        return self.given.get(name, value if self.rng.random() < chance else 0.0)

    def draw_drafts(self):
        rng = self.rng
        self.is_async = self.choose("is_async", 0.35)
        self.pipeline = self.choose("pipeline", 0.0)
        self.depth = self.given.get("depth", 2 if self.is_async else 1)
        first, last = self.given.get("spec", (1, 4) if rng.random() < 0.15 else (0, 0))
        self.num_spec = rng.randint(first, last)
        self.eagle = self.num_spec > 0 and self.choose("eagle", 0.5)
        self.draft_model = self.num_spec > 0 and not self.eagle and self.choose("draft_model", 0.3)
        self.lookahead = self.num_spec if self.eagle or self.draft_model else 0
        self.draw.drafts = self.num_spec

    def draw_groups(self):
        rng, draw = self.rng, self.draw
        kinds = [FULL] * 5 + [WINDOW, HYBRID]
        self.groups = self.given.get("groups", rng.choice(kinds)["groups"])(draw)
        self.mamba = self.given.get("mamba", False)
        self.caching = self.choose("caching", 0.92)
        self.dcp = self.pcp = 1
        if self.given.get("parallel"):
            self.dcp, self.pcp = rng.choice([(2, 1), (1, 2), (2, 2)])
            if not IS_0_20:  # where PCP scales no block
                self.dcp, self.pcp = 2, 1
        parts = [g.block_size for g in self.groups]
        hashed = [g.block_size for g in self.hashed_groups()]
        self.hash_block_size = math.gcd(*hashed) * self.dcp * self.pcp
        self.block_size = math.lcm(*parts) * self.dcp * self.pcp
        if self.has_parts:  # ranks share the tokens of attention groups alone
            parts = [g.block_size * (1 if g.kind == "S" else self.dcp) for g in self.groups]
            self.block_size = math.lcm(*parts)
            self.hash_block_size = self.given["unit"](rng, math.gcd(*parts))
        unit = self.block_size
        self.max_model_len = max(12, unit * rng.randint(4, max(5, 160 // unit)))
        self.max_model_len += rng.randrange(unit)

    def hashed_groups(self):
        """Those that can be found in the prefix cache; one group alone counts anyway."""
        return [g for g in self.groups if g.kind != "C"] or self.groups

    def draw_habits(self):
        rng = self.rng
        self.images = self.rate("images", 0.1, 0.3)
        self.encoder_decoder = self.given.get("encoder_decoder", False)
        self.sessions = self.rate("sessions", 0.1, 0.2)
        self.grammars = self.rate("grammars", 0.1, 0.2)
        self.pooling = self.rate("pooling", 0.08, 0.2)
        self.loras = rng.randint(1, 3) if self.choose("loras", 0.1) else 0
        self.salts = rng.random() < 0.2
        self.connector = (not self.encoder_decoder and (self.has_parts or not self.mamba)
                          and self.choose("connector", 0.12))
        self.loads = self.given.get("loads", 0.4)
        self.loads_later = self.given.get("loads_later", rng.choice([0.0, 0.5, 1.0]))
        self.asks_again = self.given.get("asks_again", rng.choice([0.0, 0.2]))
        self.failures = self.given.get("failures", 0.0) or (0.05 if rng.random() < 0.2 else 0.0)
        if not self.connector or len(self.groups) > 1:
            self.failures = 0.0
        self.fails = self.choose("fails", 0.5)
        self.sends = self.given.get("sends", rng.choice([0.0, 0.0, 0.3]))
        self.aborts = self.rate("aborts", 0.5, 0.03)
        self.resets = self.rate("resets", 0.3, 0.03)
        self.pauses = self.rate("pauses", 0.15, 0.03)
        self.num_clients = rng.choice([1, 1, 2, 3])
        self.alphabet = rng.choice([2, 6, 20, 60])
        longest = self.max_model_len - 1
        self.max_prompt = rng.choice([longest, longest, longest // 2, longest // 4])
        self.acceptance = rng.choice([0.3, 0.7, 0.95])
        self.max_output = rng.choice([3, 20, self.max_model_len // 2, self.max_model_len])
        if "max_output" in self.given:  # long outputs of short prompts
            self.max_output = int(self.given["max_output"] * self.max_model_len)
            self.max_prompt = longest // 3 or 1
        self.arrivals = rng.choice([0.25, 0.5, 0.8])
        self.log_stats = rng.random() < 0.85
        self.finished_sets = rng.random() < 0.4
        self.algorithm = rng.choice([1, 3] if self.images or self.loras or self.salts
                                    or self.sessions else [0, 1, 2, 3])

    def draw_limits(self):
        rng, unit = self.rng, self.block_size
        self.priority = self.choose("priority", 0.2)
        self.max_seqs = rng.choice([1, 2, 3, 4, 6, 8, 8, 12, 16, 40])
        self.batched = rng.choice([unit, 2 * unit + 1, 4 * unit, self.max_model_len,
                                   2 * self.max_model_len])
        self.batched = max(self.batched, 2 * unit if self.mamba else 2)
        if self.has_parts and rng.random() < 0.2:  # no chunk reaches the end of a block
            self.batched = rng.randint(2, unit + 1)
        self.scheduled = 0
        if rng.random() < 0.2:
            is_whole = self.mamba and not self.has_parts
            self.scheduled = max(self.batched // 2, unit if is_whole else 1)
        self.chunked = self.choose("chunked", 0.9)
        if not self.chunked:
            self.batched, self.scheduled = max(self.batched, self.max_model_len), 0
        self.threshold = rng.randint(1, 3 * unit) if self.choose("threshold", 0.12) else 0
        if self.mamba and self.threshold and not self.has_parts:
            self.threshold = max(self.threshold, unit)
        self.reserve = self.choose("reserve", 0.6)
        if self.given.get("crowd"):  # many prompts at once, in small parts
            self.max_seqs, self.reserve = 16, False
            self.batched, self.scheduled = 2 * self.max_model_len, 0
            self.threshold, self.max_output = rng.randint(1, 8), 3
            self.max_prompt = self.max_model_len - 1
        self.odd_images = self.given.get("odd_images", False)
        self.whole_images = self.choose("whole_images", 0.2)
        self.image_size = rng.randint(1, max(1, min(24, self.max_prompt // 2)))
        self.max_images = 3
        if self.choose("album", 0.2):
            self.image_size, self.max_images = rng.randint(1, 3), 16
        if self.whole_images:
            self.image_size = min(self.image_size, self.scheduled or self.batched)
        self.encoder_budget = self.encoder_size = 0
        if self.images:
            self.encoder_budget = self.image_size * rng.choice([1, 1, 2, 4, self.max_images])
            self.encoder_size = self.image_size * rng.choice([1, 2, 3, 6, self.max_images])
        if self.given.get("one_item"):
            self.encoder_budget, self.encoder_size = 4 * self.image_size, self.image_size

    def draw_num_blocks(self):
        """Room for the longest request about once: little enough to run out."""
        rng, whole = self.rng, self.dcp * self.pcp
        one = sum(-(-self.max_model_len // (g.block_size * whole)) + g.options.get("n", 0)
                  for g in self.groups if g.kind not in "XC")
        one += sum(g.kind == "C" for g in self.groups)
        one += sum(-(-self.image_size // g.block_size) for g in self.groups if g.kind == "X")
        room = one * rng.choice(self.given.get("room", [0.9, 1.1, 1.1, 1.5, 2.5, 4.0]))
        self.num_blocks = max(3, min(240, 2 + int(room) + rng.randint(0, 3)))

    # -- as text, and as vLLM's scheduler

    def line(self):
        numbers = [self.seed, self.num_blocks, self.max_model_len, self.batched, self.scheduled,
                   self.max_seqs, self.threshold, self.chunked, self.reserve, self.is_async,
                   self.depth, self.num_spec, self.lookahead, self.eagle, self.loras,
                   self.encoder_decoder, self.whole_images, self.encoder_budget,
                   self.encoder_size, self.image_size, self.priority, self.caching,
                   self.log_stats, self.finished_sets, self.connector, self.fails, self.pipeline,
                   self.dcp, self.pcp, self.hash_block_size, self.algorithm, self.alphabet]
        if not IS_0_20:
            numbers += [self.max_active, self.adaptive, self.draft_slots, self.prefill_lookahead,
                        self.pooling_model, self.watermark, self.delivers,
                        -1 if self.retention is None else self.retention, self.fences]
        options = ["+diverges"] if self.diverges else []
        options += [] if IS_0_20 else ["x1"]
        options += [f"k{'.'.join(map(str, self.dynamic))}"] if self.dynamic else []
        options += [f"g{self.stagger}"] if self.stagger > 1 else []
        options += [f"{EXTRAS[name]}1" for name in self.extras]
        return " ".join(["sched", self.name, *(str(int(n)) for n in numbers), *options,
                         *(g.text() for g in self.groups)])

    def vllm_config(self):
        spec = SimpleNamespace(num_speculative_tokens=self.num_spec, use_eagle=lambda: self.eagle,
                               uses_draft_model=lambda: self.draft_model)
        return SimpleNamespace(
            scheduler_config=SimpleNamespace(
                max_num_seqs=self.max_seqs, max_num_scheduled_tokens=self.scheduled or None,
                max_num_batched_tokens=self.batched,
                policy="priority" if self.priority else "fcfs",
                long_prefill_token_threshold=self.threshold, enable_chunked_prefill=self.chunked,
                scheduler_reserve_full_isl=self.reserve, async_scheduling=self.is_async,
                disable_chunked_mm_input=self.whole_images),
            cache_config=SimpleNamespace(
                num_gpu_blocks=self.num_blocks, enable_prefix_caching=self.caching,
                mamba_cache_mode="align" if self.mamba else "none", block_size=self.block_size),
            lora_config=SimpleNamespace(max_loras=self.loras) if self.loras else None,
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
            parallel_config=SimpleNamespace(
                data_parallel_index=0, decode_context_parallel_size=self.dcp,
                prefill_context_parallel_size=self.pcp,
                pipeline_parallel_size=2 if self.pipeline else 1),
            observability_config=SimpleNamespace(kv_cache_metrics=False,
                                                 enable_mfu_metrics=False),
            model_config=SimpleNamespace(is_encoder_decoder=False, max_model_len=self.max_model_len,
                                         enable_return_routed_experts=False),
            kv_transfer_config=None, ec_transfer_config=None,
            speculative_config=spec if self.num_spec else None)

    def new_vllm_config(self):
        """What 0.32 reads besides."""
        config = self.vllm_config()
        scheduler = config.scheduler_config
        scheduler.max_num_active_seqs = self.max_active or None
        scheduler.long_prefill_token_threshold_adaptive = self.adaptive
        scheduler.watermark = self.watermark / 100
        config.cache_config.enable_mamba_shared_prefix_checkpoint = has_junctions(self.groups)
        # as the engine sets it; chunks of a prompt end there
        config.cache_config.block_size = min(g.block_size for g in self.hashed_groups())
        config.observability_config.per_request_spec_decode_metrics = "none"
        config.observability_config.enable_logging_iteration_details = False
        model = config.model_config
        model.uses_mrope = model.is_diffusion = model.supports_multimodal_inputs = False
        model.runner_type = "pooling" if self.pooling_model else "generate"
        model.return_sampling_mask = False
        if config.speculative_config is not None:
            config.speculative_config.num_speculative_tokens_per_batch_size = [
                (size, size, drafts) for size, drafts in enumerate(self.dynamic, 1)] or None
            config.speculative_config.use_eagle_block_drop = lambda: (
                self.eagle and "no_block_drop" not in self.extras)
            config.speculative_config.max_num_new_slots_for_drafting = self.draft_slots
        config.is_mm_encoder_only = "encoder_only" in self.extras
        config.ec_manager_config = SimpleNamespace(get_encoder_cache_manager_obj=lambda: None)
        config.aux_output_config = SimpleNamespace(enabled=False)
        config.num_speculative_tokens = self.num_spec
        config.num_lookahead_tokens = self.lookahead
        config.num_prefill_lookahead_tokens = self.prefill_lookahead or int(self.eagle)
        config.max_concurrent_batches = self.depth
        config.max_in_flight_tokens = self.depth * self.batched
        config.use_v2_model_runner = False
        return config

    def spec_of(self, group):
        """As vLLM's plan has it: windows keep what the draft modules compute again."""
        spec = group.spec()
        if self.prefill_lookahead > 1 and hasattr(spec, "extra_retained_tokens"):
            spec = replace(spec, extra_retained_tokens=self.prefill_lookahead - 1)
        return spec

    def make(self, grammars):
        groups = [KVCacheGroupSpec([f"layer{i}"], self.spec_of(g), g.is_eagle)
                  for i, g in enumerate(self.groups)]
        kind = ZeroingConfig if "zeroing" in self.extras else KVCacheConfig
        config = kind(self.num_blocks, [], groups)
        if not IS_0_20:
            config.prefix_cache_retention_interval = self.retention
        made = (AsyncScheduler if self.is_async else Scheduler)(
            self.vllm_config() if IS_0_20 else self.new_vllm_config(), config, grammars,
            self.block_size, self.hash_block_size,
            SimpleNamespace(supports_multimodal_inputs=lambda _config: False),
            self.finished_sets, self.log_stats)
        made.is_encoder_decoder = self.encoder_decoder
        made.max_num_encoder_input_tokens = self.encoder_budget
        kind = EncoderDecoderCacheManager if self.encoder_decoder else EncoderCacheManager
        made.encoder_cache_manager = kind(cache_size=self.encoder_size)
        if self.stagger > 1:
            self.let_stagger(made)
        return made

    def let_stagger(self, made):
        """As with a pipeline of the V2 model runner, whose outputs have another form."""
        made.decode_stagger = self.stagger
        advance = made._update_after_schedule

        def advance_v2(output):
            made.use_v2_model_runner = True
            advance(output)
            made.use_v2_model_runner = False

        made._update_after_schedule = advance_v2
