"""scheduler.kv_cache_manager, as connectors and the engine of vLLM 0.32 see it."""
from types import SimpleNamespace

from .. import kv_cache as common


class BlockPool(common.BlockPool):
    def iter_blocks_after(self, cursor):
        """Free blocks behind one of them, in the order in which they will be taken."""
        block = (cursor or self.fake_free_list_head).next_free_block
        while block is not None and block is not self.fake_free_list_tail:
            yield block
            block = block.next_free_block


class KVCache(common.KVCache):
    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        super().__init__(scheduler, num_blocks)
        self.kv_cache_config = scheduler.kv_cache_config
        whole = scheduler._numbers["dcp_world_size"]
        self.coordinator = SimpleNamespace(single_type_managers=tuple(
            SimpleNamespace(block_size=group.kv_cache_spec.block_size * whole,
                            kv_cache_spec=group.kv_cache_spec)
            for group in self.kv_cache_config.kv_cache_groups))
