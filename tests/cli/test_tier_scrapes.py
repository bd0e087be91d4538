#!/usr/bin/env python3
"""/metrics, /snapshot and /events of `quire serve` with tiers, copies that fail and scrapes under load:
in each scrape the empty, cached, active and null blocks of each tier are its capacity.

    QUIRE_SCRAPES=10000 test_tier_scrapes.py QUIRE      the long run; 200 scrapes without
"""

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from urllib.parse import urlsplit

from serve_kit import Serving, run, until

QUIRE = None
SCRAPES = int(os.environ.get("QUIRE_SCRAPES", "200"))
LINE = re.compile(r'^(quire_\w+)\{(.*)\} (\d+)$', re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')
STATES = {"empty", "cached", "active", "null"}


class Redis:
    """A server of its own, on a port that is free."""
    LIMIT = 256 << 20

    def __init__(self, folder):
        self.folder = folder
        self.process = None
        self.port = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        """False: another program has the port."""
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--dir", self.folder, "--save", "", "--maxmemory",
             str(self.LIMIT), "--maxmemory-policy", "allkeys-lru"], stdout=subprocess.DEVNULL)

        def answers():
            with socket.socket() as s:
                return self.process.poll() is not None or s.connect_ex(("127.0.0.1", self.port)) == 0
        until(answers, "the server")
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        for _ in range(10):
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                self.port = s.getsockname()[1]
            if self.start():
                return self
        raise AssertionError("redis-server does not start")

    def __exit__(self, *_):
        self.kill()


