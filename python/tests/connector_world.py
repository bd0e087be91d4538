"""A world for tests of QuireConnector: its two halves under a scheduler, with tensors but no model.

The "model" writes into each position of a block a number that depends on all tokens up to there. Before a
request goes on, every position that the scheduler calls computed must have its number: what was loaded,
what was found in the cache, what was computed before. A wrong byte anywhere ends the test.
"""
import random
import zlib
from collections import deque
from types import SimpleNamespace

import vllm_kit

NUM_BLOCKS, NUM_SLOTS = 40, 300
SCHEDULERS = ("vllm.v1.core.sched.scheduler", "quire.vllm")


def kv_cache_config(tensor_bytes: int):
    from lockstep_parts import is_0_32
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor

    page = tensor_bytes // NUM_BLOCKS
    tensor = (KVCacheTensor(tensor_bytes, ["full"], tensor_bytes, page) if is_0_32()
              else KVCacheTensor(size=tensor_bytes, shared_by=["full"]))
    return KVCacheConfig(NUM_BLOCKS, [tensor], [vllm_kit.full_group()])


def vllm_config(rank: int, world_size: int, events: bool = False):
    return SimpleNamespace(
        cache_config=SimpleNamespace(block_size=vllm_kit.BLOCK_SIZE, enable_prefix_caching=True,
                                     prefix_caching_hash_algo="sha256", cache_dtype="auto",
                                     prefix_match_unit=None, hash_block_size=None),
        kv_events_config=SimpleNamespace(enable_kv_cache_events=events),
        model_config=SimpleNamespace(max_model_len=400, use_mla=False, model="toy", revision=None,
                                     tokenizer="toy", tokenizer_revision=None, dtype="bfloat16",
                                     quantization=None, hf_config=SimpleNamespace()),
        parallel_config=SimpleNamespace(rank=rank, world_size=world_size, data_parallel_rank=0,
                                        tensor_parallel_size=world_size, pipeline_parallel_size=1,
                                        decode_context_parallel_size=1,
                                        prefill_context_parallel_size=1),
        kv_transfer_config=SimpleNamespace(kv_role="kv_both"), speculative_config=None)


def number_of(tokens, rank: int) -> float:
    """Of the last position: exact in bfloat16."""
    return float(zlib.crc32(bytes(str(tokens), "ascii"), rank) % 251 - 125)


