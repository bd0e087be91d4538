"""The shim's classes in wrong hands: every method and attribute with arguments of every kind. What must
come of it is a Python exception that says something, never a crash.
"""
import threading

import pytest
import vllm_kit
from test_vllm_abuse import (attempt, busy_scheduler, call_every_method, make_every_kind,
                             write_every_attribute)


@pytest.fixture(autouse=True)
def _vllm(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)


def pool():
    from quire_shim.block_pool import BlockPool

    return BlockPool(10, True, 4)


def blocks():
    from quire_shim.block_pool import KVCacheBlock

    return [KVCacheBlock(i) for i in range(5)]


def manager():
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    from quire_shim.kv_cache_manager import KVCacheManager

    group = KVCacheGroupSpec(["full"], FullAttentionSpec(
        block_size=4, num_kv_heads=1, head_size=2, dtype=torch.bfloat16))
    return KVCacheManager(KVCacheConfig(20, [], [group]), 96, 4, enable_caching=True, log_stats=True)


def scheduler():
    return busy_scheduler(module="quire_shim.scheduler")


def stranger(name: str):
    """An object of the shim's."""
    from quire_shim import encoder_cache_manager, request_queue
    from quire_shim.block_pool import BlockHashToBlockMap, FreeKVCacheBlockQueue
    from quire_shim.single_type_kv_cache_manager import FullAttentionManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    makers = {
        "scheduler": scheduler, "running": lambda: scheduler().running,
        "waiting": lambda: scheduler().waiting, "bound": lambda: scheduler().requests["r1"],
        "images": lambda: scheduler().encoder_cache_manager,
        "viewed": lambda: scheduler().kv_cache_manager,
        "viewed_pool": lambda: scheduler().kv_cache_manager.block_pool,
        "pool": pool, "block": lambda: blocks()[0], "manager": manager,
        "queue": lambda: FreeKVCacheBlockQueue(blocks()), "map": BlockHashToBlockMap,
        "coordinator": lambda: manager().coordinator,
        "single": lambda: manager().coordinator.single_type_managers[0],
        "alone": lambda: FullAttentionManager(FullAttentionSpec(
            block_size=4, num_kv_heads=1, head_size=2, dtype=None), pool(), True, 0),
        "encoder": lambda: encoder_cache_manager.EncoderCacheManager(20),
        "fcfs": request_queue.FCFSRequestQueue, "heap": request_queue.PriorityRequestQueue}
    return makers[name]()


STRANGERS = ["scheduler", "running", "waiting", "bound", "images", "viewed", "viewed_pool", "pool",
             "block", "manager", "queue", "map", "coordinator", "single", "alone", "encoder",
             "fcfs", "heap"]


@pytest.mark.parametrize("name", STRANGERS)
def test_every_method_with_wrong_types(name):
    call_every_method(lambda: stranger(name), name)


@pytest.mark.parametrize("name", STRANGERS)
def test_every_attribute_with_wrong_types(name):
    write_every_attribute(lambda: stranger(name), name)


def test_every_constructor_with_wrong_types():
    import _quire_shim

    make_every_kind(_quire_shim)


@pytest.mark.parametrize("name", ["edit", "flags", "leave", "enqueue", "images", "take_image"])
def test_functions_of_a_core_want_a_core(name):
    import _quire_shim

    with pytest.raises(TypeError, match="not a quire._vllm.Core"):
        call = getattr(_quire_shim, name)
        call(pool()) if name == "images" else call(pool(), 1)


def test_two_threads_and_one_pool():
    shared = pool()

    def work() -> None:
        for _ in range(300):
            attempt(lambda: shared.free_blocks(shared.get_new_blocks(3)))
            attempt(shared.reset_prefix_cache)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.get_num_free_blocks() == 9


def test_parts_outlive_their_scheduler():
    import gc

    made = scheduler()
    part = made.kv_cache_manager
    views = [made.running, part, part.block_pool, part.block_pool.blocks[3], part.coordinator]
    del made, part
    gc.collect()
    for view in views:
        for name in dir(view):
            if not name.startswith("__"):
                attempt(lambda: getattr(view, name))
        attempt(lambda: list(view))
    attempt(lambda: views[2].get_new_blocks(2))
