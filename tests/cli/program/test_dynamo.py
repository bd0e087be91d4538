#!/usr/bin/env python3
"""NVIDIA Dynamo's KV indexer, a router of others, follows `quire serve`: it comes to the same index.

    QUIRE_DYNAMO_PYTHON=.../python tests/cli/program/test_dynamo.py QUIRE

QUIRE_DYNAMO_PYTHON is an interpreter that has ai-dynamo-runtime; without it this is skipped. The
indexer joins late, asks for a replay of what it missed, and reads stores and evictions from then on.
"""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from fake_publisher import FakePublisher, batch, removed, stored
from engines_kit import Engines, tokens_of
from serve_kit import Serving, run, until

QUIRE = ""
PYTHON = os.environ.get("QUIRE_DYNAMO_PYTHON", "")
BLOCK_SIZE = 16
INDEXER = "import sys, dynamo.llm as d; d.run_kv_indexer(['--port', *sys.argv[1:]])"
TIERS = {"GPU": "device", "CPU": "host_pinned", "DISK": "disk"}
ANY = "tcp://127.0.0.1:*"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return json.load(answer)


def post(port, path, data):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(data).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def is_up(port):
    try:
        return get(port, "/workers") == []
    except OSError:
        return False


def dumped(port, tier="device", worker=1):
    """The hashes that the indexer has in one of its tiers, of one engine."""
    hashes = set()
    for event in get(port, "/dump").get("default:default", {"events": []})["events"]:
        if event["storage_tier"] == tier and event["worker_id"] == worker:
            for block in event["event"]["data"].get("stored", {}).get("blocks", []):
                hashes.add(f"{block['block_hash']:016x}")
    return hashes


def published(events, replay):
    """Those of the publisher's whole index, as {medium: {hash: its parent's}}."""
    text = run(QUIRE, "events", events, "--replay-events", replay, "--json", "--seconds", "1")
    index = {}
    for event in map(json.loads, text.splitlines()):
        parent = event.get("parent_block_hash")
        for block in event["block_hashes"] if event["kind"] == "stored" else ():
            index.setdefault(event["medium"], {})[block] = parent
            parent = block
    return index


def orphans_of(events, replay):
    """GPU blocks that the indexer dropped with an ancestor, and that were not stored again since: also
    where the ancestor came back."""
    text = run(QUIRE, "events", events, "--replay-events", replay, "--from-start", "--json", "--seconds", "2")
    parents, orphans = {}, set()
    for event in map(json.loads, text.splitlines()):
        if event["kind"] not in ("stored", "removed") or event["medium"] != "GPU":
            continue
        parent = event.get("parent_block_hash")
        for block in event["block_hashes"]:
            if event["kind"] == "stored":
                parents[block] = parent
                # A child of a block that the indexer does not have is refused.
                orphans = orphans | {block} if parent in orphans else orphans - {block}
                parent = block
                continue
            parents.pop(block, None)
            gone = {block}
            while more := {h for h in parents if parents[h] in gone} - gone:
                gone |= more
            orphans = (orphans | gone) - {block}
    return orphans


