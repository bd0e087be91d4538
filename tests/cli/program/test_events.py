#!/usr/bin/env python3
"""`quire events` from outside: it follows `quire serve` in another process, and tells right from wrong.

    tests/cli/program/test_events.py QUIRE
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
import unittest

from fake_publisher import (CLEARED, NIL, FakePublisher, FakeReplay, array, batch, number, removed,
                            stored, text as packed)
from serve_kit import Serving, run, until, write_private

QUIRE = ""
ANY = "tcp://127.0.0.1:*"
PUBLISH = ("--events", ANY, "--replay-events", ANY)


def lines(*args, status=0):
    """Events and summary of a run with --json."""
    text = run(QUIRE, "events", "--json", *args, status=status)
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return found[:-1], found[-1]


class Following(unittest.TestCase):
    """Of a publisher that tells the truth."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.trace = os.path.join(cls.folder.name, "trace.jsonl")
        run(QUIRE, "generate", "chat", "--requests", "120", "--rate", "60", "--out", cls.trace)
        cls.serving = Serving(QUIRE, "--speed", "10", "--loop", "--num-gpu-blocks", "600",
                              *PUBLISH, cls.trace)
        cls.endpoints = (cls.serving.events, "--replay-events", cls.serving.replay)
        # before its first batch a publisher has no index
        run(QUIRE, "events", cls.serving.events, "--from-now", "--quiet", "--count", "3")

    @classmethod
    def tearDownClass(cls):
        cls.serving.close()
        cls.folder.cleanup()

    def test_compare(self):
        """The index built of events is the publisher's own, for one who came late too."""
        _, s = lines(*self.endpoints, "--quiet", "--check", "--compare", "--index", "--count", "60")
        self.assertEqual(s["check"], "passed")
        self.assertEqual(s["compare"]["differing"], 0)
        self.assertGreater(s["compare"]["blocks"], 0)
        self.assertGreaterEqual(s["live"], 60)
        self.assertGreater(s["index_parts"], 0)
        self.assertTrue(s["index"]["whole"])
        self.assertEqual(s["index"]["unknown_removed"], 0)
        self.assertEqual(s["index"]["blocks"], sum(p["blocks"] for p in s["index"]["parts"]))

    def test_killed_subscriber(self):
        """Nobody notices one who is gone; the next one has everything."""
        for _ in range(3):
            process = subprocess.Popen([QUIRE, "events", "--json", *self.endpoints],
                                       stdout=subprocess.PIPE)
            self.assertTrue(process.stdout.readline())
            process.kill()
            process.wait()
            process.stdout.close()
        text = run(QUIRE, "events", *self.endpoints, "--quiet", "--check", "--compare", "--count",
                   "30")
        self.assertIn("Check: passed", text)
        self.assertRegex(text, r"Compare: equal: [\d,]+ blocks at batch \d+")

    def test_lines(self):
        told, s = lines(*self.endpoints, "--count", "40")
        self.assertEqual([e["delivery"] for e in told].index("whole"),
                         [e["delivery"] for e in told].count("index"))
        events = [e for e in told if e["delivery"] != "whole"]
        kinds = {e["kind"] for e in events}
        self.assertLessEqual(kinds, {"stored", "removed", "cleared"})
        self.assertIn("stored", kinds)
        for e in events:
            if e["kind"] == "stored":
                self.assertEqual(e["token_ids"], [])
                self.assertEqual((e["block_size"], e["medium"], e["group"]), (16, "GPU", 0))
                self.assertTrue(all(re.fullmatch("[0-9a-f]{16}", h) for h in e["block_hashes"]))
        batches = sorted({e["number"] for e in events if e["delivery"] != "index"})
        self.assertEqual(batches, list(range(batches[0], batches[-1] + 1)))
        self.assertEqual(s["kind"], "summary")
        self.assertEqual(s["events"], len(events))
        text = run(QUIRE, "events", *self.endpoints, "--count", "5")
        self.assertRegex(text, r"(?m)^ +\d+ \d\d:\d\d:\d\d\.\d{3} stored +group 0 GPU  \d+ block")

    def test_interrupted(self):
        process = subprocess.Popen([QUIRE, "events", *self.endpoints], stdout=subprocess.PIPE,
                                   text=True)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("Gaps 0", text)

    def test_interrupted_compare(self):
        """Ctrl-C ends the following; what was to come at the end comes."""
        process = subprocess.Popen([QUIRE, "events", *self.endpoints, "--check", "--compare"],
                                   stdout=subprocess.PIPE, text=True)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("Compare: equal", text)

    def test_interrupted_while_nobody_reads(self):
        process = subprocess.Popen([QUIRE, "events", *self.endpoints], stdout=subprocess.PIPE,
                                   text=True)
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        seen = [0]

        def is_full():
            waiting = bytearray(4)
            fcntl.ioctl(process.stdout, termios.FIONREAD, waiting)
            seen.append(int.from_bytes(waiting, sys.byteorder))
            return seen[-1] > 0 and seen[-5:] == seen[-1:] * 5

        until(is_full, "a pipe that is full")
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0)
        self.assertIn("Gaps 0", text)


