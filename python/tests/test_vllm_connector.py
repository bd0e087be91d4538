"""QuireConnector's two halves under vLLM's scheduler and Quire's, with tensors but without a model.

The "model" writes into each position of a block a number that depends on all tokens up to there. Before a
request goes on, every position that the scheduler calls computed must have its number: what was loaded,
what was found in the cache, what was computed before. A wrong byte anywhere ends the test.
"""
import random
import sys
import zlib
from collections import Counter, deque
from types import SimpleNamespace

import pytest
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


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_loaded_was_computed(pytestconfig, module, world_size, seed):
    vllm_kit.need_vllm(pytestconfig)
    world = World(module, world_size, max_num_seqs=6)
    drive(world, seed)
    assert world.found > 200
    world.close()


def test_one_tensor_for_all_layers(pytestconfig):
    """0.20 gives it with a backend that knows the order of its dimensions."""
    vllm_kit.need_vllm(pytestconfig)
    import torch
    from lockstep_parts import is_0_32
    from quire.vllm.tiers.options import read_options
    from quire.vllm.tiers.worker import WorkerHalf

    if is_0_32():
        pytest.skip("a layout of vLLM 0.20")

    class Backend:
        @staticmethod
        def get_kv_cache_stride_order(include_num_layers_dimension):
            assert include_num_layers_dimension
            return (2, 0, 1, 3, 4, 5)

    num_layers = 3
    memory = torch.zeros(NUM_BLOCKS, num_layers, 2, vllm_kit.BLOCK_SIZE, 1, 2, dtype=torch.bfloat16)
    config = kv_cache_config(memory.numel() * memory.element_size() // num_layers)
    config.kv_cache_tensors = [SimpleNamespace(size=config.kv_cache_tensors[0].size, shared_by=[f"l{i}"])
                               for i in range(num_layers)]
    config.kv_cache_groups[0].layer_names = [f"l{i}" for i in range(num_layers)]
    half = WorkerHalf(read_options({"host_blocks": 8}), vllm_config(0, 1), config)
    half.register_cross_layers(memory, Backend)
    assert not memory.any()
    half.close()


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("late", [1, 3])
def test_late_copies_of_aborted_requests(pytestconfig, module, late):
    """No block is given away while it is read or written."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(module, late=late, max_num_seqs=6)
    drive(world, 7 + late, count=250, aborts=0.4)
    assert world.found > 50
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_late_reports_and_resets(pytestconfig, module, world_size):
    """A reset drops stores that are in flight; their requests store the same blocks again."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(module, world_size, silent=0.6, max_num_seqs=6)
    drive(world, 3, count=250, aborts=0.1, resets=0.1)
    assert world.found > 50
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("late", [0, 2])
def test_resets_while_stores_read(pytestconfig, module, late):
    """vLLM resets its prefix cache if nobody has a block: stores that read some give way. Loads do not:
    then vLLM refuses."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(module, late=late, max_num_seqs=6)
    half, rng = world.connector._scheduler, random.Random(late)
    hasher, done, refused = vllm_kit.hasher(), 0, 0
    prefixes = [[rng.randrange(200) for _ in range(40)] for _ in range(4)]
    for number in range(400):
        if len(world.scheduler.requests) < 6:
            prompt = rng.choice(prefixes) + [rng.randrange(200) for _ in range(rng.randrange(1, 12))]
            world.scheduler.add_request(vllm_kit.request(f"r{number}", prompt, hasher, rng.randint(1, 10)))
        world.turn(rng.randrange(200))
        if half._num_held == 0 or rng.random() < 0.7:
            continue
        try:
            assert world.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
            done += 1
            assert half._num_held == 0
        except RuntimeError:
            cache = world.scheduler.kv_cache_manager
            assert any(any(cache.get_block_ids(name)) for name in world.scheduler.requests), (
                "only a request that waits with blocks of its load may hold up a reset")
            refused += 1
        world.check_pool()
    assert done > 10 and world.found > 50
    world.settle()
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
def test_files(pytestconfig, module, tmp_path):
    vllm_kit.need_vllm(pytestconfig)
    tiers = {"host_blocks": 30, "load": "always", "file": {"path": str(tmp_path), "bytes": 1 << 22}}
    world = World(module, 2, tiers, max_num_seqs=4)
    drive(world, 5, aborts=0.1)
    assert world.connector._scheduler.planner.stats()["tiers"][0]["hit_tokens"] > 100
    world.close()


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


@pytest.mark.parametrize("module", SCHEDULERS)
def test_tiers_load_ahead_for_the_first_of_the_queue(pytestconfig, module, tmp_path):
    """Of twenty requests that wait, as many as a quarter of host memory has room for."""
    vllm_kit.need_vllm(pytestconfig)
    from lockstep_parts import is_0_32

    if not is_0_32():
        pytest.skip("vLLM 0.20 tells connectors of a request when it is its turn")
    tiers = {"host_blocks": 80, "load": "always", "file": {"path": str(tmp_path), "bytes": 1 << 24}}
    world = World(module, tiers=tiers, max_num_seqs=1)
    half = world.connector._scheduler
    prompts = [[i * 40 + k for k in range(40)] for i in range(20)]
    serve(world, "first", *([*prompt, 7] for prompt in prompts))
    world.settle()  # host memory has the last of them, the file has all
    assert world.scheduler.reset_prefix_cache()
    asked = []
    inner = half.planner.match
    half.planner = SimpleNamespace(**{name: getattr(half.planner, name) for name in dir(half.planner)
                                      if not name.startswith("_")} | {
        "match": lambda known, *more: (asked.append(known.request.request_id), inner(known, *more))[1]})
    sources, found = world.connector.get_external_cache_hit_sources, Counter()
    world.connector.get_external_cache_hit_sources = lambda *given: (
        found.update(sources(*given)), sources(*given))[1]
    hasher = vllm_kit.hasher()
    for i, prompt in enumerate(prompts):
        world.scheduler.add_request(vllm_kit.request(f"again{i}", [*prompt, 8], hasher, 2))
    most, ahead = half._most_ahead, 0
    for _ in range(2000):
        if not world.scheduler.requests:
            break
        assert half._num_ahead < most + 41
        ahead = max(ahead, len(set(half._ahead) - set(asked)))
        world.turn(7)
    assert 2 <= ahead <= most // 41 + 1
    assert not half._ahead and not half._behind and half._num_ahead == 0
    tokens = half.planner.stats()["tiers"][0]["hit_tokens"]
    assert tokens >= 10 * 40
    assert {source.value: count for source, count in found.items()} == {"disk": tokens}
    assert world.scheduler.reset_prefix_cache()
    serve(world, "host", [*prompts[-2], 9])
    assert {source.value: count for source, count in found.items()} == {"disk": tokens, "host": 40}
    world.close()


def leave_in_host_memory(world: World, name: str) -> None:
    """Other requests use all blocks of the engine."""
    serve(world, name, *([1000 + 100 * i + len(name)] * 40 for i in range(5)))


@pytest.mark.parametrize("module", SCHEDULERS)
def test_two_requests_with_one_prefix_in_the_same_step(pytestconfig, module):
    """vLLM says that the second one has computed what the first one begins to compute."""
    vllm_kit.need_vllm(pytestconfig)
    world, prefix = World(module), list(range(40))
    serve(world, "both", [*prefix, 1], [*prefix, 2])
    leave_in_host_memory(world, "other")
    assert world.found == 0
    serve(world, "again", [*prefix, 3])  # what is loaded is compared
    assert world.found == len(prefix)
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
def test_a_reset_forgets_all(pytestconfig, module):
    vllm_kit.need_vllm(pytestconfig)
    world = World(module)
    drive(world, 1, 40)
    assert world.connector.reset_cache()
    before = world.found
    world.scheduler.reset_prefix_cache()
    drive(world, 1, 1)
    assert world.found == before
    world.close()


def test_a_failed_load_is_told_by_the_workers(pytestconfig):
    """vLLM reads failures before update_connector_output: they come with the next step."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(SCHEDULERS[0])
    half = world.connector._scheduler
    step = world.scheduler.schedule()  # with a plan of its own
    half._fail(["a", "b"], [3, 4])
    plan = half.plan(step)
    assert plan.failed == ("a", "b") and plan.failed_blocks == (3, 4)
    report = world.ranks[0].half.report(plan)
    assert report.failed == ("a", "b")
    output = SimpleNamespace(kv_connector_worker_meta=report, finished_recving=None)
    half.take(output)
    assert output.finished_recving == {"a", "b"}
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_failed_load_is_computed_and_stored(pytestconfig, module, world_size):
    vllm_kit.need_vllm(pytestconfig)
    world, prompt = World(module, world_size), list(range(41))
    planner, rank = world.connector._scheduler.planner, world.ranks[0].half
    serve(world, "first", prompt)
    leave_in_host_memory(world, "other")
    inner, lost = rank.report, []

    def report(plan):
        """While the load is in flight the blocks in host memory are lost: what comes is nonsense."""
        if planner.stats()["loads_in_flight"] and not lost:
            lost.append(planner.reset())
            (blocks,) = world.scheduler.kv_cache_manager.get_block_ids("failed0")
            made = inner(plan)
            for each in world.ranks:
                each.tensor[:, list(blocks)] = -99
            return made
        return inner(plan)

    rank.report = report
    serve(world, "failed", prompt)
    assert planner.stats()["failed_loads"] == 1
    leave_in_host_memory(world, "another")
    before = world.found
    serve(world, "again", prompt)
    assert world.found == before + 40
    world.settle()
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
def test_a_load_fails_whose_request_has_ended(pytestconfig, module):
    """Nobody reads what it should have brought: it fails nobody, also where vLLM cannot compute again."""
    vllm_kit.need_vllm(pytestconfig)
    from quire.vllm.tiers.metadata import Report
    from vllm.v1.request import RequestStatus

    world, prompt = World(module), list(range(41))
    half, hasher = world.connector._scheduler, vllm_kit.hasher()
    half._cannot_fail = True  # as with several groups of layers on 0.20
    serve(world, "first", prompt)
    leave_in_host_memory(world, "other")
    world.scheduler.add_request(vllm_kit.request("left", prompt, hasher, 3))
    worker = world.ranks[0].half
    poll, worker.report = worker.report, lambda plan: Report(plan.step)  # it takes long
    world.turn(7)
    assert half.planner.stats()["loads_in_flight"]
    assert not half.reset(), "a load would fail"
    world.scheduler.finish_requests("left", RequestStatus.FINISHED_ABORTED)
    half.planner.reset()
    worker.report = poll
    world.settle()
    assert half.planner.stats()["failed_loads"] == 1
    assert half.reset()
    world.close()


def test_a_request_that_ends_before_its_failure_is_told(pytestconfig):
    """The connector does not keep it."""
    vllm_kit.need_vllm(pytestconfig)
    from vllm.v1.request import RequestStatus

    world, prompt = World(SCHEDULERS[0]), list(range(41))
    half, hasher = world.connector._scheduler, vllm_kit.hasher()
    serve(world, "first", prompt)
    leave_in_host_memory(world, "other")
    world.scheduler.add_request(vllm_kit.request("left", prompt, hasher, 3))
    worker = world.ranks[0].half
    inner = worker.report
    worker.report = lambda plan: (half.planner.reset(), inner(plan))[1]
    world.turn(7)
    known = half.known["left"]
    assert known.has_failed and known.is_loading and half._failed
    worker.report = inner
    world.scheduler.finish_requests("left", RequestStatus.FINISHED_ABORTED)
    world.settle()
    assert sys.getrefcount(known) == 2  # here, and as an argument
    world.close()


def test_the_self_test_is_not_counted(pytestconfig, tmp_path):
    vllm_kit.need_vllm(pytestconfig)
    world = World(SCHEDULERS[0], tiers={"file": {"path": str(tmp_path), "bytes": 1 << 22}})
    (rank,) = world.ranks
    assert rank.half.worker.stats()["tiers"][0]["bytes_stored"] > 0
    counted = rank.half.take_stats()
    assert counted is None or not any(counted.data.values())
    world.close()


def test_a_block_that_two_stores_hold(pytestconfig):
    """vLLM 0.20 puts a block that is twice in a list twice into its free queue."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(SCHEDULERS[0])
    half, pool = world.connector._scheduler, world.scheduler.kv_cache_manager.block_pool
    half._hold([3, 4, 3, 5])
    assert pool.get_num_free_blocks() == NUM_BLOCKS - 1 - 3
    half._release([3, 5])
    assert [pool.blocks[i].ref_cnt for i in (3, 4, 5)] == [1, 1, 0]
    half._hold([4, 4])
    half._release([4, 3, 4, 4])
    free = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    assert sorted(free) == list(range(1, NUM_BLOCKS)) and not half.has_pending()
    world.close()


def test_an_engine_without_requests_stores_its_last_blocks(pytestconfig, tmp_path):
    """0.32 goes on until they are in the files; with 0.20 no block of its own stays held."""
    vllm_kit.need_vllm(pytestconfig)
    from lockstep_parts import is_0_32

    world = World(SCHEDULERS[0], tiers={"file": {"path": str(tmp_path), "bytes": 1 << 22}})
    planner, hasher = world.connector._scheduler.planner, vllm_kit.hasher()
    world.scheduler.add_request(vllm_kit.request("only", list(range(41)), hasher, 3))
    for _ in range(1000):
        if not world.scheduler.has_requests():
            break
        world.turn(7)
    assert not world.scheduler.has_requests()
    pool = world.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == NUM_BLOCKS - 1 and world.scheduler.reset_prefix_cache()
    stats = planner.stats()
    assert stats["stored_blocks"] == 10
    assert not is_0_32() or stats["tiers"][0]["stored_blocks"] == 10
    world.settle()
    world.close()


def test_the_wait_for_the_last_stores_ends(pytestconfig, monkeypatch):
    vllm_kit.need_vllm(pytestconfig)
    from quire.vllm.tiers import scheduler

    half = World(SCHEDULERS[0]).connector._scheduler
    now = [100.0]
    monkeypatch.setattr(scheduler.time, "monotonic", lambda: now[0])
    half.planner = SimpleNamespace(has_pending=lambda: True)
    assert half.has_pending()
    now[0] += scheduler.LAST_STORES_S - 0.1
    assert half.has_pending()
    now[0] += 0.2
    assert not half.has_pending()


def test_events_describe_themselves(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    from vllm.distributed.kv_events import BlockRemoved, BlockStored

    world = World(SCHEDULERS[0], events=True, tiers={"host_blocks": 20})
    taken = []
    inner = world.connector.take_events
    world.connector.take_events = lambda: taken.extend(inner()) or ()
    drive(world, 2, 60)
    stored = [event for event in taken if isinstance(event, BlockStored)]
    removed = [event for event in taken if isinstance(event, BlockRemoved)]
    assert stored and removed and {event.medium for event in taken} == {"CPU"}
    for event in stored:
        assert len(event.token_ids) == event.block_size * len(event.block_hashes)
    there = set()
    for event in taken:  # nothing is removed that was not stored
        if isinstance(event, BlockStored):
            there |= set(event.block_hashes)
        else:
            assert set(event.block_hashes) <= there
            there -= set(event.block_hashes)
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
@pytest.mark.parametrize("shared", [False, True])
def test_events_of_files(pytestconfig, module, shared, tmp_path):
    """A small file evicts; a directory loses what others delete. What is told of each medium adds up."""
    vllm_kit.need_vllm(pytestconfig)
    from vllm.distributed.kv_events import BlockStored

    tiers = {"host_blocks": 30, "load": "always",
             "file": {"path": str(tmp_path), "bytes": 1 << 22 if shared else 2 * 60 * 4096,
                      "shared": shared}}
    world = World(module, 2, tiers, events=True, max_num_seqs=4)
    taken = []
    inner = world.connector.take_events
    world.connector.take_events = lambda: taken.extend(inner()) or ()
    drive(world, 5, 150, aborts=0.1)
    if shared:
        for path in tmp_path.rglob("*"):
            if path.is_file() and path.stat().st_size > 256:
                path.unlink()
        drive(world, 5, 40)
    there, removed, told = {"CPU": set(), "DISK": set()}, 0, 0
    for event in taken:
        if isinstance(event, BlockStored):
            told += len(event.token_ids) == event.block_size * len(event.block_hashes)
            there[event.medium] |= set(event.block_hashes)
        else:
            assert set(event.block_hashes) <= there[event.medium]
            there[event.medium] -= set(event.block_hashes)
            removed += event.medium == "DISK"
    stored = sum(isinstance(event, BlockStored) for event in taken)
    assert removed and told > 0.9 * stored, (removed, told, stored)
    world.close()


def test_stats_add_up(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    from quire.vllm.tiers.metrics import QuireStats

    world = World(SCHEDULERS[0])
    total = QuireStats({})
    inner = world.connector.get_kv_connector_stats

    def count():
        """0.32 asks in each step."""
        made = inner()
        if made is not None:
            total.aggregate(made)
        return made

    world.connector.get_kv_connector_stats = count
    drive(world, 3, 40)
    for half in (world.connector._scheduler, world.ranks[0].half):
        made = half.take_stats()
        if made is not None:
            total = total.aggregate(made)
        assert half.take_stats() is None
    stats = world.connector._scheduler.planner.stats()
    assert total.data["stored_blocks|host"] == stats["stored_blocks"] > 0
    assert total.data["hit_tokens|host"] == stats["hit_tokens"] == world.found > 0
    world.close()


def test_a_plan_for_another_host_memory_is_refused(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    from quire.vllm.tiers.metadata import Plan

    world = World(SCHEDULERS[0])
    with pytest.raises(RuntimeError, match="give host_blocks"):
        world.ranks[0].half.submit(Plan(step=1, num_slots=NUM_SLOTS + 1))
    world.close()


def test_groups_of_another_pool_are_refused(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    from quire.vllm.tiers.sizes import refuse_kinds

    config = kv_cache_config(rank_bytes())
    refuse_kinds(config)
    for name, value in (("host_resident", True), ("enable_kv_transfer", False)):
        group = SimpleNamespace(kv_cache_spec=config.kv_cache_groups[0].kv_cache_spec, **{name: value})
        with pytest.raises(ValueError, match="HiSparse"):
            refuse_kinds(SimpleNamespace(kv_cache_groups=[group]))
