#!/usr/bin/env python3
"""Recordings: constants fitted to them, and replays compared with them.

    tests/cli/program/test_compare.py QUIRE

The recordings are written here, so that every figure can be checked by hand.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
CONFIG = {"profile": "vllm-0.32", "policy": "fcfs", "num_blocks": 100, "block_size": 16,
          "hash_block_size": 16, "max_model_len": 512, "max_num_seqs": 8,
          "max_num_batched_tokens": 64, "enable_caching": True, "enable_chunked_prefill": True,
          "reserve_full_sequence": True, "groups": [{"kind": 0, "block_size": 16}]}
# Nothing but what the test asks for.
BARE = ("--roofline", "0", "--step-ms", "10")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


class Recording:
    """Lines of a recording, in the order in which they are added."""

    def __init__(self, model="tiny", **config):
        self.lines = [{"type": "header", "format": "quire.recording.v1", "part": 0,
                       "recording": "0123456789abcdef0123456789abcdef", "time": 1.7e9, "t": 0.0,
                       "engine": "vllm", "engine_version": "0.32.0", "quire_version": "0.1.0",
                       "scheduler": "Scheduler", "model": model, "config": {**CONFIG, **config}}]
        self.step = 0

    def add(self, type, **fields):
        self.lines.append({"type": type, **fields})

    def request(self, t, req, prompt, max_tokens, arrival, **fields):
        hashes = "".join(f"{req * 1000 + i:016x}" for i in range(prompt // 16))
        self.add("request", t=t, req=req, arrival=arrival, prompt=prompt, max_tokens=max_tokens,
                 hashes=hashes, **fields)

    def schedule(self, t, reqs, tokens, **fields):
        self.step += 1
        self.add("schedule", step=self.step, t=t, reqs=reqs, tokens=tokens, running=len(reqs),
                 waiting=0, free=90, **fields)

    def update(self, t, seconds, sampled):
        self.add("update", step=self.step, t=t, seconds=seconds, sampled=sampled)

    def end(self, t, req, output, first, reason="length", **fields):
        self.add("end", t=t, req=req, reason=reason, output=output, first=first, last=t,
                 hit=fields.pop("hit", 0), **fields)

    def write(self, path, close=True):
        if close:
            self.add("close", t=self.lines[-1]["t"], lines=len(self.lines) - 1, lost=0)
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines)
        return path


def two_requests(**config):
    """Steps of 20 ms: request 1 at 0 s, 10 tokens, 3 generated; request 2 the same at 1 s."""
    made = Recording(**config)
    for req, start in ((1, 0.0), (2, 1.0)):
        made.request(start, req, 10, 3, arrival=start)
        for k in range(3):
            made.schedule(start + 0.02 * k, [req], [10 if k == 0 else 1],
                          **({"new": [[req, 0]]} if k == 0 else {}))
            made.update(start + 0.02 * (k + 1), 0.02, [1])
        made.end(start + 0.06, req, 3, start + 0.02)
    return made


def generated(constants, seed, num_steps=3000, noise=0.0, outliers=0.0):
    """Steps of one decode to 20, now and then with a prompt, that take what the constants say."""
    draw = random.Random(seed)
    step_ms, request_ms, token_ms, context_ms, pair_ms, gap_ms, gap_request_ms = constants
    made, now, live, req = Recording(max_num_batched_tokens=512, max_num_seqs=64), 0.0, {}, 0
    for _ in range(num_steps):
        fresh = []
        if not live or (len(live) < 20 and draw.random() < 0.1):
            req += 1
            prompt = draw.randrange(20, 480)
            made.request(now, req, prompt, 400, arrival=now - 0.0015)
            live[req] = [0, prompt]
            fresh = [[req, 0]]
        tokens = {r: (prompt if computed == 0 else 1) for r, (computed, prompt) in live.items()}
        made.schedule(now, list(tokens), list(tokens.values()), **({"new": fresh} if fresh else {}))
        context = sum(live[r][0] + n for r, n in tokens.items())
        pairs = sum(n * (n + 1) // 2 for n in tokens.values() if n > 1)
        ms = (step_ms + request_ms * len(tokens) + token_ms * sum(tokens.values()) +
              context_ms * context + pair_ms * pairs) * (1 + noise * (2 * draw.random() - 1))
        ms *= 20 if draw.random() < outliers else 1
        gap = gap_ms + gap_request_ms * len(tokens)
        made.update(now + ms / 1e3, ms / 1e3, [1] * len(tokens))
        for r, n in tokens.items():
            live[r][0] += n
        for r in [r for r, (computed, prompt) in live.items() if computed > prompt + 60]:
            del live[r]
            made.end(now + ms / 1e3, r, 60, now)
        now += (ms + gap) / 1e3
    return made


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def compared(self, recording, *args):
        path = recording.write(self.path("rec.jsonl"))
        run("replay", "--compare-with", path, "--quiet", "--json", self.path("out.json"), *args)
        with open(self.path("out.json"), encoding="utf-8") as file:
            return json.load(file)["comparison"]


class Compare(Files):
    def test_figures(self):
        """20 ms a step measured, 10 ms predicted: half of everything."""
        c = self.compared(two_requests(), *BARE)
        self.assertEqual((c["engine"], c["engine_version"], c["model"]), ("vllm", "0.32.0", "tiny"))
        self.assertEqual((c["requests"], c["excluded"]), (2, 0))
        for key, measured in (("ttft_ms", 20), ("tpot_ms", 20), ("e2e_ms", 60), ("step_ms", 20)):
            for figure in ("mean", "p50", "p90", "p99"):
                self.assertAlmostEqual(c[key]["measured"][figure], measured, 5)
                self.assertAlmostEqual(c[key]["predicted"][figure], measured / 2, 5)
        for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
            errors = c["errors"][key]
            self.assertEqual(errors["requests"], 2)
            self.assertAlmostEqual(errors["median"], 0.5, 6)
            self.assertAlmostEqual(errors["p90"], 0.5, 6)
            self.assertAlmostEqual(errors["signed_median"], -0.5, 6)
            self.assertEqual(sum(errors["bins"]), 2)
        for side in ("measured", "predicted"):
            counts = c["counts"][side]
            self.assertEqual((counts["steps"], counts["step_tokens"]), (6, 24))
            self.assertEqual((counts["output_tokens"], counts["hit_tokens"]), (6, 0))
            self.assertEqual((counts["preemptions"], counts["max_waiting"]), (0, 0))
            self.assertEqual(counts["mean_running"], 1)

    def test_curves(self):
        """A bin has the mean of what is in it, or null."""
        curves = self.compared(two_requests(), *BARE)["curves"]
        self.assertAlmostEqual(curves["bin_s"], 1.06 / 120, 6)
        for key in ("ttft_ms", "running", "waiting", "step_ms"):
            for side in ("measured", "predicted"):
                self.assertEqual(len(curves[key][side]), 120)
        self.assertAlmostEqual(curves["ttft_ms"]["measured"][0], 20, 5)
        self.assertAlmostEqual(curves["ttft_ms"]["predicted"][0], 10, 5)
        self.assertIsNone(curves["ttft_ms"]["measured"][60])
        self.assertEqual(curves["running"]["measured"][0], 1)

    def test_time_between_steps(self):
        """5 ms between two steps, and 1 ms for each request; 2 ms before the first one."""
        c = self.compared(two_requests(), *BARE, "--gap-ms", "5", "--gap-request-us", "1000",
                          "--arrival-ms", "1", "--arrival-token-us", "100")
        self.assertAlmostEqual(c["ttft_ms"]["predicted"]["mean"], 12, 5)
        self.assertAlmostEqual(c["tpot_ms"]["predicted"]["mean"], 16, 5)
        self.assertAlmostEqual(c["e2e_ms"]["predicted"]["mean"], 44, 5)
        self.assertAlmostEqual(c["step_ms"]["predicted"]["mean"], 10, 5)

    def test_added_requests(self):
        """A second request comes in the first step: the gap is longer by what it takes to add it."""
        made = Recording()
        made.request(0, 1, 10, 2, arrival=0)
        made.schedule(0, [1], [10], new=[[1, 0]])
        made.request(0.005, 2, 10, 1, arrival=0.005)
        made.update(0.01, 0.01, [1])
        made.schedule(0.01, [1, 2], [1, 10], new=[[2, 0]])
        made.update(0.02, 0.01, [1, 1])
        made.end(0.02, 1, 2, 0.01)
        made.end(0.02, 2, 1, 0.02)
        c = self.compared(made, *BARE, "--gap-add-us", "3000")
        # Request 1 is added at once (3 ms), request 2 before the second step (3 ms).
        self.assertAlmostEqual(c["tpot_ms"]["predicted"]["mean"], 13, 5)

    def test_terms_of_a_step(self):
        """1 ms a request, 0.1 ms a token, 0.01 ms a token of context, 0.001 ms a pair."""
        c = self.compared(two_requests(), "--roofline", "0", "--step-ms", "0", "--request-us", "1000",
                          "--token-us", "100", "--context-ns", "10000", "--pair-ns", "1000")
        # The prompt: 1 + 10 x 0.1 + 10 x 0.01 + 55 x 0.001; then 11 and 12 tokens of context.
        self.assertAlmostEqual(c["ttft_ms"]["predicted"]["mean"], 2.155, 5)
        self.assertAlmostEqual(c["tpot_ms"]["predicted"]["mean"], 1.1 + 0.115, 5)

    def test_hits_and_prefixes(self):
        """The second prompt is the first one: its blocks are found."""
        made = Recording()
        same = f"{7:016x}{8:016x}"
        for req, start, hit in ((1, 0.0, 0), (2, 1.0, 32)):
            made.add("request", t=start, req=req, arrival=start, prompt=40, max_tokens=2,
                     hashes=same)
            for k in range(2):
                made.schedule(start + 0.01 * k, [req], [40 - hit if k == 0 else 1],
                              **({"new": [[req, hit]]} if k == 0 else {}))
                made.update(start + 0.01 * (k + 1), 0.01, [1])
            made.end(start + 0.02, req, 2, start + 0.01, hit=hit)
        c = self.compared(made, *BARE)
        self.assertEqual(c["counts"]["measured"]["hit_tokens"], 32)
        self.assertEqual(c["counts"]["predicted"]["hit_tokens"], 32)
        self.assertEqual(c["counts"]["predicted"]["step_tokens"], 40 + 1 + 8 + 1)

    def test_excluded(self):
        """An aborted request is replayed with its tokens, and not compared."""
        made = two_requests()
        made.request(2, 3, 10, 100, arrival=2)
        made.schedule(2, [3], [10], new=[[3, 0]])
        made.update(2.02, 0.02, [1])
        made.end(2.02, 3, 1, 2.02, reason="abort")
        c = self.compared(made, *BARE)
        self.assertEqual((c["requests"], c["excluded"]), (2, 1))
        self.assertEqual(c["counts"]["predicted"]["output_tokens"], 7)

    def test_text(self):
        path = two_requests().write(self.path("rec.jsonl"))
        text = run("replay", "--compare-with", path, *BARE)
        self.assertIn("Compared with vllm 0.32.0, tiny: 2 requests", text)
        self.assertRegex(text, r"time to first token +mean +20\.00 ms +10\.00 ms +-50\.0 %")
        self.assertRegex(text, r"time to first token +50\.0 % +50\.0 % +-50\.0 %")

    def test_rerun(self):
        """What made a result repeats it."""
        path = two_requests().write(self.path("rec.jsonl"))
        run("replay", "--compare-with", path, *BARE, "--deterministic", "--quiet", "--json",
            self.path("a.json"))
        run("rerun", self.path("a.json"), "--quiet", "--json", self.path("b.json"))
        with open(self.path("a.json"), "rb") as a, open(self.path("b.json"), "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_page(self):
        path = two_requests().write(self.path("rec.jsonl"))
        run("replay", "--compare-with", path, *BARE, "--quiet", "--html", self.path("page.html"))
        with open(self.path("page.html"), encoding="utf-8") as file:
            text = file.read()
        data = text.split('id="data">', 1)[1].split("</script>", 1)[0]
        self.assertEqual(json.loads(data)["report"]["comparison"]["requests"], 2)


class Engine(Files):
    """Two workloads of vLLM 0.20.0's CPU engine, which tests/vllm/predict recorded."""

    DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")

    def test_the_other_workload_is_predicted(self):
        """The example of docs/compare.md."""
        a, b = (os.path.join(self.DATA, f"vllm-{name}.0000.jsonl.zst") for name in "ab")
        run("time", "--calibrate", a, "--write-constants", self.path("mine.txt"))
        for path, requests in ((a, 420), (b, 230)):
            run("replay", "--compare-with", path, "--time-constants", self.path("mine.txt"),
                "--quiet", "--json", self.path("out.json"))
            with open(self.path("out.json"), encoding="utf-8") as file:
                c = json.load(file)["comparison"]
            self.assertEqual((c["requests"], c["excluded"]), (requests, 0))
            counts = c["counts"]
            for key in ("step_tokens", "output_tokens", "hit_tokens", "preemptions"):
                self.assertEqual(counts["predicted"][key], counts["measured"][key])
            for key in ("ttft_ms", "tpot_ms", "e2e_ms", "step_ms"):
                error = c[key]["predicted"]["mean"] / c[key]["measured"]["mean"] - 1
                self.assertLess(abs(error), 0.05, key)
            for key in ("ttft_ms", "tpot_ms", "e2e_ms"):
                self.assertLess(c["errors"][key]["median"], 0.15, key)


