"""The shim's tests stand on those of the drop-in, in python/tests.

    PYTHONPATH=build/python/site:build/python/cmake/shim python -m pytest tests/vllm/shim/tests
"""
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parents[3] / "python" / "tests"), str(HERE.parent)]


# Classes that the shim has for vLLM 0.20 alone.
OF_0_20 = {"test_abuse.py", "test_cache.py", "test_cache_misuse.py", "test_encoder.py", "test_memory.py",
           "test_pool.py", "test_queues.py"}


def is_0_32() -> bool:
    try:
        return version("vllm").startswith("0.32.")
    except PackageNotFoundError:
        return False


def pytest_ignore_collect(collection_path):
    return True if is_0_32() and collection_path.name in OF_0_20 else None


def pytest_addoption(parser):
    parser.addoption("--seed", type=int, default=0, help="first seed of the tests that draw")
    parser.addoption("--count", type=int, default=20, help="how many seeds")
    parser.addoption("--platform", help="module to import before vLLM, where there is no GPU")
