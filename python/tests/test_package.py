"""The README's program runs, and the stubs name what is there."""

import ast
import re
from pathlib import Path

import quire

PYTHON = Path(__file__).resolve().parent.parent


def test_readme_example(capsys):
    (program,) = re.findall(r"```python\n(.*?)```", (PYTHON / "README.md").read_text(), re.S)
    exec(compile(program, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "first found 0 tokens in the cache"
    assert lines[2] == "second found 96 tokens in the cache"


def test_stubs_name_everything():
    stub = ast.parse((PYTHON / "quire" / "_core.pyi").read_text())
    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    names = {*classes}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    real = {name for name in vars(quire._core) if not name.startswith("_")}
    assert {n for n in names if not n.startswith("_")} == real
    for name in ("Hasher", "Chain", "Pool", "Cache", "Plan", "Scheduler", "Step", "Outputs"):
        told = {n.name for n in classes[name].body if isinstance(n, ast.FunctionDef)}
        there = {n for n in vars(getattr(quire, name)) if not n.startswith("_")}
        assert {n for n in told if not n.startswith("_")} == there, name


def test_everything_has_a_docstring():
    for name in ("Hasher", "Chain", "Pool", "Cache", "Plan", "Scheduler", "Step", "Outputs"):
        kind = getattr(quire, name)
        assert kind.__doc__
        for member, value in vars(kind).items():
            if not member.startswith("_"):
                assert value.__doc__, f"{name}.{member}"


def test_version():
    header = PYTHON.parent / "include" / "quire" / "version.h"
    assert f'QUIRE_VERSION_STRING "{quire.__version__}"' in header.read_text()
