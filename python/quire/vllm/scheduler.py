"""What the schedulers of all releases have in common: vLLM's Scheduler on a Core in C.

    EngineCore ── Request ──► add_request          requests: a dict, as in vLLM
               ◄── SchedulerOutput ── schedule     filled in C
               ── ModelRunnerOutput ──► update_from_output ──► EngineCoreOutputs
"""
import logging
import time
from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
from vllm.v1.engine import (EngineCoreEvent, EngineCoreEventType, EngineCoreOutput,
                            EngineCoreOutputs, FinishReason)
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.metrics.stats import (KVCacheEvictionEvent, PrefillStats, PrefixCacheStats,
                                   SchedulerStats)
from vllm.v1.request import Request, RequestStatus, StreamingUpdate
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from quire._vllm import Core

from . import request as common_requests
from .events import Events
from .kv_cache import KVCache

logger = logging.getLogger("vllm.quire")
EVENT_TYPES = {int(kind): kind for kind in EngineCoreEventType}
FINISH_REASONS = (None, FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT,
                  FinishReason.ERROR, FinishReason.REPETITION)
RUNNING, WAITING, SKIPPED = range(3)  # the queues of a core
as_set = set  # its order is the order in which vLLM's requests end
PAUSES = {PauseState.UNPAUSED: 0, PauseState.PAUSED_NEW: 1, PauseState.PAUSED_ALL: 2}


def record(request: Request, kind: int, timestamp: float | None) -> float:
    """An event of the step that is being made; all of one step have one time."""
    timestamp = time.monotonic() if timestamp is None else timestamp
    request.events.append(EngineCoreEvent(EVENT_TYPES[kind], timestamp))
    return timestamp


