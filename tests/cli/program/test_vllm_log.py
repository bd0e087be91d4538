#!/usr/bin/env python3
"""The format vllm-log, on lines that vLLM itself writes: its RequestLogger, with random requests.

    QUIRE_VLLM_PYTHON=.../bin/python tests/cli/program/test_vllm_log.py QUIRE

Skipped without QUIRE_VLLM_PYTHON, an interpreter with vLLM 0.20.0 or 0.32.0.
"""

import json
import os
import random
import subprocess
import sys
import tempfile

WRITER = """
import json, sys
import vllm, vllm.logger
if hasattr(vllm.logger, "_configure_vllm_root_logger"):
    vllm.logger._configure_vllm_root_logger()
elif hasattr(vllm.logger, "configure_logging"):
    vllm.logger.configure_logging()
try:
    from vllm.entrypoints.serve.utils.request_logger import RequestLogger
except ImportError:
    from vllm.entrypoints.logger import RequestLogger
from vllm.sampling_params import SamplingParams
logger = RequestLogger(max_log_len=None)
print("VERSION", vllm.__version__)
for kind, name, ids in json.load(open(sys.argv[1])):
    if kind == "in":
        logger.log_inputs(name, "it's a \\"prompt\\", prompt_token_ids: [1]\\n", ids, None,
                          SamplingParams(), None)
    elif kind == "out":
        logger.log_outputs(name, "text", ids, "stop", False, False)
    elif kind == "delta":
        logger.log_outputs(name, "t", ids, "streaming_delta", True, True)
    else:
        logger.log_outputs(name, "text", None, "streaming_complete", True, False)
"""


def make_requests(rng):
    """name -> (prompt ids, output ids), and the calls in the order in which they end."""
    requests, calls = {}, []
    shared = [rng.randrange(150_000) for _ in range(40)]
    for i in range(30):
        name = f"chatcmpl-{rng.getrandbits(64):016x}"
        prompt = shared[: rng.randrange(41)] + [rng.randrange(150_000) for _ in range(1 + i)]
        output = [rng.randrange(150_000) for _ in range(rng.randrange(1, 30))]
        requests[name] = (prompt, output)
        calls.append(("in", name, prompt))
    for name, (_, output) in sorted(requests.items()):
        if len(output) % 2:
            calls.append(("out", name, output))
            continue
        for at in range(0, len(output), 3):
            calls.append(("delta", name, output[at:at + 3]))
        calls.append(("complete", name, None))
    return requests, calls


def expected_rows(requests):
    """Lengths, and blocks of 16 numbered as they come: an id is a block and all before it."""
    numbers, rows = {}, []
    for prompt, output in requests.values():
        row = []
        for at in range(0, len(prompt), 16):
            key = tuple(prompt[:at + 16])
            row.append([numbers.setdefault(key, len(numbers)), min(16, len(prompt) - at)])
        rows.append((row, len(output)))
    return rows


def main():
    quire, python = os.path.abspath(sys.argv[1]), os.environ.get("QUIRE_VLLM_PYTHON", "")
    if not os.path.exists(python):
        print("skipped: QUIRE_VLLM_PYTHON is not an interpreter with vLLM")
        return 77
    requests, calls = make_requests(random.Random(3))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "calls.json"), "w", encoding="utf-8") as file:
            json.dump(calls, file)
        environment = dict(os.environ, VLLM_CONFIGURE_LOGGING="1", VLLM_LOGGING_LEVEL="DEBUG")
        done = subprocess.run([python, "-c", WRITER, os.path.join(folder, "calls.json")], cwd=folder,
                              env=environment, capture_output=True, text=True, timeout=300)
        log = os.path.join(folder, "server.log")
        with open(log, "w", encoding="utf-8") as file:
            file.write(done.stdout + done.stderr)
        assert done.returncode == 0, done.stderr
        text = subprocess.run([quire, "trace", "convert", log], capture_output=True, text=True,
                              check=True).stdout
        rows = [json.loads(line) for line in text.splitlines()][1:]
    expected = expected_rows(requests)
    assert len(rows) == len(expected), (len(rows), done.stdout[:2000])
    names = {}
    for row, (prompt, output) in zip(rows, expected):
        got = [[names.setdefault(content, len(names)), n] for content, n in row["prompt"]]
        assert got == prompt, (got, prompt)
        assert row["output"][1] == output, (row, output)
    version = [line for line in done.stdout.splitlines() if line.startswith("VERSION")]
    print(f"{version[0].split()[1]}: {len(rows)} requests of vLLM's own log, all as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main())
