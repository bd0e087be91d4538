#!/usr/bin/env python3
"""Checks the repository against the house style; prints file:line for each finding.

    tests/style/check.py            all rules over all files
    tests/style/check.py --list     the rules and why they exist

Exit status: 0 without findings, 1 with. Only Python's standard library is needed; clang-format is
used where it is there, in the one version whose layout the repository follows.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from csource import Source
from rules import RULES, Repository, is_c

# Other versions lay out some lines differently.
CLANG_FORMAT_MAJOR = 14


def files_by_git(root):
    """What is tracked, or new and not ignored; None outside a checkout."""
    if not (root / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(root), "-c", f"safe.directory={root}", "ls-files", "-z",
                   "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return sorted({n for n in os.fsdecode(names).split("\0") if n and (root / n).is_file()})


def files_by_walk(root):
    """Every file of an unpacked source archive, but for what builds leave there."""
    found = []
    for folder, folders, names in os.walk(root):
        here = Path(folder).relative_to(root)
        folders[:] = [f for f in folders if f not in (".git", ".deps", "__pycache__")
                      and not (here == Path(".") and f.startswith("build"))]
        found += [(here / n).as_posix() for n in names if not n.endswith(".pyc")]
    return sorted(found)


def read_sources(root, paths):
    """The files that are text; a NUL byte says that one is not."""
    for path in paths:
        data = (root / path).read_bytes()
        if b"\0" not in data or is_c(path):
            yield Source(path, data.decode("utf-8", "surrogateescape"))


def public_functions(sources):
    """The names that the public headers declare with QUIRE_API."""
    names = set()
    for source in sources:
        if source.path.startswith("include/"):
            names.update(re.findall(r"\bQUIRE_API\b[^;(]*?\b(\w+)\s*\(", source.code))
    return frozenset(names)


def apply_rules(sources, rules=RULES):
    """(path, line, rule, message) of every finding."""
    repo = Repository(frozenset(s.path for s in sources), public_functions(sources))
    for source in sources:
        for rule in rules:
            if rule.applies(source.path):
                for line, message in rule.check(source, repo):
                    yield source.path, line, rule, message


def find_clang_format():
    """(program, "") or (None, why not)."""
    seen = "clang-format is not installed"
    for name in (os.environ.get("CLANG_FORMAT"), f"clang-format-{CLANG_FORMAT_MAJOR}",
                 "clang-format"):
        program = shutil.which(name) if name else None
        if program is None:
            continue
        said = subprocess.run([program, "--version"], capture_output=True, text=True).stdout
        version = re.search(r"version (\d+)", said)
        if version and int(version[1]) == CLANG_FORMAT_MAJOR:
            return program, ""
        seen = f"{program} is not version {CLANG_FORMAT_MAJOR}"
    return None, seen


def format_findings(root, paths, program):
    """(path, line) wherever clang-format would change something, once for each line."""
    command = [program, "--dry-run", "-Werror", "--style=file", *paths]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    found = re.findall(r"^(.+?):(\d+):\d+: error: .*clang-format", done.stderr, re.M)
    if done.returncode != 0 and not found:
        return [("clang-format", 1, done.stderr.strip().split("\n")[-1])]
    unique = sorted({(path, int(line)) for path, line in found})
    return [(path, line, "clang-format would change this") for path, line in unique]


def check(root, with_format=True, out=sys.stdout):
    """Runs everything over one tree; the number of findings."""
    paths = files_by_git(root) or files_by_walk(root)
    sources = list(read_sources(root, paths))
    findings = 0
    for path, line, rule, message in apply_rules(sources):
        print(f"{path}:{line}: {message} [{rule.name}: {rule.reason}]", file=out)
        findings += 1
    rules = len(RULES)
    program, why = find_clang_format() if with_format else (None, "not asked for")
    if program is None:
        print(f"style: SKIPPED clang-format: {why}", file=out)
    else:
        rules += 1
        for path, line, message in format_findings(root, [p for p in paths if is_c(p)], program):
            print(f"{path}:{line}: {message} [clang-format: layout is no question]", file=out)
            findings += 1
    print(f"style: {len(sources)} files, {rules} rules, {findings} findings", file=out)
    return findings


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2],
                        help="the tree to check (default: this repository)")
    parser.add_argument("--no-format", action="store_true", help="leave clang-format out")
    parser.add_argument("--list", action="store_true", help="print the rules and their reasons")
    args = parser.parse_args()
    if args.list:
        for rule in RULES:
            print(f"{rule.name:<20} {rule.reason}")
        return 0
    return 1 if check(args.root.resolve(), not args.no_format) else 0


if __name__ == "__main__":
    sys.exit(main())
