#!/usr/bin/env python3
"""The program from outside: help, wrong calls, completion, manual page, bad files.

    tests/cli/program/test_program.py QUIRE

A wrong call ends with 2 and one sentence on standard error that names the program; nothing ends with
a signal.
"""

import json
import os
import re
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

    def test_help_is_of_sentences(self):
        """An option's help says what the option is, not only of what."""
        for name in commands():
            text = re.sub(r"\n {30}", " ", run(name, "--help"))
            for option, said in re.findall(r"^  --(\S+)(?: [^ ]+)? +(.*)$", text, re.M):
                self.assertNotRegex(said, r"^(of|for all|between|moved|how many)\b", (name, option))
            if re.search(r"^  --\S+ (N|TOKENS|BYTES|US|SHARE|SIZE|S) ", text, re.M):
                self.assertIn("Numbers take k, M, G, T (1,000) and Ki, Mi, Gi, Ti (1,024)", text)

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

    def test_above_is_explained(self):
        """`./run --examples` prints ABOVE for a case that misses its goal, and says what that means."""
        run_script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "run")
        with open(run_script, encoding="utf-8") as file:
            examples = file.read().split("if [ $examples = yes ]")[1]
        self.assertRegex(examples, r'echo "limit: .*ABOVE: slower')

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

    def test_host_memory(self):
        """Blocks of a number of bytes, for one GPU: half the bytes of a block with two GPUs."""
        block = 2097152
        for tp, size in (("1", block), ("2", block // 2)):
            plan = json.loads(run("plan", "--json", "--tp", tp, "--cpu-memory", "64Gi", "--swap-memory",
                                  "8Gi"))
            host, swap = plan["host"], plan["swap"]
            self.assertEqual((host["blocks"], host["usable_blocks"]), (2**36 // size, 2**36 // size - 1))
            self.assertEqual((host["bytes"], host["all_bytes"]), (2**36, 2**36 * int(tp)))
            self.assertEqual((swap["blocks"], swap["tokens"]), (2**33 // size, 2**33 // size * 16))
            self.assertAlmostEqual(swap["block_us"], size / 55e9 * 1e6, delta=0.01)
            self.assertEqual(swap["setup_us"], 10)
            self.assertAlmostEqual(swap["swap_ms"], 2e-3 * (10 + 128 * swap["block_us"]), places=3)
            self.assertAlmostEqual(swap["recompute_ms"], 2.048 * swap["token_us"], places=3)
        said = run("plan", "--tp", "2", "--cpu-memory", "64Gi", "--swap-blocks", "4096")
        self.assertIn("host memory        64.00 GiB for each GPU: 65535 blocks and the null block, "
                      "1048560 tokens; 128.00 GiB in all", said)
        self.assertIn("swap               4.00 GiB for each GPU: 4096 blocks, 65536 tokens", said)
        self.assertIn("32.00 preempted requests of 2048 tokens", said)
        self.assertIn("): swapped\n", said)
        slow = run("plan", "--swap-blocks", "4096", "--cpu-bandwidth", "1")
        self.assertIn("): computed again\n", slow)

    def test_pressure(self):
        args = ("--num-gpu-blocks", "10001", "--watermark", "0.01", "--preempt-above", "0.95")
        plan = json.loads(run("plan", "--json", *args))
        self.assertEqual([plan[name] for name in ("watermark_blocks", "admit_below_blocks",
                                                  "preempt_above_blocks")], [100, 8000, 9500])
        said = run("plan", *args, "--admit-below", "0.5")
        self.assertIn("watermark          100 blocks stay free when a request is admitted", said)
        self.assertIn("admitted below 5000 blocks in use, and preempted above 9500 (of 10000)", said)
        for name in ("watermark", "pressure", "swap", "host memory"):
            self.assertNotIn(f"  {name}  ", run("plan"))

    def test_wrong_values(self):
        for args, words in (
                (("--cpu-memory", "9"), '"9" for --cpu-memory (expected 4194304..'),
                (("--swap-memory", "9"), '"9" for --swap-memory (expected 2097152..'),
                (("--swap-cost", "9"), "--swap-cost 9 needs --swap-blocks or --swap-memory"),
                (("--cpu-blocks", "1"), "2 or more"),
                (("--watermark", "2"), '"2" for --watermark (expected a number, 0..1)'),
                (("--admit-below", "0.5"), "--admit-below 0.5 needs --preempt-above"),
                (("--preempt-above", "0.5"), "for --admit-below (expected 0..0.5"),
                (("--model", "llama-3.1-8x"), "did you mean llama-3.1-8b?"),
                (("--gpu", "H300"), 'unknown GPU "H300"'),
                (("--tp", "3"), "3 GPUs cannot share the 32 heads"),
                (("--num-gpu-blocks", "4G"),
                 'invalid value "4G" for --num-gpu-blocks (expected 0..2147483647)'),
                (("--gpu-memory", "1Gi"), "does not fit"),
                (("--num-gpu-blocks", "1", "--max-model-len", "4096"), "needs 0.50 GiB"),
                (("--num-gpu-blocks", "4000000000"), "--num-gpu-blocks"),
                (("--max-num-seqs", "4000000000"), "--max-num-seqs"),
                (("--max-model-len", "4000000000"), "--max-model-len"),
                (("--time-constants", "no-such-file"), "no-such-file"),
                (("--model", "/dev/null"), "quire plan: --model: /dev/null"),
                (("extra",), "unexpected argument")):
            self.assertIn(words, run("plan", *args, status=2))


    def test_models_whose_weights_are_not_counted(self):
        """qwen3_next and llama4: the library plans their layers, the user says their weights."""
        next80b = {"model_type": "qwen3_next", "num_hidden_layers": 48, "hidden_size": 2048,
                   "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
                   "linear_num_key_heads": 16, "linear_num_value_heads": 32,
                   "linear_key_head_dim": 128, "linear_value_head_dim": 128,
                   "linear_conv_kernel_dim": 4, "max_position_embeddings": 262144,
                   "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
                   "vocab_size": 151936}
        scout = {"model_type": "llama4", "text_config": {
            "model_type": "llama4_text", "num_hidden_layers": 48, "hidden_size": 5120,
            "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
            "intermediate_size": 8192, "num_local_experts": 16, "num_experts_per_tok": 1,
            "max_position_embeddings": 10485760, "vocab_size": 202048}}
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.json")
            for config, size, tp, token_bytes in ((next80b, "163G", "2", 12 * 2 * 2 * 256),
                                                  (scout, "218G", "4", 48 * 2 * 2 * 2 * 128)):
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(config, file)
                said = run("plan", "--model", path, "--tp", tp, status=2)
                self.assertIn("--weight-bytes", said)
                self.assertIn("cannot be counted", said)
                plan = json.loads(run("plan", "--json", "--model", path, "--tp", tp, "--weight-bytes", size))
                self.assertEqual(plan["weight_bytes"], int(size[:-1]) * 10**9 // int(tp))
                self.assertEqual(plan["token_bytes"], token_bytes)
                self.assertEqual(plan["num_groups"], 4)
            said = run("plan", "--model", path, "--weight-bytes", "1T", status=2)
            self.assertIn("931.3 GiB of weights", said)
            step = json.loads(run("time", "--json", "--decode", "8", "--model", path, "--tp", "4",
                                  "--weight-bytes", "218G"))
            heavier = json.loads(run("time", "--json", "--decode", "8", "--model", path, "--tp", "4",
                                     "--weight-bytes", "436G"))
            self.assertAlmostEqual(heavier["weights_ms"], 2 * step["weights_ms"], places=4)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(next80b, file)
            self.assertIn("linear attention", run("time", "--decode", "1", "--model", path,
                                                  "--weight-bytes", "163G", status=2))
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**next80b, "model_type": "bert"}, file)
            self.assertIn("unknown layers", run("plan", "--model", path, "--weight-bytes", "1G", status=2))

    def test_what_does_not_fit(self):
        large = ("--gpu", "L4", "--model", "llama-3.1-70b")
        self.assertIn("does not fit", run("plan", *large, status=2))
        self.assertTrue(json.loads(run("plan", "--json"))["fits"])
        for command in (("plan", "--num-gpu-blocks", "9000"), ("time", "--decode", "4")):
            done = subprocess.run([QUIRE, *command, "--json", *large], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("note: llama-3.1-70b does not fit", done.stderr)
            self.assertFalse(json.loads(done.stdout)["fits"])

    def test_null_block(self):
        """Blocks are counted without the null block; --num-gpu-blocks counts it, as vLLM does."""
        plan = json.loads(run("plan", "--json"))
        self.assertEqual(plan["usable_blocks"], plan["num_blocks"] - 1)
        self.assertIn(f"  blocks             {plan['usable_blocks']} and the null block "
                      f"(--num-gpu-blocks {plan['num_blocks']})\n", run("plan"))


class Time(unittest.TestCase):
    def test_one_step(self):
        step = json.loads(run("time", "--prefill", "512", "--decode", "64", "--json"))
        parts = ("matrices_ms", "attention_ms", "kv_ms", "activations_ms", "fixed_ms",
                 "engine_ms")
        self.assertAlmostEqual(step["ms"], sum(step[p] for p in parts), places=4)
        self.assertIn("expected --prefill", run("time", status=2))

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
            self.assertIn("steps.csv:8: tokens: is not a whole number",
                          run("time", "--csv", steps, status=2))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
