#!/usr/bin/env python3
"""Two processes that share host memory: `quire serve --peer-listen` offers it, `quire replay --peer`
loads from it; and what each says when that cannot be.

    tests/cli/program/test_peers.py QUIRE
"""

import csv
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest

import serve_kit

QUIRE = ""
REAL = ("--model", "llama-3.2-1b", "--num-gpu-blocks", "100", "--block-size", "16", "--cpu-blocks",
        "400", "--real-tiers", "--max-model-len", "1024")
PROMPTS = 6
PROMPT = 512  # tokens
# Loads take real time, computing takes predicted time: what is expected to be computed faster is
# not loaded ("skipped_tokens"). On a GPU as slow as this one each load pays, however slow this
# machine is; and one request at a time leaves each load the whole of its deadline.
SLOW_GPU = ("--matmul-tflops", "0.05", "--clock", "serial")


def trace_lines():
    return "".join(f'{{"timestamp": {100 * p}, "input_length": {PROMPT}, "output_length": 4, '
                   f'"hash_ids": [{100 * p}]}}\n' for p in range(PROMPTS))


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.secret = serve_kit.write_private(self.path("secret"), "a secret of both processes\n")
        self.trace = self.path("t.jsonl")
        with open(self.trace, "w", encoding="utf-8") as file:
            file.write(trace_lines())

    def path(self, name):
        return os.path.join(self.folder, name)

    def offering(self, *args):
        """A serve that has been through the trace and stays, and its address for peers."""
        it = serve_kit.Serving(QUIRE, "--speed", "max", "--hold", "--peer-listen",
                               "127.0.0.1:0", "--peer-secret-file", self.secret, *REAL, *args,
                               self.trace)
        self.addCleanup(it.close)
        line = it.process.stdout.readline()
        found = re.fullmatch(r"peers +(127\.0\.0\.1:\d+)\n", line)
        self.assertTrue(found, line)
        serve_kit.until(it.has_ended, "the end of the trace")
        return it, found[1]

    def report(self, *args):
        return serve_kit.report(QUIRE, *REAL, *args, self.trace)

    def ask(self, address, *args):
        return self.report("--peer", address, "--peer-secret-file", self.secret, *args)

    def refused(self, *args, status=2):
        return serve_kit.run(QUIRE, "replay", *REAL, *args, self.trace, status=status)

    # -- two processes

    def test_what_one_computed_the_other_loads(self):
        it, address = self.offering()
        alone = self.report("--file-tier", f"{self.path('file')}:1G")
        self.assertEqual(alone["hits_by_tier"]["computed"], PROMPTS * PROMPT)
        r = self.ask(address, *SLOW_GPU, "--csv", self.path("requests.csv"))
        hits = r["hits_by_tier"]
        self.assertEqual([tier["tier"] for tier in r["tiers"]], ["CPU", "Peer"])
        self.assertEqual(sum(hits.values()), PROMPTS * PROMPT)
        self.assertEqual(r["tiers"][1]["skipped_tokens"], 0)
        self.assertGreaterEqual(hits["peer"], PROMPTS * (PROMPT - 16),  # its last block is computed
                                r["tiers"][1])
        self.assertEqual(r["tier_time"]["wrong_blocks"], 0)
        self.assertEqual(r["tiers"][1]["out_blocks"], hits["peer"] // 16)
        with open(self.path("requests.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(sum(int(row["peer_tokens"]) for row in rows), hits["peer"])
        status, _ = it.interrupt()
        self.assertEqual(status, 0)

    def test_a_peer_before_a_file(self):
        _, address = self.offering()
        r = self.ask(address, "--file-tier", f"{self.path('file')}:1G")
        self.assertEqual([tier["tier"] for tier in r["tiers"]], ["CPU", "Peer", "File"])
        self.assertGreater(r["hits_by_tier"]["peer"], 0)

    def test_another_model_gets_nothing(self):
        _, address = self.offering()
        said = serve_kit.run(QUIRE, "replay", *REAL, "--peer", address, "--peer-secret-file",
                             self.secret, "--model", "llama-3.1-8b", self.trace, status=1)
        self.assertIn(f"--peer {address}", said)
        self.assertIn("fingerprint", said)

    def test_another_secret_gets_nothing(self):
        _, address = self.offering()
        other = serve_kit.write_private(self.path("other"), "another secret, as long\n")
        said = self.refused("--peer", address, "--peer-secret-file", other, status=1)
        self.assertIn("authentication failed", said)

    def test_a_peer_that_is_killed(self):
        """The replay goes on, and computes."""
        it, address = self.offering()
        slow = subprocess.Popen([QUIRE, "serve", "--listen", "127.0.0.1:0", "--speed", "1", "--quiet",
                                 "--json", self.path("report.json"), "--peer", address,
                                 "--peer-secret-file", self.secret, *REAL, self.trace],
                                stdout=subprocess.PIPE, text=True)
        self.addCleanup(slow.stdout.close)
        slow.stdout.readline()
        it.process.kill()
        self.assertEqual(slow.wait(serve_kit.WAIT_S), 0)
        with open(self.path("report.json"), encoding="utf-8") as file:
            self.assertIn('"wrong_blocks": 0', re.sub(r'": *', '": ', file.read()))

    # -- sentences

    def test_errors(self):
        secret = ("--peer-secret-file", self.secret)
        short = serve_kit.write_private(self.path("short"), "short\n")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            nobody = f"127.0.0.1:{free.getsockname()[1]}"
        for args, words in (
                (("--peer", "h:1"), "--peer h:1 needs --peer-secret-file"),
                (("--peer", "seven", *secret), 'invalid value "seven" for --peer'),
                (("--peer-secret-file", self.secret, "--redis", "h:1"), "needs --peer HOST:PORT"),
                (("--peer-trust-network", "--redis", "h:1"), "needs --peer HOST:PORT"),
                (("--peer", "h:1", *secret, "--profile", "vllm-0.20"), "--peer")):
            self.assertIn(words, self.refused(*args), args)
        for args, words in (
                (("--peer", nobody, *secret), f"--peer {nobody}: "),
                (("--peer", "192.0.2.1:7400", *secret), "--peer-trust-network"),
                (("--peer", nobody, "--peer-secret-file", short), "16"),
                (("--peer", nobody, "--peer-secret-file", self.path("none")), "none")):
            self.assertIn(words, self.refused(*args, status=1), args)
        said = serve_kit.run(QUIRE, "replay", "--model", "llama-3.2-1b", "--cpu-blocks", "9",
                             "--peer", "h:1", *secret, self.trace, status=2)
        self.assertIn("needs --real-tiers", said)
        said = serve_kit.run(QUIRE, "replay", "--model", "llama-3.2-1b", "--real-tiers", "--peer",
                             "h:1", *secret, self.trace, status=2)
        self.assertIn("--cpu-blocks", said)

    def test_errors_of_serve(self):
        def refused(*args, status=2):
            return serve_kit.run(QUIRE, "serve", "--listen", "127.0.0.1:0", *REAL, *args, self.trace,
                                 status=status)
        secret = ("--peer-secret-file", self.secret)
        self.assertIn("needs --peer-secret-file FILE", refused("--peer-listen", "127.0.0.1:0"))
        self.assertIn("--loop cannot be used with --peer", refused("--loop", "--peer", "h:1", *secret))
        self.assertIn("--peer-trust-network",
                      refused("--peer-listen", "0.0.0.0:0", *secret, status=1))
        self.assertIn("--peer-listen seven",
                      refused("--peer-listen", "seven", *secret, status=1))
        self.assertIn("--peer-listen", serve_kit.run(QUIRE, "serve", "--help"))


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv[1])
    if "--peer" not in serve_kit.run(QUIRE, "serve", "--help") or "built without" in subprocess.run(
            [QUIRE, "serve", "--cpu-blocks", "9", os.devnull], capture_output=True, text=True,
            check=False).stderr:
        print("SKIPPED: this quire was built without tiers or without serve")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
