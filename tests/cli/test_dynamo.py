#!/usr/bin/env python3
"""NVIDIA Dynamo's KV indexer, a router of others, follows `quire serve`: it comes to the same index.

    QUIRE_DYNAMO_PYTHON=.../python tests/cli/test_dynamo.py QUIRE

QUIRE_DYNAMO_PYTHON is an interpreter that has ai-dynamo-runtime; without it this is skipped. The
indexer joins late, asks for a replay of what it missed, and reads stores and evictions from then on.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from serve_kit import Serving, run, until

QUIRE = ""
PYTHON = os.environ.get("QUIRE_DYNAMO_PYTHON", "")
BLOCK_SIZE = 16
INDEXER = "import sys, dynamo.llm as d; d.run_kv_indexer(['--port', sys.argv[1]])"
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


def dumped(port):
    """The hashes that the indexer has."""
    hashes = set()
    for event in get(port, "/dump")["default:default"]["events"]:
        for block in event["event"]["data"].get("stored", {}).get("blocks", []):
            hashes.add(f"{block['block_hash']:016x}")
    return hashes


def published(serving):
    """Those of the publisher's whole index."""
    text = run(QUIRE, "events", serving.events, "--replay-events", serving.replay, "--json",
               "--seconds", "1")
    events = [json.loads(line) for line in text.splitlines()]
    return {h for e in events if e["kind"] == "stored" for h in e["block_hashes"]}


class Dynamo(unittest.TestCase):
    def test_same_index(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "trace.jsonl")
            run(QUIRE, "generate", "chat", "--requests", "150", "--rate", "20", "--out", trace)
            port = free_port()
            indexer = subprocess.Popen([PYTHON, "-c", INDEXER, str(port)],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(indexer.wait)
            self.addCleanup(indexer.kill)
            until(lambda: is_up(port), "the indexer")
            serving = Serving(QUIRE, "--speed", "1", "--hold", "--num-gpu-blocks", "1200",
                              "--event-tokens", "--events", ANY, "--replay-events", ANY, trace)
            self.addCleanup(serving.close)
            time.sleep(1)  # so that there is something to miss
            post(port, "/register", {"instance_id": 1, "endpoint": serving.events,
                                     "replay_endpoint": serving.replay, "model_name": "default",
                                     "block_size": BLOCK_SIZE})
            until(serving.has_ended, "the end of the trace")
            ours = published(serving)
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
