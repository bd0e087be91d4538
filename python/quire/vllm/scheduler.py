"""vLLM's Scheduler and AsyncScheduler, on a Core in C.

    EngineCore ── Request ──► add_request          requests: a dict, as in vLLM
               ◄── SchedulerOutput ── schedule     filled in C
               ── ModelRunnerOutput ──► update_from_output ──► EngineCoreOutputs
"""
import time
from collections import defaultdict
from collections.abc import Iterable

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.multimodal import MULTIMODAL_REGISTRY
from vllm.v1.core.sched.interface import PauseState, SchedulerInterface
from vllm.v1.core.sched.output import (CachedRequestData, GrammarOutput, NewRequestData,
                                       SchedulerOutput)
from vllm.v1.engine import (EngineCoreEvent, EngineCoreEventType, EngineCoreOutput,
                            EngineCoreOutputs, FinishReason)
from vllm.v1.metrics.stats import PrefillStats, PrefixCacheStats, SchedulerStats
from vllm.v1.request import Request, RequestStatus
from vllm.v1.spec_decode.metrics import SpecDecodingStats

from quire._vllm import Core

from . import config as configs
from . import request as requests_
from .connector import calls_of
from .events import Events

EVENT_TYPES = {int(kind): kind for kind in EngineCoreEventType}
FINISH_REASONS = (None, FinishReason.STOP, FinishReason.LENGTH, FinishReason.ABORT,
                  FinishReason.ERROR, FinishReason.REPETITION)
PAUSES = {PauseState.UNPAUSED: 0, PauseState.PAUSED_NEW: 1, PauseState.PAUSED_ALL: 2}


def new_request_data(request: Request, block_ids, num_computed_tokens: int) -> NewRequestData:
    return NewRequestData(request.request_id, request.prompt_token_ids, request.mm_features,
                          request.sampling_params, request.pooling_params, block_ids,
                          num_computed_tokens, request.lora_request, request.prompt_embeds)


def record(request: Request, kind: int, timestamp: float | None) -> float:
    """An event of the step that is being made; all of one step have one time."""
    timestamp = time.monotonic() if timestamp is None else timestamp
    request.events.append(EngineCoreEvent(EVENT_TYPES[kind], timestamp))
    return timestamp


class Scheduler(SchedulerInterface):
    """As vllm.v1.core.sched.scheduler.Scheduler."""

    is_async = False

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
        self._events = Events(vllm_config.kv_events_config,
                              vllm_config.parallel_config.data_parallel_index)
        self._core = Core(
            configs.numbers_of(vllm_config, kv_cache_config, hash_block_size or block_size,
                               mm_registry, log_stats, self.is_async),
            {"SchedulerOutput": SchedulerOutput, "NewRequestData": new_request_data,
             "CachedRequestData": CachedRequestData, "EngineCoreOutput": EngineCoreOutput,
             "PrefillStats": PrefillStats, "finish_reasons": FINISH_REASONS,
             "ended": requests_.ended,
             "should_advance": structured_output_manager.should_advance,
             "record": record, "requests": self.requests,
             "finished_by_client": self.finished_req_ids_dict,
             **calls_of(self.connector), **self._events.calls()})

    # -- requests

    def add_request(self, request: Request) -> None:
        requests_.refuse(request)
        assert request.request_id not in self.requests, "duplicate request id"
        number = self._core.add(request, requests_.rules_of(request))
        self.requests[request.request_id] = request
        requests_.bind(request, self._core, number)
        if self.log_stats:
            request.record_event(EngineCoreEventType.QUEUED)

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
        outputs, stats = self._core.update(scheduler_output, model_runner_output,
                                           *self._transfers(report))
        if report is not None and self.connector is not None:
            self.connector.update_connector_output(report)
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
        return self._core.queue(0)

    @property
    def waiting(self) -> list[Request]:
        return self._core.queue(1)

    @property
    def skipped_waiting(self) -> list[Request]:
        return self._core.queue(2)

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
