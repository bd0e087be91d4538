"""vLLM's KVCacheManager on a quire_cache: lookups, allocation and freeing are one call in C each.

    manager = KVCacheManager(kv_cache_config, max_model_len, hash_block_size)    has a cache
    manager = KVCacheManager.of_core(core, kv_cache_config, ...)                 shows a scheduler's
"""
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.metrics.stats import PrefixCacheStats

from _quire_shim import Cache

from .kv_cache_coordinator import get_coordinator_class, get_kv_cache_coordinator

__all__ = ["KVCacheBlocks", "KVCacheManager"]


class KVCacheManager:
    """As vllm.v1.core.kv_cache_manager.KVCacheManager."""

    def __init__(self, kv_cache_config, max_model_len: int, hash_block_size: int,
                 max_num_batched_tokens: int | None = None, enable_caching: bool = True,
                 use_eagle: bool = False, log_stats: bool = False,
                 enable_kv_cache_events: bool = False, dcp_world_size: int = 1,
                 pcp_world_size: int = 1, metrics_collector=None) -> None:
        if max_num_batched_tokens is None:
            max_num_batched_tokens = max_model_len
        self.metrics_collector = metrics_collector
        self._show(get_kv_cache_coordinator(
            kv_cache_config, max_model_len, max_num_batched_tokens, use_eagle, enable_caching,
            enable_kv_cache_events, dcp_world_size, pcp_world_size, hash_block_size,
            metrics_collector), use_eagle, log_stats)

    def _show(self, coordinator, use_eagle: bool, log_stats: bool) -> None:
        self.coordinator, self._cache = coordinator, coordinator._cache
        self.kv_cache_config = coordinator.kv_cache_config
        self.max_model_len = coordinator.max_model_len
        self.enable_caching, self.use_eagle = coordinator.enable_caching, use_eagle
        self.log_stats = log_stats
        self.prefix_cache_stats = PrefixCacheStats() if log_stats else None
        self.block_pool = coordinator.block_pool
        self.num_kv_cache_groups = len(self.kv_cache_config.kv_cache_groups)
        self.empty_kv_cache_blocks = KVCacheBlocks(((),) * self.num_kv_cache_groups)

    @classmethod
    def of_core(cls, core, kv_cache_config, max_model_len: int, hash_block_size: int,
                enable_caching: bool, use_eagle: bool = False, dcp_world_size: int = 1,
                pcp_world_size: int = 1) -> "KVCacheManager":
        """The cache of a scheduler: to look at, and to evict and touch blocks. Allocating and
        freeing are the scheduler's, and so are stats and events."""
        self = cls.__new__(cls)
        self.metrics_collector = None
        kind = get_coordinator_class(kv_cache_config, enable_caching)
        self._show(kind.view(Cache.of_core(core), kv_cache_config, max_model_len, use_eagle,
                             enable_caching, dcp_world_size, pcp_world_size, hash_block_size),
                   use_eagle, False)
        return self

    # -- lookup and allocation

    def get_computed_blocks(self, request) -> tuple[KVCacheBlocks, int]:
        if not self.enable_caching or request.skip_reading_prefix_cache:
            return self.empty_kv_cache_blocks, 0
        num_tokens = request.num_tokens
        blocks, num_hits = self._cache.find(request.block_hashes, num_tokens)
        if self.log_stats:
            self.prefix_cache_stats.record(num_tokens=num_tokens, num_hits=num_hits,
                                           preempted=request.num_preemptions > 0)
        return self.create_kv_cache_blocks(blocks), num_hits

    def can_fit_full_sequence(self, request, num_new_computed_tokens: int = 0,
                              new_computed_blocks: KVCacheBlocks | None = None,
                              num_external_computed_tokens: int = 0,
                              num_encoder_tokens: int = 0) -> bool:
        hits = None if new_computed_blocks is None else new_computed_blocks.blocks
        return self._cache.can_fit(request, num_new_computed_tokens, hits,
                                   num_external_computed_tokens, num_encoder_tokens)

    def allocate_slots(self, request, num_new_tokens: int, num_new_computed_tokens: int = 0,
                       new_computed_blocks: KVCacheBlocks | None = None,
                       num_lookahead_tokens: int = 0, num_external_computed_tokens: int = 0,
                       delay_cache_blocks: bool = False,
                       num_encoder_tokens: int = 0) -> KVCacheBlocks | None:
        if num_new_tokens == 0 and num_external_computed_tokens == 0:
            raise ValueError("allocate_slots: neither new nor external tokens")
        made = self._cache.allocate_slots(
            request, num_new_tokens, num_new_computed_tokens,
            None if new_computed_blocks is None else new_computed_blocks.blocks,
            num_lookahead_tokens, num_external_computed_tokens, delay_cache_blocks,
            num_encoder_tokens)
        if made is None:
            return None
        return KVCacheBlocks(made) if made else self.empty_kv_cache_blocks

    def cache_blocks(self, request, num_computed_tokens: int) -> None:
        if self.enable_caching:
            self.coordinator.cache_blocks(request, num_computed_tokens)

    def create_kv_cache_blocks(self, blocks: tuple[list, ...]) -> KVCacheBlocks:
        return KVCacheBlocks(blocks) if any(blocks) else self.empty_kv_cache_blocks

    # -- giving back

    def free(self, request) -> None:
        self.coordinator.free(request.request_id)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        self.coordinator.remove_skipped_blocks(request_id, total_computed_tokens)

    def evict_blocks(self, block_ids: set[int]) -> None:
        self.block_pool.evict_blocks(block_ids)

    def reset_prefix_cache(self) -> bool:
        if not self.block_pool.reset_prefix_cache():
            return False
        if self.log_stats:
            self.prefix_cache_stats.reset = True
        return True

    def new_step_starts(self) -> None:
        self.coordinator.new_step_starts()

    # -- looking

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        return self.create_kv_cache_blocks(self.coordinator.get_blocks(request_id))

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        return self._cache.block_ids(request_id)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return self.coordinator.get_num_common_prefix_blocks(running_request_id)

    def take_new_block_ids(self) -> list[int]:
        return [block_id for manager in self.coordinator.single_type_managers
                for block_id in manager.take_new_block_ids()]

    def take_events(self) -> list:
        return self.block_pool.take_events()

    def make_prefix_cache_stats(self) -> PrefixCacheStats | None:
        stats = self.prefix_cache_stats
        if self.log_stats:
            self.prefix_cache_stats = PrefixCacheStats()
        return stats
