"""vLLM's single-type managers: one group of layers, whose rows of blocks are in a Cache in C.

    coordinator ── Cache ◄── FullAttentionManager, group 0      a view each: no state of its own
                     ▲
                     └────── SlidingWindowManager, group 1

A manager that is made by itself, on a BlockPool, has a Cache of one group on that pool.
"""
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar

from vllm.v1 import kv_cache_interface as specs

from _quire_shim import Cache

from quire.vllm.layers import MAMBA_MODES, kind_of

ALL_GROUPS = -1
NO_CAP = 2**32 - 1
SHORT_ROW = 16  # blocks that a row of a manager by itself begins with


def group_of(spec, is_eagle: bool = False, number: int = 0, ranks: int = 1) -> tuple[int, ...]:
    """What decisions depend on, as Cache reads it; equal numbers are equal specs."""
    sizes = [getattr(spec, name, None) or 0
             for name in ("sliding_window", "attention_chunk_size", "sink_len")]
    return (kind_of(spec), spec.block_size * ranks, *sizes,
            MAMBA_MODES[getattr(spec, "mamba_cache_mode", "none")],
            getattr(spec, "num_speculative_blocks", 0), int(is_eagle), number)


class _Rows(MutableMapping):
    """{request id: list of its blocks} of one group. A list is a copy of the row. One that is
    written here is kept as it is, and is what the request has from then on."""

    def __init__(self, cache: Cache, index: int):
        self._cache, self._index = cache, index
        self.written: dict[str, list] = {}

    def __getitem__(self, request_id: str) -> list:
        if request_id in self.written:
            return self.written[request_id]
        return self._cache.row(self._index, request_id)[0]

    def get(self, request_id: str, default=None):
        return self[request_id] if request_id in self else default

    def __setitem__(self, request_id: str, blocks: list) -> None:
        if self._cache.is_shown:
            raise RuntimeError("this KV cache belongs to a scheduler, which alone gives blocks")
        if self._cache.has(request_id):
            raise RuntimeError(f"the request {request_id!r} has blocks; free them first")
        self.written[request_id] = blocks

    def __delitem__(self, request_id: str) -> None:
        if request_id not in self.written:
            raise RuntimeError("a row ends with free(), which gives its blocks back")
        del self.written[request_id]

    def __contains__(self, request_id: object) -> bool:
        return request_id in self.written or self._cache.has(request_id)

    def __iter__(self) -> Iterator[str]:
        return iter([*self._cache.ids(), *self.written])

    def __len__(self) -> int:
        return len(self._cache.ids()) + len(self.written)


class _Cached(MutableMapping):
    """{request id: how many of its blocks have keys, or need none}."""

    def __init__(self, cache: Cache, index: int):
        self._cache, self._index = cache, index

    def __getitem__(self, request_id: str) -> int:
        count = self._cache.row(self._index, request_id)[1]
        if count is None:
            raise KeyError(request_id)
        return count

    def __iter__(self) -> Iterator[str]:
        return iter([name for name in self._cache.ids() if name in self])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _refuse(self, request_id: str, count: int = 0) -> None:
        raise TypeError("num_cached_block is kept in C; cache_blocks() and free() change it")

    __setitem__ = __delitem__ = _refuse


