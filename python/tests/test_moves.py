"""Requests that are forked, moved and preempted by hand, and what can be asked of a cache."""
import pytest

import quire


def hashes(n, salt=0):
    return [bytes([salt, i]) * 16 for i in range(n)]


def cache_of(**given):
    return quire.Cache(**{"num_gpu_blocks": 1025, "max_model_len": 512, "num_host_blocks": 2048,
                          **given})


# -- the cache

def test_out_and_in():
    """A request of 100 tokens: 1024, 1017, 1024 and 1017 free blocks."""
    cache = cache_of()

    def free_blocks():
        usage = cache.usage()
        return usage["empty"] + usage["cached"]

    assert free_blocks() == 1024
    seq, _ = cache.allocate_slots(0, 100, 100, hashes=hashes(6))
    assert free_blocks() == 1017 and cache.location(seq) == "device"
    assert cache.totals()["num_table_blocks"] == 7
    seq, moves = cache.move_out(seq, 100)
    assert free_blocks() == 1024 and cache.location(seq) == "host"
    assert moves.tolist() == [n for i in range(7) for n in (i + 1, i, 0)]
    assert cache.totals() == {"num_seqs": 0, "num_table_blocks": 0, "num_moved_out": 1,
                              "num_host_blocks": 7, "num_free_host_blocks": 2041, "num_copies": 0,
                              "watermark_blocks": 0}
    assert cache.block(seq, 6) == {"location": "host", "block": 6, "prev": 5, "ref_cnt": 1,
                                   "num_holds": 0, "has_key": False, "num_tokens": 4,
                                   "block_size": 16}
    assert cache.evict_cached(4) == 4 and cache.evict_cached(100) == 2
    assert cache.can_move_in(seq, 100, 100, hashes(6))
    seq, moves = cache.move_in(seq, 100, 100, hashes(6))
    assert free_blocks() == 1017 and cache.location(seq) == "device" and len(moves) == 21
    assert cache.location(0) == "none"
    cache.free(seq)
    assert free_blocks() == 1024
    cache.check()


def test_moves_that_are_refused():
    cache = cache_of(num_gpu_blocks=4, num_host_blocks=2)
    seq, _ = cache.allocate_slots(0, 48, 48, hashes=hashes(3))
    with pytest.raises(quire.FULL):
        cache.move_out(seq, 48)
    with pytest.raises(quire.MISS):
        cache.move_out(seq, 0)
    seq, _ = cache.move_out(seq, 20)
    with pytest.raises(quire.E_UNKNOWN_SEQ):
        cache.blocks(seq)
    other, _ = cache.allocate_slots(0, 40, 40, hashes=hashes(2, 9))
    assert not cache.can_move_in(seq, 48, 20, hashes(3))
    with pytest.raises(quire.NO_SPACE):
        cache.move_in(seq, 48, 20, hashes(3))
    with pytest.raises(quire.E_UNKNOWN_SEQ):
        cache.can_move_in(other, 40, 40)
    with pytest.raises(quire.BUSY):
        cache.reset_prefix_cache()
    with pytest.raises(quire.E_DISABLED):
        cache_of(num_host_blocks=0).move_out(1, 1)
    with pytest.raises(quire.E_CONFIG, match="num_host_blocks is 3"):
        cache_of(num_host_blocks=3, profile="vllm-0.20")
    cache.close()
    for call, given in ((cache.move_out, (1, 1)), (cache.move_in, (1, 1, 1)),
                        (cache.can_move_in, (1, 1, 1)), (cache.location, (1,)),
                        (cache.totals, ()), (cache.pressure, ()), (cache.evict_cached, (1,)),
                        (cache.copy_on_write, (1, 0, 1)), (cache.find_token, (1, 0)),
                        (cache.block, (1, 0)), (cache.can_allocate, (0, 1, 1))):
        with pytest.raises(quire.Closed):
            call(*given)


def test_questions():
    cache = cache_of(num_gpu_blocks=5, watermark=0.3, admit_below=0.4, preempt_above=0.7)
    assert cache.can_allocate(0, 64, 64, hashes=hashes(4))
    assert not cache.can_allocate(0, 65, 65, hashes=hashes(4))
    assert cache.pressure() == {"level": 0.0, "should_admit": True, "should_preempt": False}
    seq, _ = cache.allocate_slots(0, 40, 40, hashes=hashes(2))
    assert cache.pressure() == {"level": 0.75, "should_admit": False, "should_preempt": True}
    assert not cache.can_allocate(0, 5, 5)  # the watermark
    assert cache.can_allocate(seq, 60, 20, num_computed_tokens=40)
    assert not cache.can_allocate(seq, 65, 25, num_computed_tokens=40)
    with pytest.raises(quire.E_ARGUMENT):
        cache.can_allocate(seq, 40, 0)
    assert cache.find_token(seq, 37) == (3, 2, 5)
    with pytest.raises(quire.E_RANGE):
        cache.find_token(seq, 48)
    assert cache.block(seq, 1, num_computed_tokens=40) == {
        "location": "device", "block": 2, "prev": 1, "ref_cnt": 1, "num_holds": 0, "has_key": True,
        "num_tokens": 16, "block_size": 16}
    assert cache.block(seq, 0)["prev"] is None
    assert cache.totals()["watermark_blocks"] == 1


