#!/usr/bin/env python3
"""The commands of docs/your-traffic.md, one after the other, as a reader would run them.

    tests/cli/program/test_your_traffic.py QUIRE
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[3]
PAGE = SOURCES / "docs" / "your-traffic.md"
QUIRE = ""


def blocks():
    """The shell blocks of the page, but for those that are marked `not run`."""
    found = re.findall(r"(<!-- not run: [^\n]* -->\n)?```sh\n(.*?)```", PAGE.read_text(), re.S)
    return [text for marked, text in found if not marked], sum(bool(marked) for marked, _ in found)


class YourTraffic(unittest.TestCase):
    def test_every_command_runs(self):
        texts, num_left_out = blocks()
        self.assertGreaterEqual(len(texts), 6)
        self.assertEqual(num_left_out, 1)
        with tempfile.TemporaryDirectory() as folder:
            programs = Path(folder, "bin")
            programs.mkdir()
            (programs / "quire").symlink_to(Path(QUIRE).resolve())
            environment = dict(os.environ, QUIRE_SOURCES=str(SOURCES),
                               PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
            printed = {}
            for text in texts:
                for line in filter(None, text.splitlines()):
                    done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, timeout=600,
                                          capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
                    printed[line] = done.stdout
            self.check(printed, Path(folder))

    def check(self, printed, folder):
        """What the page says of them."""
        def output_of(start):
            return next(text for line, text in printed.items() if line.startswith(start))

        self.assertIn(" 0 differences", output_of("quire verify"))
        self.assertIn("Compared with vllm 0.20.0, tiny", output_of("quire replay --compare-with"))
        self.assertIn("Answer: ", output_of("quire size"))
        self.assertIn("router dynamo-kv", output_of("quire fleet --workers 4 --router dynamo-kv"))
        for name in ("b.html", "fleet.html"):
            self.assertTrue((folder / name).read_text().startswith("<!"), name)
        decisions = [json.loads(line) for line in (folder / "why.jsonl").read_text().splitlines()]
        self.assertEqual(sum(each["kind"] == "routed" for each in decisions), 230)
        self.assertIn("230 requests, 0 problems", output_of("quire trace check"))


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
