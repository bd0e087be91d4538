#!/usr/bin/env python3
"""vLLM's own classes read the KV events of two of four live engines.

    QUIRE_VLLM_PYTHON=.../python tests/cli/program/test_engines_vllm.py QUIRE

QUIRE_VLLM_PYTHON is an interpreter that has vLLM 0.20.0 or 0.32.0; without it this is skipped.
QUIRE_VLLM_PLATFORM as in tests/parity/README.md. The batches come over a plain ZeroMQ socket of
pyzmq and go through msgspec with vLLM's KVEventBatch, as in vLLM's example of a subscriber.
"""

import json
import os
import subprocess
import sys
import time
import unittest

from engines_kit import Engines, tokens_of

QUIRE = ""
PYTHON = os.environ.get("QUIRE_VLLM_PYTHON", "")
BLOCK = 16
TEXT = "Pack my box with five dozen liquor jugs; " * 8

FOLLOWER = r"""
import importlib, json, os, sys
platform = os.environ.get("QUIRE_VLLM_PLATFORM")
if platform:
    sys.path.insert(0, os.path.dirname(platform))
    importlib.import_module(os.path.basename(platform).removesuffix(".py"))
import msgspec, zmq
from vllm.distributed import kv_events
is_array = bool(kv_events.BlockStored.__struct_config__.array_like)
decoder = msgspec.msgpack.Decoder(type=kv_events.KVEventBatch)
sockets, poller = {}, zmq.Poller()
for i, line in enumerate(iter(sys.stdin.readline, "end\n")):
    if i == 0:
        print(json.dumps({"arrays": is_array}), flush=True)
        continue
    name, endpoint = line.split()
    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.setsockopt_string(zmq.SUBSCRIBE, "kv")
    sockets[socket] = name
    poller.register(socket, zmq.POLLIN)
print("{}", flush=True)
while True:
    for socket, _ in poller.poll():
        topic, number, payload = socket.recv_multipart()
        batch = decoder.decode(payload)
        print(json.dumps({"engine": int(sockets[socket]), "topic": topic.decode(),
                          "number": int.from_bytes(number, "big"), "rank": batch.data_parallel_rank,
                          "time": batch.ts, "events": [
                              {"kind": type(e).__name__, **{k: getattr(e, k) for k in
                               ("block_hashes", "token_ids", "block_size", "medium") if hasattr(e, k)}}
                              for e in batch.events]}), flush=True)
"""


class Follow(unittest.TestCase):
    def setUp(self):
        self.follower = subprocess.Popen([PYTHON, "-c", FOLLOWER], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, text=True, bufsize=1)
        self.addCleanup(self.follower.wait)
        self.addCleanup(self.follower.stdout.close)
        self.addCleanup(self.follower.stdin.close)
        self.addCleanup(self.follower.kill)
        print("begin", file=self.follower.stdin)
        self.profile = "vllm-0.20" if self.read()["arrays"] else "vllm-0.32"

    def read(self):
        """The next line of JSON: vLLM says other things too."""
        while line := self.follower.stdout.readline():
            if line.startswith("{"):
                return json.loads(line)
        raise AssertionError("the follower has ended")

    def test_two_of_four(self):
        ids = tokens_of(TEXT)
        full = [ids[k:k + BLOCK] for k in range(0, len(ids) // BLOCK * BLOCK, BLOCK)]
        with Engines(QUIRE, 4, "--profile", self.profile, "--topic", "kv", "--event-tokens", "--speed", "20",
                     "--num-gpu-blocks", "41", "--max-model-len", "600") as it:
            for i in (1, 3):
                print(i, it.events[i], file=self.follower.stdin)
            print("end", file=self.follower.stdin)
            self.read()
            has, numbers, removed = {1: {}, 3: {}}, {1: [], 3: []}, 0
            for k in range(40):  # a subscription takes a moment
                it.complete(1 + k % 4 // 2 * 2, prompt=[k] * 32, max_tokens=1)
                time.sleep(0.05)
            it.complete(1, prompt=ids, max_tokens=1)
            for fill in ("a", "b"):
                it.complete(3, prompt=fill * 2300, max_tokens=1)
            it.complete(3, prompt=ids, max_tokens=1)
            open_engines = {1, 3}
            for i in open_engines:
                it.complete(i, prompt=[999999 + i] * 32, max_tokens=1)
            while open_engines:
                batch = self.read()
                i = batch["engine"]
                self.assertEqual((batch["rank"], batch["topic"]), (i, "kv"))
                numbers[i].append(batch["number"])
                for event in batch["events"]:
                    if event["kind"] == "BlockStored":
                        self.assertEqual((event["medium"], event["block_size"]), ("GPU", BLOCK))
                        for n, name in enumerate(event["block_hashes"]):
                            has[i][name] = event["token_ids"][n * BLOCK:(n + 1) * BLOCK]
                        if 999999 + i in event["token_ids"]:
                            open_engines.discard(i)
                    elif event["kind"] == "BlockRemoved":
                        for name in event["block_hashes"]:
                            removed += 1
                            has[i].pop(name, None)
            for i in (1, 3):
                self.assertEqual(numbers[i], list(range(numbers[i][0], numbers[i][0] + len(numbers[i]))))
                kept = list(has[i].values())
                for block in full:
                    self.assertIn(block, kept)
                answer = it.complete(i, prompt=ids, max_tokens=1)
                self.assertEqual(answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                                 (len(ids) - 1) // BLOCK * BLOCK)
            self.assertGreater(removed, 30)


if __name__ == "__main__":
    if not PYTHON:
        print("skipped: QUIRE_VLLM_PYTHON names no interpreter with vLLM")
        sys.exit(77)
    QUIRE = sys.argv.pop(1)
    unittest.main()
