"""quire.vllm beside vLLM: schedule + update_from_output of decoding requests, and block hashes.

    python bench/vllm_dropin.py --rounds 5 [--platform MODULE]

Both sides in one process and in alternating rounds, with real Request and ModelRunnerOutput
objects; caching and stats are on, as in a server. Making a ModelRunnerOutput is the model runner's
work and not timed. Both must come to the same block ids in every step. Rows: median (fastest ..
slowest) in microseconds, by request and step, or by block of 16 tokens.
"""
import argparse
import importlib
import random
import statistics
import time
from types import SimpleNamespace

BLOCK_SIZE = 16
STEPS = 64
PROMPT = (500, 2000)
HASH_TOKENS = 65_536


class Side:
    """One scheduler with its requests."""

    def __init__(self, kind, hasher, num_requests: int, is_async: bool):
        from vllm.sampling_params import SamplingParams
        from vllm.v1.kv_cache_interface import KVCacheConfig
        from vllm_cache import groups_of
        from vllm_sched import NoGrammars, config_of

        num_blocks = num_requests * (PROMPT[1] // BLOCK_SIZE + 10)
        config = config_of(num_blocks, num_requests, PROMPT[1] + 4 * STEPS, is_async)
        self.scheduler = kind(
            config, KVCacheConfig(num_blocks, [], groups_of("full")), NoGrammars(), BLOCK_SIZE,
            BLOCK_SIZE, SimpleNamespace(supports_multimodal_inputs=lambda _config: False), False,
            log_stats=True)
        self.hasher, self.num_requests, self.is_async = hasher, num_requests, is_async
        self.params = SamplingParams(max_tokens=4 * STEPS)
        self.seconds = 0.0

    def schedule(self):
        start = time.perf_counter()
        output = self.scheduler.schedule()
        self.seconds += time.perf_counter() - start
        return output

    def update(self, output) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(output.num_scheduled_tokens)
        computed = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)},
                                     [[1000 + i] for i in range(len(names))])
        start = time.perf_counter()
        self.scheduler.update_from_output(output, computed)
        self.seconds += time.perf_counter() - start

    def round(self, seed: int) -> tuple[float, int]:
        """Microseconds by request and step, and a number made of all block ids."""
        from vllm.v1.request import Request, RequestStatus

        rng = random.Random(seed)
        for i in range(self.num_requests):
            prompt = [rng.randrange(128_000) for _ in range(rng.randint(*PROMPT))]
            self.scheduler.add_request(
                Request(f"request-{i}", prompt, self.params, None, block_hasher=self.hasher))
        flight = [self.schedule()]
        if self.is_async:
            flight.append(self.schedule())
        self.update(flight.pop(0))
        self.seconds, check = 0.0, 0
        for _ in range(STEPS):
            flight.append(self.schedule())
            known = flight[-1].scheduled_cached_reqs
            for ids in known.new_block_ids:
                check = (check * 31 + sum(ids[0])) % (1 << 61) if ids else check
            self.update(flight.pop(0))
        spent = self.seconds / STEPS / self.num_requests * 1e6
        self.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        for output in [*flight, self.schedule()]:
            self.update(output)
        return spent, check


def show(name: str, theirs: list[float], ours: list[float]) -> None:
    columns = [f"{statistics.median(side):8.3f} ({min(side):.3f} .. {max(side):.3f})"
               for side in (theirs, ours)]
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"{name:32} {columns[0]:34} {columns[1]:34} {ratio:6.1f}", flush=True)


def decode(num_requests: int, is_async: bool, rounds: int) -> None:
    from quire import vllm as quire_vllm
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    kv_cache_utils.init_none_hash(sha256)
    kinds = ((AsyncScheduler, quire_vllm.AsyncScheduler) if is_async
             else (Scheduler, quire_vllm.Scheduler))
    hashers = [module.get_request_block_hasher(BLOCK_SIZE, sha256)
               for module in (kv_cache_utils, quire_vllm)]
    sides = [Side(*given, num_requests, is_async) for given in zip(kinds, hashers)]
    spent = [[], []]
    for seed in range(rounds + 1):  # the first one warms up
        results = [side.round(seed) for side in sides]
        assert results[0][1] == results[1][1], "not the same blocks"
        if seed > 0:
            for column, (microseconds, _check) in zip(spent, results):
                column.append(microseconds)
    show(f"{'async ' if is_async else ''}decode, {num_requests} requests", *spent)


def hashes(name: str, rounds: int) -> None:
    from quire import vllm as quire_vllm
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    function = get_hash_fn_by_name(name)
    kv_cache_utils.init_none_hash(function)
    rng, spent = random.Random(1), [[], []]
    hashers = [module.get_request_block_hasher(BLOCK_SIZE, function)
               for module in (kv_cache_utils, quire_vllm)]
    tokens = [rng.randrange(128_000) for _ in range(HASH_TOKENS)]
    request = Request("prompt", tokens, SamplingParams(max_tokens=1), None)
    for _ in range(rounds):
        made = []
        for hasher, column in zip(hashers, spent):
            start = time.perf_counter()
            made.append(hasher(request))
            column.append((time.perf_counter() - start) / (HASH_TOKENS // BLOCK_SIZE) * 1e6)
        assert made[0] == made[1], "not the same hashes"
    show(f"hash a block, {name}", *spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--platform", help="module to import first, where there is no GPU")
    parser.add_argument("--requests", type=int, nargs="+", default=[256, 1024])
    given = parser.parse_args()
    if given.platform:
        importlib.import_module(given.platform)
    print(f"{'':32} {'vLLM, us':34} {'quire.vllm, us':34} ratio")
    for num_requests in given.requests:
        for is_async in (False, True):
            decode(num_requests, is_async, given.rounds)
    for name in ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"):
        hashes(name, given.rounds)


if __name__ == "__main__":
    main()
