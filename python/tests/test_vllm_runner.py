"""tests/vllm/run itself, with a vLLM and a Quire that are made up."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).resolve().parents[2] / "tests" / "vllm" / "run"

TESTS = """
import os
import pytest
import vllm
def test_same(): pass
def test_fails_on_both(): assert False
def test_needs_vllm(): assert vllm.IS_REAL, "quire is not vllm"
def test_needs_quire(): assert not vllm.IS_REAL
@pytest.mark.parametrize("n", [1, 2])
def test_listed(n): assert vllm.IS_REAL
def test_skipped(): pytest.skip("here")
def test_ends_the_process():
    if not vllm.IS_REAL: os._exit(3)
"""


@pytest.fixture
def run(tmp_path):
    """Runs it on a tree of one file; (status, what it printed)."""
    if not RUN.exists():
        pytest.skip("tests/vllm/run is not there")
    written = {
        "env/vllm/__init__.py": "__version__ = '0.20.9'\nIS_REAL = True\n",
        "env/quire_shim/__init__.py":
            "def substitute():\n    import vllm\n    vllm.IS_REAL = False\n",
        "env/quire_shim/scheduler.py": "",
        "tree/tests/__init__.py": "", "tree/tests/test_made_up.py": TESTS,
        "tree/vllm/__init__.py": "raise ImportError('this one is not built')\n",
        "files.txt": "# a comment\ntests\n",
        "cannot.tsv": "tests/test_made_up.py::test_listed\tit looks into vLLM\n"}
    for name, text in written.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def call(*more):
        done = subprocess.run(
            [sys.executable, RUN, tmp_path / "tree", "--python", sys.executable, "--package",
             tmp_path / "env", "--models", tmp_path, "--files", tmp_path / "files.txt", "--cannot",
             tmp_path / "cannot.tsv", "--work", tmp_path / "work", *map(str, more)], capture_output=True, text=True,
            env={**os.environ, "QUIRE_VLLM_PLATFORM": ""})
        return done.returncode, done.stdout + done.stderr

    return call


def test_differences_are_found(run):
    status, text = run()
    assert status == 1, text
    assert "vLLM:  5 passed, 2 failed, 1 skipped" in text
    assert "! tests/test_made_up.py::test_needs_vllm\n      vLLM passed, Quire failed: " \
           "AssertionError: quire is not vllm" in text
    assert "! tests/test_made_up.py::test_ends_the_process\n      vLLM passed, Quire crashed" in text
    assert "tests/test_made_up.py::test_listed[2]\n      vLLM passed, Quire failed: it looks" in text
    assert "2 pass on vLLM and not on Quire; 2 more cannot" in text
    assert "(known)" not in text


def test_nothing_differs_but_what_is_listed(run):
    status, text = run("-k", "same or listed or needs_quire")
    assert status == 0, text
    assert "0 pass on vLLM and not on Quire; 2 more cannot" in text
    for more, is_known in ((), True), (("--fresh",), False):
        assert ("(known)" in run("-k", "same or listed or needs_quire", *more)[1]) == is_known


def test_what_is_missing_is_said(run, tmp_path):
    status, text = run("--platform", tmp_path / "nowhere.py")
    assert status == 2 and "nowhere.py is not there" in text
    (tmp_path / "cannot.tsv").write_text("tests/test_made_up.py::test_listed\n")
    status, text = run()
    assert status == 2 and "test_listed has no reason" in text
    (tmp_path / "cannot.tsv").write_text("")
    (tmp_path / "env/vllm/__init__.py").write_text("__version__ = '0.21.0'\n")
    status, text = run()
    assert status == 2 and "has vLLM 0.21.0" in text
    (tmp_path / "tree/tests").rename(tmp_path / "tree/other")
    status, text = run()
    assert status == 2 and "no folder tests" in text
