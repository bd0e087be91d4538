#!/usr/bin/env python3
"""`quire serve` from outside: the replay is that of `quire replay`, and others see it while it runs.

    tests/cli/program/test_serve.py QUIRE
"""

import json
import os
import re
import signal
import sys
import tempfile
import unittest

from serve_kit import Serving, report, run, until, write_private

QUIRE = ""
SMALL = ("--num-gpu-blocks", "900")  # so that some are preempted


class Serve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = cls.path("trace.jsonl")
        run(QUIRE, "generate", "chat", "--requests", "120", "--rate", "60", "--out", cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    def read_report(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return json.load(file)

    def check_prefix_counts(self, r):
        """Hits, losses and prompts are of the same requests, also where some have not ended."""
        lost = r["losses"]
        self.assertEqual(r["ideal_tokens"], r["hit_tokens"] - lost["beyond_ideal_tokens"] + sum(
            lost[key + "_tokens"] for key in ("partial", "last_token", "not_ready", "evicted")))
        room = r["query_blocks"] * r["block_size"] - r["prompt_tokens"]
        self.assertGreaterEqual(room, 0)
        self.assertLess(room, 120 * r["block_size"])
        self.assertGreater(r["unfinished"], 0)

    def test_same_as_replay(self):
        """Decisions, and all counts that others see, are those of the replay that nobody watches."""
        wanted = report(QUIRE, *SMALL, self.trace)
        with Serving(QUIRE, "--speed", "max", "--hold", "--json", self.path("r.json"), *SMALL,
                     self.trace) as it:
            until(it.has_ended, "the end of the trace")
            r = self.read_report("r.json")
            self.assertEqual(r["made_by"]["command"], "serve")
            for key in ("wall_s", "speed_factor", "made_by"):
                del r[key], wanted[key]
            self.assertEqual(r, wanted)
            m = it.metrics()
            step = json.loads(it.get("/snapshot?limit=1000")[1])
            health = it.get("/healthz")
            page = it.get("/")
            status, text = it.interrupt()
        self.assertGreater(r["preemptions"], 0)
        for name, key in (("prompt_tokens_total", "prompt_tokens"),
                          ("generation_tokens_total", "output_tokens"),
                          ("prefix_cache_hits_total", "hit_tokens"),
                          ("num_preemptions_total", "preemptions")):
            self.assertEqual(m["vllm:" + name], r[key], name)
        self.assertEqual(m['quire_requests_finished_total{finished_reason="length"}'], r["requests"])
        for name, key in (("time_to_first_token_seconds", "ttft_ms"),
                          ("e2e_request_latency_seconds", "e2e_ms"),
                          ("request_queue_time_seconds", "queue_ms")):
            self.assertEqual(m[f"vllm:{name}_count"], r["requests"])
            self.assertAlmostEqual(m[f"vllm:{name}_sum"], r[key]["mean"] * r["requests"] / 1000, 3)
        last = dict(zip(step["columns"], step["steps"][-1]))
        for key in ("empty", "cached", "active"):
            self.assertEqual(m[f'quire_blocks{{tier="gpu",medium="GPU",state="{key}"}}'], r["blocks"][key])
            self.assertEqual(last[key], r["blocks"][key])
        self.assertEqual(health[0], 200)
        self.assertEqual(page[0], 200)
        self.assertIn("<html", page[1])
        self.assertEqual(status, 0)
        self.assertIn("120 requests", text)
        self.assertNotIn("--why", text)
        self.assertEqual((r["ended_by"], r["unfinished"]), ("trace", 0))

    def test_pace(self):
        """Simulated time is never ahead of real time, and the same comes out."""
        speed = 10
        said = run(QUIRE, "serve", "--listen", "127.0.0.1:0", "--speed", str(speed), "--json",
                   self.path("paced.json"), *SMALL, self.trace)
        r, wanted = self.read_report("paced.json"), report(QUIRE, *SMALL, self.trace)
        self.assertGreater(r["wall_s"], 0.99 * r["simulated_s"] / speed)
        same = {"wall_s": 0, "speed_factor": 0, "made_by": None}
        self.assertEqual({**r, **same}, {**wanted, **same})
        factor = re.search(r": ([\d.]+) times as fast", said)[1]
        self.assertAlmostEqual(float(factor), r["speed_factor"], delta=0.51 if "." not in factor else 0.051)

    def test_interrupted(self):
        for number, word in ((signal.SIGINT, "interrupt"), (signal.SIGTERM, "terminated")):
            with Serving(QUIRE, "--speed", "5", "--json", self.path("part.json"), self.trace) as it:
                until(lambda: it.metrics()["quire_steps_total"] > 20, "steps")
                status, text = it.interrupt(number)
            self.assertEqual(status, 0)
            self.assertIn("ed: this is the report so far", text)
            r = self.read_report("part.json")
            self.assertLess(r["requests"], 120)
            self.assertGreater(r["steps"], 20)
            self.assertEqual(r["ended_by"], word)
            self.check_prefix_counts(r)

    def test_max_steps(self):
        limit = ("--max-steps", "60", self.trace)
        r = report(QUIRE, *limit)
        self.assertEqual((r["ended_by"], r["steps"]), ("max_steps", 60))
        self.check_prefix_counts(r)
        self.assertIn("Ended by --max-steps: this is the report so far", run(QUIRE, "replay", *limit))

    def test_loop(self):
        once = report(QUIRE, self.trace)
        with Serving(QUIRE, "--speed", "max", "--loop", "--json", self.path("loop.json"),
                     self.trace) as it:
            until(lambda: it.metrics()["quire_requests_added_total"] > 370, "a fourth round")
            m = it.metrics()
            status, text = it.interrupt()
        self.assertEqual(status, 0)
        self.assertRegex(text, r"The trace was replayed \d+ times")
        r = self.read_report("loop.json")
        self.assertGreater(r["requests"], 300)
        # every round begins with an empty cache, and has the hits of the first
        rate = m["vllm:prefix_cache_hits_total"] / m["vllm:prefix_cache_queries_total"]
        self.assertLess(rate, once["hit_rate"] + 0.02)

    def test_loop_with_tiers(self):
        """Each round begins with empty tiers, a shared one among them."""
        with Serving(QUIRE, "--speed", "max", "--loop", "--cpu-blocks", "200", "--file-tier", "1G",
                     "--redis", "1G", "--tier-failures", "0.02", self.trace) as it:
            until(lambda: it.metrics()["quire_requests_added_total"] > 370, "a fourth round")
            status, text = it.interrupt()
        self.assertEqual(status, 0, text)
        self.assertIn("--redis", run(QUIRE, "serve", "--loop", "--real-tiers", "--cpu-blocks", "200",
                                     "--redis", "127.0.0.1:1", self.trace, status=2))

    def test_token(self):
        token = "a-token-of-some-length"
        with Serving(QUIRE, "--speed", "max", "--hold", "--token-file",
                     write_private(self.path("token"), token + "\n"), self.trace) as it:
            self.assertIn("the first line of", it.process.stdout.readline())
            self.assertEqual(it.get("/metrics")[0], 401)
            self.assertEqual(it.get("/metrics", Authorization="Bearer " + token)[0], 200)
            self.assertEqual(it.get("/metrics", Host="evil.example",
                                    Authorization="Bearer " + token)[0], 421)
            _, text = it.interrupt()
            self.assertNotIn(token, text + it.said())

    def test_hosts(self):
        with Serving(QUIRE, "--speed", "max", "--hold", "--host", "aa.example,bb.example", "--host",
                     "cc.example", self.trace) as it:
            for name in ("aa.example", "bb.example", "cc.example"):
                self.assertEqual(it.get("/healthz", Host=name)[0], 200)
            self.assertEqual(it.get("/healthz", Host="dd.example")[0], 421)

    def test_file_that_cannot_be(self):
        """It is told at the start, not at the end; what a file has stays until then."""
        said = run(QUIRE, "serve", "--listen", "127.0.0.1:0", "--loop", "--json",
                   self.path("nosuch/r.json"), self.trace, status=1)
        self.assertIn("--json: ", said)
        kept = write_private(self.path("kept.json"), "{}" + " " * 100000)
        run(QUIRE, "serve", "--listen", "0.0.0.0:0", "--json", kept, self.trace, status=2)
        self.assertEqual(self.read_report("kept.json"), {})
        run(QUIRE, "serve", "--listen", "127.0.0.1:0", "--speed", "max", "--json", kept, self.trace)
        self.assertEqual(self.read_report("kept.json")["requests"], 120)

    def test_wrong_calls(self):
        with open(self.path("open"), "w", encoding="utf-8") as file:
            file.write("a-token-of-some-length\n")
        os.chmod(self.path("open"), 0o644)
        key = write_private(self.path("key"), "too short\n")
        publish = ("--events", "tcp://127.0.0.1:*")
        for args, words in (
                (("--speed", "fast"), 'invalid value "fast" for --speed'),
                (("--speed", "-1"), 'invalid value "-1"'),
                (("--sped", "1"), "did you mean --speed?"),
                (("--listen", "8080"), "ADDRESS:PORT"),
                (("--listen", "::1:80"), "[::1]:0"),
                (("--listen", "127.0.0.1:70000"), '"127.0.0.1:70000"'),
                (("--token-file", self.path("open")), "chmod 600"),
                (("--token-file", self.path("none")), "No such file"),
                (("--replay-events", "tcp://127.0.0.1:*"), "--events ENDPOINT"),
                ((*publish, "--curve-secret-file", key), "40 characters"),
                ((*publish, "--curve-clients-file", key), "--curve-secret-file"),
                (("--event-form", "xml"), "array or map"),
                (("--event-form", "map"), "--event-form needs --events ENDPOINT"),
                (("--event-tokens",), "--event-tokens needs --events ENDPOINT"),
                (("--topic", "t"), "--topic needs --events ENDPOINT"),
                (("--event-ring", "1Mi"), "--event-ring needs --events ENDPOINT"),
                ((*publish, "--event-ring", "8Ki"), "expected 16384.."),
                (("--events", "tcp://127.0.0.1:5557", "--replay-events", "tcp://127.0.0.1:5557"),
                 "need different endpoints"),
                (("--host", "a,,b"), "a name is empty"),
                (("--listen", "127.0.0.1:0", "--host", "http://a"), "--host: "),
                (("--loop", "--max-steps", "3"), "--max-steps")):
            self.assertIn(words, run(QUIRE, "serve", *args, self.trace, status=2), args)
        self.assertIn("expected a TRACE", run(QUIRE, "serve", status=2))
        self.assertIn("cannot be used with standard input", run(QUIRE, "serve", "--loop", "-", status=2))

    def test_addresses_that_cannot_be(self):
        with Serving(QUIRE, "--speed", "max", "--hold", self.trace) as it:
            taken = it.page.split("/")[2]
            said = run(QUIRE, "serve", "--listen", taken, self.trace, status=1)
            self.assertIn(taken.split(":")[1], said)
            self.assertIn("--listen: ", said)
        free = ("--listen", "127.0.0.1:0")
        self.assertIn("No such file", run(QUIRE, "serve", *free, self.path("none"), status=1))
        local = ("--events", "tcp://127.0.0.1:*")
        for args, name, remedy in (
                (("--listen", "0.0.0.0:0"), "--listen", "--token-file"),
                ((*free, "--events", "tcp://0.0.0.0:5557"), "--events", "--curve-secret-file"),
                ((*free, *local, "--replay-events", "tcp://0.0.0.0:5557"), "--replay-events",
                 "--curve-secret-file")):
            said = run(QUIRE, "serve", *args, self.trace, status=2)
            self.assertTrue(said.startswith(f"quire serve: {name}: "), said)
            self.assertIn("0.0.0.0", said)
            self.assertIn(remedy, said)
        for args in (("--events", "no such endpoint"), (*local, "--replay-events", "no such endpoint")):
            said = run(QUIRE, "serve", *free, *args, self.trace, status=2)
            self.assertIn(f"{args[-2]}: invalid address 'no such endpoint'", said)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    if "was built without it" in run(QUIRE, "serve", "x", status=1):
        print("skipped: quire serve is not built", file=sys.stderr)
        sys.exit(77)
    unittest.main()
