"""Which release of vLLM is recorded, and what the recorders must know of the differences.

    0.20    KVCacheManager has can_fit_full_sequence, Mamba mode "all", sinks, TQ_FULL
    0.32    allocate_slots asks itself; blocks may have several keys; window groups keep few of them
"""
import functools
import inspect
import os
from importlib.metadata import PackageNotFoundError, version

KNOWN = ("0.20", "0.32")


def installed():
    """0.20 without vLLM: who reads recordings imports recorder.py too, and records nothing.
    QUIRE_VLLM_AS takes any release for the one that it names (tools/newer)."""
    if os.environ.get("QUIRE_VLLM_AS"):
        return os.environ["QUIRE_VLLM_AS"]
    try:
        return ".".join(version("vllm").split(".")[:2])
    except PackageNotFoundError:
        return "0.20"


RELEASE = installed()
IS_0_20 = RELEASE == "0.20"
assert RELEASE in KNOWN, f"no recorder for vLLM {RELEASE}"


class OrderedKeys(dict):
    """Stands in for a Python set, whose order changes from run to run: the order of insertion."""

    def add(self, key):
        self[key] = None


def order_sets():
    """The further keys of a block are removed, and told, in the order in which it got them."""
    if not IS_0_20:
        from vllm.v1.core import block_pool
        block_pool.set = OrderedKeys


def drop_unknown(function):
    """The function without the keywords that this release does not know; each is told once."""
    known = inspect.signature(function).parameters
    if any(p.kind == inspect.Parameter.VAR_KEYWORD for p in known.values()):
        return function
    told = set()

    @functools.wraps(function)
    def call(*args, **given):
        for name in given.keys() - known.keys() - told:
            told.add(name)
            print(f"dropped: {function.__qualname__}({name}=)", flush=True)
        return function(*args, **{name: value for name, value in given.items() if name in known})

    return call


def forgive():
    """With QUIRE_VLLM_AS: a keyword that another release does not have is dropped, so that the rest
    can be compared."""
    if not os.environ.get("QUIRE_VLLM_AS"):
        return
    from vllm.v1 import kv_cache_interface
    from vllm.v1.core import block_pool, kv_cache_manager
    from vllm.v1.core.sched import async_scheduler, scheduler
    for module in (kv_cache_interface, block_pool, kv_cache_manager, async_scheduler, scheduler):
        for owner in vars(module).values():
            if inspect.isclass(owner) and owner.__module__ == module.__name__:
                for name, function in list(vars(owner).items()):
                    is_open = name == "__init__" or not name.startswith("_")
                    if inspect.isfunction(function) and is_open:
                        setattr(owner, name, drop_unknown(function))
