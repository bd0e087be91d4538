"""vLLM's Scheduler and AsyncScheduler, on a Core in C.

    EngineCore ── Request ──► add_request          requests: a dict, as in vLLM
               ◄── SchedulerOutput ── schedule     filled in C
               ── ModelRunnerOutput ──► update_from_output ──► EngineCoreOutputs
"""
import time
from collections import defaultdict, deque
from collections.abc import Iterable

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole
from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.output import (CachedRequestData, GrammarOutput, NewRequestData,
                                       SchedulerOutput)
from vllm.v1.engine import (EngineCoreEvent, EngineCoreEventType, EngineCoreOutput,
                            EngineCoreOutputs, FinishReason)
from vllm.v1.metrics.perf import ModelMetrics
from vllm.v1.metrics.stats import (KVCacheEvictionEvent, PrefillStats, PrefixCacheStats,
                                   SchedulerStats)
from vllm.v1.request import Request, RequestStatus, StreamingUpdate
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from quire._vllm import Core

from . import config as configs
from . import request as requests_
from .connector import calls_of, image_calls_of
from .events import Events
from .kv_cache import KVCache

EVENT_TYPES = {int(kind): kind for kind in EngineCoreEventType}
FINISH_REASONS = (None, FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT,
                  FinishReason.ERROR, FinishReason.REPETITION)
RUNNING, WAITING, SKIPPED = range(3)  # the queues of a core
PAUSES = {PauseState.UNPAUSED: 0, PauseState.PAUSED_NEW: 1, PauseState.PAUSED_ALL: 2}


def new_request_data(request: Request, block_ids, num_computed_tokens: int) -> NewRequestData:
    return NewRequestData(request.request_id, request.prompt_token_ids, request.mm_features,
                          request.sampling_params, request.pooling_params, block_ids,
                          num_computed_tokens, request.lora_request, request.prompt_embeds)


def new_request_data_v2(request: Request, block_ids, num_computed_tokens: int) -> NewRequestData:
    """For the V2 model runner, which gets all tokens of resumed requests in this way too."""
    data = new_request_data(request, block_ids, num_computed_tokens)
    data.prefill_token_ids = request._all_token_ids
    return data


def record(request: Request, kind: int, timestamp: float | None) -> float:
    """An event of the step that is being made; all of one step have one time."""
    timestamp = time.monotonic() if timestamp is None else timestamp
    request.events.append(EngineCoreEvent(EVENT_TYPES[kind], timestamp))
    return timestamp


