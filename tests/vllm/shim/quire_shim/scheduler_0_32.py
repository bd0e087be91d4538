"""quire.vllm's schedulers for vLLM 0.32, open to those who look into them and write into them, as vLLM's
tests do. The cache's own classes are not here: the cache is shown as the drop-in shows it, with what
the tests of schedulers look at besides."""
from contextlib import contextmanager
from functools import cached_property
from unittest.mock import Mock

import quire.vllm
from quire.vllm._v032 import config, connector as connectors, kv_cache
from quire.vllm._v032.request import BoundRequest
from quire.vllm.scheduler import BaseScheduler
from vllm.v1.core import single_type_kv_cache_manager as managers
from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import Request, RequestStatus

from _quire_shim import (align, cache_blocks, drop_skipped, edit, evict, fences, flags, free_images, hits_alone, peek_stats,
                         peek_step, preempt, seed, unseed)

from . import queues, request
from .opened import Opened

ALONE = {"match": lambda *_given: (0, False), "alloc": lambda *_given: None,
         "meta": lambda *_given: None, "finished": lambda *_given: (False, None),
         "reset": lambda: None, "told": lambda: None}  # a connector that does nothing


EDIT_IN_FLIGHT, EDIT_GRAMMAR = 6, 7  # as tests/vllm/shim/src/edit.c counts

# Tests replace methods of a connector when the scheduler is there already, so all are called.
connectors.overrides = lambda *_given: True


class WritableRequest(request.WritableRequest, BoundRequest):
    """With 0.32's counters."""

    num_in_flight_tokens = request.writable(BoundRequest.num_in_flight_tokens, EDIT_IN_FLIGHT)
    _shown_status: RequestStatus | None = None

    @property
    def status(self) -> RequestStatus:
        return self._shown_status or request.WritableRequest.status.fget(self)

    @status.setter
    def status(self, status: RequestStatus) -> None:
        """An end is shown to connectors alone, whose tests write it: the core goes on with the request."""
        if RequestStatus.is_finished(status):
            self._shown_status = status
        else:
            request.WritableRequest.status.fset(self, status)

    @property
    def structured_output_request(self):
        return self.__dict__["structured_output_request"]

    @structured_output_request.setter
    def structured_output_request(self, part) -> None:
        self.__dict__["structured_output_request"] = part
        edit(*self._quire, EDIT_GRAMMAR, part is not None)

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


class Block(kv_cache.Block):
    __slots__ = ()

    @property
    def _block_hash(self) -> bytes | None:
        return self.block_hash


class Keys(dict):
    """cached_block_hash_to_block."""

    @property
    def _cache(self) -> dict:
        return self


class BlockPool(kv_cache.BlockPool):
    block_class = Block

    @cached_property
    def null_block(self) -> kv_cache.Block:
        return super().null_block

    _held: list[kv_cache.Block] = []

    @property
    def num_free_blocks(self) -> int:
        return super().num_free_blocks

    @num_free_blocks.setter
    def num_free_blocks(self, count: int) -> None:
        """0: all free blocks are held, until another number is written."""
        self.free_blocks(self._held)
        self._held = [] if count else self.get_all_free_blocks()
        self.touch(self._held)

    def evict_blocks(self, block_ids: set[int]) -> None:
        for block_id in block_ids:
            evict(self._core, block_id)

    @property
    def cached_block_hash_to_block(self) -> "Keys":
        return Keys({block.block_hash: block for block in self.blocks
                     if block.block_hash is not None})


class Stats:
    """Of now, whenever a field is read: of the prefix cache, or of what the connector found."""

    def __init__(self, scheduler, is_external: bool):
        self._scheduler, self._is_external = scheduler, is_external

    def __getattr__(self, name: str):
        was_reset, *numbers = peek_stats(self._scheduler._core)[self._is_external]
        made = PrefixCacheStats(bool(was_reset), *numbers)
        if self._is_external:
            made.hits_by_source = self._scheduler._hits.hits_by_source
        return getattr(made, name)


