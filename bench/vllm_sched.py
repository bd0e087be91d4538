"""vLLM's side of the scheduler rows: the same engine as bench_sched.h, with vLLM's own classes.

    start     every request is added with a new prompt, and computed up to its first token
    decode    64 steps of one token for each request
    stop      every request is aborted, and the step that tells so is taken

Scheduler or AsyncScheduler, real Request objects with vLLM's block hasher (sha256, the default), and
a real ModelRunnerOutput for each update. Caching and stats are on, as in a server; events are off.
Prompts, sampled tokens and the pool are those of quire_bench, so every step must schedule the same:
check values are made of block ids. Making a ModelRunnerOutput is the model runner's work and not
timed.
"""

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace

from vllm_cache import (BLOCK_SIZE, DECODE_STEPS, FNV_OFFSET, Pass, Timer, digests, fnv, groups_of,
                        shuffle, splitmix)

LONG_PROMPT = 128 * 1024 + 1
PROMPT_POOL = 100_000
NUM_WAITING = 10_000
ABORTS = 50
ABORT_STRIDE = 7919
PREEMPT_TOKENS = 256
PREEMPT_POOL = 2000


def config_of(num_blocks: int, num_requests: int, max_model_len: int, is_async: bool):
    """What vLLM's scheduler reads of a VllmConfig."""
    from vllm import __version__

    config = SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=num_requests, max_num_scheduled_tokens=None,
            max_num_batched_tokens=num_requests * max_model_len, policy="fcfs",
            long_prefill_token_threshold=0, enable_chunked_prefill=True,
            scheduler_reserve_full_isl=True, async_scheduling=is_async,
            disable_chunked_mm_input=False),
        cache_config=SimpleNamespace(num_gpu_blocks=num_blocks, enable_prefix_caching=True,
                                     mamba_cache_mode="none", block_size=BLOCK_SIZE),
        lora_config=None, kv_events_config=None, kv_transfer_config=None, ec_transfer_config=None,
        speculative_config=None,
        parallel_config=SimpleNamespace(data_parallel_index=0, decode_context_parallel_size=1,
                                        prefill_context_parallel_size=1, pipeline_parallel_size=1),
        observability_config=SimpleNamespace(kv_cache_metrics=False, enable_mfu_metrics=False),
        model_config=SimpleNamespace(is_encoder_decoder=False, max_model_len=max_model_len,
                                     enable_return_routed_experts=False))
    if not __version__.startswith("0.20."):
        add_newer(config, is_async)
    return config


def add_newer(config, is_async: bool) -> None:
    """What vLLM 0.32 reads besides: its defaults."""
    sched, depth = config.scheduler_config, 1 + is_async
    vars(sched).update(max_num_active_seqs=None, long_prefill_token_threshold_adaptive=False,
                       watermark=0.0, prefill_schedule_interval=1)
    config.cache_config.enable_mamba_shared_prefix_checkpoint = False
    vars(config.observability_config).update(per_request_spec_decode_metrics="none",
                                             enable_logging_iteration_details=False)
    vars(config.model_config).update(
        uses_mrope=False, is_diffusion=False, supports_multimodal_inputs=False,
        runner_type="generate", return_sampling_mask=False)
    vars(config).update(
        is_mm_encoder_only=False, use_v2_model_runner=True, num_speculative_tokens=0,
        num_lookahead_tokens=0, num_prefill_lookahead_tokens=0, max_concurrent_batches=depth,
        max_in_flight_tokens=depth * sched.max_num_batched_tokens,
        ec_manager_config=SimpleNamespace(get_encoder_cache_manager_obj=lambda: None),
        aux_output_config=SimpleNamespace(enabled=False),
        attention_config=SimpleNamespace(hisparse_config=None))