class Refusals(Files):
    def refused(self, expected, *args, recording=None, status=2):
        path = self.path("rec.jsonl")
        (recording or two_requests()).write(path)
        message = run("replay", "--compare-with", path, *args, status=status)
        self.assertIn(expected, message)

    def test_no_recording(self):
        trace = self.path("trace.jsonl")
        with open(trace, "w", encoding="utf-8") as file:
            file.write('{"timestamp": 0, "input_length": 10, "output_length": 2, "hash_ids": [1]}\n')
        self.assertIn("is not a recording (expected a header with format quire.recording.v1)",
                      run("replay", "--compare-with", trace, status=1))
        self.assertIn("No such file", run("replay", "--compare-with", self.path("no"), status=1))
        self.assertIn("standard input", run("replay", "--compare-with", "-", status=1))
        self.assertIn("is a folder", run("replay", "--compare-with", self.folder, status=1))

    def test_lost_lines(self):
        made = two_requests()
        made.add("lost", t=2.0, lines=12)
        self.refused("has lost 12 lines", recording=made, status=1)

    def test_no_requests(self):
        self.refused("the recording has no requests", recording=Recording(), status=1)

    def test_broken_lines(self):
        for line, what in (
                ({"type": "schedule", "step": 7, "t": 2.0, "reqs": [9], "tokens": [1]},
                 "a request is scheduled that was not added"),
                ({"type": "schedule", "step": 7, "t": 2.0, "reqs": [1, 2], "tokens": [1]},
                 '"tokens" and "reqs" are not equally long'),
                ({"type": "end", "t": 2.0, "req": 9, "reason": "stop", "output": 1},
                 '"req" is not a request of the recording'),
                ({"type": "request", "t": 2.0, "req": 9, "arrival": 2.0, "prompt": 4,
                  "max_tokens": 4}, "requests are not numbered one after the other")):
            made = two_requests()
            made.lines.append(line)
            self.refused(what, recording=made, status=1)

    def test_other_model(self):
        constants = self.path("other.txt")
        with open(constants, "w", encoding="utf-8") as file:
            file.write("model llama\nroofline 0\nstep_ms 10\n")
        self.refused("fitted to the model llama, and the recording has tiny",
                     "--time-constants", constants)

    def test_other_groups(self):
        made = two_requests(groups=[{"kind": 0}, {"kind": 1}])
        self.refused("has 1 groups of layers, and the recorded model tiny has 2", recording=made)

    def test_other_options(self):
        for option, value in (("--num-gpu-blocks", "50"), ("--max-num-seqs", "4"),
                              ("--block-size", "32"), ("--max-num-batched-tokens", "128"),
                              ("--max-model-len", "100"), ("--profile", "vllm-0.20"),
                              ("--scheduling-policy", "priority"),
                              ("--long-prefill-token-threshold", "9")):
            self.refused(f"{option} {value} differs from the recording", option, value)
        self.refused("--async-scheduling differs from the recording", "--async-scheduling")
        self.refused("--no-enable-prefix-caching differs", "--no-enable-prefix-caching")
        for option, value in (("--speed", "2"), ("--clock", "burst"), ("--cpu-blocks", "10"),
                              ("--swap-blocks", "10"), ("--lookahead", "2"),
                              ("--prefix-window", "4"), ("--pin-ttl", "4"), ("--victim", "lru"),
                              ("--preempt-above", "0.9"), ("--max-requests", "1")):
            self.refused(f"{option} cannot be used with --compare-with", option, value)

    def test_equal_options(self):
        path = two_requests().write(self.path("rec.jsonl"))
        run("replay", "--compare-with", path, "--num-gpu-blocks", "100", "--max-num-seqs", "8")

    def test_engines(self):
        self.refused("has a draft model", recording=two_requests(num_spec_tokens=3))
        self.refused("has a pooling model", recording=two_requests(is_pooling_model=True))
        self.refused('the profile "vllm-0.99"', recording=two_requests(profile="vllm-0.99"))
        self.refused("no num_blocks, block_size or max_num_seqs",
                     recording=two_requests(num_blocks=0))

    def test_trace_beside_it(self):
        self.refused("cannot be used with the trace other.jsonl", "other.jsonl")

    def test_no_trace(self):
        self.assertIn("expected a TRACE", run("replay", status=2))


