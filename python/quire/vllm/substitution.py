"""Puts Quire's classes in the place of vLLM's own, in this process.

    vllm.v1.core.kv_cache_utils.get_request_block_hasher ──┐
    vllm.v1.engine.core                                    ├──► quire.vllm.get_request_block_hasher
      (has imported it)                                    ┘

A name is bound anew where vLLM defines it, so that whoever imports it later gets ours, and in every
module of vLLM that has it already. Objects that were made before stay what they are.
"""
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .version import check

# name: vLLM's module, and ours
PLACES = {"Scheduler": ("vllm.v1.core.sched.scheduler", "quire.vllm"),
          "AsyncScheduler": ("vllm.v1.core.sched.async_scheduler", "quire.vllm"),
          "get_request_block_hasher": ("vllm.v1.core.kv_cache_utils", "quire.vllm")}


class Substitution:
    """What was put in place; `undo()`, or the end of a `with` block, takes it away again."""

    def __init__(self, pairs: dict[str, tuple[Any, Any]]):
        self._pairs = pairs
        self.names = tuple(pairs)
        _rebind([(theirs, ours) for theirs, ours in pairs.values()])

    def undo(self) -> None:
        _rebind([(ours, theirs) for theirs, ours in self._pairs.values()])
        self._pairs = {}

    def __enter__(self) -> "Substitution":
        return self

    def __exit__(self, *_raised) -> None:
        self.undo()


def _rebind(pairs: list[tuple[Any, Any]]) -> None:
    """In all of vLLM's modules."""
    new_by_old = {id(old): new for old, new in pairs}
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] != "vllm" or module is None:
            continue
        found = [(name, new_by_old[id(value)]) for name, value in vars(module).items()
                 if id(value) in new_by_old]
        for name, value in found:
            setattr(module, name, value)


def place(places: dict[str, tuple[str, str]]) -> Substitution:
    """Rebinds each name of vLLM's module to ours."""
    check()
    pairs = {}
    for name, (their_module, our_module) in places.items():
        theirs = getattr(import_module(their_module), name)
        ours = getattr(import_module(our_module), name)
        if theirs is not ours:
            pairs[name] = theirs, ours
    return Substitution(pairs)


def substitute(only: Iterable[str] = tuple(PLACES)) -> Substitution:
    """Rebinds vLLM's names to Quire's: all of them, or those in `only`."""
    for name in only:
        if name not in PLACES:
            raise ValueError(f"quire.vllm.substitute: {name!r} is not one of {', '.join(PLACES)}")
    return place({name: PLACES[name] for name in only})