class Held(unittest.TestCase):
    """A publisher whose trace has ended."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.trace = self.path("trace.jsonl")
        run(QUIRE, "generate", "chat", "--requests", "20", "--out", self.trace)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def serve(self, *args):
        it = Serving(QUIRE, "--speed", "max", "--hold", *args, self.trace)
        self.addCleanup(it.close)
        until(it.has_ended, "the end of the trace")
        return it

    def test_all_forms(self):
        """From the first event on, in every form, to the same index as the publisher's."""
        for args in ((), ("--event-form", "map"), ("--event-hashes", "bytes"), ("--every-copy",),
                     ("--event-tokens", "--event-form", "map", "--event-hashes", "bytes")):
            it = self.serve(*PUBLISH, *args)
            follow = (it.events, "--replay-events", it.replay, "--from-start", "--seconds", "0.5")
            events, s = lines(*follow, "--check", "--compare", "--index")
            self.assertEqual((s["check"], s["first_number"], s["compare"]["differing"]),
                             ("passed", 0, 0), args)
            cached = it.metrics()['quire_blocks{tier="gpu",medium="GPU",state="cached"}']
            if "--every-copy" not in args:
                self.assertEqual(s["index"]["blocks"], cached)
            has_tokens = any(e.get("token_ids") for e in events)
            self.assertEqual(has_tokens, "--event-tokens" in args)
            it.close()

    def test_overflow(self):
        """With hardly any room between scheduler and publisher, all is there in the end."""
        run(QUIRE, "generate", "chat", "--requests", "400", "--rate", "200", "--out", self.trace)
        it = self.serve(*PUBLISH, "--event-ring", "16Ki", "--num-gpu-blocks", "3000")
        self.assertRegex(it.said(), r"events were lost [\d,]+ times?: --event-ring \(16,384 bytes\)")
        text = run(QUIRE, "events", it.events, "--replay-events", it.replay, "--quiet", "--check",
                   "--compare", "--json", "--seconds", "0.5")
        s = json.loads(text.splitlines()[-1])
        self.assertEqual((s["check"], s["compare"]["differing"]), ("passed", 0))
        self.assertEqual(s["index"]["blocks"],
                         it.metrics()['quire_blocks{tier="gpu",medium="GPU",state="cached"}'])

    def test_over_a_file(self):
        ipc = "ipc://" + self.path("events"), "ipc://" + self.path("replay")
        it = self.serve("--events", ipc[0], "--replay-events", ipc[1])
        text = run(QUIRE, "events", ipc[0], "--replay-events", ipc[1], "--quiet", "--check",
                   "--compare", "--seconds", "0.3")
        self.assertIn("Compare: equal", text)
        self.assertEqual(it.interrupt()[0], 0)

    def test_keys(self):
        pairs = {}
        for name in ("server", "client", "stranger"):
            public = run(QUIRE, "events", "--make-keys", self.path(name)).strip()
            self.assertEqual(os.stat(self.path(name)).st_mode & 0o777, 0o600)
            write_private(self.path(name + ".pub"), public + "\n")
            pairs[name] = public
        self.assertEqual(len(set(pairs.values())), 3)
        it = self.serve(*PUBLISH, "--curve-secret-file", self.path("server"), "--curve-clients-file",
                        self.path("client.pub"))
        follow = (it.events, "--replay-events", it.replay, "--quiet", "--check", "--seconds")
        keys = ("--curve-server-key-file", self.path("server.pub"), "--curve-secret-file")
        self.assertIn("Check: passed", run(QUIRE, "events", *follow, "0.7", *keys,
                                                self.path("client")))
        for wrong, words in (((), "requires keys"), ((*keys, self.path("stranger")), "rejected the key"),
                             (keys[:2], "rejected the key")):
            said = run(QUIRE, "events", *follow, "0.1", *wrong, status=1)
            self.assertIn("Check: FAILED: no events received", said)
            self.assertIn(words, said)
        it.close()
        it = self.serve(*PUBLISH, "--curve-secret-file", self.path("server"))
        said = run(QUIRE, "events", it.events, "--replay-events", it.replay, "--quiet", "--check",
                   "--seconds", "0.7", *keys[:2])
        self.assertIn("Check: passed", said)


