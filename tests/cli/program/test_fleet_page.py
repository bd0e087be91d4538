#!/usr/bin/env python3
"""What `quire fleet` writes to be looked at: the page's data, routing decisions, the Perfetto trace.

    tests/cli/program/test_fleet_page.py QUIRE

The heat maps are computed a second time from the rows of --csv.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
FILES = ("html", "json", "csv", "why", "perfetto")


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


class FleetPage(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def generate(self, kind="mixed", requests=300):
        run("generate", kind, "--out", self.path("trace"), "--requests", str(requests), "--rate", "20",
            "--seed", "4")
        return self.path("trace")

    def write(self, *requests):
        """A trace in Mooncake's format: (time in s, prompt tokens, output tokens, ids)."""
        with open(self.path("trace"), "w", encoding="utf-8") as file:
            for time, tokens, outputs, ids in requests:
                file.write(json.dumps({"timestamp": int(time * 1000), "input_length": tokens,
                                       "output_length": outputs, "hash_ids": ids}) + "\n")
        return self.path("trace")

    def fleet(self, *args, files=FILES):
        """The report of a fleet that writes those files, as `html`, `json`, ..."""
        out = [word for name in files for word in (f"--{name}", self.path(name))]
        run("fleet", "--quiet", "--deterministic", "--skip-bad", *out, *args)
        return json.loads(self.read("json"))

    def rows(self):
        return [{key: float(value) if value else None for key, value in row.items()}
                for row in csv.DictReader(self.read("csv").splitlines())]

    # ---- the history ------------------------------------------------------------------

    def check_sums(self, report):
        fleet = report["fleet"]
        bins = fleet["history"]["bins"]
        for key in ("prompt_tokens", "output_tokens", "hit_tokens", "ideal_tokens"):
            self.assertEqual(sum(bins[key]), report[key], key)
        self.assertEqual(sum(bins["believed_tokens"]), fleet["believed_tokens"])
        self.assertEqual(sum(bins["ended"]), report["requests"])
        lost = {key: sum(values) for key, values in bins["losses"].items()}
        self.assertEqual(lost, {key: report["losses"][key] for key in lost})
        beyond = lost.pop("beyond_ideal_tokens")
        self.assertEqual(report["hit_tokens"] + sum(lost.values()) - beyond, report["ideal_tokens"])
        for name in ("waiting", "running", "hit_rate"):
            rows = fleet["history"][name]
            self.assertEqual({len(row) for row in rows}, {len(bins["arrived"])})

    def check_maps(self, history, num_workers):
        """Each cell against the rows of --csv."""
        width, end = history["bin_s"], history["end_s"]
        count = len(history["bins"]["arrived"])
        waiting, running, prompt, hits = ([[0] * count for _ in range(num_workers)] for _ in range(4))
        for row in self.rows():
            worker = int(row["worker"])
            for cells, begin, stop in ((waiting, row["arrival_s"], row["scheduled_s"]),
                                       (running, row["scheduled_s"], row["end_s"])):
                for i in range(int(begin / width), int(stop / width) + 1):
                    cells[worker][i] += max(0, min(stop, (i + 1) * width) - max(begin, i * width))
            i = int(row["first_token_s"] / width)
            prompt[worker][i] += row["prompt_tokens"]
            hits[worker][i] += row["hit_tokens"]
        seen = 0
        for worker in range(num_workers):
            for i in range(count):
                length = min(width, end - i * width)
                for name, cells in (("waiting", waiting), ("running", running)):
                    self.assertAlmostEqual(history[name][worker][i], cells[worker][i] / length,
                                           delta=0.006, msg=(name, worker, i))
                rate = history["hit_rate"][worker][i]
                if rate is None:
                    self.assertEqual(prompt[worker][i], 0)
                else:
                    self.assertAlmostEqual(rate, hits[worker][i] / prompt[worker][i], delta=0.0006)
                    seen += rate > 0
        self.assertGreater(seen, 20)

    def test_sums_and_maps(self):
        trace = self.generate()
        for options in (("--router", "round-robin"), ("--num-gpu-blocks", "8400", "--router", "dynamo-kv",
                                                      "--kv-lag", "300")):
            with self.subTest(options=options):
                report = self.fleet("--workers", "5", *options, trace)
                self.check_sums(report)
                self.check_maps(report["fleet"]["history"], 5)

    def test_the_page_has_what_json_has(self):
        report = self.fleet("--workers", "3", self.generate(requests=60))
        text = re.search(r'<script id="data" type="application/json">(.*?)</script>',
                         self.read("html"), re.S)[1]
        page = json.loads(text)
        self.assertEqual((page["format"], page["version"]), ("quire-fleet", 1))
        self.assertEqual(page["report"], report)
        self.assertEqual(dict(page["meta"]["options"])["workers"], "3")

    def test_the_page_changes_nothing_else(self):
        trace = self.generate()
        for router in ("round-robin", "dynamo-kv", "sgl-cache-aware"):
            with self.subTest(router=router):
                options = ("--workers", "4", "--num-gpu-blocks", "8400", "--router", router, trace)
                looked = self.fleet(*options)
                rows = self.read("csv")
                other = self.fleet(*options, files=("json", "csv"))
                self.assertIsNotNone(looked["fleet"].pop("history"))
                looked.pop("made_by"), other.pop("made_by")
                self.assertEqual(looked, other)
                self.assertEqual(rows, self.read("csv"))

    def test_threads_change_no_byte(self):
        trace = self.generate()
        texts = []
        for threads in ("1", "2", "5"):
            self.fleet("--workers", "6", "--num-gpu-blocks", "8400", "--router", "dynamo-kv", "--kv-lag",
                       "200", "--slo", "ttft=1s", "--threads", threads, trace)
            texts.append([self.read(name) for name in FILES])
        for name, *others in zip(FILES, *texts):
            self.assertEqual(len(set(others)), 1, name)

    def test_copies_by_hand(self):
        """Two workers in turn: the first two blocks of ids are in both caches, the third in one."""
        trace = self.write((0, 1024, 1, [1, 2]), (1, 1024, 1, [1, 2]), (2, 512, 1, [3]))
        history = self.fleet("--workers", "2", trace)["fleet"]["history"]
        blocks = 512 // 16
        self.assertEqual(history["bins"]["blocks"][-1], 3 * blocks)
        self.assertEqual(history["bins"]["copies"][-1], 5 * blocks)
        self.assertEqual(history["prefixes"], [{"tokens": 1024, "requests": 2, "first_request": 1,
                                                "copies": 2}])

    def test_slo_by_class(self):
        trace = self.write((0, 512, 2, [1]), (5, 20480, 2, list(range(2, 42))), (9, 512, 2, [1]))
        rows = [(0, 1024, 2, 2), (8193, 32768, 1, 0)]
        report = self.fleet("--workers", "2", "--slo", "ttft=60ms", trace)
        history = report["fleet"]["history"]
        found = [(one["from"], one["to"], one["requests"], one["good"]) for one in history["slo_classes"]
                 if one["group"] == "prompt"]
        self.assertEqual(found, rows)
        self.assertEqual(sum(history["bins"]["good"]), report["goodput"]["requests"])
        self.assertEqual(report["goodput"]["requests"], 2)
        self.assertNotIn("slo_classes", self.fleet("--workers", "2", trace)["fleet"]["history"])

    def test_cost(self):
        report = self.fleet("--workers", "3", "--tp", "2", self.generate(requests=50))
        cost = report["fleet"]["cost"]
        self.assertEqual(cost["gpus"], 6)
        self.assertAlmostEqual(cost["gpu_hours"], 6 * report["simulated_s"] / 3600)
        self.assertAlmostEqual(cost["busy_gpu_hours"], 2 * report["busy_s"] / 3600)

    def test_without_requests(self):
        report = self.fleet("--workers", "2", "--max-model-len", "1024",
                            self.write((0, 5120, 2, list(range(10)))))
        self.assertEqual(report["requests"], 0)
        self.assertEqual(sum(report["fleet"]["history"]["bins"]["ended"]), 0)

    def test_the_size_is_bounded(self):
        self.fleet("--workers", "1100", "--max-model-len", "8192", "--num-gpu-blocks", "600",
                   self.generate(requests=1500))
        history = json.loads(self.read("json"))["fleet"]["history"]
        self.assertEqual(history["workers_per_row"], 2)
        self.assertEqual(len(history["running"]), 550)
        self.assertLessEqual(len(history["bins"]["arrived"]), 128)
        self.assertLess(len(self.read("html")), 4e6)

    # ---- other files --------------------------------------------------------------------

    def test_why(self):
        self.fleet("--workers", "4", "--router", "least-loaded", self.generate())
        lines = [json.loads(line) for line in self.read("why").splitlines()]
        workers = {int(row["request"]): int(row["worker"]) for row in self.rows()}
        self.assertEqual({line["kind"] for line in lines}, {"routed"})
        self.assertEqual({line["request"]: line["worker"] for line in lines}, workers)
        self.assertEqual(len(lines), len(workers))
        for line in lines:
            self.assertTrue(line["why"].startswith(f"worker {line['worker']}"), line)

    def test_kept_decisions(self):
        report = self.fleet("--workers", "4", "--router", "dynamo-kv", self.generate())
        rows = {int(row["request"]): row for row in self.rows()}
        decisions = report["fleet"]["history"]["decisions"]
        self.assertEqual((decisions["every"], len(decisions["list"])), (1, len(rows)))
        for one in decisions["list"]:
            row = rows[one["request"]]
            for key in ("worker", "prompt_tokens", "believed_tokens", "hit_tokens"):
                self.assertEqual(one[key], row[key], (one["request"], key))

    def test_perfetto(self):
        self.fleet("--workers", "3", self.generate(requests=80))
        trace = json.loads(self.read("perfetto"))
        events = trace["traceEvents"]
        names = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        self.assertEqual(names, {1: "worker 0", 2: "worker 1", 3: "worker 2"})
        self.assertIn("made_by", trace["otherData"])
        begins = {(e["id"], e["name"]): e for e in events if e["ph"] == "b"}
        ends = {(e["id"], e["name"]): e for e in events if e["ph"] == "e"}
        self.assertEqual(begins.keys(), ends.keys())
        for row in self.rows():
            times = [row[key] for key in ("arrival_s", "scheduled_s", "first_token_s", "end_s")]
            for name, first, last in zip(("waiting", "prefill", "decode"), times, times[1:]):
                key = (int(row["request"]), name)
                self.assertEqual(begins[key]["pid"], row["worker"] + 1)
                self.assertAlmostEqual(begins[key]["ts"], first * 1e6, delta=2)
                self.assertAlmostEqual(ends[key]["ts"], last * 1e6, delta=2)
        last = {e["pid"]: e["args"] for e in events if e["ph"] == "C"}
        self.assertEqual(set(map(str, last.values())), {str({"running": 0, "waiting": 0})})


if __name__ == "__main__":
    QUIRE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
