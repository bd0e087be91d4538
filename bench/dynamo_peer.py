"""What the comparisons with NVIDIA Dynamo's replay share: the same engine and trace for both sides."""

import os
import subprocess
import sys

ENGINE = {"num-gpu-blocks": 60000, "block-size": 16, "max-num-seqs": 256,
          "max-num-batched-tokens": 8192}


def add_engine(parser):
    for name, value in ENGINE.items():
        parser.add_argument(f"--{name}", type=int, default=value)


def values(options):
    return {name: getattr(options, name.replace("-", "_")) for name in ENGINE}


def of_quire(options):
    return [part for name, value in values(options).items() for part in (f"--{name}", str(value))]


def of_dynamo(options):
    return {"engine": {"backend": "vllm",
                       **{name.replace("-", "_"): value for name, value in values(options).items()}}}


def core():
    os.environ["DYN_LOG"] = "error"  # else its router writes a line for each request
    try:
        from dynamo import _core
    except ImportError:
        sys.exit("this Python has no Dynamo: pip install ai-dynamo-runtime==1.6.1")
    return _core


def plain_trace(path, folder):
    """Dynamo reads JSON lines only."""
    plain = f"{folder}/trace.jsonl"
    with open(plain, "wb") as file:
        reader = ["zstd", "-dc"] if path.endswith(".zst") else ["cat"]
        subprocess.run([*reader, path], check=True, stdout=file)
    return plain
