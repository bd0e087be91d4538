"""The report: text for a reader, JSON for a program, and the summary that is printed last."""
import json
from collections import Counter

import changes as ch
import decisions
import lockstep
from watched import room_of

SIGNS = {ch.ADDED: "+", ch.REMOVED: "-", ch.CHANGED: "~", ch.BODY: "*", ch.MOVED: ">"}
LEGEND = ("+ added   - removed   ~ its signature, type or default changed   * its body changed   "
          "> it is in another file")
MAX_SHOWN = 200


class Findings:
    """What the parts found. A part that did not run is None, with its reason in `skipped`."""

    def __init__(self, reference, base_release, profile):
        self.reference, self.base_release, self.profile = reference, base_release, profile
        self.changes = self.files = self.missing = None
        self.undescribed = []  # names that the description of the base release does not have
        self.kinds = self.lockstep = None
        self.skipped = {}

    @property
    def is_same(self):
        return not (self.changes or self.missing
                    or any(not kind.is_same for kind in self.kinds or ())
                    or self.lockstep is not None and not self.lockstep.is_same)


# ---- part 1 ----------------------------------------------------------------------


def cut(text):
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + " ..."


def pieces_of(text):
    """A signature in pieces: decorators and parameters, which commas outside of brackets separate."""
    pieces, depth = [""], 0
    for letter in text:
        depth += letter in "([{"
        if letter == "," and depth == 1 or letter in "()" and depth == 1:
            pieces.append("")
        else:
            pieces[-1] += letter
        depth -= letter in ")]}"
    return [piece.strip() for piece in pieces]


def only_in(text, other):
    """The pieces of a long text that the other one does not have; a short text as it is."""
    if len(text) <= MAX_SHOWN and len(other) <= MAX_SHOWN:
        return text
    left = [piece for piece in pieces_of(text) if piece not in pieces_of(other)]
    return cut(f"... {', '.join(left)} ..." if left else "(nothing more)")


def item_lines(change):
    used = f"    [{', '.join(change.mentions)}]" if change.mentions else ""
    sign, name = SIGNS[change.change], f"{change.kind} {change.name}"
    if change.change == ch.CHANGED:
        return [f"  {sign} {name}{used}", f"      was  {only_in(change.before, change.after)}",
                f"      is   {only_in(change.after, change.before)}"]
    if change.change == ch.MOVED:
        return [f"  {sign} {name}, was in {change.before}{used}"]
    text = cut(change.after or change.before) if change.change != ch.BODY else ""
    return [f"  {sign} {name} {text}".rstrip() + used]


def signature_lines(found):
    if found.changes is None:
        return [f"Not looked at: {found.skipped['signatures']}"]
    changed, added, removed = found.files
    lines = [f"Files that are watched: {len(changed)} changed, {len(added)} new, "
             f"{len(removed)} removed.", LEGEND,
             "In brackets: places of Quire's sources that use the name.", ""]
    if found.missing:
        lines += ["Quire imports these, and they are not there:",
                  *(f"  - {name}" for name in found.missing), ""]
    if found.undescribed:
        lines += [f"Not compared: names that Quire uses since the description of {found.base_release} "
                  "was made. Make it again on that release with --write-surface:",
                  *(f"  {name}" for name in found.undescribed), ""]
    folded = ch.folded(found.changes)
    files = dict.fromkeys(change.file for change in folded)
    for heading, decides in (("Files that decide", True), ("Other files, of which Quire uses names", False)):
        for number, file in enumerate(f for f in files if bool(room_of(f)) == decides):
            if number == 0:
                lines += [heading, "-" * len(heading), ""]
            status = "  NEW FILE" if file in added else "  REMOVED" if file in removed else ""
            lines.append(f"{file}{f'    (Quire: {room_of(file)})' if decides else ''}{status}")
            for change in (c for c in folded if c.file == file):
                lines += item_lines(change)
            lines.append("")
    return lines if folded or found.missing else [*lines, "no change"]


# ---- parts 2 and 3 ----------------------------------------------------------------


def kind_lines(kind):
    lines = [decisions.line_of(kind)]
    if kind.ended_early:
        lines.append(f"    {kind.ended_early:,} workloads end early, where vLLM raises")
    lines += [f"    recorded without {name}, which the release does not have" for name in kind.dropped]
    for error, seeds in kind.errors.items():
        lines.append(f"    the recorder raised in {len(seeds):,} workloads (seed {seeds[0]} first): "
                     f"{error}")
    lines += difference_lines(kind.differences)
    for each in kind.rounds:
        lines.append(f"    without {', '.join(each.ignored)}: {each.agreed:,} more workloads agree, "
                     f"{len(each.differences):,} differ"
                     + (", namely:" if each is kind.rounds[-1] and each.differences else ""))
    return lines + difference_lines(kind.rounds[-1].differences if kind.rounds else ())


