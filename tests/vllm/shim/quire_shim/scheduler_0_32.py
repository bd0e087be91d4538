"""quire.vllm's schedulers for vLLM 0.32, open to those who look into them and write into them, as vLLM's
tests do. The cache's own classes are not here: the cache is shown as the drop-in shows it, with what
the tests of schedulers look at besides."""
import quire.vllm
from quire.vllm._v032 import kv_cache
from quire.vllm._v032.request import BoundRequest

from . import queues, request
from .opened import Opened


class WritableRequest(request.WritableRequest, BoundRequest):
    """With 0.32's counters."""


class Rows(dict):
    """req_to_blocks: the blocks of all requests in one group."""

    def __missing__(self, _name: str) -> list:
        return []


class Manager:
    """A single-type manager, to look at."""

    def __init__(self, cache: "KVCache", group: int, shown):
        self._cache, self._group = cache, group
        self.block_size, self.kv_cache_spec = shown.block_size, shown.kv_cache_spec

    @property
    def req_to_blocks(self) -> Rows:
        made = Rows()
        for name in self._cache._scheduler.requests:
            blocks = self._cache.get_blocks(name).blocks[self._group]
            if blocks:
                made[name] = blocks
        return made

    @property
    def num_cached_block(self) -> dict[str, int]:
        """Up to the last block that has a key."""
        return {name: max((i + 1 for i, block in enumerate(blocks) if block.block_hash), default=0)
                for name, blocks in self.req_to_blocks.items()}


class BlockPool(kv_cache.BlockPool):
    @property
    def cached_block_hash_to_block(self) -> dict[bytes, kv_cache.Block]:
        return {block.block_hash: block for block in self.blocks if block.block_hash is not None}


class KVCache(kv_cache.KVCache):
    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        super().__init__(scheduler, num_blocks)
        self.coordinator.single_type_managers = tuple(
            Manager(self, group, shown)
            for group, shown in enumerate(self.coordinator.single_type_managers))


class Scheduler(Opened, quire.vllm.Scheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler, with its inner parts."""

    bound_request, manager_class = WritableRequest, KVCache

    @property
    def kv_holding_waiting(self) -> queues.Waiting:
        return queues.Waiting(self, queues.SKIPPED)


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
