#!/usr/bin/env python3
"""Folders, several traces at once, and Dynamo's request traces, through the whole program.

    tests/cli/program/test_traces.py QUIRE
"""

import bz2
import csv
import gzip
import json
import lzma
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=300)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def report(*args):
    return json.loads(run("replay", "--quiet", "--deterministic", "--json", "-", *args))


def dynamo(name, start_ms, session=None, hashes=(1, 2), total_ms=100):
    record = {"schema": "dynamo.request.trace.v1", "event_type": "request_end",
              "event_time_unix_ms": start_ms + total_ms,
              "request": {"request_id": name, "request_received_ms": start_ms,
                          "total_time_ms": total_ms, "output_tokens": 3,
                          "replay": {"trace_block_size": 16, "input_length": 16 * len(hashes),
                                     "input_sequence_hashes": list(hashes)}}}
    if session is not None:
        record["agent_context"] = {"session_id": session}
    return json.dumps(record) + "\n"


class Traces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        return self.path(name)

    def replay_rows(self, *traces):
        run("replay", "--quiet", "--csv", self.path("rows.csv"), *traces)
        with open(self.path("rows.csv"), encoding="utf-8", newline="") as file:
            return list(csv.reader(file))

    def test_parts_of_a_folder_are_the_whole(self):
        run("generate", "mixed", "--requests", "60", "--out", self.path("whole.jsonl"))
        with open(self.path("whole.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()
        self.write("day/0.jsonl", "".join(lines[:20]))
        self.write("day/1.jsonl.gz", gzip.compress("".join(lines[:1] + lines[20:]).encode()))
        whole = report(self.path("whole.jsonl"))
        parts = report(self.path("day"))
        for key in ("requests", "prompt_tokens", "output_tokens", "ideal_tokens", "format"):
            self.assertEqual(parts[key], whole[key], key)

    def test_traces_at_the_same_time(self):
        run("generate", "chat", "--requests", "30", "--out", self.path("a.jsonl"))
        run("generate", "rag", "--requests", "20", "--out", self.path("b.jsonl"))
        a, b = report(self.path("a.jsonl")), report(self.path("b.jsonl"))
        both = report(self.path("a.jsonl"), self.path("b.jsonl"))
        self.assertEqual(both["requests"], 50)
        # nothing is shared between them: what an infinite cache finds adds up
        self.assertEqual(both["ideal_tokens"], a["ideal_tokens"] + b["ideal_tokens"])
        self.assertEqual(both["trace"], f"{self.path('a.jsonl')} + {self.path('b.jsonl')}")
        self.assertEqual(both, report(self.path("a.jsonl"), self.path("b.jsonl")))

    def test_rerun_finds_all_traces(self):
        run("generate", "chat", "--requests", "10", "--out", self.path("a.jsonl"))
        os.mkdir(self.path("day"))
        run("generate", "rag", "--requests", "10", "--out", self.path("day/b.jsonl"))
        for command in (("replay", "--deterministic"), ("curve", "--sizes", "1k"),
                        ("sweep", "--deterministic", "--max-num-seqs", "4,8")):
            run(*command, "--json", self.path("r.json"), self.path("a.jsonl"),
                self.path("day"))
            run("rerun", self.path("r.json"), "--json", self.path("s.json"))
            with open(self.path("r.json")) as r, open(self.path("s.json")) as s:
                first = r.read()
                self.assertEqual(first, s.read(), command)
            record = json.loads(first)["made_by"]["trace"]
            self.assertEqual(len(record["traces"]), 2)
            self.assertEqual(record["bytes"], sum(t["bytes"] for t in record["traces"]))
        self.assertIn("--trace-path cannot be used with a result of 2 traces",
                      run("rerun", self.path("r.json"), "--trace-path", self.path("a.jsonl"), status=2))
        self.write("day/b.jsonl", "{}\n")
        self.assertIn("day: the trace has changed", run("rerun", self.path("r.json"), status=1))

    def test_dynamo(self):
        lines = [dynamo("late", 5000), dynamo("a", 1000, "s"), dynamo("b", 1400, "s", (1, 2, 3)),
                 '{"schema": "dynamo.request.trace.v1", "event_type": "request_payload"}\n']
        r = report(self.write("t.jsonl", "".join(lines)))
        self.assertEqual((r["format"], r["requests"], r["prompt_tokens"]), ("dynamo", 3, 16 * 7))
        self.assertEqual(r["ideal_tokens"], 16 * 4)
        rows = self.replay_rows(self.path("t.jsonl"))
        # two files as Dynamo rolls them, and each line in a file of its own: the same replay
        self.write("rolled/0.jsonl", "".join(lines[:2]))
        self.write("rolled/1.jsonl.gz", gzip.compress("".join(lines[2:]).encode()))
        again = self.replay_rows(self.path("rolled"))
        line = rows[0].index("line") if "line" in rows[0] else None
        for one in (rows, again):
            for row in one:
                if line is not None:
                    del row[line]
        self.assertEqual(again, rows)

    def test_foreign_compression_is_named(self):
        text = dynamo("a", 0).encode()
        for name, data, word in (("a.jsonl.xz", lzma.compress(text), "xz"),
                                 ("a.jsonl.bz2", bz2.compress(text), "bzip2")):
            path = self.write(f"packed-{word}/{name}", data)
            for trace in (path, os.path.dirname(path)):
                self.assertIn(f"{path}: is compressed with {word}; decompress it first (zstd, gzip "
                              "and plain files are read)", run("replay", trace, status=1))

    def test_refusals(self):
        a = self.write("day/a.jsonl", dynamo("a", 0))
        self.assertIn("expected a TRACE: a file, a folder, or - for standard input",
                      run("replay", status=2))
        self.assertIn("unexpected argument", run("replay", *[a] * 17, status=2))
        os.mkdir(self.path("none"))
        self.assertIn("none: the folder has no trace (expected files that end with .jsonl, .json, .csv "
                      "or .tar", run("replay", self.path("none"), status=1))
        self.assertIn("cannot be standard input", run("sweep", "--tp", "1", a, "-", status=2))
        self.assertIn("are the same file",
                      run("replay", "--json", a, os.path.dirname(a), status=2))
        self.write("day/b.csv", "Timestamp,Model,Request tokens,Response tokens\n5,x,7,8\n")
        self.assertIn("day/b.csv: is a trace of format burstgpt, but ",
                      run("curve", self.path("day"), status=1))
        self.write("long/a.jsonl", dynamo("a", 0))
        self.write("long/b.jsonl", dynamo("b", 10, hashes=range(9000)))
        self.assertIn("long/b.jsonl:1: a prompt of 144000 tokens is too long",
                      run("replay", self.path("long"), status=1))


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
