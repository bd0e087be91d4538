"""vLLM's KVCacheManager and quire_shim's side by side: the same requests, and every answer, block,
row, event and statistic compared after each call.

    pytest python/tests/test_vllm_cache.py --seed 7 --count 50

--platform names a module to import first, where there is no GPU.
"""
import itertools
import random
from types import SimpleNamespace

import pytest
import vllm_kit

SIZE = 4
MAX_MODEL_LEN = 96
NUM_CALLS = 120


@pytest.fixture(scope="module", autouse=True)
def vllm(request):
    vllm_kit.need_vllm(request.config)


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        first = metafunc.config.getoption("--seed")
        metafunc.parametrize("seed", range(first, first + metafunc.config.getoption("--count")))


# -- models


def full(size: int = SIZE, heads: int = 1):
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    return FullAttentionSpec(block_size=size, num_kv_heads=heads, head_size=1, dtype=torch.float32)


def window(tokens: int, size: int = SIZE):
    import torch
    from vllm.v1.kv_cache_interface import SlidingWindowSpec

    return SlidingWindowSpec(block_size=size, num_kv_heads=1, head_size=1, dtype=torch.float32,
                             sliding_window=tokens)


def chunked(tokens: int):
    import torch
    from vllm.v1.kv_cache_interface import ChunkedLocalAttentionSpec

    return ChunkedLocalAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=1,
                                     dtype=torch.float32, attention_chunk_size=tokens)


def mamba(mode: str, num_speculative_blocks: int = 0):
    import torch
    from vllm.v1.kv_cache_interface import MambaSpec

    return MambaSpec(block_size=SIZE, shapes=((1,),), dtypes=(torch.float32,),
                     mamba_cache_mode=mode, num_speculative_blocks=num_speculative_blocks)


def cross():
    import torch
    from vllm.v1.kv_cache_interface import CrossAttentionSpec

    return CrossAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)


def sinks():
    import torch
    from vllm.v1.kv_cache_interface import SinkFullAttentionSpec

    return SinkFullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=1,
                                 dtype=torch.float32, sink_len=2 * SIZE)


def drawn_specs(rng: random.Random) -> tuple[str, list]:
    """A model's groups, and what they are called."""
    tokens, draft_blocks = rng.choice([5, 9, 13]), rng.choice([0, 0, 1, 2])
    mode = rng.choice(["none", "all", "align"])
    kinds = {
        "full": lambda: [full()],
        "window": lambda: [window(tokens)],
        "chunked": lambda: [chunked(rng.choice([8, 6]))],
        "mamba": lambda: [mamba(mode, draft_blocks)],
        "full, window": lambda: [full(), window(tokens)],
        "windows, full": lambda: [window(tokens), window(tokens), full()],
        "two sizes": lambda: [full(2 * SIZE), window(tokens)],
        "large window": lambda: [full(), window(tokens, 2 * SIZE)],
        "full, chunked": lambda: [full(), chunked(8)],
        "two full": lambda: [full(), full(heads=2), window(tokens)],
        "full, mamba": lambda: [full(), mamba(mode, draft_blocks)],
        "three kinds": lambda: [full(), window(tokens), mamba("all")],
        "cross": lambda: [full(), cross()],
        "sinks": lambda: [sinks()],
        "nothing": lambda: []}
    name = rng.choice(list(kinds))
    return name, kinds[name]()


class Recorder:
    """Stands for a KVCacheMetricsCollector; null blocks do not count."""

    def __init__(self):
        self.notes = []

    def _note(self, kind: str, block) -> None:
        if not block.is_null:
            self.notes.append((kind, block.block_id))

    def on_block_allocated(self, block):
        self._note("allocated", block)

    def on_block_accessed(self, block):
        self._note("accessed", block)

    def on_block_evicted(self, block):
        self._note("evicted", block)

    def reset(self):
        self.notes.append(("reset", 0))


class Ended(Exception):
    """Both sides have raised: vLLM's state is no longer whole."""


