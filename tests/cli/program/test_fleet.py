#!/usr/bin/env python3
"""`quire fleet` from outside: one worker is `quire replay`, threads change nothing, all adds up.

    tests/cli/program/test_fleet.py QUIRE TRACES

TRACES: a folder with public traces; tests that need one are skipped where it is not there.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

QUIRE = TRACES = ""


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def read(path, mode="r"):
    with open(path, mode) as file:
        return file.read()


def without_record(text):
    """A result or a line without the options of the command that made it."""
    decoder = json.JSONDecoder()
    while True:
        found = re.search(r'"(made_by|options)":\s*', text)
        if found is None:
            return text
        _, end = decoder.raw_decode(text, found.end())
        text = text[:found.start()] + "[made by]" + text[end:]


class Fleet(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, *requests):
        """A trace in Mooncake's format: (time in s, prompt tokens, output tokens, ids)."""
        with open(self.path(name), "w", encoding="utf-8") as file:
            for time, tokens, outputs, ids in requests:
                file.write(json.dumps({"timestamp": int(time * 1000), "input_length": tokens,
                                       "output_length": outputs, "hash_ids": ids}) + "\n")
        return self.path(name)

    def generate(self, kind, *args):
        run("generate", kind, "--out", self.path(f"{kind}.jsonl"), *args)
        return self.path(f"{kind}.jsonl")

    def fleet(self, *args):
        return json.loads(run("fleet", "--quiet", "--deterministic", "--json", "-", *args))

    def rows(self, *args):
        run("fleet", "--quiet", "--csv", self.path("rows.csv"), *args)
        return list(csv.DictReader(read(self.path("rows.csv")).splitlines()))

    # ---- one worker -----------------------------------------------------------

    def check_one(self, *args, files=("json", "csv", "trace", "why", "perfetto")):
        texts = []
        for command in (("replay",), ("fleet", "--workers", "1", "--threads", "2")):
            out = [word for f in files for word in (f"--{f}", self.path(f))]
            printed = run(*command, "--deterministic", *out, *args)
            texts.append([printed] + [without_record(read(self.path(f))) for f in files])
        for name, one, other in zip(("report",) + files, *texts):
            self.assertTrue(len(one) > 100 or name == "why", name)
            self.assertTrue(one == other, f"{name} of {args} differs")

    def test_one_worker_is_a_replay(self):
        trace = self.generate("mixed", "--requests", "150", "--rate", "4")
        small = ("--num-gpu-blocks", "3000", "--skip-bad", trace)
        for args in ((), ("--async-scheduling",), ("--cpu-blocks", "6000"),
                     ("--swap-blocks", "2000"), ("--speed", "40"), ("--clock", "burst"),
                     ("--clock", "serial"), ("--scheduling-policy", "priority"),
                     ("--profile", "vllm-0.32"), ("--max-num-seqs", "2", "--max-model-len", "2500"),
                     ("--slo", "ttft=1s", "--pin-ttl", "5", "--prefix-window", "8")):
            with self.subTest(args=args):
                self.check_one(*args, *small)

    def test_the_router_does_not_matter_for_one_worker(self):
        trace = self.generate("chat", "--requests", "60")
        plain = self.fleet("--workers", "1", trace)
        for router in ("least-loaded", "dynamo-kv", "llm-d", "oracle"):
            routed = self.fleet("--workers", "1", "--router", router, trace)
            for key in set(plain) - {"made_by"}:
                self.assertEqual(plain[key], routed[key], (router, key))

    def test_one_worker_on_public_traces(self):
        for name, *more in (("mooncake_conversation.jsonl.zst", "--max-requests", "1500"),
                            ("azure2023_conv.csv.zst", "--max-requests", "3000"),
                            ("claude_code_sessions.tar.zst", "--max-requests", "900")):
            if not os.path.exists(os.path.join(TRACES, name)):
                self.skipTest(f"{name} is not in {TRACES}")
            with self.subTest(name=name):
                self.check_one("--skip-bad", *more, os.path.join(TRACES, name),
                               files=("json", "csv"))

    def test_the_page_of_one_worker(self):
        trace = self.generate("chat", "--requests", "20")
        run("fleet", "--workers", "1", "--html", self.path("page"), trace)
        self.assertIn("</html>", read(self.path("page")))

    # ---- threads --------------------------------------------------------------

    def test_threads_change_nothing(self):
        trace = self.generate("mixed", "--requests", "300", "--rate", "20")
        for router in ("round-robin", "least-loaded", "dynamo-kv"):
            results = []
            for threads in ("1", "2", "8", "2"):
                run("fleet", "--quiet", "--deterministic", "--workers", "5", "--threads", threads,
                    "--router", router, "--json", self.path("j"), "--csv", self.path("c"),
                    "--num-gpu-blocks", "4000", "--skip-bad", trace)
                results.append(read(self.path("j")) + read(self.path("c")))
            for other in results[1:]:
                self.assertTrue(results[0] == other, router)

    # ---- what a router knows ------------------------------------------------------

    def test_caches_and_their_events_say_the_same(self):
        """Without lag a router asks the real caches; with lag it has an index made of KV events."""
        trace = self.generate("mixed", "--requests", "400", "--rate", "30")
        rows = []
        for lag in ("0", "1e-9", "3000"):
            run("fleet", "--quiet", "--workers", "4", "--router", "dynamo-kv", "--kv-lag", lag,
                "--num-gpu-blocks", "4000", "--skip-bad", "--csv", self.path("rows"), trace)
            rows.append(read(self.path("rows")))
        self.assertTrue(rows[0] == rows[1])
        self.assertFalse(rows[0] == rows[2])

    def test_what_the_router_believed(self):
        """A lost removal is believed for ever: the tokens are lost to a stale view."""
        trace = self.generate("mixed", "--requests", "400", "--rate", "30")
        knows, misses = (self.fleet("--workers", "4", "--router", "dynamo-kv", "--kv-loss", loss,
                                    "--num-gpu-blocks", "3000", "--skip-bad", trace)
                         for loss in ("0", "0.3"))
        for r in (knows, misses):
            self.check_sums(r)
        self.assertEqual(knows["fleet"]["views"]["lost_batches"], 0)
        self.assertGreater(misses["fleet"]["views"]["lost_batches"], 0)
        self.assertGreater(misses["losses"]["stale_view_tokens"],
                           knows["losses"]["stale_view_tokens"])

    def test_rerun(self):
        trace = self.generate("chat", "--requests", "60")
        run("fleet", "--quiet", "--deterministic", "--workers", "3", "--router", "dynamo-kv",
            "--json", self.path("one"), trace)
        run("rerun", self.path("one"), "--quiet", "--threads", "1", "--json", self.path("other"))
        self.assertEqual(read(self.path("one")), read(self.path("other")))

    # ---- all adds up ------------------------------------------------------------

    def check_sums(self, r):
        lost = r["losses"]
        reasons = ("partial", "last_token", "not_ready", "evicted", "wrong_worker", "stale_view")
        self.assertEqual(r["ideal_tokens"],
                         r["hit_tokens"] - lost["beyond_ideal_tokens"] +
                         sum(lost[f"{reason}_tokens"] for reason in reasons))
        workers = r["fleet"]["workers"]
        self.assertEqual([w["worker"] for w in workers], list(range(len(workers))))
        for key in ("requests", "prompt_tokens", "output_tokens", "hit_tokens", "steps",
                    "preemptions"):
            self.assertEqual(r[key], sum(w[key] for w in workers), key)

    def test_sums(self):
        trace = self.generate("mixed", "--requests", "250", "--rate", "30")
        for router in ("round-robin", "random", "session", "dynamo-kv", "sgl-cache-aware"):
            for pool in ("3000", "20000"):
                r = self.fleet("--workers", "4", "--router", router, "--num-gpu-blocks", pool,
                               "--skip-bad", trace)
                self.check_sums(r)
                self.assertEqual(r["unfinished"], 0)

    def test_each_request_once(self):
        trace = self.generate("mixed", "--requests", "200", "--rate", "30")
        rows = self.rows("--workers", "3", "--num-gpu-blocks", "9000", trace)
        self.assertEqual(sorted(int(row["request"]) for row in rows), list(range(1, 201)))
        ends = [(float(row["end_s"]), int(row["worker"])) for row in rows]
        self.assertEqual(ends, sorted(ends))
        for row in rows:
            times = [float(row[key]) for key in ("arrival_s", "scheduled_s", "first_token_s", "end_s")]
            self.assertEqual(times, sorted(times), row)

    def test_a_turn_waits_for_the_answer_of_another_worker(self):
        trace = self.generate("agent", "--requests", "150", "--rate", "10")
        rows = self.rows("--workers", "4", "--num-gpu-blocks", "9000", trace)
        ends = {(row["session"], int(row["turn"])): row for row in rows}
        moved = 0
        for (session, turn), row in ends.items():
            before = ends.get((session, turn - 1))
            if before is None:
                continue
            self.assertGreaterEqual(float(row["arrival_s"]), float(before["end_s"]) - 1e-6)
            moved += row["worker"] != before["worker"]
        self.assertGreater(moved, 10)

    # ---- losses, by hand ----------------------------------------------------------

    def two_by_two(self, router):
        """A prefix of 1,024 tokens, which the first request brings to worker 0; the second request
        comes when it is computed, the third when the second has ended."""
        trace = self.write("t", (0, 1536, 2, [1, 2, 3]), (10, 1536, 2, [1, 2, 4]),
                           (20, 1536, 2, [1, 2, 5]))
        return self.fleet("--workers", "2", "--router", router, trace)

    def test_lost_to_the_wrong_worker(self):
        r = self.two_by_two("round-robin") # workers 0, 1, 0
        self.assertEqual(r["ideal_tokens"], 2048)
        self.assertEqual(r["losses"]["wrong_worker_tokens"], 1024)
        self.assertEqual(r["hit_tokens"], 1024)

    def test_nothing_lost_with_a_router_that_knows(self):
        r = self.two_by_two("dynamo-kv")
        self.assertEqual(r["hit_tokens"], 2048)
        self.assertEqual(r["losses"]["wrong_worker_tokens"], 0)
        self.assertEqual(r["fleet"]["believed_tokens"], 2048)
        self.assertEqual([w["requests"] for w in r["fleet"]["workers"]].count(3), 1)

    def test_lost_to_eviction_at_the_same_worker(self):
        # a pool of 4,000 tokens: the prompt of 3,072 tokens between evicts the first one's blocks
        trace = self.write("t", (0, 1536, 2, [1, 2, 3]), (5, 512, 2, [9]),
                           (10, 3072, 2, [11, 12, 13, 14, 15, 16]), (15, 512, 2, [10]),
                           (20, 1536, 2, [1, 2, 3]))
        r = self.fleet("--workers", "2", "--num-gpu-blocks", "250", "--max-model-len", "3900", trace)
        self.check_sums(r)
        self.assertEqual(r["losses"]["wrong_worker_tokens"], 0)
        self.assertGreater(r["losses"]["evicted_tokens"], 0)

    def test_lost_because_not_ready(self):
        trace = self.write("t", (0, 8192, 2, list(range(1, 17))), (0, 8192, 2, list(range(1, 17))))
        r = self.fleet("--workers", "2", trace)
        self.check_sums(r)
        self.assertEqual(r["losses"]["not_ready_tokens"], 8192 - 16)
        self.assertEqual(r["losses"]["last_token_tokens"], 16)

    # ---- refusals -------------------------------------------------------------------

    def test_refusals(self):
        trace = self.generate("chat", "--requests", "5")
        for args, said in ((("--workers", "0"), "--workers"), (("--workers", "70000"), "65535"),
                           (("--threads", "0"), "--threads"), (("--threads", "257"), "256"),
                           (("--router", "nearest"), "nearest"),
                           (("--router", "dynamo-kv:no-such=1"), "no-such"),
                           (("--kv-loss", "1.5"), "--kv-loss"),
                           (("--max-steps", "5"), "--max-steps"),
                           (("--trace", self.path("h")), "--trace needs --workers 1"),
                           (("--real-tiers", "--cpu-blocks", "100"), "--real-tiers needs")):
            with self.subTest(args=args):
                self.assertIn(said, run("fleet", *args, trace, status=2))
        too_long = self.write("long", (0, 5000, 2, list(range(1, 11))))
        said = run("fleet", "--max-model-len", "4096", too_long, status=1)
        self.assertIn("prompt of 5000 tokens", said)
        r = self.fleet("--max-model-len", "4096", "--skip-bad", too_long)
        self.assertEqual((r["requests"], r["errors"]), (0, 1))


if __name__ == "__main__":
    QUIRE, TRACES = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
