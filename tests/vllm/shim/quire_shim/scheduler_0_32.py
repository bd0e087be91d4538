"""quire.vllm's schedulers for vLLM 0.32, open to those who look into them and write into them, as vLLM's
tests do. The cache's own classes are not here: the cache is shown as the drop-in shows it, with what
the tests of schedulers look at besides."""
from functools import cached_property

import quire.vllm
from quire.vllm._v032 import config, kv_cache
from quire.vllm._v032.request import BoundRequest
from vllm.v1.core import single_type_kv_cache_manager as managers
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.request import Request

from _quire_shim import fences, flags, peek_stats, preempt

from . import queues, request
from .opened import Opened

ALONE = {"match": lambda *_given: (0, False), "alloc": lambda *_given: None,
         "meta": lambda *_given: None, "finished": lambda *_given: (False, None),
         "reset": lambda: None, "told": lambda: None}  # a connector that does nothing


class WritableRequest(request.WritableRequest, BoundRequest):
    """With 0.32's counters."""

    @property
    def last_sched_seq(self) -> int:
        return flags(*self._quire)[2]


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
            if blocks:  # of the null block there is one object
                made[name] = [self._null_block if block.is_null else block for block in blocks]
        return made

    @property
    def _null_block(self) -> kv_cache.Block:
        return self._cache.block_pool.null_block

    @property
    def num_cached_block(self) -> dict[str, int]:
        """Up to the last block that has a key."""
        return {name: max((i + 1 for i, block in enumerate(blocks) if block.block_hash), default=0)
                for name, blocks in self.req_to_blocks.items()}


class CrossManager(Manager, managers.CrossAttentionManager):
    """Found by its class."""


class BlockPool(kv_cache.BlockPool):
    @cached_property
    def null_block(self) -> kv_cache.Block:
        return super().null_block

    @property
    def cached_block_hash_to_block(self) -> dict[bytes, kv_cache.Block]:
        return {block.block_hash: block for block in self.blocks if block.block_hash is not None}


class KVCache(kv_cache.KVCache):
    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        super().__init__(scheduler, num_blocks)
        self.coordinator.single_type_managers = tuple(
            (CrossManager if type(shown.kv_cache_spec).__name__ == "CrossAttentionSpec" else Manager)(
                self, group, shown)
            for group, shown in enumerate(self.coordinator.single_type_managers))

    @property
    def prefix_cache_stats(self) -> PrefixCacheStats | None:
        if not self._scheduler.log_stats:
            return None
        was_reset, *numbers = peek_stats(self._scheduler._core)
        return PrefixCacheStats(bool(was_reset), *numbers)


def number(name: str, usual=0, kind=int) -> property:
    """A number of the core, which can be set while there are no requests."""

    def read(self):
        return kind(self._numbers.get(name, usual))

    def write(self, value) -> None:
        self._change(name, **{name: int(value)})

    return property(read, write)


class Scheduler(Opened, quire.vllm.Scheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler, with its inner parts."""

    bound_request, manager_class = WritableRequest, KVCache
    _ec_connector = None

    use_v2_model_runner = number("is_v2", kind=bool)
    return_sampling_mask = number("returns_masks", kind=bool)
    requires_kv_delivery = number("requires_kv_delivery", kind=bool)
    defer_block_free = number("defers_frees", kind=bool)
    decode_stagger = number("decode_interval", 1)
    num_prefill_lookahead = number("num_prefill_lookahead_tokens")

    def _calls(self) -> dict:
        calls = super()._calls() | {"aux_taken": self._take_aux, "aux_ended": self._end_aux}
        is_needed = self._numbers["defers_frees"] and "match" not in calls
        return calls | ALONE if is_needed else calls

    def _take_aux(self, request: Request):
        return None if self.aux_output_connector is None else super()._take_aux(request)

    def _end_aux(self, request: Request) -> None:
        if self.aux_output_connector is not None:
            super()._end_aux(request)

    @property
    def ec_connector(self):
        return self._ec_connector

    @ec_connector.setter
    def ec_connector(self, connector) -> None:
        is_known = self._ec_connector is not None and connector is not None
        self._ec_connector = connector
        if self._core is not None and not is_known:
            self._change("ec_connector")

    @property
    def kv_holding_waiting(self) -> queues.Waiting:
        return queues.Waiting(self, queues.SKIPPED)

    @property
    def deferred_waiting(self) -> set[Request]:
        return set(self._core.queue(3))

    @property
    def deferred_frees(self) -> list[tuple[int, tuple]]:
        """The step that each waits for; the blocks are not shown."""
        return [(fence, ()) for fence in fences(self._core)[2]]

    @property
    def sched_step_seq(self) -> int:
        return fences(self._core)[0]

    @property
    def processed_step_seq(self) -> int:
        return fences(self._core)[1]

    @property
    def recompute_kv_load_failures(self) -> bool:
        return self._numbers.get("fail_on_load_error") != config.ON

    @property
    def _kv_fetch_counts(self) -> dict[str, int]:
        return self._fetches.counts

    @property
    def _kv_fetch_stages(self) -> dict[str, str]:
        return self._fetches._stages

    # -- a spy in the place of _preempt_request is told of those that the core has preempted

    _told: set[str] = frozenset()  # by a reset, since the last step
    _is_telling = False

    def _tell_preempted(self, names: set[str], **given) -> None:
        self._is_telling = True
        for name in names if "_preempt_request" in vars(self) else ():
            if name in self.requests:
                self._preempt_request(self.requests[name], 0.0, **given)
        self._is_telling = False

    def schedule(self, throttle_prefills: bool = False):
        output = super().schedule(throttle_prefills)
        self._tell_preempted(set(output.preempted_req_ids or ()) - self._told)
        self._told = frozenset()
        return output

    def reset_prefix_cache(self, *given, **named) -> bool:
        done = super().reset_prefix_cache(*given, **named)
        preempted = frozenset(self._core.preempted())
        self._tell_preempted(preempted - self._told, drop_stale_output=True)
        self._told = preempted
        return done

    def _preempt_request(self, request: Request, _timestamp: float,
                         drop_stale_output: bool = False) -> None:
        if self._is_telling:
            return
        self._end_aux(request)
        preempt(self._core, request._quire[1], drop_stale_output)
        self._core.preempted().add(request.request_id)


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
