"""Scheduler, Step and Outputs."""

import array
import gc
import threading

import pytest

import quire


def make(**config):
    settings = {"num_gpu_blocks": 100, "max_model_len": 256, "max_num_seqs": 8, "seed": "0"}
    return quire.Scheduler(**{**settings, **config})


def run(sched, token=7):
    """Until nobody is left: what came out, by request."""
    out = {}
    while sched.num_unfinished:
        step = sched.schedule()
        outputs = sched.update(step, [[token]] * len(step))
        for i, req in enumerate(outputs.reqs):
            out.setdefault(req, []).extend(outputs.tokens_of(i))
    return out


def test_one_request():
    sched = make(snapshots=True, log_stats=True)
    req = sched.add("a", list(range(40)), max_tokens=3)
    assert sched.find("a") == req == sched.find(b"a") and sched.find("b") is None
    step = sched.schedule()
    assert (step.step, len(step), step.num_reqs, step.total_tokens) == (1, 1, 1, 40)
    assert step.reqs.tolist() == [req] and step.kinds.tolist() == [1]
    assert step.num_tokens.tolist() == [40] and step.num_computed_tokens.tolist() == [0]
    assert step.blocks(0) == [[1, 2, 3]] == sched.blocks(req)
    assert step.block_start.tolist() == [0, 3] and step.block_ids.tolist() == [1, 2, 3]
    assert step.snapshot["num_running"] == 1 and step.snapshot["blocks"]["active"] == 3
    info = sched.info(req)
    assert info["status"] == "running" and info["id"] == b"a" and info["num_prompt_tokens"] == 40
    outputs = sched.update(step, array.array("i", [7]))
    assert outputs.reqs.tolist() == [req] and outputs.tokens.tolist() == [7]
    assert outputs.has_prefill_stats.tolist() == [1] and outputs.num_prompt_tokens.tolist() == [40]
    assert outputs.stats["num_running"] == 1 and outputs.stats["prefix"]["queries"] == 40
    assert sched.tokens(req).tolist() == [*range(40), 7] and sched.tokens(req, 39, 2).tolist() == [39, 7]
    assert run(sched) == {req: [7, 7]}
    with pytest.raises(quire.E_UNKNOWN_REQ):
        sched.info(req)
    step = sched.schedule()
    assert len(step) == 0 and step.finished.tolist() == [req] and step.reqs.tolist() == []
    sched.update(step)
    sched.check()


def test_second_prompt_finds_the_first():
    sched = make(event_log_bytes=1 << 16)
    sched.add("a", range(100), max_tokens=2)
    run(sched)
    assert [e["kind"] for e in sched.take_events()] == ["stored"]
    req = sched.add("b", range(100), max_tokens=1)
    step = sched.schedule()
    assert step.num_computed_tokens.tolist() == [96] and step.num_tokens.tolist() == [4]
    assert sched.update(step, [[5]]).num_local_cached.tolist() == [96]
    sched.reset_prefix_cache()
    assert sched.usage()["cached"] == 0 and sched.find("b") is None and req


def test_stop_rules_and_finish():
    sched = make()
    a = sched.add("a", [1, 2], eos_token_id=9)
    b = sched.add("b", [1, 2], stop_token_ids=[5])
    c = sched.add("c", [1, 2])
    out = sched.update(sched.schedule(), [[9], [5], [4]])
    assert out.finish_reasons.tolist() == [1, 1, 0]
    assert out.has_stop_reason.tolist() == [0, 1, 0] and out.stop_reason.tolist()[1] == 5
    assert sched.finish([]) == 0 and sched.finish([a, b, c, 12345]) == 1
    sched.add("d", [1])
    for missing in (lambda: sched.finish(), lambda: sched.finish(None)):
        with pytest.raises(TypeError, match="reqs"):
            missing()
    assert sched.finish([], status="finished_stopped") == 0 and sched.num_unfinished == 1
    assert sched.finish_all(status="finished_stopped") == 1 and sched.num_unfinished == 0
    for finish in (lambda: sched.finish([], status="running"),
                   lambda: sched.finish_all(status="running")):
        with pytest.raises(quire.E_ARGUMENT):
            finish()


def test_queues_and_priority():
    sched = make(policy="priority", max_num_seqs=1)
    low = sched.add("low", [1], priority=5)
    high = sched.add("high", [1], priority=-5)
    assert sched.queue("waiting").tolist() == [high, low]
    sched.update(sched.schedule(), [[1]])
    assert sched.queue("running").tolist() == [high] and sched.num_running == 1
    assert sched.queue("skipped").tolist() == [] and sched.num_waiting == 1
    sched.pause = "paused_all"
    assert sched.pause == "paused_all" and len(sched.schedule()) == 0
    with pytest.raises(ValueError):
        sched.pause = "perhaps"


