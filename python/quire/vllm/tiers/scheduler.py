"""The scheduler half: asks a planner, and holds the blocks that transfers use.

    get_num_new_matched_tokens ─► match      update_state_after_alloc ─► allocated
    build_connector_meta ─► new_requests, cached_requests, plan ─► workers ─► reports, results

A block that a store reads has one user more in vLLM's pool until all ranks have reported the store,
whatever becomes of its request: so nothing is delayed when a request ends. The blocks of a load are the
request's: vLLM keeps them until the request is in finished_recving, also if it is aborted.
"""
import os
import time
from collections import Counter, deque
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_manager import KVCacheBlocks

from quire._connector import Planner, fingerprint

from .events import Events, has_events
from .metadata import Plan, Report
from .metrics import QuireStats, Since, planner_totals
from .options import Options, refuse
from .sizes import planner_numbers, refuse_kinds

logger = init_logger("vllm.quire.tiers")

LAST_STORES_S = 5.0  # so long an engine without requests goes on for stores to the tiers below


class SchedulerHalf:
    def __init__(self, options: Options, vllm_config, kv_cache_config):
        if not vllm_config.cache_config.enable_prefix_caching:
            refuse("prefix caching is off; tiers find blocks by its hashes (--enable-prefix-caching)")
        refuse_kinds(kv_cache_config)
        numbers = planner_numbers(options, vllm_config, kv_cache_config)
        tells = has_events(vllm_config.kv_events_config)
        self.planner = Planner(numbers | {"events": tells})
        cache = numbers["cache"]
        self._events = Events(kv_cache_config, cache["hash_block_size"], cache["digest_bytes"],
                              [kind for kind, _ in options.tiers]) if tells else None
        self._tiers = [kind for kind, _ in options.tiers]
        self._counted = Since()
        self.num_slots = numbers["num_slots"]
        self.num_groups = len(kv_cache_config.kv_cache_groups)
        self.known: dict[str, Any] = {}  # request id: Known
        # Requests that wait, in their order: those at the end, then those that tiers load for already.
        self._behind: deque[Any] = deque()
        self._ahead: dict[str, int] = {}  # request id: tokens
        self._num_ahead = 0
        self._most_ahead = max(1, self.num_slots // (4 * self.num_groups)) * cache["hash_block_size"]
        self._pool = None
        self._step = 0
        self._held: Counter[int] = Counter()  # blocks, and how many stores read them
        self._num_left = 0  # requests that ended while they load
        self._idle_since: float | None = None
        self._failed: list[tuple[str, list[int]]] = []
        self._is_020 = not hasattr(kv_cache_config, "prefix_cacheable_group_ids")
        self._cannot_fail = self._is_020 and self.num_groups > 1
        self._has_counted = False

    # -- vLLM's blocks

    def bind(self, pool) -> None:
        self._pool = pool
        self.planner.bind(pool.blocks)
        if hasattr(pool, "before_reset"):  # Quire's
            pool.before_reset = self._free_for_reset
            return
        reset = pool.reset_prefix_cache

        def reset_without_stores():
            self._free_for_reset([])
            return reset()
        pool.reset_prefix_cache = reset_without_stores

    def _free_for_reset(self, freed: list[int]) -> None:
        """vLLM resets its prefix cache if nobody has a block. freed: blocks that requests give back
        before."""
        if self._held and self._holds_rest(freed):
            self._release(self.planner.drop_stores())

    def _holds_rest(self, freed: list[int]) -> bool:
        """Whether all blocks in use are these, or read by stores."""
        users = Counter(freed)
        for block, count in self._held.items():
            users[block] += count
        users.pop(0, None)  # the null block
        blocks, used = self._pool.blocks, self._pool.num_gpu_blocks - 1 - self._pool.get_num_free_blocks()
        return len(users) == used and all(
            blocks[block].ref_cnt == count for block, count in users.items())

    def _hold(self, ids: list[int]) -> None:
        if ids:
            blocks = self._pool.blocks
            self._pool.touch([blocks[i] for i in ids])
            self._held.update(ids)

    def _release(self, ids: list[int]) -> None:
        """Two stores of a block hold it twice: vLLM takes a block once in a call."""
        if not ids:
            return
        blocks = self._pool.blocks
        for i in ids:
            self._held[i] -= 1
            if not self._held[i]:
                del self._held[i]
        while ids:
            once = list(dict.fromkeys(ids))
            self._pool.free_blocks([blocks[i] for i in once])
            ids = list((Counter(ids) - Counter(once)).elements()) if len(once) < len(ids) else []

    # -- requests

    def _known_of(self, request):
        known = self.known.get(request.request_id)
        if known is None:
            known = self.planner.add(request)
            if known is not None:
                self.known[request.request_id] = known
        return known

    def new_request(self, request) -> None:
        if request.pooling_params is None and not request.skip_reading_prefix_cache:
            known = self._known_of(request)
            if known is not None and self._tiers:
                self._behind.append(known)
                self._look_ahead()
                if len(self._behind) > 2 * len(self.known) + 64:  # those that others were served before
                    self._behind = deque(filter(self._waits, self._behind))

    def _look_ahead(self) -> None:
        """Tiers load for the first requests of the queue, as much as a quarter of host memory has room
        for; those behind them follow when these are asked for."""
        while self._behind and self._num_ahead < self._most_ahead:
            known = self._behind.popleft()
            request = known.request
            if self._waits(known):
                self._ahead[request.request_id] = request.num_tokens
                self._num_ahead += request.num_tokens
                self.planner.prefetch(known, request.num_tokens, 0)

    def _waits(self, known) -> bool:
        return self._is_there(known) and not known.is_asked

    def _leaves_queue(self, request_id: str) -> None:
        self._num_ahead -= self._ahead.pop(request_id, 0)

    def match(self, request, num_computed: int) -> tuple[int | None, bool]:
        if request.skip_reading_prefix_cache:
            return 0, False
        self._leaves_queue(request.request_id)
        known = self._known_of(request)
        if known is None or known.is_loading or known.has_failed:
            return 0, False
        count = self.planner.match(known, request.num_tokens, num_computed)
        return count, bool(count)

    def allocated(self, request, blocks, num_external: int) -> None:
        known = self._known_of(request)
        if known is not None:
            self.planner.allocated(known, self._ids_of(blocks) if num_external else None, num_external)

    def hit_tiers(self, request) -> dict[str, int]:
        """Tokens of the request's last hit that came from a tier, by its kind; the rest was in host
        memory."""
        known = self.known.get(request.request_id)
        return {} if known is None else {kind: tokens for kind, tokens
                                         in zip(self._tiers, known.tier_tokens) if tokens}

    @staticmethod
    def _ids_of(blocks) -> tuple:
        """Or vLLM's blocks themselves: the planner reads their ids faster."""
        return blocks.blocks if type(blocks) is KVCacheBlocks else blocks.get_block_ids()

    def finished(self, request, block_ids: tuple[list[int], ...]) -> None:
        known = self.known.pop(request.request_id, None)
        if known is None:
            return
        self._leaves_queue(request.request_id)
        self._num_left += known.is_loading and not known.has_failed
        computed = max(0, min(request.num_computed_tokens, request.num_tokens - 1))
        self._hold(self.planner.finished(known, block_ids, computed))
        if known.has_failed:  # its load was told: nobody asks for it again
            self.planner.forget(known)

    # -- steps

    def plan(self, output) -> Plan:
        cached, num_tokens = output.scheduled_cached_reqs, output.total_num_scheduled_tokens
        self._step += 1
        if self._behind:
            self._look_ahead()
        if output.scheduled_new_reqs:
            self.planner.new_requests(self.known, output.scheduled_new_reqs)
        self.planner.cached_requests(self.known, cached.req_ids, cached.new_block_ids,
                                     cached.num_computed_tokens, cached.resumed_req_ids)
        plan, held = self.planner.plan(self._step, num_tokens, len(output.num_scheduled_tokens))
        self._hold(held)
        made = Plan(self._step, plan, self.num_slots, num_tokens == 0,
                    num_tokens == 0 and not self.known)
        if self._is_020:
            made.has_counted = self._has_counted = self._has_counted or self.planner.has_counted()
        if self._failed:
            made.failed = tuple(name for name, _ in self._failed)
            made.failed_blocks = tuple(block for _, blocks in self._failed for block in blocks)
            self._failed = []
        return made

    def take(self, output) -> None:
        """What the workers report; vLLM reads finished_recving behind this call."""
        report: Report | None = output.kv_connector_worker_meta
        output.finished_recving = None
        if report is None or not (report.reports or report.failed or self._tiers
                                  or self.planner.has_pending()):
            return
        for each in report.reports:
            if not self.planner.report(each):
                logger.warning("a worker has restarted: the blocks in host memory are lost")
        loaded, failed, blocks, released = self.planner.results(report.step)
        self._release(released)
        ended = [known for known in failed if not self._is_there(known)]
        failed = [known for known in failed if self._is_there(known)]
        if failed:
            self._fail([self._failed_name(known) for known in failed], blocks)
        received = {self._received(known) for known in (*loaded, *ended)}
        received.update(report.failed)
        self._told(report.failed)
        output.finished_recving = received or None

    def _received(self, known) -> str:
        if not self._is_there(known):
            self.planner.forget(known)
            self._num_left -= 1
        known.is_loading = 0
        return known.request.request_id

    @staticmethod
    def _failed_name(known) -> str:
        """It is not loaded again: what failed once may fail each time."""
        known.has_failed = 1
        return known.request.request_id

    def _is_there(self, known) -> bool:
        """False: the request has ended while it was loading, so nobody reads what came."""
        return self.known.get(known.request.request_id) is known

    def _told(self, failed: tuple[str, ...]) -> None:
        """vLLM knows of these: from now on what they compute is stored."""
        for name in failed:
            if name in self.known:
                self.known[name].is_loading = 0

    def _fail(self, names: list[str], blocks: list[int]) -> None:
        """vLLM is told by the workers' next results: it reads failures before update_connector_output."""
        if self._cannot_fail:
            raise RuntimeError(f"QuireConnector: blocks of {', '.join(names)} could not be copied to "
                               "the device, and vLLM 0.20 cannot compute them again in a model with "
                               "several KV cache groups")
        logger.warning("loads of %d requests failed: their tokens are computed", len(names))
        self._failed.extend((name, blocks if i == 0 else []) for i, name in enumerate(names))

    def has_pending(self) -> bool:
        """The engine goes on: vLLM's blocks are held, or are written, or the last blocks are on their way
        to the tiers below. 0.32 asks when no request is left."""
        if self._held or self._num_left > 0 or self._failed:
            return True
        if self.known or not self.planner.has_pending():
            self._idle_since = None
            return False
        now = time.monotonic()
        self._idle_since = now if self._idle_since is None else self._idle_since
        return now - self._idle_since < LAST_STORES_S

    # -- looking

    def take_events(self) -> list:
        if self._events is None:
            return []
        return self._events.made_of(self.planner.take_events(), self.known)

    def take_stats(self) -> QuireStats | None:
        if not self._has_counted and not self.planner.has_counted():
            return None  # the usual answer, cheaply: vLLM asks in each step
        self._has_counted = False
        return self._counted.take(planner_totals(self.planner.stats(), self._tiers))

    # -- identity

    def reset(self) -> bool:
        """Blocks stored before are not found any longer: those of other weights, for example."""
        if self._cannot_fail and self.planner.stats()["loads_in_flight"]:
            logger.warning("QuireConnector is not reset while requests load: vLLM 0.20 cannot compute "
                           "their tokens again in a model with several KV cache groups")
            return False
        if not self.planner.reset():  # a tier is shared: others go on with its blocks
            self.planner.set_identity(fingerprint({"tenant": os.urandom(32)}))
        return True