class Scheduler(SchedulerInterface):
    """As vllm.v1.core.sched.scheduler.Scheduler."""

    is_async = False
    bound_request = requests_.BoundRequest

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
        if vllm_config.ec_transfer_config is not None:
            self.ec_connector = ECConnectorFactory.create_connector(
                config=vllm_config, role=ECConnectorRole.SCHEDULER)
        if vllm_config.kv_transfer_config is not None:
            self.connector = KVConnectorFactory.create_connector(
                config=vllm_config, role=KVConnectorRole.SCHEDULER,
                kv_cache_config=kv_cache_config)
        self.requests: dict[str, Request] = {}
        self.finished_req_ids_dict = defaultdict(set) if include_finished_set else None
        self.num_spec_tokens = 0
        if vllm_config.speculative_config is not None:
            self.num_spec_tokens = vllm_config.speculative_config.num_speculative_tokens
        self._pause_state = PauseState.UNPAUSED
        self._report = self.perf_metrics = None
        if log_stats and vllm_config.observability_config.enable_mfu_metrics:
            self.perf_metrics = ModelMetrics(vllm_config)
        self._events = Events(vllm_config.kv_events_config,
                              vllm_config.parallel_config.data_parallel_index)
        self._numbers = configs.numbers_of(vllm_config, kv_cache_config,
                                           hash_block_size or block_size, mm_registry, log_stats,
                                           self.is_async)
        self._make_core()
        if hasattr(self.connector, "bind_gpu_block_pool"):
            self.connector.bind_gpu_block_pool(self.kv_cache_manager.block_pool)

    def _make_core(self) -> None:
        """The scheduler itself, from the numbers and the connector of now."""
        self._manager = None
        self._core = Core(
            self._numbers,
            {"SchedulerOutput": SchedulerOutput,
             "NewRequestData": new_request_data_v2 if self._numbers["is_v2"] else new_request_data,
             "CachedRequestData": CachedRequestData, "EngineCoreOutput": EngineCoreOutput,
             "PrefillStats": PrefillStats, "finish_reasons": FINISH_REASONS,
             "ended": requests_.ended, "turn": self._turn,
             "should_advance": self._should_advance,
             "record": record, "requests": self.requests,
             "finished_by_client": self.finished_req_ids_dict,
             **calls_of(self), **image_calls_of(self), **self._events.calls()})
        observed = self.vllm_config.observability_config
        if observed.kv_cache_metrics and self.log_stats:  # without stats nobody takes them
            self._core.follow(observed.kv_cache_metrics_sample)

    def _should_advance(self, request: Request) -> bool:
        return self.structured_output_manager.should_advance(request)

    @property
    def kv_cache_manager(self) -> KVCache:
        """The core's cache, to look at; made when it is first asked for."""
        if self._manager is None:
            self._manager = KVCache(self, self._numbers["num_blocks"])
        return self._manager

    # -- requests

    def add_request(self, request: Request) -> None:
        known = self.requests.get(request.request_id)
        if known is not None:
            self._continue(known, request)
            return
        if request.resumable:
            request.streaming_queue = deque()
        self._add(request)
        if self.log_stats:
            request.record_event(EngineCoreEventType.QUEUED)

    def _add(self, request: Request) -> int:
        """Gives a request to the core; its number there."""
        if isinstance(request, requests_.BoundRequest):
            raise ValueError(f"request {request.request_id} belongs to another scheduler")
        if request.status not in requests_.NEW or request.num_computed_tokens:
            raise ValueError(f"request {request.request_id} was scheduled before: its status is "
                             f"{request.status.name}, {request.num_computed_tokens} tokens are "
                             "computed")
        rules = requests_.rules_of(request) | requests_.prompt_of(request)
        number = self._core.add(request, rules)
        self.requests[request.request_id] = request
        requests_.bind(request, self._core, number, self.bound_request)
        return number

    def _continue(self, session: Request, request: Request) -> None:
        """The next input of a session, or its end."""
        update = StreamingUpdate.from_request(request)
        waits = session.status == RequestStatus.WAITING_FOR_STREAMING_REQ
        if waits and update is None:
            self.finish_requests(session.request_id, RequestStatus.FINISHED_ABORTED)
            return
        assert session.streaming_queue is not None, "duplicate request id"
        if not session.is_finished() and None not in session.streaming_queue:  # else: never used
            self._core.go_on(session._quire[1], None if update is None else request,
                             requests_.rules_of(request))
        if waits:
            self._update_request_as_session(session, update)
        else:
            session.streaming_queue.append(update)

    def _update_request_as_session(self, session: Request, update: StreamingUpdate) -> None:
        requests_.go_on(session, update)
        if not isinstance(session, requests_.BoundRequest):
            session.status = RequestStatus.WAITING
        if self.log_stats:
            session.record_event(EngineCoreEventType.QUEUED)

    def _turn(self, session: Request) -> bool:
        """A session has stopped and takes its next input; whether it wants logprobs from now on."""
        self._update_request_as_session(session, session.streaming_queue.popleft())
        return session.sampling_params.logprobs is not None

    def finish_requests(self, request_ids: str | Iterable[str] | None,
                        finished_status: RequestStatus) -> list[tuple[str, int]]:
        assert RequestStatus.is_finished(finished_status)
        if isinstance(request_ids, str):
            request_ids = (request_ids,)
        elif request_ids is not None:
            request_ids = set(request_ids)  # the order in which vLLM's requests end
        else:
            request_ids = list(self.requests)
        chosen = [self.requests[name] for name in request_ids if name in self.requests]
        return [(request.request_id, request.client_index) for request in chosen
                if self._core.finish(request._quire[1], int(finished_status))]

    # -- steps

    def schedule(self) -> SchedulerOutput:
        return self._core.schedule()

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        if not scheduler_output.has_structured_output_requests:
            return None
        names = [name for name in scheduler_output.num_scheduled_tokens
                 if (request := self.requests.get(name)) is not None
                 and request.use_structured_output and not request.is_prefill_chunk]
        if not names:
            return None
        bitmask = self.structured_output_manager.grammar_bitmask(
            self.requests, names, scheduler_output.scheduled_spec_decode_tokens)
        return GrammarOutput(names, bitmask)

    def update_from_output(self, scheduler_output: SchedulerOutput,
                           model_runner_output) -> dict[int, EngineCoreOutputs]:
        report = model_runner_output.kv_connector_output
        self._report, perf = report, None
        if self.perf_metrics is not None and self.perf_metrics.is_enabled():
            perf = self.perf_metrics.get_step_perf_stats_per_gpu(scheduler_output)
        outputs, stats = self._core.update(scheduler_output, model_runner_output,
                                           *self._transfers(report))
        self._events.publish(self.connector.take_events() if self.connector is not None else ())
        made = {client: EngineCoreOutputs(outputs=outs) for client, outs in outputs.items()}
        if self.finished_req_ids_dict:
            for client, finished in self.finished_req_ids_dict.items():
                made.setdefault(client, EngineCoreOutputs()).finished_requests = finished
            self.finished_req_ids_dict.clear()
        if stats is not None:
            if not made:
                made[0] = EngineCoreOutputs()
            first = next(iter(made.values()))
            first.scheduler_stats = self._stats(stats, model_runner_output.cudagraph_stats)
            first.scheduler_stats.kv_connector_stats = self._connector_stats(report)
            first.scheduler_stats.perf_stats = perf
        return made

    def _transfers(self, report) -> tuple[list[int], list[int], list[int]]:
        """What a connector's workers report: requests sent and received, blocks that failed."""
        if report is None:
            return [], [], []
        sent, received = ([self.requests[name]._quire[1] for name in names or ()]
                          for names in (report.finished_sending, report.finished_recving))
        return sent, received, list(report.invalid_block_ids)

    def _connector_stats(self, report):
        stats = report.kv_connector_stats if report is not None else None
        if stats and self.connector is not None:
            more = self.connector.get_kv_connector_stats()
            stats = stats.aggregate(more) if more else stats
        return stats.data if stats else None

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
            if request is None or not places:
                continue
            del drafts[len(places):]
            if self.structured_output_manager.should_advance(request):
                drafts = request.structured_output_request.grammar.validate_tokens(drafts)
            missing = len(places) - len(drafts)
            if missing:
                drafts.extend([-1] * missing)
                invalid[name] = missing
            scheduled[name] = drafts
        scheduler_output.num_invalid_spec_tokens = invalid

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
    def skipped_waiting(self) -> list[Request]:
        return self._core.queue(SKIPPED)

    @property
    def finished_req_ids(self) -> set[str]:
        return self._core.finished()

    @property
    def num_waiting_for_streaming_input(self) -> int:
        return sum(request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
                   for request in self.skipped_waiting)

    def get_request_counts(self) -> tuple[int, int]:
        return self._core.counts()[:2]

    def get_num_unfinished_requests(self) -> int:
        return self._core.counts()[2]

    def has_finished_requests(self) -> bool:
        return bool(self._core.counts()[3])

    def _stats(self, numbers, cudagraph_stats=None) -> SchedulerStats:
        running, waiting, skipped, usage, prefix, drafted, connected = numbers
        spec = connector = None
        if self.connector is not None:
            connector = PrefixCacheStats(bool(connected[0]), *connected[1:])
        if drafted is not None:
            drafts, tokens, accepted, per_position = drafted
            spec = SpecDecodingStats(self.num_spec_tokens, drafts, tokens, accepted, per_position)
        return SchedulerStats(
            num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=skipped,
            kv_cache_usage=usage, prefix_cache_stats=PrefixCacheStats(bool(prefix[0]), *prefix[1:]),
            connector_prefix_cache_stats=connector, spec_decoding_stats=spec,
            kv_cache_eviction_events=[KVCacheEvictionEvent(*life)
                                      for life in self._core.take_lives()],
            cudagraph_stats=cudagraph_stats)

    def make_stats(self) -> SchedulerStats | None:
        if not self.log_stats:
            return None
        return self._stats((*self._core.stats(), None, (0,) * 7))

    # -- the rest

    @property
    def pause_state(self) -> PauseState:
        return self._pause_state

    def set_pause_state(self, pause_state: PauseState) -> None:
        self._core.set_pause(PAUSES[pause_state])
        self._pause_state = pause_state

    def reset_prefix_cache(self, reset_running_requests: bool = False,
                           reset_connector: bool = False) -> bool:
        with_connector = reset_connector and self.connector is not None
        done = self._core.reset_prefix_cache(int(reset_running_requests), int(with_connector))
        return done and with_connector == reset_connector

    def reset_encoder_cache(self) -> None:
        self._core.reset_encoder_cache()

    def shutdown(self) -> None:
        self._events.publisher.shutdown()
        if self.connector is not None:
            self.connector.shutdown()

    def get_kv_connector(self):
        return self.connector


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
