#!/usr/bin/env python3
"""Events between processes: Quire's publisher and subscriber, vLLM's, and plain ZeroMQ sockets.

    tests/events/test_zmq_peers.py ZMQ_PEER

Needs pyzmq, in this interpreter or in the one that QUIRE_VLLM_PYTHON names; that one must have
vLLM 0.20.0 or 0.32.0 for the tests with vLLM's own classes (QUIRE_VLLM_PLATFORM: a module that lets
it run without a GPU). What is missing is skipped, and said.
"""

import importlib.util
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
import unittest

try:
    import zmq
except ImportError:
    other = os.environ.get("QUIRE_VLLM_PYTHON")
    if other and "QUIRE_SECOND_TRY" not in os.environ:
        os.execve(other, [other, *sys.argv], {**os.environ, "QUIRE_SECOND_TRY": "1"})
    print("skipped: no pyzmq here (Debian: python3-zmq), and QUIRE_VLLM_PYTHON names no other")
    sys.exit(77)

PATIENCE = 30  # seconds; on a busy machine all of this is slow
END = b"\xff" * 8
VLLM_0_20, VLLM_0_32 = 1, 2  # profiles
PEER = ""

kv_events = None


def find_vllm():
    """vLLM's module of events, or None."""
    platform = os.environ.get("QUIRE_VLLM_PLATFORM")
    if importlib.util.find_spec("vllm") is None:
        return None
    if platform:
        sys.path.insert(0, os.path.dirname(platform))
        importlib.import_module(os.path.basename(platform).removesuffix(".py"))
    return importlib.import_module("vllm.distributed.kv_events")


def profile_of_vllm():
    """The profile whose events the classes of this vLLM read."""
    return VLLM_0_20 if kv_events.BlockStored.__struct_config__.array_like else VLLM_0_32


class Peer:
    """A zmq_peer process, and the lines that it prints."""

    def __init__(self, *args):
        self.process = subprocess.Popen([PEER, *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))

    def line(self, timeout=PATIENCE):
        return self.lines.get(timeout=timeout)

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        return self.line()

    def index(self):
        """(group, hash) of all keys in the pool."""
        self.process.stdin.write("index\n")
        keys = set()
        while (line := self.line()) != ".":
            group, number = line.split()
            keys.add((int(group), int(number)))
        return keys

    def stats(self):
        return dict(zip(("batches", "events", "lost", "replays", "snapshots", "refused"),
                        map(int, self.ask("stats").split())))

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def number_of(frame):
    return int.from_bytes(frame, "big")


class Zmq(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.destroy, linger=0)

    def peer(self, *args):
        peer = Peer(*args)
        self.addCleanup(peer.close)
        return peer

    def publisher(self, *args):
        peer = self.peer("publish", *args)
        peer.endpoint, peer.replay = peer.line().split()
        peer.has_topics = f"profile={VLLM_0_32}" in args
        peer.topic = "".join(a.removeprefix("topic=") for a in args if a.startswith("topic="))
        return peer

    def socket(self, kind, endpoint, **options):
        socket = self.context.socket(kind)
        for name, value in options.items():
            socket.setsockopt(getattr(zmq, name), value)
        socket.connect(endpoint)
        return socket

    def subscribed(self, publisher, topic=b""):
        """A SUB socket that already gets batches: the first that came, and the socket."""
        sub = self.socket(zmq.SUB, publisher.endpoint, SUBSCRIBE=topic)
        until = time.monotonic() + PATIENCE
        while not sub.poll(20) and time.monotonic() < until:
            publisher.ask("run 1")
        return sub

    def receive(self, socket):
        self.assertTrue(socket.poll(1000 * PATIENCE), "nothing came")
        return socket.recv_multipart()

    def asked(self, publisher, request):
        """All that the replay socket answers: [(number, batch)]."""
        dealer = self.socket(zmq.DEALER, publisher.replay)
        dealer.send_multipart([b"", request])
        answers = []
        while True:
            delimiter, *topic, number, batch = self.receive(dealer)
            self.assertEqual(delimiter, b"")
            shown = b"" if number == END else publisher.topic.encode()
            self.assertEqual(topic, [shown] if publisher.has_topics else [])
            if number == END:
                self.assertEqual(batch, b"")
                return answers
            answers.append((number_of(number), batch))

    def published(self, publisher):
        """How many batches there are, when no more come: the publisher is some ms behind."""
        count = -1
        while (now := publisher.stats()["batches"]) != count or now == 0:
            count = now
            time.sleep(0.1)
        return count

    def drain(self, sub, publisher):
        """The live batches so far, by number; the last is the publisher's last."""
        live = {}
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if sub.poll(50):
                topic, number, batch = sub.recv_multipart()
                live[number_of(number)] = (topic, batch)
            elif live and max(live) == publisher.stats()["batches"] - 1:
                return live
        raise AssertionError("the last batch did not come")


