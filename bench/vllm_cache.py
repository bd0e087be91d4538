"""vLLM's side of the cache rows: the same requests, hashes and calls as fleet.c and bench_cache.c.

    fleet     a KVCacheManager whose pool is full of cached blocks at ids in no order, and requests
    start     every request gets new hashes, and is prefilled: up to its last block border, the rest
    stop      every request is freed

Caching is on, events and stats are off. What is drawn at random comes from splitmix64 with the same
seeds in the same order, so the block ids must be the same on both sides, and each row's check value
is made of them. Only what lies inside `with timer(...)` is timed.
"""

import struct
import time
from collections.abc import Callable, Iterator

MASK = (1 << 64) - 1
BLOCK_SIZE = 16
DECODE_STEPS = 64
WINDOW = 1024
PROMPT_BLOCKS = 4096
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_SIZE + 1
PROMPT_POOL = 100_000
SHARED_TOKENS = 2048
FNV_OFFSET = 0xCBF29CE484222325
FNV_PRIME = 0x100000001B3


class Timer:
    """Adds up the time inside its with blocks: `with timer(operations): ...`"""

    def __init__(self):
        self.elapsed_ns = 0
        self.operations = 0

    def __call__(self, operations: int) -> "Timer":
        self.operations += operations
        return self

    def __enter__(self):
        self.started_ns = time.perf_counter_ns()

    def __exit__(self, *_error):
        self.elapsed_ns += time.perf_counter_ns() - self.started_ns


# A pass does some operations, timed, and returns a check value (or None).
Pass = Callable[[Timer], str | None]


