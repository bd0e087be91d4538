#!/usr/bin/env python3
"""`quire replay` with tiers, from outside: every token has one source, tiers that fail change no
decision, the same input gives the same bytes, and what comes back from real tiers is what went there.

    tests/cli/program/test_tiers.py QUIRE
"""

import csv
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

QUIRE = ""
SMALL = ("--model", "llama-3.2-1b")
BLOCK = 16 * 32768  # bytes of a block of that model


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}, {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def report(*args):
    return json.loads(run("replay", "--quiet", "--deterministic", "--json", "-", *SMALL, *args))


def mooncake(*requests):
    """Lines of (time in s, prompt tokens, output tokens, ids of 512 tokens)."""
    return "".join(json.dumps({"timestamp": int(t * 1000), "input_length": n, "output_length": o,
                               "hash_ids": ids}) + "\n" for t, n, o, ids in requests)


def rounds(num_prompts, num_rounds, ids=8, apart=3):
    """The same prompts, again and again: an LRU of fewer blocks finds none of them."""
    return mooncake(*[(apart * (r * num_prompts + p), 512 * ids, 4,
                       list(range(100 * p, 100 * p + ids)))
                      for r in range(num_rounds) for p in range(num_prompts)])


class Tiers(unittest.TestCase):
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

    def check(self, r, unsized=()):
        """Every prompt token has one source, and no more blocks are anywhere than there is room."""
        hits = r["hits_by_tier"]
        self.assertEqual(sum(hits.values()), r["prompt_tokens"])
        self.assertEqual(sum(hits.values()) - hits["computed"], r["hit_tokens"])
        self.assertEqual(sum(hits.values()) - hits["computed"] - hits["gpu"],
                         r["tier_time"]["loaded_tokens"])
        self.assertEqual(r["tier_time"]["wrong_blocks"], 0)
        for tier in r["tiers"]:
            self.assertEqual(tier["empty"] + tier["cached"] + tier["active"], tier["blocks"])
            mean = tier["mean_empty"] + tier["mean_cached"] + tier["mean_active"]
            if tier["tier"] in unsized:  # a server without a limit: its size is what it holds
                self.assertLessEqual(mean, tier["blocks"])
            else:
                self.assertAlmostEqual(mean, tier["blocks"], delta=1e-3 * tier["blocks"] + 1)
            self.assertEqual(tier["hit_tokens"], hits[tier["tier"].lower()])
        return hits

    # -- by hand

    def test_host_memory(self):
        trace = self.write("t.jsonl", rounds(4, 3))
        sizes = ("--max-model-len", "8192", "--num-gpu-blocks", "600")  # two prompts of 256 blocks
        alone = report(*sizes, trace)
        self.assertEqual(alone["hit_tokens"], 0)
        self.assertNotIn("tiers", alone)
        for kind in ("eager", "lazy"):
            r = report(*sizes, "--cpu-blocks", "2000", "--offload", kind, trace)
            hits = self.check(r)
            self.assertGreater(hits["cpu"], 0.9 * 8 * 4096 - 512, kind)
            self.assertGreater(r["tiers"][0]["out_blocks"], 0)
            self.assertLess(r["ttft_ms"]["mean"], alone["ttft_ms"]["mean"])
            self.assertGreater(r["tier_time"]["saved_s"], 0)
        small = report(*sizes, "--cpu-blocks", "400", "--cpu-policy", "lru", trace)
        self.assertLess(self.check(small)["cpu"], hits["cpu"] / 2)

    def test_file_and_redis(self):
        trace = self.write("t.jsonl", rounds(6, 3))
        sizes = ("--max-model-len", "5000", "--num-gpu-blocks", "400", "--cpu-blocks", "600")
        none = self.check(report(*sizes, trace))
        for tier, size in (("file", str(4000 * BLOCK)), ("redis", "10G")):
            flag = "--file-tier" if tier == "file" else "--redis"
            fast = ("--file-bandwidth", "50", "--redis-bandwidth", "50", "--admit", "all")
            r = report(*sizes, *fast, flag, size, trace)
            hits = self.check(r)
            self.assertGreater(hits[tier], 10000, tier)
            self.assertGreater(r["hit_tokens"], none["cpu"])
            self.assertGreater(r["tiers"][1]["out_blocks"], 0)
        both = report(*sizes, *fast, "--file-tier", str(500 * BLOCK), "--redis", "10G", trace)
        self.check(both)
        self.assertEqual([tier["tier"] for tier in both["tiers"]], ["CPU", "File", "Redis"])
        self.assertEqual(both["tiers"][1]["blocks"], 500)

    def test_a_slow_disk_is_left_alone(self):
        """Loading is not worth it where computing is faster; no request waits for it long."""
        trace = self.write("t.jsonl", rounds(6, 3))
        gpu = ("--max-model-len", "5000", "--num-gpu-blocks", "400")
        sizes = (*gpu, "--cpu-blocks", "600", "--file-tier", "10G", "--admit", "all")
        slow = report(*sizes, "--file-bandwidth", "0.05", trace)
        fast = report(*sizes, "--file-bandwidth", "50", trace)
        self.check(slow)
        self.assertLess(slow["hits_by_tier"]["file"], fast["hits_by_tier"]["file"] / 2)
        alone = report(*gpu, trace)
        self.assertLess(slow["ttft_ms"]["p99"], alone["ttft_ms"]["p99"] + 6000)

    # -- everything at once

    def test_sums(self):
        traces = [self.generate(kind, "--requests", "60") for kind in ("agent", "mixed")]
        every = ("", "--offload lazy", "--async-scheduling", "--async-scheduling --offload lazy",
                 "--clock burst", "--file-tier 20G", "--redis 20G --offload lazy",
                 "--file-tier 5G --redis 20G --tier-policy arc",
                 "--file-tier 5G --tier-policy s3fifo --admit all",
                 "--file-tier 5G --tier-policy lookahead --admit long",
                 "--scheduling-policy priority --file-tier 5G", "--tier-failures 0.3 --file-tier 5G",
                 "--tier-failures 0.3 --offload lazy --redis 5G", "--profile vllm-0.20",
                 "--profile vllm-0.20 --offload lazy", "--profile vllm-0.32",
                 "--profile vllm-0.32 --offload lazy --async-scheduling",
                 "--profile vllm-0.32 --file-tier 5G --redis 20G", "--cpu-bandwidth 0.01",
                 "--lookahead 64")
        for i, args in enumerate(every):
            r = report("--num-gpu-blocks", "8500", "--cpu-blocks", "12000", "--speed", "20",
                       *args.split(), traces[i % 2])
            self.check(r)
            self.assertEqual(r["requests"], 60, args)
            self.assertEqual(r["blocks"]["active"], 0, args)

    def test_windows_and_states(self):
        """Models with several groups of layers."""
        trace = self.generate("multi-turn", "--requests", "60")
        for model in ("gemma-3-12b", "gpt-oss-20b"):
            for more in ((), ("--profile", "vllm-0.32"),
                         ("--profile", "vllm-0.32", "--async-scheduling", "--offload", "lazy")):
                r = json.loads(run("replay", "--quiet", "--json", "-", "--model", model,
                                   "--num-gpu-blocks", "20000", "--cpu-blocks", "40000",
                                   "--max-model-len", "32768", "--file-tier", "50G", *more, trace))
                self.check(r)
                self.assertEqual(r["requests"], 60)

    def test_keys_of_the_profile(self):
        """What host memory keeps of a hybrid model is found by the keys of the profile."""
        trace = self.write("t.jsonl", rounds(8, 3, ids=4))
        for block in ("16", "24"):  # 24: hashes of 8 tokens, windows of 16
            for kind in ("eager", "lazy"):
                sizes = ("--model", "gpt-oss-20b", "--block-size", block, "--max-model-len", "4096",
                         "--num-gpu-blocks", "700", "--profile", "vllm-0.32", "--deterministic")
                alone = json.loads(run("replay", "--quiet", "--json", "-", *sizes, trace))
                r = json.loads(run("replay", "--quiet", "--json", "-", *sizes, "--offload", kind,
                                   "--cpu-blocks", "9000", trace))
                self.assertGreater(self.check(r)["cpu"], 0, (block, kind))
                self.assertGreater(r["hit_tokens"], 1.5 * alone["hit_tokens"], (block, kind))
                files = json.loads(run("replay", "--quiet", "--json", "-", *sizes, "--cpu-blocks",
                                       "400", "--file-tier", "40G", "--file-bandwidth", "50",
                                       "--admit", "all", "--offload", kind, trace))
                self.assertGreater(self.check(files)["file"], 0, (block, kind))

    def outputs(self, name, *args):
        """What a replay writes, by option."""
        kinds = ("json", "html", "csv", "trace", "why", "perfetto")
        files = {kind: self.path(f"{name}.{kind}") for kind in kinds}
        words = [word for kind in kinds for word in (f"--{kind}", files[kind])]
        text = run("replay", "--deterministic", *SMALL, "--num-gpu-blocks", "8500", *words, *args)
        found = {"text": text.replace(f"{name}.html", "html")}
        for kind, path in files.items():
            with open(path, encoding="utf-8") as file:
                found[kind] = file.read()
        return found

    def test_same_bytes(self):
        trace = self.generate("agent", "--requests", "60")
        tiers = ("--cpu-blocks", "9000", "--file-tier", "6G", "--redis", "20G", "--tier-failures",
                 "0.1", trace)
        one, other = self.outputs("a", *tiers), self.outputs("b", *tiers)
        for kind, text in one.items():
            self.assertTrue(text == other[kind], kind)
        r = json.loads(one["json"])
        hits = self.check(r)
        rows = list(csv.DictReader(one["csv"].splitlines()))
        for source in ("gpu", "cpu", "file", "redis"):
            self.assertEqual(sum(int(row[f"{source}_tokens"]) for row in rows), hits[source])
        steps = [json.loads(line) for line in one["trace"].splitlines()]
        self.assertEqual([name for name, _ in steps[0]["tiers"]], ["CPU", "File", "Redis"])
        for i, tier in enumerate(r["tiers"]):
            for step in steps[1:]:
                now = step["tiers"][i]
                self.assertEqual(now["empty"] + now["cached"] + now["active"], tier["blocks"])
            # what the last steps began may end after them
            for flow in ("in", "out"):
                moved = sum(step["tiers"][i][flow] for step in steps[1:])
                self.assertLessEqual(moved, tier[f"{flow}_blocks"])
                self.assertGreaterEqual(moved, 0.9 * tier[f"{flow}_blocks"])
        self.assertIn("Prompt tokens from", one["text"])

    def test_no_tiers(self):
        trace = self.generate("mixed", "--requests", "100")
        self.assertTrue(self.outputs("a", trace) == self.outputs("b", "--cpu-blocks", "0", trace))

    def decisions(self, *args):
        """All that was decided, without what is about tiers."""
        files = {kind: self.path(f"d.{kind}") for kind in ("csv", "trace", "why")}
        words = [word for kind, path in files.items() for word in (f"--{kind}", path)]
        run("replay", "--quiet", *SMALL, "--num-gpu-blocks", "8500", *words, *args)
        with open(files["trace"], encoding="utf-8") as file:
            steps = [json.loads(line) for line in file][1:]
        with open(files["csv"], encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        with open(files["why"], encoding="utf-8") as file:
            why = file.read()
        for step in steps:
            step.pop("tiers", None)
        for row in rows:
            for source in ("gpu", "cpu", "file", "redis"):
                row.pop(f"{source}_tokens", None)
        return steps, rows, why

    def test_tiers_that_fail_change_no_decision(self):
        """(Redis has to be asked what it has, so that a request waits a step until it is known to be
        down.)"""
        trace = self.generate("agent", "--requests", "100")
        for more in (("--clock", "burst"), ("--async-scheduling",)):
            alone = self.decisions(*more, trace)
            self.assertIn("evicted", alone[2])
            for tiers in (("--cpu-blocks", "12000", "--file-tier", "9G"),
                          ("--cpu-blocks", "12000", "--offload", "lazy", "--file-tier", "9G")):
                with_tiers = self.decisions(*more, *tiers, "--tier-failures", "1", trace)
                for one, other in zip(alone, with_tiers):
                    self.assertTrue(one == other, (more, tiers))  # no diff of megabytes

    def test_sweep(self):
        trace = self.write("t.jsonl", rounds(4, 3))
        text = run("sweep", "--deterministic", *SMALL, "--max-model-len", "8192", "--num-gpu-blocks",
                   "600", "--cpu-blocks", "0,400,2000", "--offload", "eager,lazy", "--csv", self.path("s.csv"), trace)
        self.assertIn("CPU %", text)
        with open(self.path("s.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 6)
        rates = [float(row["hit_rate"]) for row in rows]
        self.assertEqual(rates[0], 0)
        self.assertGreater(rates[4], 0.5)
        self.assertAlmostEqual(float(rows[4]["tier_hit_rate.cpu"]) +
                               float(rows[4]["tier_hit_rate.gpu"]), rates[4], places=9)

    # -- what is wrong

    def test_errors(self):
        trace = self.write("t.jsonl", rounds(1, 1))
        for args, words in ((("--file-tier", "1G"), "--cpu-blocks"),
                            (("--redis", "1G"), "--cpu-blocks"),
                            (("--cpu-blocks", "1"), "2 or more"),
                            (("--cpu-blocks", "9", "--file-tier", "/x:1G"), "--real-tiers"),
                            (("--cpu-blocks", "9", "--file-tier", "12Q"), "12Q"),
                            (("--cpu-blocks", "9", "--file-tier", "5"), "smaller than one block"),
                            (("--cpu-blocks", "9", "--redis", "h:1"), "--real-tiers"),
                            (("--cpu-blocks", "9", "--real-tiers"), "PATH:SIZE"),
                            (("--object", "http://h/b"), "--cpu-blocks"),
                            (("--cpu-blocks", "9", "--object", "http://h/b"), "--real-tiers"),
                            (("--cpu-blocks", "9", "--real-tiers", "--object", "h:1"), "BUCKET"),
                            (("--cpu-blocks", "9", "--real-tiers", "--object", "http://h"), "BUCKET"),
                            (("--cpu-blocks", "9", "--object-region", "x"), "--object URL"),
                            (("--cpu-blocks", "9", "--real-tiers", "--file-tier", "1G"), "PATH:1G"),
                            (("--cpu-blocks", "9", "--real-tiers", "--redis", "1G"), "HOST:PORT"),
                            (("--cpu-blocks", "9", "--no-enable-prefix-caching"), "prefix"),
                            (("--cpu-blocks", "9", "--profile", "vllm-0.20", "--redis", "1G"),
                             "vLLM"),
                            (("--cpu-blocks", "9", "--tier-policy", "fifo"), "s3fifo"),
                            (("--lookahead", "9", "--profile", "vllm-0.20"), "vLLM")):
            said = run("replay", *SMALL, *args, trace, status=2)
            self.assertIn(words, said, args)
        said = run("replay", *SMALL, "--cpu-blocks", "9", "--real-tiers", "--file-tier",
                   "/no/such/folder/file:1G", trace, status=1)
        self.assertIn("/no/such/folder", said)
        said = run("replay", *SMALL, "--cpu-blocks", "9", "--real-tiers", "--redis", "127.0.0.1:1",
                   trace, status=1)
        self.assertIn("127.0.0.1", said)
        said = run("replay", *SMALL, "--cpu-blocks", "9", "--real-tiers", "--object",
                   "http://10.0.0.1/bucket", trace, status=1)
        self.assertIn("--object http://10.0.0.1/bucket", said)

    # -- the real thing

    # the file's own tables take some of its room
    REAL = ("--num-gpu-blocks", "100", "--block-size", "16", "--cpu-blocks", "40", "--real-tiers",
            "--admit", "all", "--max-model-len", "1024")

    def test_a_real_file(self):
        trace = self.write("t.jsonl", rounds(6, 3, ids=1, apart=0.1))
        place = ("--file-tier", f"{self.path('tier')}:{400 * BLOCK}")
        first = report(*self.REAL, *place, "--csv", self.path("first.csv"), trace)
        self.check(first)
        self.assertGreater(first["tiers"][1]["in_blocks"], 0)
        self.assertEqual(self.first_round("first.csv", "file"), 0)
        again = report(*self.REAL, *place, "--csv", self.path("again.csv"), trace)
        self.check(again)
        self.assertGreater(self.first_round("again.csv", "file"), 0)  # it was still there

    def first_round(self, name, source):
        """Tokens of prompts that came for the first time."""
        with open(self.path(name), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        return sum(int(row[f"{source}_tokens"]) for row in rows if int(row["request"]) <= 6)

    def start_redis(self, server):
        """On a free port. Another program may take the port first: then on the next one."""
        for _ in range(10):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            process = subprocess.Popen([server, "--port", str(port), "--save", "", "--dir",
                                        self.folder.name], stdout=subprocess.DEVNULL)
            for _ in range(400):
                with socket.socket() as probe:
                    is_there = probe.connect_ex(("127.0.0.1", port)) == 0
                if process.poll() is not None:
                    break
                if is_there:
                    self.addCleanup(process.wait)
                    self.addCleanup(process.send_signal, signal.SIGTERM)
                    return port
                time.sleep(0.05)
            process.kill()
            process.wait()
        raise AssertionError("redis-server does not start")

    def test_a_real_redis(self):
        server = shutil.which("redis-server")
        if server is None:
            self.skipTest("no redis-server")
        port = self.start_redis(server)
        trace = self.write("t.jsonl", rounds(6, 3, ids=1, apart=0.1))
        place = ("--redis", f"127.0.0.1:{port}")
        first = report(*self.REAL, *place, trace)
        self.check(first, unsized=("Redis",))
        self.assertGreater(first["tiers"][1]["in_blocks"], 0)
        again = report(*self.REAL, *place, "--csv", self.path("again.csv"), trace)
        self.check(again, unsized=("Redis",))
        self.assertGreater(self.first_round("again.csv", "redis"), 0)


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv[1])
    if "--cpu-blocks" not in run("replay", "--help") or "built without tiers" in subprocess.run(
            [QUIRE, "replay", "--cpu-blocks", "9", os.devnull], capture_output=True, text=True,
            check=False).stderr:
        print("SKIPPED: this quire was built without tiers")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