class Dynamo(unittest.TestCase):
    def start_indexer(self, *args, log=subprocess.DEVNULL):
        port = free_port()
        indexer = subprocess.Popen([PYTHON, "-c", INDEXER, str(port), *args],
                                   stdout=log, stderr=log)
        self.addCleanup(indexer.wait)
        self.addCleanup(indexer.kill)
        until(lambda: is_up(port), "the indexer")
        return port

    def follow(self, *messages):
        """What an indexer with one thread has after these batches, {tier: numbers}, and its log."""
        with tempfile.TemporaryFile("w+") as log, FakePublisher(*enumerate(messages)) as it:
            port = self.start_indexer("--threads", "1", log=log)
            post(port, "/register", {"instance_id": 1, "endpoint": it.endpoint, "model_name": "default",
                                     "block_size": BLOCK_SIZE})
            last = {"9" * 16}
            until(lambda: dumped(port) >= last, "the last batch")
            log.seek(0)
            self.assertIn("Check: passed", run(QUIRE, "events", it.endpoint, "--quiet", "--check",
                                               "--seconds", "1"))
            return {tier: {int(h, 16) for h in dumped(port, tier) - last}
                    for tier in (*TIERS.values(), "external")}, log.read()

    def test_children_go_with_their_parent(self):
        """What docs/events.md says of the indexer: of the GPU's tier, a block goes with its parent, and
        its own removal is then one of a block that is not found; other tiers have no such tree."""
        tokens = list(range(2 * BLOCK_SIZE))
        end = batch(stored([0x9999999999999999], None, range(1000, 1000 + BLOCK_SIZE)))
        missing = "Failed to find block to remove"

        def pair(medium):
            return batch(stored([1, 2], None, tokens, medium=medium))
        has, log = self.follow(pair("GPU"), batch(removed([1])), end)
        self.assertEqual(has["device"], set())  # 2 was not removed
        self.assertNotIn(missing, log)
        has, log = self.follow(pair("GPU"), batch(removed([1])), batch(removed([2])), end)
        self.assertEqual(log.count(missing), 1, log)
        has, log = self.follow(pair("GPU"), batch(removed([2])), batch(removed([1])), end)
        self.assertNotIn(missing, log)
        has, log = self.follow(pair("CPU"), pair("DISK"), batch(removed([1], medium="CPU")), end)
        self.assertEqual((has["host_pinned"], has["disk"]), ({2}, {1, 2}))
        has, log = self.follow(pair("GPU"), pair("REDIS"), batch(removed([2], medium="REDIS")), end)
        self.assertEqual(has["device"], {1, 2})
        self.assertFalse(has["host_pinned"] | has["disk"] | has["external"])

    def test_tiers(self):
        """Host memory and disk are the same; of the GPU's blocks none but those that lost a parent are
        missing, and no removal is one of a block that was not stored in its medium."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            run(QUIRE, "generate", "chat", "--requests", "150", "--rate", "20", "--out", trace)
            port = self.start_indexer()
            serving = Serving(QUIRE, "--speed", "1", "--hold", "--num-gpu-blocks", "1200",
                              "--cpu-blocks", "1000", "--file-tier", "200M", "--redis", "2G", "--admit",
                              "all", "--event-tokens", "--events", ANY, "--replay-events", ANY, trace)
            self.addCleanup(serving.close)
            post(port, "/register", {"instance_id": 1, "endpoint": serving.events,
                                     "replay_endpoint": serving.replay, "model_name": "default",
                                     "block_size": BLOCK_SIZE})
            until(serving.has_ended, "the end of the trace")
            said = run(QUIRE, "events", serving.events, "--replay-events", serving.replay, "--from-start",
                       "--quiet", "--check", "--compare", "--seconds", "2")
            ours = published(serving.events, serving.replay)
            for medium in ("CPU", "DISK"):
                until(lambda: dumped(port, TIERS[medium]) == set(ours[medium]), f"the same {medium}")
            has = dumped(port)
            orphans = orphans_of(serving.events, serving.replay)
        self.assertIn("Check: passed", said)
        self.assertIn("Compare: equal", said)
        gpu = ours["GPU"]
        self.assertLessEqual(has, set(gpu))
        self.assertLessEqual(set(gpu) - has, orphans)
        print(f"Dynamo's indexer has {len(has)} of {len(gpu)} GPU blocks, all of "
              f"{len(ours['CPU'])} in host memory and {len(ours['DISK'])} on disk")

    def test_two_of_four_engines(self):
        """A router that follows two of four live engines knows what each of them will find of a prompt."""
        draw = random.Random(28)
        heads = ["".join(draw.choices("abcdefgh ", k=640)) for _ in range(4)]
        port = self.start_indexer()

        def prompt():
            return draw.choice(heads)[:draw.randrange(64, 641)] + draw.choice("xyz") * draw.randrange(100)
        with Engines(QUIRE, 4, "--speed", "50", "--num-gpu-blocks", "101", "--max-model-len", "300",
                     "--event-tokens") as it:
            for i in range(4):  # so that there is something to miss
                it.complete(i, prompt=prompt(), max_tokens=20)
            for i in (1, 3):
                post(port, "/register", {"instance_id": i, "endpoint": it.events[i], "dp_rank": i,
                                         "replay_endpoint": it.replay[i], "model_name": "default",
                                         "block_size": BLOCK_SIZE})
            time.sleep(1)  # it listens, and subscribes
            for k in range(120):
                it.complete(k % 4, prompt=prompt(), max_tokens=20)
            for i in (1, 3):
                ours = set(published(it.events[i], it.replay[i])["GPU"])
                until(lambda: dumped(port, worker=i) == ours, f"the same index of engine {i}")
            for i in (0, 2):
                self.assertEqual(dumped(port, worker=i), set())
            hits = []
            for i, text in ((i, head[:n]) for i in (1, 3) for head in heads for n in (64, 300, 640)):
                ids = tokens_of(text)
                said = post(port, "/query", {"token_ids": ids, "model_name": "default"})
                known = said["scores"].get(str(i), {}).get(str(i), 0)
                usage = it.complete(i, prompt=ids, max_tokens=1)["usage"]
                most = (len(ids) - 1) // BLOCK_SIZE * BLOCK_SIZE
                hits.append(usage["prompt_tokens_details"]["cached_tokens"])
                self.assertEqual(hits[-1], min(known, most), (i, text[:8], len(ids)))
                if most > known:  # it has stored more, and has evicted
                    time.sleep(0.3)
            evicted = [it.metrics(i)["quire_blocks_evicted_total"] for i in (1, 3)]
        self.assertGreater(min(evicted), 0)
        self.assertGreater(len(set(hits)), 3)
        print(f"Dynamo's indexer has foretold {len(hits)} hits of two engines, of {min(hits)} to "
              f"{max(hits)} tokens; {sum(evicted):.0f} blocks were evicted on the way")

    def test_same_index(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            run(QUIRE, "generate", "chat", "--requests", "150", "--rate", "20", "--out", trace)
            port = self.start_indexer()
            serving = Serving(QUIRE, "--speed", "1", "--hold", "--num-gpu-blocks", "1200",
                              "--event-tokens", "--events", ANY, "--replay-events", ANY, trace)
            self.addCleanup(serving.close)
            time.sleep(1)  # so that there is something to miss
            post(port, "/register", {"instance_id": 1, "endpoint": serving.events,
                                     "replay_endpoint": serving.replay, "model_name": "default",
                                     "block_size": BLOCK_SIZE})
            until(serving.has_ended, "the end of the trace")
            ours = set(published(serving.events, serving.replay)["GPU"])
            until(lambda: dumped(port) == ours, "the same index")
            evicted = serving.metrics()["quire_blocks_evicted_total"]
            self.assertGreater(len(ours), 500)
            self.assertGreater(evicted, 0)
            print(f"Dynamo's indexer has the publisher's {len(ours)} blocks; {evicted:.0f} were "
                  "evicted on the way")


if __name__ == "__main__":
    if not PYTHON:
        print("skipped: QUIRE_DYNAMO_PYTHON names no interpreter with ai-dynamo-runtime")
        sys.exit(77)
    QUIRE = sys.argv.pop(1)
    unittest.main()
