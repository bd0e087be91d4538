"""vLLM's BlockPool and quire_shim's side by side: the same calls, and every block, the free queue,
the map, the events and the metrics compared after each.

    pytest python/tests/test_vllm_pool.py --seed 7 --count 50

--platform names a module to import first, where there is no GPU.
"""
import gc
import hashlib
import random
import sys
import weakref
from types import SimpleNamespace

import pytest
import vllm_kit


@pytest.fixture(scope="module", autouse=True)
def vllm(request):
    vllm_kit.need_vllm(request.config)


@pytest.fixture
def ours():
    from quire_shim import block_pool

    return block_pool


def seeds(config):
    first = config.getoption("--seed")
    return range(first, first + config.getoption("--count"))


def pytest_generate_tests(metafunc):
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", seeds(metafunc.config))


class Notes:
    """A metrics collector that writes down what it is told."""

    def __init__(self):
        self.notes = []

    def on_block_allocated(self, block):
        self.notes.append(("allocated", block.block_id, block.ref_cnt))

    def on_block_accessed(self, block):
        self.notes.append(("accessed", block.block_id))

    def on_block_evicted(self, block):
        self.notes.append(("evicted", block.block_id))

    def reset(self):
        self.notes.append(("reset",))


def made_request(rng: random.Random, hash_len, num_hashes: int, hash_block_size: int):
    """What a pool reads of a Request. Few different hashes, so that keys meet."""
    hashes = [rng.choice(b"abcd").to_bytes(1, "big") *
              (rng.randint(1, 60) if hash_len is None else hash_len) for _ in range(num_hashes)]
    if hash_len is None:  # 16 and 32 bytes are kept as they are and do not go with others
        hashes = [h + b"x" if len(h) in (16, 32) else h for h in hashes]
    lora = SimpleNamespace(adapter_id=3, name="l3", lora_name="l3")
    return SimpleNamespace(
        block_hashes=hashes, all_token_ids=list(range(num_hashes * hash_block_size)),
        lora_request=rng.choice([None, lora]), mm_features=[],
        cache_salt=rng.choice([None, "salt"]), prompt_embeds=None,
        _prompt_embeds_per_block_hashes={})


