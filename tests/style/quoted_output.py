#!/usr/bin/env python3
"""What pages of docs/ quote of the output of examples is what the examples print.

    tests/style/quoted_output.py

A page quotes a whole file of examples/expected, from one line to another one; the indent and what
follows the quoted text on a line are the page's own.
"""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

# page, example, its first and its last line that are quoted
QUOTES = (("blocks-forks-pressure.md", "pool_usage", "blocks   ", "times what"),
          ("blocks-forks-pressure.md", "beams", "   1442", "   1494"),
          ("blocks-forks-pressure.md", "pressure", "           steps", "slow link   "),
          ("blocks-forks-pressure.md", "pressure", "A request of", "  slow link"),
          ("blocks-forks-pressure.md", "agents", "   TTL", "  60 s"))


def quoted_lines(example, first, last):
    lines = (ROOT / "examples" / "expected" / f"{example}.txt").read_text().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next(i for i in range(begin, len(lines)) if lines[i].startswith(last))
    return lines[begin:end + 1]


def has_quote(page, wanted):
    """Whether the lines follow each other in the page, all with the same indent."""
    for at in range(len(page) - len(wanted) + 1):
        found = page[at:at + len(wanted)]
        for indent in ("    ", "   ", ""):
            if all(line.startswith(indent + text) or line == text == ""
                   for line, text in zip(found, wanted)):
                return True
    return False


def main():
    num_missing = 0
    for name, example, first, last in QUOTES:
        page = (ROOT / "docs" / name).read_text().splitlines()
        wanted = quoted_lines(example, first, last)
        if not has_quote(page, wanted):
            print(f"docs/{name} does not quote examples/expected/{example}.txt from \"{wanted[0]}\" on")
            num_missing += 1
    return num_missing > 0


if __name__ == "__main__":
    sys.exit(main())