class Calibrate(Files):
    # step, request, token, context, pair, gap, gap of a request: ms
    CONSTANTS = (3.0, 0.2, 0.03, 0.0005, 0.0002, 0.4, 0.05)
    NAMES = ("step_ms", "request_us", "token_us", "context_ns", "pair_ns", "gap_ms",
             "gap_request_us")
    UNITS = (1, 1e3, 1e3, 1e6, 1e6, 1, 1e3)

    def fitted(self, recording):
        path = recording.write(self.path("rec.jsonl"))
        return json.loads(run("time", "--calibrate", path, "--json", "--write-constants",
                              self.path("mine.txt")))

    def check(self, fit, share):
        for name, value, unit in zip(self.NAMES, self.CONSTANTS, self.UNITS):
            found = fit["constants"][name]
            self.assertLess(abs(found / (value * unit) - 1), share, f"{name}: {found}")

    def test_constants_are_found(self):
        fit = self.fitted(generated(self.CONSTANTS, seed=1))
        self.check(fit, 0.02)
        self.assertEqual(fit["model"], "tiny")
        self.assertLess(fit["step_fit"]["median_error"], 0.001)
        self.assertLess(fit["step_held_out"]["median_error"], 0.001)
        held_out, fitted = fit["step_held_out"]["rows"], fit["step_fit"]["rows"]
        self.assertEqual(held_out + fitted, 3000)
        self.assertLess(abs(held_out / 3000 - 0.2), 0.05)

    def test_noise(self):
        fit = self.fitted(generated(self.CONSTANTS, seed=2, noise=0.1))
        self.check(fit, 0.2)
        self.assertLess(abs(fit["step_fit"]["median_error"] - 0.05), 0.01)

    def test_outliers(self):
        self.check(self.fitted(generated(self.CONSTANTS, seed=3, noise=0.02, outliers=0.05)), 0.1)

    def test_constants_are_read(self):
        """What is written predicts the recording again."""
        recording = generated(self.CONSTANTS, seed=4)
        fit = self.fitted(recording)
        text = run("time", "--time-constants", self.path("mine.txt"), "--decode", "4",
                   "--decode-context", "100", "--json")
        c = fit["constants"]
        expected = (c["step_ms"] + 4 * c["request_us"] / 1e3 + 4 * c["token_us"] / 1e3 +
                    400 * c["context_ns"] / 1e6)
        self.assertAlmostEqual(json.loads(text)["ms"], expected, 3)

    def test_text(self):
        path = generated(self.CONSTANTS, seed=5).write(self.path("rec.jsonl"))
        text = run("time", "--calibrate", path)
        self.assertIn("vllm 0.32.0, tiny: ", text)
        self.assertRegex(text, r"time of a step +\d+ +0\.\d\d %")
        self.assertRegex(text, r"between two steps +\d+ +0\.\d\d %")
        self.assertRegex(text, r"\ngap_ms +0\.4")

    def test_lost_lines(self):
        """What stands before them is used."""
        made = generated(self.CONSTANTS, seed=6)
        made.add("lost", t=made.lines[-1]["t"], lines=3)
        made.add("nonsense", t=9e9)
        path = made.write(self.path("rec.jsonl"), close=False)
        text = run("time", "--calibrate", path)
        self.assertIn("3 lines were lost: nothing behind them was read", text)
        self.assertIn("The recording has no close line", text)

    def test_refusals(self):
        path = two_requests().write(self.path("rec.jsonl"))
        message = run("time", "--calibrate", path, status=1)
        self.assertIn("steps to fit to are too few (expected 100 or more)", message)
        for line in ("model", "model " + 300 * "x", "pair_ns -1", "roofline x"):
            with open(self.path("bad.txt"), "w", encoding="utf-8") as file:
                file.write(line + "\n")
            message = run("time", "--decode", "1", "--time-constants", self.path("bad.txt"),
                          status=2)
            self.assertIn("bad.txt:1: invalid line", message)


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
