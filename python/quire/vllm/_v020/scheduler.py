"""vLLM 0.20's Scheduler and AsyncScheduler."""
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.output import GrammarOutput, NewRequestData, SchedulerOutput
from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.request import Request, RequestStatus

from ..connector import calls_of, image_calls_of
from ..scheduler import SKIPPED, BaseScheduler
from . import config, request


def new_request_data(request: Request, block_ids, num_computed_tokens: int) -> NewRequestData:
    return NewRequestData(request.request_id, request.prompt_token_ids, request.mm_features,
                          request.sampling_params, request.pooling_params, block_ids,
                          num_computed_tokens, request.lora_request, request.prompt_embeds)


def new_request_data_v2(request: Request, block_ids, num_computed_tokens: int) -> NewRequestData:
    """For the V2 model runner, which gets all tokens of resumed requests in this way too."""
    data = new_request_data(request, block_ids, num_computed_tokens)
    data.prefill_token_ids = request._all_token_ids
    return data


class Scheduler(BaseScheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler."""

    configs, requests_ = config, request
    bound_request = request.BoundRequest

    def _make_connectors(self) -> None:
        self._make_ec_connector()
        self._make_kv_connector()

    def _bind(self) -> None:
        if hasattr(self.connector, "bind_gpu_block_pool"):
            self.connector.bind_gpu_block_pool(self.kv_cache_manager.block_pool)

    def _calls(self) -> dict[str, Any]:
        return {"NewRequestData": new_request_data_v2 if self._numbers["is_v2"] else new_request_data,
                "should_advance": self._should_advance,
                **calls_of(self), **image_calls_of(self)}

    def _should_advance(self, request: Request) -> bool:
        return self.structured_output_manager.should_advance(request)

    def finish_requests(self, request_ids: str | Iterable[str] | None,
                        finished_status: RequestStatus) -> list[tuple[str, int]]:
        return [(request.request_id, request.client_index)
                for request in self._finish(request_ids, finished_status)]

    # -- steps

    def schedule(self) -> SchedulerOutput:
        return self._core.schedule()

    def get_grammar_bitmask(self, scheduler_output: SchedulerOutput) -> GrammarOutput | None:
        names = self._grammar_names(scheduler_output)
        return GrammarOutput(names, self._bitmask(scheduler_output, names)) if names else None

    def update_from_output(self, scheduler_output: SchedulerOutput,
                           model_runner_output) -> dict[int, EngineCoreOutputs]:
        report = self._report = model_runner_output.kv_connector_output
        perf = self._perf_stats(scheduler_output)
        outputs, stats = self._core.update(scheduler_output, model_runner_output,
                                           *self._transfers(report))
        self._publish()
        made = self._outputs(outputs)
        if stats is not None:
            self._give_stats(made, self._stats(
                stats, cudagraph_stats=model_runner_output.cudagraph_stats, perf_stats=perf,
                kv_connector_stats=self._connector_stats(report)))
        return made

    def _connector_stats(self, report):
        stats = report.kv_connector_stats if report is not None else None
        if stats and self.connector is not None:
            more = self.connector.get_kv_connector_stats()
            stats = stats.aggregate(more) if more else stats
        return stats.data if stats else None

    def _valid_drafts(self, request: Request, drafts: list[int]) -> list[int]:
        if not self.structured_output_manager.should_advance(request):
            return drafts
        return request.structured_output_request.grammar.validate_tokens(drafts)

    # -- looking

    @property
    def skipped_waiting(self) -> list[Request]:
        return self._core.queue(SKIPPED)

    def has_finished_requests(self) -> bool:
        return bool(self._core.counts()[3] or self._refused)

    # -- the rest

    def reset_prefix_cache(self, reset_running_requests: bool = False,
                           reset_connector: bool = False) -> bool:
        with_connector = reset_connector and self.connector is not None
        done = self._reset_blocks(reset_running_requests, with_connector)
        return done and with_connector == reset_connector


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
