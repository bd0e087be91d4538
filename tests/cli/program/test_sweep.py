#!/usr/bin/env python3
"""`quire sweep` and `quire compare` from outside.

    test_sweep.py PROGRAM

A sweep's reports are those of the replays that it stands for, whatever the number of processes; lists
and ranges come out as written down here; a point that fails takes nothing with it.
"""

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
FOLDER = ""
TRACE = ""
POOL = ("--max-model-len", "8192")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stdout + done.stderr


def sweep(*args, status=0):
    text = run("sweep", *args, *POOL, "--deterministic", "--json", "-", TRACE, status=status)
    return json.loads(text[: text.rindex("}") + 1])


def values(*args):
    """What the last axis that was given comes to."""
    report = sweep("--max-requests", "1", *args)
    name = args[0].split("=")[0].lstrip("-")
    return next(axis["values"] for axis in report["axes"] if axis["name"] == name)


class Sweep(unittest.TestCase):
    def test_reports_are_those_of_replays(self):
        report = sweep("--num-gpu-blocks", "600,900", "--max-num-seqs=4,64")
        options = [run["options"] for run in report["runs"]]
        self.assertEqual([(o["num-gpu-blocks"], o["max-num-seqs"]) for o in options],
                         [("600", "4"), ("600", "64"), ("900", "4"), ("900", "64")])
        for one in report["runs"]:
            words = [f"--{name}={value}" for name, value in one["options"].items()]
            alone = run("replay", *words, "--deterministic", "--quiet", "--json", "-", TRACE)
            self.assertEqual(one["report"], json.loads(alone))
        rates = {one["report"]["hit_rate"] for one in report["runs"]}
        self.assertGreater(len(rates), 1, "the points do not differ")

    def test_same_whatever_the_jobs(self):
        args = ("--num-gpu-blocks", "600..1200/+200", "--max-requests", "100")
        self.assertEqual(sweep(*args, "--jobs", "1"), sweep(*args, "--jobs", "7"))

    def test_lists_and_ranges(self):
        self.assertEqual(values("--num-gpu-blocks", "1k..8k"), ["1000", "2000", "4000", "8000"])
        self.assertEqual(values("--num-gpu-blocks=1k,2k..20k/x3"), ["1k", "2000", "6000", "18000"])
        self.assertEqual(values("--max-num-seqs", "10..12/x1.05"), ["10", "11", "12"])
        self.assertEqual(values("--max-num-seqs", "10..40/+15"), ["10", "25", "40"])
        self.assertEqual(values("--gpu-memory-utilization", "0.5..0.9/+0.2"), ["0.5", "0.7", "0.9"])
        self.assertEqual(values("--gpu", "H100,H200"), ["H100", "H200"])
        self.assertEqual(values("--enable-prefix-caching=on,off"), ["on", "off"])

    def test_switches(self):
        report = sweep("--enable-prefix-caching=on,off", "--max-requests", "50")
        self.assertGreater(report["runs"][0]["report"]["hit_tokens"], 0)
        self.assertEqual(report["runs"][1]["report"]["hit_tokens"], 0)
        off = sweep("--no-enable-prefix-caching", "--max-requests", "50")
        self.assertEqual(off["runs"][0]["report"], report["runs"][1]["report"])

    def test_a_point_that_fails(self):
        text = run("sweep", "--num-gpu-blocks", "10,900", *POOL, "--csv", "-", TRACE, status=1)
        rows = list(csv.DictReader(io.StringIO(text[: text.index("quire sweep:")])))
        self.assertIn("KV cache", rows[0]["error"])
        self.assertEqual(rows[0]["hit_rate"], "")
        self.assertEqual(rows[1]["error"], "")
        self.assertGreater(float(rows[1]["hit_rate"]), 0)
        self.assertIn("1 of 2 replays failed", text)

    def test_wrong_calls(self):
        for args, sentence in (
            (("--block-size", "16,x", TRACE), 'quire sweep: invalid value "x" for --block-size'),
            (("--block-size", TRACE, "--jobs"), "--jobs needs a value"),
            (("--block-size", "16,,32", TRACE), "invalid list"),
            (("--max-num-seqs", "9..3", TRACE), "invalid range 9..3"),
            (("--max-num-seqs", "1..3/x1", TRACE), "invalid step for --max-num-seqs"),
            (("--max-num-seqs", "1..3/5", TRACE), "invalid step for --max-num-seqs"),
            (("--enable-prefix-caching=maybe", TRACE), "(expected on or off)"),
            (("--blok-size", "3", TRACE), "did you mean --block-size"),
            (("--max-num-seqs", "1..1000/+1", "--tp", "1..200/+1", TRACE), "combinations"),
            (("-",), "cannot be standard input"),
            ((), "expected a TRACE"),
        ):
            self.assertIn(sentence, run("sweep", *args, status=2), args)
        self.assertIn("No such file", run("sweep", os.path.join(FOLDER, "none"), status=1))

    def test_table_and_plots(self):
        text = run("sweep", "--num-gpu-blocks", "600,900", *POOL, TRACE)
        self.assertEqual(len(re.findall(r"^ +(600|900) .*\d$", text, re.M)), 2)
        self.assertIn("Hit rate\n", text)
        self.assertIn("GiB of KV cache", text)
        self.assertNotIn("\033", text)
        self.assertNotIn("Hit rate\n", run("sweep", "--no-plot", *POOL, TRACE))

    def test_columns_of_axes(self):
        """What an option did has its column where the option is an axis."""
        plain = run("sweep", "--csv", "-", *POOL, "--max-requests", "50", TRACE).splitlines()[0]
        for axis, paths in ((("--watermark", "0.1"), ["recomputed_tokens"]),
                            (("--victim", "lru"), ["recomputed_tokens"]),
                            (("--preempt-above", "0.9"),
                             ["pressure.preemptions", "pressure.held_up", "recomputed_tokens"]),
                            (("--pin-ttl", "3"), ["pins.mean_blocks"]),
                            (("--prefix-window", "9"), ["overtaking"])):
            args = (*axis, *POOL, "--num-gpu-blocks", "900", "--max-requests", "50", TRACE)
            rows = list(csv.DictReader(io.StringIO(run("sweep", "--csv", "-", *args))))
            self.assertEqual([name for name in rows[0] if name not in plain.split(",")],
                             [axis[0][2:], "num-gpu-blocks", *paths])
            self.assertTrue(all(rows[0][path] != "" for path in paths))

    def test_page(self):
        evil = os.path.join(FOLDER, "<script>x.jsonl")
        with open(TRACE, encoding="utf-8") as good, open(evil, "w", encoding="utf-8") as file:
            file.write("".join(good.readlines()[:20]))
        path = os.path.join(FOLDER, "page.html")
        run("sweep", "--num-gpu-blocks", "600,900", *POOL, "--html", path, evil)
        with open(path, encoding="utf-8") as file:
            page = file.read()
        self.assertEqual(page.count("<script"), 2)
        self.assertIsNone(re.search(r"(src|href)=", page))
        text = page.split('type="application/json">')[1].split("</script>")[0]
        data = json.loads(text)
        self.assertEqual(data["trace"], evil)
        self.assertEqual([row["axes"] for row in data["rows"]], [["600"], ["900"]])
        self.assertEqual(data["x_name"], "GiB of KV cache")
        self.assertLess(data["rows"][0]["x"], data["rows"][1]["x"])
        drawn = [(plot["title"], data["columns"][plot["i"]]["path"]) for plot in data["plots"]]
        self.assertEqual(drawn, [("Hit rate", "hit_rate"),
                                 ("Time to first token, p99", "ttft_ms.p99"),
                                 ("Time per output token, p50", "tpot_ms.p50"),
                                 ("Output tokens per second", "output_tokens_per_s")])


