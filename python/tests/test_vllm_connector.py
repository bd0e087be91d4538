"""QuireConnector under vLLM's scheduler and Quire's: what is loaded was computed, whatever happens."""
import random
import sys
from types import SimpleNamespace

import pytest
import vllm_kit
from connector_world import (NUM_BLOCKS, NUM_SLOTS, SCHEDULERS, World, drive, kv_cache_config,
                             leave_in_host_memory, rank_bytes, serve, vllm_config)


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
        if not half._held or rng.random() < 0.7:
            continue
        try:
            assert world.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
            done += 1
            assert not half._held
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
@pytest.mark.parametrize("running", [False, True])
def test_a_reset_loses_no_stores(pytestconfig, module, running):
    """A reset that vLLM refuses drops nothing; after one that preempts, the blocks are stored again."""
    vllm_kit.need_vllm(pytestconfig)
    world = World(module, late=4)
    half, prompt, done = world.connector._scheduler, list(range(40)), None
    world.scheduler.add_request(vllm_kit.request("a", [*prompt, 1], vllm_kit.hasher(), 12))
    for _ in range(200):
        if not world.scheduler.requests:
            break
        world.turn(7)
        if half._held and done is None:
            done = world.scheduler.reset_prefix_cache(reset_running_requests=running)
    assert done == running
    world.settle()
    assert (half.planner.stats()["failed_stores"] > 0) == running
    leave_in_host_memory(world, "other")
    before = world.found
    serve(world, "again", [*prompt, 3])
    assert world.found - before == len(prompt)
    world.close()


@pytest.mark.parametrize("module", SCHEDULERS)
def test_files(pytestconfig, module, tmp_path):
    vllm_kit.need_vllm(pytestconfig)
    tiers = {"host_blocks": 30, "load": "always", "file": {"path": str(tmp_path), "bytes": 1 << 22}}
    world = World(module, 2, tiers, max_num_seqs=4)
    drive(world, 5, aborts=0.1)
    assert world.connector._scheduler.planner.stats()["tiers"][0]["hit_tokens"] > 100
    world.close()


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