class Rank:
    """A worker half with its tensor: K and V apart."""

    def __init__(self, options, rank: int, world_size: int, events: bool = False):
        import torch

        from quire.vllm.tiers.worker import WorkerHalf

        self.rank = rank
        self.tensor = torch.zeros(2, NUM_BLOCKS, vllm_kit.BLOCK_SIZE, 1, 2, dtype=torch.bfloat16)
        config = kv_cache_config(self.tensor.numel() * self.tensor.element_size())
        self.half = WorkerHalf(options, vllm_config(rank, world_size, events), config)
        self.half.register({"full": self.tensor})
        assert not self.tensor.any(), "the self test leaves something behind"

    def output(self, step, plan, is_silent: bool = False):
        """What vLLM's worker takes from the connector behind a step."""
        from quire.vllm.tiers.connector import QuireConnector
        from quire.vllm.tiers.metadata import Report
        from vllm.v1.outputs import KVConnectorOutput

        worker = object.__new__(QuireConnector)
        worker._worker, worker._scheduler, worker._connector_metadata = self.half, None, plan
        made = KVConnectorOutput(invalid_block_ids=worker.get_block_ids_with_load_errors())
        if hasattr(made, "failed_recving"):  # 0.32
            results = worker.get_transfer_results(step.finished_req_ids)
            made.finished_sending = results.finished_sending
            made.finished_recving, made.failed_recving = results.finished_recving, results.failed_recving
        else:
            made.finished_sending, made.finished_recving = worker.get_finished(step.finished_req_ids)
        made.kv_connector_worker_meta = (Report(plan.step, [], plan.failed) if is_silent
                                         else worker.build_connector_worker_meta())
        return made

    def place(self, blocks, position: int):
        return self.tensor[:, blocks[position // vllm_kit.BLOCK_SIZE], position % vllm_kit.BLOCK_SIZE]

    def check(self, name, blocks, tokens, computed: int) -> None:
        for p in range(computed):
            want, got = number_of(tokens[:p + 1], self.rank), self.place(blocks, p)
            assert (got == want).all(), f"{name}: position {p} of {computed} has {got}, not {want}"

    def compute(self, blocks, tokens, first: int, end: int) -> None:
        for p in range(first, end):
            self.place(blocks, p)[:] = number_of(tokens[:p + 1], self.rank)


def pair_class():
    from quire.vllm.tiers.connector import QuireConnector
    from quire.vllm.tiers.scheduler import SchedulerHalf

    class Pair(QuireConnector):
        """The connector without vLLM's configs."""

        def __init__(self, options, world_size: int, events: bool):
            size = rank_bytes()
            self._scheduler = SchedulerHalf(options, vllm_config(0, world_size, events),
                                            kv_cache_config(size))
            self._kv_cache_config = kv_cache_config(size)
            self._kv_cache_manager = self._worker = None

        def get_loaded_kv_cache_group_ids(self, _request):
            return (0,)

    return Pair


def rank_bytes() -> int:
    return 2 * NUM_BLOCKS * vllm_kit.BLOCK_SIZE * 2 * 2


class World:
    """A scheduler, a connector, and ranks that compute. late: steps until ranks begin with a plan; silent:
    how often a rank reports nothing in a step."""

    def __init__(self, module: str, world_size: int = 1, tiers=None, events: bool = False,
                 late: int = 0, silent: float = 0.0, **more):
        from quire.vllm.tiers.options import read_options
        from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator

        options = read_options({"host_blocks": NUM_SLOTS, "max_requests": 64, **(tiers or {})})
        self.ranks = [Rank(options, rank, world_size, events) for rank in range(world_size)]
        self.connector = pair_class()(options, world_size, events)
        self.scheduler = vllm_kit.make(connector=self.connector, num_blocks=NUM_BLOCKS,
                                       module=module, events=events, **more)
        if self.connector._scheduler._pool is None:  # vllm_kit's factory binds no pool in 0.20
            self.connector.bind_gpu_block_pool(self.scheduler.kv_cache_manager.block_pool)
        self.aggregator = KVOutputAggregator.from_connector(self.connector, world_size)
        self.found = 0
        self.late, self.plans = late, deque()
        self.silent, self.chance = silent, random.Random(1)

    def work(self, step) -> None:
        """The forward pass of all ranks."""
        for name, count in step.num_scheduled_tokens.items():
            request = self.scheduler.requests[name]
            (blocks,) = self.scheduler.kv_cache_manager.get_block_ids(name)
            first = self.computed[name]
            for rank in self.ranks:
                rank.check(name, blocks, request.all_token_ids, first)
                rank.compute(blocks, request.all_token_ids, first, first + count)

    def turn(self, token: int):
        step = self.scheduler.schedule()
        self.computed = {new.req_id: new.num_computed_tokens for new in step.scheduled_new_reqs}
        cached = step.scheduled_cached_reqs
        self.computed.update(zip(cached.req_ids, cached.num_computed_tokens))
        self.plans.append(step.kv_connector_metadata)
        plan = self.plans.popleft() if len(self.plans) > self.late else None
        for rank in self.ranks if plan is not None else ():
            rank.half.submit(plan)
        self.work(step)
        from vllm.v1.outputs import KVConnectorOutput

        output = self.told(step, plan) if plan is not None else KVConnectorOutput()
        made = vllm_kit.computed(step, token, connector_output=output)
        self.found = self.connector._scheduler.planner.stats()["hit_tokens"]
        return self.scheduler.update_from_output(step, made)

    def told(self, step, plan):
        """What the workers of a step tell, as vLLM asks them and adds it up."""
        outputs = [SimpleNamespace(kv_connector_output=rank.output(
            step, plan, self.chance.random() < self.silent)) for rank in self.ranks]
        if len(outputs) > 1:
            self.aggregator.aggregate(outputs)
        return outputs[0].kv_connector_output

    def check_pool(self) -> None:
        """vLLM's free queue has each block without users once."""
        pool = self.scheduler.kv_cache_manager.block_pool
        if hasattr(pool, "free_block_queue"):  # vLLM's own
            free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
            assert len(free) == len(set(free)) == pool.get_num_free_blocks()
            assert set(free) == {block.block_id for block in pool.blocks[1:] if not block.ref_cnt}

    def settle(self) -> None:
        self.silent = 0.0
        for _ in range(3000):
            if not self.scheduler.requests and not self.connector._scheduler.planner.has_pending():
                break
            self.turn(3)
        for _ in range(1 + 2 * self.late):
            self.turn(3)
        assert not self.scheduler.requests
        pool = self.scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == NUM_BLOCKS - 1, "blocks are still held"
        self.connector._scheduler.planner.check()

    def close(self) -> None:
        for rank in self.ranks:
            rank.half.close()


def drive(world: World, seed: int, count: int = 150, aborts: float = 0.05, resets: float = 0.0) -> None:
    from vllm.v1.request import RequestStatus

    rng = random.Random(seed)
    prefixes = [[rng.randrange(200) for _ in range(rng.randrange(12, 60))] for _ in range(8)]
    hasher = vllm_kit.hasher()
    for number in range(count):
        if len(world.scheduler.requests) < 8:
            prompt = rng.choice(prefixes) + [rng.randrange(200) for _ in range(rng.randrange(1, 12))]
            world.scheduler.add_request(
                vllm_kit.request(f"r{number}", prompt, hasher, rng.randint(1, 10)))
        world.turn(rng.randrange(200))
        if world.scheduler.requests and rng.random() < aborts:
            name = rng.choice(list(world.scheduler.requests))
            world.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        if rng.random() < resets:
            world.connector.reset_cache()
        world.check_pool()
    world.settle()


def serve(world: World, name: str, *prompts) -> None:
    """These requests together, to their end."""
    hasher = vllm_kit.hasher()
    for i, prompt in enumerate(prompts):
        world.scheduler.add_request(vllm_kit.request(f"{name}{i}", prompt, hasher, 3))
    for _ in range(1000):
        if not world.scheduler.requests:
            return
        world.turn(7)
    raise AssertionError(f"requests do not end: {list(world.scheduler.requests)}")


def leave_in_host_memory(world: World, name: str) -> None:
    """Other requests use all blocks of the engine."""
    serve(world, name, *([1000 + 100 * i + len(name)] * 40 for i in range(5)))
