#!/usr/bin/env python3
"""/metrics, /snapshot and /events of `quire serve` with tiers, copies that fail and scrapes under load:
in each scrape the empty, cached, active and null blocks of each tier are its capacity.

    QUIRE_SCRAPES=10000 test_tier_scrapes.py QUIRE      the long run; 200 scrapes without
"""

import http.client
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from urllib.parse import urlsplit

from serve_kit import Serving, run, until, write_private

QUIRE = None
SCRAPES = int(os.environ.get("QUIRE_SCRAPES", "200"))
LINE = re.compile(r'^(quire_\w+)\{(.*)\} (\d+)$', re.M)
LABEL = re.compile(r'(\w+)="([^"]*)"')
STATES = {"empty", "cached", "active", "null"}

# Real tiers: blocks of 8 KiB, documents of 512 blocks. GPU and host memory have room for two of them
# each, the file for eight, the peer has the first five, Redis has room for all. A server that was
# killed is left alone for 5 s and longer (breaker_ns): kills that come faster leave it without load.
BLOCK_BYTES = 8 << 10
OF_DOCUMENT = 512
DOCUMENTS = 24
OF_PEER = 5
REQUESTS_A_SECOND = 6
KILLS = max(1, SCRAPES // 2000)
TRACE_MS = 60000 + 100 * SCRAPES
LEAST_AFTER = {"redis_stored": 500, "file_stored": 500, "peer_loaded": 250}


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
        cls.trace, cls.short = (os.path.join(cls.folder.name, f"{name}.jsonl.zst")
                                for name in ("trace", "short"))
        for path, num in ((cls.trace, 400 + SCRAPES), (cls.short, 600)):
            run(QUIRE, "generate", "agent", "--requests", str(num), "--rate", "4", "--out", path)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *more, trace=None):
        """Until the test ends: the trace is longer than the scrapes take."""
        return Serving(QUIRE, "--speed", "40", "--hold", "--skip-bad", "--num-gpu-blocks",
                       "4000", "--cpu-blocks", "6000", *more, trace or self.trace)

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
                        "--tier-failures", "0.02", "--arrival-speed", "50", "--speed", "max", trace=self.short) as it:
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

    # -- real tiers

    def write_documents(self):
        """Two traces of prompts that are documents, and a model whose blocks are small but take
        long to compute: loads pay."""
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
                  "intermediate_size": 14336, "num_hidden_layers": 16, "num_attention_heads": 32,
                  "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 32000,
                  "max_position_embeddings": 16384, "torch_dtype": "bfloat16"}
        self.model = os.path.join(self.folder.name, "model.json")
        with open(self.model, "w", encoding="utf-8") as file:
            json.dump(config, file)
        order = random.Random(24)
        times = range(0, TRACE_MS, 1000 // REQUESTS_A_SECOND)
        self.write_trace("documents", [(t, order.randrange(DOCUMENTS)) for t in times])
        self.write_trace("of-peer", [(1000 * i, i) for i in range(OF_PEER)])

    def write_trace(self, name, requests):
        with open(os.path.join(self.folder.name, name), "w", encoding="utf-8") as file:
            for at_ms, document in requests:
                file.write(json.dumps({"timestamp": at_ms, "input_length": 16 * OF_DOCUMENT, "output_length": 2,
                                       "hash_ids": [16 * document + i for i in range(16)]}) + "\n")

    def real(self, trace, cpu_blocks, *more):
        return Serving(QUIRE, "--hold", "--real-tiers", "--model", self.model, "--gpu", "A100-80G",
                       "--max-num-batched-tokens", "512", "--num-gpu-blocks", "1200", "--cpu-blocks",
                       str(cpu_blocks),
                       "--peer-secret-file", self.secret, *more,
                       os.path.join(self.folder.name, trace))

    def start_peer(self, port=0):
        """Host memory with the first documents. The server, and its port."""
        peer = self.real("of-peer", (OF_DOCUMENT + 1) * OF_PEER, "--speed", "max", "--peer-listen",
                         f"127.0.0.1:{port}")
        self.addCleanup(peer.close)
        port = int(peer.process.stdout.readline().rsplit(":", 1)[1])
        until(peer.has_ended, "the end of the peer's trace")
        return peer, port

    def scrape_until(self, it, num, names, ready, what):
        """So many scrapes, and more until what they say is enough. The last one."""
        self.num_scrapes += num
        last, num_changes = self.scrape(it, num, names)
        self.num_changes += num_changes

        def again():
            self.num_scrapes += 1
            last.update(self.scrape(it, 1, names)[0])
            return ready(last)
        until(again, what)
        return last

    @unittest.skipUnless(shutil.which("redis-server"), "redis-server is missing")
    def test_real_tiers(self):
        """A peer, a file and a Redis server store and load thousands of blocks; peer and server are
        killed and come back: sums hold in each scrape, and the figures of the server are its own."""
        names = {"gpu", "host", "peer", "file", "redis"}
        self.num_scrapes = self.num_changes = 0
        self.secret = write_private(os.path.join(self.folder.name, "secret"), "known to both sides\n")
        self.write_documents()
        peer, peer_port = self.start_peer()

        def grown(since, **least):
            """Each tier has moved so many blocks more: peer_loaded=100"""
            def ready(now):
                return all(count(now, key) - count(since, key) >= least[key] for key in least)
            return ready

        def count(scrape, key):
            tier, what = key.split("_")
            return scrape.get(tier, {}).get(f"quire_tier_{what}_blocks_total", 0)
        with Redis(self.folder.name) as redis, self.real(
                "documents", 1300, "--speed", "1", "--peer", f"127.0.0.1:{peer_port}", "--file-tier",
                f"{os.path.join(self.folder.name, 'real')}:32M", "--redis", redis.address, "--admit",
                "all") as it:
            num = SCRAPES // (2 * KILLS)
            last = {}
            for _ in range(KILLS):
                last = self.scrape_until(
                    it, num, names, grown(last, redis_stored=1000, redis_loaded=1000, file_stored=1000,
                                          file_loaded=500, peer_loaded=500), "load on each tier")
                redis.kill()
                peer.close()
                last = self.scrape_until(it, num, names, grown(last, redis_failed=1),
                                         "faults")
                self.assertTrue(redis.start())
                peer, _ = self.start_peer(peer_port)
            last = self.scrape_until(it, 1, names, grown(last, **LEAST_AFTER), "load after the kills")
            self.assertNotIn("The trace has ended", it.said())
        moved = {key: count(last, key) for tier in ("host", "peer", "file", "redis")
                 for key in (f"{tier}_stored", f"{tier}_loaded", f"{tier}_failed")}
        print(f"{self.num_scrapes} scrapes of real tiers, {self.num_changes} or more of them differ from "
              f"the one before, {KILLS} kills of server and peer; blocks: {moved}")
        print(f"the server at the end: {last['redis']}")
        self.assertEqual([last[n]["medium"] for n in ("peer", "file", "redis")],
                         ["PEER", "DISK", "REDIS"])
        for key, least in (("redis_stored", 1500), ("redis_loaded", 1000), ("file_stored", 1500),
                           ("file_loaded", 500), ("peer_loaded", 750)):
            self.assertGreaterEqual(moved[key], least if KILLS == 1 else least + 1000 * (KILLS - 1) // 2)
        self.assertEqual(moved["peer_stored"], 0)  # read only
        self.assertGreater(last["file"]["quire_tier_stored_bytes_total"], 0)
        self.assertEqual(last["redis"]["quire_tier_capacity_bytes"], redis.LIMIT)
        self.assertGreater(last["redis"]["quire_tier_used_bytes"], 0)
        most = redis.LIMIT // BLOCK_BYTES  # without what the server needs for itself
        self.assertTrue(most // 2 < last["redis"]["quire_capacity_blocks"] <= most)


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main(verbosity=2)
