#!/usr/bin/env python3
"""Swap, and host memory in bytes, in `quire replay`, `serve` and `sweep`, from outside.

    test_swap.py PROGRAM

What the reports, the page and the files say of swap is counted a second time here, from the lines of
--trace and --why. A copy takes its time, and the scheduler's choice follows its two costs.
"""

import base64
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from serve_kit import Serving, until

QUIRE = FOLDER = TRACE = ""
POOL = ("--num-gpu-blocks", "1200", "--max-model-len", "8192")
BLOCK = 2097152  # bytes of a block of 16 tokens, llama-3.1-8b


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, check=False)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def report(*args):
    return json.loads(run("replay", "--quiet", "--deterministic", "--json", "-", *args, *POOL, TRACE))


def path(name):
    return os.path.join(FOLDER, name)


def lines(name):
    with open(path(name), encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def seconds_of_copies(steps, bytes_per_s, latency_s):
    """Of a link that carries nothing else: first what goes out in a step, then what comes back."""
    moved = [n for step in steps
             for n in (step["num_swapped_out_blocks"], step["num_swapped_in_blocks"]) if n > 0]
    return sum(n * BLOCK / bytes_per_s + latency_s for n in moved)


def column(text):
    """A column of docs/page-data.md."""
    data, numbers = base64.b64decode(text), []
    number = shift = 0
    for byte in data:
        number |= (byte & 127) << shift
        shift = shift + 7 if byte > 127 else 0
        if byte < 128:
            numbers.append(number)
            number = 0
    values, last, i = [], 0, 0
    while i < len(numbers):
        n = numbers[i]
        step = n >> 2 if n & 2 == 0 else -(n + 2 >> 2)
        again = numbers[i + 1] if n & 1 else 0
        i += 2 if n & 1 else 1
        for _ in range(1 + again):
            last += step
            values.append(last)
    return values


class Swap(unittest.TestCase):
    def test_instead_of_computing_again(self):
        plain = report()
        self.assertNotIn("swap", plain)
        self.assertGreater(plain["recomputed_tokens"], 1000)
        r = report("--swap-blocks", "4000")
        swap = r["swap"]
        self.assertEqual(r["requests"], plain["requests"])
        self.assertEqual(swap["swaps"], r["preemptions"])  # all of them: it always pays here
        self.assertLessEqual(swap["requests"], swap["swaps"])
        self.assertLess(r["recomputed_tokens"], plain["recomputed_tokens"] / 10)
        self.assertGreater(swap["kept_tokens"], 1000)
        self.assertGreater(swap["out_blocks"], 0)
        self.assertLessEqual(swap["in_blocks"], swap["out_blocks"])  # some were still cached
        self.assertLessEqual(swap["max_blocks"], 4000)
        self.assertEqual((swap["blocks"], swap["out_bytes"]), (4000, swap["out_blocks"] * BLOCK))
        self.assertEqual(r["made_by"]["resolved"]["swap-blocks"], 4000)

    def test_copies_take_time(self):
        """What the link carries, and its latency for each step and direction that copies."""
        r = report("--swap-blocks", "4000", "--trace", path("t.jsonl"), "--cpu-bandwidth", "20",
                   "--cpu-latency", "1000", "--swap-cost", "1", "--why", path("w.jsonl"))
        steps = lines("t.jsonl")[1:]
        moved = [(s["num_swapped_out_blocks"], s["num_swapped_in_blocks"]) for s in steps]
        self.assertEqual(sum(o for o, _ in moved), r["swap"]["out_blocks"])
        self.assertEqual(sum(i for _, i in moved), r["swap"]["in_blocks"])
        self.assertAlmostEqual(r["swap"]["copy_s"], seconds_of_copies(steps, 20e9, 1e-3), places=6)
        fast = report("--swap-blocks", "4000", "--swap-cost", "1")
        self.assertGreater(fast["swap"]["copy_s"], 0)
        self.assertLess(fast["swap"]["copy_s"], r["swap"]["copy_s"])
        kinds = [d["kind"] for d in lines("w.jsonl")]
        self.assertEqual(kinds.count("swapped"), r["swap"]["swaps"])

    def test_choice_follows_the_costs(self):
        """n blocks and m tokens are swapped where 2 (setup_us + n block_us) < m token_us."""
        r = report("--swap-blocks", "4000")
        self.assertAlmostEqual(r["swap"]["block_us"], BLOCK / 55e9 * 1e6, delta=0.01)
        self.assertGreater(r["swap"]["token_us"], 1)
        link = report("--swap-blocks", "4000", "--cpu-bandwidth", "0.1")  # no copy pays
        self.assertEqual((link["swap"]["swaps"], link["swap"]["out_blocks"]), (0, 0))
        self.assertEqual(link["recomputed_tokens"], report()["recomputed_tokens"])
        dear = report("--swap-blocks", "4000", "--swap-cost", "9", "--recompute-cost", "1")
        self.assertEqual((dear["swap"]["swaps"], dear["swap"]["block_us"], dear["swap"]["token_us"]),
                         (0, 9, 1))  # 18 us for 16 tokens at the least
        cheap = ("--swap-blocks", "4000", "--swap-cost", "9", "--recompute-cost", "20")
        self.assertGreater(report(*cheap)["swap"]["swaps"], 0)
        self.assertEqual(report(*cheap)["swap"]["setup_us"], 10)  # --cpu-latency
        setup = report(*cheap, "--swap-setup-cost", "1000000")  # more than a prompt takes
        self.assertEqual((setup["swap"]["swaps"], setup["swap"]["setup_us"]), (0, 1000000))

    def test_bytes(self):
        by_blocks, by_bytes = (report(*given) for given in
                               (("--swap-blocks", "100"), ("--swap-memory", str(100 * BLOCK + 9))))
        self.assertEqual(by_blocks["swap"], by_bytes["swap"])
        self.assertEqual(by_bytes["made_by"]["resolved"]["swap-blocks"], 100)
        self.assertLessEqual(by_bytes["swap"]["max_blocks"], 100)
        self.assertLess(by_bytes["swap"]["swaps"], by_bytes["preemptions"])  # it was full at times
        half = report("--swap-memory", "200Mi", "--tp", "2")  # each GPU has half of a block
        self.assertEqual(half["swap"]["blocks"], 200)

    def need_tiers(self):
        if "built without tiers" in run("replay", "--cpu-blocks", "9", os.devnull, status=1):
            self.skipTest("built without tiers")

    def test_host_memory_in_bytes(self):
        self.need_tiers()
        a, b = (report(*given) for given in
                (("--cpu-blocks", "3000"), ("--cpu-memory", str(3000 * BLOCK))))
        self.assertEqual((a["tiers"], a["hits_by_tier"]), (b["tiers"], b["hits_by_tier"]))
        self.assertEqual(b["made_by"]["resolved"]["cpu-blocks"], 3000)

    def test_tiers_save_first(self):
        """Host memory of tiers has the KV of preempted requests; swap memory what tiers lack."""
        self.need_tiers()
        plain = report()
        r = report("--cpu-blocks", "3000")
        saves = r["tier_saves"]
        self.assertEqual(saves["preemptions"], r["preemptions"])
        self.assertGreater(saves["restored_tokens"], 0)
        self.assertLess(saves["restored_tokens"], saves["saved_tokens"])
        self.assertLess(r["recomputed_tokens"], plain["recomputed_tokens"] / 10)
        self.assertIn(f"preempted requests: saved in {saves['preemptions']} of {r['preemptions']} "
                      "preemptions", run("replay", "--cpu-blocks", "3000", *POOL, TRACE))
        vllm = report("--cpu-blocks", "3000", "--profile", "vllm-0.20")
        self.assertGreater(vllm["tier_saves"]["preemptions"], 0)  # the offload is the same
        both = report("--cpu-blocks", "100", "--offload", "lazy", "--swap-memory", "8G", "--trace",
                      path("both.jsonl"))
        self.assertEqual(sum(both["hits_by_tier"].values()), both["prompt_tokens"])
        self.assertGreater(both["swap"]["swaps"], 0)
        self.assertLessEqual(both["swap"]["swaps"] + both["tier_saves"]["preemptions"],
                             both["preemptions"])
        for step in lines("both.jsonl")[1:]:
            found = step["num_hit_tokens"] + step["num_external_tokens"]
            self.assertLessEqual(found, step["query_tokens"])
            self.assertEqual(sum(t["hits"] for t in step["tiers"]), step["num_external_tokens"])
            swap = step["tiers"][1]
            self.assertEqual(swap["empty"] + swap["active"], 8 * 10**9 // BLOCK)
        alone = seconds_of_copies(lines("both.jsonl")[1:], 55e9, 10e-6)
        self.assertGreater(both["swap"]["copy_s"], 1.01 * alone)  # it waits for the tiers' copies

    # -- where it is shown

    def test_text(self):
        said = run("replay", "--swap-memory", "2Gi", *POOL, TRACE)
        r = report("--swap-memory", "2Gi")["swap"]
        self.assertIn(f"Swapped to host memory: {r['swaps']:,} of the preemptions, of "
                      f"{r['requests']:,} requests\n", said)
        self.assertIn(f"  blocks          {r['out_blocks']:,} out (", said)
        self.assertIn(f"  tokens          {r['kept_tokens']:,} restored", said)
        self.assertIn("of 1,024 blocks on average", said)
        self.assertNotIn("Swapped", run("replay", *POOL, TRACE))

    def test_page(self):
        r = report("--swap-blocks", "4000", "--html", path("p.html"), "--trace", path("p.jsonl"))
        with open(path("p.html"), encoding="utf-8") as file:
            data = json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>',
                                        file.read(), re.S)[1])
        self.assertEqual(data["meta"]["tiers"], [{"name": "Swap", "total": 4000}])
        self.assertEqual(data["report"]["swap"], r["swap"])
        rows = data["rows"]
        self.assertEqual(rows["points_per_row"], 1)  # so min is all there is of a series
        for name, figure in (("in.0", "out_blocks"), ("out.0", "in_blocks"), ("hits.0", "kept_tokens")):
            self.assertEqual(sum(column(rows[name]["min"])), r["swap"][figure])
        self.assertEqual(sum(column(rows["external_tokens"])), r["swap"]["kept_tokens"])
        self.assertEqual(max(column(rows["active.0"]["min"])), r["swap"]["max_blocks"])
        run("view", path("p.jsonl"), "--html", path("view.html"))
        with open(path("view.html"), encoding="utf-8") as file:
            self.assertIn('"name":"Swap"', file.read())

    def test_csv(self):
        r = report("--swap-blocks", "4000", "--csv", path("r.csv"))
        with open(path("r.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        swaps = [int(row["swaps"]) for row in rows]
        self.assertEqual((sum(swaps), sum(n > 0 for n in swaps)),
                         (r["swap"]["swaps"], r["swap"]["requests"]))
        self.assertTrue(all(int(row["swaps"]) <= int(row["preemptions"]) for row in rows))
        report("--csv", path("none.csv"))
        with open(path("none.csv"), encoding="utf-8") as file:
            self.assertNotIn("swaps", file.readline())

    def test_sweep(self):
        said = run("sweep", "--swap-memory", "0,200M,8G", *POOL, "--no-plot", "--csv", path("s.csv"),
                   TRACE)
        self.assertIn("swap out", said)
        self.assertIn("kept", said)
        with open(path("s.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        for row, given in zip(rows, ("0", "200M", "8G")):
            r = report("--swap-memory", given)
            self.assertEqual(row["swap-memory"], given)
            self.assertEqual(row["swap.kept_tokens"],
                             "" if given == "0" else str(r["swap"]["kept_tokens"]))
            self.assertEqual(row["recomputed_tokens"], str(r["recomputed_tokens"]))

    def test_serve(self):
        if "was built without it" in run("serve", "x", status=1):
            self.skipTest("quire serve is not built")
        with Serving(QUIRE, "--speed", "max", "--hold", "--swap-blocks", "4000", *POOL, "--json",
                     path("serve.json"), TRACE) as it:
            until(it.has_ended, "the end of the trace")
            _, text = it.get("/metrics")
        with open(path("serve.json"), encoding="utf-8") as file:
            swap = json.load(file)["swap"]
        self.assertGreater(swap["swaps"], 0)
        for name, value in (("stored_blocks", swap["out_blocks"]), ("loaded_blocks", swap["in_blocks"]),
                            ("hit_tokens", swap["kept_tokens"])):
            found = re.search(rf'^quire_tier_{name}_total{{[^}}]*tier="swap"[^}}]*}} (\d+)$', text, re.M)
            self.assertEqual(int(found[1]), value, name)

    def test_rerun_repeats_it(self):
        first, second = path("first.json"), path("second.json")
        run("replay", "--quiet", "--deterministic", "--swap-memory", "300M", "--swap-cost", "0.5",
            "--recompute-cost", "30", "--swap-setup-cost", "3", "--json", first, *POOL, TRACE)
        run("rerun", first, "--json", second)
        with open(first, encoding="utf-8") as a, open(second, encoding="utf-8") as b:
            self.assertEqual(a.read(), b.read())

    # -- what is wrong

    def test_refused(self):
        most = 1 << 28
        for args, words in (
                (("--swap-blocks", "x"), f'"x" for --swap-blocks (expected 0..{most})'),
                (("--swap-blocks", str(most + 1)), f"for --swap-blocks (expected 0..{most})"),
                (("--swap-memory", "5"), f'"5" for --swap-memory (expected {BLOCK}..{most * BLOCK}'),
                (("--swap-memory", "900T"), f'"900000000000000" for --swap-memory (expected {BLOCK}..'),
                (("--swap-memory", "-1"), '"-1" for --swap-memory (expected 0..1e+15)'),
                (("--cpu-memory", "5"), f'"5" for --cpu-memory (expected {2 * BLOCK}..'),
                (("--cpu-blocks", "9", "--cpu-memory", "1G"), "are the same memory"),
                (("--swap-blocks", "9", "--swap-memory", "1G"), "are the same memory"),
                (("--swap-cost", "3"), "--swap-cost 3 needs --swap-blocks or --swap-memory"),
                (("--recompute-cost", "3"), "--recompute-cost 3 needs --swap-blocks"),
                (("--swap-setup-cost", "3"), "--swap-setup-cost 3 needs --swap-blocks"),
                (("--swap-blocks", "9", "--swap-cost", "0"), '"0" for --swap-cost (expected'),
                (("--swap-blocks", "9", "--recompute-cost", "1e9"), "for --recompute-cost (expected"),
                (("--swap-blocks", "9", "--profile", "vllm-0.20"), "--swap-blocks cannot be used with --profile"),
                (("--swap-memory", "1G", "--profile", "vllm-0.20"), "--swap-memory cannot be used with --profile"),
                (("--admit-below", "0.9", "--preempt-above", "0.5"),
                 '"0.9" for --admit-below (expected 0..0.5'),
                (("--preempt-above", "0.5"), '"0.8", the default, for --admit-below (expected 0..0.5'),
                (("--preempt-above", "2"), '"2" for --preempt-above (expected a number, 0..1)'),
                (("--watermark", "-1"), '"-1" for --watermark (expected a number, 0..1)'),
                (("--victim", "fifo"), '"fifo" for --victim (expected default, lifo, priority or lru)'),
                (("--pin-ttl", "-1"), '"-1" for --pin-ttl (expected a number, 0..1000000000)'),
                (("--prefix-window", "2k"), '"2k" for --prefix-window (expected 0..1024)'),
                (("--prefix-patience", "2k"), '"2k" for --prefix-patience (expected 0..1000)'),
                (("--file-tier", "1G"), "--cpu-memory")):
            for command in ("replay", "serve"):
                self.assertIn(words, run(command, *args, TRACE, status=2), args)


def main():
    global QUIRE, FOLDER, TRACE
    QUIRE = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as FOLDER:
        TRACE = path("chat.jsonl")
        run("generate", "chat", "--requests", "300", "--rate", "30", "--out", TRACE)
        unittest.main()


if __name__ == "__main__":
    main()