class BaseScheduler(SchedulerInterface):
    """What scheduler.py in the folder of a release makes a Scheduler of."""

    is_async = False
    configs: Any  # the release's modules config and request
    requests_: Any
    bound_request: type[common_requests.BoundRequest]
    manager_class: type[KVCache] = KVCache

    def __init__(self, vllm_config, kv_cache_config, structured_output_manager, block_size: int,
                 hash_block_size: int | None = None, mm_registry=MULTIMODAL_REGISTRY,
                 include_finished_set: bool = False, log_stats: bool = False) -> None:
        self.vllm_config, self.kv_cache_config = vllm_config, kv_cache_config
        self.scheduler_config = vllm_config.scheduler_config
        self.cache_config = vllm_config.cache_config
        self.lora_config = vllm_config.lora_config
        self.parallel_config = vllm_config.parallel_config
        self.structured_output_manager = structured_output_manager
        self.block_size, self.log_stats = block_size, log_stats
        self.max_model_len = vllm_config.model_config.max_model_len
        self.connector = self.ec_connector = None
        self.hash_block_size = hash_block_size or block_size
        self._make_connectors()
        self.requests: dict[str, Request] = {}
        self._refused: list[Request] = []  # the next update tells of them
        self.finished_req_ids_dict = defaultdict(set) if include_finished_set else None
        self.num_spec_tokens = 0
        if vllm_config.speculative_config is not None:
            self.num_spec_tokens = vllm_config.speculative_config.num_speculative_tokens
        self._pause_state = PauseState.UNPAUSED
        self._report = self.perf_metrics = None
        if log_stats and vllm_config.observability_config.enable_mfu_metrics:
            self.perf_metrics = ModelMetrics(vllm_config)
        self._events = self._make_events()
        try:
            self._numbers = self.configs.numbers_of(
                vllm_config, kv_cache_config, self.hash_block_size, mm_registry, log_stats, self.is_async)
            self._make_core()
            self._bind()
        except Exception:
            self.shutdown()  # another scheduler may need the ports of its connector and its publisher
            raise

    def _make_connectors(self) -> None:
        """In the order of the release."""
        raise NotImplementedError

    def _bind(self) -> None:
        """The connector gets to know the cache."""
        raise NotImplementedError

    def _make_kv_connector(self) -> None:
        if self.vllm_config.kv_transfer_config is not None:
            self.connector = KVConnectorFactory.create_connector(
                config=self.vllm_config, role=KVConnectorRole.SCHEDULER,
                kv_cache_config=self.kv_cache_config)

    def _make_ec_connector(self) -> None:
        if self.vllm_config.ec_transfer_config is not None:
            self.ec_connector = ECConnectorFactory.create_connector(
                config=self.vllm_config, role=ECConnectorRole.SCHEDULER)

    def _make_events(self, **given) -> Events:
        return Events(self.vllm_config.kv_events_config, self.parallel_config.data_parallel_index,
                      **given)

    def _calls(self) -> dict[str, Any]:
        """What the core calls of the connectors, of the grammars, and to make vLLM's objects."""
        raise NotImplementedError

    def _make_core(self) -> None:
        """The scheduler itself, from the numbers and the connector of now."""
        self._manager = None
        self._core = Core(
            self._numbers,
            {"SchedulerOutput": SchedulerOutput, "CachedRequestData": CachedRequestData,
             "EngineCoreOutput": EngineCoreOutput, "PrefillStats": PrefillStats,
             "finish_reasons": FINISH_REASONS, "ended": self.requests_.ended, "turn": self._turn,
             "record": record, "requests": self.requests,
             "finished_by_client": self.finished_req_ids_dict,
             **self._calls(), **self._events.calls()})
        observed = self.vllm_config.observability_config
        if observed.kv_cache_metrics and self.log_stats:  # without stats nobody takes them
            self._core.follow(observed.kv_cache_metrics_sample)

    @property
    def kv_cache_manager(self) -> KVCache:
        """The core's cache, to look at; made when it is first asked for."""
        if self._manager is None:
            self._manager = self.manager_class(self, self._numbers["num_blocks"])
        return self._manager

    # -- requests

    def add_request(self, request: Request) -> None:
        known = self.requests.get(request.request_id)
        if known is not None:
            self._continue(known, request)
            return
        if request.resumable:
            request.streaming_queue = deque()
        try:
            self._add(request)
        except common_requests.Refused as refusal:
            self._refuse(request, refusal)
        if self.log_stats:
            request.record_event(EngineCoreEventType.QUEUED)

    def _refuse(self, request: Request, refusal: common_requests.Refused) -> None:
        """An exception would end the engine, with all other requests: this one ends with an error."""
        logger.error("quire.vllm: request %s ends with an error: %s", request.request_id[:200],
                     refusal)
        if not isinstance(request, common_requests.BoundRequest):  # a session that a connector keeps
            request.status = RequestStatus.FINISHED_ERROR
        self._refused.append(request)
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict[request.client_index].add(request.request_id)

    def _add(self, request: Request) -> int:
        """Gives a request to the core; its number there."""
        if isinstance(request, common_requests.BoundRequest):
            raise ValueError(f"request {request.request_id} belongs to another scheduler")
        if request.status not in common_requests.NEW or request.num_computed_tokens:
            raise ValueError(f"request {request.request_id} was scheduled before: its status is "
                             f"{request.status.name}, {request.num_computed_tokens} tokens are "
                             "computed")
        try:
            number = self._core.add(request, self._rules_of(request) | common_requests.prompt_of(request))
        except (ValueError, OverflowError, NotImplementedError) as reason:
            raise common_requests.Refused(str(reason)) from reason
        self.requests[request.request_id] = request
        common_requests.bind(request, self._core, number, self.bound_request)
        return number

    def _rules_of(self, request: Request) -> dict[str, Any]:
        rules = self.requests_.rules_of(request)
        if self.scheduler_config.policy == "fcfs":  # which does not look at it
            rules["priority"] = 0
        return rules

    def _continue(self, session: Request, request: Request) -> None:
        """The next input of a session, or its end."""
        update = StreamingUpdate.from_request(request)
        waits = session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        if waits and update is None:
            self.finish_requests(session.request_id, RequestStatus.FINISHED_ABORTED)
            return
        assert session.streaming_queue is not None, "duplicate request id"
        if not session.is_finished() and None not in session.streaming_queue:  # else: never used
            try:
                self._core.go_on(session._quire[1], None if update is None else request,
                                 self._rules_of(request))
            except (ValueError, OverflowError, NotImplementedError) as reason:
                self._finish(session.request_id, RequestStatus.FINISHED_ERROR)
                self._refuse(session, common_requests.Refused(str(reason)))
                return
        if waits:
            self._update_request_as_session(session, update)
        else:
            session.streaming_queue.append(update)

    def _update_request_as_session(self, session: Request, update: StreamingUpdate) -> None:
        self.requests_.go_on(session, update, self.hash_block_size)
        if not isinstance(session, common_requests.BoundRequest):
            session.status = RequestStatus.WAITING
        if self.log_stats:
            session.record_event(EngineCoreEventType.QUEUED)

    def _turn(self, session: Request) -> bool:
        """A session has stopped and takes its next input; whether it wants logprobs from now on."""
        self._update_request_as_session(session, session.streaming_queue.popleft())
        return self.requests_.wants_logprobs(session)

    def _finish(self, request_ids: str | Iterable[str] | None,
                finished_status: RequestStatus) -> list[Request]:
        """Ends requests; those that had not ended before."""
        assert RequestStatus.is_finished(finished_status)
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        elif request_ids is not None:
            request_ids = as_set(request_ids)
        else:
            request_ids = list(self.requests)
        chosen = [self.requests[name] for name in request_ids if name in self.requests]
        return [request for request in chosen
                if self._core.finish(request._quire[1], int(finished_status))]

    # -- steps

    def _grammar_names(self, scheduler_output: SchedulerOutput) -> list[str]:
        """Requests of the step that a grammar constrains."""
        if not scheduler_output.has_structured_output_requests:
            return []
        return [name for name in scheduler_output.num_scheduled_tokens
                if (request := self.requests.get(name)) is not None
                and request.use_structured_output and not request.is_prefill_chunk]

    def _bitmask(self, scheduler_output: SchedulerOutput, names: list[str]):
        return self.structured_output_manager.grammar_bitmask(
            self.requests, names, scheduler_output.scheduled_spec_decode_tokens)

    def _perf_stats(self, scheduler_output: SchedulerOutput):
        if self.perf_metrics is None or not self.perf_metrics.is_enabled():
            return None
        return self.perf_metrics.get_step_perf_stats_per_gpu(scheduler_output)

    def _publish(self) -> None:
        self._events.publish(self.connector.take_events() if self.connector is not None else ())

    def _outputs(self, outputs: dict[int, list]) -> dict[int, EngineCoreOutputs]:
        """By client, with the requests that ended."""
        for request in self._refused:
            outputs.setdefault(request.client_index, []).append(EngineCoreOutput(
                request.request_id, [], finish_reason=FinishReason.ERROR,
                events=request.take_events(), trace_headers=request.trace_headers))
        self._refused.clear()
        made = {client: EngineCoreOutputs(outputs=outs) for client, outs in outputs.items()}
        if self.finished_req_ids_dict:
            for client, finished in self.finished_req_ids_dict.items():
                made.setdefault(client, EngineCoreOutputs()).finished_requests = finished
            self.finished_req_ids_dict.clear()
        return made

    @staticmethod
    def _give_stats(made: dict[int, EngineCoreOutputs], stats: SchedulerStats) -> None:
        """Stats go to one client."""
        if not made:
            made[0] = EngineCoreOutputs()
        next(iter(made.values())).scheduler_stats = stats

    def _transfers(self, report) -> tuple[list[int], ...]:
        """What a connector's workers report: requests sent and received, blocks that failed."""
        if report is None:
            return [], [], []
        sent, received = ([self.requests[name]._quire[1] for name in names or ()]
                          for names in (report.finished_sending, report.finished_recving))
        return sent, received, list(report.invalid_block_ids)

    def update_draft_token_ids(self, draft_token_ids) -> None:
        known = [(self.requests[name]._quire[1], drafts) for name, drafts
                 in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids)
                 if name in self.requests]
        self._core.update_drafts([number for number, _ in known], [drafts for _, drafts in known])

    def update_draft_token_ids_in_output(self, draft_token_ids, scheduler_output) -> None:
        """The workers' drafts take the place of -1: cut to what was scheduled, without those that a
        grammar refuses, filled up with -1."""
        invalid = {}
        scheduled = scheduler_output.scheduled_spec_decode_tokens
        for name, drafts in zip(draft_token_ids.req_ids, draft_token_ids.draft_token_ids):
            request, places = self.requests.get(name), scheduled.get(name)
            if request is None or request.is_finished() or not places:
                continue
            del drafts[len(places):]
            drafts = self._valid_drafts(request, drafts)
            missing = len(places) - len(drafts)
            if missing:
                drafts.extend([-1] * missing)
                invalid[name] = missing
            scheduled[name] = drafts
        scheduler_output.num_invalid_spec_tokens = invalid

    def _valid_drafts(self, request: Request, drafts: list[int]) -> list[int]:
        """Those that the request's grammar allows."""
        raise NotImplementedError

    # -- looking

    @property
    def kv_event_publisher(self):
        return self._events.publisher

    @kv_event_publisher.setter
    def kv_event_publisher(self, publisher) -> None:
        self._events.publisher = publisher

    @property
    def running(self) -> list[Request]:
        return self._core.queue(RUNNING)

    @property
    def waiting(self) -> list[Request]:
        return self._core.queue(WAITING)

    @property
    def finished_req_ids(self) -> set[str]:
        return self._core.finished()

    @property
    def num_waiting_for_streaming_input(self) -> int:
        return sum(request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
                   for queue in (WAITING, SKIPPED) for request in self._core.queue(queue))

    def get_request_counts(self) -> tuple[int, int]:
        return self._core.counts()[:2]

    def get_num_unfinished_requests(self) -> int:
        return self._core.counts()[2]

    def _stats(self, numbers, **more) -> SchedulerStats:
        running, waiting, skipped, usage, prefix, drafted, connected = numbers
        spec = connector = None
        if self.connector is not None:
            connector = self._connector_prefix_stats(connected)
        if drafted is not None:
            spec = SpecDecodingStats(self.num_spec_tokens, *drafted)
        return SchedulerStats(
            num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=skipped,
            kv_cache_usage=usage, prefix_cache_stats=PrefixCacheStats(bool(prefix[0]), *prefix[1:]),
            connector_prefix_cache_stats=connector, spec_decoding_stats=spec,
            kv_cache_eviction_events=[KVCacheEvictionEvent(*life)
                                      for life in self._core.take_lives()], **more)

    def _connector_prefix_stats(self, numbers) -> PrefixCacheStats:
        return PrefixCacheStats(bool(numbers[0]), *numbers[1:])

    def make_stats(self) -> SchedulerStats | None:
        if not self.log_stats:
            return None
        return self._stats(self._core.stats())

    # -- the rest

    @property
    def pause_state(self) -> PauseState:
        return self._pause_state

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._core.set_pause(PAUSES[pause_state])
        self._pause_state = pause_state

    def _reset_blocks(self, resets_running: bool, with_connector: bool) -> bool:
        """As vLLM's reset_prefix_cache: it raises if blocks are in use although the requests that ran
        were preempted, and does not come to the connector then."""
        self._resets_running = resets_running
        before = getattr(self.kv_cache_manager.block_pool, "before_reset", None)
        if before is not None:
            before([block for request in (self.running if resets_running else ())
                    for ids in self.kv_cache_manager.get_block_ids(request.request_id) for block in ids])
        done = self._core.reset_prefix_cache(int(resets_running), int(with_connector))
        if self._is_reset_refused():
            raise RuntimeError("the KV cache cannot be reset: although all running requests were "
                               "preempted, blocks are in use, probably by a transfer")
        return done

    def _is_reset_refused(self) -> bool:
        pool = self.kv_cache_manager.block_pool
        return self._resets_running and pool.num_free_blocks < pool.num_gpu_blocks - 1

    def reset_encoder_cache(self) -> None:
        self._core.reset_encoder_cache()

    def shutdown(self) -> None:
        self._events.publisher.shutdown()
        if self.connector is not None:
            self.connector.shutdown()

    def get_kv_connector(self):
        return self.connector
