"""scheduler.kv_cache_manager: the KV cache of a scheduler, as KV connectors see it.

    kv_cache_manager.get_blocks(request_id)   what update_state_after_alloc is given
    kv_cache_manager.block_pool               blocks[i], touch, free_blocks, the free queue

A Block is a number. What it shows is asked of the core at that moment, so one can be made whenever
it is needed, and two of the same number are equal.
"""
from collections.abc import Callable, Iterable, Iterator, Sequence

from vllm.v1.core.kv_cache_manager import KVCacheBlocks

NULL = 0
USERS, HASH = range(2)


class Block:
    """As vLLM's KVCacheBlock, to look at."""

    __slots__ = ("_pool", "block_id")

    def __init__(self, pool: "BlockPool", block_id: int):
        self._pool, self.block_id = pool, block_id

    @property
    def is_null(self) -> bool:
        return self.block_id == NULL

    @property
    def ref_cnt(self) -> int:
        return self._pool._core.block(self.block_id)[USERS]

    @property
    def block_hash(self) -> bytes | None:
        return self._pool._core.block(self.block_id)[HASH]

    @property
    def next_free_block(self) -> "Block | End | None":
        return None if self.is_null or self.ref_cnt else self._pool._behind(self.block_id)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        return self.block_id == other.block_id and self._pool is other._pool

    def __hash__(self) -> int:
        return self.block_id

    def __repr__(self) -> str:
        return f"Block({self.block_id}, ref_cnt={self.ref_cnt}, block_hash={self.block_hash!r})"


class End:
    """An end of the free queue: no block, but a neighbour of one."""

    block_id, ref_cnt, block_hash, is_null = -1, 0, None, False

    def __init__(self, pool: "BlockPool"):
        self._pool = pool

    @property
    def next_free_block(self) -> "Block | End | None":
        return self._pool._behind(NULL) if self is self._pool.fake_free_list_head else None


class _All(Sequence):
    """block_pool.blocks, by number."""

    def __init__(self, pool: "BlockPool"):
        self._pool = pool

    def __len__(self) -> int:
        return self._pool.num_gpu_blocks

    def __getitem__(self, place):
        numbers = range(len(self))[place]
        if isinstance(numbers, range):
            return [self._pool.block_class(self._pool, i) for i in numbers]
        return self._pool.block_class(self._pool, numbers)


class BlockPool:
    """As vLLM's, as far as a connector needs it: to look, and to keep blocks that it copies."""

    block_class = Block
    # Called before the core resets its prefix cache, with the blocks of the requests that are preempted
    # then: a connector that keeps blocks gives them back.
    before_reset: Callable[[list[int]], None] | None = None

    def __init__(self, core, num_blocks: int):
        self._core, self.num_gpu_blocks = core, num_blocks
        self.blocks = _All(self)
        self.fake_free_list_head, self.fake_free_list_tail = End(self), End(self)

    @property
    def null_block(self) -> Block:
        return self.block_class(self, NULL)

    @property
    def free_block_queue(self) -> "BlockPool":
        """The free queue has no state of its own: the pool shows it."""
        return self

    @property
    def num_free_blocks(self) -> int:
        return self._core.num_free()

    def get_num_free_blocks(self) -> int:
        return self._core.num_free()

    def get_usage(self) -> float:
        usable = self.num_gpu_blocks - 1
        return 1.0 - self._core.num_free() / usable if usable else 0.0

    def get_all_free_blocks(self) -> list[Block]:
        return list(self._free())

    def _free(self) -> Iterator[Block]:
        block = self.fake_free_list_head.next_free_block
        while block is not self.fake_free_list_tail:
            yield block
            block = block.next_free_block

    def _behind(self, block_id: int) -> Block | End:
        behind = self._core.next_free(block_id)
        return self.block_class(self, behind) if behind else self.fake_free_list_tail

    def touch(self, blocks: Sequence[Block]) -> None:
        self._core.touch(self._numbers(blocks))

    def free_blocks(self, ordered_blocks: Iterable[Block]) -> None:
        self._core.free_blocks(self._numbers(ordered_blocks))

    def _numbers(self, blocks: Iterable[Block]) -> list[int]:
        blocks = list(blocks)
        for block in blocks:
            if not isinstance(block, Block) or block._pool is not self:
                raise ValueError(f"{block!r} is not a block of this pool")
        return [block.block_id for block in blocks]


class Blocks(KVCacheBlocks):
    """vLLM's KVCacheBlocks of numbers; blocks are made of them when they are asked for."""

    def __init__(self, pool: BlockPool, block_ids: tuple[list[int], ...]):
        self._pool, self._block_ids = pool, block_ids

    @property
    def blocks(self) -> tuple[Sequence[Block], ...]:
        make = self._pool.block_class
        return tuple([make(self._pool, i) for i in ids] for ids in self._block_ids)

    def get_block_ids(self, allow_none: bool = False,
                      group_ids: Sequence[int] | None = None) -> tuple[list[int], ...] | None:
        """group_ids: of these groups (0.32)."""
        chosen = self._block_ids if group_ids is None else [self._block_ids[g] for g in group_ids]
        if allow_none and not any(chosen):
            return None
        return tuple(ids.copy() for ids in chosen)


class KVCache:
    """What connectors ask of vLLM's KVCacheManager."""

    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        self._scheduler = scheduler
        self.block_pool = self.pool_class(scheduler._core, num_blocks)

    @property
    def usage(self) -> float:
        return self.block_pool.get_usage()

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        """Those of a request that the scheduler has."""
        return self._scheduler._core.blocks(self._scheduler.requests[request_id]._quire[1])

    def get_blocks(self, request_id: str) -> KVCacheBlocks:
        return Blocks(self.block_pool, self.get_block_ids(request_id))