def test_drafts():
    sched = make(num_speculative_tokens=3)
    a = sched.add("a", [1, 2, 3])
    b = sched.add("b", [1, 2, 3])
    sched.update(sched.schedule(), [[4], [4]])
    sched.update_drafts([a, b], [[10, 11, 12], [20]])
    step = sched.schedule()
    assert step.drafts.tolist() == [10, 11, 12, 20] and step.draft_start.tolist() == [0, 3, 4]
    out = sched.update(step, [[10, 11, 5], [6]])
    assert [out.tokens_of(i) for i in range(2)] == [[10, 11, 5], [6]]
    sched.update_drafts(array.array("Q", [a]), array.array("i", [1, 2]), [1], stride=2)
    assert sched.schedule().drafts.tolist() == [1]
    with pytest.raises(ValueError):
        sched.update_drafts([a, b], [[1]])
    with pytest.raises(ValueError):
        sched.update_drafts([a], [1, 2], [3], stride=2)


def test_async_steps_in_flight():
    sched = make(async_scheduling=True)
    sched.add("a", [1, 2, 3])
    first, second = sched.schedule(), sched.schedule()
    with pytest.raises(quire.FULL):
        sched.schedule()
    with pytest.raises(quire.E_ARGUMENT):
        sched.update(second, [[1]])
    with pytest.raises(quire.BUSY):
        sched.save()
    assert sched.update(first, [[1]]).tokens.tolist() == [1]
    assert sched.update(second.step, [[2]]).tokens.tolist() == [2]
    with pytest.raises(quire.E_ARGUMENT):
        sched.update(second, [[2]])


def test_session():
    sched = make()
    req = sched.add("s", [1, 2, 3], max_tokens=1, is_resumable=True)
    sched.update(sched.schedule(), [[4]])
    assert sched.info(req)["status"] == "waiting_for_streaming"
    sched.continue_request(req, [5, 6], max_tokens=1)
    sched.continue_request(req)
    run(sched)
    assert sched.find("s") is None


def test_image_of_the_state():
    config = {"num_gpu_blocks": 50, "max_model_len": 128, "seed": "1"}
    sched = quire.Scheduler(**config)
    for i in range(5):
        sched.add(f"r{i}", range(i, i + 40), max_tokens=6)
    sched.update(sched.schedule(), [[1]] * 5)
    image = sched.save()
    copy = quire.Scheduler.restore(image, **config)
    assert copy.save() == image and run(copy) == run(sched)
    with pytest.raises(quire.E_CONFIG):
        quire.Scheduler.restore(image, **{**config, "num_gpu_blocks": 51})
    with pytest.raises(quire.E_CORRUPT):
        quire.Scheduler.restore(image[:-1], **config)


def test_flags_of_a_restored_request_do_not_lie_in_the_image():
    config = {"num_gpu_blocks": 50, "max_model_len": 128, "seed": "1",
              "encoder_compute_budget": 64, "encoder_cache_size": 64}
    sched = quire.Scheduler(**config)
    sched.add("mm", range(100), max_tokens=2, mm_inputs=[("img", 4, 60, 1, b"\0" * 59 + b"\1")])
    image = bytearray(sched.save())
    copy = quire.Scheduler.restore(image, **config)
    image[:] = bytes(len(image))
    del image
    gc.collect()
    step = copy.schedule()
    assert step.encoder_start.tolist() == [0, 1]


def test_flags_of_images_are_copied():
    sched = make(encoder_compute_budget=64, encoder_cache_size=64)
    flags = bytearray([1, 0] * 5)
    req = sched.add("mm", range(40), max_tokens=2, mm_inputs=[("img", 4, 10, 5, flags)])
    flags[:] = bytes(10)
    gc.collect()
    step = sched.schedule()
    assert step.encoder_inputs.tolist() == [0] and step.encoder_start.tolist() == [0, 1]
    sched.update(step, [[1]])
    assert list(run(sched)) == [req]
    for _ in range(2):
        sched.update(sched.schedule())
    with pytest.raises(ValueError):
        sched.add("x", range(40), mm_inputs=[("img", 4, 10, 5, b"\1")])


def test_steps_stay_valid():
    sched = make()
    sched.add("a", range(64))
    step = sched.schedule()
    view = step.block_ids
    sched.update(step, [[1]])
    sched.close()
    del step, sched
    gc.collect()
    assert view.tolist() == [1, 2, 3, 4] and view.readonly


def test_two_groups():
    layer = {"block_size": 16, "num_kv_heads": 2, "head_size": 64, "dtype": "bfloat16"}
    sched = make(groups=[{"kind": "full", **layer},
                         {"kind": "sliding_window", "sliding_window": 32, **layer}])
    sched.add("a", range(40))
    step = sched.schedule()
    assert step.num_groups == 2 and step.blocks(0) == [[1, 2, 3], [4, 5, 6]]


def test_context_parallelism():
    sched = make(decode_context_parallel_size=2)
    sched.add("a", range(40))
    assert sched.schedule().blocks(0) == [[1, 2]]


@pytest.mark.parametrize("algo", sorted(quire.HASH_ALGORITHMS))
def test_every_hash_algorithm(algo):
    sched = make(prefix_caching_hash_algo=algo)
    for name in "ab":
        sched.add(name, range(33), max_tokens=1)
        step = sched.schedule()
        sched.update(step, [[1]])
    assert step.num_computed_tokens.tolist() == [32]