class NoGrammars:
    """Stands for vLLM's StructuredOutputManager, which answers the same for these requests."""

    def should_advance(self, request) -> bool:
        return bool(request.use_structured_output)

    def accept_tokens(self, request, _tokens: list[int]) -> bool:
        """0.32 asks for each request."""
        return not request.use_structured_output

    def validate_tokens(self, _request, tokens: list[int]) -> list[int]:
        return tokens


class Engine:
    """A scheduler and its requests; see the top of the file."""

    def __init__(self, num_blocks: int, num_requests: int, shortest: int, longest: int,
                 max_tokens: int, is_async: bool = False):
        from vllm.sampling_params import SamplingParams
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.kv_cache_interface import KVCacheConfig

        self.is_async = is_async
        self.scheduler = (AsyncScheduler if is_async else Scheduler)(
            config_of(num_blocks, num_requests, longest + max_tokens, is_async),
            KVCacheConfig(num_blocks, [], groups_of("full")), NoGrammars(), BLOCK_SIZE, BLOCK_SIZE,
            SimpleNamespace(supports_multimodal_inputs=lambda _config: False), False,
            log_stats=True)
        self.params = SamplingParams(max_tokens=max_tokens)
        function = get_hash_fn_by_name("sha256")
        kv_cache_utils.init_none_hash(function)
        self.hasher = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, function)
        self.table = [x % 128_000
                      for x in islice(splitmix(1), num_requests + DECODE_STEPS + longest)]
        self.random = splitmix(11)
        self.lengths = [shortest + next(self.random) % (longest - shortest + 1)
                        for _ in range(num_requests)]
        self.names = [f"request-{i}" for i in range(num_requests)]
        self.num_added = self.num_updated = 0
        self.in_flight = []
        self.fill_pool(num_blocks - 1)

    def fill_pool(self, count: int) -> None:
        """All blocks cached and free, in no order."""
        from vllm.v1.request import Request

        pool = self.scheduler.kv_cache_manager.block_pool
        blocks = pool.get_new_blocks(count)
        shuffle(blocks, 4)
        filler = Request("filler", [0], self.params, None)
        filler.block_hashes = digests(self.random, count)
        pool.cache_full_blocks(filler, blocks, 0, count, BLOCK_SIZE, 0)
        pool.free_blocks(blocks)

    # -- requests

    def prompt(self, i: int) -> list[int]:
        return [self.num_added] + self.table[1:self.lengths[i]]

    def add(self, i: int, prompt: list[int]) -> None:
        from vllm.v1.request import Request

        self.scheduler.add_request(
            Request(self.names[i], prompt, self.params, None, block_hasher=self.hasher))

    def add_new(self, i: int) -> None:
        self.add(i, self.prompt(i))
        self.num_added += 1

    # -- steps

    def schedule(self):
        output = self.scheduler.schedule()
        self.in_flight.append(output)
        return output

    def computed(self):
        """What the model runner gives back for the oldest step."""
        from vllm.v1.outputs import ModelRunnerOutput

        output = self.in_flight.pop(0)
        self.num_updated += 1
        first = self.num_updated % DECODE_STEPS
        names = list(output.num_scheduled_tokens)
        sampled = [[token] for token in self.table[first:first + len(names)]]
        return output, ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, sampled)

    def update(self) -> None:
        self.scheduler.update_from_output(*self.computed())

    def start(self) -> None:
        for i in range(len(self.names)):
            self.add_new(i)
        self.schedule()
        if self.is_async:
            self.schedule()
        self.update()

    def decode(self, timer: Timer) -> None:
        for _ in range(DECODE_STEPS):
            with timer(len(self.names)):
                self.schedule()
            output, computed = self.computed()
            with timer(0):  # the same operations
                self.scheduler.update_from_output(output, computed)

    def stop(self) -> None:
        from vllm.v1.request import RequestStatus

        self.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
        while self.in_flight:
            self.update()
        self.schedule()
        self.update()

    def check(self) -> str:
        """Made of all block ids of all requests."""
        check = FNV_OFFSET
        for name in self.names:
            (ids,) = self.scheduler.kv_cache_manager.get_block_ids(name)
            check = fnv(check, ids)
        return f"{check:016x}"


