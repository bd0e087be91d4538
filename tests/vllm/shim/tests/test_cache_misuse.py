"""quire_shim's KVCacheManager and managers at their limits: many requests, long inputs, wrong types
and numbers, blocks of others, hits that are gone. Clear exceptions, and nothing has changed.
"""
import gc
import sys
from types import SimpleNamespace

import pytest
import vllm_kit
from test_cache import SIZE, cross, full, window


@pytest.fixture(scope="module", autouse=True)
def vllm(request):
    vllm_kit.need_vllm(request.config)


def made(num_blocks: int = 20, specs=None, **given):
    from quire_shim.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    groups = [KVCacheGroupSpec([f"layer{i}"], spec) for i, spec in enumerate(specs or [full()])]
    return KVCacheManager(KVCacheConfig(num_blocks, [], groups), given.pop("max_model_len", 64),
                          SIZE, **given)


def asked(name: str = "a", num_tokens: int = 9, width: int = 32, hashes: list | None = None):
    if hashes is None:
        hashes = [bytes([i]) * width for i in range(num_tokens // SIZE)]
    return SimpleNamespace(request_id=name, num_tokens=num_tokens, num_computed_tokens=0,
                           block_hashes=hashes, skip_reading_prefix_cache=False, num_preemptions=0)


def test_many_requests():
    manager = made(3000)
    for i in range(2000):
        assert manager.allocate_slots(asked(f"r{i}", 3), 3).get_block_ids() == ([i + 1],)
    assert len(manager.coordinator.single_type_managers[0].req_to_blocks) == 2000
    for i in range(2000):
        assert manager.get_block_ids(f"r{i}") == ([i + 1],)
        manager.free(asked(f"r{i}", 3))
    assert manager.block_pool.get_num_free_blocks() == 2999 and manager.usage == 0


def test_long_encoder_input():
    manager = made(200, [full(), cross()], enable_caching=False)
    for name, tokens in (("a", 3), ("b", 400)):
        blocks = manager.allocate_slots(asked(name), 9, num_encoder_tokens=tokens).get_block_ids()
        assert len(blocks[1]) == -(-tokens // SIZE)
    assert manager.get_block_ids("b")[1] == blocks[1]


@pytest.mark.parametrize("request_, kind, words", [
    (asked(width=20), ValueError, "20 bytes"),
    (asked(hashes=[b"1" * 32, b"2" * 16]), ValueError, "16 bytes, where all before had 32"),
    (asked(hashes=["1", "2"]), TypeError, "must be bytes"),
    (asked(hashes=[]), ValueError, "0 block hashes, not 2"),
    (asked(num_tokens=65, hashes=[b"1" * 32] * 16), ValueError, "65 tokens.*max_model_len is 64")])
def test_wrong_requests(request_, kind, words):
    manager = made()
    with pytest.raises(kind, match=words):
        manager.allocate_slots(request_, request_.num_tokens)
    assert manager.block_pool.get_num_free_blocks() == 19 and not manager._cache.ids()
    assert manager.allocate_slots(asked("b"), 9).get_block_ids() == ([1, 2, 3],)


def test_wrong_blocks():
    from quire_shim.block_pool import KVCacheBlock
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks

    manager, other = made(), made()
    for blocks, kind in (([KVCacheBlock(3)], ValueError), ([other.block_pool.blocks[1]], ValueError),
                         ([kv_cache_utils.KVCacheBlock(1)], TypeError), ([1], TypeError),
                         (7, TypeError), ([manager.block_pool.blocks[3]], RuntimeError)):
        with pytest.raises(kind):
            manager.allocate_slots(asked(), 5, 4, KVCacheBlocks((blocks,)))
    for groups in ((), ([], [])):
        with pytest.raises(ValueError, match="1 groups"):
            manager.allocate_slots(asked(), 5, 4, KVCacheBlocks(groups))
    assert manager.block_pool.get_num_free_blocks() == 19


def test_stale_hit():
    manager = made()
    manager.allocate_slots(asked(), 9)
    manager.free(asked())
    hits, num_tokens = manager.get_computed_blocks(asked("b"))
    assert num_tokens == 8
    manager.evict_blocks({hits.blocks[0][0].block_id})
    with pytest.raises(RuntimeError, match="QUIRE_E_STALE_HIT"):
        manager.allocate_slots(asked("b"), 1, 8, hits)


def test_wrong_numbers():
    manager = made()
    for call in (lambda: manager.allocate_slots(asked(), -1),
                 lambda: manager.allocate_slots(asked(), 2**40),
                 lambda: manager.remove_skipped_blocks("a", -1)):
        with pytest.raises(OverflowError):
            call()
    with pytest.raises(ValueError, match="neither new nor external"):
        manager.allocate_slots(asked(), 0)
    with pytest.raises(TypeError):
        manager.allocate_slots(asked(), "1")
    with pytest.raises(AttributeError):
        manager.allocate_slots(object(), 1)


def test_wrong_groups():
    from _quire_shim import Cache
    from quire_shim.single_type_kv_cache_manager import FullAttentionManager, group_of

    with pytest.raises(AssertionError, match="hash_block_size is 4"):
        made(specs=[full(2 * SIZE)])
    with pytest.raises(AssertionError, match="all alike"):
        made(specs=[full(), full()])
    with pytest.raises(NotImplementedError, match="SimpleNamespace"):
        group_of(SimpleNamespace(block_size=4))
    with pytest.raises(TypeError, match="not a BlockPool"):
        FullAttentionManager.find_longest_cache_hit([], 3, [0], object(), full(), False, SIZE)
    with pytest.raises(TypeError, match="not a quire._vllm.Core"):
        Cache.of_core(7)
    with pytest.raises(TypeError):
        Cache(1, 2, 3)


def test_written_rows():
    from quire_shim.block_pool import BlockPool
    from quire_shim.single_type_kv_cache_manager import SlidingWindowManager

    pool = BlockPool(20, True, SIZE)
    manager = SlidingWindowManager(window(5), block_pool=pool, enable_caching=True,
                                   kv_cache_group_id=0)
    blocks = pool.get_new_blocks(4)
    manager.req_to_blocks["a"] = blocks
    manager.remove_skipped_blocks("a", 12)
    assert [b.block_id for b in blocks] == [0, 0, 3, 4] and pool.get_num_free_blocks() == 17
    with pytest.raises(RuntimeError, match="written into req_to_blocks"):
        manager.allocate_new_blocks("a", 20, 20)
    manager.free("a")
    assert pool.get_num_free_blocks() == 19 and "a" not in manager.req_to_blocks
    with pytest.raises(TypeError, match="kept in C"):
        manager.num_cached_block["a"] = 1


def test_blocks_outlive_the_manager():
    manager = made()
    blocks = manager.allocate_slots(asked(), 9).blocks[0]
    pool = manager.block_pool
    del manager
    gc.collect()
    assert [(b.block_id, b.ref_cnt) for b in blocks] == [(1, 1), (2, 1), (3, 1)]
    assert pool.get_num_free_blocks() == 16
    del pool
    gc.collect()
    assert [b.block_id for b in blocks] == [1, 2, 3]


def test_an_event_that_fails():
    """An exception of Python's code inside a call comes out of that call."""
    manager = made(8, enable_kv_cache_events=True)
    manager.block_pool.kv_event_queue = None
    with pytest.raises((TypeError, AttributeError)):
        manager.allocate_slots(asked(), 9)
    manager.block_pool.kv_event_queue = []
    manager.free(asked())
    assert manager.block_pool.get_num_free_blocks() == 7


def test_nothing_is_left_behind():
    def use():
        manager = made(200, [full(), window(5)], enable_kv_cache_events=False)
        for i in range(60):
            request = asked(f"r{i}", 30)
            hits, num_tokens = manager.get_computed_blocks(request)
            if manager.allocate_slots(request, 30 - num_tokens, num_tokens, hits) is None:
                break
        for name in list(manager.coordinator.single_type_managers[1].req_to_blocks):
            manager.coordinator.free(name)
        with pytest.raises(ValueError):
            manager.allocate_slots(asked(hashes=[]), 9)
        manager.take_new_block_ids()

    for _ in range(3):
        use()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        use()
    gc.collect()
    assert sys.getallocatedblocks() - before < 200


def test_a_schedulers_cache_is_only_shown():
    from test_lockstep import Pair

    scheduler = Pair(1, "quire_shim.scheduler").both[1]
    manager = scheduler.kv_cache_manager
    rows = manager.coordinator.single_type_managers[0].req_to_blocks
    for call in (lambda: manager.allocate_slots(asked(), 9), lambda: manager.free(asked()),
                 lambda: manager.take_new_block_ids(), lambda: rows.update(a=[])):
        with pytest.raises(RuntimeError, match="belongs to a scheduler"):
            call()
    assert len(rows) == 0 and rows["a"] == [] and manager.usage == 0
    del scheduler
    gc.collect()
    assert manager.get_block_ids("a") == ([],) * manager.num_kv_cache_groups