class Scrapes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = os.path.join(cls.folder.name, "trace.jsonl.zst")
        run(QUIRE, "generate", "agent", "--requests", str(400 + SCRAPES), "--rate", "4", "--out",
            cls.trace)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *more):
        """Until the test ends: the trace is longer than the scrapes take."""
        return Serving(QUIRE, "--speed", "40", "--hold", "--skip-bad", "--num-gpu-blocks",
                       "4000", "--cpu-blocks", "6000", *more, self.trace)

    def tiers_of(self, text):
        """{tier: {family or state: value}}"""
        tiers = {}
        for name, labels, value in LINE.findall(text):
            words = dict(LABEL.findall(labels))
            if "tier" in words:
                tier = tiers.setdefault(words["tier"], {"medium": words["medium"]})
                self.assertEqual(tier["medium"], words["medium"])
                key = words.get("state", name)
                self.assertNotIn(key, tier)
                tier[key] = int(value)
        return tiers

    def check(self, tiers, names):
        self.assertEqual(set(tiers), names)
        for name, t in tiers.items():
            self.assertEqual(sum(t[state] for state in STATES), t["quire_capacity_blocks"], (name, t))
            self.assertLessEqual(t["quire_pinned_blocks"], t["active"], (name, t))

    def scrape(self, it, num, names):
        """The last one, and how many differed from the one before."""
        connection = http.client.HTTPConnection(urlsplit(it.page).netloc, timeout=60)
        before, num_changes = {}, 0
        for _ in range(num):
            connection.request("GET", "/metrics")
            answer = connection.getresponse()
            self.assertEqual(answer.status, 200)
            tiers = self.tiers_of(answer.read().decode())
            self.check(tiers, names)
            for name, counters in before.items():
                for key, value in counters.items():
                    if key.endswith("_total"):
                        self.assertGreaterEqual(tiers[name][key], value, (name, key))
            num_changes += tiers != before
            before = tiers
        connection.close()
        return before, num_changes

    def moved(self, it, names):
        """A scrape in which each tier has stored, and failed, and the host pool was hit; or None."""
        last, _ = self.scrape(it, 1, names)
        counts = [last[name][f"quire_tier_{key}_total"] for name in names - {"gpu"}
                  for key in ("stored_blocks", "stored_bytes", "failed_blocks")]
        counts += [last["host"][f"quire_tier_{key}_total"] for key in ("loaded_blocks", "hit_tokens")]
        return last if all(counts) else None

    def test_scrapes_add_up(self):
        names = {"gpu", "host", "file", "redis"}
        with self.serve("--file-tier", "2G", "--redis", "4G", "--tier-failures", "0.02", "--names",
                        "3") as it:
            until(lambda: it.metrics()["quire_steps_total"] > 20, "steps")
            last, num_changes = self.scrape(it, SCRAPES, names)
            print(f"{SCRAPES} scrapes, {num_changes} of them differ from the one before; last: {last}")
            self.assertGreater(num_changes, SCRAPES // 10)
            last = until(lambda: self.moved(it, names), "stores, loads and failures of each tier")
            meta = json.loads(it.get("/snapshot?limit=1000")[1])
            self.check_snapshot(meta)
            self.check_names(meta["names"])
        self.assertEqual([last[n]["medium"] for n in ("gpu", "host", "file", "redis")],
                         ["GPU", "CPU", "DISK", "REDIS"])
        self.assertNotIn("quire_tier_stored_blocks_total", last["gpu"])

    def check_names(self, names):
        """At most three that run, three that wait; the ids of a replay are numbers."""
        for state in ("running", "waiting"):
            self.assertLessEqual(len(names[state]), 3)
            self.assertTrue(names[f"more_{state}"] == 0 or len(names[state]) == 3, names)
            for name in names[state]:
                self.assertRegex(name, "^0x[0-9a-f]{16}$")

    def check_snapshot(self, told):
        tiers = told["meta"]["tiers"]
        self.assertEqual([t["name"] for t in tiers], ["gpu", "host", "file", "redis"])
        for t in tiers:
            self.assertEqual(sum(t[state] for state in STATES), t["total"])
        self.assertIsNone(tiers[0]["stored_bytes"])
        for values in told["steps"]:
            step = dict(zip(told["columns"], values))
            self.assertEqual(len(values), len(told["columns"]))
            for t in tiers[1:]:
                of = {key: step[f'{t["name"]}_{key}'] for key in ("total", "empty", "cached", "active")}
                self.assertEqual(of["empty"] + of["cached"] + of["active"] + t["null"], of["total"])

    def test_events_of_each_tier(self):
        """A router's index has each medium apart, and all are right at the end."""
        names = {"gpu", "host", "file", "redis"}
        with self.serve("--file-tier", "1G", "--redis", "1G", "--events", "tcp://127.0.0.1:*", "--replay-events", "tcp://127.0.0.1:*",
                        "--tier-failures", "0.02", "--arrival-speed", "50", "--speed", "max") as it:
            until(it.has_ended, "the end of the trace")
            told, _ = self.scrape(it, 1, names)
            said = run(QUIRE, "events", it.events, "--replay-events", it.replay, "--quiet", "--check",
                       "--compare", "--index", "--seconds", "2")
        self.assertIn("Check: passed", said)
        self.assertIn("Compare: equal", said)
        found = {medium: int(blocks.replace(",", "")) for medium, blocks in
                 re.findall(r"^ *(\w+), group 0: ([\d,]+) blocks", said, re.M)}
        self.assertEqual(found, {told[name]["medium"]: told[name]["cached"] for name in names}, said)
        self.assertTrue(all(found.values()), said)
        for medium in found:
            self.assertRegex(said, rf"(?m)^  {medium}: [\d,]+ blocks stored, [\d,]+ removed$")

    def test_tokens_of_other_tiers(self):
        """Routers that hash tokens take the blocks of all tiers: each has its tokens, and its parent."""
        with self.serve("--file-tier", "1G", "--events", "tcp://127.0.0.1:*", "--replay-events", "tcp://127.0.0.1:*",
                        "--event-tokens") as it:
            until(lambda: self.scrape(it, 1, {"gpu", "host", "file"})[0]["file"]["cached"] > 0, "blocks in the file")
            said = run(QUIRE, "events", it.events, "--replay-events", it.replay, "--from-start", "--json",
                       "--seconds", "2")
        known, seen = {}, {"CPU": 0, "DISK": 0}
        for line in said.splitlines():
            event = json.loads(line)
            if event.get("kind") != "stored":
                continue
            parent = event["parent_block_hash"]
            for i, block in enumerate(event["block_hashes"]):
                ids = event["token_ids"][16 * i:16 * i + 16]
                if event["medium"] == "GPU":
                    known[block] = (parent, ids)
                elif block in known:
                    self.assertEqual((parent, ids), known[block])
                    seen[event["medium"]] += 1
                parent = block
        self.assertGreater(min(seen.values()), 100, seen)

    def test_real_file(self):
        """The figures of a real file are those of its slots."""
        path = os.path.join(self.folder.name, "tier")
        with self.serve("--real-tiers", "--file-tier", f"{path}:64M", "--model",
                        "llama-3.2-1b", "--cpu-blocks", "500", "--admit", "all") as it:
            until(lambda: self.scrape(it, 1, {"gpu", "host", "file"})[0]["file"]["cached"] > 0,
                  "blocks in the file")
            last, _ = self.scrape(it, 50, {"gpu", "host", "file"})
        self.assertEqual(last["file"]["medium"], "DISK")
        self.assertGreater(last["file"]["quire_tier_stored_bytes_total"], 0)


    @unittest.skipUnless(shutil.which("redis-server"), "redis-server is missing")
    def test_real_redis(self):
        """A file and a Redis server that is killed and comes back: sums hold in each scrape, and the
        figures of the server are its own."""
        path = os.path.join(self.folder.name, "with-redis")
        names = {"gpu", "host", "file", "redis"}
        with Redis(self.folder.name) as redis, self.serve(
                "--real-tiers", "--file-tier", f"{path}:64M", "--redis", redis.address, "--model",
                "llama-3.2-1b", "--cpu-blocks", "500", "--admit", "long") as it:
            until(lambda: self.scrape(it, 1, names)[0]["redis"]["cached"] > 0, "keys of the server")
            for _ in range(4):
                last, _ = self.scrape(it, SCRAPES // 8, names)
                redis.kill()
                self.scrape(it, SCRAPES // 8, names)
                self.assertTrue(redis.start())
            until(lambda: self.scrape(it, 1, names)[0]["redis"]["cached"] > 0, "keys after the restarts")
            print(f"{SCRAPES} scrapes of real tiers, 4 kills of the server; last: {last['redis']}")
        self.assertEqual(last["redis"]["medium"], "REDIS")
        self.assertEqual(last["redis"]["quire_tier_capacity_bytes"], redis.LIMIT)
        self.assertGreater(last["redis"]["quire_tier_used_bytes"], 0)
        most = redis.LIMIT >> 19  # blocks of 512 KiB, without what the server needs for itself
        self.assertTrue(most // 2 < last["redis"]["quire_capacity_blocks"] <= most)


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main(verbosity=2)