class Wrong(unittest.TestCase):
    """What --check finds; no publisher of ours does any of it."""

    def check(self, *messages, count, more=()):
        """Summary after so many batches; exit status and it say the same."""
        with FakePublisher(*messages) as it:
            done = subprocess.run([QUIRE, "events", it.endpoint, "--json", "--quiet", "--check",
                                   "--index", "--seconds", "20", "--count", str(count), *more],
                                  capture_output=True, text=True, timeout=60)
        s = json.loads(done.stdout.splitlines()[-1])
        self.assertEqual(done.returncode, 0 if s["check"] == "passed" else 1)
        return s

    def test_right(self):
        s = self.check((7, batch(stored([1, 2, 3]))), (8, batch(removed([2]), stored([4], 3))),
                       (9, batch()), count=3)
        self.assertEqual((s["check"], s["first_number"], s["last_number"]), ("passed", 7, 9))
        self.assertEqual((s["stored_blocks"], s["removed_blocks"], s["index"]["blocks"]), (4, 1, 3))

    def test_gap(self):
        s = self.check((0, batch(CLEARED)), (4, batch(stored([1]))), count=2)
        self.assertEqual((s["check"], s["gaps"], s["missed"]), ("failed", 1, 3))

    def test_gap_that_is_filled(self):
        all_of_them = [(i, batch(stored([i]))) for i in range(6)]
        with FakeReplay(*all_of_them) as replay:
            s = self.check(*all_of_them[:2], *all_of_them[4:], count=6,
                           more=("--replay-events", replay.endpoint))
        self.assertEqual((s["check"], s["gaps"], s["index"]["blocks"]), ("passed", 0, 6))
        self.assertEqual((s["first_number"], s["last_number"]), (0, 5))

    def test_restart(self):
        s = self.check((5, batch(stored([1]))), (0, batch(stored([1]))), count=2)
        self.assertEqual((s["check"], s["restarts"], s["faults"]), ("failed", 1, "1 restart"))

    def test_no_event(self):
        s = self.check((0, batch(stored([1]))), (1, b"\x93\xff"), (2, batch(stored([2]))),
                       count=2)
        self.assertEqual(s["check"], "failed")
        self.assertGreater(s["undecodable"], 0)

    def test_hostile_text(self):
        medium = "\x1b[2J\n\"ä\0"
        message = (0, batch(stored([1], medium=medium), time=float("nan")))
        with FakePublisher(message) as it:
            done = subprocess.run([QUIRE, "events", it.endpoint, "--count", "1", "--seconds", "1"],
                                  capture_output=True, timeout=60)
        self.assertNotIn(b"\x1b", done.stdout)
        self.assertIn(b"?[2J?", done.stdout)
        with FakePublisher(message) as it:
            done = subprocess.run([QUIRE, "events", it.endpoint, "--count", "1", "--seconds", "1",
                                   "--json"], capture_output=True, timeout=60)
        self.assertNotIn(b"\x1b", done.stdout)
        event = json.loads(done.stdout.decode().splitlines()[0])
        self.assertEqual(event["medium"], medium)
        self.assertNotIn("time", event)

    def test_different_index(self):
        messages = [(0, batch(stored([1, 2, 3]))), (1, batch(stored([9], group=1)))]
        index = (1, batch(CLEARED, stored([1, 2, 4]), stored([9], group=1)))
        for whole, status in ((index, 1), ((1, batch(CLEARED, stored([3, 2, 1]),
                                                     stored([9], group=1))), 0)):
            with FakePublisher(*messages) as it, FakeReplay(*messages, index=(whole,)) as replay:
                said = run(QUIRE, "events", it.endpoint, "--replay-events", replay.endpoint,
                           "--from-start", "--quiet", "--compare", "--count", "2", status=status)
            if status == 0:
                self.assertIn("Compare: equal: 4 blocks at batch 1", said)
                continue
            self.assertIn("only in the events: 0000000000000003 group 0 GPU\n", said)
            self.assertIn("only in the publisher's index: 0000000000000004 group 0 GPU\n", said)
            self.assertIn("Compare: DIFFERENT", said)

    def test_no_index(self):
        """vLLM's publisher has none to compare with."""
        message = (0, batch(stored([1])))
        with FakePublisher(message) as it, FakeReplay(message) as replay:
            said = run(QUIRE, "events", it.endpoint, "--replay-events", replay.endpoint, "--quiet",
                       "--compare", "--count", "1", status=1)
        self.assertIn("returned no index", said)

    def test_removals_are_one_line(self):
        message = (3, batch(removed([1]), removed([2]), removed([3], group=1), stored([4])))
        with FakePublisher(message) as it:
            said = run(QUIRE, "events", it.endpoint, "--count", "1", "--seconds", "20")
        told = [line.split(maxsplit=2)[2] for line in said.splitlines() if line.startswith("       3")]
        self.assertEqual(told, [f"removed  group 0 GPU  2 blocks  {1:016x} to {2:016x}",
                                f"removed  group 1 GPU  1 block  {3:016x}",
                                f"stored   group 0 GPU  1 block of 16  {4:016x}"])

    def test_extra_keys(self):
        keys = array(array(packed("salt"), array(packed("image"), number(3))), NIL)
        with FakePublisher((0, batch(stored([1, 2], keys=keys), stored([3])))) as it:
            events, _ = lines(it.endpoint, "--count", "1", "--seconds", "20")
        self.assertEqual([e["extra_keys"] for e in events], [[["salt", ["image", 3]], None], None])

    def test_nobody(self):
        """Silence is explained."""
        said = run(QUIRE, "events", "tcp://127.0.0.1:1", "--check", "--seconds", "0.2", status=1)
        self.assertIn("Check: FAILED: no events received", said)
        self.assertIn("tcp://127.0.0.1:1: connection refused", said)
        with FakePublisher() as it, FakeReplay() as replay:
            said = run(QUIRE, "events", it.endpoint, "--check", "--seconds", "0.2", status=1)
            self.assertIn("the engine may be idle", said)
            said = run(QUIRE, "events", replay.endpoint, "--check", "--seconds", "0.2", status=1)
            self.assertIn("connection closed", said)

    def test_nobody_answers(self):
        with FakePublisher((0, batch(stored([1])))) as it:
            said = run(QUIRE, "events", it.endpoint, "--replay-events", "tcp://127.0.0.1:1", "--quiet",
                       "--compare", "--seconds", "0.2", status=1)
        self.assertIn("--compare: no index from the publisher: tcp://127.0.0.1:1: connection refused", said)

    def test_gone(self):
        """A publisher that has gone may have said more."""
        with FakePublisher((0, batch(stored([1])))) as it:
            process = subprocess.Popen([QUIRE, "events", it.endpoint, "--check"],
                                       stdout=subprocess.PIPE, text=True)
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertRegex(text, "Check: FAILED: the publisher has ended: .*: connection refused")

    def test_wrong_calls(self):
        for args, words in ((("--compare",), "--replay-events"), (("--from-start",), "--replay-events"),
                            (("--cuont", "1"), "did you mean --count?"),
                            (("--count", "0"), 'invalid value "0"'),
                            (("--curve-secret-file", "x"), "--curve-server-key-file"),
                            (("--from-start", "--from-now"), "cannot be used together"),
                            (("a", "b"), "unexpected argument")):
            self.assertIn(words, run(QUIRE, "events", *args, status=2), args)
        self.assertIn("no such endpoint", run(QUIRE, "events", "no such endpoint", status=2))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    if "was built without it" in run(QUIRE, "serve", "x", status=1):
        print("skipped: quire serve is not built", file=sys.stderr)
        sys.exit(77)
    unittest.main()
