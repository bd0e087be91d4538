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
from ..config import refuse_all


def overrides(connector, base: type, name: str) -> bool:
    """Whether a connector of this base class has a method of its own."""
    return isinstance(connector, base) and getattr(type(connector), name) is not getattr(base, name)


def refuse(connector, ec_connector) -> None:
    """Connectors whose calls decide what the library does not know."""
    refuse_all({
        "KV connectors that give blocks back later (has_pending_block_frees)":
            overrides(connector, KVConnectorBase_V1, "has_pending_block_frees")
            and connector.has_pending_block_frees(),
        "encoder connectors that fetch before a request is scheduled (ensure_cache_available)":
            overrides(ec_connector, ECConnectorBase, "ensure_cache_available"),
        "encoder connectors that follow which items are freed (update_state_after_free)":
            overrides(ec_connector, ECConnectorBase, "update_state_after_free"),
        "encoder connectors that follow the end of requests (request_finished), without a KV "
        "connector": connector is None
                     and overrides(ec_connector, ECConnectorBase, "request_finished")})


class Fetches:
    """Requests whose KV is loaded while they wait, by stage."""

    def __init__(self):
        self._stages: dict[str, str] = {}
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
        self.set(request, KV_FETCH_WAITING_TO_START if is_later else None)

    def allocated(self, request: Request) -> None:
        """It loads into its blocks now, or runs."""
        waited = self._stages.get(request.request_id) == KV_FETCH_WAITING_TO_START
        self.set(request, KV_FETCH_IN_PROGRESS if waited else None)

    def received(self, request: Request | None) -> None:
        if request is not None and request.status == RequestStatus.WAITING_FOR_REMOTE_KVS:
            self.set(request, KV_FETCH_COMPLETED_WAITING)


def calls_of(scheduler) -> dict:
    """What the core calls of the KV connector, and when requests end of both connectors."""
    calls = common.calls_of(scheduler)
    if scheduler.connector is None:
        return {}
    finished_blocks = calls["finished"]

    def finished(request, block_ids):
        scheduler._fetches.set(request, None)
        delays, params = finished_blocks(request, block_ids)
        image_params = None
        if scheduler.ec_connector is not None:
            ec_delays, image_params = scheduler.ec_connector.request_finished(request)
            delays |= ec_delays
        return delays, params, image_params

    def match(request, num_local):
        count, is_later = scheduler.connector.get_num_new_matched_tokens(request, num_local)
        if request.skip_reading_prefix_cache:
            count, is_later = 0, False
        if count is not None:
            scheduler._fetches.asked(request, is_later)
        return count, is_later

    def alloc(request, num_external):
        blocks = scheduler.kv_cache_manager.get_blocks(request.request_id)
        scheduler.connector.update_state_after_alloc(request, blocks, num_external)
        if num_external and scheduler.log_stats and not request.num_preemptions:
            sources = scheduler.connector.get_external_cache_hit_sources(request, num_external)
            if sources is not None:
                scheduler._hits.record(0, num_external, False, sources)
        scheduler._fetches.allocated(request)

    def meta(output):
        output.kv_connector_block_state = KVConnectorBlockState(
            req_ids=set(output.num_scheduled_tokens),
            resolve_block_ids=scheduler.kv_cache_manager.get_block_ids, boundary_state_offloads={})
        output.kv_connector_metadata = scheduler.connector.build_connector_meta(output)

    def reset():
        return False if scheduler._is_reset_refused() else scheduler.connector.reset_cache()

    calls.update(reset=reset, match=match, alloc=alloc, meta=meta, finished=finished)
    return calls


def take_hits(scheduler) -> dict:
    """Tokens that the connector found since the last stats, by where they were."""
    hits, scheduler._hits = scheduler._hits, PrefixCacheStats()
    return hits.hits_by_source
