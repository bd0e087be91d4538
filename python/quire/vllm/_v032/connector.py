"""Connectors of vLLM 0.32, as the core calls them.

    request   asked, loads later ──► blocks ──► loaded ──► runs        counted by stage, for stats
              waiting_to_start       in_progress  completed_waiting
"""
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.core.sched.output import KVConnectorBlockState
from vllm.v1.metrics.stats import (KV_FETCH_COMPLETED_WAITING, KV_FETCH_IN_PROGRESS,
                                   KV_FETCH_STAGES, KV_FETCH_WAITING_TO_START, PrefixCacheStats)
from vllm.v1.request import Request, RequestStatus

from .. import connector as common


def overrides(connector, base: type, name: str) -> bool:
    """Whether a connector's method is not the one of the base class, which does nothing."""
    return getattr(type(connector), name, None) is not getattr(base, name)


class Fetches:
    """Requests whose KV is loaded while they wait, by stage."""

    def __init__(self):
        self._stages: dict[str, str] = {}
        self._before: tuple[str, str | None] | None = None  # what was asked last, and its stage
        self.counts = dict.fromkeys(KV_FETCH_STAGES, 0)

    def set(self, request: Request, stage: str | None) -> None:
        before = self._stages.pop(request.request_id, None)
        if before is not None:
            self.counts[before] -= 1
        if stage is not None:
            self._stages[request.request_id] = stage
            self.counts[stage] += 1

    def added(self, request: Request) -> None:
        params = request.kv_transfer_params
        if params and params.get("do_remote_prefill"):
            self.set(request, KV_FETCH_WAITING_TO_START)

    def asked(self, request: Request, is_later: bool) -> None:
        self._before = request.request_id, self._stages.get(request.request_id)
        self.set(request, KV_FETCH_WAITING_TO_START if is_later else None)

    def passed_over(self, request: Request) -> None:
        """It waits for something else: the answer does not count."""
        if self._before is not None and self._before[0] == request.request_id:
            self.set(request, self._before[1])
            self._before = None

    def allocated(self, request: Request) -> None:
        """It loads into its blocks now, or runs."""
        self._before = None
        waited = self._stages.get(request.request_id) == KV_FETCH_WAITING_TO_START
        self.set(request, KV_FETCH_IN_PROGRESS if waited else None)

    def received(self, request: Request | None) -> None:
        if request is not None and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            self.set(request, KV_FETCH_COMPLETED_WAITING)


def calls_of(scheduler) -> dict:
    """What the core calls of the KV connector."""
    calls = common.calls_of(scheduler)
    if scheduler.connector is None:
        return {}
    finished_blocks = calls["finished"]

    def finished(request, block_ids):
        scheduler._fetches.set(request, None)
        return finished_blocks(request, block_ids)

    def match(request, num_local, part):
        """part: tokens that were found behind num_local, in a block; a load must bring more."""
        count, is_later = scheduler.connector.get_num_new_matched_tokens(request, num_local)
        if request.skip_reading_prefix_cache:
            count, is_later = 0, False
        if count is not None:
            scheduler._fetches.asked(request, is_later and (part == 0 or count > part))
        return count, is_later

    def alloc(request, num_external):
        blocks = scheduler.kv_cache_manager.get_blocks(request.request_id)
        scheduler.connector.update_state_after_alloc(request, blocks, num_external)
        if num_external and scheduler.log_stats and not request.num_preemptions:
            sources = scheduler.connector.get_external_cache_hit_sources(request, num_external)
            if sources is not None:
                scheduler._hits.record(0, num_external, False, sources)
        scheduler._fetches.allocated(request)

    def meta(output, states):
        output.kv_connector_block_state = KVConnectorBlockState(
            req_ids={*output.num_scheduled_tokens, *states},
            resolve_block_ids=scheduler.kv_cache_manager.get_block_ids,
            boundary_state_offloads=states)
        output.kv_connector_metadata = scheduler._build_kv_connector_meta(scheduler.connector, output)

    calls.update(match=match, alloc=alloc, meta=meta, finished=finished)
    if overrides(scheduler.connector, KVConnectorBase_V1, "has_pending_block_frees"):
        calls["pending_frees"] = lambda: scheduler.connector.has_pending_block_frees()
    transfer = scheduler.vllm_config.kv_transfer_config
    if (transfer is not None and transfer.is_kv_producer
            and overrides(scheduler.connector, KVConnectorBase_V1, "register_finished_partial_tail")):
        calls["states_finished"] = (
            lambda *given: scheduler.connector.register_finished_partial_tail(*given))
    return calls


def image_calls_of(scheduler) -> dict:
    """What the core calls of the encoder connector; what the base class has need not be called."""
    if scheduler.ec_connector is None:
        return {}

    def lost():
        names = scheduler.ec_connector.take_unavailable_requests()
        return [scheduler.requests[name]._quire[1] for name in names if name in scheduler.requests]

    def ready(request, num_computed):
        is_ready = scheduler.ec_connector.ensure_cache_available(request, num_computed)
        if not is_ready:
            scheduler._fetches.passed_over(request)
        return is_ready

    more = {"image_finished": ("request_finished",
                               lambda request: scheduler.ec_connector.request_finished(request)),
            "image_ready": ("ensure_cache_available", ready),
            "image_freed": ("update_state_after_free",
                            lambda *given: scheduler.ec_connector.update_state_after_free(*given)),
            "image_lost": ("take_unavailable_requests", lost)}
    return common.image_calls_of(scheduler) | {
        place: call for place, (name, call) in more.items()
        if overrides(scheduler.ec_connector, ECConnectorBase, name)}


def take_hits(scheduler) -> dict:
    """Tokens that the connector found since the last stats, by where they were."""
    hits, scheduler._hits = scheduler._hits, PrefixCacheStats()
    return hits.hits_by_source
