#!/usr/bin/env python3
"""The completions, run in the shells that are installed.

    tests/cli/program/test_completion.py QUIRE

Each case is a command line with the cursor at its end, words that must be offered, and words that
must not.
"""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

QUIRE = ""

CASES = (
    ("quire repl", {"replay"}, {"sweep"}),
    ("quire replay --block-s", {"--block-size"}, {"--block"}),
    ("quire replay --model ", {"llama-3.1-8b", "here.jsonl"}, {"H200"}),
    ("quire plan --model llama-3.1", {"llama-3.1-70b"}, {"here.jsonl"}),
    ("quire sweep --gpu ", {"H100", "H200"}, {"here.jsonl"}),
    ("quire size --router dyn", {"dynamo-kv"}, {"round-robin"}),
    ("quire size --slo ttft=1s ", {"here.jsonl"}, {"chat"}),
    ("quire curve --gpu H2", {"H200"}, {"H100"}),
    ("quire replay --clock ", {"burst", "serial"}, {"here.jsonl"}),
    ("quire replay ", {"here.jsonl"}, {"chat"}),
    ("quire generate ", {"chat", "mixed", "multi-turn"}, {"here.jsonl"}),
    ("quire generate mu", {"multi-turn"}, {"mixed"}),
    ("quire tier ", {"redis-cluster"}, {"up", "here.jsonl"}),
    ("quire tier redis-cluster ", {"up", "down", "status"}, {"redis-cluster", "here.jsonl"}),
    ("quire trace ", {"info", "check", "anonymise"}, {"redis-cluster", "here.jsonl"}),
    ("quire trace convert --to ", {"quire", "mooncake"}, {"here.jsonl"}),
    ("quire trace cut --sess", {"--sessions"}, {"--share"}),
    ("quire trace mix ", {"here.jsonl"}, {"info"}),
    ("quire bench ", {"gpu"}, {"here.jsonl"}),
    ("quire rerun ", {"here.jsonl"}, {"gpu"}),
    ("quire completion ", {"bash", "zsh", "fish"}, {"here.jsonl"}),
)

def script(shell):
    return subprocess.run([QUIRE, "completion", shell], capture_output=True, text=True, check=True).stdout


class Terminal:
    """zsh with a terminal of its own."""

    def __init__(self, folder):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.environ.update(TERM="dumb", COLUMNS="200")
            os.execvp("zsh", ["zsh", "-f", "-i"])

    def ask(self, keys, until):
        """What comes back: up to a text, or until nothing more comes for a while."""
        os.write(self.fd, keys.encode())
        said, deadline = "", time.monotonic() + 20
        while time.monotonic() < deadline and (until is None or until not in said):
            if not select.select([self.fd], [], [], 0.7 if until is None else 20)[0]:
                break
            said += os.read(self.fd, 65536).decode(errors="replace")
        return said.replace("\x07", "")

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)


class Completion(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "here.jsonl"), "w", encoding="utf-8"):
            pass

    def check(self, shell, offer):
        if not shutil.which(shell):
            self.skipTest(f"{shell} is not installed")
        path = os.path.join(self.folder, "shell." + shell)
        with open(path, "w", encoding="utf-8") as file:
            file.write(script(shell))
        for line, wanted, unwanted in CASES:
            offered = set(offer(path, line))
            self.assertTrue(wanted <= offered, f"{shell}: {line!r}: {sorted(offered)}")
            self.assertFalse(unwanted & offered, f"{shell}: {line!r}: {sorted(offered)}")

    def run_shell(self, *command, text=None):
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, input=text,
                              timeout=60)
        self.assertEqual(done.stderr, "", command)
        return done.stdout

    def test_bash(self):
        def offer(path, line):
            words = line.split(" ")
            return self.run_shell("bash", text=f"source {path}\nCOMP_WORDS=({' '.join(words)} )\n"
                                  f"COMP_WORDS[{len(words) - 1}]='{words[-1]}'\n"
                                  f"COMP_CWORD={len(words) - 1}\n_quire\n"
                                  'printf "%s\\n" "${COMPREPLY[@]}"\n').split()
        self.check("bash", offer)

    def test_fish(self):
        def offer(path, line):
            said = self.run_shell("fish", "--no-config", "-c", f"source {path}; complete -C '{line}'")
            return [row.split("\t")[0] for row in said.splitlines()]
        self.check("fish", offer)

    def test_zsh(self):
        """In a terminal: zsh completes only where there is a line editor."""
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        shell = Terminal(self.folder)
        self.addCleanup(shell.close)
        os.mkdir(os.path.join(self.folder, "functions"))
        with open(os.path.join(self.folder, "functions", "_quire"), "w", encoding="utf-8") as file:
            file.write(script("zsh"))
        shell.ask("PS1='> '; fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; "
                  "LISTMAX=1000; unsetopt AUTO_MENU LIST_AMBIGUOUS; echo ready''-now\n", "ready-now")
        for line, wanted, unwanted in CASES:
            shell.ask("\x15" + line, line)
            offered = shell.ask("\t", None)
            words = (line + offered).split() + offered.split()
            said = {word.rstrip("=") for word in words}
            self.assertTrue(wanted <= said, f"zsh: {line!r}: {offered!r}")
            self.assertFalse((unwanted - set(line.split())) & said, f"zsh: {line!r}: {offered!r}")

    def test_apostrophes_stay(self):
        for shell in ("bash", "zsh", "fish"):
            if not shutil.which(shell):
                continue
            said = self.run_shell(shell, "-n", "/dev/stdin", text=script(shell))
            self.assertEqual(said, "")
        self.assertIn("the GPU\\'s time", script("fish"))
        self.assertIn("the GPU'\\''s time", script("zsh"))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
