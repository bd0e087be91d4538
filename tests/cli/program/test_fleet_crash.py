#!/usr/bin/env python3
"""`quire fleet` when engines crash that share a request or storage: pools for prefill and decode, a
shared tier, host memory of peers. Small cases to the microsecond, and random fleets in which all
adds up.

    tests/cli/program/test_fleet_crash.py QUIRE [SEEDS]
"""

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
SEEDS = 5
BLOCK = 2097152  # bytes of 16 tokens of llama-3.1-8b
LATENCY = 100e-6
SLOW = ("--node-bandwidth", "0.1")  # GB/s: 1,600 tokens move in 2.1 s
MOVED = LATENCY + 100 * BLOCK / 0.1e9


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def pools(num_prefill, num_decode, more=""):
    return ("--pool", f"prefill:{num_prefill}", "--pool", f"decode:{num_decode}{more}")


class Crash(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, *requests):
        """A trace of prompts: (time in s, prompt tokens, output tokens, first block id)."""
        with open(self.path("trace.jsonl"), "w", encoding="utf-8") as file:
            for time, tokens, outputs, first in requests:
                ids = list(range(first, first + (tokens + 511) // 512))
                file.write(json.dumps({"timestamp": int(time * 1000), "input_length": tokens,
                                       "output_length": outputs, "hash_ids": ids}) + "\n")
        return self.path("trace.jsonl")

    def read(self):
        with open(self.path("j"), encoding="utf-8") as file:
            report = json.load(file)
        with open(self.path("c"), encoding="utf-8") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: int(row["request"]))
        return report, rows

    def fleet(self, *args, threads=("1", "2")):
        """The report and the rows, after the checks that hold for every run."""
        texts = []
        for number in threads:
            run("fleet", "--quiet", "--deterministic", "--threads", number, "--json", self.path("j"),
                "--csv", self.path("c"), *args)
            with open(self.path("j"), "rb") as j, open(self.path("c"), "rb") as c:
                texts.append(j.read() + c.read())
        self.assertEqual(len(set(texts)), 1, args)
        report, rows = self.read()
        self.check(report, rows)
        return report, rows

    def check(self, r, rows):
        fleet = r["fleet"]
        failures = fleet["failures"]
        self.assertEqual(len({row["request"] for row in rows}), len(rows))
        self.assertEqual((r["requests"], r["unfinished"]), (len(rows), 0))
        self.assertEqual(r["output_tokens"], sum(int(row["output_tokens"]) for row in rows))
        self.assertEqual([w["active_blocks_at_end"] for w in fleet["workers"]],
                         [0] * fleet["num_workers"])
        losses = sum(v for k, v in r["losses"].items() if k.endswith("_tokens"))
        self.assertEqual(r["hit_tokens"] + losses - 2 * r["losses"]["beyond_ideal_tokens"],
                         r["ideal_tokens"])
        if r["errors"] == 0:
            self.assertEqual(r["prompt_tokens"], sum(int(row["prompt_tokens"]) for row in rows))
            self.assertEqual(sum(fleet["seconds"]["back"]),
                             sum(int(row["times_back"]) for row in rows))
        for key in ("first_tokens", "ends"):
            self.assertEqual(sum(fleet["seconds"][key]), len(rows))
        self.assertLessEqual(failures["recomputed_tokens"], failures["lost_tokens"])
        self.assertNotIn(None, [c["resumed_after_s"] for c in failures["crashes"]])
        for row in rows:
            times = [float(row[k]) for k in ("arrival_s", "scheduled_s", "first_token_s", "end_s")]
            self.assertEqual(times, sorted(times), row)
            if float(row.get("computed_s") or 0) > 0:
                times = [float(row[k]) for k in ("scheduled_s", "computed_s", "first_token_s")]
                self.assertEqual(times, sorted(times), row)

    def alone(self, *requests):
        """One engine: when the last of the requests has its first token, after its arrival."""
        run("fleet", "--workers", "1", "--quiet", "--csv", self.path("c"), self.write(*requests))
        with open(self.path("c"), encoding="utf-8") as file:
            row = sorted(csv.DictReader(file), key=lambda row: int(row["request"]))[-1]
        return float(row["first_token_s"]) - float(row["arrival_s"])

    def prompt(self):
        """Seconds of a prompt; of one of which all blocks but the last are there; and of the last
        token of a prompt."""
        return (self.alone((0, 1600, 2, 1)), self.alone((0, 1600, 2, 1), (9, 1600, 2, 1)),
                self.last())

    def last(self):
        run("fleet", "--workers", "1", "--quiet", "--csv", self.path("c"),
            self.write((0, 1599, 2, 1)))
        with open(self.path("c"), encoding="utf-8") as file:
            row = next(csv.DictReader(file))
        return float(row["end_s"]) - float(row["first_token_s"])

    def check_time(self, text, seconds):
        self.assertAlmostEqual(float(text), seconds, delta=3.1e-6)

    def crash(self, r):
        crash, = r["fleet"]["failures"]["crashes"]
        return crash["interrupted"], crash["queued"], crash["lost_tokens"]

    # ---- the decode engine -----------------------------------------------------------

    def test_a_decode_engine_crashes_in_a_transfer(self):
        """The other one gets the KV; the prefill engine finds 99 of 100 blocks in its cache."""
        _, short, last = self.prompt()
        prompt = self.alone((0, 1600, 2, 1))
        r, (row,) = self.fleet(*pools(1, 2), *SLOW, "--fail", "crash:worker=1,at=1,restart=1",
                               self.write((0, 1600, 2, 1)))
        self.assertEqual((row["worker"], row["prefill_worker"], row["times_back"]), ("2", "0", "1"))
        self.check_time(row["computed_s"], 1 + short)
        self.check_time(row["transfer_end_s"], 1 + short + MOVED)
        self.check_time(row["first_token_s"], 1 + short + MOVED + last)
        got = r["fleet"]["transfers"]
        self.assertEqual((got["prefills"], got["transfers"], got["cancelled"]), (2, 1, 1))
        self.assertEqual(self.crash(r), (0, 1, 0))  # the decode engine had not begun
        nodes = [w["network_bytes"] for w in r["fleet"]["workers"]]
        cut = (1 - prompt - LATENCY) * 0.1e9  # that moved in vain
        for bytes_moved, wanted in zip(nodes, (cut + 100 * BLOCK, cut, 100 * BLOCK)):
            self.assertAlmostEqual(bytes_moved, wanted, delta=300)

    def test_a_cancelled_transfer_leaves_its_share_to_others(self):
        """Two transfers share the node of the prefill engine, until one of them is cancelled."""
        trace = self.write((0, 1600, 2, 1), (0, 1600, 2, 99))
        args = (*pools(1, 2), *SLOW, trace)
        end = float(self.fleet("--fail", "slow:worker=0,from=90,factor=1", *args)[1][0]["transfer_end_s"])
        _, rows = self.fleet("--fail", "crash:worker=1,at=1,restart=99", *args)
        start = float(rows[1]["computed_s"]) + LATENCY
        self.check_time(end, start + 200 * BLOCK / 0.1e9)
        half = (1 - start) * 0.05e9  # bytes until the crash
        waits = float(rows[0]["computed_s"]) + LATENCY - 1  # alone, until the next one begins
        rest = 100 * BLOCK - half - waits * 0.1e9
        self.check_time(rows[1]["transfer_end_s"], 1 + waits + rest / 0.05e9)

    def test_a_decode_engine_crashes_while_the_prompt_is_computed(self):
        """The prefill engine drops it at once: the request begins again when its step has ended."""
        prompt, short, last = self.prompt()
        for mode in ("pull", "push", "layers"):
            r, (row,) = self.fleet(*pools(1, 2), "--transfer", mode, "--node-bandwidth", "1000000",
                                   "--fail", f"crash:worker=1,at={prompt / 2:.6f},restart=1",
                                   self.write((0, 1600, 2, 1)))
            self.assertEqual((row["worker"], row["times_back"]), ("2", "1"))
            self.check_time(row["computed_s"], prompt + short)
            self.assertAlmostEqual(float(row["first_token_s"]), prompt + short + last, delta=3e-4)
            got = r["fleet"]["transfers"]
            self.assertEqual((got["prefills"], got["transfers"]), (1, 1))

    def test_a_decode_engine_crashes_while_it_generates(self):
        args = (*pools(1, 2), self.write((0, 1600, 1000, 1)))
        _, (plain,) = self.fleet("--fail", "slow:worker=0,from=90,factor=1", *args)
        r, (row,) = self.fleet("--fail", "crash:worker=1,at=3,restart=1", *args)
        for key in ("first_token_s", "computed_s", "transfer_end_s", "scheduled_s"):
            self.assertEqual(row[key], plain[key], key)  # the user had it then
        self.assertEqual((row["worker"], row["output_tokens"], row["times_back"]), ("2", "1000", "1"))
        self.assertGreater(float(row["end_s"]), 3 + 0.99 * float(plain["end_s"]))
        begun, queued, lost = self.crash(r)
        steps = (3 - float(plain["first_token_s"])) / (float(plain["tpot_ms"]) * 1e-3)
        self.assertEqual((begun, queued), (1, 0))
        self.assertAlmostEqual(lost, 1600 + steps, delta=3)
        self.assertEqual(r["fleet"]["failures"]["recomputed_tokens"], lost - 1584)
        self.assertEqual((r["hit_tokens"], r["prompt_tokens"]), (0, 1600))  # counted once

    # ---- the prefill engine ------------------------------------------------------------

    def test_a_prefill_engine_crashes_in_a_transfer(self):
        """The decode engine, which has blocks, computes the prompt."""
        prompt = self.alone((0, 1600, 2, 1))
        for profile in ("default", "vllm-0.20", "vllm-0.32"):
            r, (row,) = self.fleet(*pools(1, 1), *SLOW, "--profile", profile, "--fail",
                                   "crash:worker=0,at=1,restart=1", self.write((0, 1600, 2, 1)))
            self.check_time(row["first_token_s"], 1 + prompt)
            self.assertEqual((row["times_back"], row["moved_blocks"]), ("0", "0"))
            got = r["fleet"]["transfers"]
            self.assertEqual((got["transfers"], got["cancelled"], got["recomputed_tokens"]),
                             (0, 1, 1600))
            self.assertEqual(self.crash(r), (1, 0, 1600))
            self.assertEqual(r["fleet"]["failures"]["recomputed_tokens"], 1600)

    def test_a_prefill_engine_crashes_while_it_computes(self):
        """The request goes back, unless the decode engine has blocks for it already."""
        prompt = self.alone((0, 1600, 2, 1))
        half = round(prompt / 2, 6)
        for mode in ("pull", "push", "layers"):
            r, (row,) = self.fleet(*pools(2, 1), "--transfer", mode, "--fail",
                                   f"crash:worker=0,at={half},restart=9",
                                   self.write((0, 1600, 2, 1)))
            if mode == "pull":
                self.assertEqual((row["prefill_worker"], row["times_back"]), ("1", "1"))
                self.check_time(row["computed_s"], half + prompt)
            else:
                self.assertEqual((row["prefill_worker"], row["times_back"]), ("", "0"))
                self.check_time(row["first_token_s"], half + prompt)
            self.assertEqual(self.crash(r), (1, 0, 1600))
            self.assertEqual(r["fleet"]["failures"]["recomputed_tokens"], 1600)

    def test_a_prefill_engine_crashes_while_the_decoder_has_no_room(self):
        """The second prompt is computed, and waits at its engine for the decode engine."""
        r, rows = self.fleet(*pools(2, 1, ":num-gpu-blocks=150"), "--fail",
                             "crash:worker=1,at=1,restart=1",
                             self.write((0, 1600, 400, 1), (0, 1600, 2, 99)))
        self.assertEqual([row["times_back"] for row in rows], ["0", "1"])
        self.assertEqual(rows[1]["prefill_worker"], "0")
        self.assertEqual(self.crash(r), (1, 0, 1600))
        self.assertGreater(float(rows[1]["computed_s"]), 1)

    # ---- a shared tier, host memory of peers ------------------------------------------------

    def test_an_engine_crashes_in_a_load(self):
        """The tier has the second prompt, and loads it for worker 1 in 0.2 s. Worker 0 loads it
        then, with all of the bandwidth at once."""
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        tier = ("--workers", "2", "--shared-tier", "blocks=1000,bandwidth=1")
        r, rows = self.fleet(*tier, "--num-gpu-blocks", "120", "--fail",
                             "crash:worker=0,at=3,restart=1;crash:worker=1,at=5.1", trace)
        self.assertEqual((rows[1]["worker"], rows[1]["times_back"]), ("0", "1"))
        self.assertEqual(rows[1]["shared_tokens"], "1584")
        self.check_time(rows[1]["first_token_s"],
                        5.1 + LATENCY + 99 * BLOCK / 1e9 + self.alone((0, 1600, 2, 1), (9, 1600, 2, 1)))
        got = r["fleet"]["shared_tier"]
        self.assertEqual((got["loads"], got["failed_loads"], got["failed_blocks"]), (2, 1, 99))
        self.assertEqual(got["lost_blocks"], 0)  # the tier is not in an engine
        self.assertEqual(got["hit_tokens"], 1584)

    def test_an_engine_crashes_in_a_store(self):
        prompt = self.alone((0, 1600, 2, 1))
        r, rows = self.fleet("--workers", "2", "--shared-tier", "blocks=1000,bandwidth=1", "--fail",
                             f"crash:worker=0,at={prompt + 0.1:.6f},restart=1",
                             self.write((0, 1600, 2, 1), (5, 1600, 2, 1)))
        got = r["fleet"]["shared_tier"]
        self.assertEqual((got["failed_stored_blocks"], rows[1]["shared_tokens"]), (100, "0"))
        self.assertEqual(got["blocks_at_end"], 100)  # stored by the other one

    def test_host_memory_is_lost_with_its_engine(self):
        """Worker 1 would load the second prompt from worker 0: before the crash it does, in the
        load it hears that it has failed, and behind it it finds nothing."""
        prompt = self.alone((0, 1600, 2, 1))
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        for at, found, time in ((9, "1584", None), (5.01, "0", 5.01 + prompt), (4, "0", 5 + prompt)):
            r, rows = self.fleet("--workers", "2", "--router", "round-robin", "--peer-memory",
                                 "blocks=1000,bandwidth=10", "--fail",
                                 f"crash:worker=0,at={at},restart=100", trace)
            self.assertEqual((rows[1]["worker"], rows[1]["shared_tokens"]), ("1", found))
            if time is not None:
                self.check_time(rows[1]["first_token_s"], time)
            got = r["fleet"]["peer_memory"]
            self.assertEqual(got["failed_loads"], int(at == 5.01))
            self.assertEqual(got["lost_blocks"], 100 if at < 9 else 0)

    # ---- nobody is left -------------------------------------------------------------------

    def test_without_a_prefill_engine_the_decode_engine_does_it(self):
        prompt = self.alone((0, 1600, 2, 1))
        _, (_, row) = self.fleet(*pools(1, 1), "--fail", "crash:worker=0,at=1",
                                 self.write((0, 16, 2, 50), (2, 1600, 2, 1)))
        self.assertEqual(row["prefill_worker"], "")
        self.check_time(row["first_token_s"], 2 + prompt)

    def test_without_a_decode_engine_requests_wait(self):
        trace = self.write((0, 1600, 2, 1), (2, 1600, 2, 1))
        _, rows = self.fleet(*pools(1, 1), "--fail", "crash:worker=1,at=1,restart=4", trace)
        self.assertGreater(float(rows[1]["computed_s"]), 5)
        said = run("fleet", *pools(1, 1), "--fail", "crash:worker=1,at=1", trace, status=1)
        self.assertIn("1 requests wait in the router, and all workers that decode are off", said)

    # ---- at random --------------------------------------------------------------------------

    def random_sharing(self, of):
        num_workers = of.randint(2, 4)
        args = ["--workers", str(num_workers), "--num-gpu-blocks", of.choice(["5000", "9000"])]
        blocks = of.choice([500, 20000])
        if of.random() < 0.5:
            args += ["--shared-tier", f"blocks={blocks},bandwidth={of.choice([0.5, 5, 100])}"]
        else:
            args += ["--peer-memory", f"blocks={blocks},bandwidth={of.choice([0.5, 5])}"]
        for _ in range(of.randint(1, 8)):
            args += ["--fail", f"crash:worker={of.randrange(num_workers)},"
                               f"at={of.uniform(0, 15):.6f},restart={of.uniform(0, 5):.3f}"]
        return args + list(self.random_more(of))

    def random_more(self, of):
        for more in (("--kv-lag", "50"), ("--async-scheduling",), ("--profile", "vllm-0.32"),
                     ("--scheduling-policy", "priority"), ("--max-num-seqs", "3"),
                     ("--mtbf", "20", "--mtbf-restart", "1")):
            yield from more if of.random() < 0.3 else ()

    def random_apart(self, of):
        num_prefill, num_decode = of.randint(1, 3), of.randint(1, 3)
        args = [*pools(num_prefill, num_decode), "--num-gpu-blocks", of.choice(["9000", "20000"]),
                "--transfer", of.choice(["pull", "push", "layers"]), "--node-bandwidth",
                of.choice(["0.5", "5", "50"]), "--transfer-failures", of.choice(["0", "0.2"]),
                "--transfer-part", of.choice(["missing", "all"]), "--transfer-lease",
                of.choice(["0.05", "1", "20"]), "--router",
                of.choice(["round-robin", "dynamo-kv", "llm-d", "smetric", "conductor",
                           "dynamo-kv:conditional-disagg=isl-bounding"])]
        args += self.random_more(of)
        for _ in range(of.randint(1, 8)):
            args += ["--fail", f"crash:worker={of.randrange(num_prefill + num_decode)},"
                               f"at={of.uniform(0, 15):.6f},restart={of.uniform(0, 5):.3f}"]
        return args

    def test_random_fleets(self):
        for seed in range(2 * SEEDS):
            of = random.Random(seed)
            run("generate", "mixed", "--requests", str(of.randint(20, 90)), "--rate",
                of.choice(["4", "20"]), "--seed", str(seed), "--out", self.path("t"))
            args = self.random_apart(of) if seed % 2 == 0 else self.random_sharing(of)
            with self.subTest(seed=seed, args=args):
                self.fleet("--skip-bad", *args, self.path("t"), threads=("1", "2", "8"))

    # ---- files --------------------------------------------------------------------------

    def test_files(self):
        run("generate", "mixed", "--requests", "120", "--rate", "20", "--out", self.path("t"))
        for mode in ("pull", "push", "layers"):
            r, rows = self.fleet(*pools(2, 2), "--transfer", mode, "--node-bandwidth", "2", "--fail",
                                 "crash:worker=0,at=2,restart=1;crash:worker=3,at=3,restart=1",
                                 "--html", self.path("h"), "--why", self.path("w"), "--perfetto",
                                 self.path("p"), self.path("t"))
            back = sum(int(row["times_back"]) for row in rows)
            self.assertGreater(back, 0)
            with open(self.path("w"), encoding="utf-8") as file:
                self.assertGreaterEqual(len(file.readlines()), len(rows) + back)
            with open(self.path("p"), encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            for pid in (1, 2, 3, 4):
                counts = [e["args"] for e in events if e["ph"] == "C" and e["pid"] == pid]
                self.assertEqual(counts[-1], {"running": 0, "waiting": 0})
            bins = r["fleet"]["history"]["bins"]
            for key in ("prompt_tokens", "output_tokens", "hit_tokens"):
                self.assertEqual(sum(bins[key]), r[key], key)

    def test_rerun(self):
        run("fleet", "--quiet", "--deterministic", *pools(1, 2), "--mtbf", "2", "--mtbf-restart",
            "0.5", "--json", self.path("one"),
            self.write(*((0.3 * i, 1600, 40, 1 + 100 * i) for i in range(20))))
        run("rerun", self.path("one"), "--quiet", "--json", self.path("other"))
        with open(self.path("one"), "rb") as one, open(self.path("other"), "rb") as other:
            self.assertEqual(one.read(), other.read())


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    if len(sys.argv) > 1 and sys.argv[1].isdigit():
        SEEDS = int(sys.argv.pop(1))
    unittest.main()
