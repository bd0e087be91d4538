#!/usr/bin/env python3
"""`quire bench gpu` on the stand-in: all cases are there, as a table and as JSON; and without a driver a sentence.

    test_bench_gpu.py QUIRE STAND_IN
"""

import json
import subprocess
import sys
import unittest

QUIRE, STAND_IN = sys.argv[1:3]
SMALL = ["--driver", STAND_IN, "--bytes", "256Ki", "--seconds", "0.01"]


def bench(*words):
    return subprocess.run([QUIRE, "bench", *words], capture_output=True, text=True, timeout=300)


class BenchGpu(unittest.TestCase):
    def test_json(self):
        done = bench("gpu", "--json", *SMALL)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = json.loads(done.stdout)
        self.assertEqual(said["gpu"], "stand-in")
        if not said["kernels"]:
            self.skipTest("built without kernels")
        rows = said["results"]
        pieces = {r["piece"] for r in rows if r["name"].startswith("host to GPU, ")}
        self.assertEqual(pieces, {4096, 16384, 65536, 262144})
        for start in ("GPU to host, kernel", "both at once, staged", "GPU to host, CRC", "math-bound slower",
                      "cache-bound slower", "memory-bound slower", "64 changes"):
            self.assertTrue(any(r["name"].startswith(start) for r in rows), start)
        for r in rows:
            self.assertTrue(r["low"] <= r["median"] <= r["high"], r)
            self.assertGreaterEqual(r["rounds"], 5)
            if r["unit"] == "GB/s":
                self.assertGreater(r["low"], 0)

    def test_table(self):
        done = bench("gpu", "--check", "--threshold", "16Ki", "--ctas", "3", *SMALL[:2], "--bytes", "64Ki",
                     *SMALL[4:])
        self.assertEqual((done.returncode, done.stderr), (1 if "NOT MET" in done.stdout else 0, ""))
        self.assertIn("The machine's limits", done.stdout)
        self.assertIn("host to GPU, copy engine, batch", done.stdout)

    def test_scan(self):
        done = bench("gpu", "--scan", *SMALL[:2], "--bytes", "64Ki")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(done.stdout.count("kernel, 64 CTAs"), (0, 3))

    def test_no_driver(self):
        done = bench("gpu", "--driver", "/no/such/library")
        self.assertEqual(done.returncode, 1)
        self.assertIn("CUDA driver not found", done.stderr)

    def test_wrong_call(self):
        done = bench("cpu")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected gpu", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
