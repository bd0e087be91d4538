#!/usr/bin/env python3
"""Runs in the interpreter of the release: the drop-in's lock step, seed by seed.

    lockstep_seeds.py RELEASE FIRST COUNT OUT [PLATFORM]

RELEASE is what the release is taken for, such as 0.32.0: quire.vllm and the test look at
vllm.__version__, which is set before they do. OUT gets a line of JSON for each seed.
"""
import importlib.util
import json
import sys
import traceback
from pathlib import Path

NUM_STEPS = 60
MAX_TEXT = 1500


def side_of(frames):
    """Whose code raised: the innermost frame that is vLLM's, the drop-in's or the test's."""
    for frame in reversed(frames):
        parts = Path(frame.filename).parts
        if "vllm" in parts and "quire" not in parts:
            return "vllm", frame
        if "quire" in parts:
            return "quire", frame
        if frame.filename.endswith(("test_lockstep.py", "lockstep_parts.py", "vllm_kit.py")):
            return "test", frame
    return "other", frames[-1]


def told(error):
    """An exception as facts. same() and its kin raise in the test: the two sides differ."""
    frames = traceback.extract_tb(error.__traceback__)
    side, frame = side_of(frames)
    differs = side == "test" and isinstance(error, AssertionError)
    callers = [f.name for f in frames if f.filename.endswith("test_lockstep.py")]
    return {"result": "differs" if differs else "raises", "side": side,
            "error": type(error).__name__, "message": str(error)[:MAX_TEXT],
            "function": frame.name, "place": f"{Path(frame.filename).name}:{frame.lineno}",
            "path": " > ".join(callers[-4:])}


def run_seed(test, seed):
    made = {"seed": seed, "steps": 0}
    pair = None
    try:
        pair = test.Pair(seed)
        pair.run(NUM_STEPS)
        made["result"] = "agrees"
    except test.Ended:
        made["result"] = "ended"
    except Exception as error:
        made.update(told(error))
    made["steps"] = getattr(pair, "num_steps", 0)
    return made


def main():
    release, first, count, out, *platform = sys.argv[1:]
    if platform:
        spec = importlib.util.spec_from_file_location("host_platform", platform[0])
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    import vllm

    vllm.__version__ = release
    with open(out, "w", encoding="utf-8", buffering=1) as file:
        try:
            import test_lockstep as test
        except Exception as error:
            file.write(json.dumps({"seed": None, "steps": 0, **told(error)}) + "\n")
            return
        for seed in range(int(first), int(first) + int(count)):
            file.write(json.dumps(run_seed(test, seed)) + "\n")


if __name__ == "__main__":
    main()
