#!/usr/bin/env python3
"""NVIDIA Dynamo's own router decides what `quire fleet --router dynamo-kv` decides, in the same states.

    QUIRE_DYNAMO_PYTHON=.../python tests/cli/program/test_dynamo_router.py QUIRE FLEET_HISTORY TRACES

QUIRE_DYNAMO_PYTHON is an interpreter that has ai-dynamo-runtime; without it this is skipped. FLEET_HISTORY is
`quire` that writes what its router sees (tests/cli/fleet/fleet_history.c), TRACES a folder with public traces.
dynamo_router.py beside this file says how Dynamo comes into the same state.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

QUIRE = HISTORY = TRACES = ""
PYTHON = os.environ.get("QUIRE_DYNAMO_PYTHON", "")
PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dynamo_router.py")
VARIABLES = {"overlap-score-credit": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT",
             "overlap-score-credit-decay": "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY",
             "prefill-load-scale": "DYN_ROUTER_PREFILL_LOAD_SCALE",
             "decode-active-request-weight": "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT",
             "router-temperature": "DYN_ROUTER_TEMPERATURE"}
STATE = ("hits", "prefill_tokens", "decode_blocks", "in_flight")


class Router(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run_fleet(self, program, options, *args):
        """The file of the decisions; with FLEET_HISTORY there is a history beside it."""
        values = ",".join(f"{name}={value}" for name, value in options.items())
        out = self.path("why." + os.path.basename(program))
        subprocess.run([program, "fleet", "--quiet", "--router", f"dynamo-kv:{values}".rstrip(":"), "--why", out, *args],
                       env={**os.environ, "QUIRE_FLEET_HISTORY": self.path("history")}, check=True, timeout=600)
        with open(out, encoding="utf-8") as file:
            return file.read()

    def decide(self, options, *args, all_costs=False, theirs=None, role="serve"):
        """Both decide, Dynamo with the same options if it has no others; what was equal."""
        theirs = {VARIABLES[name]: str(value) for name, value in (options if theirs is None else theirs).items()}
        self.assertEqual(self.run_fleet(HISTORY, options, *args), self.run_fleet(QUIRE, options, *args))
        done = subprocess.run([PYTHON, PEER, self.path("history"), "--role", role, *(["--all-costs"] if all_costs else [])],
                              env={**os.environ, **theirs}, capture_output=True, text=True, timeout=800, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        print(f"dynamo-kv {options}, {role}: {said}", flush=True)
        self.assertEqual(said["differ"] == 0, said["first"] == [])
        return said

    def check(self, said, least=1):
        """All of the state is equal, and so are the costs and the decisions."""
        pairs = said["pairs"]
        self.assertGreaterEqual(said["decisions"], least)
        self.assertEqual({name: said[name] for name in STATE}, dict.fromkeys(STATE, pairs), said["first"])
        self.assertGreaterEqual(said["costs"], said["decisions"])
        self.assertEqual(said["equal_costs"], said["costs"], said["first"])
        self.assertGreater(said["with_hits"], pairs // 10)
        self.assertGreater(said["in_prefill"], pairs // 10)

    def conversations(self, workers, requests):
        path = os.path.join(TRACES, "mooncake_conversation.jsonl.zst")
        if not os.path.exists(path):
            self.skipTest(f"{path} is not here")
        return ("--workers", str(workers), "--speed", str(workers), "--max-requests", str(requests), "--skip-bad", path)

    def generated(self, kind, requests, rate):
        path = self.path(f"{kind}.jsonl")
        subprocess.run([QUIRE, "generate", kind, "--requests", str(requests), "--rate", str(rate), "--out", path],
                       check=True, stdout=subprocess.DEVNULL)
        return path

    def test_conversations(self):
        for workers, blocks in ((8, 56000), (16, 20000)):
            with self.subTest(workers=workers):
                said = self.decide({}, "--num-gpu-blocks", str(blocks), *self.conversations(workers, 1100), all_costs=True)
                self.check(said, 1000)
                self.assertEqual(said["cheapest"], said["decisions"], said["first"])
                self.assertGreaterEqual(said["same_worker"], said["decisions"] - said["ties"])
                self.assertGreater(said["costs"], said["decisions"] * workers)
                self.assertGreater(said["removed"], said["stored"] // 4)

    def test_options(self):
        for options in ({"overlap-score-credit": 0.5, "prefill-load-scale": 2.5, "decode-active-request-weight": 40},
                        {"overlap-score-credit": 3, "prefill-load-scale": 0.1},
                        {"overlap-score-credit": 0}, {"prefill-load-scale": 0},
                        {"overlap-score-credit-decay": 2, "decode-active-request-weight": 7.25}):
            with self.subTest(options=options):
                said = self.decide(options, *self.conversations(6, 300))
                self.check(said, 300)
                self.assertEqual(said["cheapest"], said["decisions"], said["first"])

    def test_a_difference_is_seen(self):
        said = self.decide({}, *self.conversations(4, 100), all_costs=True, theirs={"prefill-load-scale": 0})
        self.assertLess(said["equal_costs"], said["costs"] // 2)
        self.assertLess(said["cheapest"], said["decisions"])
        self.assertEqual(said["hits"], said["pairs"])
        self.assertGreater(said["differ"], 0)

    def test_turns_and_evictions(self):
        """Turns of sessions, whose prompts have blocks of output; small caches that evict."""
        trace = self.generated("chat", 1000, 60)
        said = self.decide({}, "--workers", "5", "--num-gpu-blocks", "1500", "--skip-bad", trace, all_costs=True)
        self.check(said, 900)
        self.assertEqual(said["cheapest"], said["decisions"], said["first"])
        self.assertGreater(said["removed"], said["stored"] // 3)

    def test_pools(self):
        """A router of prefill workers and one of decode workers."""
        args = ("--pool", "prefill:5", "--pool", "decode:4", "--speed", "6", "--max-requests", "400", "--skip-bad")
        path = self.conversations(1, 1)[-1]
        for role, options in (("prefill", {}), ("decode", {}), ("prefill", {"decode-active-request-weight": 30}),
                              ("decode", {"decode-active-request-weight": 30})):
            with self.subTest(role=role, options=options):
                said = self.decide(options, *args, path, all_costs=True, role=role)
                pairs = said["pairs"]
                self.assertGreaterEqual(said["decisions"], 400)
                self.assertEqual({name: said[name] for name in STATE}, dict.fromkeys(STATE, pairs), said["first"])
                self.assertGreater(said["costs"], pairs)
                self.assertEqual(said["equal_costs"], said["costs"], said["first"])
                if role == "decode":
                    self.assertEqual(said["cheapest"], said["decisions"], said["first"])

    def test_temperature(self):
        """Draws are apart; both are as probable as they should be, and the costs are equal."""
        said = self.decide({"router-temperature": 0.3}, *self.conversations(8, 600))
        self.check(said, 600)
        self.assertLess(said["same_worker"], said["decisions"])
        for who in ("ours", "theirs"):
            self.assertLess(abs(said["draws"][who]), 4, said["draws"])


if __name__ == "__main__":
    if not PYTHON:
        print("skipped: QUIRE_DYNAMO_PYTHON names no interpreter with ai-dynamo-runtime")
        sys.exit(77)
    QUIRE, HISTORY, TRACES = (sys.argv.pop(1) for _ in range(3))
    unittest.main()
