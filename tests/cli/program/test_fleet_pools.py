#!/usr/bin/env python3
"""`quire fleet --pool`: prefill apart from decode, to the microsecond, and pools that differ.

    tests/cli/program/test_fleet_pools.py QUIRE
"""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
BLOCK = 2097152  # bytes of 16 tokens of llama-3.1-8b
LAYERS = 32
LATENCY = 100e-6
APART = ("--pool", "prefill:1", "--pool", "decode:1")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


class Pools(unittest.TestCase):
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

    def fleet(self, *args):
        """The report and the rows, in the order of the trace."""
        run("fleet", "--quiet", "--deterministic", "--json", self.path("j"), "--csv",
            self.path("c"), *args)
        with open(self.path("j"), encoding="utf-8") as file:
            report = json.load(file)
        with open(self.path("c"), encoding="utf-8") as file:
            rows = sorted(csv.DictReader(file), key=lambda row: int(row["request"]))
        self.check_ends(report, rows)
        return report, rows

    def check_ends(self, report, rows):
        """Each request ends once, and no block is left in use."""
        self.assertEqual(len({row["request"] for row in rows}), len(rows))
        self.assertEqual(report["requests"], len(rows))
        self.assertEqual(report["unfinished"], 0)
        self.assertEqual([w["active_blocks_at_end"] for w in report["fleet"]["workers"]],
                         [0] * report["fleet"]["num_workers"])
        losses = sum(v for k, v in report["losses"].items() if k.endswith("_tokens"))
        self.assertEqual(report["hit_tokens"] + losses, report["ideal_tokens"])

    def alone(self, tokens, *args):
        """One engine: seconds of a prompt, and of the next token."""
        trace = self.write((0, tokens, 2, 1))
        run("fleet", "--workers", "1", "--quiet", "--csv", self.path("c"), *args, trace)
        with open(self.path("c"), encoding="utf-8") as file:
            row = next(csv.DictReader(file))
        first = float(row["first_token_s"])
        return first, float(row["end_s"]) - first

    def check_time(self, text, seconds):
        self.assertAlmostEqual(float(text), seconds, delta=2.1e-6)

    # ---- one transfer -----------------------------------------------------------

    def test_pull_to_the_microsecond(self):
        prompt, _ = self.alone(1600)
        _, last = self.alone(1599)  # the decoder computes the last token of the prompt
        _, (row,) = self.fleet(*APART, "--node-bandwidth", "10", self.write((0, 1600, 2, 1)))
        moved = LATENCY + 100 * BLOCK / 10e9
        self.check_time(row["computed_s"], prompt)
        self.check_time(row["transfer_start_s"], prompt)
        self.check_time(row["transfer_end_s"], prompt + moved)
        self.check_time(row["first_token_s"], prompt + moved + last)
        self.assertEqual((row["prefill_worker"], row["worker"], row["moved_blocks"]),
                         ("0", "1", "100"))
        self.assertEqual(row["output_tokens"], "2")

    def test_a_block_that_is_not_full_moves_too(self):
        for tokens, blocks in ((1584, "99"), (1585, "100"), (1600, "100"), (1601, "101")):
            _, (row,) = self.fleet(*APART, self.write((0, tokens, 2, 1)))
            self.assertEqual(row["moved_blocks"], blocks)

    def test_layers_overlap_with_the_prompt(self):
        prompt, _ = self.alone(1600)
        size = 100 * BLOCK
        for bandwidth in (1, 1000):  # slower than the prompt, and faster
            _, (row,) = self.fleet(*APART, "--transfer", "layers", "--node-bandwidth",
                                   str(bandwidth), self.write((0, 1600, 2, 1)))
            first = prompt / LAYERS
            slow = first + LATENCY + size / (bandwidth * 1e9)
            fast = prompt + size / LAYERS / (bandwidth * 1e9)
            self.check_time(row["transfer_start_s"], first)
            self.check_time(row["transfer_end_s"], slow if bandwidth == 1 else fast)
            self.assertEqual(slow > fast, bandwidth == 1)

    def test_push_has_its_blocks_before(self):
        prompt, _ = self.alone(1600)
        moved = LATENCY + 100 * BLOCK / 50e9
        waits = {}
        for mode in ("pull", "push"):
            report, (row,) = self.fleet(*APART, "--transfer", mode, self.write((0, 1600, 2, 1)))
            self.check_time(row["transfer_end_s"], prompt + moved)
            waits[mode] = report["fleet"]["transfers"]["wait_ms"]["max"] * 1e-3
        self.check_time(waits["pull"], moved)
        self.check_time(waits["push"], prompt + moved)

    # ---- several ------------------------------------------------------------------

    def test_transfers_share_their_links(self):
        prompt, _ = self.alone(1600)
        size = 100 * BLOCK
        two = ("--pool", "prefill:2", "--pool", "decode:1", "--node-bandwidth", "10")
        for limit, rate in (((), 5e9), (("--pair-bandwidth", "2"), 2e9),
                            (("--fabric-bandwidth", "3"), 1.5e9),
                            (("--pair-bandwidth", "7"), 5e9)):
            report, rows = self.fleet(*two, *limit, self.write((0, 1600, 2, 1), (0, 1600, 2, 99)))
            for row in rows:
                self.check_time(row["transfer_end_s"], prompt + LATENCY + size / rate)
            self.assertEqual(report["fleet"]["transfers"]["max_open"], 2)
            nodes = [w["network_bytes"] for w in report["fleet"]["workers"]]
            self.assertEqual(nodes, [size, size, 2 * size])

    def test_only_what_is_missing_moves(self):
        trace = self.write((0, 1600, 2, 1), (5, 1600, 2, 1))
        for part, blocks in (("missing", "1"), ("all", "100")):
            report, rows = self.fleet(*APART, "--transfer-part", part, trace)
            self.assertEqual([row["moved_blocks"] for row in rows], ["100", blocks])
            self.assertEqual(report["fleet"]["transfers"]["local_tokens"], 1584)
            self.assertEqual(report["hit_tokens"], 1584)

    # ---- what goes wrong --------------------------------------------------------------

    def test_a_failed_transfer_is_computed_again(self):
        prompt, _ = self.alone(1600)
        moved = LATENCY + 100 * BLOCK / 50e9
        for profile in ("default", "vllm-0.20", "vllm-0.32"):
            report, (row,) = self.fleet(*APART, "--transfer-failures", "1", "--profile", profile,
                                        self.write((0, 1600, 2, 1)))
            got = report["fleet"]["transfers"]
            self.assertEqual((got["transfers"], got["failed"], got["moved_bytes"]), (1, 1, 0))
            self.assertEqual(got["recomputed_tokens"], 1600)
            self.check_time(row["first_token_s"], prompt + moved + prompt)

    def test_a_lease_ends_where_the_decoder_has_no_room(self):
        small = ("--pool", "prefill:1", "--pool", "decode:1:num-gpu-blocks=150")
        trace = self.write((0, 1600, 400, 1), (0, 1600, 2, 99))
        for lease, expired in (("0.5", 1), ("60", 0)):
            report, rows = self.fleet(*small, "--transfer-lease", lease, trace)
            got = report["fleet"]["transfers"]
            self.assertEqual((got["expired_leases"], got["recomputed_tokens"]),
                             (expired, 1600 * expired))
            self.assertGreater(float(rows[1]["first_token_s"]), float(rows[0]["end_s"]) - 1e-9)

    def test_slow_and_unheard_engines(self):
        run("generate", "mixed", "--requests", "60", "--rate", "20", "--out", self.path("t"))
        plain, _ = self.fleet(*APART, "--router", "dynamo-kv", self.path("t"))
        for worker in ("0", "1"):
            slow, rows = self.fleet(*APART, "--router", "dynamo-kv", "--fail",
                                    f"slow:worker={worker},from=0,factor=4", "--fail",
                                    f"partition:worker={worker},from=0,to=600", self.path("t"))
            self.assertEqual(len(rows), 60)
            self.assertGreater(slow["simulated_s"], plain["simulated_s"])
            self.assertGreater(slow["fleet"]["failures"]["lost_batches"], 0)

    def test_who_is_too_long_for_the_decoder_is_left_out(self):
        small = ("--pool", "prefill:1", "--pool", "decode:1:num-gpu-blocks=60", "--skip-bad")
        trace = self.write((0, 1600, 2, 1), (1, 800, 2, 99))
        for mode in ("pull", "push", "layers"):
            report, rows = self.fleet(*small, "--transfer", mode, trace)
            self.assertEqual([row["request"] for row in rows], ["2"])
            self.assertEqual(report["errors"], 1)

    def test_who_is_too_long_for_the_prefill_is_left_out_or_decoded(self):
        small = ("--pool", "prefill:1:num-gpu-blocks=60", "--pool", "decode:1", "--skip-bad")
        trace = self.write((0, 1600, 2, 1), (1, 800, 2, 99))
        _, rows = self.fleet(*small, "--transfer", "pull", trace)
        self.assertEqual([row["request"] for row in rows], ["2"])
        _, rows = self.fleet(*small, "--transfer", "push", trace)
        self.assertEqual([row["request"] for row in rows], ["1", "2"])

    # ---- who computes the prompt --------------------------------------------------------

    def test_conditional_disaggregation(self):
        """The decoder has the first prompt when the second one comes, and computes the rest itself."""
        trace = self.write((0, 3000, 2, 1), (5, 3000, 2, 1), (9, 3000, 2, 99))
        for router, apart in (("dynamo-kv", ["0", "0", "0"]),
                              ("dynamo-kv:conditional-disagg=isl-bounding", ["0", "", "0"])):
            with self.subTest(router=router):
                _, rows = self.fleet(*APART, "--router", router, trace)
                self.assertEqual([row["prefill_worker"] for row in rows], apart)

    # ---- pools that differ ---------------------------------------------------------------

    def test_pools_have_their_own_options(self):
        pools = ("--pool", "serve:1", "--pool", "serve:1:gpu=H100,tp=2,num-gpu-blocks=500")
        first, _ = self.alone(1600)
        other, _ = self.alone(1600, "--gpu", "H100", "--tp", "2")
        report, rows = self.fleet(*pools, self.write((0, 1600, 2, 1), (0, 1600, 2, 99)))
        self.check_time(rows[0]["first_token_s"], first)
        self.check_time(rows[1]["first_token_s"], other)
        self.assertNotEqual(first, other)
        self.assertEqual([p["num_workers"] for p in report["fleet"]["pools"]], [1, 1])
        self.assertNotIn("transfers", report["fleet"])

    def test_equal_pools_are_one(self):
        run("generate", "mixed", "--requests", "60", "--out", self.path("t"))
        _, rows = self.fleet("--workers", "3", self.path("t"))
        _, other = self.fleet("--pool", "serve:1", "--pool", "serve:2", self.path("t"))
        self.assertEqual(rows, other)

    # ---- many ---------------------------------------------------------------------------

    def test_threads_change_nothing(self):
        run("generate", "mixed", "--requests", "70", "--rate", "8", "--out", self.path("t"))
        pools = ("--pool", "prefill:2", "--pool", "decode:3:num-gpu-blocks=2600", "--skip-bad",
                 "--speed", "8", "--transfer-failures", "0.3", "--node-bandwidth", "2",
                 "--transfer-lease", "20")
        for mode in ("pull", "push", "layers"):
            for more in ((), ("--async-scheduling", "--router", "dynamo-kv")):
                results = []
                for threads in ("1", "2", "8"):
                    self.fleet(*pools, *more, "--transfer", mode, "--threads", threads,
                               self.path("t"))
                    with open(self.path("j"), "rb") as j, open(self.path("c"), "rb") as c:
                        results.append(j.read() + c.read())
                self.assertTrue(results[0] == results[1] == results[2], (mode, more))

    # ---- files --------------------------------------------------------------------------

    def test_files_show_both_workers_of_a_request(self):
        trace = self.write(*((0.2 * i, 1600 + 16 * i, 8, 1 + 100 * i) for i in range(6)))
        for mode in ("pull", "push", "layers"):
            report, _ = self.fleet(*APART, "--transfer", mode, "--html", self.path("h"), "--why",
                                   self.path("w"), "--perfetto", self.path("p"), trace)
            with open(self.path("w"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            self.assertEqual([(line["prefill_worker"], line["worker"]) for line in lines],
                             [(0, 1)] * 6)
            with open(self.path("p"), encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
            self.check_tracks(events)
            past = report["fleet"]["history"]
            self.assertEqual([len(past[key]) for key in ("waiting", "running")], [2, 2])
            for row in past["running"]:
                self.assertGreater(max(row), 0)
            self.assertEqual(sum(past["bins"]["ended"]), 6)

    def check_tracks(self, events):
        """Prompts are with worker 0, answers with worker 1, and both are empty at the end."""
        begun = [(e["pid"], e["name"]) for e in events if e["ph"] == "b"]
        for pair in ((1, "waiting"), (1, "prefill"), (2, "transfer"), (2, "decode")):
            self.assertEqual(begun.count(pair), 6)
        self.assertEqual(len(begun), 24)
        for pid in (1, 2):
            counts = [e["args"] for e in events if e["ph"] == "C" and e["pid"] == pid]
            self.assertEqual(counts[-1], {"running": 0, "waiting": 0})

    def test_rerun_has_all_pools(self):
        trace = self.write(*((0.2 * i, 1600, 8, 1 + 100 * i) for i in range(6)))
        for pools in (("--pool", "serve:1", "--pool", "serve:2:tp=2,max-num-seqs=9,node-bandwidth=9"),
                      (*APART, "--pool", "decode:2:gpu=H100,num-gpu-blocks=900")):
            run("fleet", "--quiet", "--deterministic", *pools, "--json", self.path("one"), trace)
            run("rerun", self.path("one"), "--quiet", "--json", self.path("other"))
            with open(self.path("one"), "rb") as one, open(self.path("other"), "rb") as other:
                self.assertEqual(one.read(), other.read())
            run("rerun", self.path("one"), "--quiet", "--pool", "serve:5", "--json", self.path("new"))
            with open(self.path("new"), encoding="utf-8") as file:
                fleet = json.load(file)["fleet"]
            self.assertEqual([p["pool"] for p in fleet["pools"]], ["serve:5"])

    def test_cost_counts_the_gpus_of_each_pool(self):
        report, _ = self.fleet("--pool", "serve:1", "--pool", "serve:2:tp=2",
                               self.write((0, 1600, 2, 1), (0, 1600, 2, 99), (0, 1600, 2, 200)))
        cost = report["fleet"]["cost"]
        self.assertEqual(cost["gpus"], 5)
        self.assertAlmostEqual(cost["gpu_hours"], report["simulated_s"] * 5 / 3600)
        workers = report["fleet"]["workers"]
        busy = sum(w["busy_s"] * (2 if w["pool"] else 1) for w in workers) / 3600
        self.assertAlmostEqual(cost["busy_gpu_hours"], busy)

    # ---- refusals -------------------------------------------------------------------------

    def test_refusals(self):
        trace = self.write((0, 100, 2, 1))
        for args, sentence in (
                (("--pool", "prefill:2"), "--pool prefill needs --pool decode:N"),
                (("--pool", "decode:2"), "--pool decode needs --pool prefill:N"),
                (("--pool", "foo:2"), 'invalid role "foo" in --pool foo:2'),
                (("--pool", "serve"), 'invalid number of engines "" in --pool serve'),
                (("--pool", "serve:0"), 'invalid number of engines "0" in --pool serve:0 '
                                        "(expected 1..65535)"),
                (("--pool", "serve:65535", "--pool", "serve:1"), "65536 engines in all"),
                (("--pool", "serve:1", *APART), "--pool serve cannot be used"),
                (("--pool", "serve:1:gpu"), 'invalid option "gpu"'),
                (("--pool", "serve:1:block-size=32"), "--block-size cannot be an option of one"),
                (("--pool", "serve:1:tp=x"), 'invalid value "x" for --tp (expected 1..1024)'),
                (("--workers", "3", "--pool", "serve:1"), "--workers 3 cannot be used"),
                (("--transfer", "push"), "--transfer needs --pool prefill:N"),
                (("--transfer-lease", "1"), "--transfer-lease needs --pool prefill:N"),
                ((*APART, "--cpu-blocks", "99"), "--cpu-blocks cannot be used"),
                ((*APART, "--transfer-latency", "0.9"), 'invalid value "0.9"'),
                ((*APART, "--transfer-failures", "1.1"), 'invalid value "1.1"')):
            with self.subTest(args=args):
                self.assertIn(sentence, run("fleet", "--quiet", *args, trace, status=2))


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
