#!/usr/bin/env python3
"""What results say of themselves: what made them, whether the engine kept up, and what was lost.

    tests/cli/program/test_report.py QUIRE
"""

import csv
import json
import os
import pty
import re
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""


def run(*args, status=0, cwd=None, stdin=None):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=300, cwd=cwd,
                          input=stdin)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def options_of(command):
    """The options in the help of a command, and whether they are outputs: what they name is a file
    that is written, or how a result is shown."""
    names = re.findall(r"^  --(?:\[no-\])?([a-z0-9-]+)", run(command, "--help"), re.M)
    outputs = {"json", "html", "csv", "trace", "why", "perfetto", "quiet", "plot", "jobs",
               "compare-with"}  # the last one only where it is given
    return {name for name in names if name not in outputs}


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def load(self, name):
        return json.loads(self.read(name))

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def generate(self, kind, *args):
        run("generate", kind, "--out", self.path(f"{kind}.jsonl"), *args)
        return self.path(f"{kind}.jsonl")


class MadeBy(Files):
    def setUp(self):
        super().setUp()
        self.trace = self.generate("mixed", "--requests", "60")

    def test_every_option_is_named(self):
        run("replay", "--quiet", "--json", self.path("r.json"), self.trace)
        run("sweep", "--no-plot", "--tp", "1,2", "--json", self.path("s.json"), self.trace)
        run("curve", "--json", self.path("c.json"), self.trace)
        for command, name in (("replay", "r.json"), ("sweep", "s.json"), ("curve", "c.json")):
            record = self.load(name)["made_by"]
            self.assertEqual((record["program"], record["command"]), ("quire", command))
            self.assertEqual(set(record["options"]), options_of(command))
            self.assertRegex(record["version"], r"^\d+\.\d+\.\d+$")
            self.assertEqual(record["trace"]["path"], self.trace)
            self.assertEqual(record["trace"]["bytes"], os.path.getsize(self.trace))
            digest = subprocess.run(["sha256sum", self.trace], capture_output=True, text=True)
            self.assertEqual(record["trace"]["sha256"], digest.stdout.split()[0])

    def test_values(self):
        run("replay", "--quiet", "--tp", "2", "--speed", "0.1234567890123", "--gpu", "H100",
            "--kv-cache-dtype", "fp8", "--no-enable-prefix-caching", "--max-num-seqs", "1k",
            "--why", self.path("w"), "--json", self.path("r.json"), self.trace)
        report = self.load("r.json")
        options = report["made_by"]["options"]
        wanted = {"tp": 2, "gpu": "H100", "kv-cache-dtype": "fp8", "enable-prefix-caching": False,
                  "max-num-seqs": 1000, "why": True, "quantization": "model", "lookahead": 0,
                  "num-gpu-blocks": None, "gpu-memory-utilization": 0.9, "matmul-tflops": None}
        self.assertEqual({name: options[name] for name in wanted}, wanted)
        self.assertEqual(float(options["speed"]), 0.1234567890123)
        self.assertEqual(report["gpu"], "2 x H100")
        resolved = report["made_by"]["resolved"]
        self.assertEqual(resolved["num-gpu-blocks"], report["blocks"]["total"] + 1)
        self.assertGreater(resolved["matmul-tflops"], 0)

    def test_every_file_has_it(self):
        names = ("json", "html", "csv", "trace", "why", "perfetto")
        words = [word for name in names for word in (f"--{name}", self.path(name))]
        run("replay", "--quiet", "--tp", "2", *words, self.trace)
        record = self.load("json")["made_by"]
        self.assertEqual(self.load("csv.meta.json")["made_by"], record)
        self.assertEqual(self.load("why.meta.json")["made_by"], record)
        self.assertEqual(self.load("perfetto")["otherData"]["made_by"], record)
        self.assertEqual(json.loads(self.read("trace").splitlines()[0])["made_by"], record)
        data = json.loads(re.search(r'id="data">(.*?)</script>', self.read("html"), re.S)[1])
        self.assertEqual(data["report"]["made_by"], record)
        self.assertEqual(data["meta"]["gpu"], "2 x H200")
        shown = dict(data["meta"]["options"])
        for name in ("speed", "kv-cache-dtype", "quantization", "gpu-memory-utilization",
                     "enable-prefix-caching", "lookahead", "tp", "num-gpu-blocks"):
            self.assertIn(name, shown)
        self.assertEqual(shown["enable-prefix-caching"], "on")
        # the table itself stays one that every reader takes
        self.assertTrue(self.read("csv").startswith("request,line,"))
        self.assertFalse(os.path.exists(self.path("json.meta.json")))

    def test_csv_of_sweep_and_curve(self):
        run("sweep", "--no-plot", "--tp", "1,2", "--csv", self.path("s.csv"), self.trace)
        self.assertEqual(self.load("s.csv.meta.json")["made_by"]["options"]["tp"], ["1", "2"])
        run("curve", "--no-plot", "--csv", self.path("c.csv"), self.trace)
        self.assertEqual(self.load("c.csv.meta.json")["made_by"]["command"], "curve")
        run("curve", "--no-plot", "--csv", "/dev/null", self.trace)
        self.assertFalse(os.path.exists("/dev/null.meta.json"))

    def test_workload(self):
        head = json.loads(self.read("mixed.jsonl").splitlines()[0])
        self.assertEqual(head["made_by"]["command"], "generate")
        self.assertEqual(head["made_by"]["options"]["requests"], 60)
        self.assertEqual(set(head["made_by"]["options"]), options_of("generate") - {"out"})

    def test_plan_and_time(self):
        self.assertEqual(json.loads(run("plan", "--json"))["made_by"]["options"]["model"],
                         "llama-3.1-8b")
        step = json.loads(run("time", "--json", "--decode", "3"))
        self.assertEqual(step["made_by"]["options"]["decode"], 3)


