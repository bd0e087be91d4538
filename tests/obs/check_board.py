#!/usr/bin/env python3
"""The board and the documentation name metrics that exist, and the documentation names all.

    check_board.py PROGRAM BOARD DOC      PROGRAM is test_exposition, which writes a text with --write

Where promtool is, it also reads every query of the board.
"""
import json
import re
import shutil
import subprocess
import sys
import tempfile

METRIC = re.compile(r"(?:quire_|vllm:)[a-z0-9_]+")


def sample_names(program):
    text = subprocess.run([program, "--write", "both", "prometheus"], check=True,
                          capture_output=True, text=True).stdout
    samples = {re.match(r"[^{ ]+", line)[0] for line in text.splitlines() if line[0] != "#"}
    families = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    return samples, families


def queries(board):
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def check_names(board, samples):
    for title, query in queries(board):
        for name in METRIC.findall(query):
            if name not in samples:
                sys.exit(f"board, {title}: there is no {name}")


def check_layout(board):
    seen = set()
    for panel in board["panels"]:
        if panel["id"] in seen:
            sys.exit(f"board: two panels have the id {panel['id']}")
        seen.add(panel["id"])
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            sys.exit(f"board: {panel['title']} is wider than the board")


def check_doc(path, families):
    with open(path, encoding="utf-8") as f:
        named = set(re.findall(r"`((?:quire_|vllm:)[a-z0-9_]+)`", f.read()))
    for name in families:
        if re.sub("_total$", "", name) not in named and name not in named:
            sys.exit(f"{path} does not name {name}")


def check_queries(board):
    rules = [{"record": f"panel:{i}", "expr": query.replace("$__rate_interval", "5m")}
             for i, (_, query) in enumerate(queries(board))]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f: # YAML reads JSON
        json.dump({"groups": [{"name": "board", "rules": rules}]}, f)
        f.flush()
        done = subprocess.run(["promtool", "check", "rules", f.name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    print(f"promtool: {len(rules)} queries of the board can be read")


def main():
    program, board_path, doc = sys.argv[1:]
    with open(board_path, encoding="utf-8") as f:
        board = json.load(f)
    samples, families = sample_names(program)
    check_names(board, samples)
    check_layout(board)
    check_doc(doc, families)
    if shutil.which("promtool"):
        check_queries(board)


main()
