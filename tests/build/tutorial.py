#!/usr/bin/env python3
"""The program in the comment of include/quire.h compiles without a warning, runs, and prints what
the comment says that it prints.

    QUIRE_SOURCE=. QUIRE_CC=cc QUIRE_SO=build/release/libquire.so tests/build/tutorial.py

The program is the first indented text of the comment, from its #include to the brace that ends
main; the output is the indented text after "The program prints:".
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MOST_LINES = 60
INDENT = " *    "


def indented(lines):
    """The first run of indented lines, without the comment's margin."""
    text = []
    for line in lines:
        if line.startswith(INDENT):
            text.append(line[len(INDENT):])
        elif line.rstrip() == " *" and text:
            text.append("")
        elif text:
            break
    return "\n".join(text).strip("\n") + "\n"


def read_tutorial(header):
    """(program, output) of the comment."""
    comment = header[: header.index("*/")]
    before, _, after = comment.partition("The program prints:\n")
    return indented(before.split("\n")), indented(after.split("\n"))


def compile_and_run(program):
    so = Path(os.environ["QUIRE_SO"]).resolve()
    include = Path(os.environ["QUIRE_SOURCE"]) / "include"
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "tutorial.c"
        source.write_text(program)
        command = [os.environ.get("QUIRE_CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror",
                   "-pedantic", f"-I{include}", str(source), "-o", f"{folder}/tutorial", str(so),
                   f"-Wl,-rpath,{so.parent}"]
        subprocess.run(command, check=True)
        return subprocess.run([f"{folder}/tutorial"], check=True, capture_output=True,
                              text=True).stdout


def main():
    header = (Path(os.environ["QUIRE_SOURCE"]) / "include/quire.h").read_text()
    program, promised = read_tutorial(header)
    for call in ("_create", "_add", "_schedule", "_update", "_destroy"):
        if not re.search(rf"\bquire_sched{call}\(", program):
            sys.exit(f"tutorial: the program does not call quire_sched{call}")
    num_lines = program.count("\n")
    if num_lines > MOST_LINES:
        sys.exit(f"tutorial: {num_lines} lines, at most {MOST_LINES}")
    printed = compile_and_run(program)
    if printed != promised:
        sys.exit(f"tutorial: the program printed\n{printed}and quire.h promises\n{promised}")
    print(f"tutorial: {num_lines} lines compiled and run, output as promised")


if __name__ == "__main__":
    main()