def ids_of(blocks) -> tuple | None:
    return None if blocks is None else tuple([b.block_id for b in group] for group in blocks.blocks)


def by_steps(side, request, new: int, num_hits: int, hits, num_encoder: int):
    """What allocate_slots does, as single calls of the coordinator."""
    steps, name = side.coordinator, request.request_id
    start = request.num_computed_tokens + num_hits
    steps.remove_skipped_blocks(name, start)
    need = steps.get_num_blocks_to_allocate(name, start + new, hits.blocks, num_encoder, start,
                                            start + new)
    if need > side.block_pool.get_num_free_blocks():
        return None
    if hits is not side.empty_kv_cache_blocks:
        steps.allocate_new_computed_blocks(name, hits.blocks, start, 0)
    made = steps.allocate_new_blocks(name, start + new, start + new, num_encoder)
    if side.enable_caching:
        steps.cache_blocks(request, min(start + new, request.num_tokens))
    return side.create_kv_cache_blocks(made)


class Pair:
    """Both managers, and their requests."""

    def __init__(self, seed: int):
        from quire_shim.kv_cache_manager import KVCacheManager as Ours
        from vllm.utils.hashing import sha256, xxhash
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.kv_cache_manager import KVCacheManager as Theirs
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

        self.rng = rng = random.Random(seed)
        self.name, specs = drawn_specs(rng)
        caching = rng.random() < 0.85 and self.name not in ("cross", "nothing")
        eagle = rng.random() < 0.3 and "chunked" not in self.name
        groups = [KVCacheGroupSpec([f"layer{i}"], spec, eagle and rng.random() < 0.4)
                  for i, spec in enumerate(specs)]
        ranks = 2 if self.name == "full" and rng.random() < 0.3 else 1
        self.hash_size = SIZE * ranks
        function = rng.choice([sha256, xxhash]) if hasattr(kv_cache_utils, "sha256") else sha256
        kv_cache_utils.init_none_hash(function)
        self.hasher = kv_cache_utils.get_request_block_hasher(self.hash_size, function)
        self.recorders = (Recorder(), Recorder()) if rng.random() < 0.3 else (None, None)
        config = KVCacheConfig(rng.choice([12, 20, 40, 80]), [], groups)
        given = dict(max_num_batched_tokens=rng.choice([None, 16, 32]), enable_caching=caching,
                     use_eagle=eagle, log_stats=rng.random() < 0.5,
                     enable_kv_cache_events=rng.random() < 0.3, dcp_world_size=ranks)
        self.theirs, self.ours = (
            kind(config, MAX_MODEL_LEN, self.hash_size, metrics_collector=recorder, **given)
            for kind, recorder in zip((Theirs, Ours), self.recorders))
        self.is_align = any(getattr(spec, "mamba_cache_mode", "") == "align" for spec in specs)
        self.by_steps = rng.random() < 0.3
        self.num_lookahead = 1 if self.name == "window" else 0
        self.running, self.waiting, self.delayed = [], [], set()
        self.numbers = itertools.count()

    def both(self, call):
        """The answers of both; what one refuses the other must refuse too."""
        answers = []
        for side in (self.theirs, self.ours):
            try:
                answers.append((call(side), None))
            except (AssertionError, ValueError, RuntimeError) as error:
                answers.append((None, error))
        assert (answers[0][1] is None) == (answers[1][1] is None), answers
        if answers[0][1] is not None:
            raise Ended
        return answers[0][0], answers[1][0]

    def same(self, call):
        theirs, ours = self.both(call)
        assert theirs == ours
        return theirs

    # -- calls

    def new_request(self) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        family, shared = self.rng.randrange(3), self.rng.randrange(60)
        tokens = [family * 1000 + i for i in range(shared)]
        tokens += [self.rng.randrange(50) for _ in range(self.rng.randint(1, 24))]
        self.waiting.append(Request(f"request-{next(self.numbers)}", tokens[:MAX_MODEL_LEN - 8],
                                    SamplingParams(max_tokens=50), None, block_hasher=self.hasher))

    def align(self, start: int, end: int, total: int) -> int:
        """Mamba's states are kept at block borders: steps end there, or with the prompt."""
        if not self.is_align or end >= total:
            return end
        cut = end // SIZE * SIZE
        return cut if cut > start else min(start // SIZE * SIZE + SIZE, total)

    def admit(self) -> None:
        request = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        theirs, ours = self.both(lambda side: side.get_computed_blocks(request))
        assert (ids_of(theirs[0]), theirs[1]) == (ids_of(ours[0]), ours[1])
        hits, num_hits = {self.theirs: theirs[0], self.ours: ours[0]}, theirs[1]
        left, external = request.num_tokens - num_hits, 0
        # With several groups vLLM gives external tokens of one the hits of the next: docs/quirks.md.
        is_safe = len(theirs[0].blocks) == 1 or not any(theirs[0].blocks)
        if self.rng.random() < 0.2 and left > 1 and not self.is_align and is_safe:
            external = self.rng.randrange(1, left)
        num_encoder = self.rng.choice([0, 3, 30]) if self.name == "cross" else 0
        self.same(lambda side: side.can_fit_full_sequence(request, num_hits, hits[side], external,
                                                          num_encoder))
        if self.by_steps:
            external = 0
        is_load = external > 0 and self.rng.random() < 0.5
        start = num_hits + external
        end = self.align(start, min(start + self.rng.randint(1, 40), request.num_tokens),
                         request.num_tokens)
        new = 0 if is_load else end - start
        lookahead = self.rng.choice([0, 0, 2])
        if self.by_steps:
            self.same(lambda side: ids_of(by_steps(side, request, new, num_hits, hits[side],
                                                   num_encoder)))
        else:
            self.same(lambda side: ids_of(side.allocate_slots(
                request, new, num_hits, hits[side], lookahead, external, is_load, num_encoder)))
        if request.request_id not in self.ours.coordinator._cache.ids():
            return
        self.running.append(request)
        request.num_computed_tokens = start + new
        if is_load:
            self.delayed.add(request.request_id)

    def advance(self) -> None:
        request = self.rng.choice(self.running)
        if request.request_id in self.delayed:
            self.delayed.discard(request.request_id)
            self.same(lambda side: side.cache_blocks(request, request.num_computed_tokens))
            return
        if request.num_computed_tokens >= MAX_MODEL_LEN - 6:
            self.end(request)
            return
        if request.num_computed_tokens >= request.num_tokens:
            request.append_output_token_ids(self.rng.randrange(50))
        start, drafts = request.num_computed_tokens, 0
        if start + 1 == request.num_tokens and not self.is_align:
            drafts = self.rng.choice([0, 0, 3])
        end = self.align(start, min(start + self.rng.randint(1, 20), request.num_tokens),
                         request.num_tokens) + drafts
        if self.by_steps:
            made = self.same(lambda side: ids_of(by_steps(side, request, end - start, 0,
                                                          side.empty_kv_cache_blocks, 0)))
        else:
            made = self.same(lambda side: ids_of(side.allocate_slots(
                request, end - start, num_lookahead_tokens=self.num_lookahead)))
        if made is None:
            self.preempt()
            return
        accepted = self.rng.randint(0, drafts)
        for _ in range(accepted):
            request.append_output_token_ids(self.rng.randrange(50))
        request.num_computed_tokens = end - drafts + accepted

    def end(self, request=None) -> None:
        request = request or self.rng.choice(self.running)
        self.running.remove(request)
        self.delayed.discard(request.request_id)
        self.same(lambda side: side.free(request))

    def preempt(self) -> None:
        request = self.rng.choice(self.running)
        self.end(request)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.waiting.append(request)

    def trim(self) -> None:
        request = self.rng.choice(self.running)
        self.same(lambda side: side.remove_skipped_blocks(request.request_id,
                                                          request.num_computed_tokens))

    def step(self) -> None:
        self.same(lambda side: side.new_step_starts())
        # Where nobody asks for long, ours lists a block once that vLLM lists again and again.
        self.same(lambda side: set(side.take_new_block_ids()))
        self.same(lambda side: side.take_events())
        self.same(lambda side: side.make_prefix_cache_stats())

    def evict(self) -> None:
        blocks = {self.rng.randrange(1, self.theirs.block_pool.num_gpu_blocks) for _ in range(3)}
        self.same(lambda side: side.evict_blocks(blocks))

    def reset(self) -> None:
        if self.rng.random() < 0.5:
            while self.running:
                self.end(self.running[0])
        self.same(lambda side: side.reset_prefix_cache())

    def look(self) -> None:
        request = self.rng.choice(self.running)
        name = request.request_id
        self.same(lambda side: ids_of(side.get_blocks(name)))
        self.same(lambda side: side.get_block_ids(name))
        total = request.num_computed_tokens + 5
        empty = {side: side.empty_kv_cache_blocks.blocks for side in (self.theirs, self.ours)}
        self.same(lambda side: side.coordinator.get_num_blocks_to_allocate(
            name, total, empty[side], 0, request.num_computed_tokens, total))
        managers = self.theirs.coordinator.single_type_managers
        if all(all(manager.req_to_blocks.values()) for manager in managers):
            self.same(lambda side: side.get_num_common_prefix_blocks(name))

    def call(self) -> None:
        calls = [self.new_request]
        if self.waiting:
            calls += [self.admit] * 3
        if self.running:
            calls += [self.advance] * 8 + [self.end, self.preempt, self.trim, self.look]
        calls += [self.step, self.step]
        if self.rng.random() < 0.1:
            calls += [self.evict, self.reset]
        self.rng.choice(calls)()

    # -- comparing

    def compare(self) -> None:
        pools = self.theirs.block_pool, self.ours.block_pool
        queues = [[b.block_id for b in pool.free_block_queue.get_all_free_blocks()]
                  for pool in pools]
        assert queues[0] == queues[1]
        blocks = [[(b.ref_cnt, b.block_hash) for b in pool.blocks[1:]] for pool in pools]
        if self.name == "sinks":  # vLLM takes them from the queue without a user
            blocks = [rows[2:] for rows in blocks]
        assert blocks[0] == blocks[1]
        for theirs, ours in zip(self.theirs.coordinator.single_type_managers,
                                self.ours.coordinator.single_type_managers):
            rows = [{name: [b.block_id for b in row] for name, row in side.req_to_blocks.items()
                     if row} for side in (theirs, ours)]
            assert rows[0] == rows[1]
            assert theirs.num_cached_block == dict(ours.num_cached_block)
        assert self.theirs.usage == self.ours.usage
        if self.recorders[0] is not None and not self.is_align:
            assert sorted(self.recorders[0].notes) == sorted(self.recorders[1].notes)


def test_lockstep(seed):
    pair = Pair(seed)
    try:
        for _ in range(NUM_CALLS):
            pair.call()
            pair.compare()
    except Ended:
        return
    for request in list(pair.running):
        pair.end(request)
    pair.compare()
    assert not pair.ours.coordinator._cache.ids()


# -- managers by themselves


def alone_kinds(rng: random.Random) -> tuple[str, object]:
    return rng.choice([("FullAttentionManager", full()),
                       ("SlidingWindowManager", window(rng.choice([5, 9]))),
                       ("ChunkedLocalAttentionManager", chunked(8)),
                       ("MambaManager", mamba(rng.choice(["none", "all"]), rng.choice([0, 1])))])


class Alone:
    """One manager of each side, on a BlockPool of its own, and hashes of any length."""

    def __init__(self, seed: int):
        from quire_shim import block_pool as our_pools
        from quire_shim import single_type_kv_cache_manager as our_kinds
        from vllm.v1.core import block_pool as their_pools
        from vllm.v1.core import single_type_kv_cache_manager as their_kinds

        self.rng = rng = random.Random(seed)
        name, self.spec = alone_kinds(rng)
        self.group = rng.choice([0, 3, 500])
        self.pools = [module.BlockPool(40, True, SIZE) for module in (their_pools, our_pools)]
        cap = rng.choice([None, 6])
        self.sides = [getattr(module, name)(self.spec, block_pool=pool, enable_caching=True,
                                            kv_cache_group_id=self.group,
                                            max_admission_blocks_per_request=cap)
                      for module, pool in zip((their_kinds, our_kinds), self.pools)]
        self.width = rng.choice([1, 3, 16, 32, 40])
        self.running = {}

    def same(self, call):
        theirs, ours = (call(*pair) for pair in zip(self.sides, self.pools))
        shown = [[b.block_id for b in answer] if isinstance(answer, list) and answer
                 and not isinstance(answer[0], int) else answer for answer in (theirs, ours)]
        assert shown[0] == shown[1]
        return theirs, ours

    def start(self, name: str) -> None:
        family, num_blocks = self.rng.randrange(3), self.rng.randint(1, 8)
        hashes = [(f"{family}-{i}".encode() * 32)[:self.width + (self.width < 4) * 4]
                  for i in range(num_blocks)]
        request = SimpleNamespace(request_id=name, block_hashes=hashes, lora_request=None)
        hits = [side.find_longest_cache_hit(hashes, num_blocks * SIZE - 1, [self.group], pool,
                                            self.spec, False, SIZE)[0]
                for side, pool in zip(self.sides, self.pools)]
        assert [b.block_id for b in hits[0]] == [b.block_id for b in hits[1]]
        by_side = dict(zip(map(id, self.sides), hits))
        local, total = len(hits[0]) * SIZE, num_blocks * SIZE
        need, _ = self.same(lambda side, pool: side.get_num_blocks_to_allocate(
            name, total, by_side[id(side)], local, total))
        if max(need, num_blocks + 1) > self.pools[0].get_num_free_blocks():
            return
        self.same(lambda side, pool: side.allocate_new_computed_blocks(
            name, by_side[id(side)], local, 0))
        self.same(lambda side, pool: side.allocate_new_blocks(name, total, total))
        num_certain = total - self.rng.randrange(SIZE)
        self.same(lambda side, pool: side.cache_blocks(request, num_certain))
        self.running[name] = total

    def call(self, number: int) -> None:
        what = self.rng.random()
        if what < 0.4 or not self.running:
            self.start(f"request-{number}")
        elif what < 0.6:
            name = self.rng.choice(list(self.running))
            self.same(lambda side, pool: side.remove_skipped_blocks(name, self.running[name]))
        elif what < 0.7:
            self.same(lambda side, pool: side.new_step_starts())
            self.same(lambda side, pool: sorted(set(side.take_new_block_ids())))
        elif what < 0.8:
            tokens = self.rng.randrange(1, 100)
            self.same(lambda side, pool: max(side.get_num_skipped_tokens(tokens), 0))
            name = self.rng.choice(list(self.running))
            self.same(lambda side, pool: side.get_num_common_prefix_blocks(name))
        else:
            name = self.rng.choice(list(self.running))
            del self.running[name]
            self.same(lambda side, pool: side.free(name))

    def compare(self) -> None:
        for pick in (lambda pool: [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
                     lambda pool: [(b.ref_cnt, b.block_hash) for b in pool.blocks[1:]]):
            assert pick(self.pools[0]) == pick(self.pools[1])
        rows = [{name: [b.block_id for b in row] for name, row in side.req_to_blocks.items() if row}
                for side in self.sides]
        assert rows[0] == rows[1]
        assert self.sides[0].num_cached_block == dict(self.sides[1].num_cached_block)


def test_managers_alone(seed):
    pair = Alone(seed)
    for number in range(NUM_CALLS):
        pair.call(number)
        pair.compare()
