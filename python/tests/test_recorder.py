"""quire.Recorder: the lines of another engine, and what is refused."""
import json
import subprocess
import time

import pytest

import quire

pytest.importorskip("quire._record")


def lines_of(path):
    """The lines of a part; skips where nothing unpacks zstd."""
    try:
        text = subprocess.run(["zstd", "-dcq", path], capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("the program zstd is missing")
    return [json.loads(line) for line in text.decode().splitlines()]


def test_lines_come_back(tmp_path):
    with quire.Recorder(tmp_path / "a.jsonl.zst", engine="mine", engine_version="7", model="m",
                        config={"num_blocks": 9}, inexact="a reason") as recorder:
        path = recorder.path
        req = recorder.add(time.time(), 33, 20, min_tokens=2, eos=True, stops=1, priority=-4, client=2,
                           hashes=[b"a" * 32, b"b" * 32], adapter="x", salt=b"y", session="z",
                           inputs=[(3, 4, 4, "image")], grammar=True, pooling=True, resumable=True,
                           skip_prefix=True)
        step = recorder.schedule([req], [33], new=[(req, 16)], resumed=[(2, 5)], preempted=(7, 8),
                                 drafts=[(req, 1)], encoder=[(req, 0)], running=1, waiting=2, free=3,
                                 throttle=True)
        recorder.update(step, [2])
        recorder.drafts([(req, 3)])
        recorder.finish([req], "abort")
        recorder.end(req, "abort", 2, [b"a" * 32, b"b" * 32, b"c" * 32], 2)
        recorder.reset(done=False)
        recorder.reset("encoder")
        recorder.set_pause(1)
    header, request, schedule, update, drafts, finish, end, reset, encoder, pause, close = lines_of(path)
    assert path == str(tmp_path / "a.0000.jsonl.zst")
    assert header["engine"] == "mine" and header["engine_version"] == "7"
    assert header["model"] == "m" and header["config"] == {"num_blocks": 9}
    assert header["inexact"] == "a reason"
    assert (req, step) == (1, 1)
    assert request["prompt"] == 33 and request["max_tokens"] == 20 and request["min_tokens"] == 2
    assert request["eos"] and request["stops"] == 1 and request["priority"] == -4
    assert request["client"] == 2 and len(request["hashes"]) == 32
    assert len({request[name] for name in ("adapter", "salt", "session")}) == 3
    assert request["mm"][0][:3] == [3, 4, 4]
    assert all(request[name] for name in ("grammar", "pooling", "resumable", "skip_prefix"))
    assert schedule["reqs"] == [1] and schedule["tokens"] == [33] and schedule["new"] == [[1, 16]]
    assert schedule["resumed"] == [[2, 5]] and schedule["preempted"] == [7, 8]
    assert schedule["drafts"] == [[1, 1]] and schedule["encoder"] == [[1, 0]]
    assert [schedule[name] for name in ("running", "waiting", "free")] == [1, 2, 3]
    assert schedule["throttle"] and update["sampled"] == [2] and drafts["drafts"] == [[1, 3]]
    assert finish["reqs"] == [1] and finish["reason"] == end["reason"] == "abort"
    assert end["output"] == 2 and end["hit"] == 16 and len(end["hashes"]) == 16
    assert end["hashes"] not in request["hashes"]
    assert reset["what"] == "prefix" and not reset["done"] and encoder["what"] == "encoder"
    assert pause["pause"] == 1 and close["lines"] == 9 and close["lost"] == 0


def test_stats_count(tmp_path):
    recorder = quire.Recorder(tmp_path, buffer_bytes=1 << 16, flush_ms=10)
    recorder.add(0.0, 1, 1, hashes=[b"a" * 64] * 1024)  # larger than half of the buffer
    assert recorder.stats()["lost"] == 1
    recorder.add(0.0, 1, 1)
    deadline = time.time() + 10
    while recorder.stats()["lines"] < 1 and time.time() < deadline:
        time.sleep(0.01)
    stats = recorder.stats()
    assert stats["lines"] == 1 and stats["parts"] == 1 and stats["errors"] == 0 and stats["bytes"] > 0
    recorder.close()
    recorder.close()
    with pytest.raises(ValueError, match="closed"):
        recorder.stats()


@pytest.mark.parametrize("settings, sentence", [
    ({"level": 99}, "invalid level 99"), ({"flush_ms": 1}, "invalid flush_ms 1"),
    ({"part_bytes": 1}, "invalid part_bytes 1"), ({"buffer_bytes": 1}, "invalid buffer_bytes 1")])
def test_invalid_settings_are_refused(tmp_path, settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        quire.Recorder(tmp_path / "b", **settings)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(OSError, match="missing/b.0000.jsonl.zst"):
        quire.Recorder(tmp_path / "missing" / "b")


@pytest.mark.parametrize("call", [
    lambda r: r.add("now", 1, 1), lambda r: r.add(float("nan"), 1, 1), lambda r: r.add(0.0, 1),
    lambda r: r.add(0.0, 1, 1, hashes="text"), lambda r: r.add(0.0, 1, 1, hashes=["text"]),
    lambda r: r.add(0.0, 1, 1, hashes=[b"a", b"bb"]), lambda r: r.add(0.0, 1, 1, hashes=[b"a" * 65]),
    lambda r: r.add(0.0, 1, 1, inputs=[(1, 2)]), lambda r: r.add(0.0, 1, 1, adapter=3),
    lambda r: r.schedule([1], [1, 2]), lambda r: r.schedule([-1], [1]), lambda r: r.schedule([1 << 32], [1]),
    lambda r: r.schedule([1], [1], new=[3]), lambda r: r.update("step"), lambda r: r.drafts([1]),
    lambda r: r.end(1, "why", 1), lambda r: r.end(1, "stop", 1, [], -1), lambda r: r.finish([1], "why"),
    lambda r: r.finish(["x"], "stop"), lambda r: r.reset("all"), lambda r: r.set_pause(3),
    lambda r: r._schedule_output(object(), {}, 0, 0, 0, False), lambda r: r._update_output(1, 2, 3)])
def test_invalid_lines_are_refused(tmp_path, call):
    with quire.Recorder(tmp_path / "c") as recorder:
        with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)):
            call(recorder)
        path = recorder.path
    assert lines_of(path)[-1]["lines"] == 0
