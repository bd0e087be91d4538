"""QUIRE_RECORD=FILE: records what vLLM's scheduler, or Quire's, is asked and decides.

    EngineCore ──► recorded scheduler ──► its own method
                        └──► Recorder: a line, in C

The scheduler that vLLM makes gets a class between itself and its callers. An error of the recorder never
reaches the engine: it is logged, and the recording ends there.
"""
import atexit
import functools
import logging
import os
from abc import ABC
from collections import deque
from functools import cache
from typing import Any

from .version import part, profile

logger = logging.getLogger("vllm.quire")
ON, OFF = 1, 2
MAX_FLIGHT = 64  # steps that are not updated yet
PROFILES = {1: "vllm-0.20", 2: "vllm-0.32"}
POLICIES = {0: "fcfs", 1: "priority"}
SWITCHES = ("enable_chunked_prefill", "reserve_full_sequence", "disable_chunked_mm_input",
            "async_scheduling", "log_stats", "enable_caching", "fail_on_load_error",
            "is_encoder_decoder", "long_prefill_token_threshold_adaptive", "is_encoder_only",
            "is_pooling_model", "track_new_blocks", "mamba_shared_prefix_checkpoint", "use_eagle")
LEFT_OUT = ("none_hash", "hash_algorithm", "log_stats", "max_request_bytes")
REASONS = {"FINISHED_STOPPED": "stop", "FINISHED_LENGTH_CAPPED": "length",
           "FINISHED_ABORTED": "abort", "FINISHED_IGNORED": "ignored", "FINISHED_ERROR": "error",
           "FINISHED_REPETITION": "repetition"}


def reason_of(status: Any) -> str:
    return REASONS.get(status.name, "error")


# -- the header


def numbers_of(scheduler: Any, hash_block_size: int, mm_registry: Any) -> dict[str, Any]:
    """What a quire_sched with the same decisions is made of, as the drop-in has it."""
    ours = getattr(scheduler, "_numbers", None)
    if ours is not None:
        return ours
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    config, vllm_config = part("config"), scheduler.vllm_config
    config.refuse(vllm_config)
    if hasattr(config, "refuse_groups"):
        config.refuse_groups(vllm_config, scheduler.kv_cache_config)
    return config.numbers_of(vllm_config, scheduler.kv_cache_config, hash_block_size, mm_registry,
                             scheduler.log_stats, isinstance(scheduler, AsyncScheduler))


def common(scheduler: Any) -> dict[str, Any]:
    """The same where the drop-in does not serve the setup."""
    sched, cache_config = scheduler.scheduler_config, scheduler.cache_config
    return {"policy": sched.policy, "max_num_seqs": sched.max_num_seqs,
            "max_num_batched_tokens": sched.max_num_batched_tokens,
            "num_blocks": cache_config.num_gpu_blocks,
            "max_model_len": scheduler.vllm_config.model_config.max_model_len}


def config_of(scheduler: Any, hash_block_size: int, mm_registry: Any) -> tuple[dict, str | None]:
    """The header's config, and why the decisions cannot be repeated."""
    vllm_config, inexact = scheduler.vllm_config, None
    try:
        numbers = dict(numbers_of(scheduler, hash_block_size, mm_registry))
    except Exception as refusal:  # of many kinds: the traffic can be recorded in any case
        return common(scheduler) | {"hash_block_size": hash_block_size}, str(refusal)
    for name, what in (("kv_transfer_config", "a KV connector"),
                       ("ec_transfer_config", "an encoder connector")):
        if getattr(vllm_config, name, None) is not None:
            inexact = f"the engine has {what}"
    made = {name: value for name, value in numbers.items() if name not in LEFT_OUT}
    for name in SWITCHES:
        if name in made:
            made[name] = made[name] == ON
    made["profile"] = PROFILES[profile()]
    made["policy"] = POLICIES[made["policy"]]
    made["block_size"] = scheduler.block_size
    return made, inexact