class PlainSockets(Zmq):
    """Quire's publisher, and subscribers made of nothing but ZeroMQ, as vLLM's example is."""

    def test_live_and_replayed_are_the_same_bytes(self):
        for profile in (0, VLLM_0_20, VLLM_0_32):
            with self.subTest(profile=profile):
                self.check_live_and_replayed(profile)

    def check_live_and_replayed(self, profile):
        publisher = self.publisher("topic=kv-events", "tokens=1", "seed=3", f"profile={profile}")
        sub = self.subscribed(publisher, b"kv-")
        publisher.ask("run 500")
        live = self.drain(sub, publisher)
        replayed = dict(self.asked(publisher, (0).to_bytes(8, "big")))
        self.assertEqual(sorted(replayed), list(range(publisher.stats()["batches"])))
        self.assertGreater(len(live), 300)
        for number, (topic, batch) in live.items():
            self.assertEqual(topic, b"kv-events")
            self.assertEqual(batch, replayed[number])
        tail = self.asked(publisher, (400).to_bytes(8, "big"))
        self.assertEqual([n for n, _ in tail], list(range(400, len(replayed))))
        self.assertEqual(self.asked(publisher, (1 << 40).to_bytes(8, "big")), [])

    def test_req_socket(self):
        """vLLM's example asks with REQ, which takes one answer to a question."""
        publisher = self.publisher("seed=4")
        publisher.ask("run 50")
        req = self.socket(zmq.REQ, publisher.replay)
        until = time.monotonic() + PATIENCE
        while publisher.stats()["batches"] < 10 and time.monotonic() < until:
            time.sleep(0.01)
        req.send((7).to_bytes(8, "big"))
        number, batch = self.receive(req)
        self.assertEqual(number_of(number), 7)
        self.assertEqual(batch, dict(self.asked(publisher, (7).to_bytes(8, "big")))[7])

    def test_requests_that_are_none(self):
        publisher = self.publisher("seed=5")
        publisher.ask("run 20")
        dealer = self.socket(zmq.DEALER, publisher.replay)
        bad = [[b"", b""], [b"", b"1234567"], [b"", b"123456789"], [b"12345678"],
               [b"x", b"12345678"], [b"", b"12345678", b""], [b"", b"Snapshop!"]]
        for frames in bad:
            dealer.send_multipart(frames)
        until = time.monotonic() + PATIENCE
        while publisher.stats()["refused"] < len(bad) and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(publisher.stats()["refused"], len(bad))
        self.assertFalse(dealer.poll(0))
        # One that is far too long is cut off, and the others go on.
        dealer.send_multipart([b"", bytes(100000)])
        self.assertTrue(self.asked(publisher, (0).to_bytes(8, "big")))

    def test_gap(self):
        """A subscriber that was away sees so from the numbers, and asks."""
        publisher = self.publisher("seed=10", "tokens=1")
        sub = self.subscribed(publisher)
        publisher.ask("run 50")
        have = self.drain(sub, publisher)
        sub.close(linger=0)
        publisher.ask("run 100")
        self.published(publisher)
        last = max(have)
        here = self.drain(self.subscribed(publisher), publisher)
        self.assertGreater(min(here), last + 1)
        missed = dict(self.asked(publisher, (last + 1).to_bytes(8, "big")))
        whole = {**missed, **{n: batch for n, (_, batch) in here.items()}}
        self.assertEqual(sorted(whole), list(range(last + 1, publisher.stats()["batches"])))

    def test_gap_between_quires(self):
        """Quire's subscriber is stopped while more is published than its queues hold."""
        publisher = self.publisher("seed=11", "tokens=1", "hwm=10", "buffer=100000")
        listener = self.peer("listen", publisher.endpoint, publisher.replay, "0", "")
        kinds = {}
        while "live" not in kinds:  # then it waits for nothing else
            publisher.ask("run 20")
            number = self.listened(listener, kinds, self.published(publisher) - 1)
        os.kill(listener.process.pid, signal.SIGSTOP)
        for _ in range(60):
            publisher.ask("run 100")
        os.kill(listener.process.pid, signal.SIGCONT)
        publisher.ask("run 20")
        kinds = {}
        count = self.published(publisher)
        self.assertEqual(self.listened(listener, kinds, count - 1, number + 1), count - 1)
        self.assertGreater(kinds.get("replay", 0), 100)
        self.assertNotIn("gap", kinds)

    def listened(self, listener, kinds, last, expected=None):
        """Takes in what a listener tells, until a batch of at least this number; which that was."""
        number = -1
        while number < last:
            kind, text, *_ = listener.line().split(" ")
            number = int(text)
            kinds[kind] = kinds.get(kind, 0) + 1
            if expected is not None and kind != "whole":  # that was told before, and ends here
                self.assertEqual(number, expected)
                expected += 1
        return number

    def test_snapshot(self):
        publisher = self.publisher("seed=6", "window=1", "every_copy=0")
        self.assertEqual(self.asked(publisher, b"snapshot"), [])  # before the first batch
        publisher.ask("run 300")
        until = time.monotonic() + PATIENCE
        while not (pieces := self.asked(publisher, b"snapshot")) and time.monotonic() < until:
            publisher.ask("idle")
        numbers = {number for number, _ in pieces}
        self.assertEqual(len(numbers), 1)
        self.assertLess(numbers.pop(), publisher.stats()["batches"])


