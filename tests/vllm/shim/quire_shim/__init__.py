"""vLLM's own classes on Quire, one by one: what vLLM's unit tests take in their hands.

The wheel replaces vLLM's scheduler as a whole (quire.vllm). vLLM's tests also look into the
scheduler and write into it, and they use BlockPool, KVCacheManager, single-type managers, request
queues and encoder caches by themselves. The shim has these, as views on the same C library, so that
the tests run on Quire as they are. It is built for tests alone and is not part of the wheel. For vLLM
0.32 there are the schedulers alone.

    quire_shim          Python: the classes, and substitute()
    _quire_shim         C: tests/vllm/shim/src, and the drop-in's own files
"""
from importlib import import_module

from quire.vllm.substitution import Substitution, place
from quire.vllm.version import check

CORE = "vllm.v1.core."
SCHEDULERS = (("sched.scheduler", "scheduler_0_32", "Scheduler"),
              ("sched.async_scheduler", "scheduler_0_32", "AsyncScheduler"),
              ("kv_cache_utils", "hasher", "get_request_block_hasher"))
ROWS = SCHEDULERS if check() == "_v032" else (
    ("sched.scheduler", "scheduler", "Scheduler"),
    ("sched.async_scheduler", "scheduler", "AsyncScheduler"),
    ("kv_cache_utils", "hasher", "get_request_block_hasher"),
    ("kv_cache_utils", "block_pool", "KVCacheBlock FreeKVCacheBlockQueue"),
    ("block_pool", "block_pool", "BlockHashToBlockMap BlockPool"),
    ("kv_cache_manager", "kv_cache_manager", "KVCacheBlocks KVCacheManager"),
    ("kv_cache_coordinator", "kv_cache_coordinator",
     "KVCacheCoordinator KVCacheCoordinatorNoPrefixCache UnitaryKVCacheCoordinator "
     "HybridKVCacheCoordinator get_kv_cache_coordinator"),
    ("single_type_kv_cache_manager", "single_type_kv_cache_manager",
     "SingleTypeKVCacheManager FullAttentionManager SlidingWindowManager "
     "ChunkedLocalAttentionManager MambaManager CrossAttentionManager "
     "SinkFullAttentionManager spec_manager_map get_manager_for_kv_cache_spec"),
    ("encoder_cache_manager", "encoder_cache_manager",
     "EncoderCacheManager EncoderDecoderCacheManager"),
    ("sched.request_queue", "request_queue",
     "FCFSRequestQueue PriorityRequestQueue create_request_queue"))
# name: vLLM's module, and ours
PLACES = {name: (CORE + theirs, "quire.vllm" if ours == "hasher" else f"quire_shim.{ours}")
          for theirs, ours, names in ROWS for name in names.split()}


def substitute() -> Substitution:
    """Puts all of them in the place of vLLM's own, in this process. What vLLM derives from its
    schedulers stays vLLM's, as in an engine: it names that class by itself."""
    if ROWS is SCHEDULERS:
        import_module(CORE + "sched.diffusion_scheduler")
    return place(PLACES)