# -- lines


class Recording:
    """One scheduler's recorder, and the numbers of its live requests."""

    def __init__(self, scheduler: Any, path: str, hash_block_size: int, mm_registry: Any):
        from vllm import __version__

        from quire.record import Recorder

        config, inexact = config_of(scheduler, hash_block_size, mm_registry)
        kind = type(scheduler)
        self.recorder: Any = Recorder(
            path, engine="vllm", engine_version=__version__, config=config, inexact=inexact,
            scheduler=f"{kind.__module__}.{kind.__qualname__}",
            model=str(scheduler.vllm_config.model_config.model))
        self.hash_block_size = hash_block_size
        self.is_caching = bool(scheduler.cache_config.enable_prefix_caching)
        self.numbers: dict[str, int] = {}
        self.requests: dict[str, Any] = {}
        self.flights: deque[tuple[Any, int]] = deque(maxlen=MAX_FLIGHT)
        self.count_blocks = scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        atexit.register(self.close)
        logger.info("the scheduler is recorded in %s", self.recorder.path)

    def close(self) -> None:
        if self.recorder is not None:
            recorder, self.recorder = self.recorder, None
            recorder.close()
        atexit.unregister(self.close)

    def added(self, scheduler: Any, request: Any) -> None:
        params, adapter = request.sampling_params, request.lora_request
        inputs = [(f.mm_position.offset, f.mm_position.length, f.mm_position.get_num_embeds(),
                   f.identifier) for f in request.mm_features or ()]
        number = self.recorder.add(
            request.arrival_time, request.num_prompt_tokens, min(request.max_tokens, 0xFFFFFFFF),
            min_tokens=params.min_tokens if params else 0,
            eos=params is not None and params.eos_token_id is not None,
            stops=len(params.stop_token_ids or ()) if params else 0, priority=request.priority,
            client=request.client_index, hashes=request.block_hashes if self.is_caching else None,
            adapter=adapter.lora_name if adapter else None, salt=request.cache_salt,
            inputs=inputs, grammar=request.structured_output_request is not None,
            pooling=request.pooling_params is not None, resumable=request.resumable,
            skip_prefix=bool(request.skip_reading_prefix_cache))
        self.numbers[request.request_id] = number
        self.requests[request.request_id] = request

    def refused(self, scheduler: Any, request: Any) -> None:
        """A request that the scheduler did not take."""
        number = self.numbers.pop(request.request_id, None)
        if number is not None and self.requests.pop(request.request_id, None) is not None:
            self.recorder.finish([number], "error")
            self.recorder.end(number, "error", 0)

    def scheduled(self, scheduler: Any, output: Any, throttle: bool) -> None:
        running, waiting = scheduler.get_request_counts()
        step = self.recorder._schedule_output(output, self.numbers, running, waiting,
                                              self.count_blocks(), throttle)
        self.flights.append((output, step))

    def updated(self, scheduler: Any, output: Any, computed: Any) -> None:
        for place, (flight, step) in enumerate(self.flights):
            if flight is output:
                del self.flights[place]
                self.recorder._update_output(step, output, computed)
                return

    def ended(self, scheduler: Any) -> None:
        """Those of the requests that ended since the last step that have no line yet."""
        names = [name for name in scheduler.finished_req_ids if name in self.requests]
        for name in sorted(names, key=self.numbers.__getitem__):
            request = self.requests[name]
            if not request.is_finished():
                continue  # a new one of the same name
            first = request.num_prompt_tokens // self.hash_block_size
            self.recorder.end(self.numbers.pop(name), reason_of(request.status),
                              request.num_output_tokens,
                              request.block_hashes if self.is_caching else None, first)
            del self.requests[name]

    def finished(self, scheduler: Any, requests: list, status: Any) -> None:
        names = [getattr(one, "request_id", None) or one[0] for one in requests]
        self.recorder.finish([self.numbers[name] for name in names if name in self.numbers],
                             reason_of(status))
        self.ended(scheduler)

    def drafted(self, scheduler: Any, drafts: Any) -> None:
        self.recorder.drafts([(self.numbers[name], len(tokens)) for name, tokens
                              in zip(drafts.req_ids, drafts.draft_token_ids)
                              if name in self.numbers])