class Rerun(Files):
    def setUp(self):
        super().setUp()
        self.trace = self.generate("mixed", "--requests", "80")

    def check_same_bytes(self, command, *args):
        run(command, *args, "--json", self.path("a.json"), self.trace)
        run("rerun", self.path("a.json"), "--json", self.path("b.json"))
        self.assertEqual(self.read("a.json"), self.read("b.json"))

    def test_same_bytes(self):
        self.check_same_bytes("replay", "--deterministic", "--tp", "2", "--speed", "0.333333333333",
                              "--no-reserve-full-sequence", "--slo", "ttft=1s,tpot=20ms")
        self.check_same_bytes("replay", "--deterministic", "--num-gpu-blocks", "9000", "--why",
                              self.path("why"))
        self.check_same_bytes("sweep", "--deterministic", "--max-num-seqs", "4..16",
                              "--enable-prefix-caching=on,off", "--max-requests", "20")
        self.check_same_bytes("curve", "--sizes", "1k,9k", "--policy", "lru")
        self.check_same_bytes("curve", "--model", "llama-3.1-8b", "--sample", "0.5")

    def test_why_is_not_overwritten(self):
        run("replay", "--quiet", "--why", self.path("why"), "--json", self.path("a.json"), self.trace)
        self.write("why", "mine")
        run("rerun", self.path("a.json"), "--quiet")
        self.assertEqual(self.read("why"), "mine")

    def test_other_options(self):
        run("replay", "--quiet", "--tp", "2", "--json", self.path("a.json"), self.trace)
        run("rerun", self.path("a.json"), "--gpu", "H100", "--quiet", "--json", self.path("b.json"))
        options = self.load("b.json")["made_by"]["options"]
        self.assertEqual((options["gpu"], options["tp"]), ("H100", 2))
        said = run("compare", self.path("a.json"), self.path("b.json"))
        self.assertRegex(said, r"made_by\.options\.gpu +H200 +H100")

    def test_from_the_file_beside_a_csv(self):
        run("replay", "--quiet", "--tp", "2", "--csv", self.path("a.csv"), self.trace)
        run("rerun", self.path("a.csv.meta.json"), "--quiet", "--csv", self.path("b.csv"))
        self.assertEqual(self.read("a.csv"), self.read("b.csv"))

    def test_a_trace_that_changed(self):
        run("replay", "--quiet", "--json", self.path("a.json"), self.trace)
        with open(self.trace, "a", encoding="utf-8") as file:
            file.write("\n")
        said = run("rerun", self.path("a.json"), status=1)
        self.assertIn("the trace has changed", said)
        self.assertIn("--changed-trace", said)
        self.assertIn("requests", run("rerun", self.path("a.json"), "--changed-trace"))

    def test_a_trace_that_moved(self):
        run("replay", "--quiet", "--json", self.path("a.json"), "mixed.jsonl", cwd=self.folder)
        self.assertIn("requests", run("rerun", self.path("a.json")))  # beside the result
        moved = self.path("moved.jsonl")
        os.rename(self.trace, moved)
        self.assertIn("--trace-path", run("rerun", self.path("a.json"), status=1))
        self.assertIn("requests", run("rerun", self.path("a.json"), "--trace-path", moved))

    def test_wrong_calls(self):
        run("replay", "--quiet", "--json", self.path("a.json"), "-", stdin=self.read("mixed.jsonl"))
        self.assertIn("standard input", run("rerun", self.path("a.json"), status=2))
        self.assertIn("RESULT.json", run("rerun", status=2))
        self.assertIn("No such file", run("rerun", self.path("none.json"), status=1))
        strange = self.write("strange.json", '{"made_by": {"command": "tier"}}')
        self.assertIn("not a result of quire replay", run("rerun", strange, status=2))
        self.assertIn("not a result of quire replay", run("rerun", self.write("e.json", "{}"), status=2))
        run("replay", "--quiet", "--json", self.path("b.json"), self.trace)
        self.assertIn("unknown option --gpuu", run("rerun", self.path("b.json"), "--gpuu", "x", status=2))
        text = self.read("b.json").replace('"lookahead"', '"unheard-of"')
        self.assertIn("--unheard-of", run("rerun", self.write("c.json", text), status=2))