class SingleTypeKVCacheManager:
    """As vLLM's: the base of all kinds."""

    kinds: ClassVar[tuple[type, ...]] = ()

    def __init__(self, kv_cache_spec, block_pool, enable_caching: bool, kv_cache_group_id: int,
                 dcp_world_size: int = 1, pcp_world_size: int = 1,
                 max_admission_blocks_per_request: int | None = None) -> None:
        size = kv_cache_spec.block_size * dcp_world_size * pcp_world_size
        cap = max_admission_blocks_per_request
        caching = enable_caching and type(kv_cache_spec) is not specs.CrossAttentionSpec
        cache = Cache([group_of(kv_cache_spec)], block_pool.num_gpu_blocks, size * SHORT_ROW, 0, 0,
                      caching, False, dcp_world_size, pcp_world_size, False, block_pool,
                      kv_cache_group_id, NO_CAP if cap is None else min(cap, NO_CAP))
        self._show(cache, 0, kv_cache_spec, enable_caching, kv_cache_group_id, dcp_world_size,
                   pcp_world_size)
        self._max_admission_blocks_per_request = cap

    def _show(self, cache: Cache, index: int, spec, enable_caching: bool, group_id: int,
              dcp_world_size: int, pcp_world_size: int) -> None:
        self._cache, self._index = cache, index
        self.kv_cache_spec, self.block_pool = spec, cache.pool
        self.block_size = spec.block_size * dcp_world_size * pcp_world_size
        self.dcp_world_size, self.pcp_world_size = dcp_world_size, pcp_world_size
        self.enable_caching, self.kv_cache_group_id = enable_caching, group_id
        self.req_to_blocks = _Rows(cache, index)
        self.num_cached_block = _Cached(cache, index)

    @classmethod
    def view(cls, cache: Cache, index: int, spec, enable_caching: bool, dcp_world_size: int,
             pcp_world_size: int) -> "SingleTypeKVCacheManager":
        """One group of a coordinator's cache."""
        self = cls.__new__(cls)
        self._show(cache, index, spec, enable_caching, index, dcp_world_size, pcp_world_size)
        return self

    @property
    def _null_block(self):
        return self.block_pool.null_block

    def __getattr__(self, name: str) -> Any:
        """What the spec says: sliding_window, attention_chunk_size, mamba_cache_mode, ..."""
        if name.startswith("_") or name == "kv_cache_spec":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.kv_cache_spec, name)

    def _refuse_written(self, request_id: str) -> None:
        if request_id in self.req_to_blocks.written:
            raise RuntimeError(f"the blocks of {request_id!r} were written into req_to_blocks, and "
                               "can only be looked at, trimmed and freed")

    # -- steps

    def get_num_blocks_to_allocate(self, request_id: str, num_tokens: int,
                                   new_computed_blocks: Sequence, total_computed_tokens: int,
                                   num_tokens_main_model: int) -> int:
        self._refuse_written(request_id)
        return self._cache.need(self._index, request_id, num_tokens, new_computed_blocks,
                                total_computed_tokens, num_tokens_main_model)

    def allocate_new_computed_blocks(self, request_id: str, new_computed_blocks: Sequence,
                                     num_local_computed_tokens: int,
                                     num_external_computed_tokens: int) -> None:
        self._refuse_written(request_id)
        self._cache.keep(self._index, request_id, new_computed_blocks, num_local_computed_tokens,
                         num_external_computed_tokens)

    def allocate_new_blocks(self, request_id: str, num_tokens: int,
                            num_tokens_main_model: int) -> list:
        self._refuse_written(request_id)
        return self._cache.allocate(self._index, request_id, num_tokens, num_tokens_main_model)

    def take_new_block_ids(self) -> list[int]:
        return self._cache.take_new(self._index)

    def cache_blocks(self, request, num_tokens: int) -> None:
        self._refuse_written(request.request_id)
        if num_tokens >= self.block_size:
            self._cache.cache_blocks(request, num_tokens, self._index)

    def free(self, request_id: str) -> None:
        blocks = self.req_to_blocks.written.pop(request_id, None)
        if blocks is not None:
            self.block_pool.free_blocks(block for block in reversed(blocks) if block.ref_cnt > 0)
            return
        self._cache.free(request_id, self._index)

    def remove_skipped_blocks(self, request_id: str, total_computed_tokens: int) -> None:
        blocks = self.req_to_blocks.written.get(request_id)
        if blocks is None:
            self._cache.remove_skipped(request_id, total_computed_tokens, self._index)
            return
        end = min(self.get_num_skipped_tokens(total_computed_tokens) // self.block_size,
                  len(blocks))
        for i in reversed(range(end)):  # down to one that is gone already
            if blocks[i].is_null:
                break
            if blocks[i].ref_cnt > 0:
                self.block_pool.free_blocks([blocks[i]])
            blocks[i] = self._null_block

    def get_num_skipped_tokens(self, num_computed_tokens: int) -> int:
        return self._cache.skipped(self._index, num_computed_tokens)

    def get_num_common_prefix_blocks(self, running_request_id: str) -> int:
        return self._cache.common_prefix(self._index, running_request_id)

    def new_step_starts(self) -> None:
        self._cache.new_step()

    # -- lookup

    @classmethod
    def find_longest_cache_hit(cls, block_hashes: Sequence[bytes], max_length: int,
                               kv_cache_group_ids: list[int], block_pool, kv_cache_spec,
                               use_eagle: bool, alignment_tokens: int, dcp_world_size: int = 1,
                               pcp_world_size: int = 1) -> tuple[list, ...]:
        assert isinstance(kv_cache_spec, cls.kinds), \
            f"{cls.__name__} is not for groups of {type(kv_cache_spec).__name__}"
        ranks = dcp_world_size * pcp_world_size
        assert ranks == 1 or issubclass(cls, FullAttentionManager), \
            f"{cls.__name__} knows no context parallelism"
        return Cache.find_hit(block_pool, [group_of(kv_cache_spec, ranks=ranks)], block_hashes,
                              max_length, list(kv_cache_group_ids), use_eagle, alignment_tokens)


