"""The command `quire` of an installed package: becomes the program that the package has."""

import os
import sys
from pathlib import Path


def main() -> None:
    """Runs the program with the arguments of this process, in its place."""
    program = Path(__file__).parent / "bin" / "quire"
    if not program.exists():
        sys.exit("quire: this package was built without the program (jansson, zstd or zlib was "
                 "missing when it was built)")
    os.execv(program, ["quire", *sys.argv[1:]])