def difference_lines(differences):
    lines = []
    for (what, letter, name), members in decisions.groups_of(differences):
        mixes = Counter(d.mix for d in members if d.mix).most_common(6)
        lines.append(f"    {len(members):,} workloads: {what}, operation {letter or '-'}"
                     f"{f', {name}' if name else ''}"
                     + "".join(f"{', ' if number else '; mixes: '}{mix} {count}"
                               for number, (mix, count) in enumerate(mixes)))
        for each in members[:decisions.MAX_EXAMPLES]:
            mix = f" ({each.mix})" if each.mix else ""
            lines += [f"        seed {each.seed}{mix}, after {each.agreed:,} operations that "
                      f"agree: {each.operation}",
                      f"            vLLM   {each.vllm}", f"            Quire  {each.quire}"]
    return lines


def decision_lines(found):
    if found.kinds is None:
        return [f"Not looked at: {found.skipped['decisions']}"]
    lines = [f"Recorded on vLLM {found.reference.version}, replayed through the profile of vLLM "
             f"{found.profile}.", ""]
    for kind in found.kinds:
        lines += [*kind_lines(kind), ""]
    return lines


def lockstep_lines(found):
    made = found.lockstep
    if made is None:
        return [f"Not looked at: {found.skipped['lockstep']}"]
    lines = [lockstep.line_of(made)]
    if made.stand_ins:
        lines.append(f"    with stand-ins for {', '.join(made.stand_ins)}")
    for name, (count, example) in made.fields.items():
        lines += [f"    {count:,} seeds: field {name} of a step; then with vLLM's value",
                  f"            {cut(example)}"]
    rest = [seed for seed in made.others if not lockstep.only_fields(seed)]
    for group, members in lockstep.groups_of(rest):
        seeds = ", ".join(str(seed["seed"]) for seed in members[:6])
        lines.append(f"    {len(members):,} seeds ({seeds}{', ...' if len(members) > 6 else ''}): "
                     f"{lockstep.title_of(group)}")
        if group[0] == "differs":
            vllm, quire = lockstep.sides_of(members[0]["message"])
            lines += [f"            vLLM   {vllm}", f"            Quire  {quire}"]
    return lines


# ---- the whole --------------------------------------------------------------------


def title(text):
    return [text, "=" * len(text), ""]


def heading(found):
    return (f"vLLM {found.reference.version} against vLLM {found.base_release}, the newest release "
            "that Quire serves")


def past(kind):
    """How many agree when the fields that differ most are ignored."""
    if not kind.rounds:
        return ""
    agreed = kind.agreed + sum(each.agreed for each in kind.rounds)
    return f"; {agreed:,} without {', '.join(kind.rounds[-1].ignored)}"


def summary(found, out):
    """Some ten lines."""
    lines = [heading(found)]
    if found.changes is None:
        lines.append(f"  signatures   not looked at: {found.skipped['signatures']}")
    else:
        changed, added, removed = found.files
        counts, folded = ch.counts(found.changes), ch.folded(found.changes)
        used = sum(bool(c.mentions) for c in folded if c.change != ch.ADDED)
        lines += [f"  files        {len(changed)} changed, {len(added)} new, {len(removed)} removed",
                  f"  signatures   {counts[ch.ADDED]} added, {counts[ch.REMOVED]} removed, "
                  f"{counts[ch.CHANGED]} changed, {counts[ch.MOVED]} moved",
                  f"  bodies       {counts[ch.BODY]} functions changed; {used} items that changed or "
                  "were removed are named in Quire",
                  f"  imports      {len(found.missing)} names that Quire imports are missing"
                  + (f": {', '.join(found.missing[:4])}" if found.missing else "")]
        if found.undescribed:
            lines.append(f"  not compared {len(found.undescribed)} names that the description of "
                         f"{found.base_release} does not have; make it again with --write-surface")
    if found.kinds is None:
        lines.append(f"  decisions    not looked at: {found.skipped['decisions']}")
    for kind in found.kinds or ():
        if not kind.skipped:
            lines.append(f"  {decisions.line_of(kind)}{past(kind)}")
    skipped = [kind.name for kind in found.kinds or () if kind.skipped]
    if skipped:
        lines.append(f"  not recorded: {', '.join(skipped)}")
    if found.lockstep is None:
        lines.append(f"  lock step    not looked at: {found.skipped['lockstep']}")
    else:
        lines.append(f"  {lockstep.line_of(found.lockstep)}")
    lines.append("no change" if found.is_same else f"the whole report: {out / 'report.txt'}")
    return lines


def write(found, out):
    """report.txt and report.json; the summary."""
    closing = summary(found, out)
    text = [*title(heading(found)), *title("1. Signatures and fields"), *signature_lines(found), "",
            *title("2. Decisions"), *decision_lines(found), *title("3. Lock step"),
            *lockstep_lines(found), "", *title("Summary"), *closing]
    (out / "report.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    (out / "report.json").write_text(json.dumps(as_dict(found), indent=1) + "\n", encoding="utf-8")
    return closing


def as_dict(found):
    return {"vllm": found.reference.version, "against": found.base_release,
            "profile": found.profile, "is_same": found.is_same, "skipped": found.skipped,
            "files": found.files and dict(zip(("changed", "added", "removed"), found.files)),
            "missing_imports": found.missing, "not_compared": found.undescribed,
            "changes": found.changes and [change.as_dict() for change in found.changes],
            "decisions": found.kinds and [kind.as_dict() for kind in found.kinds],
            "lock_step": found.lockstep and found.lockstep.as_dict()}
