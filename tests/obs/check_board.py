#!/usr/bin/env python3
"""The board and the documentation name metrics that exist, and the documentation names all. What
vLLM has too, the board asks for by vLLM's name, which both kinds of engines serve.

    check_board.py PROGRAM BOARD DOC CONNECTOR

PROGRAM is test_exposition, which writes a text with --write; CONNECTOR is python/quire/vllm/tiers/metrics.py,
whose table COUNTERS names what QuireConnector counts.

Where promtool is, it also reads every query of the board, and asks some of a fleet with both.
"""
import ast
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


def connector_names(path):
    with open(path, encoding="utf-8") as f:
        tree = ast.parse(f.read())
    tables = [node.value for node in tree.body
              if isinstance(node, ast.Assign) and node.targets[0].id == "COUNTERS"]
    return {f"vllm:quire_{name}_total" for name in ast.literal_eval(tables[0])}


def queries(board):
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def check_names(board, samples):
    for title, query in queries(board):
        for name in METRIC.findall(query):
            if name not in samples:
                sys.exit(f"board, {title}: there is no {name}")


def check_twins(board, doc):
    """Quire's name for what vLLM has too leaves out engines of vLLM; "or" between sums leaves out
    one of the two kinds."""
    with open(doc, encoding="utf-8") as f:
        twins = dict(re.findall(r"^\| `(quire_\w+)` \| `(vllm:\w+)` \|", f.read(), re.M))
    assert len(twins) > 20, twins
    for title, query in queries(board):
        for name in METRIC.findall(query):
            base = re.sub("_(total|bucket|sum|count)$", "", name)
            if base in twins:
                sys.exit(f"board, {title}: {name} is not served by vLLM, {twins[base]} by both")
        if re.search(r"\bor\b", query):
            sys.exit(f'board, {title}: "or" leaves out one kind of engines')


def check_layout(board):
    seen = set()
    taken = {}
    for panel in board["panels"]:
        if panel["id"] in seen:
            sys.exit(f"board: two panels have the id {panel['id']}")
        seen.add(panel["id"])
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            sys.exit(f"board: {panel['title']} is wider than the board")
        for cell in ((place["x"] + x, place["y"] + y) for x in range(place["w"])
                     for y in range(place["h"])):
            if cell in taken:
                sys.exit(f"board: {panel['title']} lies on {taken[cell]}")
            taken[cell] = panel["title"]


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


def counter(name, labels, a_minute):
    return {"series": f"{name}{{{labels}}}", "values": f"0+{a_minute}x10"}


def gauge(name, labels, value):
    return {"series": f"{name}{{{labels}}}", "values": f"{value}x10"}


def check_fleet(board):
    """One engine with Quire, which has both names, and one of vLLM, which has one: sums are of
    both, and the hit rate is that of all tokens."""
    quire = 'model_name="m",engine="0",instance="a"'
    vllm = 'model_name="n",engine="0",instance="b"'
    series = [gauge("quire_requests_running", quire, 69),
              gauge("vllm:num_requests_running", quire, 69),
              gauge("vllm:num_requests_running", vllm, 1000),
              gauge("quire_kv_cache_usage_ratio", quire, 0.5),
              gauge("vllm:kv_cache_usage_perc", quire, 0.5),
              gauge("vllm:kv_cache_usage_perc", vllm, 0.75),
              counter("quire_prefix_cache_queries_total", quire, 60),
              counter("quire_prefix_cache_hits_total", quire, 60),
              counter("vllm:prefix_cache_queries_total", quire, 60),
              counter("vllm:prefix_cache_hits_total", quire, 60),
              counter("vllm:prefix_cache_queries_total", vllm, 180),
              counter("vllm:prefix_cache_hits_total", vllm, 0)]
    wanted = {"Running": 1069, "KV cache in use, fullest engine": 0.75, "Prefix cache hits": 0.25}
    asked = [{"expr": re.sub(r"\$(model|engine)", ".*", query).replace("$__rate_interval", "5m"),
              "eval_time": "10m", "exp_samples": [{"labels": "{}", "value": wanted[title]}]}
             for title, query in queries(board) if title in wanted]
    assert len(asked) == len(wanted), asked
    test = {"rule_files": [], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": asked}]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(test, f)
        f.flush()
        done = subprocess.run(["promtool", "test", "rules", f.name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    print(f"promtool: {len(asked)} queries add up engines of Quire and of vLLM")


def main():
    program, board_path, doc, connector = sys.argv[1:]
    with open(board_path, encoding="utf-8") as f:
        board = json.load(f)
    samples, families = sample_names(program)
    counted = connector_names(connector)
    check_names(board, samples | counted)
    for name in counted:
        if not any(name in query for _, query in queries(board)):
            sys.exit(f"board: no panel has {name}")
    check_twins(board, doc)
    check_layout(board)
    check_doc(doc, families)
    if shutil.which("promtool"):
        check_queries(board)
        check_fleet(board)


if __name__ == "__main__":
    main()
