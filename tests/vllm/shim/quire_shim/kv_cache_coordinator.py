"""vLLM's KV-cache coordinators: all groups of a model on one Cache in C.

What a KVCacheManager does for a request is one call of the Cache. The steps that vLLM's
coordinators have beside that go through the managers, group by group.
"""
from collections.abc import Sequence

from _quire_shim import Cache

from .single_type_kv_cache_manager import (ALL_GROUPS, CrossAttentionManager, group_of,
                                           spec_manager_map)


def _groups_of(kv_cache_groups) -> list[tuple[int, ...]]:
    """Groups whose specs are equal get the same number."""
    known: list = []
    made = []
    for group in kv_cache_groups:
        spec = group.kv_cache_spec
        if spec not in known:
            known.append(spec)
        made.append(group_of(spec, group.is_eagle_group, known.index(spec)))
    return made


class KVCacheCoordinator:
    """As vLLM's: the base of the three."""

    def __init__(self, kv_cache_config, max_model_len: int, max_num_batched_tokens: int,
                 use_eagle: bool, enable_caching: bool, enable_kv_cache_events: bool,
                 dcp_world_size: int, pcp_world_size: int, hash_block_size: int,
                 metrics_collector=None) -> None:
        self._check(kv_cache_config.kv_cache_groups, enable_caching,
                    dcp_world_size * pcp_world_size, hash_block_size)
        cache = Cache(_groups_of(kv_cache_config.kv_cache_groups), kv_cache_config.num_blocks,
                      max_model_len, max_num_batched_tokens, hash_block_size, enable_caching,
                      use_eagle, dcp_world_size, pcp_world_size, enable_kv_cache_events)
        cache.pool.enable_kv_cache_events = enable_kv_cache_events
        cache.pool.metrics_collector = metrics_collector
        self._show(cache, kv_cache_config, max_model_len, use_eagle, enable_caching,
                   dcp_world_size, pcp_world_size, hash_block_size)

    def _show(self, cache: Cache, kv_cache_config, max_model_len: int, use_eagle: bool,
              enable_caching: bool, dcp_world_size: int, pcp_world_size: int,
              hash_block_size: int) -> None:
        groups = kv_cache_config.kv_cache_groups
        self._cache, self.block_pool = cache, cache.pool
        self.block_pool.hash_block_size = hash_block_size
        self.kv_cache_config, self.max_model_len = kv_cache_config, max_model_len
        self.enable_caching, self.hash_block_size = enable_caching, hash_block_size
        self.dcp_world_size, self.pcp_world_size = dcp_world_size, pcp_world_size
        self.eagle_group_ids = {i for i, group in enumerate(groups) if group.is_eagle_group}
        if use_eagle and not self.eagle_group_ids:
            self.eagle_group_ids = set(range(len(groups)))
        self.single_type_managers = tuple(
            spec_manager_map[type(group.kv_cache_spec)].view(
                cache, i, group.kv_cache_spec, enable_caching, dcp_world_size, pcp_world_size)
            for i, group in enumerate(groups))
        self.num_single_type_manager = len(groups)
        if len(groups) == 1:
            self.kv_cache_spec = groups[0].kv_cache_spec
            self.block_size = self.single_type_managers[0].block_size

    @classmethod
    def view(cls, cache: Cache, *args) -> "KVCacheCoordinator":
        """The cache of a scheduler."""
        self = cls.__new__(cls)
        self._show(cache, *args)
        return self

    @staticmethod
    def _check(groups, enable_caching: bool, ranks: int, hash_block_size: int) -> None:
        """What a kind of coordinator asks of its groups."""

    # -- steps

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int,
                                   new_computed_blocks: tuple[Sequence, ...],
                                   num_encoder_tokens: int, total_computed_tokens: int,
                                   num_tokens_main_model: int) -> int:
        total = 0
        for manager, hits in zip(self.single_type_managers, new_computed_blocks):
            if isinstance(manager, CrossAttentionManager):
                total += manager.get_num_blocks_to_allocate(request_id, num_encoder_tokens, [], 0,
                                                            num_encoder_tokens)
            else:
                total += manager.get_num_blocks_to_allocate(request_id, num_tokens, hits,
                                                            total_computed_tokens,
                                                            num_tokens_main_model)
        return total

    def allocate_new_computed_blocks(self, request_id: str,
                                     new_computed_blocks: tuple[Sequence, ...],
                                     num_local_computed_tokens: int,
                                     num_external_computed_tokens: int) -> None:
        for manager, hits in zip(self.single_type_managers, new_computed_blocks):
            manager.allocate_new_computed_blocks(request_id, hits, num_local_computed_tokens,
                                                 num_external_computed_tokens)

    def allocate_new_blocks(self, request_id: str, num_tokens: int, num_tokens_main_model: int,
                            num_encoder_tokens: int = 0) -> tuple[list, ...]:
        return tuple(manager.allocate_new_blocks(
            request_id,
            num_encoder_tokens if isinstance(manager, CrossAttentionManager) else num_tokens,
            num_tokens_main_model) for manager in self.single_type_managers)

    def cache_blocks(self, request, num_computed_tokens: int) -> None:
        if self._cache.has(request.request_id):
            self._cache.cache_blocks(request, num_computed_tokens, ALL_GROUPS)

    def free(self, request_id: str) -> None:
        for manager in self.single_type_managers:
            if request_id in manager.req_to_blocks.written:
                manager.free(request_id)
        self._cache.free(request_id, ALL_GROUPS)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        self._cache.remove_skipped(request_id, total_computed_tokens, ALL_GROUPS)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return [manager.get_num_common_prefix_blocks(running_request_id)
                for manager in self.single_type_managers]

    def get_blocks(self, request_id: str) -> tuple[list, ...]:
        return self._cache.blocks(request_id)

    def find_longest_cache_hit(self, block_hashes: list[bytes],
                               max_cache_hit_length: int) -> tuple[tuple[list, ...], int]:
        return self._cache.find(block_hashes, max_cache_hit_length + 1)

    def new_step_starts(self) -> None:
        self._cache.new_step()


