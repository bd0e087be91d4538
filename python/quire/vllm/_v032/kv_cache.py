"""scheduler.kv_cache_manager, as connectors and the engine of vLLM 0.32 see it."""
from collections.abc import Mapping
from types import SimpleNamespace

from .. import kv_cache as common


class Block(common.Block):
    """As vLLM's KVCacheBlock. How many tokens its key stands for is not kept with it."""

    __slots__ = ()
    block_hash_num_tokens = None


class FurtherHashes(Mapping):
    """block_pool.cached_block_hashes_by_block: hashes of a block beside its block_hash, of the blocks
    that have some. A connector that copies a block gives its copy all of them."""

    def __init__(self, pool: "BlockPool"):
        self._pool = pool

    def __getitem__(self, block_id: int) -> set[bytes]:
        found = set(self._pool._core.further_hashes(block_id))
        if not found:
            raise KeyError(block_id)
        return found

    def __iter__(self):
        return (i for i in range(self._pool.num_gpu_blocks) if self._pool._core.further_hashes(i))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class BlockPool(common.BlockPool):
    block_class = Block

    @property
    def cached_block_hashes_by_block(self) -> FurtherHashes:
        return FurtherHashes(self)

    def get_cached_block(self, block_hash: bytes, kv_cache_group_ids: list[int]):
        """The blocks of a hash, one for each group; None where a group has none."""
        found = [self._core.cached_block(block_hash, group) for group in kv_cache_group_ids]
        return None if None in found else [self.block_class(self, i) for i in found]

    def iter_blocks_after(self, cursor):
        """Free blocks behind one of them, in the order in which they will be taken."""
        block = (cursor or self.fake_free_list_head).next_free_block
        while block is not None and block is not self.fake_free_list_tail:
            yield block
            block = block.next_free_block


def size_of(spec, num_ranks: int) -> int:
    """Tokens in a block, over all ranks that share it."""
    return spec.block_size * (num_ranks if spec.dcp_sharded else 1)


class KVCache(common.KVCache):
    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        super().__init__(scheduler, num_blocks)
        self.kv_cache_config = scheduler.kv_cache_config
        whole = scheduler._numbers["dcp_world_size"]
        self.coordinator = SimpleNamespace(single_type_managers=tuple(
            SimpleNamespace(block_size=size_of(group.kv_cache_spec, whole),
                            kv_cache_spec=group.kv_cache_spec)
            for group in self.kv_cache_config.kv_cache_groups))