class FullAttentionManager(SingleTypeKVCacheManager):
    kinds = (specs.FullAttentionSpec, specs.ChunkedLocalAttentionSpec)


class SlidingWindowManager(SingleTypeKVCacheManager):
    kinds = (specs.SlidingWindowSpec,)


class ChunkedLocalAttentionManager(SingleTypeKVCacheManager):
    kinds = (specs.ChunkedLocalAttentionSpec,)


class MambaManager(SingleTypeKVCacheManager):
    kinds = (specs.MambaSpec,)


class CrossAttentionManager(SingleTypeKVCacheManager):
    kinds = (specs.CrossAttentionSpec,)

    def cache_blocks(self, request, num_tokens: int) -> None:
        raise ValueError("blocks of cross attention belong to one request, and are never cached")

    @classmethod
    def find_longest_cache_hit(cls, *args, **kwargs) -> tuple[list, ...]:
        raise NotImplementedError("blocks of cross attention are never cached: there are no hits")


class SinkFullAttentionManager(FullAttentionManager):
    @property
    def sink_blocks(self) -> list:
        return self._cache.sinks(self._index)


spec_manager_map: dict[type, type[SingleTypeKVCacheManager]] = {
    specs.FullAttentionSpec: FullAttentionManager,
    specs.TQFullAttentionSpec: FullAttentionManager,
    specs.MLAAttentionSpec: FullAttentionManager,
    specs.SlidingWindowSpec: SlidingWindowManager,
    specs.SlidingWindowMLASpec: SlidingWindowManager,
    specs.ChunkedLocalAttentionSpec: ChunkedLocalAttentionManager,
    specs.MambaSpec: MambaManager,
    specs.CrossAttentionSpec: CrossAttentionManager,
    specs.SinkFullAttentionSpec: SinkFullAttentionManager,
}
_CAPPED = (specs.SlidingWindowSpec, specs.ChunkedLocalAttentionSpec)


def get_manager_for_kv_cache_spec(kv_cache_spec, max_num_batched_tokens: int, max_model_len: int,
                                  **kwargs) -> SingleTypeKVCacheManager:
    make: Callable[..., SingleTypeKVCacheManager] = spec_manager_map[type(kv_cache_spec)]
    if isinstance(kv_cache_spec, _CAPPED):
        kwargs["max_admission_blocks_per_request"] = kv_cache_spec.max_admission_blocks_per_request(
            max_num_batched_tokens=max_num_batched_tokens, max_model_len=max_model_len)
    return make(kv_cache_spec, **kwargs)
