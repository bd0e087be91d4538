"""vLLM 0.32's Scheduler and AsyncScheduler."""
import logging
from collections.abc import Iterable
from typing import Any

from vllm.distributed.aux_output_connector.connector import AuxOutputSchedulerConnector
from vllm.multimodal.utils import strip_covered_mm_data
from vllm.v1.core.kv_cache_utils import KVCacheBlockCopy
from vllm.v1.core.sched.output import (GrammarOutput, NewRequestData, ScheduledEncoderInputStats,
                                       SchedulerOutput)
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.metrics.stats import PrefixCacheStats, RequestSpecDecodeMetrics
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output.utils import strip_speculative_padding

from ..scheduler import SKIPPED, BaseScheduler
from . import config, connector, request
from .events import maker_of
from .kv_cache import KVCache


logger = logging.getLogger("vllm.quire")


class Scheduler(BaseScheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler."""

    configs, requests_ = config, request
    bound_request, manager_class = request.BoundRequest, KVCache

    def _make_connectors(self) -> None:
        config.refuse(self.vllm_config)
        config.refuse_groups(self.vllm_config, self.kv_cache_config)
        self._make_kv_connector()
        self._make_ec_connector()
        self.observability_config = self.vllm_config.observability_config
        self.aux_output_connector = None
        if self.vllm_config.aux_output_config.enabled:
            self.aux_output_connector = AuxOutputSchedulerConnector()
        self._warned = frozenset()
        self._connector_was_reset = False
        self._spec_metrics = self.vllm_config.observability_config.per_request_spec_decode_metrics
        self._fetches, self._hits = connector.Fetches(), PrefixCacheStats()

    def _make_events(self):
        return super()._make_events(stored=maker_of(self.kv_cache_config))

    def _bind(self) -> None:
        if self.connector is not None:
            self.connector.bind_kv_cache_manager(self.kv_cache_manager)

    def _make_core(self) -> None:
        if self.connector is not None:
            self._numbers["requires_kv_delivery"] = int(self.connector.requires_kv_delivery)
            self._numbers["diverges"] = int(self.connector.supports_divergent_local_hybrid_hits)
        super()._make_core()

    def _calls(self) -> dict[str, Any]:
        manager = self.structured_output_manager
        more = {} if self._spec_metrics == "none" else {"observed": self._observe}
        if self.aux_output_connector is not None:
            more |= {"aux_taken": self._take_aux, "aux_ended": self._end_aux}
        return {"NewRequestData": self._new_request_data, "is_ready": self._is_ready,
                "block_copy": KVCacheBlockCopy,
                "accept_tokens": lambda *given: manager.accept_tokens(*given),
                "validate_tokens": lambda *given: manager.validate_tokens(*given),
                **more, **connector.calls_of(self), **connector.image_calls_of(self)}

    def _new_request_data(self, request: Request, block_ids, num_computed: int) -> NewRequestData:
        """The V2 model runner gets all tokens of resumed requests in this way too."""
        features = strip_covered_mm_data(request.mm_features, num_computed,
                                         uses_mrope=self.vllm_config.model_config.uses_mrope)
        return NewRequestData(
            request.request_id, request.prompt_token_ids, features, request.sampling_params,
            request.pooling_params, block_ids, num_computed, request.lora_request,
            request.prompt_embeds, request.prompt_is_token_ids,
            request._all_token_ids if self._numbers["is_v2"] else None)

    def _observe(self, request: Request, num_drafts: int, num_accepted: int) -> None:
        """Drafts of a request were verified."""
        request.spec_decode_metrics.observe(num_drafts, num_accepted,
                                            self._spec_metrics == "detailed")

    def _take_aux(self, request: Request):
        """Routed experts of the tokens that a request has got now."""
        return self.aux_output_connector.take_output(request,
                                                     self._computed.aux_output_connector_output)

    def _end_aux(self, request: Request) -> None:
        self.aux_output_connector.request_finished(request)

    def _is_ready(self, request: Request) -> int:
        """1: the request's grammar is compiled, 0: not yet, -1: it cannot be compiled."""
        part = request.structured_output_request
        grammar = part.grammar if part else None
        if isinstance(grammar, Exception):
            return -1
        return int(grammar is not None)

    # -- requests

    def add_request(self, request: Request) -> None:
        is_new = request.request_id not in self.requests
        if is_new and self._spec_metrics != "none":
            request.spec_decode_metrics = RequestSpecDecodeMetrics.new(self.num_spec_tokens)
        super().add_request(request)
        if is_new and self.connector is not None and request.request_id in self.requests:
            self.connector.on_new_request(request)
            self._fetches.added(request)

    def finish_requests(self, request_ids: str | Iterable[str] | None,
                        finished_status: RequestStatus) -> list[Request]:
        return self._finish(request_ids, finished_status)

    # -- steps

    def schedule(self, throttle_prefills: bool = False) -> SchedulerOutput:
        output = self._core.schedule(throttle_prefills)
        output.kv_connector_block_state = None  # for connectors alone
        if "encoder_cache_size" in self._numbers:
            self._warn_of_other_sizes()
        if self.aux_output_connector is not None:
            output.aux_output_connector_metadata = self.aux_output_connector.build_connector_meta(
                output, self.requests)
        if self.log_stats and self.observability_config.enable_logging_iteration_details:
            output.scheduled_encoder_input_stats = self._make_scheduled_encoder_input_stats(
                output.scheduled_encoder_inputs)
        return output

    def _warn_of_other_sizes(self) -> None:
        """Of each request once; the next update ends it with an error."""
        found = {each[0]: each for each in self._core.other_sizes()}
        for name in found.keys() - self._warned:
            _, identifier, held, index, wanted = found[name]
            logger.warning("quire.vllm: multimodal identifier %r holds %d embeddings in the encoder cache; "
                           "input %d of request %s expects %d. The request ends with an error. A client may "
                           "have used one UUID for two inputs", identifier, held, index, name, wanted)
        self._warned = found.keys()

    def _build_kv_connector_meta(self, connector, scheduler_output: SchedulerOutput):
        """Plugins of vLLM replace this method to tell connectors more."""
        return connector.build_connector_meta(scheduler_output)

    def _make_scheduled_encoder_input_stats(self, inputs: dict[str, list[int]]):
        """How many inputs a step encodes, and their embeddings."""
        sizes = [self.requests[name].mm_features[index].mm_position.get_num_embeds()
                 for name, numbers in inputs.items() for index in numbers]
        return ScheduledEncoderInputStats(len(sizes), sum(sizes)) if sizes else None

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        names = self._grammar_names(scheduler_output)
        if not names:
            return None
        drafts = scheduler_output.scheduled_spec_decode_tokens
        return GrammarOutput(names, self._bitmask(scheduler_output, names),
                             [len(strip_speculative_padding(drafts.get(name, []))) for name in names])

    def update_from_output(self, scheduler_output: SchedulerOutput,
                           model_runner_output) -> dict[int, EngineCoreOutputs]:
        report = self._report = model_runner_output.kv_connector_output
        self._computed = model_runner_output
        images = model_runner_output.ec_connector_output
        perf = self._perf_stats(scheduler_output)
        self._check_report(report)
        outputs, stats = self._core.update(scheduler_output, model_runner_output,
                                           *self._transfers(report))
        for name in (report.finished_recving or () if report else ()):
            self._fetches.received(self.requests.get(name))
        if self.ec_connector is not None and images:
            self.ec_connector.update_connector_output(images)
        told = self._connector_stats(report), self._image_stats(images)
        self._publish()
        made = self._outputs(outputs)
        if stats is not None:
            self._give_stats(made, self._stats(
                stats, cudagraph_stats=model_runner_output.cudagraph_stats, perf_stats=perf,
                kv_connector_stats=told[0].to_dict() if told[0] else None,
                ec_connector_stats=told[1].data if told[1] else None))
        return made

    def _check_report(self, report) -> None:
        if report is not None and report.invalid_block_ids and len(self.kv_cache_config.kv_cache_groups) > 1:
            raise RuntimeError("a KV connector reported blocks whose load failed (invalid_block_ids) "
                               "for a model with several KV cache groups: their ids do not say which "
                               "request has failed; it must report requests (failed_recving)")

    def _transfers(self, report) -> tuple[list[int], ...]:
        """And requests whose load failed as a whole."""
        failed = report.failed_recving or () if report is not None else ()
        return *super()._transfers(report), [self.requests[name]._quire[1] for name in failed
                                             if name in self.requests]

    def _connector_stats(self, report):
        stats = report.kv_connector_stats if report is not None else None
        if self.connector is None:
            return stats
        more = self.connector.get_kv_connector_stats()
        if more is None or more.is_empty():
            return stats
        return more if stats is None else stats.aggregate(more)

    def _image_stats(self, images):
        stats = images.ec_connector_stats if images is not None else None
        if self.ec_connector is None:
            return stats
        more = self.ec_connector.get_ec_connector_stats()
        if more is None or more.is_empty():
            return stats
        return more if stats is None else stats.aggregate(more)

    def _valid_drafts(self, request: Request, drafts: list[int]) -> list[int]:
        return self.structured_output_manager.validate_tokens(request, drafts)

    # -- looking

    @property
    def kv_holding_waiting(self) -> list[Request]:
        """Requests that wait and hold blocks: they are served before `waiting`."""
        return self._core.queue(SKIPPED)

    @property
    def reset_preempted_req_ids(self) -> set[str]:
        return self._core.preempted()

    def get_kv_cache_usage(self) -> float:
        return self.kv_cache_manager.usage

    def has_finished_requests(self) -> bool:
        running, waiting, _unfinished, has_finished = self._core.counts()
        is_kept = self.connector is not None and len(self.requests) > running + waiting
        return bool(has_finished or self._refused) or is_kept

    def has_requests(self) -> bool:
        return (super().has_requests()
                or any(each is not None and each.has_pending_push_work()
                       for each in (self.connector, self.ec_connector)))

    def _stats(self, numbers, **more):
        return super()._stats(numbers, num_kv_fetch_reqs_by_stage=self._fetches.counts.copy(), **more)

    def _connector_prefix_stats(self, numbers) -> PrefixCacheStats:
        made = super()._connector_prefix_stats(numbers)
        made.reset, self._connector_was_reset = made.reset or self._connector_was_reset, False
        made.hits_by_source = connector.take_hits(self)
        return made

    def get_ec_connector(self):
        return self.ec_connector

    def get_kv_event_publisher_config(self):
        return self._events.publisher.get_publisher_config()

    # -- the rest

    def reset_prefix_cache(self, reset_running_requests: bool = False,
                           reset_connector: bool = False) -> bool:
        with_connector = reset_connector and self.connector is not None
        done = self._reset_blocks(reset_running_requests, with_connector)
        if done and self.aux_output_connector is not None:
            self.aux_output_connector.reset()
        return done

    def reset_connector_cache(self) -> bool:
        """Without a connector there is nothing to do."""
        if self.connector is not None:
            if self.connector.reset_cache() is False:
                return False
            self._connector_was_reset = True
        return True

    def shutdown(self) -> None:
        super().shutdown()
        if self.ec_connector is not None:
            self.ec_connector.shutdown()


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
