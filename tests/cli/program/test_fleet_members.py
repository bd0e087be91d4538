#!/usr/bin/env python3
"""`quire fleet` when workers fail, and are added and removed: each request ends once, all adds up,
and small cases by hand.

    tests/cli/program/test_fleet_members.py QUIRE
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
APART = ("--pool", "prefill:1", "--pool", "decode:1")
REASONS = ("partial", "last_token", "not_ready", "evicted", "wrong_worker", "stale_view")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def read(path):
    with open(path) as file:
        return file.read()


class Members(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, *requests):
        """A trace in Mooncake's format: (time in s, prompt tokens, output tokens, ids)."""
        with open(self.path("trace"), "w", encoding="utf-8") as file:
            for time, tokens, outputs, ids in requests:
                file.write(json.dumps({"timestamp": int(time * 1000), "input_length": tokens,
                                       "output_length": outputs, "hash_ids": ids}) + "\n")
        return self.path("trace")

    def generate(self, *args):
        run("generate", "mixed", "--out", self.path("mixed.jsonl"), *args)
        return self.path("mixed.jsonl")

    def fleet(self, *args):
        """The report and the rows, after the checks that hold for every run; with 1 and 2
        threads."""
        texts = []
        for threads in ("1", "2"):
            run("fleet", "--quiet", "--deterministic", "--threads", threads, "--json",
                self.path("j"), "--csv", self.path("c"), *args)
            texts.append(read(self.path("j")) + read(self.path("c")))
        self.assertTrue(texts[0] == texts[1], args)
        r = json.loads(read(self.path("j")))
        rows = list(csv.DictReader(read(self.path("c")).splitlines()))
        self.check(r, rows)
        return r, rows

    def check(self, r, rows):
        self.assertEqual(len({row["request"] for row in rows}), len(rows))
        self.assertEqual(r["requests"], len(rows))
        self.assertEqual(r["unfinished"], 0)
        self.assertEqual(r["output_tokens"], sum(int(row["output_tokens"]) for row in rows))
        self.assertEqual(r["prompt_tokens"], sum(int(row["prompt_tokens"]) for row in rows))
        lost = r["losses"]
        self.assertEqual(r["ideal_tokens"], r["hit_tokens"] - lost["beyond_ideal_tokens"] +
                         sum(lost[f"{reason}_tokens"] for reason in REASONS))
        for row in rows:
            times = [float(row[key]) for key in ("arrival_s", "scheduled_s", "first_token_s",
                                                 "end_s")]
            self.assertEqual(times, sorted(times), row)
        for key in ("requests", "prompt_tokens", "output_tokens", "hit_tokens"):
            self.assertEqual(r[key], sum(w[key] for w in r["fleet"]["workers"]), key)
        for w in r["fleet"]["workers"]: # steps that a crash cut off count to the crash
            self.assertLessEqual(w["busy_s"], r["simulated_s"] + 1e-6)
        seconds = r["fleet"].get("seconds")
        if seconds is not None:
            self.assertEqual(sum(seconds["ends"]), r["requests"])
            self.assertEqual(sum(seconds["first_tokens"]), r["requests"])
            self.assertEqual(sum(seconds["output_tokens"]), r["output_tokens"])
            self.assertEqual(len({len(column) for column in seconds.values()}), 1)

    # ---- crashes ------------------------------------------------------------------

    def test_one_of_sixteen_crashes(self):
        trace = self.generate("--requests", "800", "--rate", "60")
        _, plain = self.fleet("--workers", "16", trace)
        for router, restart in (("round-robin", ",restart=2"), ("least-loaded", ""), ("dynamo-kv", ""),
                                ("dynamo-kv", ",restart=2"), ("llm-d", ",restart=2")):
            with self.subTest(router=router, restart=restart):
                r, rows = self.fleet("--workers", "16", "--router", router, "--fail",
                                     f"crash:worker=3,at=5{restart}", trace)
                self.assertEqual(len(rows), len(plain))
                f = r["fleet"]["failures"]
                crash, = f["crashes"]
                back = [row for row in rows if row["times_back"] != "0"]
                self.assertEqual(len(back), crash["interrupted"] + crash["queued"])
                self.assertGreater(len(back), 0)
                self.assertEqual(sum(r["fleet"]["seconds"]["back"]), len(back))
                self.assertGreater(crash["lost_tokens"], 0)
                self.assertLessEqual(f["recomputed_tokens"], f["lost_tokens"])
                ready = r["fleet"]["seconds"]["ready"]
                self.assertEqual(ready[4:9], [16, 15, 15, 16, 16] if restart else [16] + 4 * [15])
                for row in rows: # none of worker 3 runs over the crash
                    if row["worker"] == "3":
                        self.assertTrue(float(row["end_s"]) <= 5 or
                                        float(row["end_s"]) > 7 and restart, row)

    def test_a_crash_by_hand(self):
        """Two requests with a prefix of 1,024 tokens at two workers. Worker 0 crashes at 1 s, and
        its request goes to worker 1, which has the prefix."""
        trace = self.write((0, 1536, 1000, [1, 2, 3]), (0, 1536, 1000, [1, 2, 4]),
                           (30, 1536, 2, [1, 2, 3]), (31, 1536, 2, [1, 2, 3]))
        args = ("--workers", "2", trace)
        _, plain = self.fleet(*args)
        before = next(row for row in plain if row["request"] == "1")
        r, rows = self.fleet("--fail", "crash:worker=0,at=1,restart=2", *args)
        rows = {row["request"]: row for row in rows}
        f = r["fleet"]["failures"]
        crash, = f["crashes"]
        self.assertEqual((crash["worker"], crash["at_s"], crash["ready_s"]), (0, 1, 3))
        self.assertEqual((crash["interrupted"], crash["queued"]), (1, 0))
        # tokens whose KV is lost: its prompt, and one for each step after the first token
        steps = (1 - float(before["first_token_s"])) / (float(before["tpot_ms"]) * 1e-3)
        self.assertAlmostEqual(crash["lost_tokens"], 1536 + steps, delta=2)
        self.assertEqual(f["recomputed_tokens"], crash["lost_tokens"] - 1024)
        moved = rows["1"]
        self.assertEqual((moved["worker"], moved["times_back"], moved["output_tokens"]),
                         ("1", "1", "1000"))
        self.assertEqual(moved["first_token_s"], before["first_token_s"]) # the user had it then
        self.assertGreater(float(moved["end_s"]), 1 + float(before["end_s"]) * 0.99)
        self.assertEqual(rows["2"]["times_back"], "0")
        self.assertGreater(crash["resumed_after_s"], 0)
        self.assertLess(crash["resumed_after_s"], 0.2)
        # the cache of worker 0 is cold after it, that of worker 1 is not: 1,520 of 1,536 tokens
        late = {rows[i]["worker"]: rows[i]["hit_tokens"] for i in ("3", "4")}
        self.assertEqual(late, {"0": "0", "1": "1520"})

    def test_a_step_in_flight_ends_at_the_crash(self):
        trace = self.write((0, 32768, 2, list(range(64))), (0, 100, 2, [99]))
        args = ("--workers", "2", "--fail", "crash:worker=0,at=0.1,restart=100", trace)
        r, rows = self.fleet(*args)
        self.assertAlmostEqual(r["fleet"]["workers"][0]["busy_s"], 0.1, places=9)
        self.assertEqual({row["worker"] for row in rows}, {"1"})
        r, _ = self.fleet("--async-scheduling", *args)
        self.assertAlmostEqual(r["fleet"]["workers"][0]["busy_s"], 0.1, places=9)

    def test_at_the_very_time(self):
        """A request that comes when its worker crashes goes to another one, and one that comes when
        a worker is ready may go there."""
        trace = self.write((0, 100, 2, [1]), (5, 100, 2, [2]), (6, 100, 2, [3]), (7, 100, 2, [4]),
                           (8, 100, 2, [5]))
        _, rows = self.fleet("--workers", "2", "--fail", "crash:worker=1,at=5,restart=2", trace)
        rows = {row["request"]: row["worker"] for row in rows}
        self.assertEqual([rows[i] for i in "123"], ["0", "0", "0"])
        self.assertEqual(sorted(rows[i] for i in "45"), ["0", "1"])

    def test_all_workers_are_down(self):
        trace = self.write((0, 100, 2, [1]), (6, 100, 2, [2]))
        fail = ("--fail", "crash:worker=0,at=5,restart=20", "--fail", "crash:worker=1,at=5")
        _, rows = self.fleet("--workers", "2", *fail, trace)
        self.assertGreater(float(rows[1]["first_token_s"]), 25)
        self.assertLess(float(rows[1]["first_token_s"]), 25.5)
        said = run("fleet", "--workers", "2", "--fail", "crash:worker=0,at=5", "--fail",
                   "crash:worker=1,at=5", trace, status=1)
        self.assertIn("1 requests wait in the router, and all workers are off (restart=S", said)

    def test_crashes_at_random(self):
        trace = self.generate("--requests", "400", "--rate", "20")
        args = ("--workers", "4", "--mtbf", "30", "--mtbf-restart", "3", "--num-gpu-blocks", "6000",
                "--skip-bad", trace)
        for more in ((), ("--async-scheduling",), ("--router", "dynamo-kv", "--kv-lag", "50"),
                     ("--scheduling-policy", "priority"), ("--max-num-seqs", "3")):
            r, _ = self.fleet(*more, *args)
            crashes = r["fleet"]["failures"]["crashes"]
            self.assertGreater(len(crashes), 5)
            self.assertGreater(len({c["worker"] for c in crashes}), 2)
            times = [c["at_s"] for c in crashes]
            self.assertEqual(times, sorted(times))
        other, _ = self.fleet("--seed", "2", *args)
        self.assertNotEqual(other["fleet"]["failures"]["crashes"][0]["at_s"], crashes[0]["at_s"])

    def test_a_request_that_never_ends(self):
        trace = self.write((0, 1024, 3000, [1, 2]))
        said = run("fleet", "--workers", "2", "--mtbf", "0.1", "--mtbf-restart", "0.1", trace, status=1)
        self.assertIn("request 1 was at 1000 workers that crashed", said)

    def test_rerun(self):
        trace = self.generate("--requests", "60", "--rate", "20")
        run("fleet", "--quiet", "--deterministic", "--workers", "2", "--fail",
            "crash:worker=1,at=2,restart=1", "--fail", "slow:worker=0,from=1,to=3,factor=2", "--scale",
            "hpa:target=4,max=5,startup=1", "--json", self.path("one"), trace)
        run("rerun", self.path("one"), "--quiet", "--threads", "1", "--json", self.path("other"))
        one, other = [json.loads(read(self.path(name))) for name in ("one", "other")]
        self.assertEqual(len(one["made_by"]["options"]["fail"]), 2)
        self.assertEqual(one, other)
        run("rerun", self.path("one"), "--quiet", "--fail", "gap:worker=1,from=1", "--json",
            self.path("new"))  # it replaces both
        new = json.loads(read(self.path("new")))
        self.assertEqual(new["made_by"]["options"]["fail"], ["gap:worker=1,from=1"])
        self.assertEqual(new["fleet"]["failures"]["crashes"], [])

    # ---- other failures -------------------------------------------------------------

    def test_a_slow_worker(self):
        trace = self.write((0, 512, 200, [1]), (20, 512, 200, [2]), (60, 512, 200, [3]))
        fail = "slow:worker={},from=10,to=50,factor=4"
        rows = [self.fleet("--workers", "2", "--router", "session", "--fail", fail.format(w), trace)[1]
                for w in (0, 1)]
        one, other = [{row["request"]: row for row in of} for of in rows]
        for i in ("1", "3"): # before and after
            self.assertEqual(one[i]["tpot_ms"], other[i]["tpot_ms"])
        slow, fast = (one, other) if one["2"]["worker"] == "0" else (other, one)
        self.assertAlmostEqual(float(slow["2"]["tpot_ms"]), 4 * float(fast["2"]["tpot_ms"]), delta=0.01)

    def test_lost_events(self):
        trace = self.generate("--requests", "400", "--rate", "20")
        args = ("--workers", "3", "--router", "dynamo-kv", "--num-gpu-blocks", "6000", "--skip-bad",
                trace)
        plain, _ = self.fleet(*args)
        for kind in ("gap", "partition"):
            r, _ = self.fleet("--fail", f"{kind}:worker=0,from=2,to=8", *args)
            self.assertGreater(r["fleet"]["failures"]["lost_batches"], 0)
            self.assertEqual(r["fleet"]["views"]["lost_batches"],
                             r["fleet"]["failures"]["lost_batches"])
            self.assertEqual(r["fleet"]["views"]["gaps"], 1)
            self.assertEqual(r["fleet"]["failures"]["crashes"], [])
        # a gap that loses nothing changes nothing, though routers have an index of events then
        empty, _ = self.fleet("--fail", "gap:worker=0,from=1e8,to=1e9", *args)
        for key in ("requests", "hit_tokens", "simulated_s", "losses", "ttft_ms"):
            self.assertEqual(plain[key], empty[key], key)

    def test_loads_of_a_partition_stay_as_they_were(self):
        """Worker 0 is busy from its first request on; a router that hears its loads avoids it, and
        one that does not takes it for idle."""
        trace = self.write(*((0.5 * i, 4096, 400, list(range(10 * i, 10 * i + 8)))
                             for i in range(60)))
        args = ("--workers", "3", "--router", "llm-d", "--max-num-seqs", "2", trace)
        plain, _ = self.fleet(*args)
        cut, _ = self.fleet("--fail", "partition:worker=0,from=0,to=30", *args)
        routed = [r["fleet"]["workers"][0]["routed"] for r in (plain, cut)]
        self.assertGreater(routed[1], routed[0] + 5)

    # ---- autoscaling ------------------------------------------------------------------

    def test_a_schedule_by_hand(self):
        """One worker, from 10 s on three that are ready at 15 s, from 20 s on one: two workers cost
        ten seconds each."""
        trace = self.write(*((i, 100, 2, [i]) for i in range(30)))
        r, rows = self.fleet("--workers", "1", "--gpu-cost", "36", "--scale",
                             "schedule:0=1,10=3,20=1,max=3,startup=5,interval=1,down-window=0", trace)
        f = r["fleet"]
        self.assertEqual((f["scaling"]["added"], f["scaling"]["removed"]), (2, 2))
        self.assertEqual((f["scaling"]["most_ready"], f["scaling"]["ready_at_end"]), (3, 1))
        self.assertAlmostEqual(f["cost"]["gpu_hours"], (r["simulated_s"] + 20) / 3600, places=9)
        self.assertAlmostEqual(f["cost"]["price"], 36 * f["cost"]["gpu_hours"], places=9)
        self.assertEqual(f["seconds"]["ready"], 15 * [1] + 5 * [3] + 10 * [1])
        self.assertEqual(f["seconds"]["starting"], 10 * [0] + 5 * [2] + 15 * [0])
        used = {row["worker"] for row in rows if 15 <= float(row["arrival_s"]) < 20}
        self.assertEqual(used, {"0", "1", "2"})
        self.assertEqual({row["worker"] for row in rows if float(row["arrival_s"]) < 15}, {"0"})

    def test_a_worker_that_starts_in_no_time(self):
        """From 10 s on three workers, which are ready at 10 s; no other event is near."""
        trace = self.write(*((2.5 * i, 100, 2, [i]) for i in range(10)))
        r, rows = self.fleet("--workers", "1", "--scale", "schedule:0=1,10=3,max=3,startup=0,"
                             "interval=1", trace)
        self.assertEqual(r["fleet"]["seconds"]["ready"][8:12], [1, 1, 3, 3])
        self.assertEqual(set(r["fleet"]["seconds"]["starting"]), {0})
        self.assertEqual({row["worker"] for row in rows if float(row["arrival_s"]) > 10},
                         {"0", "1", "2"})
        self.assertAlmostEqual(r["fleet"]["cost"]["gpu_hours"],
                               (3 * r["simulated_s"] - 20) / 3600, places=9)

    def test_gpus_of_a_worker_cost_each(self):
        trace = self.write((0, 100, 2, [1]))
        one = self.fleet("--workers", "3", "--gpu-cost", "1", trace)[0]
        self.assertAlmostEqual(one["fleet"]["cost"]["price"], 3 * one["simulated_s"] / 3600, places=9)
        two = self.fleet("--workers", "3", "--gpu-cost", "1", "--tp", "2", trace)[0]
        self.assertAlmostEqual(two["fleet"]["cost"]["price"], 6 * two["simulated_s"] / 3600, places=9)

    def test_draining(self):
        """Worker 1 is removed at 1 s, with one request that runs and three that wait."""
        trace = self.write(*((0, 100, 400, [i]) for i in range(8)))
        args = ("--workers", "2", "--max-num-seqs", "1", "--scale")
        scale = "schedule:0=2,1=1,max=2,interval=1,down-window=0,hand-over={}"
        kept, rows = self.fleet(*args, scale.format(0), trace)
        self.assertEqual(sorted(row["worker"] for row in rows), 4 * ["0"] + 4 * ["1"])
        self.assertEqual(kept["fleet"]["scaling"]["handed_over"], 0)
        self.assertEqual({row["times_back"] for row in rows}, {"0"})
        given, rows = self.fleet(*args, scale.format(1), trace)
        self.assertEqual(sorted(row["worker"] for row in rows), 7 * ["0"] + ["1"])
        self.assertEqual(given["fleet"]["scaling"]["handed_over"], 3)
        self.assertEqual(sum(int(row["times_back"]) for row in rows), 3)
        # a draining worker costs until its last request ends, and no longer
        for r, of in ((kept, None), (given, rows)):
            ends = [float(row["end_s"]) for row in of or [] if row["worker"] == "1"]
            if ends:
                self.assertAlmostEqual(r["fleet"]["cost"]["gpu_hours"],
                                       (r["simulated_s"] + max(ends)) / 3600, places=8)
        self.assertLess(given["fleet"]["cost"]["gpu_hours"], 2 * given["simulated_s"] / 3600)

    def test_a_worker_that_returns_is_cold(self):
        trace = self.write((0, 1024, 2, [1, 2]), (0, 1024, 2, [1, 2]), (50, 1024, 2, [1, 2]),
                           (50, 1024, 2, [1, 2]))
        _, rows = self.fleet("--workers", "2", "--scale", "schedule:0=2,10=1,20=2,max=2,startup=5,"
                             "interval=1,down-window=0", trace)
        late = {row["worker"]: row["hit_tokens"] for row in rows if float(row["arrival_s"]) > 1}
        self.assertEqual(late, {"0": "1008", "1": "0"})

    def test_policies(self):
        trace = self.generate("--requests", "500", "--rate", "40")
        for policy in ("queue:requests=4", "slo:ttft=0.2,tpot=0.02", "hpa:target=4"):
            for more in ((), ("--mtbf", "60", "--mtbf-restart", "5", "--router", "dynamo-kv")):
                r, _ = self.fleet("--workers", "1", "--scale", f"{policy},max=6,startup=2,interval=1,"
                                  "down-window=5,hand-over=1", *more, trace)
                self.assertGreater(r["fleet"]["scaling"]["added"], 0, policy)
                self.assertGreater(r["fleet"]["scaling"]["removed"], 0, policy)
                self.assertLess(r["fleet"]["cost"]["gpu_hours"], 6 * r["simulated_s"] / 3600)

    # ---- with pools, and files ---------------------------------------------------------

    def test_a_crash_in_a_pool(self):
        """The worker of the other pool goes on; the files show where requests went."""
        trace = self.generate("--requests", "200", "--rate", "40")
        r, rows = self.fleet("--pool", "serve:2", "--pool", "serve:1:tp=2", "--fail",
                             "crash:worker=1,at=2,restart=1", "--gpu-cost", "1", "--html",
                             self.path("h"), "--perfetto", self.path("p"), trace)
        self.assertEqual(len(rows), 200)
        self.assertEqual(len(r["fleet"]["failures"]["crashes"]), 1)
        self.assertGreater(sum(int(row["times_back"]) for row in rows), 0)
        self.assertEqual(r["fleet"]["cost"]["gpus"], 4)
        self.assertAlmostEqual(r["fleet"]["cost"]["price"], 4 * r["simulated_s"] / 3600, places=9)
        bins = r["fleet"]["history"]["bins"]
        for key in ("prompt_tokens", "output_tokens", "hit_tokens", "believed_tokens"):
            whole = r["fleet"][key] if key == "believed_tokens" else r[key]
            self.assertEqual(sum(bins[key]), whole, key)
        with open(self.path("p"), encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
        for pid in (1, 2, 3):
            counts = [e["args"] for e in events if e["ph"] == "C" and e["pid"] == pid]
            self.assertEqual(counts[-1], {"running": 0, "waiting": 0})

    # ---- the report, refusals ---------------------------------------------------------

    def test_report(self):
        trace = self.generate("--requests", "200", "--rate", "40")
        text = run("fleet", "--workers", "4", "--fail", "crash:worker=1,at=2,restart=1", "--gpu-cost",
                   "2", "--scale", "hpa:target=4,max=5,startup=1,interval=1", trace)
        for line in ("Failures: 1 crashes", "worker 1 at 2.0 s:", "tokens lost", "Autoscaling: ",
                     "; price "):
            self.assertIn(line, text)
        plain = run("fleet", "--workers", "4", trace)
        for line in ("Failures", "Autoscaling", "price"):
            self.assertNotIn(line, plain)

    def test_refusals(self):
        trace = self.write((0, 100, 2, [1]))
        for args, said in (
                (("--fail", "crash:worker=4,at=1"), "--fail: invalid value \"4\" for worker of crash "
                 "(expected a whole number from 0 to 3)"),
                (("--fail", "flood:worker=1"), "expected crash, slow, partition, gap or tier"),
                (("--workers", "1", "--fail", "crash:worker=0,at=1"), "--fail needs --workers 2"),
                (("--workers", "1", "--mtbf", "5"), "--mtbf needs --workers 2"),
                (("--mtbf", "1e-9"), "invalid value \"1e-09\" for --mtbf (expected 0, or 0.001.."),
                (("--mtbf", "-1"), "--mtbf"), (("--gpu-cost", "-1"), "--gpu-cost"),
                (("--fail", "crash:worker=0,at=1", "--cpu-blocks", "100"), "--fail cannot be used"),
                (("--scale", "queue:requests=2,max=3"), "--workers is 4 (expected 1 to 3"),
                (("--workers", "1", "--scale", "queue:requests=2,max=1"), "invalid value \"1\" for max"),
                (("--scale", "queue:max=8"), "--scale: queue needs requests=VALUE"),
                (("--scale", "hpa:target=2,max=70000"), "65535"),
                (("--scale", "hpa:target=2,max=8", "--trace", self.path("h")), "--trace needs"),
                ((*APART, "--fail", "crash:worker=2,at=1"), "--fail: invalid value \"2\" for worker"),
                (("--pool", "serve:4", "--scale", "hpa:target=2,max=8"), "cannot be used with --pool")):
            with self.subTest(args=args):
                self.assertIn(said, run("fleet", *args, trace, status=2))


if __name__ == "__main__":
    QUIRE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