class VllmDecodes(Zmq):
    """Quire's publisher, read with vLLM's own classes."""

    def setUp(self):
        super().setUp()
        if kv_events is None:
            self.skipTest("no vLLM in this interpreter")
        import msgspec
        self.decoder = msgspec.msgpack.Decoder(type=kv_events.KVEventBatch)
        self.encoder = msgspec.msgpack.Encoder()

    def rebuilt(self, batches, copies):
        """The index that the events of batches make."""
        index = {}
        for batch in batches:
            for event in self.decoder.decode(batch).events:
                if isinstance(event, kv_events.AllBlocksCleared):
                    index.clear()
                    continue
                self.assertEqual(event.medium, "GPU")
                for number in event.block_hashes:
                    key = (event.group_idx, number)
                    if isinstance(event, kv_events.BlockStored):
                        index[key] = index.get(key, 0) + 1 if copies else 1
                    else:
                        index[key] -= 1
                        if index[key] == 0:
                            del index[key]
        return set(index)

    def settled(self, publisher, copies):
        """Idle steps until the rebuilt index is the pool's; the batches."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            batches = [batch for _, batch in self.asked(publisher, bytes(8))]
            if self.rebuilt(batches, copies) == publisher.index():
                return batches
            publisher.ask("idle")
        raise AssertionError("the index that vLLM's classes make is not the pool's")

    def test_index(self):
        for seed, copies in ((7, 0), (8, 1)):
            with self.subTest(every_copy=copies):
                publisher = self.publisher(f"seed={seed}", "tokens=1", "window=1", "rank=3",
                                           "buffer=100000", f"every_copy={copies}",
                                           f"profile={profile_of_vllm()}")
                publisher.ask("run 2000")
                batches = self.settled(publisher, copies)
                for batch in batches:  # what vLLM reads, it would have written in the same bytes
                    self.assertEqual(self.encoder.encode(self.decoder.decode(batch)), batch)
                    self.assertEqual(self.decoder.decode(batch).data_parallel_rank, 3)
                self.assertGreater(len(batches), 500)
                pieces = [batch for _, batch in self.asked(publisher, b"snapshot")]
                self.assertEqual(self.rebuilt(pieces, copies), publisher.index())

    def test_parents(self):
        """Each parent is a hash that was told before: the chains hold, split or not."""
        publisher = self.publisher("seed=9", "tokens=1", "buffer=100000",
                                   f"profile={profile_of_vllm()}")
        publisher.ask("run 1000")
        told = set()
        for _, batch in self.asked(publisher, bytes(8)):
            for event in self.decoder.decode(batch).events:
                if isinstance(event, kv_events.BlockStored):
                    self.assertEqual(len(event.token_ids), 4 * len(event.block_hashes))
                    if event.parent_block_hash is not None:
                        self.assertIn(event.parent_block_hash, told)
                    told.update(event.block_hashes)


    def test_kinds_of_groups(self):
        """What vLLM says of the group of a stored block: 0.20 nothing, 0.32 its kind."""
        has_kinds = profile_of_vllm() == VLLM_0_32
        publisher = self.publisher("seed=12", "tokens=1", "window=1", "buffer=100000",
                                   f"profile={profile_of_vllm()}")
        publisher.ask("run 200")
        told = set()
        for request in (bytes(8), b"snapshot"):
            for _, batch in self.asked(publisher, request):
                told |= {(e.group_idx, getattr(e, "kv_cache_spec_kind", None),
                          getattr(e, "kv_cache_spec_sliding_window", None))
                         for e in self.decoder.decode(batch).events
                         if isinstance(e, kv_events.BlockStored)}
        kinds = {(0, "full_attention", None), (1, "sliding_window", 8)}
        self.assertEqual(told, kinds if has_kinds else {(0, None, None), (1, None, None)})


class VllmPublishes(Zmq):
    """vLLM's ZmqEventPublisher, in this process; Quire's subscriber in another."""

    def setUp(self):
        super().setUp()
        if kv_events is None:
            self.skipTest("no vLLM in this interpreter")
        import msgspec
        self.encoder = msgspec.msgpack.Encoder()
        self.random = random.Random(1)
        self.sent = []
        self.port = None

    def start(self, **options):
        """vLLM's rule: it listens where the address has a star."""
        probe = self.context.socket(zmq.REP)
        first = probe.bind_to_random_port("tcp://127.0.0.1", min_port=20000, max_port=60000)
        probe.close(linger=0)
        time.sleep(0.05)
        self.endpoints = (f"tcp://127.0.0.1:{first}", f"tcp://127.0.0.1:{first + 1}")
        publisher = kv_events.ZmqEventPublisher(
            data_parallel_rank=0, endpoint=f"tcp://*:{first}",
            replay_endpoint=f"tcp://*:{first + 1}", topic="kv", **options)
        self.addCleanup(publisher.shutdown)
        return publisher

    def batch(self):
        r = self.random
        numbers = [r.getrandbits(64) for _ in range(r.randint(1, 9))]
        stored = kv_events.BlockStored(
            block_hashes=numbers, parent_block_hash=r.choice([None, r.getrandbits(64)]),
            token_ids=[r.getrandbits(17) for _ in range(16 * len(numbers))], block_size=16,
            lora_id=None, medium="GPU", lora_name=None, extra_keys=[None] * len(numbers),
            group_idx=r.randint(0, 2))
        removed = kv_events.BlockRemoved(block_hashes=numbers[:1], medium="GPU", group_idx=0)
        events = [stored, removed, kv_events.AllBlocksCleared()]
        return kv_events.KVEventBatch(ts=r.random(), events=r.sample(events, r.randint(1, 3)))

    def send(self, publisher, count):
        for _ in range(count):
            batch = self.batch()
            publisher.publish(batch)
            self.sent.append(self.encoder.encode(batch))

    def heard(self, listener):
        kind, number, missed, text = listener.line().split(" ")
        return kind, int(number), int(missed), bytes.fromhex(text)

    def expect(self, listener, kinds, numbers):
        for expected in numbers:
            kind, number, _, batch = self.heard(listener)
            self.assertIn(kind, kinds)
            self.assertEqual(number, expected)
            self.assertEqual(batch, self.sent[number])

    def test_replay_and_live(self):
        publisher = self.start()
        self.send(publisher, 50)
        time.sleep(0.5)  # published before anybody listens
        listener = self.peer("listen", *self.endpoints, "0", "kv")
        self.expect(listener, ("replay", "live"), range(50))
        self.send(publisher, 500)
        self.expect(listener, ("replay", "live"), range(50, 550))

    def test_gap_that_replay_fills(self):
        """What a subscriber missed (here: while it was stopped, with a queue of 10) comes again."""
        publisher = self.start(hwm=10)
        listener = self.peer("listen", *self.endpoints, "0", "kv")
        self.send(publisher, 5)
        self.expect(listener, ("replay", "live"), range(5))
        listener.process.send_signal(signal.SIGSTOP)
        self.send(publisher, 6000)
        until = time.monotonic() + PATIENCE
        while not publisher._event_queue.empty() and time.monotonic() < until:
            time.sleep(0.05)
        listener.process.send_signal(signal.SIGCONT)
        self.send(publisher, 5)
        seen = {"live": 0, "replay": 0}
        for expected in range(5, 6010):
            kind, number, _, batch = self.heard(listener)
            self.assertEqual((number, batch), (expected, self.sent[expected]))
            seen[kind] += 1
        self.assertGreater(seen["replay"], 100)

    def test_gap_that_stays(self):
        publisher = self.start(buffer_steps=20)
        self.send(publisher, 100)
        time.sleep(0.5)
        listener = self.peer("listen", *self.endpoints, "0", "kv")
        self.assertEqual(self.heard(listener)[:3], ("gap", 80, 80))
        self.expect(listener, ("replay",), range(80, 100))


if __name__ == "__main__":
    PEER = sys.argv.pop(1)
    kv_events = find_vllm()
    program = unittest.main(exit=False, warnings="ignore")
    if program.result.skipped:
        print(f"skipped: {len(program.result.skipped)} tests, vLLM is not here")
    sys.exit(not program.result.wasSuccessful())
