#!/usr/bin/env python3
"""`quire size` from outside, and fleets in `quire sweep`.

    tests/cli/program/test_size.py QUIRE

The answer keeps the SLO when the printed command runs, and one GPU fewer does not.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest

QUIRE = FOLDER = ""


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stdout + done.stderr


def path(name):
    return os.path.join(FOLDER, name)


def size(*args, status=0):
    text = run("size", "--deterministic", "--json", "-", *args, status=status)
    return json.loads(text[: text.rindex("}\n") + 1])


class Size(unittest.TestCase):
    def metrics(self, command, workers):
        """What `quire fleet` says of the printed command with so many workers."""
        words = shlex.split(command)
        self.assertEqual(words[:3], ["quire", "fleet", "--workers"])
        report = json.loads(run("fleet", "--workers", str(workers), "--quiet", "--json", "-", *words[4:]))
        return {"ttft_p99": report["ttft_ms"]["p99"], "tpot_p99": report["tpot_ms"]["p99"],
                "e2e_p95": report["e2e_ms"]["p95"], "e2e": report["e2e_ms"]["max"]}

    def check_answer(self, result, at_least):
        """The answer keeps all limits, one worker fewer breaks one; figures are those of the fleet."""
        best = result["combinations"][result["answer"]]
        self.assertGreaterEqual(best["workers"], at_least)
        for workers, is_met in ((best["workers"], True), (best["workers"] - 1, False)):
            found = self.metrics(best["command"], workers)
            kept = all(found[name] <= limit for name, limit in result["slo_ms"].items())
            self.assertEqual(kept, is_met, (workers, found))
            tried = next(r for r in best["runs"] if r["workers"] == workers)
            self.assertEqual(tried["values_ms"], {name: found[name] for name in result["slo_ms"]})
        for other in result["combinations"]:
            for one in other["runs"]:
                self.assertTrue(not one["is_met"] or one["gpus"] >= best["gpus"])

    def test_the_answer_on_two_traces(self):
        for trace, limits, more in (
                ("chat.jsonl", "ttft_p99=300ms,tpot_p99=20ms", ("--gpu", "A100-80G,H100")),
                ("rag.jsonl", "ttft_p99=500ms,e2e_p95=5s", ("--router", "round-robin;dynamo-kv"))):
            with self.subTest(trace=trace):
                self.check_answer(size("--slo", limits, "--max-num-seqs", "16", *more, path(trace)), 2)

    def test_the_result_does_not_depend_on_jobs(self):
        args = ("--slo", "ttft_p99=300ms,tpot_p99=20ms", "--max-num-seqs", "16", "--tp", "1,2", "--gpu-cost", "2",
                "--max-requests", "200", path("chat.jsonl"))
        one = size("--jobs", "1", *args)
        self.assertEqual(one, size("--jobs", "3", *args))
        for combination in one["combinations"]:
            for tried in combination["runs"]:
                self.assertAlmostEqual(tried["cost"], 2 * tried["gpu_hours"])
                self.assertEqual(tried["gpus"], tried["workers"] * int(combination["options"]["tp"]))

    def test_a_deterministic_report_has_no_time(self):
        args = ("size", "--slo", "ttft=10s", "--max-requests", "20", path("chat.jsonl"))
        self.assertIn("fleets ran, in ", run(*args))
        once, again = (run(*args, "--deterministic", "--jobs", jobs) for jobs in ("1", "2"))
        self.assertEqual(once, again)
        self.assertTrue(once.endswith(" fleets ran\n"), once)

    def test_limits_that_cannot_be_kept(self):
        said = run("size", "--slo", "ttft_p50=1us", "--max-gpus", "3", "--max-requests", "50",
                   path("chat.jsonl"), status=1)
        self.assertIn("No fleet of at most 3 GPUs keeps the SLO", said)
        self.assertIn("ttft_p50 is", said)
        self.assertIn("(at most 1.00 us)", said)
        self.assertIn("--max-gpus", said)
        report = size("--slo", "ttft_p50=1us", "--max-gpus", "3", "--max-requests", "50",
                      path("chat.jsonl"), status=1)
        self.assertEqual([r["workers"] for r in report["combinations"][0]["runs"]], [1, 2, 3])
        self.assertEqual((report["answer"], report["nearest"]), (None, 0))

    def test_combinations_that_do_not_run(self):
        report = size("--slo", "ttft=60min", "--model", "llama-3.1-70b", "--gpu", "H100",
                      "--tp", "1,4,16", "--max-gpus", "8", "--max-requests", "20", path("chat.jsonl"))
        states = [c["state"] for c in report["combinations"]]
        self.assertEqual(states, ["failed", "met", "unmet"])
        self.assertEqual(report["answer"], 1)
        self.assertEqual(report["combinations"][2]["runs"], [])

    def test_an_interrupt_keeps_what_ran(self):
        limits = ("--slo", "ttft_p50=1us", "--max-gpus", "4096", "--json", path("part.json"))
        child = subprocess.Popen([QUIRE, "size", *limits, path("chat.jsonl"), path("rag.jsonl")],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        children = f"/proc/{child.pid}/task/{child.pid}/children"
        while child.poll() is None:  # until a fleet runs
            with open(children) as file:
                if file.read().strip():
                    break
            time.sleep(0.01)
        child.send_signal(signal.SIGINT)
        said, _ = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130)
        self.assertNotIn("No fleet of at most", said)
        with open(path("part.json")) as file:
            report = json.load(file)
        self.assertEqual((report["ended_by"], report["combinations"][0]["state"]), ("interrupt", "stopped"))

    def test_rerun(self):
        args = ("--slo", "ttft_p99=30s", "--router", "round-robin;dynamo-kv", "--max-requests", "30")
        first = path("first.json")
        run("size", "--deterministic", *args, "--json", first, path("chat.jsonl"))
        run("rerun", first, "--json", path("again.json"))
        with open(first) as one, open(path("again.json")) as two:
            self.assertEqual(json.load(one), json.load(two))

    def test_wrong_calls(self):
        trace = path("chat.jsonl")
        for args, said in (((trace,), "expected --slo"),
                           (("--slo", "ttft_p0=1s", trace), "ttft_p0=1s"),
                           (("--slo", "ttft=1s", "--max-gpus", "0", trace), "--max-gpus (expected 1..65535)"),
                           (("--slo", "ttft=1s", "--gpu-cost", "H200=0", trace), "--gpu-cost"),
                           (("--slo", "ttft=1s", "--gpu", "H100", "--gpu-cost", "H200=1", trace),
                            "no price for H100"),
                           (("--slo", "ttft=1s", "--router", "nearest", trace), "nearest"),
                           (("--slo", "ttft=1s", "--workers", "3", trace), "--workers"),
                           (("--slo", "ttft=1s", "-"), "cannot be standard input"),
                           (("--slo", "ttft=1s"), "expected a TRACE")):
            with self.subTest(args=args):
                self.assertIn(said, run("size", *args, status=2))


class SweepOfFleets(unittest.TestCase):
    def test_points_are_fleets_and_the_front_is_right(self):
        trace = ("--max-requests", "200", path("chat.jsonl"))
        page = path("page.html")
        text = run("sweep", "--workers", "1,2,3", "--router", "round-robin;dynamo-kv", "--deterministic",
                   "--no-plot", "--json", "-", "--html", page, *trace)
        report = json.loads(text)
        rows = []
        for i, one in enumerate(report["runs"]):
            words = [f"--{name}={value}" for name, value in one["options"].items()]
            alone = run("fleet", *words, "--deterministic", "--quiet", "--json", "-", path("chat.jsonl"))
            self.assertEqual(one["report"], json.loads(alone))
            rows.append((int(one["options"]["workers"]), one["report"]["ttft_ms"]["p99"], i))
        front = [i for g, t, i in rows
                 if not any((h <= g and u <= t) and (h, u) != (g, t) for h, u, _ in rows)]
        self.assertEqual(sorted(report["pareto"]["ttft_ms.p99"]), front)
        with open(page, encoding="utf-8") as file:
            data = json.loads(file.read().split('type="application/json">')[1].split("</script>")[0])
        plot = next(p for p in data["plots"] if p.get("front"))
        self.assertEqual(sorted(plot["front"]), front)
        self.assertEqual([row["v"][plot["x"]] for row in data["rows"]], [1, 1, 2, 2, 3, 3])


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = folder
        run("generate", "chat", "--requests", "400", "--rate", "60", "--out", path("chat.jsonl"))
        run("generate", "rag", "--requests", "200", "--rate", "20", "--seed", "3", "--document-tokens", "2000",
            "--max-tokens", "8000", "--out", path("rag.jsonl"))
        unittest.main()