class Recorded(ABC):
    """Goes before a scheduler's own class. An ABC as vLLM's schedulers: the class of an object may change
    to one of the same layout only."""

    _recording: Recording | None

    def _record(self, line: Any, *given: Any) -> None:
        recording = self._recording
        if recording is None or recording.recorder is None:
            return
        try:
            line(recording, self, *given)
        except Exception:
            logger.exception("the recording ends: a line cannot be recorded")
            self._recording = None
            recording.close()

    def add_request(self, request: Any) -> None:
        if request.request_id not in self.requests:  # else: the next input of a session
            self._record(Recording.added, request)
        super().add_request(request)
        if request.request_id not in self.requests:
            self._record(Recording.refused, request)

    def schedule(self, *given: Any, **named: Any) -> Any:
        made = super().schedule(*given, **named)
        throttle = bool(given[0] if given else named.get("throttle_prefills", False))
        self._record(Recording.scheduled, made, throttle)
        return made

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        self._record(Recording.updated, scheduler_output, model_runner_output)
        made = super().update_from_output(scheduler_output, model_runner_output)
        self._record(Recording.ended)
        return made

    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        self._record(Recording.drafted, draft_token_ids)
        super().update_draft_token_ids(draft_token_ids)

    def finish_requests(self, request_ids: Any, finished_status: Any) -> Any:
        made = super().finish_requests(request_ids, finished_status)
        self._record(Recording.finished, made, finished_status)
        return made

    def reset_prefix_cache(self, reset_running_requests: bool = False,
                           reset_connector: bool = False) -> bool:
        done = False
        try:
            done = super().reset_prefix_cache(reset_running_requests, reset_connector)
        finally:
            self._record(lambda recording, _: recording.recorder.reset(
                "prefix", reset_running_requests, reset_connector, bool(done)))
        return done

    def reset_encoder_cache(self) -> None:
        super().reset_encoder_cache()
        self._record(lambda recording, _: recording.recorder.reset("encoder"))

    def set_pause_state(self, pause_state: Any) -> None:
        super().set_pause_state(pause_state)
        self._record(lambda recording, _: recording.recorder.set_pause(int(pause_state)))

    def shutdown(self) -> None:
        super().shutdown()
        if self._recording is not None:
            self._recording.close()


@cache
def recorded(kind: type) -> type:
    """The class of a scheduler that is recorded."""
    return type(kind.__name__, (Recorded, kind), {"__module__": kind.__module__,
                                                  "__qualname__": kind.__qualname__})


def attach(scheduler: Any, path: str, given: dict[str, Any]) -> None:
    """Records a scheduler from here on."""
    from vllm.multimodal import MULTIMODAL_REGISTRY

    block_size = given.get("hash_block_size") or getattr(scheduler, "hash_block_size", 0)
    try:
        made = recorded(type(scheduler))
        scheduler._recording = Recording(scheduler, path, block_size or scheduler.block_size,
                                         given.get("mm_registry", MULTIMODAL_REGISTRY))
        scheduler.__class__ = made
    except Exception as problem:  # the engine serves without it
        logger.error("QUIRE_RECORD=%s: nothing is recorded: %s", path, problem)


def recording_of(make: Any) -> Any:
    """Makes what the class, or the function, makes, and records it."""

    @functools.wraps(make, updated=())
    def made(*given: Any, **named: Any) -> Any:
        scheduler = make(*given, **named)
        attach(scheduler, os.environ["QUIRE_RECORD"], named)
        return scheduler

    return made
