"""vLLM's BlockPool, KVCacheBlock, FreeKVCacheBlockQueue and BlockHashToBlockMap, in C.

Blocks, free queue and prefix cache are one quire_pool; the classes show it. See tests/vllm/shim/src/pool.h.
"""
from collections.abc import Iterator, MutableMapping

from vllm.distributed.kv_events import AllBlocksCleared, KVCacheEvent
from vllm.logger import init_logger

from _quire_shim import BlockHashToBlockMap, FreeKVCacheBlockQueue, KVCacheBlock, Pool
from quire.vllm.events import removed_event, stored_event

__all__ = ["BlockHashToBlockMap", "BlockPool", "FreeKVCacheBlockQueue", "KVCacheBlock"]

logger = init_logger(__name__)


class BlockPool(Pool):
    """BlockPool(num_gpu_blocks, enable_caching, hash_block_size, enable_kv_cache_events=False,
    metrics_collector=None): vLLM's of the same name."""

    def reset_prefix_cache(self) -> bool:
        """Takes all hashes; False while a block is in use."""
        if not self._reset():
            logger.warning("The prefix cache is not reset: %d blocks are in use",
                           self.num_gpu_blocks - self.get_num_free_blocks() - 1)
            return False
        if self.metrics_collector:
            self.metrics_collector.reset()
        logger.info("The prefix cache is reset")
        if self.enable_kv_cache_events:
            self.kv_event_queue.append(AllBlocksCleared())
        return True

    def take_events(self) -> list[KVCacheEvent]:
        """The events since the last call."""
        if not self.enable_kv_cache_events:
            return []
        events, self.kv_event_queue = self.kv_event_queue, []
        return events

    def _stored(self, request, hashes, group, first, parent, block_size) -> KVCacheEvent:
        return stored_event(request, hashes, group, first, parent, block_size)

    def _removed(self, block_hash: bytes) -> KVCacheEvent:
        return removed_event([block_hash[:-4]], int.from_bytes(block_hash[-4:], "big"))


class CachedBlocks(MutableMapping):
    """BlockHashToBlockMap._cache of a pool: a block for each key, or {block id: block} of several."""

    def __init__(self, of: BlockHashToBlockMap):
        self._map = of

    def __getitem__(self, key: bytes):
        return self._map._entry(key)

    def __setitem__(self, key: bytes, value) -> None:
        self._map._drop(key)
        for block in (value.values() if isinstance(value, dict) else (value,)):
            self._map.insert(key, block)

    def __delitem__(self, key: bytes) -> None:
        if not self._map._drop(key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._map._keys())

    def __len__(self) -> int:
        return len(self._map)

    def clear(self) -> None:
        for key in self._map._keys():
            self._map._drop(key)

    def __copy__(self) -> dict:
        return dict(self)

    def __repr__(self) -> str:
        return repr(dict(self))