class Compare(unittest.TestCase):
    def setUp(self):
        self.a = self.write("a.json", {"hit_rate": 0.5, "steps": 9, "ttft_ms": {"p50": 10, "p99": 20.0},
                                       "name": "x", "preemptions": 0, "list": [1, 2]})
        self.b = self.write("b.json", {"hit_rate": 0.495, "steps": 9, "ttft_ms": {"p50": 10, "p99": 25.0},
                                       "name": "y", "preemptions": 3, "list": [1], "new": True})

    def write(self, name, value):
        path = os.path.join(FOLDER, name)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(value, file)
        return path

    def test_differences(self):
        text = run("compare", self.a, self.b)
        self.assertRegex(text, r"hit_rate +0\.5 +0\.495 +-0\.005 +-1\.00 %")
        self.assertRegex(text, r"ttft_ms\.p99 +20 +25 +\+5 +\+25\.00 %")
        self.assertRegex(text, r"preemptions +0 +3 +\+3\n")
        self.assertRegex(text, r"name +x +y\n")
        self.assertRegex(text, r"list\.1 +2 +-\n")
        self.assertRegex(text, r"new +- +true\n")
        self.assertNotIn("ttft_ms.p50", text)
        self.assertIn("9 values, 3 equal", text)
        self.assertIn("ttft_ms.p50", run("compare", "--all", self.a, self.b))
        self.assertIn("8 values, 8 equal", run("compare", self.a, self.a))

    def test_limits(self):
        for limit, status in (("hit_rate:-1.1%", 0), ("hit_rate:-0.9%", 1), ("hit_rate:+0%", 0),
                              ("hit_rate:-0.01", 0), ("hit_rate:-0.001", 1),
                              ("ttft_ms.p99:+26%", 0), ("ttft_ms.p99:+24%", 1),
                              ("ttft_ms.p99:-1%", 0), ("preemptions:+2", 1), ("preemptions:+3", 0),
                              ("preemptions:+50%", 1), ("hit_rate:-2%,preemptions:+1", 1)):
            text = run("compare", "--fail-on", limit, self.a, self.b, status=status)
            self.assertEqual("limit exceeded" in text, status == 1, limit)
        for limit in ("hit_rate", "hit_rate:1%", "hit_rate:-x", "hit_rate:-1%%", "none:+1",
                      "name:+1"):
            self.assertIn("--fail-on", run("compare", "--fail-on", limit, self.a, self.b, status=2))

    def test_bad_files(self):
        path = os.path.join(FOLDER, "bad.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"a": 1,\n"b" 2}')
        self.assertIn("bad.json:2:", run("compare", self.a, path, status=1))
        self.assertIn("No such file", run("compare", self.a, path + ".none", status=1))
        self.assertIn("two files", run("compare", self.a, status=2))

    def test_kinds(self):
        """Results of different kinds, and files that are no results, are refused."""
        curve, swept = (os.path.join(FOLDER, name) for name in ("kind-c.json", "kind-s.json"))
        run("curve", "--json", curve, TRACE)
        run("sweep", "--num-gpu-blocks", "600,900", *POOL, "--json", swept, TRACE)
        for other, kind in ((curve, "curve"), (swept, "sweep")):
            said = run("compare", self.a, other, status=2)
            self.assertIn("cannot compare results of different commands", said)
            self.assertIn(f"is from quire {kind}\n", said)
            self.assertEqual(said.count("\n"), 1)
        for value in ({"a": 1, "b": 2}, [1], {}):
            strange = self.write("strange.json", value)
            self.assertIn("strange.json: not a result of quire",
                          run("compare", strange, strange, status=2))
        self.assertIn(" equal\n", run("compare", swept, swept))
        plan = self.write("plan.json", json.loads(run("plan", "--json")))
        self.assertIn(" equal\n", run("compare", plan, plan))

    def test_reports(self):
        paths = []
        for blocks in ("600", "900"):
            paths.append(os.path.join(FOLDER, f"report-{blocks}.json"))
            run("replay", "--num-gpu-blocks", blocks, *POOL, "--quiet", "--json", paths[-1], TRACE)
        self.assertRegex(run("compare", *paths), r"blocks\.total +599 +899 +\+300")


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = folder
        TRACE = os.path.join(folder, "trace.jsonl")
        run("generate", "rag", "--requests", "300", "--seed", "3", "--document-tokens", "2000",
            "--max-tokens", "8000", "--out", TRACE)
        unittest.main()
