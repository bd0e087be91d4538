"""Kinds of layers: from vLLM's KVCacheSpec classes to the numbers of quire/layer.h."""
from vllm.v1 import kv_cache_interface as specs

from .version import part

MAMBA, CROSS = 8, 9
MAMBA_MODES = {"none": 0, "all": 1, "align": 2}

# Exact classes: a subclass that the release does not have would be another kind.
KINDS = {getattr(specs, name): kind for name, kind in part("layers").KINDS.items()}


def kind_of(spec) -> int:
    if type(spec) not in KINDS:
        raise NotImplementedError(f"quire.vllm: layers of {type(spec).__name__}; use vLLM's "
                                  "scheduler for this model")
    return KINDS[type(spec)]
