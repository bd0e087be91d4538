#!/usr/bin/env python3
"""What others say of the text: promtool, and the parsers of Python's prometheus_client.

    check_exposition.py PROGRAM      PROGRAM is test_exposition, which writes a text with --write

promtool must find nothing in Quire's own names. vLLM's names have colons, and one of its histograms
ends with _total: those two remarks are vLLM's, and no others may come. prometheus_client is looked
for in this Python and in that of QUIRE_VLLM_PYTHON. Without both tools the test is skipped (77).
"""
import os
import shutil
import subprocess
import sys

NAMES = ("quire", "vllm", "both")
VLLMS_OWN = ("metric names should not contain ':'",
             'non-counter metrics should not have "_total" suffix')
PARSE = """
import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
families = list((openmetrics if sys.argv[1] == 'openmetrics' else prometheus)(sys.stdin.read()))
names = [f.name for f in families]
assert len(set(names)) == len(names), 'a family twice'
assert all(f.type != 'unknown' and f.documentation for f in families)
model = {s.labels['model_name'] for f in families for s in f.samples}
assert model == {'a "model"\\\\with\\nall'}, model
print(len(families), sum(len(f.samples) for f in families))
"""


def write(program, names, form):
    return subprocess.run([program, "--write", names, form], check=True, capture_output=True,
                          text=True).stdout


def check_promtool(program):
    for names in NAMES:
        done = subprocess.run(["promtool", "check", "metrics"], text=True, capture_output=True,
                              input=write(program, names, "prometheus"))
        said = [line for line in (done.stdout + done.stderr).splitlines() if line]
        foreign = [line for line in said
                   if not (line.startswith("vllm:") and line.endswith(VLLMS_OWN))]
        if foreign or (names == "quire" and done.returncode != 0) or done.returncode not in (0, 3):
            sys.exit(f"promtool on {names}: {done.returncode}\n" + "\n".join(said))
        print(f"promtool, {names}: {len(said)} remarks, all on vLLM's own names")


def find_python():
    for python in (sys.executable, os.environ.get("QUIRE_VLLM_PYTHON")):
        if python and subprocess.run([python, "-c", "import prometheus_client"],
                                     capture_output=True).returncode == 0:
            return python
    return None


def check_client(program, python):
    for names in NAMES:
        for form in ("prometheus", "openmetrics"):
            done = subprocess.run([python, "-c", PARSE, form], text=True, capture_output=True,
                                  input=write(program, names, form))
            if done.returncode != 0:
                sys.exit(f"prometheus_client on {names}, {form}:\n{done.stderr}")
            families, samples = done.stdout.split()
            print(f"prometheus_client, {names}, {form}: {families} families, {samples} samples")


def main():
    program = sys.argv[1]
    has_promtool = shutil.which("promtool") is not None
    python = find_python()
    if has_promtool:
        check_promtool(program)
    if python:
        check_client(program, python)
    if not has_promtool and not python:
        print("skipped: neither promtool nor prometheus_client")
        sys.exit(77)


main()