def test_misuse():
    with pytest.raises(TypeError, match="no_such"):
        make(no_such=1)
    with pytest.raises(OverflowError):
        make(max_num_seqs=-1)
    with pytest.raises(ValueError):
        make(policy="lifo")
    with pytest.raises(TypeError):
        make(plan=3)
    with pytest.raises(quire.E_CONFIG, match=r"invalid num_gpu_blocks 0 \(expected 1\.\."):
        quire.Scheduler()
    for settings, sentence in (
            ({"max_model_len": 0}, r"invalid max_model_len 0 \(expected 1\.\.1073741824\)"),
            ({"num_gpu_blocks": 2**32 - 1}, "invalid num_gpu_blocks 4294967295"),
            ({"num_speculative_tokens": 2000}, "invalid num_speculative_tokens 2000"),
            ({"decode_context_parallel_size": 2000}, "invalid decode_context_parallel_size 2000"),
            ({"max_num_seqs": 5000}, r"invalid max_num_seqs 5000 \(expected 0\.\.4096\)"),
            ({"watermark": 2.0}, r"invalid watermark 2 \(expected 0\.\.1\)"),
            ({"block_size": 0}, "invalid block_size 0"),
            ({"lookahead": 5000}, "invalid lookahead 5000"),
            ({"max_pins": 5, "profile": "vllm-0.20"}, "max_pins is 5")):
        with pytest.raises(quire.E_CONFIG, match=sentence):
            make(**settings)
    with pytest.raises(quire.E_UNKNOWN_NAME, match="md5"):
        make(prefix_caching_hash_algo="md5")
    with pytest.raises(quire.E_CONFIG, match="invalid num_blocks 0"):
        quire.Pool(0)
    with pytest.raises(quire.E_CONFIG, match="invalid num_gpu_blocks 0"):
        quire.Cache()
    with pytest.raises(quire.E_CONFIG, match="invalid block_size 70000"):
        quire.Hasher(block_size=70000)
    sched = make()
    with pytest.raises(TypeError, match="no_such"):
        sched.add("a", [1], no_such=1)
    with pytest.raises(quire.E_RANGE):
        sched.add("a", [])
    req = sched.add("a", [1])
    with pytest.raises(quire.E_DUPLICATE):
        sched.add("a", [1])
    with pytest.raises(quire.E_ARGUMENT):
        sched.continue_request(req, [1])
    step = sched.schedule()
    for wrong in ([], [[1], [2]], [1, 2], None):
        with pytest.raises(ValueError):
            sched.update(step, wrong)
    for kind in ({"num_sampled": [2]}, {"num_sampled": [1, 1]}, {"has_pooled": b"\0\0"}):
        with pytest.raises(ValueError):
            sched.update(step, [1], **kind)
    with pytest.raises(TypeError):
        sched.update("1", [[1]])
    with pytest.raises(OverflowError):
        sched.update(step, [[2**31]])
    with pytest.raises(IndexError):
        step.blocks(1)
    with pytest.raises(TypeError):
        quire.Step()
    sched.update(step, [[1]])
    sched.close()
    for call in (sched.schedule, sched.save, sched.check, sched.usage, sched.take_events,
                 lambda: sched.add("b", [1]), lambda: sched.update(step, [[1]]),
                 lambda: sched.num_running, lambda: sched.queue("running"),
                 lambda: sched.finish([req]), lambda: sched.info(req), lambda: sched.find("a")):
        with pytest.raises(quire.Closed):
            call()


def test_two_threads_take_turns():
    sched = make(num_gpu_blocks=2000, max_requests=4096, max_num_seqs=64)

    def add(first):
        for i in range(500):
            sched.add(f"{first}-{i}", range(20), max_tokens=2)

    threads = [threading.Thread(target=add, args=(t,)) for t in range(3)]
    for t in threads:
        t.start()
    done = {}
    while any(t.is_alive() for t in threads) or sched.num_unfinished:
        done.update(run(sched))
    assert len(done) == 1500
    sched.check()


def test_pins():
    sched = make(max_pins=2, snapshots=True)
    req = sched.add("a", range(40), max_tokens=4)
    sched.pin(req, 3600)
    step = sched.schedule()
    sched.update(step, [[1]])
    sched.finish([req])
    assert sched.usage()["active"] == 2
    step = sched.schedule()
    assert (step.snapshot["num_pinned"], step.snapshot["num_pinned_blocks"]) == (1, 2)
    (gpu,) = step.snapshot["tiers"]
    assert (gpu["name"], gpu["medium"], gpu["pinned"]) == ("gpu", "GPU", 2)
    assert gpu["blocks"] == step.snapshot["blocks"]
    with pytest.raises(quire.Error):
        sched.pin(req, 1)
    with pytest.raises(ValueError):
        sched.pin(sched.add("b", [1, 2], max_tokens=1), -1)
    sched.close()
