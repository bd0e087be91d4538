"""Puts Quire's classes in the place of vLLM's own, in this process.

    vllm.v1.core.block_pool.BlockPool ──┐
    vllm.v1.core.kv_cache_coordinator   ├──► quire.vllm.BlockPool
      (has imported it)                 ┘

A name is bound anew where vLLM defines it, so that whoever imports it later gets ours, and in every
module of vLLM that has it already. Objects that were made before stay what they are.
"""
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from .names import PARTS, PLACES
from .version import check


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


def _chosen(only: Iterable[str] | None) -> list[str]:
    if only is None:
        return list(PLACES)
    only = [only] if isinstance(only, str) else list(only)
    for wanted in only:
        if wanted not in PARTS and wanted not in PLACES:
            raise ValueError(f"quire.vllm.substitute: {wanted!r} is neither a part "
                             f"({', '.join(PARTS)}) nor a name that Quire stands in for")
    return [name for name, place in PLACES.items() if name in only or place.part in only]


def substitute(only: Iterable[str] | None = None) -> Substitution:
    """Rebinds vLLM's names to Quire's: all of them, or those of the parts or names in `only`.

    Quire's Scheduler has its own cache, queues and encoder cache: the other parts serve those who
    use vLLM's classes by themselves.
    """
    check()
    pairs = {}
    for name in _chosen(only):
        place = PLACES[name]
        theirs = getattr(import_module(place.theirs), name)
        ours = getattr(import_module("quire.vllm." + place.ours), name)
        if theirs is not ours:
            pairs[name] = theirs, ours
    return Substitution(pairs)
