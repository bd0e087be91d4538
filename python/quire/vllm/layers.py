"""Kinds of layers: from vLLM's KVCacheSpec classes to the numbers of quire/layer.h."""
from vllm.v1 import kv_cache_interface as specs

MAMBA, CROSS = 8, 9
MAMBA_MODES = {"none": 0, "all": 1, "align": 2}

# Exact classes: a subclass that vLLM 0.20.0 does not have would be another kind.
KINDS = {specs.FullAttentionSpec: 1, specs.TQFullAttentionSpec: 2, specs.MLAAttentionSpec: 3,
         specs.SinkFullAttentionSpec: 4, specs.SlidingWindowSpec: 5, specs.SlidingWindowMLASpec: 6,
         specs.ChunkedLocalAttentionSpec: 7, specs.MambaSpec: MAMBA,
         specs.CrossAttentionSpec: CROSS}


def kind_of(spec) -> int:
    if type(spec) not in KINDS:
        raise NotImplementedError(f"quire.vllm: layers of {type(spec).__name__}; use vLLM's "
                                  "scheduler for this model")
    return KINDS[type(spec)]
