"""What a newer release of vLLM changes, as a port to it would need to know.

    tools/newer DIR                                    DIR/venv/bin/python has vLLM
    tools/newer --python PYTHON [--platform FILE]      or name the interpreter

Compares with the newest release that Quire serves, in three parts:
  signatures   every class, function, field and constant that Quire uses or that decides: added,
               removed, changed; and the functions whose body changed. Read from the source files
  decisions    the parity workloads, recorded on the release and replayed through Quire
  lockstep     vLLM's scheduler and quire.vllm side by side, with the check of the version overridden
A part that fails is a finding. Prints a summary; the folder of --out gets report.txt and report.json.
"""
import argparse
import sys
import time
import traceback
from pathlib import Path

import build
import changes
import decisions
import lockstep
import reference as references
import report
import surface
import watched

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PARTS = ("signatures", "decisions", "lockstep")
STATUS = "Exit status: 0 if nothing changed, 1 if something did, 2 if the release cannot be looked at."


def parse(argv):
    parser = argparse.ArgumentParser(prog="tools/newer", description=__doc__, epilog=STATUS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", nargs="?", type=Path, metavar="DIR",
                        help="folder with an environment of vLLM in venv/")
    parser.add_argument("--python", metavar="PYTHON", help="interpreter that has vLLM, instead of DIR")
    parser.add_argument("--platform", metavar="FILE", help="Python file to run before vLLM, so that "
                        "no GPU is needed (default: $QUIRE_VLLM_PLATFORM, or DIR/host_platform.py)")
    parser.add_argument("--out", type=Path, metavar="FOLDER",
                        help="folder of the report (default: build/newer/VERSION)")
    parser.add_argument("--build", type=Path, default=ROOT / "build/newer", metavar="FOLDER",
                        help="folder to build replayers and drop-in in (default: build/newer)")
    parser.add_argument("--as", dest="profile", metavar="RELEASE", help="release whose recorders, "
                        "profile and drop-in are used (default: the nearest one)")
    parser.add_argument("--skip", action="append", default=[], choices=PARTS, help="leave a part out")
    parser.add_argument("--kind", action="append", default=[], choices=sorted(decisions.KINDS),
                        help="record this kind only; may be given more than once")
    parser.add_argument("--seed", type=int, default=1, help="first seed (default: 1)")
    parser.add_argument("--seeds", type=int, default=300,
                        help="workloads of each kind (default: 300)")
    parser.add_argument("--lockstep-seeds", type=int, default=200,
                        help="seeds of the lock step (default: 200)")
    parser.add_argument("--timeout", type=int, default=1800, metavar="SECONDS",
                        help="for each recorder and for the lock step (default: 1800)")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--against", type=Path, metavar="FILE",
                        help="surface to compare with (default: that of the newest release served)")
    parser.add_argument("--write-surface", type=Path, metavar="FILE",
                        help="write the surface of the release into FILE, and end")
    args = parser.parse_args(argv)
    if (args.dir is None) == (args.python is None):
        parser.error("give DIR or --python PYTHON")
    for name in ("seeds", "lockstep_seeds", "timeout", "jobs"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return args


def tell(text):
    print(text, flush=True)


def newest_surface():
    found = sorted(HERE.glob("surface-*.txt"), key=lambda p: references.number_of(p.stem[8:]))
    if not found:
        raise references.Missing(f"{HERE} has no surface-*.txt; make one with --write-surface")
    return found[-1]


def describe(reference, base=None):
    """The surface of the reference, and what Quire uses of it. Names of `base` are described too."""
    uses = watched.Uses(ROOT)
    files, missing = watched.watched(reference.package, uses)
    for path, items in base.files.items() if base is not None else ():
        if files.get(path, "") is not None:
            files.setdefault(path, set()).update(changes.top_names(items))
    made = surface.describe(reference.package, reference.version, files)
    made.missing = missing
    return made, uses


def look_at_signatures(found, base):
    made, uses = describe(found.reference, base)
    found.undescribed = changes.leave_undescribed(base, made)
    found.files = changes.files_changed(base, made)
    found.missing = [name for name in made.missing if name not in base.missing]
    found.changes = changes.compare(base, made)
    for change in found.changes:
        change.mentions = uses.of(change.name)


def look_at_decisions(found, args, out):
    kinds = args.kind or decisions.KINDS.keys() & decisions.recorded_kinds(ROOT, found.profile)
    names = sorted({decisions.recorder_of(kind)[0] for kind in kinds})
    failure = build.replayers(ROOT, args.build, names, args.jobs, out / "build.log")
    if failure:
        tell(f"  {failure}")
    found.kinds = decisions.run(ROOT, found.reference, found.profile, args.build, args, out,
                                lambda text: tell(f"  {text}"))


def missing_names(found):
    """What Quire imports for the nearest release and does not find; looked up if part 1 was skipped."""
    if found.missing is not None:
        return found.missing
    base = surface.read(newest_surface())
    return [name for name in describe(found.reference)[0].missing if name not in base.missing]


def look_at_lockstep(found, args, out):
    site = build.dropin(ROOT, args.build, found.reference, args.jobs, out / "build.log")
    found.lockstep = lockstep.run(ROOT, found.reference, f"{found.profile}.0", site, args, out,
                                  missing_names(found))
    tell(f"  {lockstep.line_of(found.lockstep)}")


def run_parts(found, base, args, out):
    """Each part; one that raises is told, and the next one runs."""
    jobs = {"signatures": lambda: look_at_signatures(found, base),
            "decisions": lambda: look_at_decisions(found, args, out),
            "lockstep": lambda: look_at_lockstep(found, args, out)}
    for number, (name, job) in enumerate(jobs.items(), 1):
        start = time.monotonic()
        if name in args.skip:
            found.skipped[name] = "--skip"
            continue
        tell(f"[{number}/{len(jobs)}] {name} ...")
        try:
            job()
        except Exception as error:
            (out / f"{name}.traceback").write_text(traceback.format_exc(), encoding="utf-8")
            found.skipped[name] = f"{type(error).__name__}: {error} (see {out}/{name}.traceback)"
            tell(f"  failed: {found.skipped[name]}")
        tell(f"  {time.monotonic() - start:.0f} s")


def look(args):
    reference = references.find(args.dir, args.python, args.platform)
    if args.write_surface:
        made, _ = describe(reference)
        surface.write(made, args.write_surface)
        tell(f"{args.write_surface}: vLLM {made.release}, {len(made.files)} files, "
             f"{sum(map(len, made.files.values())):,} items")
        return 0
    base = surface.read(args.against or newest_surface())
    known = references.known_releases(ROOT)
    profile = args.profile or references.nearest(reference.version, known)
    if profile not in known:
        raise references.Missing(f"--as {profile}: not a known release (expected "
                                 f"{' or '.join(known)})")
    tell(f"vLLM {reference.version} in {reference.python}; compared with {base.release}, "
         f"taken for {profile}")
    out = (args.out or ROOT / "build/newer" / reference.version).absolute()
    out.mkdir(parents=True, exist_ok=True)
    (out / "build.log").write_text("", encoding="utf-8")
    args.build = args.build.absolute()
    found = report.Findings(reference, base.release, profile)
    run_parts(found, base, args, out)
    tell("")
    for line in report.write(found, out):
        tell(line)
    return 0 if found.is_same and not set(found.skipped) - set(args.skip) else 1


def main(argv=None):
    args = parse(sys.argv[1:] if argv is None else argv)
    try:
        return look(args)
    except (references.Missing, OSError, ValueError) as error:
        print(f"tools/newer: {error}", file=sys.stderr)
        return 2