class KVCacheCoordinatorNoPrefixCache(KVCacheCoordinator):
    """Any number of groups, also none; nothing is cached."""

    def __init__(self, kv_cache_config, max_model_len: int, max_num_batched_tokens: int,
                 use_eagle: bool, enable_kv_cache_events: bool, dcp_world_size: int,
                 pcp_world_size: int, hash_block_size: int, metrics_collector=None) -> None:
        super().__init__(kv_cache_config, max_model_len, max_num_batched_tokens, use_eagle, False,
                         enable_kv_cache_events, dcp_world_size, pcp_world_size, hash_block_size,
                         metrics_collector)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> list[int]:
        return [0] * self.num_single_type_manager

    def find_longest_cache_hit(self, block_hashes: list[bytes],
                               max_cache_hit_length: int) -> tuple[tuple[list, ...], int]:
        return tuple([] for _ in self.single_type_managers), 0


class UnitaryKVCacheCoordinator(KVCacheCoordinator):
    """One group."""

    @staticmethod
    def _check(groups, enable_caching: bool, ranks: int, hash_block_size: int) -> None:
        assert len(groups) == 1, f"{len(groups)} KV cache groups, where there must be one"
        size = groups[0].kv_cache_spec.block_size * ranks
        assert not enable_caching or hash_block_size == size, \
            f"hash_block_size is {hash_block_size}, where one group's block size is {size}"


class HybridKVCacheCoordinator(KVCacheCoordinator):
    """Several groups, of at least two kinds."""

    @staticmethod
    def _check(groups, enable_caching: bool, ranks: int, hash_block_size: int) -> None:
        assert ranks == 1, "context parallelism goes with one KV cache group only"
        for group in groups:
            size = group.kv_cache_spec.block_size
            assert size % hash_block_size == 0, \
                f"block size {size} is not a multiple of hash_block_size {hash_block_size}"
        assert any(group.kv_cache_spec != groups[0].kv_cache_spec for group in groups), \
            f"{len(groups)} KV cache groups that are all alike"


def get_coordinator_class(kv_cache_config, enable_caching: bool) -> type[KVCacheCoordinator]:
    if not enable_caching:
        return KVCacheCoordinatorNoPrefixCache
    is_one = len(kv_cache_config.kv_cache_groups) == 1
    return UnitaryKVCacheCoordinator if is_one else HybridKVCacheCoordinator


def get_kv_cache_coordinator(kv_cache_config, max_model_len: int, max_num_batched_tokens: int,
                             use_eagle: bool, enable_caching: bool, enable_kv_cache_events: bool,
                             dcp_world_size: int, pcp_world_size: int, hash_block_size: int,
                             metrics_collector=None) -> KVCacheCoordinator:
    kind = get_coordinator_class(kv_cache_config, enable_caching)
    caching = (enable_caching,) if enable_caching else ()
    return kind(kv_cache_config, max_model_len, max_num_batched_tokens, use_eagle, *caching,
                enable_kv_cache_events, dcp_world_size, pcp_world_size, hash_block_size,
                metrics_collector)