class HybridCoordinator(HybridKVCacheCoordinator):
    """Found by its class."""

    def __init__(self, cache: "KVCache"):
        self._cache = cache

    def find_longest_cache_hit_per_group(self, block_hashes, max_length: int):
        hits = hits_alone(self._cache._scheduler._core, b"".join(block_hashes), len(block_hashes),
                          max_length)
        return None, tuple(hits)


class KVCache(kv_cache.KVCache):
    pool_class = BlockPool

    def __init__(self, scheduler, num_blocks: int):
        super().__init__(scheduler, num_blocks)
        shown = self.coordinator.single_type_managers
        if len(shown) > 1:
            self.coordinator = HybridCoordinator(self)
        self.coordinator.single_type_managers = tuple(
            (CrossManager if type(one.kv_cache_spec).__name__ == "CrossAttentionSpec" else Manager)(
                self, group, one)
            for group, one in enumerate(shown))
        self._seeds: dict[str, tuple[int, tuple[list[int], ...]]] = {}  # of requests never added

    @property
    def prefix_cache_stats(self) -> Stats | None:
        return Stats(self._scheduler, False) if self._scheduler.log_stats else None

    # -- for requests that the scheduler does not know

    def get_computed_blocks(self, request: Request) -> tuple:
        """A test begins with an empty cache in this way."""
        hits = hits_alone(self._scheduler._core, b"".join(request.block_hashes),
                          len(request.block_hashes), request.num_tokens - 1)
        return None, min(hits), None

    def allocate_slots(self, request: Request | None = None, num_new_tokens: int = 0,
                       new_computed_blocks=None, **_given):
        """Without a request: whether the scheduler itself may allocate, which a test may refuse."""
        if request is None:
            return True
        known, _ = self._seeds.get(request.request_id, (0, ()))
        made = seed(self._scheduler._core, known, b"".join(request.block_hashes),
                    len(request.block_hashes), request.num_tokens, request.num_computed_tokens,
                    num_new_tokens)
        if made is not None:
            self._seeds[request.request_id] = made
        return made

    def free(self, request: Request) -> None:
        unseed(self._scheduler._core, self._seeds.pop(request.request_id)[0])

    def get_block_ids(self, request_id: str) -> tuple[list[int], ...]:
        if request_id in self._seeds:
            return self._seeds[request_id][1]
        return super().get_block_ids(request_id)

    @contextmanager
    def resetting(self):
        """A function in the place of reset_prefix_cache that says False: a block is in use."""
        is_refused = not vars(self).get("reset_prefix_cache", lambda: True)()
        kept = self.block_pool.get_all_free_blocks()[:1] if is_refused else []
        self.block_pool.touch(kept)
        try:
            yield
        finally:
            self.block_pool.free_blocks(kept)

    def cache_blocks(self, request: Request, num_computed_tokens: int) -> None:
        cache_blocks(self._scheduler._core, request._quire[1], num_computed_tokens)

    def evict_blocks(self, block_ids: set[int]) -> None:
        self.block_pool.evict_blocks(block_ids)

    @contextmanager
    def allocating(self):
        """For a step. A function in the place of allocate_slots is asked once: where it says None,
        there are no free blocks in this step."""
        kept = []
        if "allocate_slots" in vars(self) and self.allocate_slots() is None:
            kept = self.block_pool.get_all_free_blocks()
            self.block_pool.touch(kept)
        try:
            yield
        finally:
            self.block_pool.free_blocks(kept)


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
    _alignment = 0
    held = (RequestStatus.WAITING_FOR_REMOTE_KVS,)

    def __new__(cls, vllm_config, *given, **named):
        """For a diffusion model, the scheduler that an engine has: vLLM names its own, and the drop-in
        leaves it there."""
        if vllm_config.model_config.is_diffusion:
            return vllm_config.scheduler_config.get_scheduler_cls()(vllm_config, *given, **named)
        return super().__new__(cls)

    use_v2_model_runner = number("is_v2", kind=bool)
    return_sampling_mask = number("returns_masks", kind=bool)
    requires_kv_delivery = number("requires_kv_delivery", kind=bool)
    defer_block_free = number("defers_frees", kind=bool)
    decode_stagger = number("decode_interval", 1)

    def _make_core(self) -> None:
        """What a connector supports is asked when the scheduler is made, and not again."""
        self._numbers = {name: value for name, value in self._numbers.items()
                         if not isinstance(value, Mock)}  # of a made-up config: not set
        self._numbers.setdefault("hash_algorithm", "sha256")
        if self._core is None:
            super()._make_core()
        else:
            BaseScheduler._make_core(self)
        if self._alignment:
            align(self._core, self._alignment)

    @property
    def num_sampled_tokens_per_step(self) -> int:
        return int(self._numbers.get("is_pooling_model") != config.ON)

    @num_sampled_tokens_per_step.setter
    def num_sampled_tokens_per_step(self, value: int) -> None:
        self._change("num_sampled_tokens_per_step", is_pooling_model=config.switch(value == 0))

    @property
    def num_prefill_lookahead(self) -> int:
        return self._numbers.get("num_prefill_lookahead_tokens", 0)

    @num_prefill_lookahead.setter
    def num_prefill_lookahead(self, value: int) -> None:
        self._change("num_prefill_lookahead", num_prefill_lookahead_tokens=value,
                     num_prefill_lookahead=value)

    @property
    def use_eagle(self) -> bool:
        return self._numbers.get("use_eagle") == config.ON

    @use_eagle.setter
    def use_eagle(self, value: bool) -> None:
        self._change("use_eagle", use_eagle=config.switch(value))

    @property
    def need_mamba_block_aligned_split(self) -> bool:
        return self._alignment > 0

    @need_mamba_block_aligned_split.setter
    def need_mamba_block_aligned_split(self, value: bool) -> None:
        self._alignment = self.cache_config.block_size if value else 0
        self._change("need_mamba_block_aligned_split")

    @property
    def max_num_running_reqs(self) -> int:
        return self.scheduler_config.max_num_seqs

    @property
    def max_num_scheduled_tokens(self) -> int:
        return (self._numbers["max_num_scheduled_tokens"]
                or self.scheduler_config.max_num_batched_tokens)

    @property
    def spec_decode_metrics_level(self) -> str:
        return self._spec_metrics

    @property
    def connector_prefix_cache_stats(self) -> Stats | None:
        return Stats(self, True) if self.log_stats and self.connector is not None else None

    @property
    def prefill_capacity_bound(self) -> bool:
        return bool(peek_step(self._core)[0])

    @property
    def encoder_cache_mismatch_reqs(self) -> set[str]:
        numbers = set(peek_step(self._core)[1])
        return {name for name, request in self.requests.items() if request._quire[1] in numbers}

    def _free_encoder_inputs(self, request: Request) -> None:
        free_images(self._core, self._number_of_guest(request), True)

    def _handle_invalid_blocks(self, block_ids: set[int], _scheduled: dict) -> None:
        self._check_report(KVConnectorOutput(invalid_block_ids=block_ids))

    @property
    def _inflight_prefills(self) -> set[Request]:
        return {each for each in self.running if each.is_prefill_chunk}

    def _connector_finished(self, request: Request) -> None:
        drop_skipped(self._core, request._quire[1])

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
        loading = {each for each in self.requests.values()
                   if "_update_waiting_for_remote_kv" in vars(self)
                   and each.status == RequestStatus.WAITING_FOR_REMOTE_KVS}
        with self.kv_cache_manager.allocating(), self.encoder_cache_manager.allocating():
            output = super().schedule(throttle_prefills)
        for each in loading:  # a spy is told of those that the core has promoted in this step
            if each.status != RequestStatus.WAITING_FOR_REMOTE_KVS:
                self._update_waiting_for_remote_kv(each)
        self._tell_preempted(set(output.preempted_req_ids or ()) - self._told)
        self._told = frozenset()
        return output

    def reset_prefix_cache(self, *given, **named) -> bool:
        with self.kv_cache_manager.resetting():
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