def test_copy_on_write():
    cache = cache_of(max_copies=4)
    parent, _ = cache.allocate_slots(0, 20, 20, hashes=hashes(1))
    child = cache.fork(parent)
    cache.copy_on_write(child, 17, 1)
    assert cache.totals()["num_copies"] == 1
    assert cache.take_copies().tolist() == [2, 3, 0]
    with pytest.raises(quire.E_RANGE):
        cache.copy_on_write(child, 512, 1)


def test_a_pool_evicts_so_many():
    pool = quire.Pool(6)
    blocks = pool.take(3)
    pool.cache(blocks, hashes(3))
    pool.free(blocks)
    assert pool.evict_cached(2) == 2 and pool.draw() == "NEECEE"
    assert pool.evict_cached(2) == 1


def test_costs():
    layer = {"kind": "full", "block_size": 16, "num_kv_heads": 8, "head_size": 128,
             "dtype": "float16"}
    assert quire.cost_block_bytes([layer] * 80) == 5_242_880
    assert quire.cost_num_blocks(43_000_000_000, 5_242_880) == 8201
    assert quire.cost_total_bytes(8201, 5_242_880) == 8201 * 5_242_880
    assert quire.cost_blocks_for_tokens(100, 16) == 7
    assert quire.cost_token_capacity(8201, 16) == 131_216
    assert quire.cost_watermark_blocks(8201, 0.01) == 82
    assert quire.cost_fragmentation(1, 16) == pytest.approx(15 / 16)
    assert quire.cost_transfer_seconds(28_000_000_000, 28e9) == pytest.approx(1.0)
    assert quire.cost_recompute_seconds(4096, 4000.0) == pytest.approx(1.024)
    with pytest.raises(OverflowError):
        quire.cost_blocks_for_tokens(1, 2**32)


# -- the scheduler

def sched_of(**given):
    return quire.Scheduler(**{"num_gpu_blocks": 20, "max_model_len": 256, "block_size": 4,
                              "snapshots": True, **given})


def run(sched):
    step = sched.schedule()
    done = [c + t for c, t in zip(step.num_computed_tokens.tolist(), step.num_tokens.tolist())]
    prompts = [sched.info(req)["num_prompt_tokens"] for req in step.reqs.tolist()]
    sched.update(step, [[7] if d >= p else [] for d, p in zip(done, prompts)])
    return step


def test_offload_and_resume():
    sched = sched_of(num_swap_blocks=8, swap_block_ns=1, recompute_token_ns=1000)
    req = sched.add("a", list(range(10)), max_tokens=20)
    run(sched)
    assert sched.info(req)["location"] == "device"
    sched.offload(req)
    info = sched.info(req)
    assert (info["location"], info["is_offloaded"], info["status"]) == ("host", True, "preempted")
    step = run(sched)
    assert step.num_reqs == 0 and len(step.swap_out_blocks) == 3
    sched.resume(req)
    step = run(sched)
    assert step.reqs.tolist() == [req] and len(step.swap_in_blocks) >= 1
    assert sched.info(req)["location"] == "device"
    with pytest.raises(quire.MISS):
        sched.resume(req)
    sched.preempt(req, "recompute")
    assert sched.info(req)["location"] == "none"
    run(sched)
    sched.set_swap_costs(10**6, 1)  # moving never pays
    sched.preempt(req)
    assert sched.info(req)["num_swapped_tokens"] == 0
    with pytest.raises(ValueError):
        sched.preempt(req, "no such mode")
    with pytest.raises(quire.E_RANGE):
        sched.set_swap_costs(2**32, 1)
    other = sched_of()
    with pytest.raises(quire.E_DISABLED):
        other.offload(other.add("b", [1]))
    sched.check()


def test_fork_and_copies_of_a_step():
    sched = sched_of(max_copies=4)
    parent = sched.add("a", list(range(10)), max_tokens=20)
    run(sched)
    child = sched.fork(parent, "b", max_tokens=20)
    assert sched.blocks(child) == sched.blocks(parent)
    step = run(sched)
    assert step.reqs.tolist() == [parent, child]
    copies = step.copies.tolist()
    assert len(copies) == 5 and copies[0] != copies[1] and copies[2] == 0 and copies[4] == 2
    beam = sched.fork(parent, "c", [99], max_tokens=20)
    assert sched.tokens(beam).tolist() == [*range(10), 7, 99]
    with pytest.raises(quire.E_DUPLICATE):
        sched.fork(parent, "b", max_tokens=20)
    with pytest.raises(quire.E_DISABLED):
        other = sched_of()
        other.fork(other.add("a", [1, 2]), "b")
    sched.check()


def test_pressure_and_victims():
    sched = sched_of(use_pressure=True, victim="lru", admit_below=0.3, preempt_above=0.6,
                     watermark=0.2)
    for name in "abcdef":
        sched.add(name, list(range(8)), max_tokens=30)
    step = run(sched)
    assert 1 <= step.num_reqs < 6
    assert step.snapshot["num_watermark_blocks"] == 8  # above preempt_above: more than 0.2 x 20
    assert sched.pressure()["level"] <= 0.6
    for setting in ({"use_pressure": True}, {"victim": "lru"}, {"max_copies": 2}):
        with pytest.raises(quire.E_CONFIG):
            sched_of(profile="vllm-0.20", **setting)


def test_pins_are_dropped():
    sched = sched_of(max_pins=2)
    req = sched.add("a", list(range(8)), max_tokens=1)
    sched.pin(req, 100)
    run(sched)
    assert run(sched).snapshot["num_pinned"] == 1
    sched.drop_pins()
    assert run(sched).snapshot["num_pinned"] == 0
