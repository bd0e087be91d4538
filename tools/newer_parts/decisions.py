"""Decisions: records the parity workloads on a release and replays them through a profile of Quire.

    record.py --split ──► KIND/SEED.txt ──► parity_KIND ──► agrees, or the first difference
                          KIND/SEED.error   (a recorder raised)

Every workload is replayed alone, so that a difference in one does not hide the others.
"""
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

import ignore

# kind: operations of a workload. A seed of hash is short, so that it gets more of them. KIND_MIXES is
# the recorder KIND with mixes that are not among the others.
KINDS = {"hash": 60, "queue": 100, "map": 100, "pool": 200, "table": 40, "cache": 110,
         "cache_parts": 90, "plan": 20, "sched": 110, "sched_parts": 70, "slots": 100, "offload": 80}
MAX_TEXT = 240
MAX_EXAMPLES = 3
MAX_TRIES = 8
REPLAY_SECONDS = 120


@dataclass
class Difference:
    """The first operation of a workload that differs. agreed: operations before it."""

    kind: str
    seed: int
    mix: str
    agreed: int
    what: str
    operation: str = ""
    field: str = ""
    vllm: str = ""
    quire: str = ""

    @property
    def group(self):
        """What differences are counted together by."""
        letter = re.match(r"[A-Za-z!]*", self.operation)[0]
        return self.what, letter, re.sub(r"\d+", "N", self.field)


@dataclass
class Round:
    """The workloads that differed, compared once more without some fields."""

    ignored: list
    agreed: int
    differences: list


@dataclass
class Kind:
    """What became of a kind. skipped: why nothing was done; failure: of the recorder as a whole."""

    name: str
    skipped: str = ""
    failure: str = ""
    workloads: int = 0
    agreed: int = 0
    operations: int = 0
    agreed_operations: int = 0
    ended_early: int = 0  # workloads that the recorder ended because vLLM raised
    differences: list = field(default_factory=list)
    errors: dict = field(default_factory=dict)  # exception -> seeds
    dropped: list = field(default_factory=list)  # keywords that the release does not have
    rounds: list = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_same(self):
        return not (self.failure or self.differences or self.errors or self.dropped)

    def as_dict(self):
        return {**asdict(self), "is_same": self.is_same}


def recorded_kinds(root, release):
    """The kinds of which recordings of a release are committed."""
    data = root / "tests/parity/data"
    data = data if release == "0.20" else data / release
    return {re.sub(r"\d+$", "", path.stem) for path in data.glob("*.txt")}


def recorder_of(kind):
    """("cache", "parts") of cache_parts."""
    name, _, mixes = kind.partition("_")
    return name, mixes


def replayer_of(build, kind):
    return build / "tests" / "parity" / f"parity_{recorder_of(kind)[0]}"


# ---- recording -----------------------------------------------------------------


def record(root, reference, release, kind, args, out):
    """Runs the recorder; '' or why it failed as a whole. What it wrote before that counts."""
    name, mixes = recorder_of(kind)
    command = [reference.python, "-B", root / "tests/parity/record/record.py", name,
               "--mixes", mixes,
               "--seed", str(args.seed), "--runs", str(args.seeds), "--count", str(KINDS[kind]),
               "--out", out, "--explain", "--split"]
    env = {**reference.environment, "QUIRE_VLLM_AS": release}
    log = out.parent / f"{kind}.log"
    out.mkdir(parents=True, exist_ok=True)
    with open(log, "w", encoding="utf-8") as text:
        try:
            done = subprocess.run(command, env=env, stdout=text, stderr=subprocess.STDOUT,
                                  timeout=args.timeout)
        except subprocess.TimeoutExpired:
            return f"the recorder ran longer than {args.timeout} s (--timeout)"
        except OSError as error:
            return str(error)
    if done.returncode == 0:
        return ""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else f"the recorder ended with status {done.returncode}"


