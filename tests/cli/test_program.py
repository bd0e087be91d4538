#!/usr/bin/env python3
"""The program from outside: help, wrong calls, completion, manual page, bad files.

    tests/cli/test_program.py QUIRE

A wrong call ends with 2 and one sentence on standard error that names the program; nothing ends with
a signal.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

QUIRE = ""


def run(*args, status=0):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=60)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}, {done.stderr}")
    return done.stdout if status == 0 else done.stderr


def commands():
    lines = run("--help").split("Commands:\n")[1].split("\n\n")[0].splitlines()
    return [line.split()[0] for line in lines if not line.split()[0] in ("help", "completion", "man")]


class Program(unittest.TestCase):
    def test_overview(self):
        self.assertTrue({"plan", "time"} <= set(commands()))
        self.assertRegex(run("--version"), r"^quire \d+\.\d+\.\d+\n$")
        self.assertIn("Commands:", run("help"))

    def test_every_command_has_help(self):
        for name in commands():
            text = run(name, "--help")
            self.assertTrue(text.startswith(f"usage: quire {name}"), name)
            self.assertIn("\nExamples:\n", text, name)
            self.assertEqual(text, run("help", name))
            self.assertLessEqual(max(map(len, text.splitlines())), 100, name)

    def test_wrong_calls(self):
        self.assertEqual(run("repaly", status=2),
                         'quire: unknown command "repaly"; did you mean replay?\n')
        self.assertIn("see quire --help", run("xyzzy", status=2))
        self.assertIn("expected bash, zsh or fish", run("completion", "tcsh", status=2))
        for name in commands():
            said = run(name, "--no-such-option-at-all", status=2)
            self.assertTrue(said.startswith(f"quire {name}: unknown option"), said)
            self.assertEqual(said.count("\n"), 1)

    def test_completion(self):
        for shell in ("bash", "zsh", "fish"):
            script = run("completion", shell)
            for name in commands():
                self.assertIn(name, script)
            if shutil.which(shell):
                subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, check=True)

    def test_bash_completes(self):
        if not shutil.which("bash"):
            self.skipTest("bash is not installed")
        lines = run("completion", "bash") + ("COMP_WORDS=(quire plan --block-s); COMP_CWORD=2; _quire\n"
                                             'echo "${COMPREPLY[@]}"\n')
        said = subprocess.run(["bash"], input=lines, text=True, capture_output=True, check=True)
        self.assertEqual(said.stdout, "--block-size\n")

    def test_manual_page(self):
        page = run("man")
        for name in commands():
            self.assertIn(f".SS quire {name}", page)
        if shutil.which("groff"):
            said = subprocess.run(["groff", "-man", "-Tascii", "-ww"], input=page, text=True,
                                  capture_output=True, check=True)
            self.assertEqual(said.stderr, "")

    def test_full_disk(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("/dev/full is not there")
        with open("/dev/full", "w") as full:
            done = subprocess.run([QUIRE, "man"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("standard output", done.stderr)


class Plan(unittest.TestCase):
    def test_json(self):
        plan = json.loads(run("plan", "--json"))
        self.assertEqual(plan["block_bytes"], 2097152)
        self.assertEqual(plan["num_tokens"], plan["num_blocks"] * 16)

    def test_wrong_values(self):
        for args, words in (
                (("--model", "llama-3.1-8x"), "did you mean llama-3.1-8b?"),
                (("--gpu", "H300"), 'there is no GPU "H300"'),
                (("--tp", "3"), "3 GPUs cannot share the 32 heads"),
                (("--gpu-memory", "1Gi"), "does not fit"),
                (("--num-gpu-blocks", "1", "--max-model-len", "4096"), "needs 0.50 GiB"),
                (("--time-constants", "no-such-file"), "no-such-file"),
                (("--model", "/dev/null"), "quire plan: --model: /dev/null"),
                (("extra",), "unexpected argument")):
            self.assertIn(words, run("plan", *args, status=2))


class Time(unittest.TestCase):
    def test_one_step(self):
        step = json.loads(run("time", "--prefill", "512", "--decode", "64", "--json"))
        parts = ("matrices_ms", "attention_ms", "kv_ms", "activations_ms", "fixed_ms")
        self.assertAlmostEqual(step["ms"], sum(step[p] for p in parts), places=4)
        self.assertIn("there is no step", run("time", status=2))

    def test_calibrated_constants_are_used(self):
        with tempfile.TemporaryDirectory() as folder:
            steps, constants = os.path.join(folder, "steps.csv"), os.path.join(folder, "c.txt")
            with open(steps, "w") as file:
                file.write("model,kind,tokens,batch,context,ms\n")
                for batch in (1, 16, 64):
                    file.write(f"llama3-8b,decode,{batch},{batch},128,{20 + batch / 10}\n"
                               f"qwen3-0.6b,decode,{batch},{batch},128,{5 + batch / 50}\n")
            run("time", "--calibrate", steps, "--write-constants", constants)
            before = json.loads(run("time", "--csv", steps, "--json"))
            after = json.loads(run("time", "--csv", steps, "--json", "--time-constants", constants))
            self.assertGreater(before["median_error"], 0.5)
            self.assertLess(after["median_error"], 0.1)
            with open(steps, "a") as file:
                file.write("llama3-8b,decode,x,1,128,3\n")
            self.assertIn("steps.csv:8: tokens: is no whole number",
                          run("time", "--csv", steps, status=2))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
