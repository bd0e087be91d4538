"""What QuireConnector tells: events, stats, sources of hits, work that is left; and loads ahead."""
from collections import Counter
from types import SimpleNamespace

import pytest
import vllm_kit
from connector_world import NUM_BLOCKS, SCHEDULERS, World, drive, serve


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


def test_the_self_test_is_not_counted(pytestconfig, tmp_path):
    vllm_kit.need_vllm(pytestconfig)
    world = World(SCHEDULERS[0], tiers={"file": {"path": str(tmp_path), "bytes": 1 << 22}})
    (rank,) = world.ranks
    assert rank.half.worker.stats()["tiers"][0]["bytes_stored"] > 0
    counted = rank.half.take_stats()
    assert counted is None or not any(counted.data.values())
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


@pytest.mark.parametrize("silent", [0.0, 0.6])
@pytest.mark.parametrize("world_size", [1, 2])
def test_no_more_is_told_than_a_file_has(pytestconfig, world_size, silent, tmp_path):
    """Ranks that report late evict what another rank has not stored yet."""
    vllm_kit.need_vllm(pytestconfig)
    from vllm.distributed.kv_events import BlockStored

    num_blocks = 26  # of each rank; the file has pages for so many, and its index
    tiers = {"host_blocks": 30, "load": "always",
             "file": {"path": str(tmp_path), "bytes": world_size * 60 * 4096}}
    world = World(SCHEDULERS[0], world_size, tiers, events=True, max_num_seqs=4, silent=silent)
    taken = []
    inner = world.connector.take_events
    world.connector.take_events = lambda: taken.extend(inner()) or ()
    for seed in range(5, 9):
        world.silent = silent
        drive(world, seed, 120, aborts=0.1)
    for _ in range(20):
        world.turn(3)
    there = set()
    for event in taken:
        if event.medium == "DISK":
            hashes = set(event.block_hashes)
            there = there | hashes if isinstance(event, BlockStored) else there - hashes
    assert 10 < len(there) <= num_blocks
    world.close()


def test_requests_that_have_ended_are_forgotten(pytestconfig, tmp_path):
    """Events of tiers need tokens of blocks that nobody uses any longer, but not their requests."""
    vllm_kit.need_vllm(pytestconfig)
    import gc
    import weakref

    tiers = {"host_blocks": 300, "load": "always", "file": {"path": str(tmp_path), "bytes": 1 << 24}}
    world, hasher, ended = World(SCHEDULERS[0], tiers=tiers, events=True), vllm_kit.hasher(), []
    prefix = [i % 199 for i in range(36)]
    for i in range(100):
        request = vllm_kit.request(f"t{i}", [*prefix, i + 1000, *range(9)], hasher, 2)
        ended.append(weakref.ref(request))
        world.scheduler.add_request(request)
        del request
        while world.scheduler.requests:
            world.turn(7)
    world.settle()
    gc.collect()
    assert world.connector._scheduler._events._in_host
    assert sum(each() is not None for each in ended) < 10
    world.close()


def test_the_queue_forgets_who_was_served_before(pytestconfig, tmp_path):
    """The first of the queue are not always asked for first: by priority, for example."""
    vllm_kit.need_vllm(pytestconfig)
    tiers = {"host_blocks": 80, "file": {"path": str(tmp_path), "bytes": 1 << 24}}
    world, hasher = World(SCHEDULERS[0], tiers=tiers), vllm_kit.hasher()
    half = world.connector._scheduler
    for i in range(4):
        half.new_request(vllm_kit.request(f"low{i}", [5000 + 40 * i + k for k in range(40)], hasher, 3))
    for i in range(500):
        request = vllm_kit.request(f"high{i}", [i % 200] * 9, hasher, 3)
        half.new_request(request)
        half.match(request, 0)
        half.finished(request, ([],))
    assert len(half._behind) < 100 and len(half.known) == 4
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


def test_counters_of_the_scheduler_half_reach_vllm_0_20(pytestconfig):
    """It asks the scheduler half only in a step in which a worker gives counters."""
    vllm_kit.need_vllm(pytestconfig)
    from lockstep_parts import is_0_32

    world = World(SCHEDULERS[0])
    half, (rank,) = world.connector._scheduler, world.ranks
    inner, plans = half.plan, []

    def plan(output):
        plans.append(inner(output))
        return plans[-1]

    half.plan = plan
    drive(world, 3, 40)
    assert any(each.has_counted for each in plans) == (not is_0_32())
    assert rank.half.take_stats(True) is not None
    assert rank.half.take_stats() is None
    world.close()
