#!/usr/bin/env python3
"""`quire replay` from outside: what it prints adds up, and comes out the same every time.

    tests/cli/program/test_replay.py QUIRE TRACES

TRACES: a folder with public traces; tests that need one are skipped where it is not there.
"""

import csv
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

QUIRE = TRACES = ""


def run(*args, status=0, stdin=None):
    done = subprocess.run([QUIRE, *args], capture_output=True, timeout=300, input=stdin)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}, {done.stderr.decode()}")
    return (done.stdout if status == 0 else done.stderr).decode()


def report(*args):
    return json.loads(run("replay", "--quiet", "--json", "-", *args))


def mooncake(*requests):
    """Lines of (time in s, prompt tokens, output tokens, ids of 512 tokens)."""
    return "".join(json.dumps({"timestamp": int(t * 1000), "input_length": n, "output_length": o,
                               "hash_ids": ids}) + "\n" for t, n, o, ids in requests)


class Replay(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def generate(self, kind, *args):
        path = self.path(f"{kind}.jsonl")
        run("generate", kind, "--out", path, *args)
        return path

    def check_sum(self, r):
        """Hits and what was lost are what a cache without end has."""
        lost = r["losses"]
        self.assertEqual(r["hit_tokens"] + sum(lost[f"{k}_tokens"] for k in
                                               ("partial", "last_token", "not_ready", "evicted")),
                         r["ideal_tokens"] + lost["beyond_ideal_tokens"])
        blocks = r["blocks"]
        self.assertEqual(blocks["empty"] + blocks["cached"] + blocks["active"], blocks["total"])
        self.assertEqual(blocks["active"], 0)
        for key in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
            self.assertLessEqual(r[key]["p50"], r[key]["p90"])
            self.assertLessEqual(r[key]["p90"], r[key]["p99"])
        self.assertLessEqual(r["queue_ms"]["mean"], r["ttft_ms"]["mean"])
        self.assertLessEqual(r["ttft_ms"]["mean"], r["e2e_ms"]["mean"])
        self.assertLessEqual(r["busy_s"], r["simulated_s"] * 1.000001)

    # -- by hand

    def test_three_requests(self):
        trace = self.write("t.jsonl", mooncake((0, 1100, 2, [1, 2, 3]), (60, 1100, 2, [1, 2, 3]),
                                               (120, 1024, 1, [1, 2])))
        r = report("--block-size", "512", "--num-gpu-blocks", "100", trace)
        self.assertEqual((r["requests"], r["prompt_tokens"], r["output_tokens"]), (3, 3224, 5))
        self.assertEqual((r["trace_blocks"], r["ideal_blocks"], r["query_blocks"]), (8, 5, 8))
        # the second finds two whole blocks, the third one: its last token is computed
        self.assertEqual((r["hit_tokens"], r["hit_blocks"]), (1536, 3))
        self.assertEqual(r["losses"]["partial_blocks"], 1)
        self.assertEqual(r["losses"]["last_token_blocks"], 1)
        self.assertEqual(r["losses"]["not_ready_blocks"], 0)
        self.assertEqual(r["steps"], 5)
        self.assertAlmostEqual(r["ideal_hit_rate"], 5 / 8)
        self.check_sum(r)
        finer = report("--block-size", "16", "--num-gpu-blocks", "1000", trace)
        self.assertEqual(finer["hit_tokens"], 1088 + 1008)
        self.check_sum(finer)

    def test_at_the_same_time(self):
        trace = self.write("t.jsonl", mooncake((0, 2048, 4, [1, 2, 3, 4]), (0, 2048, 4, [1, 2, 3, 4])))
        r = report("--block-size", "512", "--num-gpu-blocks", "100", "--max-num-batched-tokens",
                   "1024", "--long-prefill-token-threshold", "512", trace)
        self.assertGreater(r["losses"]["not_ready_blocks"], 0)
        self.check_sum(r)

    def test_evicted(self):
        trace = self.write("t.jsonl", mooncake((0, 1536, 1, [1, 2, 3]), (60, 1536, 1, [4, 5, 6]),
                                               (120, 1536, 1, [1, 2, 3])))
        r = report("--block-size", "512", "--num-gpu-blocks", "5", "--why", self.path("why"), trace)
        self.assertEqual(r["hit_tokens"], 512)
        self.assertEqual(r["losses"]["evicted_tokens"], 512)
        self.check_sum(r)
        with open(self.path("why"), encoding="utf-8") as file:
            kinds = [json.loads(line)["kind"] for line in file]
        self.assertIn("evicted", kinds)
        self.assertIn("dropped", kinds)
        self.assertEqual(r["costliest"][0]["kind"], "evicted")
        self.assertEqual(r["costliest"][0]["request"], 3)

    def test_preempted(self):
        trace = self.write("t.jsonl", mooncake(*[(0, 100, 300, [i]) for i in range(8)]))
        r = report("--num-gpu-blocks", "101", "--csv", self.path("r.csv"), trace)
        self.assertGreater(r["preemptions"], 0)
        self.assertGreater(r["recomputed_tokens"], 0)
        self.assertEqual(r["costliest"][0]["kind"], "preempted")
        self.check_sum(r)
        with open(self.path("r.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(sum(int(row["preemptions"]) for row in rows), r["preemptions"])

    # -- generated ones

    def test_sums(self):
        for kind in ("chat", "multi-turn", "agent", "mixed"):
            trace = self.generate(kind, "--requests", "150")
            for args in (["--num-gpu-blocks", "20000"], ["--num-gpu-blocks", "60000",
                         "--block-size", "8"], ["--async-scheduling"], ["--clock", "burst"],
                         ["--clock", "serial"], ["--scheduling-policy", "priority"],
                         ["--profile", "vllm-0.20"], ["--profile", "vllm-0.32"],
                         ["--profile", "vllm-0.32", "--async-scheduling"],
                         ["--no-enable-prefix-caching"]):
                r = report(*args, trace)
                self.check_sum(r)
                self.assertEqual(r["requests"], 150, (kind, args))
                if "--no-enable-prefix-caching" in args:
                    self.assertEqual(r["hit_tokens"], 0)

    def test_same_bytes(self):
        trace = self.generate("mixed", "--requests", "200")
        outputs = []
        for n in range(2):
            files = [self.path(f"{n}.{name}") for name in ("json", "html", "csv", "trace", "why",
                                                           "perfetto")]
            words = zip(("--json", "--html", "--csv", "--trace", "--why", "--perfetto"), files)
            text = run("replay", "--deterministic", "--num-gpu-blocks", "9000",
                       *[w for pair in words for w in pair], trace)
            contents = []
            for path in files:
                with open(path, "rb") as file:
                    contents.append(file.read())
            outputs.append([text.replace(f"{n}.html", "html").encode(), *contents])
        self.assertEqual(outputs[0], outputs[1])
        events = json.loads(outputs[0][6])["traceEvents"]
        self.assertGreater(len(events), 200)
        rows = list(csv.DictReader(io.StringIO(outputs[0][3].decode())))
        r = json.loads(outputs[0][1])
        self.assertEqual(len(rows), 200)
        for key in ("prompt_tokens", "output_tokens", "hit_tokens"):
            self.assertEqual(sum(int(row[key]) for row in rows), r[key])
        steps = outputs[0][4].decode().splitlines()[1:]
        self.assertEqual(len(steps), r["steps"])
        self.assertEqual(sum(json.loads(s)["num_preempted"] for s in steps), r["preemptions"])

    def test_input_forms(self):
        text = mooncake((0, 600, 3, [7, 8]), (1, 600, 3, [7, 8]))
        plain = self.write("t.jsonl", text)
        packed = self.path("t.jsonl.gz")
        with gzip.open(packed, "wb") as file:
            file.write(text.encode())
        wanted = report("--deterministic", plain)
        for other in (json.loads(run("replay", "--quiet", "--deterministic", "--json", "-", "-",
                                     stdin=text.encode())), report("--deterministic", packed)):
            self.assertEqual({**other, "trace": "", "made_by": ""},
                             {**wanted, "trace": "", "made_by": ""})

    def test_speed(self):
        trace = self.write("t.jsonl", mooncake((0, 100, 2, [1]), (100, 100, 2, [2])))
        self.assertAlmostEqual(report(trace)["simulated_s"], 100, delta=1)
        self.assertAlmostEqual(report("--speed", "10", trace)["simulated_s"], 10, delta=1)
        self.assertLess(report("--clock", "burst", trace)["simulated_s"], 1)

    def test_step_numbers(self):
        """Steps are counted from 1 on, without those in which nothing could be done."""
        trace = self.write("t.jsonl", mooncake(*[(20 * i, 2000, 30, [4 * (i % 3) + k for k in range(4)])
                                                 for i in range(12)]))
        files = [f"--{name}={self.path(name)}" for name in ("trace", "why", "html")]
        r = report("--num-gpu-blocks", "200", "--cpu-blocks", "2000", *files, trace)
        with open(self.path("trace"), encoding="utf-8") as file:
            numbers = [json.loads(line)["step"] for line in list(file)[1:]]
        self.assertEqual(numbers, list(range(1, r["steps"] + 1)))
        with open(self.path("why"), encoding="utf-8") as file:
            self.assertLessEqual(max(json.loads(line)["step"] for line in file), r["steps"])
        for cost in r["costliest"]:
            self.assertLessEqual(cost["step"], r["steps"])

    def test_helpers(self):
        """A turn comes when the helpers that its session called have ended."""
        def request(t, ids, **more):
            return {"t": t, "in": 4 * len(ids), "out": 2, "hash_ids": ids, **more}
        session = {"id": "p", "block_size": 4, "requests": [
            request(0, [1], api_time=1),
            {"t": 1.5, "type": "subagent", "agent_id": "a", "requests": [
                request(1.5, [1], api_time=1), request(9, [1, 2], think_time=3)]},
            {"t": 1.5, "type": "subagent", "requests": [request(2, [5])]},
            request(20, [1, 7], think_time=0.5), request(30, [1, 7], think_time=1)]}
        trace = self.write("agent.json", json.dumps(session))
        report("--csv", self.path("r.csv"), trace)
        with open(self.path("r.csv"), encoding="utf-8") as file:
            rows = {int(row["request"]): row for row in csv.DictReader(file)}
        self.assertEqual(sorted(rows), [1, 2, 3, 4, 5, 6])
        end = {n: float(row["end_s"]) for n, row in rows.items()}
        come = {n: float(row["arrival_s"]) for n, row in rows.items()}
        for number, before, think in ((2, [1], 0.5), (3, [2], 3), (4, [1], 1), (5, [1, 3, 4], 0.5),
                                      (6, [5], 1)):
            self.assertAlmostEqual(come[number], max(end[n] for n in before) + think, places=5)

    # -- admission and pins

    def test_prefix_window(self):
        """Of requests that wait, those of a document that is in the pool come first."""
        trace = self.generate("rag", "--requests", "600", "--rate", "40")
        options = ("--num-gpu-blocks", "6000", trace)
        plain = report(*options)
        self.assertEqual(plain["overtaking"], 0)
        r = report("--prefix-window", "128", "--why", self.path("why"), *options)
        self.check_sum(r)
        self.assertGreater(r["hit_tokens"], 1.1 * plain["hit_tokens"])
        with open(self.path("why"), encoding="utf-8") as file:
            told = [json.loads(line) for line in file]
        overtook = [d for d in told if d["kind"] == "overtook"]
        self.assertEqual(len(overtook), r["overtaking"])
        self.assertTrue(all(d["request"] > d["other"] and d["num"] > 0 for d in overtook))
        never = report("--prefix-window", "128", "--prefix-patience", "1", *options)
        self.assertEqual((never["overtaking"], never["hit_tokens"], never["ttft_ms"]),
                         (0, plain["hit_tokens"], plain["ttft_ms"]))
        options = r["made_by"]["options"]
        self.assertEqual((options["prefix-window"], options["prefix-patience"]), (128, 0))

    def test_pressure(self):
        """Above one mark requests are preempted, and below another they are admitted."""
        trace = self.generate("chat", "--requests", "300", "--rate", "30")
        options = ("--num-gpu-blocks", "1200", "--max-model-len", "8192", trace)
        plain = report(*options)
        r = report("--admit-below", "0.7", "--preempt-above", "0.7", "--victim", "lru", "--why",
                   self.path("why"), *options)
        self.check_sum(r)
        self.assertEqual(r["requests"], plain["requests"])
        with open(self.path("why"), encoding="utf-8") as file:
            told = [json.loads(line) for line in file]
        kinds = [d["kind"] for d in told if d.get("reason") == "pressure"]
        mark = r["pressure"]
        self.assertEqual((mark["preemptions"], mark["held_up"], mark["admit_below"]),
                         (kinds.count("preempted"), kinds.count("no_room"), 0.7))
        self.assertGreater(min(mark["preemptions"], mark["held_up"]), 0)
        self.assertAlmostEqual(mark["max_level"], r["blocks"]["max"]["active"] / 1199)
        self.assertEqual(report("--admit-below", "0.7", "--preempt-above", "0.7", "--victim", "lru",
                                *options)["pressure"], mark)  # without --why too
        self.assertNotIn("pressure", plain)
        self.assertLess(r["mean_running"], plain["mean_running"])
        self.assertEqual(r["made_by"]["options"]["victim"], "lru")
        left = report("--watermark", "0.3", *options)
        self.assertNotEqual(left["ttft_ms"], plain["ttft_ms"])
        free = 1199 - left["blocks"]["max"]["active"]
        self.assertEqual(left["watermark"], {"blocks": 360, "min_free_blocks": free})
        said = run("replay", "--watermark", "0.3", "--admit-below", "0.5", "--preempt-above", "0.7",
                   *options)
        self.assertIn("Watermark: 360 blocks free after each admission; the fewest free were ", said)
        self.assertIn(" preemptions above 0.7 of the pool; in ", said)
        for wrong, said in ((["--admit-below", "0.5"], "--preempt-above"),
                            (["--admit-below", "0.9", "--preempt-above", "0.5"], "--admit-below"),
                            (["--victim", "lru", "--profile", "vllm-0.20"], "vllm-0.20")):
            done = subprocess.run([QUIRE, "replay", *wrong, *options], capture_output=True,
                                  text=True, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    def test_rerun_repeats_them(self):
        trace = self.generate("agent", "--requests", "120", "--rate", "1")
        first, second = self.path("first.json"), self.path("second.json")
        run("replay", "--quiet", "--deterministic", "--prefix-window", "16", "--prefix-patience",
            "3", "--pin-ttl", "2.5", "--num-gpu-blocks", "9000", "--json", first, trace)
        run("rerun", first, "--json", second)
        with open(first, encoding="utf-8") as a, open(second, encoding="utf-8") as b:
            self.assertEqual(a.read(), b.read())

    def test_pins(self):
        """A session's blocks are there after a think time in which others took all of the pool."""
        def rows(**pin):
            turn = {"time": 0, "session": 1, "prompt": [[1, 320]], "output": [2, 16], **pin}
            other = [{"time": 5 + i, "prompt": [[10 + i, 480]], "output": 16} for i in range(4)]
            last = {"session": 1, "think": 20, "more": [[3, 16]], "output": 16, "last": True}
            return "\n".join(map(json.dumps, [{"quire_workload": 1}, turn, *other, last])) + "\n"
        plain = self.write("plain.jsonl", rows())
        pinned = self.write("pinned.jsonl", rows(pin=60))
        pool = ("--num-gpu-blocks", "60")
        self.assertEqual(report(*pool, plain)["hit_tokens"], 0)
        for args in ((pinned,), ("--pin-ttl", "60", plain), ("--pin-ttl", "1", pinned)):
            r = report(*pool, *args)
            self.assertEqual((r["hit_tokens"], r["pins"]["requests"]), (320, 1), args)
            self.assertGreaterEqual(r["pins"]["max_blocks"], 20)
            self.check_sum(r)
        self.assertEqual(report(*pool, "--pin-ttl", "3", plain)["hit_tokens"], 0)
        for profile in ("vllm-0.20", "vllm-0.32"):
            self.assertEqual(report(*pool, "--profile", profile, pinned)["pins"]["requests"], 0)
        bad = self.write("bad-pin.jsonl", rows(pin=-1))
        self.assertIn('field "pin": -1 is negative', run("replay", bad, status=1))

    def test_what_vllm_has_not(self):
        for name, value in (("lookahead", "9"), ("prefix-window", "9"), ("pin-ttl", "9")):
            for other in (("--profile", "vllm-0.20"), ("--profile", "vllm-0.32"),
                          ("--no-enable-prefix-caching",)):
                said = run("replay", f"--{name}", value, *other, "none", status=2)
                self.assertIn(f"--{name} cannot be used with {' '.join(other)}", said)
        self.assertIn("--prefix-patience 2 needs --prefix-window",
                      run("replay", "--prefix-patience", "2", "none", status=2))

    # -- the profile of vLLM 0.32

    NEWER = ("--profile", "vllm-0.32")

    def test_newer_profile(self):
        """The same trace in each profile: every request ends, and pools are planned by the profile."""
        trace = self.generate("multi-turn", "--requests", "120")
        for model in ("llama-3.2-1b", "gemma-3-12b", "gpt-oss-20b"):
            few = ("--model", model, "--num-gpu-blocks", "9000", "--max-model-len", "32768")
            for more in ((), ("--async-scheduling",), ("--block-size", "32"), ("--watermark", "0.1"),
                         ("--scheduling-policy", "priority"), ("--kv-cache-layout", "BLHNC")):
                r = report(*self.NEWER, *few, *more, trace)
                self.assertEqual((r["requests"], r["blocks"]["active"]), (120, 0), (model, more))
                self.assertEqual(r["made_by"]["options"]["profile"], "vllm-0.32")

    def test_retention(self):
        """Windows keep few blocks for later requests, unless all are asked for."""
        def turn(n, ids):
            return (60 * n, 512 * len(ids), 4, ids)
        # the second prompt shares the first half of the first one: the end of no prompt
        trace = self.write("t.jsonl", mooncake(turn(0, [1, 2, 3, 4]), turn(1, [1, 2, 7, 8]),
                                               turn(2, [1, 2, 3, 4])))
        hits = {}
        for profile in (self.NEWER, ()):
            for interval in ("0", "512", "all"):
                r = report(*profile, "--model", "gpt-oss-20b", "--num-gpu-blocks", "20000",
                           "--max-model-len", "8192", "--prefix-cache-retention-interval", interval, trace)
                hits[interval] = r["hit_tokens"]
            self.assertEqual(hits["all"], 1024 + 2048 - 16)
            self.assertEqual(hits["512"], 1024 + 2048 - 16)
            self.assertEqual(hits["0"], 2048 - 16)
        same = report(*self.NEWER, "--num-gpu-blocks", "20000", "--max-model-len", "8192", trace)
        self.assertEqual(same["hit_tokens"], hits["all"])  # full attention keeps all

    def test_newer_options(self):
        trace = self.write("t.jsonl", mooncake(*[(0, 1000, 20, [i]) for i in range(40)]))
        few = report(*self.NEWER, "--max-num-active-seqs", "3", trace)
        self.assertEqual(few["max_running"], 3)
        self.assertGreater(report(*self.NEWER, trace)["max_running"], 3)
        threshold = (*self.NEWER, "--long-prefill-token-threshold", "100", trace)
        fixed = report(*threshold)
        adaptive = report("--long-prefill-token-threshold-adaptive", *threshold)
        self.assertLess(adaptive["ttft_ms"]["mean"], fixed["ttft_ms"]["mean"])
        interval = "--prefix-cache-retention-interval"
        for args, words in (
                (("--profile", "vllm-0.20", interval, "0"),
                 f"{interval} cannot be used with --profile vllm-0.20"),
                (("--max-num-active-seqs", "3"), "--max-num-active-seqs needs --profile vllm-0.32"),
                (("--kv-cache-layout", "BLHNC"), "--kv-cache-layout needs --profile vllm-0.32"),
                ((*self.NEWER, interval, "many"), f'invalid value "many" for {interval}'),
                ((*self.NEWER, interval, "-1"), f'invalid value "-1" for {interval}'),
                (("--profile", "vllm-0.20", "--max-num-active-seqs", "3"),
                 "--max-num-active-seqs cannot be used with --profile vllm-0.20"),
                ((*self.NEWER, "--victim", "lru"),
                 "--victim cannot be used with --profile vllm-0.32: vLLM 0.32 does not have it")):
            self.assertIn(words, run("replay", *args, trace, status=2))

    def test_rerun_with_a_profile(self):
        trace = self.generate("chat", "--requests", "60")
        first, second = self.path("first.json"), self.path("second.json")
        run("replay", "--quiet", "--deterministic", *self.NEWER, "--model", "gpt-oss-20b",
            "--prefix-cache-retention-interval", "all", "--kv-cache-layout", "BLNHC",
            "--num-gpu-blocks", "9000", "--json", first, trace)
        run("rerun", first, "--json", second)
        with open(first, encoding="utf-8") as a, open(second, encoding="utf-8") as b:
            self.assertEqual(a.read(), b.read())

    # -- what is wrong

    def test_errors(self):
        self.assertIn("No such file", run("replay", self.path("none"), status=1))
        bad = self.write("bad.jsonl", mooncake((0, 100, 2, [1])) + '{"timestamp":0,"input_length":-3,'
                         '"output_length":1,"hash_ids":[1]}\n' + mooncake((1, 100, 2, [1])))
        said = run("replay", bad, status=1)
        self.assertIn("bad.jsonl:2:", said)
        self.assertIn("input_length", said)
        r = report("--skip-bad", bad)
        self.assertEqual((r["requests"], r["errors"]), (2, 1))
        long = self.write("long.jsonl", mooncake((0, 5120, 2, list(range(10))), (1, 100, 2, [1])))
        said = run("replay", "--num-gpu-blocks", "100", long, status=1)
        self.assertIn("long.jsonl:1: a prompt of 5120 tokens", said)
        self.assertIn("does not fit: the pool of 99 blocks of 16 tokens holds requests of 1584 tokens", said)
        self.assertNotIn("--max-model-len", said)
        self.assertIn("--skip-bad", said)
        self.assertIn("must be below --max-model-len (64)",
                      run("replay", "--max-model-len", "64", long, status=1))
        for tool in ("xz", "bzip2"):
            if shutil.which(tool):
                packed = subprocess.run([tool, "-c", long], capture_output=True, check=True).stdout
                with open(self.path("packed"), "wb") as file:
                    file.write(packed)
                self.assertIn(f"packed: is compressed with {tool}", run("replay", self.path("packed"), status=1))
        r = report("--num-gpu-blocks", "100", "--skip-bad", long)
        self.assertEqual((r["requests"], r["errors"]), (1, 1))
        said = run("replay", "--html", self.path("no/such/folder.html"), bad, "--skip-bad", status=1)
        self.assertIn("folder.html", said)
        self.assertIn("expected a TRACE", run("replay", status=2))
        self.assertIn("for --format", run("replay", "--format", "xml", bad, status=2))

    # -- the real thing

    def test_mooncake(self):
        trace = os.path.join(TRACES, "mooncake_conversation.jsonl.zst")
        if not os.path.exists(trace):
            self.skipTest("no mooncake_conversation.jsonl.zst")
        r = report("--block-size", "512", "--num-gpu-blocks", "400000", trace)
        self.assertEqual((r["ideal_blocks"], r["trace_blocks"]), (105710, 288500))
        lost = r["losses"]
        self.assertEqual(lost["evicted_blocks"], 0)
        self.assertEqual(r["hit_blocks"] + lost["partial_blocks"] + lost["last_token_blocks"] +
                         lost["not_ready_blocks"], r["ideal_blocks"])
        self.check_sum(r)


if __name__ == "__main__":
    QUIRE, TRACES = os.path.abspath(sys.argv[1]), sys.argv[2]
    unittest.main(argv=sys.argv[:1])
