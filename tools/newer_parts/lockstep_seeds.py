#!/usr/bin/env python3
"""Runs in the interpreter of the release: the drop-in's lock step, seed by seed.

    lockstep_seeds.py RELEASE FIRST COUNT OUT [PLATFORM]

RELEASE is what the release is taken for, such as 0.32.0: quire.vllm and the test look at
vllm.__version__, which is set before they do. OUT gets a line of JSON for each seed.

Names that QUIRE_STAND_INS lists (module.name,...) are set to their own text where the release does
not have them, so that the drop-in can be imported. A field of a step that differs is noted, and the
seed goes on with vLLM's value, so that one field does not hide all that follows.
"""
import importlib
import importlib.util
import json
import os
import re
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


class Fields:
    """Compares steps as the test does, but goes on after a field that differs."""

    def __init__(self, test):
        from lockstep_compare import fields_of

        self.fields_of, self.compare, self.noted = fields_of, test.compare_steps, {}
        test.compare_steps = self

    def note(self, name, theirs, ours):
        self.noted.setdefault(name, f"vLLM {theirs!r}, Quire {ours!r}"[:MAX_TEXT])

    def __call__(self, theirs, ours):
        """vars() of both are the fields."""
        for name in vars(theirs).keys() - vars(ours).keys():
            self.note(name, getattr(theirs, name), "no such field")
            setattr(ours, name, getattr(theirs, name))
        extra = {name: value for name, value in self.fields_of(ours).items()
                 if name not in vars(theirs)}
        for name, value in extra.items():
            self.note(name, "no such field", value)
            delattr(ours, name)
        try:
            self.compare_all(theirs, ours)
        finally:
            for name, value in extra.items():
                setattr(ours, name, value)

    def compare_all(self, theirs, ours):
        for _ in vars(theirs):
            try:
                return self.compare(theirs, ours)
            except AssertionError as error:
                found = re.match(r"(\w+): vLLM", str(error))
                if found is None or found[1] not in vars(theirs):
                    raise
                self.note(found[1], getattr(theirs, found[1]), getattr(ours, found[1]))
                setattr(ours, found[1], getattr(theirs, found[1]))
        return self.compare(theirs, ours)


def set_stand_ins():
    for place in filter(None, os.environ.get("QUIRE_STAND_INS", "").split(",")):
        module, _, name = place.rpartition(".")
        try:
            module = importlib.import_module(module)
        except ImportError:
            continue
        if not hasattr(module, name):
            setattr(module, name, name)


def run_seed(test, fields, seed):
    made = {"seed": seed, "steps": 0}
    fields.noted = {}
    pair = None
    try:
        pair = test.Pair(seed)
        pair.run(NUM_STEPS)
        made["result"] = "agrees"
    except test.Ended:
        made["result"] = "ended"
    except Exception as error:
        made.update(told(error))
    if fields.noted:
        made["fields"] = fields.noted
        made["result"] = "differs" if made["result"] in ("agrees", "ended") else made["result"]
        made = {"side": "test", "error": "", "message": "", "path": "compare_steps", "place": "",
                **made}
    made["steps"] = getattr(pair, "num_steps", 0)
    return made


def main():
    release, first, count, out, *platform = sys.argv[1:]
    if platform:
        spec = importlib.util.spec_from_file_location("host_platform", platform[0])
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
    import vllm

    vllm.__version__ = release
    set_stand_ins()
    with open(out, "w", encoding="utf-8", buffering=1) as file:
        try:
            import test_lockstep as test
        except Exception as error:
            file.write(json.dumps({"seed": None, "steps": 0, **told(error)}) + "\n")
            return
        fields = Fields(test)
        for seed in range(int(first), int(first) + int(count)):
            file.write(json.dumps(run_seed(test, fields, seed)) + "\n")


if __name__ == "__main__":
    main()