def splitmix(state: int) -> Iterator[int]:
    """splitmix64, as bench_random in cached.c."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) & MASK
        x = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        yield x ^ (x >> 31)


def shuffle(values: list, seed: int) -> None:
    """As bench_shuffle in cached.c."""
    random = splitmix(seed)
    for left in range(len(values), 1, -1):
        i = next(random) % left
        values[i], values[left - 1] = values[left - 1], values[i]


def digests(random: Iterator[int], count: int) -> list[bytes]:
    """Hashes of 32 bytes, one draw each, as bench_fleet_hashes in fleet.c."""
    out = []
    for _ in range(count):
        x = next(random)
        out.append(struct.pack("<4Q", x, 3 * x & MASK, 5 * x & MASK, 7 * x & MASK))
    return out


def fnv(check: int, block_ids: list[int]) -> int:
    for block_id in block_ids:
        check = (check ^ block_id) * FNV_PRIME & MASK
    return check


def groups_of(model: str) -> list:
    """The groups of a model: "full", "window" (full and window) or "mamba" (full and Mamba)."""
    import torch
    from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheGroupSpec, MambaSpec,
                                            SlidingWindowSpec)

    shape = {"num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    specs = [FullAttentionSpec(block_size=BLOCK_SIZE, **shape)]
    if model == "window":
        specs.append(SlidingWindowSpec(block_size=BLOCK_SIZE, sliding_window=WINDOW, **shape))
    if model == "mamba":
        specs.append(MambaSpec(block_size=BLOCK_SIZE, shapes=((2 * BLOCK_SIZE,),),
                               dtypes=(torch.float32,), mamba_cache_mode="align"))
    return [KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs)]


def is_0_20() -> bool:
    from vllm import __version__

    return __version__.startswith("0.20.")


class Fleet:
    """A manager and its requests; see the top of the file."""

    def __init__(self, model: str, num_blocks: int, num_requests: int, shortest: int, longest: int):
        from vllm.sampling_params import SamplingParams
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import KVCacheConfig

        config = KVCacheConfig(num_blocks, [], groups_of(model))
        config.prefix_cache_retention_interval = 0  # the engine's default in 0.32
        sizes = (BLOCK_SIZE,) if is_0_20() else (BLOCK_SIZE, BLOCK_SIZE)  # 0.32: of steps, of hashes
        self.manager = KVCacheManager(config, longest + DECODE_STEPS, *sizes,
                                      enable_caching=True, log_stats=False)
        self.params = SamplingParams(max_tokens=DECODE_STEPS)
        self.random = splitmix(11)
        self.lengths = [shortest + next(self.random) % (longest - shortest + 1)
                        for _ in range(num_requests)]
        self.requests = []
        self.fill_pool(num_blocks - 1)

    def fill_pool(self, count: int) -> None:
        """All blocks cached and free, in no order."""
        pool = self.manager.block_pool
        blocks = pool.get_new_blocks(count)
        shuffle(blocks, 4)
        filler = self.new_request("filler", 1, digests(self.random, count))
        pool.cache_full_blocks(filler, blocks, 0, count, BLOCK_SIZE, 0)
        pool.free_blocks(blocks)

    def new_request(self, name: str, num_tokens: int, hashes: list[bytes]):
        from vllm.v1.request import Request

        request = Request(name, [0] * num_tokens, self.params, None)
        request.block_hashes = hashes
        return request

    def draw_requests(self) -> None:
        self.requests = [
            self.new_request(f"request-{i}", length, digests(self.random, length // BLOCK_SIZE))
            for i, length in enumerate(self.lengths)]

    def start(self) -> None:
        self.draw_requests()
        for request in self.requests:
            border = (request.num_tokens - 1) // BLOCK_SIZE * BLOCK_SIZE
            for num_new in (border, request.num_tokens - border):
                self.allocate(request, num_new)

    def allocate(self, request, num_new: int) -> None:
        if self.manager.allocate_slots(request, num_new) is None:
            raise RuntimeError("vLLM found no space")
        request.num_computed_tokens += num_new

    def hit(self, request) -> None:
        """A new request whose prompt is cached, but for its last token."""
        blocks, num_hit = self.manager.get_computed_blocks(request)[:2]
        self.manager.allocate_slots(request, request.num_tokens - num_hit, num_hit, blocks)

    def decode(self, timer: Timer) -> None:
        manager, requests = self.manager, self.requests
        for _ in range(DECODE_STEPS):
            for request in requests:
                request.append_output_token_ids(0)
                if request.num_tokens % BLOCK_SIZE == 0:
                    request.block_hashes += digests(self.random, 1)
            with timer(len(requests)):
                for request in requests:
                    manager.allocate_slots(request, 1)
            for request in requests:
                request.num_computed_tokens += 1

    def stop(self) -> None:
        for request in self.requests:
            self.manager.free(request)

    def check(self) -> str:
        """Made of all block ids of all requests."""
        check = FNV_OFFSET
        for request in self.requests:
            for ids in self.manager.get_block_ids(request.request_id):
                check = fnv(check, ids)
        return f"{check:016x}"


# ---- the rows ----------------------------------------------------------------------------------


def decode(model: str, num_requests: int) -> Callable[[], Pass]:
    """allocate_slots of one token, round robin over requests of 500 to 2,000 tokens."""

    def make() -> Pass:
        fleet = Fleet(model, 256 * num_requests, num_requests, 500, 2000)
        fleet.start()
        fleet.decode(Timer())
        check = fleet.check()
        fleet.stop()

        def run(timer):
            fleet.start()
            fleet.decode(timer)
            fleet.stop()
            return check

        return run

    return make


def prompt_fleet(model: str = "full") -> tuple[Fleet, str]:
    """One prompt of 65,537 tokens, computed and freed: its 4,096 full blocks are in the cache."""
    fleet = Fleet(model, PROMPT_POOL, 1, PROMPT_TOKENS, PROMPT_TOKENS)
    fleet.start()
    check = fleet.check()
    fleet.stop()
    fleet.requests[0].num_computed_tokens = 0
    return fleet, check


def computed_blocks(model: str) -> Callable[[], Pass]:
    """get_computed_blocks of 64k tokens that are all in the cache."""

    def make() -> Pass:
        fleet, _ = prompt_fleet(model)
        (request,) = fleet.requests

        def run(timer):
            with timer(1):
                blocks, num_hit = fleet.manager.get_computed_blocks(request)[:2]
            if num_hit != PROMPT_TOKENS - 1:
                raise RuntimeError("vLLM missed a cached block")
            check = FNV_OFFSET
            for ids in blocks.get_block_ids():
                check = fnv(check, ids)
            return f"{check:016x}"

        return run

    return make


def free() -> Pass:
    """free of a request with 4,096 blocks that have keys, and one that has none."""
    fleet, check = prompt_fleet()
    (request,) = fleet.requests

    def run(timer):
        fleet.hit(request)
        with timer(1):
            fleet.manager.free(request)
        return check

    return run


def allocate() -> Pass:
    """allocate_slots of a new prompt of 65,537 tokens; every block taken was cached."""
    fleet, check = prompt_fleet()

    def run(timer):
        fleet.draw_requests()
        (request,) = fleet.requests
        with timer(1):
            fleet.manager.allocate_slots(request, PROMPT_TOKENS)
        fleet.manager.free(request)
        return check

    return run


def allocate_hit() -> Pass:
    """allocate_slots of the same prompt when it is all in the cache."""
    fleet, check = prompt_fleet()
    (request,) = fleet.requests

    def run(timer):
        blocks, num_hit = fleet.manager.get_computed_blocks(request)[:2]
        with timer(1):
            fleet.manager.allocate_slots(request, 1, num_hit, blocks)
        fleet.manager.free(request)
        return check

    return run


def can_fit() -> Pass:
    """can_fit_full_sequence of the same prompt, with its hit."""
    fleet, check = prompt_fleet()
    (request,) = fleet.requests

    def run(timer):
        blocks, num_hit = fleet.manager.get_computed_blocks(request)[:2]
        with timer(1):
            fits = fleet.manager.can_fit_full_sequence(request, num_hit, blocks)
        if not fits:
            raise RuntimeError("vLLM found no space")
        return check

    return run


def common_prefix() -> Pass:
    """get_num_common_prefix_blocks: 256 requests that share 128 blocks."""
    num_requests = 256
    fleet = Fleet("full", 256 * num_requests, num_requests, SHARED_TOKENS + 1, SHARED_TOKENS + 1)
    fleet.draw_requests()
    for request in fleet.requests:
        request.block_hashes = fleet.requests[0].block_hashes
        fleet.hit(request)
    check = fleet.check()

    def run(timer):
        with timer(100):
            for _ in range(100):
                common = fleet.manager.get_num_common_prefix_blocks("request-0")
        if common != [SHARED_TOKENS // BLOCK_SIZE]:
            raise RuntimeError("vLLM counted other common blocks")
        return check

    return run
