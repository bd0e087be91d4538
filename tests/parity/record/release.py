"""Which release of vLLM is recorded, and what the recorders must know of the differences.

    0.20    KVCacheManager has can_fit_full_sequence, Mamba mode "all", sinks, TQ_FULL
    0.32    allocate_slots asks itself; blocks may have several keys; window groups keep few of them
"""
from importlib.metadata import PackageNotFoundError, version


def installed():
    """0.20 without vLLM: who reads recordings imports recorder.py too, and records nothing."""
    try:
        return ".".join(version("vllm").split(".")[:2])
    except PackageNotFoundError:
        return "0.20"


RELEASE = installed()
IS_0_20 = RELEASE == "0.20"
assert RELEASE in ("0.20", "0.32"), f"no recorder for vLLM {RELEASE}"


class OrderedKeys(dict):
    """Stands in for a Python set, whose order changes from run to run: the order of insertion."""

    def add(self, key):
        self[key] = None


def order_sets():
    """The further keys of a block are removed, and told, in the order in which it got them."""
    if not IS_0_20:
        from vllm.v1.core import block_pool
        block_pool.set = OrderedKeys
