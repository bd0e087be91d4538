#!/usr/bin/env python3
"""Programs that were compiled against these headers run with a library whose structs have grown.

    QUIRE_SOURCE=. QUIRE_CC=cc tests/build/abi.py [--structs | --append STRUCT]

Each public struct must be sized (its first field is its size), or marked lent or final: see
include/quire/config.h. The test appends a field to each sized and each lent struct in a copy of the
sources, builds libquire and libquire_tier from the copy, and runs client programs on them that were
compiled against the headers as they are: abi_client.c, and the examples. The results must be the
same. --append also appends a field to this final struct: the test must then fail. --structs only
looks at the marks of the structs, and at the sizes of final ones.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["QUIRE_SOURCE"]).resolve()
CC = os.environ.get("QUIRE_CC", "cc")
HERE = SOURCE / "tests/build"
PROBE = "    uint64_t abi_probe;\n"
STRUCT = re.compile(r"typedef struct (quire_\w+) \{(.*?)\n((.*?)\n)?\} \1;\n", re.S)


def kind_of(text, first_line):
    mark = re.search(r"/\* (lent|final) \*/", first_line)
    if mark:
        return mark.group(1)
    is_sized = re.match(r"\s*(size_t size;|uint32_t abi;[^\n]*\n\s*uint32_t size;)", text)
    return "sized" if is_sized else "unsized"


def read_structs(folder):
    """{name: kind} of all public structs."""
    kinds = {}
    for header in sorted(folder.glob("*.h")):
        text = header.read_text()
        starts = re.findall(r"typedef struct (quire_\w+) \{", text)
        for m in STRUCT.finditer(text):
            first, _, rest = m.group(0).partition("\n")
            kinds[m.group(1)] = kind_of(rest, first)
        missed = set(starts) - set(kinds)
        assert not missed, f"{header}: cannot read {missed}"
    return kinds


def append_probes(folder, names):
    for header in folder.glob("*.h"):
        text = header.read_text()
        for name in names:
            text = text.replace(f"\n}} {name};\n", f"\n{PROBE}}} {name};\n")
        header.write_text(text)


def check_structs(kinds):
    asserted = set(re.findall(r"FINAL\((quire_\w+),", (HERE / "abi_client.c").read_text()))
    wrong = [f"{name}: has no size, and is neither lent nor final"
             for name, kind in kinds.items() if kind == "unsized"]
    wrong += [f"{name}: is final, but abi_client.c does not check its size"
              for name, kind in kinds.items() if kind == "final" and name not in asserted]
    wrong += [f"{name}: abi_client.c checks its size, but it is not final"
              for name in sorted(asserted) if kinds.get(name) != "final"]
    return wrong


def build_library(folder):
    """libquire.so and libquire_tier.so of the sources in folder."""
    build = folder / "build"
    off = [f"-DQUIRE_BUILD_{part}=OFF" for part in ("TESTS", "BENCH", "CLI", "EVENTS", "HTTP", "EXAMPLES")]
    subprocess.run(["cmake", "-S", folder, "-B", build, "-DCMAKE_BUILD_TYPE=", "-DCMAKE_C_FLAGS=-O1",
                    f"-DCMAKE_C_COMPILER={CC}", *off], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "-j", "2", "--target", "quire", "quire_tier"],
                   check=True, stdout=subprocess.DEVNULL)
    return build


def run_client(source, build, folder):
    """What the program prints with the libraries of build."""
    program = folder / source.stem
    subprocess.run([CC, "-std=gnu11", "-D_GNU_SOURCE", "-O1", f"-I{SOURCE}/include", source, "-o",
                    program, f"-L{build}", f"-L{build}/src/tier", "-lquire_tier", "-lquire", "-lpthread",
                    f"-Wl,-rpath,{build},-rpath,{build}/src/tier,-rpath-link,{build}"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=120, cwd=folder)
    return done.stdout + (f"exit status {done.returncode}\n{done.stderr}" if done.returncode else "")


def expected_of(example):
    path = SOURCE / "examples/expected" / f"{example.stem}.txt"
    needs_more = re.search(r"quire/(events|http|wire)\.h", example.read_text())
    return path.read_text() if path.exists() and not needs_more else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--append", default="")
    parser.add_argument("--structs", action="store_true")
    args = parser.parse_args()
    append = args.append
    kinds = read_structs(SOURCE / "include/quire")
    wrong = check_structs(kinds)
    if wrong:
        print(*wrong, sep="\n")
        return 1
    if args.structs:
        return subprocess.run([CC, "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only", f"-I{SOURCE}/include",
                               HERE / "abi_client.c"]).returncode
    clients = {HERE / "abi_client.c": (HERE / "abi_client.txt").read_text()}
    for example in sorted((SOURCE / "examples").glob("*.c")):
        if expected_of(example) is not None:
            clients[example] = expected_of(example)
    grown = [name for name, kind in kinds.items() if kind in ("sized", "lent") or name == append]
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in ("include", "src", "cmake"):
            shutil.copytree(SOURCE / part, folder / part)
        shutil.copy(SOURCE / "CMakeLists.txt", folder)
        append_probes(folder / "include/quire", grown)
        build = build_library(folder)
        for client, expected in clients.items():
            printed = run_client(client, build, folder)
            if printed != expected:
                failed += 1
                print(f"{client.name}: printed\n{printed}instead of\n{expected}")
    counts = {kind: list(kinds.values()).count(kind) for kind in ("sized", "lent", "final")}
    print(f"abi: {len(grown)} structs grew by a field ({counts['sized']} sized, {counts['lent']} lent; "
          f"{counts['final']} are final); {len(clients)} programs, {failed} of them differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
