"""The shim's tests stand on those of the drop-in, in python/tests.

    PYTHONPATH=build/python/site:build/python/cmake/shim python -m pytest tests/vllm/shim/tests
"""
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[3] / "python" / "tests"), str(HERE.parent)]


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="first seed of the tests that draw")
    parser.addoption("--count", type=int, default=20, help="how many seeds")
    parser.addoption("--platform", help="module to import before vLLM, where there is no GPU")