class Pair:
    """One pool of each kind; what is done to one is done to the other."""

    def __init__(self, seed: int):
        from quire_shim.block_pool import BlockPool as Ours
        from vllm.v1.core.block_pool import BlockPool as Theirs

        self.rng = random.Random(seed)
        rng = self.rng
        self.num_blocks = rng.choice([1, 2, 6, 12, 40])
        self.hash_block_size = rng.choice([2, 4])
        self.hash_len = rng.choice([32, 32, 16, 8, None])
        self.num_groups = rng.choice([1, 2])
        self.notes = [Notes() if rng.random() < 0.5 else None for _ in range(2)]
        self.notes[1] = self.notes[0] and Notes()
        caching, events = rng.random() < 0.9, rng.random() < 0.5
        self.pools = [pool(self.num_blocks, caching, self.hash_block_size, events, notes)
                      for pool, notes in zip((Theirs, Ours), self.notes)]
        self.held = []  # block ids, once for each user
        self.last_hash = b"a" * 32

    def both(self, call):
        """The same on both; exceptions of the same type count as the same answer."""
        answers = []
        for pool in self.pools:
            try:
                answers.append(call(pool))
            except (ValueError, AssertionError) as error:
                answers.append(type(error))
        theirs, mine = answers
        assert shown(theirs) == shown(mine)
        return mine

    def step(self) -> None:
        weights = {self.take: 4, self.give: 4, self.hit: 4, self.cache: 5, self.evict: 2,
                   self.write: 1, self.reset: 1, self.null: 1, self.look: 3}
        self.rng.choices(list(weights), list(weights.values()))[0]()
        self.compare()

    def take(self) -> None:
        n = self.rng.randint(0, max(1, self.num_blocks // 3))
        blocks = self.both(lambda pool: pool.get_new_blocks(n))
        if isinstance(blocks, list):
            self.held += [b.block_id for b in blocks]

    def give(self) -> None:
        self.rng.shuffle(self.held)
        n = self.rng.randint(0, len(self.held))
        ids, seen = [], set()
        for block in self.held[:n]:  # vLLM links a block twice that is listed twice
            if block not in seen:
                ids.append(block)
                seen.add(block)
        for block in ids:
            self.held.remove(block)
        self.both(lambda pool: pool.free_blocks(pool.blocks[i] for i in ids))

    def hit(self) -> None:
        groups = self.rng.sample(range(self.num_groups), self.rng.randint(1, self.num_groups))
        found = self.both(lambda pool: pool.get_cached_block(self.last_hash, groups))
        if isinstance(found, list):
            ids = list(dict.fromkeys(b.block_id for b in found))
            self.both(lambda pool: pool.touch([pool.blocks[i] for i in ids]))
            self.held += ids

    def cache(self) -> None:
        rng = self.rng
        scale = rng.choice([1, 1, 1, 2, 3])
        bare = [i for i in dict.fromkeys(self.held)
                if self.pools[0].blocks[i].block_hash is None]
        ids = [0] * rng.randint(0, 2) + bare[:rng.randint(0, 6)]
        rng.shuffle(ids)
        request = made_request(rng, self.hash_len, len(ids) * scale, self.hash_block_size)
        first = rng.randint(0, len(ids))
        group = rng.randrange(self.num_groups)
        if ids:
            at = rng.randrange(len(ids))
            self.last_hash = b"".join(request.block_hashes[at * scale:(at + 1) * scale])
        self.both(lambda pool: pool.cache_full_blocks(
            request=request, blocks=[pool.blocks[i] for i in ids], num_cached_blocks=first,
            num_full_blocks=len(ids), block_size=self.hash_block_size * scale,
            kv_cache_group_id=group))

    def evict(self) -> None:
        ids = {self.rng.randrange(self.num_blocks) for _ in range(self.rng.randint(0, 4))}
        self.both(lambda pool: pool.evict_blocks(ids))

    def write(self) -> None:
        """As a connector does: a hash on a block that was just taken, the map later."""
        from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

        key = make_block_hash_with_group_id(self.last_hash, self.rng.randrange(self.num_groups))
        bare = [i for i in self.held if self.pools[0].blocks[i].block_hash is None]
        if not bare:
            return
        block = bare[0]
        for pool in self.pools:
            pool.blocks[block]._block_hash = key
        self.compare()
        self.both(lambda pool: pool.cached_block_hash_to_block.insert(key, pool.blocks[block]))
        if self.rng.random() < 0.3:
            self.both(lambda pool: pool.cached_block_hash_to_block.pop(key, block))
            self.compare()
            self.both(lambda pool: pool.cached_block_hash_to_block.insert(key, pool.blocks[block]))

    def reset(self) -> None:
        self.both(lambda pool: pool.reset_prefix_cache())

    def null(self) -> None:
        """The null block has a name and a count, and may even be cached."""
        self.both(lambda pool: pool.touch([pool.null_block]))
        if self.rng.random() < 0.5:
            self.both(lambda pool: pool.free_blocks([pool.null_block]))
        key = self.last_hash + bytes(4)
        if self.rng.random() < 0.2 and self.pools[0].null_block.block_hash is None:
            for pool in self.pools:
                pool.null_block.block_hash = key
            self.both(lambda pool: pool.cached_block_hash_to_block.insert(key, pool.null_block))
            self.compare()
            self.both(lambda pool: pool._maybe_evict_cached_block(pool.null_block))

    def look(self) -> None:
        if self.rng.random() < 0.5:
            self.both(lambda pool: pool.take_events())
        key = self.last_hash + bytes(4)
        self.both(lambda pool: pool.cached_block_hash_to_block.get_one_block(key))
        self.both(lambda pool: pool.cached_block_hash_to_block.pop(key, 10**6))

    def compare(self) -> None:
        states = [state(pool) for pool in self.pools]
        for name, theirs in states[0].items():
            assert theirs == states[1][name], name
        if self.notes[0]:
            assert self.notes[0].notes == self.notes[1].notes
            self.notes[0].notes.clear()
            self.notes[1].notes.clear()


def shown(answer):
    """An answer that both sides can be compared by."""
    if isinstance(answer, list):
        return [shown(a) for a in answer]
    if isinstance(answer, dict):
        return {key: shown(value) for key, value in answer.items()}
    return repr(answer)


def walked(queue) -> list[int]:
    ids, at = [], queue.fake_free_list_head.next_free_block
    while at is not queue.fake_free_list_tail:
        assert at.next_free_block.prev_free_block is at
        ids.append(at.block_id)
        at = at.next_free_block
    return ids


def entries(pool) -> dict:
    """Several blocks of a key stay a dictionary in vLLM when all but one are gone."""
    found = {}
    for key, value in pool.cached_block_hash_to_block._cache.items():
        found[key] = list(value) if isinstance(value, dict) else [value.block_id]
    return found


def state(pool) -> dict:
    queue = pool.free_block_queue
    return {"blocks": [repr(b) for b in pool.blocks],
            "null": [b.is_null for b in pool.blocks],
            "free": [b.block_id for b in queue.get_all_free_blocks()],
            "walk": walked(queue), "counts": (queue.num_free_blocks, pool.get_num_free_blocks()),
            "usage": pool.get_usage(), "map": entries(pool),
            "keys": len(pool.cached_block_hash_to_block),
            "events": [repr(e) for e in pool.kv_event_queue], "size": pool.num_gpu_blocks}


def test_lock_step(seed):
    pair = Pair(seed)
    pair.compare()
    for _ in range(60):
        pair.step()


def test_queue_lock_step(seed, ours):
    from vllm.v1.core import kv_cache_utils as theirs

    rng = random.Random(seed)
    sides = []
    order = rng.sample(range(40), rng.randint(0, 40))
    for module in (theirs, ours):
        blocks = [module.KVCacheBlock(i) for i in range(40)]
        sides.append((blocks, module.FreeKVCacheBlockQueue([blocks[i] for i in order])))
    inside = list(order)
    for _ in range(80):
        kind = rng.choice(["popleft", "popleft_n", "remove", "append", "append_n"])
        outside = [i for i in range(40) if i not in inside]
        picked = rng.sample(outside, rng.randint(0, len(outside)))
        victim = rng.choice(inside) if inside else None
        n = rng.randint(0, len(inside))
        for blocks, queue in sides:
            if kind == "popleft" and inside:
                assert queue.popleft() is blocks[inside[0]]
            elif kind == "popleft_n":
                assert [b.block_id for b in queue.popleft_n(n)] == inside[:n]
            elif kind == "remove" and inside:
                queue.remove(blocks[victim])
            elif kind == "append" and picked:
                queue.append(blocks[picked[0]])
            elif kind == "append_n":
                queue.append_n([blocks[i] for i in picked])
        if kind in ("popleft", "popleft_n"):
            inside = inside[1 if kind == "popleft" else n:]
        elif kind == "remove" and inside:
            inside.remove(victim)
        elif kind.startswith("append"):
            inside += picked[:1] if kind == "append" else picked
        for blocks, queue in sides:
            assert [b.block_id for b in queue.get_all_free_blocks()] == inside == walked(queue)
            assert queue.num_free_blocks == len(inside)
        assert [repr(b) for b in sides[0][0]] == [repr(b) for b in sides[1][0]]


def pool_of(ours, n=8, **more):
    return ours.BlockPool(n, True, 4, **more)


def test_one_object_for_a_block(ours):
    pool = pool_of(ours)
    taken = pool.get_new_blocks(3)
    assert [b.block_id for b in taken] == [1, 2, 3]
    assert all(pool.blocks[b.block_id] is b for b in taken)
    assert pool.null_block is pool.blocks[0] and pool.null_block.is_null
    assert taken[0] == pool.blocks[1] and taken[0] != taken[1]
    with pytest.raises(TypeError):
        hash(taken[0])


def test_blocks_outlive_their_pool(ours):
    pool = pool_of(ours)
    block = pool.get_new_blocks(1)[0]
    key = b"k" * 32 + bytes(4)
    block.block_hash = key
    pool.cached_block_hash_to_block.insert(key, block)
    queue, cache = pool.free_block_queue, pool.cached_block_hash_to_block
    head = queue.fake_free_list_head
    pool.touch([block])
    del pool, queue, cache
    gc.collect()
    assert (block.block_id, block.ref_cnt, block.block_hash) == (1, 2, key)
    assert block.next_free_block is None and head.next_free_block is None


def test_views_keep_their_pool(ours):
    queue = pool_of(ours).free_block_queue
    cache = pool_of(ours).cached_block_hash_to_block
    gc.collect()
    assert queue.num_free_blocks == 7 and len(cache) == 0
    assert len(queue.get_all_free_blocks()) == 7


def test_a_cycle_is_collected(ours):
    pool = pool_of(ours)
    pool.itself = pool.free_block_queue
    pool.metrics_collector = pool
    pool.kv_event_queue.append(pool.cached_block_hash_to_block)
    gone = weakref.ref(pool)
    del pool
    gc.collect()
    assert gone() is None


@pytest.fixture
def manager():
    """A KVCacheManager with ten blocks, whose block_pool is a view."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

    kv_cache_manager = pytest.importorskip("quire_shim.kv_cache_manager")
    spec = FullAttentionSpec(block_size=4, num_kv_heads=1, head_size=1, dtype=torch.float32)
    config = KVCacheConfig(num_blocks=11, kv_cache_tensors=[],
                           kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
    return kv_cache_manager.KVCacheManager(config, max_model_len=64, hash_block_size=4)


def test_a_view_on_the_pool_of_a_manager(manager, ours):
    pool = manager.block_pool
    assert isinstance(pool, ours.BlockPool) and pool.num_gpu_blocks == 11
    blocks = pool.get_new_blocks(2)
    assert manager.usage == pool.get_usage() > 0
    key = b"k" * 32 + bytes(4)
    pool.cached_block_hash_to_block.insert(key, blocks[0])
    assert pool.get_cached_block(b"k" * 32, [0]) == [blocks[0]]
    for block, wrong in ((pool.null_block, key), (ours.KVCacheBlock(3), key),
                         (blocks[1], b"short" + bytes(4)), (blocks[0], b"m" * 36)):
        with pytest.raises(ValueError, match="cannot have"):
            pool.cached_block_hash_to_block.insert(wrong, block)
    pool.free_block_queue.num_free_blocks = 0
    assert manager.usage == 1.0
    pool.free_block_queue.num_free_blocks = 8
    pool.free_blocks(blocks)
    assert manager.reset_prefix_cache() and len(pool.cached_block_hash_to_block) == 0
    del manager
    gc.collect()
    assert pool.get_num_free_blocks() == 10 and blocks[0].block_hash is None


def test_withheld_blocks_come_back_in_order(ours):
    pool = pool_of(ours)
    taken = pool.get_new_blocks(2)
    queue = pool.free_block_queue
    queue.num_free_blocks = 0
    assert pool.get_num_free_blocks() == 0
    with pytest.raises(ValueError, match="Cannot get 1 free blocks"):
        pool.get_new_blocks(1)
    pool.free_blocks(taken)
    assert queue.num_free_blocks == 2
    with pytest.raises(ValueError, match="7 gives them back"):
        queue.num_free_blocks = 99
    queue.num_free_blocks = 7
    assert [b.block_id for b in queue.get_all_free_blocks()] == [3, 4, 5, 6, 7, 1, 2]


def test_blocks_taken_from_a_pools_queue(ours):
    pool = pool_of(ours)
    queue = pool.free_block_queue
    first, second = queue.popleft(), queue.popleft_n(1)[0]
    assert (first.ref_cnt, first.next_free_block) == (0, None)
    with pytest.raises(RuntimeError, match="not in the free queue"):
        pool.touch([first])
    with pytest.raises(RuntimeError, match="not in the free queue"):
        pool.free_blocks([first])
    first.ref_cnt += 1
    pool.free_blocks([first])
    queue.append(second)
    assert [b.block_id for b in queue.get_all_free_blocks()] == [3, 4, 5, 6, 7, 1, 2]
    with pytest.raises(ValueError, match="already or has users"):
        queue.append(second)
    with pytest.raises(ValueError, match="touch"):
        second.ref_cnt = 1
    queue.remove(second)
    with pytest.raises(RuntimeError, match="not in this free queue"):
        queue.remove(second)


def test_wrong_arguments(ours):
    pool, other = pool_of(ours), pool_of(ours)
    block = pool.get_new_blocks(1)[0]
    for wrong in (None, 3, "x", [None], [3], [object()]):
        for call in (pool.touch, pool.free_blocks, pool.free_block_queue.append_n):
            with pytest.raises(TypeError):
                call(wrong)
    for call in (pool.touch, pool.free_blocks):
        with pytest.raises(ValueError, match="not a block of this pool"):
            call([block, other.blocks[1]])
        with pytest.raises(ValueError, match="not a block of this pool"):
            call([block, pool.free_block_queue.fake_free_list_head])
    with pytest.raises(ValueError, match="not a block of this pool"):
        pool.free_blocks([ours.KVCacheBlock(1, ref_cnt=1)])
    with pytest.raises(RuntimeError, match="DOUBLE_FREE"):
        pool.free_blocks([block, block])
    assert block.ref_cnt == 1
    for wrong in (None, "x", 1.5):
        with pytest.raises(TypeError):
            pool.get_new_blocks(wrong)
        with pytest.raises(TypeError):
            pool.evict_blocks([wrong])
        with pytest.raises(TypeError):
            block.ref_cnt = wrong
    for wrong in (-1, 8, 10**30):
        with pytest.raises((AssertionError, OverflowError)):
            pool.evict_blocks({wrong})
    with pytest.raises(ValueError, match="Cannot get -1"):
        pool.get_new_blocks(-1)
    for wrong in ({"num_gpu_blocks": 0}, {"hash_block_size": 0}, {"num_gpu_blocks": 2**40}):
        with pytest.raises(ValueError, match="must be from 1"):
            ours.BlockPool(**{"num_gpu_blocks": 4, "enable_caching": True,
                              "hash_block_size": 4} | wrong)
    with pytest.raises(TypeError):
        ours.BlockPool("many", True, 4)
    with pytest.raises(RuntimeError, match="initialised already"):
        pool.__init__(4, True, 4)
    with pytest.raises(RuntimeError, match="closed, or was never"):
        ours.BlockPool.__new__(ours.BlockPool).get_new_blocks(1)


def test_wrong_hashes(ours):
    pool, other = pool_of(ours), pool_of(ours)
    blocks = pool.get_new_blocks(2)
    cache = pool.cached_block_hash_to_block

    def full(hashes, **more):
        request = SimpleNamespace(block_hashes=hashes)
        pool.cache_full_blocks(**{
            "request": request, "blocks": blocks, "num_cached_blocks": 0, "num_full_blocks": 2,
            "block_size": 4, "kv_cache_group_id": 0} | more)

    with pytest.raises(AssertionError, match="not enough"):
        full([b"a" * 32])
    with pytest.raises(TypeError):
        full([b"a" * 32, "b" * 32])
    with pytest.raises(AssertionError, match="multiple"):
        full([b"a" * 32] * 4, block_size=6)
    with pytest.raises(ValueError, match="only 2 are given"):
        full([b"a" * 32] * 4, num_full_blocks=3)
    with pytest.raises(ValueError, match="out of range"):
        full([b"a" * 32] * 4, kv_cache_group_id=70000)
    with pytest.raises(ValueError, match="not a block of this pool"):
        full([b"a" * 32] * 4, blocks=other.blocks[1:3])
    with pytest.raises(AssertionError, match="twice"):
        full([b"a" * 32] * 4, blocks=[blocks[0]] * 2)
    assert len(cache) == 0
    full([b"a" * 32, b"b" * 32])
    with pytest.raises(AssertionError, match="already"):
        full([b"a" * 32, b"b" * 32])
    with pytest.raises(AssertionError, match="already"):
        blocks[0].block_hash = b"c" * 36
    with pytest.raises(ValueError, match="evict it first"):
        blocks[0]._block_hash = b"c" * 36
    for wrong in (None, "x", 7):
        with pytest.raises(TypeError):
            cache.get_one_block(wrong)
        with pytest.raises(TypeError):
            cache.insert(wrong, blocks[0])
        with pytest.raises(TypeError):
            pool.get_cached_block(wrong, [0])
    with pytest.raises(ValueError, match="not a block of this pool"):
        cache.insert(b"k" * 36, other.blocks[1])
    with pytest.raises(TypeError):
        cache.insert(b"k" * 36, None)


def test_hashes_of_different_lengths_never_meet(ours):
    """What is digested is not found under its digest, nor under a hash with the same bytes."""
    pool = pool_of(ours, 16)
    cache = pool.cached_block_hash_to_block
    keys = [b"", b"a", b"a" * 15, b"a" * 16, b"a" * 32, b"a" * 48, b"a" * 64, b"a" * 1000]
    blocks = pool.get_new_blocks(len(keys))
    for key, block in zip(keys, blocks):
        cache.insert(key + bytes(4), block)
    assert len(cache) == len(keys)
    digest = (1).to_bytes(8, sys.byteorder) + bytes(8) + hashlib.sha256(b"a").digest()
    assert pool.get_cached_block(digest, [0]) is None
    for key, block in zip(keys, blocks):
        assert cache.get_one_block(key + bytes(4)) is block
        assert pool.get_cached_block(key, [0]) == [block]
        assert pool.get_cached_block(key, [1]) is None
        assert block.block_hash == key + bytes(4)


def test_exceptions_of_others(ours):
    class Failing(Notes):
        def on_block_allocated(self, block):
            raise LookupError("not today")

    pool = pool_of(ours, metrics_collector=Failing())
    with pytest.raises(LookupError, match="not today"):
        pool.get_new_blocks(1)
    pool.metrics_collector = None
    assert [b.block_id for b in pool.get_new_blocks(1)] == [2]
    pool = pool_of(ours, enable_kv_cache_events=True)
    block = pool.get_new_blocks(1)[0]
    pool.kv_event_queue = None
    pool.cached_block_hash_to_block.insert(b"k" * 32 + bytes(4), block)
    with pytest.raises(TypeError, match="must be a list"):
        pool.evict_blocks([1])


def test_no_growth(ours):
    """Pools, blocks, keys, events and exceptions come and go, and no memory stays behind."""
    hashes = [bytes([i]) * (20 + i % 2) for i in range(16)]
    request = made_request(random.Random(0), 20, 16, 4)
    request.block_hashes = hashes
    pool = pool_of(ours, 64, enable_kv_cache_events=True, metrics_collector=Notes())

    def refused(call, *given):
        with pytest.raises((ValueError, TypeError, AssertionError, RuntimeError)):
            call(*given)

    def turn():
        blocks = pool.get_new_blocks(16)
        pool.cache_full_blocks(request, blocks, 0, 16, 4, 0)
        refused(pool.cache_full_blocks, request, blocks, 0, 16, 4, 0)
        cache, queue = pool.cached_block_hash_to_block, pool.free_block_queue
        cache._cache.pop(hashes[3] + bytes(4))
        cache.insert(hashes[3] + bytes(4), pool.blocks[blocks[3].block_id])
        cache.insert(hashes[4] + bytes(4), pool.null_block)
        pool.null_block._block_hash = hashes[4] + bytes(4)
        pool._maybe_evict_cached_block(pool.null_block)
        assert dict(cache._cache) and repr(blocks[0]) and blocks[0] != blocks[1]
        for wrong in (None, [blocks[0], 3], [ours.KVCacheBlock(1, ref_cnt=1)]):
            refused(pool.touch, wrong)
            refused(pool.free_blocks, wrong)
            refused(queue.append_n, wrong)
        refused(pool.get_new_blocks, 1000)
        refused(pool.evict_blocks, {1000})
        pool.get_cached_block(hashes[0], [0, 1])
        pool.touch(blocks)
        pool.free_blocks(blocks * 2)
        pool.evict_blocks({b.block_id for b in blocks[:8]})
        queue.append(queue.popleft())
        queue.num_free_blocks = 0
        queue.num_free_blocks = 63
        pool.reset_prefix_cache()
        pool.take_events()
        pool.metrics_collector.notes.clear()
        other = pool_of(ours, 9)
        kept = other.get_new_blocks(2)
        kept[0].block_hash = b"x" * 36
        ours.FreeKVCacheBlockQueue([ours.KVCacheBlock(i) for i in range(40)]).popleft_n(3)

    counts = []
    for _ in range(4):
        for _ in range(100):
            turn()
        gc.collect()
        counts.append(sys.getallocatedblocks())
    assert min(b - a for a, b in zip(counts, counts[1:])) < 50, counts
