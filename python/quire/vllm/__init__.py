"""vLLM 0.20.x and 0.32.x on Quire: `--scheduler-cls quire.vllm.AsyncScheduler`, same decisions, in C.

    from quire.vllm import Scheduler, AsyncScheduler, get_request_block_hasher, substitute
    from quire.vllm import QuireConnector   # tiers below vLLM's KV cache, under either scheduler

Each name is found when it is first asked for: that needs vLLM, and a version that is not supported
is refused then. Importing the package alone does nothing, so that vLLM's look for plugins costs nothing.
"""
from importlib import import_module
from typing import Any

PLACES = {"Scheduler": "{release}.scheduler", "AsyncScheduler": "{release}.scheduler",
          "get_request_block_hasher": "hasher", "QuireConnector": "tiers.connector"}
__all__ = [*PLACES, "substitute"]


def __getattr__(name: str) -> Any:
    if name in PLACES:
        from .version import check

        place = PLACES[name].format(release=check())
        value = getattr(import_module(f".{place}", __name__), name)
    elif name == "substitute":
        from .substitution import substitute as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
