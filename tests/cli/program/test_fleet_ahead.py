#!/usr/bin/env python3
"""`quire fleet --threads N` reads the trace ahead: nobody can tell, whatever the trace has in it.

    tests/cli/program/test_fleet_ahead.py QUIRE
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""
AHEAD = 64  # records that are read ahead, at most
THREADS = ("1", "2", "4")


def line(i):
    """Each prompt of four ids shares the first one; five requests come at a time."""
    return json.dumps({"timestamp": i // 5 * 100, "input_length": 2000, "output_length": 3 + i % 7,
                       "hash_ids": [0, i % 11 + 1, i + 100, i + 1000]})


class Ahead(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, lines):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(f"{text}\n" for text in lines))
        return path

    def fleet(self, threads, args, stdin=None):
        command = [QUIRE, "fleet", "--workers", "3", "--num-gpu-blocks", "4000", "--quiet",
                   "--deterministic", "--json", "-", "--threads", threads, *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=600,
                              check=False)
        result = json.loads(done.stdout) if done.returncode == 0 else {}
        for name in ("made_by", "options"):
            result.pop(name, None)
        return done.returncode, result, done.stderr

    def check(self, *args, stdin=None):
        """The same status, result and message with any number of threads."""
        first, *others = (self.fleet(threads, args, stdin) for threads in THREADS)
        for other in others:
            self.assertEqual(first, other)
        return first

    def test_broken_records(self):
        for place in (0, 5, AHEAD, AHEAD + 1, 199):
            lines = [line(i) for i in range(200)]
            lines[place] = lines[place].replace("2000", '"many"')
            trace = self.write("t", lines)
            with self.subTest(place=place):
                status, _, said = self.check("--router", "dynamo-kv", trace)
                self.assertEqual(status, 1)
                self.assertIn(f'{trace}:{place + 1}: field "input_length": is not a number', said)
        status, result, _ = self.check("--skip-bad", trace)
        self.assertEqual((status, result["requests"], result["errors"]), (0, 199, 1))

    def test_first_problem_wins(self):
        # a request that no worker takes comes before a broken record that was read ahead
        lines = [line(i) for i in range(200)]
        lines[100] = lines[100].replace("2000", "-1")
        lines[80] = json.dumps({"timestamp": 1600, "input_length": 4608, "output_length": 1,
                                "hash_ids": list(range(9))})
        status, _, said = self.check("--max-model-len", "4096", self.write("t", lines))
        self.assertEqual(status, 1)
        self.assertIn(":81: a prompt of 4608 tokens is too long", said)

    def test_truncated(self):
        path = os.path.join(self.folder.name, "t.gz")
        whole = gzip.compress("".join(f"{line(i)}\n" for i in range(400)).encode())
        with open(path, "wb") as file:
            file.write(whole[:len(whole) * 2 // 3])
        self.assertEqual(self.check(path)[0], 1)

    def test_several_files(self):
        os.mkdir(os.path.join(self.folder.name, "f"))
        a = self.write("f/a.jsonl", (line(i) for i in range(0, 300, 2)))
        b = self.write("f/b.jsonl", (line(i) for i in range(1, 300, 2)))
        status, result, _ = self.check("--router", "dynamo-kv", os.path.dirname(a))
        self.assertEqual((status, result["requests"]), (0, 300))
        status, result, _ = self.check(a, b)
        self.assertEqual((status, result["requests"]), (0, 300))
        self.write("f/b.jsonl", [line(i) for i in range(1, 250, 2)] + ["{"])
        status, _, said = self.check(os.path.dirname(a))
        self.assertEqual(status, 1)
        self.assertIn(f"{b}:126: invalid JSON", said)

    def test_standard_input(self):
        whole = "".join(f"{line(i)}\n" for i in range(300))
        status, result, _ = self.check("--router", "dynamo-kv", "-", stdin=whole)
        self.assertEqual((status, result["requests"]), (0, 300))
        status, result, _ = self.check("--max-requests", "70", "-", stdin=whole)
        self.assertEqual((status, result["requests"]), (0, 70))

    def test_turns_that_wait(self):
        turns = [json.dumps({"session_id": f"s{i % 20}", "input_length": 1024, "output_length": 9,
                             "hash_ids": [i % 20, i], "timestamp" if i < 20 else "delay": i * 10})
                 for i in range(160)]
        for router in ("session", "dynamo-kv"):
            with self.subTest(router=router):
                status, result, _ = self.check("--router", router, self.write("t", turns))
                self.assertEqual((status, result["requests"]), (0, 160))


if __name__ == "__main__":
    QUIRE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
