#!/usr/bin/env python3
"""Every field of every public struct is set or read by a test, and every field that a caller fills in
has its row in the table of ranges (src/api/fields.h).

    public_fields.py [ROOT]     prints what is missing; the exit status is 1 if anything is

A field counts as used when a test program that names its struct, a call that takes it, or a kit that
does, has `.field`, `->field` or `MACRO(field`; in Python tests, the field's name.
"""
import re
import sys
from pathlib import Path

# Structs that callers fill in, and that belong to the rooms behind src/api.
TABLE = """pool_config cache_full_params table_config hasher_config mm_feature extra_key group_config
cache_config cache_request allocate_params sched_config mm_input request_params model_output
monitor_config residency_config metrics_format""".split()

USE = r"(?:\.|->|\b[A-Z]+\()(\w+)"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def fields_of(body):
    """The names that a struct's body declares: also arrays and function pointers."""
    for line in re.sub(r"\{[^{}]*\}", " ", body).split(";"):
        pointer = re.search(r"\(\s*\*\s*(\w+)\s*\)", line)
        if pointer:
            yield pointer.group(1)
            continue
        for part in re.sub(r"\[[^\]]*\]", "", line).split(","):
            names = re.findall(r"\w+", part)
            if names:
                yield names[-1]


def public_structs(root):
    found = {}
    for header in sorted((root / "include/quire").glob("*.h")):
        text = without_comments(header.read_text())
        for name, body in re.findall(r"typedef struct (quire_\w+)\s*\{(.*?)\n\}\s*\1;", text, re.S):
            found[name] = list(fields_of(body))
    return found


def test_texts(root):
    """The text of each test program, and that text with the headers of the kits that it includes."""
    folders = [root / "tests", root / "python/tests"]
    files = [f for folder in folders for f in folder.rglob("*") if f.suffix in (".c", ".cpp", ".h", ".py")]
    texts = {f: f.read_text() for f in files}
    for f in files:
        todo = [f]
        for one in todo:
            for name in re.findall(r'#include "([^"]+)"', texts[one]):
                for header in (root / "tests" / name, one.parent / name):
                    if header in texts and header not in todo:
                        todo.append(header)
        yield texts[f], "".join(texts[one] for one in todo), f.suffix == ".py"


def ways_to_know(root, structs):
    """For each struct the words that show that a test knows it: its name, its INIT macro, calls that
    take or give it, and those of the structs that it is a part of."""
    text = without_comments("".join(f.read_text() for f in sorted((root / "include/quire").glob("*.h"))))
    known = {name: {name, name.upper() + "_INIT"} for name in structs}
    for declaration in re.findall(r"QUIRE_API[^;]*;", text):
        call = re.search(r"(quire_\w+)\(", declaration)
        for name in set(re.findall(r"quire_\w+", declaration)) & set(structs):
            known[name].add(call.group(1))
    bodies = dict(re.findall(r"typedef struct (quire_\w+)\s*\{(.*?)\n\}\s*\1;", text, re.S))
    for _ in range(3):
        for outer, body in bodies.items():
            for name in set(re.findall(r"quire_\w+", body)) & set(structs):
                known[name] |= known[outer]
    return known


def unused(root, structs):
    known = ways_to_know(root, structs)
    texts = [(set(re.findall(r"(?i)quire_\w+", types)),
              set(re.findall(r"\w+" if python else USE, text)))
             for text, types, python in test_texts(root)]
    for name, fields in structs.items():
        used = set().union(*(words for types, words in texts if known[name] & types))
        for field in fields:
            if field not in used:
                yield f"{name}.{field}: no test sets or reads it"


def without_row(root, structs):
    table = (root / "src/api/fields.h").read_text()
    for short in TABLE:
        name = "quire_" + short
        rows = re.search(r"#define QR_FIELDS_%s\(.*?(?:\n\n|\Z)" % name, table, re.S)
        listed = set(re.findall(r"(?:NUMBER|REAL|FLAG|ANY)\((\w+)", rows.group(0) if rows else ""))
        for field in structs[name]:
            if field not in listed:
                yield f"{name}.{field}: no row in src/api/fields.h"


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2])
    structs = public_structs(root)
    missing = [*unused(root, structs), *without_row(root, structs)]
    print(*missing, sep="\n", end="\n" if missing else "")
    print(f"public fields: {len(structs)} structs, {sum(map(len, structs.values()))} fields, {len(missing)} missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