def dropped_in(log):
    """Keywords that the recorder left out, since the release does not know them."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else ()
    return sorted({line.split(": ", 1)[1] for line in lines if line.startswith("dropped: ")})


def exception_of(path):
    """The last line of a traceback, and the last place of vLLM or of the recorder in it."""
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    places = [re.search(r'File ".*?([^/"]+/[^/"]+\.py)", line (\d+), in (\S+)', l) for l in lines]
    last = next((p for p in reversed(places) if p), None)
    where = f" in {last[3]} ({last[1]}:{last[2]})" if last else ""
    return f"{lines[-1][:MAX_TEXT]}{where}" if lines else "no traceback"


# ---- replaying -----------------------------------------------------------------


def cut(text):
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " ..."


def first_unequal(vllm, quire):
    """(name of the field, vLLM's, Quire's) of the first part between bars that differs."""
    ours, theirs = quire.split("|"), vllm.split("|")
    for index in range(max(len(ours), len(theirs))):
        a = theirs[index] if index < len(theirs) else "(nothing)"
        b = ours[index] if index < len(ours) else "(nothing)"
        if a != b:
            named = re.match(r"([A-Za-z_]+)=", a if a != "(nothing)" else b)
            return named[1] if named else f"part {index + 1} of the answer", a, b
    return "", vllm, quire


def parse_difference(kind, seed, lines, output):
    """From what a replayer printed. lines: of the recording."""
    mix = next((words[1] for words in (line.split() for line in lines)
                if len(words) > 1 and words[0] in (recorder_of(kind)[0], "refused")), "")
    mix = mix if mix[:1].isalpha() else ""
    head = re.search(r"\.txt:(\d+): (.*)", output)
    if head is None:
        last = output.strip().splitlines()[-1:] or ["no output"]
        return Difference(kind, seed, mix, 0, f"the replayer ended without an answer: {cut(last[0])}")
    number = int(head[1])
    said = {}
    for m in re.finditer(r"^    (operation|field|expected|got)  +(.*)$", output, re.M):
        said.setdefault(m[1], m[2])
    what = re.sub(r"^seed \d+ \(.*?\), step \d+: |, here or .*", "", head[2])
    name, vllm, quire = first_unequal(said.get("expected", ""), said.get("got", ""))
    told = [line.startswith("#") for line in lines]
    agreed = sum(told[:number - 1]) if any(told) else number - 2  # hash: each line is a check
    return Difference(kind, seed, mix, agreed, what, cut(said.get("operation", "")),
                      said.get("field", name), cut(vllm), cut(quire))


def replay(replayer, kind, path, ignored=()):
    """(operations, whether it ended early, Difference or None) of one workload."""
    lines = path.read_text(encoding="utf-8").splitlines()
    count = int(lines[0].split(" count ")[1].split()[0])
    ended = any(line.startswith("stop ") for line in lines)
    seed = int(path.stem)
    try:
        done = subprocess.run([replayer, path], capture_output=True, text=True, errors="replace",
                              timeout=REPLAY_SECONDS,
                              env={**os.environ, "QUIRE_PARITY_IGNORE": ",".join(ignored)})
    except subprocess.TimeoutExpired:
        return count, ended, Difference(kind, seed, "", 0, f"no answer within {REPLAY_SECONDS} s")
    # A replayer may have more tests, of the default profile and of quirks; vLLM's name is in none.
    output = done.stderr + done.stdout
    failed = re.findall(r"\[  FAILED  \] (\w+)", output)
    if done.returncode == 0 or failed and not any("vllm" in name for name in failed):
        return count, ended, None
    return count, ended, parse_difference(kind, seed, lines, output)


def fields_to_ignore(differences, tried):
    """The named fields in which workloads differ, those of most workloads first."""
    counted = Counter(d.field for d in differences
                      if re.fullmatch(r"[A-Za-z_]+", d.field) and d.field not in tried)
    return [name for name, _ in counted.most_common()]


def replay_without(made, replayer, folder, differences, ignored, args):
    """The workloads that differ, without these fields: the differences that are left."""
    masked = folder / f"without-{'-'.join(ignored)}"
    masked.mkdir()
    paths = []
    for d in differences:
        lines = (folder / f"{d.seed}.txt").read_text(encoding="utf-8").splitlines()
        paths.append(masked / f"{d.seed}.txt")
        lines = ignore.rewrite(lines, recorder_of(made.name)[0], ignored)
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    with ThreadPoolExecutor(args.jobs) as threads:
        results = list(threads.map(
            lambda path: replay(replayer, made.name, path, tuple(ignored)), paths))
    shutil.rmtree(masked, ignore_errors=True)
    return [difference for _, _, difference in results if difference is not None]


def look_past(made, replayer, folder, args):
    """Ignores one field after the other: a difference in every step would hide all others. A field
    without which no workload agrees was not alone: it is looked at again."""
    differences, ignored, tried = made.differences, [], []
    while differences and len(tried) < MAX_TRIES:
        names = fields_to_ignore(differences, tried)
        if not names:
            return
        tried.append(names[0])
        left = replay_without(made, replayer, folder, differences, [*ignored, names[0]], args)
        if len(left) < len(differences):
            ignored.append(names[0])
            made.rounds.append(Round(list(ignored), len(differences) - len(left), left))
            differences = left


def run_kind(kind, root, reference, release, build, args, out):
    """Records and replays one kind."""
    made, start = Kind(kind), time.monotonic()
    folder = out / "recordings" / kind
    shutil.rmtree(folder, ignore_errors=True)
    made.failure = record(root, reference, release, kind, args, folder)
    made.dropped = dropped_in(folder.parent / f"{kind}.log")
    for path in sorted(folder.glob("*.error")):
        made.errors.setdefault(exception_of(path), []).append(int(path.stem))
    replayer = replayer_of(build, kind)
    paths = sorted(folder.glob("*.txt"), key=lambda path: int(path.stem))
    with ThreadPoolExecutor(args.jobs) as threads:
        for path, (count, ended, difference) in zip(
                paths, threads.map(lambda path: replay(replayer, kind, path), paths)):
            made.workloads += 1
            made.operations += count
            made.ended_early += ended
            if difference is None:
                made.agreed += 1
                made.agreed_operations += count
                path.unlink()
            else:
                made.agreed_operations += min(difference.agreed, count)
                made.differences.append(difference)
    look_past(made, replayer, folder, args)
    made.seconds = time.monotonic() - start
    return made


def groups_of(differences):
    """[(group, its differences)], the largest first."""
    counted = Counter(d.group for d in differences)
    return [(group, [d for d in differences if d.group == group])
            for group, _ in counted.most_common()]


def run(root, reference, release, build, args, out, tell):
    """All kinds, or those of --kind. tell: prints a line of progress."""
    committed, results = recorded_kinds(root, release), []
    for kind in args.kind or KINDS:
        replayer = replayer_of(build, kind)
        if not args.kind and kind not in committed:
            made = Kind(kind, skipped=f"no recordings of {release} are committed (--kind {kind} "
                                      "records it nevertheless)")
        elif not replayer.exists():
            made = Kind(kind, skipped=f"{replayer} is not built")
        else:
            made = run_kind(kind, root, reference, release, build, args, out)
        results.append(made)
        tell(line_of(made))
    return results


def line_of(kind):
    if kind.skipped:
        return f"{kind.name}: skipped, {kind.skipped}"
    if not kind.workloads:
        return f"{kind.name}: nothing recorded: {kind.failure or next(iter(kind.errors), '')}"
    text = (f"{kind.name}: {kind.agreed:,} of {kind.workloads:,} workloads and "
            f"{kind.agreed_operations:,} of {kind.operations:,} operations agree")
    if kind.errors:
        text += f"; the recorder raised in {sum(map(len, kind.errors.values())):,} more"
    if kind.failure:
        text += f"; {kind.failure}"
    return f"{text} ({kind.seconds:.0f} s)"
