"""Memory does not grow: 100,000 requests through the scheduler, and every kind of failing call."""

import gc
import resource
import tracemalloc
from pathlib import Path

import pytest

import quire


def resident_bytes():
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        pytest.skip("needs /proc/self/statm")


def serve(sched, hasher, first, num):
    """Requests in batches of 50, each with a prompt of 20 tokens and 2 tokens of output."""
    for start in range(first, first + num, 50):
        for i in range(start, start + 50):
            prompt = [i % 7, *range(19)]
            sched.add(str(i), prompt, max_tokens=2, stop_token_ids=[99], cache_salt="s")
            hasher.hash(prompt)
        while sched.num_unfinished:
            step = sched.schedule()
            step.blocks(0), step.snapshot
            out = sched.update(step, [[5]] * len(step))
            out.tokens.tolist(), out.stats
    sched.take_events()


def test_hundred_thousand_requests():
    sched = quire.Scheduler(num_gpu_blocks=500, max_model_len=64, max_num_seqs=64, log_stats=True,
                            snapshots=True, event_log_bytes=1 << 20, seed="0")
    hasher = quire.Hasher(seed="0")
    serve(sched, hasher, 0, 20_000)
    gc.collect()
    before = resident_bytes()
    serve(sched, hasher, 20_000, 70_000)
    gc.collect()
    assert resident_bytes() - before < 2 << 20
    tracemalloc.start()
    serve(sched, hasher, 90_000, 2_000)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    serve(sched, hasher, 92_000, 8_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    assert grown < 16_384
    sched.check()


def failing_calls():
    pool = quire.Pool(4, events=True)
    sched = quire.Scheduler(num_gpu_blocks=20, max_model_len=64, seed="0")
    cache = quire.Cache(num_gpu_blocks=20, max_model_len=64)
    hasher = quire.Hasher(seed="0")
    req = sched.add("a", [1])
    step = sched.schedule()
    layer = {"kind": "full", "block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": "float16"}
    return [
        lambda: pool.free([1] * 100 + ["x"]),
        lambda: pool.take(9),
        lambda: pool.cache([1], [b"x" * 32, b"y"]),
        lambda: quire.Pool(0),
        lambda: sched.add("a", [1], lora_name="x", mm_inputs=[("i", 0, 1, 1, b"\1")]),
        lambda: sched.add("b", [1], mm_inputs=[("i", 0, 1, 1, b"\1\1")]),
        lambda: sched.add("b", [1], no_such=3),
        lambda: sched.update(step, [[1], [2]]),
        lambda: sched.update(step, [[1]], num_sampled=[5], has_pooled=b"\0", invalid_blocks="x"),
        lambda: sched.continue_request(req, [1]),
        lambda: sched.update_drafts([req], [[1], ["x"]]),
        lambda: quire.Scheduler(num_gpu_blocks=20, max_model_len=64, groups=[layer, layer], zzz=1),
        lambda: quire.Scheduler.restore(b"no image", num_gpu_blocks=20, max_model_len=64),
        lambda: quire.Plan([layer] * 3, 100, max_model_len=1000),
        lambda: quire.Plan([layer, {"kind": "none"}], 100, max_model_len=1000),
        lambda: quire.model_layers({"model_type": "llama", "num_hidden_layers": 3}),
        lambda: cache.allocate_slots(0, 10, 10, new_computed_blocks=[["x"]]),
        lambda: cache.allocate_slots(7, 10, 10, hashes=[b"x" * 32]),
        lambda: hasher.hash([2**40], lora_name="x", mm_features=[("a", 1, 2)]),
        lambda: hasher.hash([1], mm_features=[("a", 1)]),
        lambda: hasher.hash_block(None, [1], [("lora_name", "x"), ("zzz", "y")]),
    ]


def fail_often(calls, times):
    for _ in range(times):
        for call in calls:
            with pytest.raises(Exception):
                call()


def test_failing_calls_leave_nothing_behind():
    calls = failing_calls()
    tracemalloc.start()
    fail_often(calls, 20)
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    fail_often(calls, 200)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4096


def test_handles_give_their_memory_back():
    def make():
        for _ in range(20):
            quire.Scheduler(num_gpu_blocks=5000, max_model_len=512)
            quire.Pool(50_000).take(1)
            quire.Cache(num_gpu_blocks=5000, max_model_len=512)

    make()
    before = resident_bytes()
    for _ in range(5):
        make()
    assert resident_bytes() - before < 8 << 20
