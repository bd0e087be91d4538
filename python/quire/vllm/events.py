"""vLLM's KV events, made as the core tells what its prefix cache did, and published by vLLM."""
import time

from vllm.distributed.kv_events import (MEDIUM_GPU, AllBlocksCleared, BlockRemoved, BlockStored,
                                        EventPublisherFactory, KVEventBatch)
from vllm.v1.core.kv_cache_utils import generate_block_hash_extra_keys, maybe_convert_block_hash

STORED, REMOVED, CLEARED = 1, 2, 3


def extra_keys_of(request, first: int, hashes: list[bytes | None], block_size: int):
    """Those of each block that is not null."""
    made, mm_index = [], 0
    for i, block_hash in enumerate(hashes, first):
        if block_hash is not None:
            keys, mm_index = generate_block_hash_extra_keys(request, i * block_size,
                                                            (i + 1) * block_size, mm_index)
            made.append(keys)
    return made or None


def removed_event(hashes: list[bytes], group: int) -> BlockRemoved:
    return BlockRemoved(block_hashes=[maybe_convert_block_hash(h) for h in hashes],
                        medium=MEDIUM_GPU, group_idx=group)


def stored_event(request, hashes: list[bytes | None], group: int, first: int,
                 parent: bytes | None, block_size: int) -> BlockStored:
    """Blocks [first, first + len(hashes)) of a request were cached; None stands for null blocks."""
    lora = request.lora_request
    return BlockStored(
        block_hashes=[maybe_convert_block_hash(h) for h in hashes if h is not None],
        parent_block_hash=maybe_convert_block_hash(parent) if first else None,
        token_ids=request.all_token_ids[first * block_size:(first + len(hashes)) * block_size],
        block_size=block_size, lora_id=lora.adapter_id if lora else None, medium=MEDIUM_GPU,
        lora_name=lora.name if lora else None,
        extra_keys=extra_keys_of(request, first, hashes, block_size), group_idx=group)


class Events:
    """The events since the last update, and where they go. stored: makes a BlockStored."""

    def __init__(self, config, rank: int, stored=stored_event):
        self.stored = stored
        self.is_on = config is not None and config.enable_kv_cache_events
        self.publisher = EventPublisherFactory.create(config, rank)
        self.queue = []

    def calls(self) -> dict:
        """What the core calls."""
        return {"event": self.take} if self.is_on else {}

    def take(self, kind, request, hashes, group, first, parent, block_size) -> None:
        if kind == CLEARED:
            self.queue.append(AllBlocksCleared())
        elif kind == REMOVED:
            self.queue.append(removed_event(hashes, group))
        else:
            self.queue.append(self.stored(request, hashes, group, first, parent, block_size))

    def publish(self, more) -> None:
        """One batch for each update, a connector's events last."""
        events, self.queue = self.queue, []
        events.extend(more or ())
        if events:
            self.publisher.publish(KVEventBatch(ts=time.time(), events=events))