def mooncake(times, prompt=2000, output=200):
    return "".join(json.dumps({"timestamp": int(1000 * t), "input_length": prompt,
                               "output_length": output, "hash_ids": [4 * i + k for k in range(4)]})
                   + "\n" for i, t in enumerate(times))


class Verdict(Files):
    def report(self, *args):
        text = run("replay", "--json", self.path("r.json"), *args)
        return self.load("r.json"), text

    def test_overload(self):
        """10 requests/s of 8,000 tokens on one GPU: by hand, the prompts alone take longer."""
        trace = self.write("t.jsonl", mooncake([i / 10 for i in range(600)], prompt=2048))
        report, text = self.report("--max-num-seqs", "4", trace)
        verdict = report["verdict"]
        self.assertEqual(verdict["state"], "overloaded")
        self.assertAlmostEqual(verdict["arrive_per_s"], 10, delta=0.2)
        self.assertLess(verdict["served_per_s"], 0.9 * verdict["arrive_per_s"])
        self.assertEqual(verdict["arrived"], 600)
        self.assertGreater(verdict["waiting_at_last_arrival"], 30)
        head = text.split("\n\n")[1]  # at the top
        self.assertRegex(head, r"^Overloaded: 10 requests/s arrive, [\d.]+/s are served: the queue "
                               r"grows \(\d+ of 600 requests were waiting when the last one came\)")
        self.assertIn(verdict["text"], text)

    def test_overload_in_a_sweep(self):
        trace = self.write("t.jsonl", mooncake([i / 10 for i in range(600)], prompt=2048))
        text = run("sweep", "--no-plot", "--max-num-seqs", "4,256", "--tp", "2", trace)
        self.assertIn("replays, llama-3.1-8b on 2 x H200, tp 2\n", text)
        self.assertIn("Overloaded: 1 of 2 replays", text)

    def test_in_time(self):
        trace = self.write("t.jsonl", mooncake([i for i in range(60)]))
        report, text = self.report(trace)
        self.assertEqual(report["verdict"]["state"], "in_time")
        self.assertIn("\nIn time: ", text)

    def test_queued(self):
        """60 at once, then nothing for an hour, then one: no overload, but a queue."""
        trace = self.write("t.jsonl", mooncake([0] * 60 + [3600]))
        report, text = self.report("--max-num-seqs", "2", trace)
        self.assertEqual(report["verdict"]["state"], "queued")
        self.assertRegex(text, r"Queued: .* \(58 requests at most")

    def test_burst(self):
        trace = self.write("t.jsonl", mooncake([0, 1, 2]))
        report, _ = self.report("--clock", "burst", trace)
        self.assertEqual(report["verdict"]["state"], "unknown")

    def test_no_contents(self):
        trace = self.write("azure.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            f"2023-11-16 18:15:{i:02d}.000,500,20\n" for i in range(30)))
        report, text = self.report(trace)
        self.assertFalse(report["has_contents"])
        self.assertIsNone(report["ideal_hit_rate"])
        self.assertNotIn("hit rate  ", text)
        self.assertIn("does not say which prompts share content", text)
        curve = run("curve", trace)
        self.assertIn("does not say which prompts share content", curve)
        self.assertNotIn("e-0", curve)
        self.assertTrue(self.report(self.generate("chat", "--requests", "9"))[0]["has_contents"])

    def test_losses_are_at_the_top(self):
        trace = self.write("t.jsonl", mooncake([0, 60, 120, 180]).replace("[4, 5, 6, 7]", "[0, 1, 2, 3]"))
        text = run("replay", "--block-size", "512", trace)
        self.assertRegex(text.split("\n\n")[1], r"Lost: [\d.]+ % of prompt tokens .* most of them were ")
        bad = self.write("bad.jsonl", mooncake([0, 1]) + "{\n")
        self.assertIn("1 requests skipped", run("replay", "--skip-bad", bad).split("\n\n")[0])


class Numbers(Files):
    def test_p95_and_goodput(self):
        trace = self.write("t.jsonl", mooncake([0.2 * i for i in range(100)]) + mooncake([20], 2000, 1))
        run("replay", "--slo", "ttft=120ms,tpot=7ms", "--max-num-seqs", "4", "--json",
            self.path("r.json"), "--csv", self.path("r.csv"), trace)
        report = self.load("r.json")
        rows = list(csv.DictReader(self.read("r.csv").splitlines()))
        for key in ("ttft_ms", "e2e_ms", "queue_ms"):
            values = sorted(float(row[key]) for row in rows)
            self.assertAlmostEqual(report[key]["p95"], values[-(-95 * len(rows) // 100) - 1], delta=0.01)
        good = [row for row in rows if float(row["ttft_ms"]) <= 120 and float(row["tpot_ms"] or 0) <= 7]
        self.assertTrue(0 < len(good) < len(rows), len(good))
        self.assertEqual([row["meets_slo"] == "1" for row in rows], [row in good for row in rows])
        self.assertEqual(report["goodput"]["requests"], len(good))
        self.assertAlmostEqual(report["goodput"]["share"], len(good) / len(rows))
        self.assertAlmostEqual(report["goodput"]["requests_per_s"], len(good) / report["simulated_s"])
        self.assertEqual(report["slo"], {"ttft_ms": 120, "tpot_ms": 7, "e2e_ms": 0})
        text = run("rerun", self.path("r.json"))
        self.assertRegex(text, rf"Goodput: [\d.]+ requests/s, [\d.]+ % \({len(good)} of {len(rows)} requests "
                               r"keep ttft <= 120 ms, tpot <= 7.00 ms\)")
        self.assertRegex(text, r"Latency +mean +p50 +p90 +p95 +p99\n")

    def test_tpot_of_one_token(self):
        trace = self.write("t.jsonl", mooncake([0, 5], output=1) + mooncake([10], output=50))
        run("replay", "--quiet", "--json", self.path("r.json"), "--csv", self.path("r.csv"), trace)
        rows = list(csv.DictReader(self.read("r.csv").splitlines()))
        self.assertEqual([row["tpot_ms"] == "" for row in rows], [True, True, False])
        self.assertAlmostEqual(float(rows[2]["tpot_ms"]), self.load("r.json")["tpot_ms"]["mean"], delta=0.001)

    def test_goodput_elsewhere(self):
        trace = self.generate("chat", "--requests", "50")
        slo = "ttft=100ms,tpot=20ms"
        run("sweep", "--slo", slo, "--tp", "1,2", "--json", self.path("s.json"), "--csv",
            self.path("s.csv"), trace)
        runs = self.load("s.json")["runs"]
        self.assertEqual([one["options"]["slo"] for one in runs], [slo, slo])
        rows = list(csv.DictReader(self.read("s.csv").splitlines()))
        for row, one in zip(rows, runs):
            self.assertAlmostEqual(float(row["goodput.share"]), one["report"]["goodput"]["share"])
            self.assertIn("ttft_ms.p95", row)
        text = run("sweep", "--slo", f"{slo};ttft=1ms", trace)
        self.assertIn("good %", text)
        self.assertEqual(len(re.findall(r"^ *ttft=", text, re.M)), 2)
        for bad in ("ttft", "ttft=", "ttft=2", "ttft=0s", "ttft=1s,", "tptt=1s", "ttft=-1s", "e2e=1h"):
            self.assertIn(f'invalid value "{bad}" for --slo', run("replay", "--slo", bad, trace, status=2))

    def test_units_fit(self):
        trace = self.write("t.jsonl", mooncake([0] * 400, prompt=2048, output=4000))
        text = run("replay", "--max-num-seqs", "2", trace)
        self.assertRegex(text, r"end to end .* [\d.]+ (min|h)")
        self.assertRegex(text, r"time per output token +[\d.]+ ms")
        self.assertNotRegex(text, r"\d{6,}\.\d")
        self.assertIn("llama-3.1-8b on 4 x H200\n", run("replay", "--tp", "4", trace))

    def test_plots(self):
        trace = self.write("t.jsonl", mooncake([0] * 300, prompt=2048, output=400))
        text = run("sweep", "--max-num-seqs", "1,2,4", trace)
        for line in text.splitlines():
            if "│" in line or "┤" in line:
                self.assertRegex(line, r"^.{9}[│┤]", line)
        self.assertNotRegex(text, r"\de[+-]\d")
        self.assertRegex(text, r" (s|min) ┤")
        self.assertIn("Hit rate: all values are 0", text)

    def test_colors(self):
        """A terminal gets colours, unless it cannot show them or NO_COLOR is set."""
        trace = self.generate("chat", "--requests", "30")
        for env, has_colors in (({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False),
                                ({"TERM": "xterm", "NO_COLOR": "1"}, False)):
            pid, fd = pty.fork()
            if pid == 0:
                os.execve(QUIRE, [QUIRE, "curve", trace], {"PATH": os.environ["PATH"], **env})
            said = b""
            try:
                while part := os.read(fd, 65536):
                    said += part
            except OSError:
                pass  # the other side has closed the terminal
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            os.close(fd)
            self.assertIn(b"blocks", said)
            self.assertEqual(b"\033[3" in said, has_colors, env)

    def test_ideals(self):
        """The hits of curve's unlimited pool are what replay calls reachable; ideal counts more."""
        trace = self.write("t.jsonl", "".join(json.dumps(
            {"timestamp": 60000 * i, "input_length": n, "output_length": 2, "hash_ids": ids}) + "\n"
            for i, (n, ids) in enumerate(((1100, [1, 2, 3]), (1100, [1, 2, 3]), (1024, [1, 2]),
                                          (1600, [1, 2, 4, 5])))))
        report = json.loads(run("replay", "--quiet", "--block-size", "512", "--json", "-", trace))
        curve = json.loads(run("curve", "--json", "-", trace))
        self.assertEqual(report["reachable_tokens"], 512 * curve["ideal_hit_blocks"])
        self.assertGreater(report["ideal_blocks"], curve["ideal_hit_blocks"])
        self.assertIn("reachable", run("curve", trace))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
