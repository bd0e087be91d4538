"""A KV connector of vLLM's, as the core calls it: the same calls with the same objects.

The core gives blocks as (id, users) or (id, users, hash, group); here they become vLLM's
KVCacheBlocks. They are what the blocks were at that moment.
"""
from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.v1.core.kv_cache_manager import KVCacheBlocks
from vllm.v1.core.kv_cache_utils import KVCacheBlock, make_block_hash_with_group_id


def block_of(block_id: int, ref_cnt: int, block_hash: bytes | None = None,
             group_id: int = 0) -> KVCacheBlock:
    block = KVCacheBlock(block_id, ref_cnt)
    block.is_null = block_id == 0
    if block_hash is not None:
        block.block_hash = make_block_hash_with_group_id(block_hash, group_id)
    return block


def calls_of(connector) -> dict:
    """What the core calls; nothing without a connector."""
    if connector is None:
        return {}
    if hasattr(connector, "bind_gpu_block_pool"):
        raise NotImplementedError("quire.vllm: connectors that hold blocks of the pool")
    if "Nixl" in type(connector).__name__:  # it cuts prompts of Mamba models in the Request
        raise NotImplementedError("quire.vllm: the Nixl connector")

    def alloc(request, blocks, num_external):
        made = KVCacheBlocks(tuple([block_of(*block) for block in group] for group in blocks))
        connector.update_state_after_alloc(request, made, num_external)

    def meta(scheduler_output):
        scheduler_output.kv_connector_metadata = connector.build_connector_meta(scheduler_output)

    def finished(request, block_ids):
        if isinstance(connector, SupportsHMA):
            return connector.request_finished_all_groups(request, block_ids)
        assert len(block_ids) == 1
        return connector.request_finished(request, block_ids[0])

    def match(request, num_local):
        return tuple(connector.get_num_new_matched_tokens(request, num_local))

    return {"match": match, "alloc": alloc, "meta": meta, "finished": finished,
            "reset": lambda: connector.reset_cache()}
