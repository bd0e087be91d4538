#!/usr/bin/env python3
"""What commands show on a terminal while they run: one style, work that is done, time that is left.

    test_progress.py PROGRAM
"""

import fcntl
import os
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

QUIRE = ""
TRACE = ""
REQUESTS = 0  # of TRACE
LEAST_S = 1.0  # of the processor, for the replay of TRACE: a bar is drawn ten times a second
BAR = r"^\[(#*) *\] +(\d+) %  (.*?)(?:, (?:\d+ h )?(?:\d+ min )?(?:\d+ s )?left)?$"


def on_terminal(*args, stdout=subprocess.DEVNULL, **environment):
    """What a terminal gets, as text."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
    settings = {**os.environ, "TERM": "xterm", **environment}
    settings = {name: value for name, value in settings.items() if value is not None}
    process = subprocess.Popen([QUIRE, *args], stderr=theirs, env=settings,
                               stdout=theirs if stdout is None else stdout)
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 1 << 16)
        except OSError:
            piece = b""
        if not piece:
            break
        said += piece
    os.close(ours)
    if process.wait() != 0:
        raise AssertionError(f"quire {args}: {process.returncode} {said}")
    return said.decode()


def bars(text):
    """(share, what) of each bar, in order; nothing else is on the terminal."""
    found = []
    for line in filter(None, (line.strip() for line in text.replace("\n", "\r").split("\r"))):
        match = re.match(BAR, line)
        if match is None:
            raise AssertionError(f"no bar: {line!r}")
        assert len(match[1]) == int(0.3 * int(match[2]) + 1e-9) or int(match[2]) % 10 != 0, line
        found.append((int(match[2]), match[3]))
    return found


class Progress(unittest.TestCase):
    def check_bars(self, found, kind):
        self.assertGreater(len(found), 1)
        shares = [share for share, _ in found]
        self.assertEqual(shares, sorted(shares))
        self.assertLess(shares[0], 50)
        self.assertGreater(shares[-1], 50)
        for _, what in found:
            self.assertRegex(what, kind)

    def test_replay_counts_work(self):
        """All requests come at once: the trace is read long before they are served."""
        found = bars(on_terminal("replay", TRACE))
        self.check_bars(found, r"^[\d,]+ of [\d,]+ requests, [\d,]+ s simulated$")
        for share, what in found:
            done, total = (int(word.replace(",", "")) for word in re.findall(r"[\d,]+", what)[:2])
            self.assertLess(abs(total - REQUESTS), REQUESTS / 8)
            self.assertLess(abs(share - 100 * done / total), 20, what)

    def test_sweep_from_the_beginning(self):
        found = bars(on_terminal("sweep", "--num-gpu-blocks", "20k,30k", "--jobs", "1", "--no-plot", TRACE))
        self.check_bars(found, r"^[012] of 2 replays$")
        self.assertTrue([what for share, what in found if 10 < share < 45 and what == "0 of 2 replays"])
        self.assertTrue([what for share, what in found if 55 < share < 95 and what == "1 of 2 replays"])

    def test_curve(self):
        found = bars(on_terminal("curve", "--block-size", "16", "--policy", "lru", "--max-requests",
                                 str(REQUESTS // 2), TRACE))
        self.check_bars(found, r"^([\d,]+ requests read|\d+ of \d+ pool sizes)$")

    def test_max_requests(self):
        found = bars(on_terminal("replay", "--max-requests", str(REQUESTS // 2), TRACE))
        share, what = found[-1]
        done, total = (int(word.replace(",", "")) for word in re.findall(r"[\d,]+", what)[:2])
        self.assertLess(abs(total - REQUESTS // 2), REQUESTS / 16)
        self.assertLess(abs(share - 100 * done / (REQUESTS // 2)), 20, what)

    def test_no_terminal(self):
        for command in ("replay", "sweep", "curve"):
            done = subprocess.run([QUIRE, command, "--max-requests", "6000", TRACE], capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", command)
            self.assertNotIn("\r", done.stdout + done.stderr)
            self.assertNotIn("\033", done.stdout + done.stderr)

    def test_terminals_that_cannot(self):
        """The report too is on the terminal here."""
        sizes = ("curve", "--max-requests", "1000", TRACE)
        self.assertIn("\033[", on_terminal(*sizes, stdout=None))
        for term in ("dumb", "", None):
            text = on_terminal(*sizes, stdout=None, TERM=term)
            self.assertNotIn("\033", text)
            self.assertNotRegex(text, "\r[^\n]")
            self.assertNotIn("%  ", on_terminal("replay", TRACE, TERM=term))
        self.assertNotIn("\033", on_terminal(*sizes, stdout=None, NO_COLOR="1"))
        self.assertTrue(bars(on_terminal("replay", TRACE, NO_COLOR="1")))


def write_trace():
    """A trace that takes LEAST_S here: how many requests these are depends on the machine."""
    requests = 12000
    while True:
        subprocess.run([QUIRE, "generate", "chat", "--requests", str(requests), "--rate", "1000",
                        "--out", TRACE], check=True)
        start_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([QUIRE, "replay", TRACE], stdout=subprocess.DEVNULL, check=True)
        if resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start_s >= LEAST_S:
            return requests
        requests = requests * 3 // 2


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv.pop(1))
    signal.alarm(600)
    with tempfile.TemporaryDirectory() as folder:
        TRACE = os.path.join(folder, "trace.jsonl")
        REQUESTS = write_trace()
        unittest.main()