def check_step(output, check: int = FNV_OFFSET) -> int:
    """Made of what a step scheduled, as bench_engine_check_step."""
    known = output.scheduled_cached_reqs
    told = [new.block_ids[0] for new in output.scheduled_new_reqs]
    told += [ids[0] for ids in known.new_block_ids if ids is not None]
    preempted = output.preempted_req_ids or ()
    return fnv(check, [len(output.num_scheduled_tokens), output.total_num_scheduled_tokens,
                       len(preempted), sum(map(sum, told)) & 0xFFFFFFFF])


# ---- the rows ----------------------------------------------------------------------------------


def decode(num_requests: int, is_async: bool) -> Callable[[], Pass]:
    """schedule and update_from_output, by request and step; prompts of 500 to 2,000 tokens."""

    def make() -> Pass:
        longest = 2000
        blocks = (longest + DECODE_STEPS) // BLOCK_SIZE + 2
        engine = Engine(2 * blocks * num_requests, num_requests, 500, longest, 2 * DECODE_STEPS,
                        is_async)
        engine.start()
        engine.decode(Timer())
        check = engine.check()
        engine.stop()

        def run(timer):
            engine.start()
            engine.decode(timer)
            engine.stop()
            return check

        return run

    return make


def admit(hits: bool) -> Callable[[], Pass]:
    """schedule() that takes in a prompt of 131,073 tokens; its full blocks new, or all hits."""

    def make() -> Pass:
        engine = Engine(PROMPT_POOL, 1, LONG_PROMPT, LONG_PROMPT, 1)
        prompt = engine.prompt(0)

        def serve(timer):
            if hits:
                engine.add(0, prompt)
            else:
                engine.add_new(0)
            with timer(1):
                output = engine.schedule()
            engine.update()
            return f"{check_step(output):016x}"

        check = serve(Timer())
        if hits:
            check = serve(Timer())

        def run(timer):
            serve(timer)
            return check

        return run

    return make


def add() -> Pass:
    """A Request of 131,073 tokens is made, which hashes them, and added."""
    engine = Engine(PROMPT_POOL, 1, LONG_PROMPT, LONG_PROMPT, 1)

    def run(timer):
        prompt = engine.prompt(0)
        engine.num_added += 1
        with timer(1):
            engine.add(0, prompt)
        engine.stop()

    return run


def preempt() -> Pass:
    """Steps of 256 requests, from arrival to end, in a pool that holds a third of them."""
    engine = Engine(PREEMPT_POOL, 256, 64, 128, PREEMPT_TOKENS)
    scheduler = engine.scheduler

    def serve(timer):
        check = FNV_OFFSET
        for i in range(len(engine.names)):
            engine.add_new(i)
        while scheduler.has_unfinished_requests():
            with timer(1):
                output = engine.schedule()
            check = check_step(output, check)
            output, computed = engine.computed()
            with timer(0):
                scheduler.update_from_output(output, computed)
        engine.stop()
        return f"{check:016x}"

    check = serve(Timer())

    def run(timer):
        serve(timer)
        return check

    return run


def abort() -> Pass:
    """finish_requests of one among 10,000 that wait."""
    from vllm.v1.core.sched.interface import PauseState
    from vllm.v1.request import RequestStatus

    engine = Engine(1000, NUM_WAITING, 16, 32, 1)
    engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)
    for i in range(NUM_WAITING):
        engine.add_new(i)
    turn = 0

    def run(timer):
        nonlocal turn
        chosen = [(turn * ABORTS + i) * ABORT_STRIDE % NUM_WAITING for i in range(ABORTS)]
        turn += 1
        with timer(ABORTS):
            for i in chosen:
                engine.scheduler.finish_requests(engine.names[i], RequestStatus.FINISHED_ABORTED)
        engine.schedule()
        engine.update()
        for i in chosen:
            engine.add_new(i)

    return run
