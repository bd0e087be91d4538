"""Which of vLLM's names Quire has a stand-in for, and where each of them is found."""
from typing import NamedTuple

CORE = "vllm.v1.core."


class Place(NamedTuple):
    part: str    # what substitute(only=...) may ask for
    theirs: str  # vLLM's module
    ours: str    # the module of quire.vllm


def _table() -> dict[str, Place]:
    rows = (
        ("scheduler", "sched.scheduler", "scheduler", "Scheduler"),
        ("scheduler", "sched.async_scheduler", "scheduler", "AsyncScheduler"),
        ("hasher", "kv_cache_utils", "hasher", "get_request_block_hasher"),
        ("pool", "kv_cache_utils", "block_pool", "KVCacheBlock FreeKVCacheBlockQueue"),
        ("pool", "block_pool", "block_pool", "BlockHashToBlockMap BlockPool"),
        ("manager", "kv_cache_manager", "kv_cache_manager", "KVCacheBlocks KVCacheManager"),
        ("manager", "kv_cache_coordinator", "kv_cache_coordinator",
         "KVCacheCoordinator KVCacheCoordinatorNoPrefixCache UnitaryKVCacheCoordinator "
         "HybridKVCacheCoordinator get_kv_cache_coordinator"),
        ("manager", "single_type_kv_cache_manager", "single_type_kv_cache_manager",
         "SingleTypeKVCacheManager FullAttentionManager SlidingWindowManager "
         "ChunkedLocalAttentionManager MambaManager CrossAttentionManager "
         "SinkFullAttentionManager spec_manager_map get_manager_for_kv_cache_spec"),
        ("encoder", "encoder_cache_manager", "encoder_cache_manager",
         "EncoderCacheManager EncoderDecoderCacheManager"),
        ("queues", "sched.request_queue", "request_queue",
         "FCFSRequestQueue PriorityRequestQueue create_request_queue"))
    return {name: Place(part, CORE + theirs, ours)
            for part, theirs, ours, names in rows for name in names.split()}


PLACES = _table()
PARTS = tuple(dict.fromkeys(place.part for place in PLACES.values()))
