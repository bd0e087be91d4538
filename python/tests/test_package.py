"""The README's program runs, and the stubs name what is there."""

import ast
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


SOURCES = PYTHON / "src" / "core"


def settings_in(name, table):
    """The names in the rows of a table of fields."""
    text = (SOURCES / name).read_text()
    rows = text[text.index(f"{table}[] = {{"):]
    rows = rows[:rows.index("PY_FIELDS_END")]
    return set(re.findall(r'\b[A-Z][A-Z0-9_]*\((?:quire_\w+,\s*)?"?(\w+)', rows))


def test_signatures_name_every_setting():
    """help() shows what the tables of the extension take, and all of that is taken."""
    cache = settings_in("cache.c", "cache_fields")
    own = settings_in("cache.c", "own_fields")
    assert "digest_bytes" in own
    sched = settings_in("sched.c", "config_fields") | settings_in("sched.c", "copies_field")
    others = {"plan", "groups", "block_size"}
    hashing = {"prefix_caching_hash_algo", "seed", "none_hash", "max_extra_bytes"}
    request = settings_in("request.c", "request_fields") | {
        "eos_token_id", "stop_token_ids", "lora_name", "lora_path", "cache_salt", "mm_inputs"}
    told = {
        quire.Cache: cache | own | others,
        quire.Scheduler: cache | sched | others | hashing | {"snapshots"},
        quire.Plan: settings_in("plan.c", "plan_fields") | {"layers", "memory_bytes"},
        quire.Scheduler.add: request | {"id", "prompt"},
        quire.Scheduler.fork: request | {"req", "id", "tail"},
        quire.Scheduler.continue_request: request | {"req", "prompt"},
    }
    for what, names in told.items():
        parameters = inspect.signature(what).parameters
        assert set(parameters) - {"self"} == names, what
        assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values()), what
    for kind in (quire.Cache, quire.Scheduler):
        defaults = {n: p.default for n, p in inspect.signature(kind).parameters.items()}
        kind(**{**defaults, "num_gpu_blocks": 100, "max_model_len": 100})
    sched = quire.Scheduler(num_gpu_blocks=100, max_model_len=100)
    for call, *given in ((sched.add, "a", [1, 2]),):
        defaults = {n: p.default for n, p in inspect.signature(call).parameters.items()
                    if p.kind is p.KEYWORD_ONLY}
        assert call(*given, **defaults) > 0


def test_the_program_is_a_command():
    """Where the package was installed with pip, `quire` stands beside its interpreter."""
    command = shutil.which("quire", path=str(Path(sys.executable).parent))
    own = Path(quire.__file__).parent / "bin" / "quire"
    if command is None or not own.exists():
        pytest.skip("not installed with a program")
    told = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert told.returncode == 0 and quire.__version__ in told.stdout
    wrong = subprocess.run([command, "replay", "--no-such-option"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no-such-option" in wrong.stderr


def test_the_command_without_a_program(monkeypatch, tmp_path):
    from quire import program

    monkeypatch.setattr(program, "__file__", str(tmp_path / "program.py"))
    with pytest.raises(SystemExit, match="built without the program"):
        program.main()
