#!/usr/bin/env python3
"""Every public function is named in a page of docs/, in README.md or in an example.

    public_calls.py [ROOT]     prints those that are in none; the exit status is 1 if there are any

The changelog and docs/api-changes.md do not count: they say what came, not what it is for.
"""
import re
import sys
from pathlib import Path


def public_calls(root):
    for header in sorted((root / "include/quire").glob("*.h")):
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.S)
        for call in re.findall(r"QUIRE_API[^;{]*?\b(quire_\w+)\s*\(", text):
            yield header.name, call


def pages(root):
    yield root / "README.md"
    yield from sorted(p for p in (root / "docs").rglob("*.md") if p.name != "api-changes.md")
    yield from sorted(f for f in (root / "examples").rglob("*") if f.suffix in (".c", ".h", ".py"))


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    named = set().union(*(re.findall(r"\bquire_\w+", page.read_text()) for page in pages(root)))
    calls = list(public_calls(root))
    missing = [f"{header}: {call} is in no page and no example" for header, call in calls
               if call not in named]
    print(*missing, sep="\n", end="\n" if missing else "")
    print(f"public calls: {len(calls)}, {len(missing)} in no page and no example")
    return 1 if missing or len(calls) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
