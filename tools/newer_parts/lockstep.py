"""Lock step: vLLM's scheduler of the release beside the drop-in, which takes it for a known one."""
import json
import os
import re
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

MAX_TEXT = 240


@dataclass
class Lockstep:
    """skipped: why nothing ran; failure: how the run ended before its last seed."""

    skipped: str = ""
    failure: str = ""
    seeds: int = 0
    steps: int = 0
    agreed: int = 0
    ended: int = 0  # vLLM raised, as the test allows
    others: list = field(default_factory=list)  # seeds that differ or raise, as lockstep_seeds tells
    fields: dict = field(default_factory=dict)  # of steps -> [seeds in which it differs, an example]
    stand_ins: list = field(default_factory=list)  # names that the release does not have

    @property
    def is_same(self):
        return not (self.skipped or self.failure or self.others)

    def as_dict(self):
        return {**asdict(self), "is_same": self.is_same}


def group_of(seed):
    """What seeds are counted together by: whose code raised what, or which comparison failed."""
    message = re.sub(r"'[^']*'|\d+(\.\d+)?", "N", seed["message"].splitlines()[0][:100]
                     if seed["message"] else "")
    if seed["result"] == "raises":
        message = seed["message"].splitlines()[0][:160] if seed["message"] else ""
        return "raises", seed["side"], seed["error"], message, seed["place"]
    name = re.match(r"[\w.]+(?=: vLLM)", seed["message"])
    part = name[0].split(".")[-1] if name else ""
    return "differs", seed["path"], part, "" if part else message[:20], ""


def title_of(group):
    if group[0] == "raises":
        _, side, error, message, place = group
        who = {"vllm": "vLLM", "quire": "the drop-in", "test": "the test"}.get(side, "other code")
        return f"{who} raises {error} at {place}: {message}"
    _, path, part, _, _ = group
    return f"{path}{f', field {part}' if part else ''}"


def sides_of(message):
    """(vLLM's, Quire's) around the first character that differs."""
    found = re.search(r"vLLM:? (.*?)(?:, Quire |\nQuire: )(.*)", message, re.S)
    if found is None:
        return message[:MAX_TEXT], ""
    vllm, quire = found[1], found[2]
    same = len(os.path.commonprefix([vllm, quire]))
    start = max(0, same - 60)
    lead = "... " if start else ""
    return lead + vllm[start:start + MAX_TEXT], lead + quire[start:start + MAX_TEXT]


def groups_of(others):
    counted = Counter(map(group_of, others))
    return [(group, [seed for seed in others if group_of(seed) == group])
            for group, _ in counted.most_common()]


def run(root, reference, release, site, args, out, missing=()):
    """release: such as 0.32.0. site: a folder that has the package quire, or why there is none.
    missing: names that Quire imports and the release does not have."""
    made = Lockstep(stand_ins=list(missing))
    if not isinstance(site, Path):
        made.skipped = site
        return made
    results, log = out / "lockstep.jsonl", out / "lockstep.log"
    env = reference.environment
    env["PYTHONPATH"] = os.pathsep.join([str(site), str(root / "python/tests")])
    env["QUIRE_STAND_INS"] = ",".join(missing)
    here = Path(__file__).resolve().parent
    command = [reference.python, "-B", here / "lockstep_seeds.py", release, str(args.seed),
               str(args.lockstep_seeds), results]
    if reference.platform is not None:
        command.append(reference.platform)
    with open(log, "w", encoding="utf-8") as text:
        try:
            status = subprocess.run(command, env=env, stdout=text, stderr=subprocess.STDOUT,
                                    timeout=args.timeout).returncode
            made.failure = "" if status == 0 else last_line(log, status)
        except subprocess.TimeoutExpired:
            made.failure = f"it ran longer than {args.timeout} s (--timeout)"
        except OSError as error:
            made.failure = str(error)
    if results.exists():
        count(made, results)
    return made


def last_line(log, status):
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1][:MAX_TEXT] if lines else f"it ended with status {status}"


def count(made, results):
    for line in results.read_text(encoding="utf-8").splitlines():
        seed = json.loads(line)
        made.seeds += 1
        made.steps += seed["steps"]
        made.agreed += seed["result"] == "agrees"
        made.ended += seed["result"] == "ended"
        for name, example in seed.get("fields", {}).items():
            made.fields.setdefault(name, [0, example])[0] += 1
        if seed["result"] in ("differs", "raises"):
            made.others.append(seed)


def only_fields(seed):
    """Whether nothing but fields of steps differs."""
    return seed["result"] == "differs" and not seed["message"]


def line_of(made):
    if made.skipped:
        return f"lock step: skipped, {made.skipped}"
    text = (f"lock step: {made.agreed:,} of {made.seeds:,} seeds agree, {made.ended:,} ended early "
            f"where vLLM raises, {len(made.others):,} differ; {made.steps:,} steps")
    few = sum(map(only_fields, made.others))
    if few:
        text += f"; {few:,} of these only in {', '.join(made.fields)}"
    return f"{text}; {made.failure}" if made.failure else text
