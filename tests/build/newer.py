#!/usr/bin/env python3
"""Tests tools/newer without vLLM: two little packages stand for two releases, with one change each.

    tests/build/newer.py
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/newer_parts"))
import changes
import decisions
import ignore
import lockstep
import reference
import report
import surface

POOL = '''"""A pool."""
from dataclasses import dataclass

MEDIUM_GPU = "GPU"


@dataclass
class BlockStored:
    """An event."""
    block_size: int
    lora_id: int | None = None


class BlockPool:
    def __init__(self, num_gpu_blocks: int, enable_caching: bool = True):
        self.num_gpu_blocks = num_gpu_blocks

    @property
    def usage(self) -> float:
        return 0.0

    def free_blocks(self, ordered_blocks, prepend=False):
        """Frees them."""
        logger.debug("freed")
        for block in ordered_blocks:  # each of them
            self.queue.append(block)


def helper(a, /, b: int = 3, *rest, c, d="x" * 3, **more) -> int:
    return a
'''

# what is done to the file, and the changes that must be seen, all others must not
CASES = {
    "nothing": ("", "", []),
    "comments, docstrings, annotations and log messages":
        ('"""Frees them."""\n        logger.debug("freed")\n        for block in ordered_blocks:  # each',
         '"""Gives back."""\n        logger.warning("given %s", 1)\n        for block in ordered_blocks:  # all',
         []),
    "a body": ("self.queue.append(block)", "self.queue.prepend(block)",
               [("body", "def", "BlockPool.free_blocks")]),
    "a parameter": ("prepend=False", "prepend=False, pinned=None",
                    [("changed", "def", "BlockPool.free_blocks")]),
    "a default": ("prepend=False", "prepend=True", [("changed", "def", "BlockPool.free_blocks")]),
    "a type": ("block_size: int", "block_size: int | None",
               [("changed", "field", "BlockStored.block_size")]),
    "a field that is new": ("    lora_id", "    medium: str\n    lora_id",
                            [("added", "field", "BlockStored.medium")]),
    "a field that is gone": ("    lora_id: int | None = None\n", "",
                             [("removed", "field", "BlockStored.lora_id")]),
    "a constant": ('"GPU"', '"gpu"', [("changed", "const", "MEDIUM_GPU")]),
    "an attribute": ("        self.num_gpu_blocks = num_gpu_blocks\n",
                     "        self.num_gpu_blocks = num_gpu_blocks\n        self.watermark: int = 0\n",
                     [("body", "def", "BlockPool.__init__"),
                      ("added", "attr", "BlockPool.watermark")]),
    "a function that is new": ("def helper", "def other():\n    pass\n\n\ndef helper",
                               [("added", "def", "other")]),
    "a function that is gone": (POOL[POOL.index("def helper"):], "", [("removed", "def", "helper")]),
    "a property that is a method now": ("    @property\n", "", [("changed", "def", "BlockPool.usage")]),
    "a base class": ("class BlockPool:", "class BlockPool(Base):", [("changed", "class", "BlockPool")]),
}


def make_release(folder, version, source, path="v1/core/block_pool.py"):
    """An environment whose interpreter finds a package vllm with one file."""
    site = folder / "site"
    file = site / "vllm" / path
    file.parent.mkdir(parents=True)
    file.write_text(source)
    (site / "vllm/__init__.py").write_text(f'__version__ = "{version}"\n')
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")
    python = folder / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return folder


def newer(*arguments):
    env = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    return subprocess.run([ROOT / "tools/newer", *map(str, arguments)], capture_output=True, text=True,
                          env=env)


class Newer(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="quire-newer-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)

    def compare(self, before, after, old_path="v1/core/a.py", new_path="v1/core/a.py"):
        """The changes between two sources, through the file of a surface."""
        made = []
        for name, source, path in (("old", before, old_path), ("new", after, new_path)):
            file = self.folder / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
            found = surface.describe(self.folder / name, "1.0", {path: None})
            surface.write(found, self.folder / f"{name}.txt")
            made.append(surface.read(self.folder / f"{name}.txt"))
            self.assertEqual(made[-1], found)
        return changes.compare(*made)

    def test_each_change_is_seen_alone(self):
        for title, (old, new, expected) in CASES.items():
            with self.subTest(title):
                self.assertTrue(old in POOL)
                after = POOL.replace(old, new, 1) if old else POOL
                self.assertEqual(after == POOL, title == "nothing")
                found = [(c.change, c.kind, c.name) for c in self.compare(POOL, after)]
                self.assertEqual(found, expected)

    def test_parameters_are_told_as_they_are_written(self):
        items = self.compare("", POOL)
        helper = next(c for c in items if c.name == "helper")
        self.assertEqual(helper.after, "(a, /, b: int = 3, *rest, c, d = 'x' * 3, **more) -> int")

    def test_a_class_that_moves_is_compared_with_itself(self):
        found = self.compare(POOL, POOL.replace("prepend=False", "prepend=True"),
                             new_path="v1/core/b.py")
        self.assertIn(("moved", "BlockPool"), [(c.change, c.name) for c in found])
        self.assertIn(("changed", "BlockPool.free_blocks"), [(c.change, c.name) for c in found])
        self.assertNotIn("added", [c.change for c in found if c.kind != "const"])

    def test_of_a_long_signature_the_parameter_is_shown(self):
        many = ", ".join(f"parameter_{i}: tuple[int, ...] = (1, 2)" for i in range(9))
        found = self.compare(f"def f({many}): pass", f"def f({many}, last=None): pass")
        lines = report.item_lines(found[0])
        self.assertEqual(lines, ["  ~ def f", "      was  (nothing more)",
                                 "      is   ... last = None ..."])

    def test_members_of_a_new_class_are_folded(self):
        found = self.compare("", POOL)
        self.assertIn("BlockPool.usage", [c.name for c in found])
        self.assertNotIn("BlockPool.usage", [c.name for c in changes.folded(found)])

    def test_the_command_says_what_changed(self):
        old = make_release(self.folder / "old", "7.1.0", POOL)
        same = make_release(self.folder / "same", "7.1.1", POOL)
        new = make_release(self.folder / "new", "7.2.0", POOL.replace("lora_id", "lora_name"))
        base, out = self.folder / "surface.txt", self.folder / "out"
        self.assertEqual(newer(old, "--write-surface", base).returncode, 0)
        parts = ("--against", base, "--skip", "decisions", "--skip", "lockstep", "--out", out)
        done = newer(same, *parts)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1]), (0, "no change"), done)
        done = newer(new, *parts)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("1 added, 1 removed, 0 changed", done.stdout)
        told = json.loads((out / "report.json").read_text())
        self.assertEqual([(c["change"], c["name"], c["file"]) for c in told["changes"]],
                         [("added", "BlockStored.lora_name", "v1/core/block_pool.py"),
                          ("removed", "BlockStored.lora_id", "v1/core/block_pool.py")])
        # The drop-in names lora_name: the reader is told where.
        self.assertTrue(told["changes"][0]["mentions"])
        text = (out / "report.txt").read_text()
        self.assertIn("+ field BlockStored.lora_name", text)
        self.assertIn("- field BlockStored.lora_id", text)

    def test_names_that_were_not_described_are_no_change(self):
        """Quire may use more of a release than when the release was described."""
        before = surface.Surface("1.0", {"envs.py": {"A": surface.Item("const", "A", "= 1")}})
        names = ("A", "B", "B.c")
        after = surface.Surface("1.1", {
            "envs.py": {name: surface.Item("const", name, "= 1") for name in names},
            "platforms/x.py": {"D": surface.Item("class", "D", "()")},
            "v1/core/new.py": {"E": surface.Item("class", "E", "()")}})
        self.assertEqual(changes.leave_undescribed(before, after), ["envs.py: B", "platforms/x.py: D"])
        found = [(c.change, c.file, c.name) for c in changes.compare(before, after)]
        self.assertEqual(found, [("added", "v1/core/new.py", "E")])  # a file that decides is told

    def test_what_is_missing_is_a_sentence(self):
        for arguments, sentence in (
                ([self.folder / "nowhere"], "is not a folder"),
                ([self.folder], "has no interpreter"),
                (["--python", self.folder / "nowhere"], "No such file"),
                ([make_release(self.folder / "r", "7.1.0", POOL), "--platform", "/nowhere.py"],
                 "file not found"),
                ([self.folder / "r", "--as", "0.1"], "not a known release")):
            done = newer(*arguments)
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(sentence, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_a_recorder_that_raises_is_a_finding(self):
        release = make_release(self.folder / "r", "0.32.0", POOL)
        platform = self.folder / "host_platform.py"
        platform.write_text("")
        found = reference.find(release, None, platform)
        self.assertEqual((found.version, found.platform), ("0.32.0", platform))
        args = SimpleNamespace(seed=1, seeds=2, timeout=300, jobs=1, lockstep_seeds=1)
        kind = decisions.run_kind("queue", ROOT, found, "0.32", self.folder, args, self.folder)
        self.assertFalse(kind.is_same)
        self.assertEqual(kind.workloads, 0)
        self.assertRegex(kind.failure, "Error: ")
        made = lockstep.run(ROOT, found, "0.32.0", self.folder, args, self.folder)
        self.assertFalse(made.is_same)
        self.assertTrue(made.failure or made.others)

    def test_a_difference_is_read_from_the_replayer(self):
        lines = ["quire-parity 1 sched seed 7 runs 1 count 3", "seed 7", "sched eagle 7 40", "s abc",
                 "# s|tokens=3", "s abd", "# s|new=1|tokens=4"]
        output = ("/x/7.txt:6: seed 7 (eagle), step 2: answer differs\n    operation  s abd\n"
                  "    field      tokens\n    expected   tokens=4\n    got        tokens=5\n")
        told = decisions.parse_difference("sched", 7, lines, output)
        self.assertEqual((told.mix, told.agreed, told.what, told.field, told.vllm, told.quire),
                         ("eagle", 1, "answer differs", "tokens", "tokens=4", "tokens=5"))
        self.assertEqual(told.group, ("answer differs", "s", "tokens"))
        told = decisions.parse_difference("sched", 7, lines, "Segmentation fault\n")
        self.assertIn("Segmentation fault", told.what)

    def test_mixes_of_a_kind_are_recorded_apart(self):
        self.assertEqual(decisions.recorder_of("sched"), ("sched", ""))
        self.assertEqual(decisions.recorder_of("sched_parts"), ("sched", "parts"))
        self.assertEqual(decisions.replayer_of(Path("b"), "cache_parts"),
                         Path("b/tests/parity/parity_cache"))
        self.assertLessEqual({"cache", "cache_parts", "sched", "sched_parts"},
                             decisions.recorded_kinds(ROOT, "0.32"))

    def replay(self, lines, ignored=()):
        """What a replayer says to a recording."""
        path = self.folder / "3.txt"
        path.write_text("\n".join(lines) + "\n")
        replayer = Path(os.environ["QUIRE_BUILD"]) / "tests/parity/parity_sched"
        return decisions.replay(replayer, "sched", path, ignored)[2]

    def test_a_known_difference_is_looked_past(self):
        if "QUIRE_BUILD" not in os.environ:
            self.skipTest("without a build there is no replayer")
        recorded = (ROOT / "tests/build/data/explained.txt").read_text().splitlines()
        self.assertEqual(ignore.rewrite(recorded, "sched", ()), recorded)
        self.assertIsNone(self.replay(recorded))
        # A release that decides something else in every step, and once something else besides.
        other = [line.replace("|running=", "|running=x") for line in recorded]
        told = self.replay(ignore.rewrite(other, "sched", ()))
        self.assertEqual((told.field, told.agreed), ("running", 0))
        self.assertIsNone(self.replay(ignore.rewrite(other, "sched", ["running"]), ["running"]))
        last = max(i for i, line in enumerate(other) if line.startswith("# s|"))
        other[last] = other[last].replace("|total=", "|total=1")
        told = self.replay(ignore.rewrite(other, "sched", ["running"]), ["running"])
        self.assertEqual(told.field, "total")
        self.assertGreater(told.agreed, 0)

    def test_the_nearest_release(self):
        known = reference.known_releases(ROOT)
        self.assertEqual(reference.nearest("0.31.0", known), "0.32")
        self.assertEqual(reference.nearest("0.33.1+cu129", known), "0.32")
        self.assertEqual(reference.nearest("0.19.0", known), "0.20")
        self.assertEqual(reference.nearest("1.0.0", known), "0.32")


if __name__ == "__main__":
    unittest.main()
