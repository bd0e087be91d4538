"""vLLM's own Scheduler with a connector, real in both halves, but for the copies.

    Engine     a Scheduler with the connector's scheduler half; turn() is one step
    Copies     what stands for the GPU: a copy that begins in step N has ended in step N + delay - 1

The worker halves of OffloadingConnector and SimpleCPUOffloadConnector are vLLM's own classes; what they
give to CUDA goes to Copies. The worker half of QuireConnector copies bytes (of blocks of 128 bytes) and
its reports are held back as long. A model runner is not there: each request whose tokens are all
computed gets a token.
"""
import time
from collections import deque
from types import SimpleNamespace

from vllm_cache import BLOCK_SIZE, groups_of, is_0_20
from vllm_sched import NoGrammars, config_of

NONE, OFFLOADING, SIMPLE, QUIRE = ("no connector", "OffloadingConnector", "SimpleCPUOffloadConnector",
                                   "QuireConnector")
# A model of time, to add up the steps that a request waits: an 8B model on one or two GPUs.
STEP_MS, TOKEN_MS = 5.0, 0.05


# ---- configs -----------------------------------------------------------------------------------


def kv_cache_config_of(num_blocks: int):
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor

    groups = groups_of("full")
    page = groups[0].kv_cache_spec.page_size_bytes
    size = num_blocks * page
    tensor = (KVCacheTensor(size=size, shared_by=["layer.0"]) if is_0_20()
              else KVCacheTensor(size, ["layer.0"], size, page))
    return KVCacheConfig(num_blocks, [tensor], groups)


def extra_config_of(name: str, num_slots: int, page: int) -> dict:
    """The same number of blocks in host memory for each connector."""
    if name == QUIRE:
        return {"host_blocks": num_slots + 1}  # the first one is never used
    if name == SIMPLE:
        return {"cpu_bytes_to_use": (num_slots + 1) * page}  # likewise
    if not is_0_20():
        from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

        align = CPUOffloadingSpec.BLOCK_SIZE_ALIGNMENT
        page = (page + align - 1) // align * align
    return {"cpu_bytes_to_use": num_slots * page}


def add_connector(config, name: str, num_slots: int, page: int) -> None:
    """What connectors read of a VllmConfig, besides what the scheduler reads."""
    from vllm.config import KVTransferConfig

    vars(config.cache_config).update(
        prefix_caching_hash_algo="sha256", cache_dtype="auto", prefix_match_unit=None,
        hash_block_size=None, kv_cache_layout=None, prefix_cache_retention_interval=None)
    vars(config.model_config).update(
        use_mla=False, model="bench", revision=None, tokenizer="bench", tokenizer_revision=None,
        dtype="float32", quantization=None, hf_config=SimpleNamespace(),
        get_total_num_kv_heads=lambda: 1)
    vars(config.parallel_config).update(
        rank=0, world_size=1, tensor_parallel_size=1, data_parallel_rank=0, data_parallel_size=1,
        data_parallel_rank_local=None, distributed_executor_backend="uni", nnodes_within_dp=1)
    config.scheduler_config.disable_hybrid_kv_cache_manager = True
    config.kv_transfer_config = KVTransferConfig(
        kv_connector=name, kv_role="kv_both", kv_load_failure_policy="recompute",
        kv_connector_module_path="quire.vllm" if name == QUIRE else None,
        kv_connector_extra_config=extra_config_of(name, num_slots, page))


# ---- worker halves -----------------------------------------------------------------------------


class Copies:
    """Stands for a device: all that it is asked for ends after some steps."""

    def __init__(self, delay: int):
        self.delay, self.step = delay, 0
        self.waiting: deque = deque()
        self.memory = None

    def begin(self, what) -> None:
        self.waiting.append((self.step + self.delay - 1, what))

    def ended(self) -> list:
        made = []
        while self.waiting and self.waiting[0][0] <= self.step:
            made.append(self.waiting.popleft()[1])
        return made

    # -- as OffloadingWorker of 0.32, and OffloadingHandler of 0.20

    def submit_store(self, job, _source, _target) -> bool:
        self.begin(job)
        return True

    submit_load = submit_store

    def transfer_async(self, job, _spec) -> bool:
        self.begin(job)
        return True

    def get_finished(self) -> list:
        if is_0_20():
            from vllm.v1.kv_offload.worker.worker import TransferResult
        else:
            from vllm.v1.kv_offload.base import TransferResult
        return [TransferResult(job, True) for job in self.ended()]

    def wait(self, jobs) -> None:
        """These have ended, whatever step it is."""
        self.waiting = deque(sorted(((0, job) if job in jobs else (end, job)
                                     for end, job in self.waiting), key=lambda each: each[0]))

    def shutdown(self) -> None:
        pass


class CopyEvent:
    """As torch.Event, of a copy that SimpleCPUOffloadWorker has launched."""

    def __init__(self, copies: Copies):
        self.copies, self.end = copies, copies.step + copies.delay - 1

    def query(self) -> bool:
        return self.copies.step >= self.end

    def synchronize(self) -> None:
        pass


class SimpleBackend:
    """As DmaCopyBackend."""

    def __init__(self, copies: Copies):
        self.copies = copies

    def launch_copy(self, _source, _target, is_store, event_idx, events_list, wait_event=None) -> None:
        events_list.append((event_idx, CopyEvent(self.copies)))


def take_offloading(connector, copies: Copies) -> None:
    half = connector.connector_worker
    if not is_0_20():
        half.worker = copies
        return
    from vllm.v1.kv_offload.mediums import CPULoadStoreSpec, GPULoadStoreSpec

    half.worker.register_handler(GPULoadStoreSpec, CPULoadStoreSpec, copies)
    half.worker.register_handler(CPULoadStoreSpec, GPULoadStoreSpec, copies)  # one set: asked once


def take_simple(connector, copies: Copies) -> None:
    half = connector.worker_handler
    half._backend = SimpleBackend(copies)
    if is_0_20():
        return

    def wait_for_save() -> None:
        """Without its CUDA event."""
        meta = half._connector_metadata
        if meta is not None and meta.store_gpu_blocks:
            half._backend.launch_copy(meta.store_gpu_blocks, meta.store_cpu_blocks, True,
                                      meta.store_event, half._store_events)

    half.wait_for_save = wait_for_save


def take_quire(connector, num_blocks: int, copies: Copies) -> None:
    import torch

    half = connector._worker
    copies.memory = torch.zeros(num_blocks, 2, BLOCK_SIZE, 1, 1)  # as long as the worker
    half.register({"layer.0": copies.memory})
    report = half.report

    def late(plan):
        made = report(plan)
        copies.begin(made.reports)
        made.reports = [each for reports in copies.ended() for each in reports]
        return made

    half.report = late


class WorkerSide:
    """The worker's connector, called as a model runner does."""

    def __init__(self, name: str, config, kv_cache_config, delay: int):
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole

        self.copies = Copies(delay)
        self.connector = KVConnectorFactory.create_connector(config, KVConnectorRole.WORKER,
                                                             kv_cache_config)
        if name == OFFLOADING:
            take_offloading(self.connector, self.copies)
        elif name == SIMPLE:
            take_simple(self.connector, self.copies)
        else:
            take_quire(self.connector, kv_cache_config.num_blocks, self.copies)

    def step(self, output):
        from vllm.v1.outputs import KVConnectorOutput

        connector, made = self.connector, KVConnectorOutput()
        self.copies.step += 1
        connector.handle_preemptions(output.kv_connector_metadata)
        connector.bind_connector_metadata(output.kv_connector_metadata)
        connector.start_load_kv(None)
        connector.wait_for_save()
        if is_0_20():
            made.finished_sending, made.finished_recving = connector.get_finished(
                output.finished_req_ids)
        else:
            results = connector.get_transfer_results(output.finished_req_ids)
            made.finished_sending = results.finished_sending or None
            made.finished_recving = results.finished_recving or None
            made.failed_recving = results.failed_recving
        made.invalid_block_ids = connector.get_block_ids_with_load_errors()
        made.kv_connector_worker_meta = connector.build_connector_worker_meta()
        connector.clear_connector_metadata()
        return made


# ---- the scheduler's side ----------------------------------------------------------------------

CALLS = ("on_new_request", "get_num_new_matched_tokens", "update_state_after_alloc",
         "build_connector_meta", "update_connector_output", "request_finished",
         "request_finished_all_groups", "take_events", "get_kv_connector_stats",
         "has_pending_push_work", "has_pending_block_frees", "get_external_cache_hit_sources",
         "get_loaded_kv_cache_group_ids")


class Clock:
    """Time inside of calls, the outermost ones: wall and processor, in seconds."""

    def __init__(self):
        self.wall = self.cpu = 0.0
        self.depth = 0

    def reset(self) -> None:
        self.wall = self.cpu = 0.0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.began = time.thread_time(), time.perf_counter()

    def __exit__(self, *_error) -> None:
        self.depth -= 1
        if self.depth == 0:
            wall = time.perf_counter()
            self.wall += wall - self.began[1]
            self.cpu += time.thread_time() - self.began[0]


class Hits:
    """What the connector told: by request, and in all."""

    def __init__(self):
        self.local: dict[str, int] = {}
        self.found = self.external = self.loads = 0

    def matched(self, request, num_local: int) -> None:
        self.local[request.request_id] = num_local

    def allocated(self, request, num_external: int) -> None:
        """The second call for a request, when it is loaded, is not asked about."""
        self.found += self.local.pop(request.request_id, 0) + num_external
        self.external += num_external
        self.loads += num_external > 0


def watch(connector, clock: Clock, hits: Hits) -> None:
    """All calls of the scheduler go through the clock."""

    def timed(call):
        def run(*given):
            with clock:
                made = call(*given)
                return list(made) if hasattr(made, "__next__") else made  # a generator

        return run

    for name in CALLS:
        call = getattr(connector, name, None)
        if call is not None:
            setattr(connector, name, timed(call))
    match, allocated = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

    def count_match(request, num_local):
        hits.matched(request, num_local)
        return match(request, num_local)

    def count_allocated(request, blocks, num_external):
        hits.allocated(request, num_external)
        return allocated(request, blocks, num_external)

    connector.get_num_new_matched_tokens = count_match
    connector.update_state_after_alloc = count_allocated


class Engine:
    """A scheduler with a connector, and a worker that computes nothing."""

    def __init__(self, name: str, num_blocks: int, num_slots: int, most_tokens: int, max_num_seqs: int,
                 budget: int, delay: int):
        from vllm.v1.core.sched.scheduler import Scheduler

        config = config_of(num_blocks, max_num_seqs, most_tokens, False)
        config.scheduler_config.max_num_batched_tokens = budget
        config.max_in_flight_tokens = budget
        kv_cache_config = kv_cache_config_of(num_blocks)
        if name != NONE:
            page = kv_cache_config.kv_cache_groups[0].kv_cache_spec.page_size_bytes
            add_connector(config, name, num_slots, page)
        self.name, self.half, self.all, self.hits = name, Clock(), Clock(), Hits()
        self.scheduler = Scheduler(
            config, kv_cache_config, NoGrammars(), BLOCK_SIZE, BLOCK_SIZE,
            SimpleNamespace(supports_multimodal_inputs=lambda _config: False), False, log_stats=True)
        self.worker = None
        if name != NONE:
            self.worker = WorkerSide(name, config, kv_cache_config, delay)
            watch(self.scheduler.connector, self.half, self.hits)
        self.turns = self.computed = 0
        self.ms = 0.0
        self.first: dict[str, tuple[int, float]] = {}  # by request: when it got its first token

    def add(self, request) -> None:
        with self.all:
            self.scheduler.add_request(request)

    def turn(self) -> int:
        """One step; returns how many tokens it computes."""
        from vllm.v1.outputs import ModelRunnerOutput

        with self.all:
            output = self.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        tokens = [[7] if r.num_computed_tokens >= r.num_tokens else [] for r in requests]
        told = ModelRunnerOutput(names, {name: i for i, name in enumerate(names)}, tokens)
        if self.worker is not None:
            told.kv_connector_output = self.worker.step(output)
        self.turns += 1
        self.computed += output.total_num_scheduled_tokens
        self.ms += STEP_MS + TOKEN_MS * output.total_num_scheduled_tokens
        for name, made in zip(names, tokens):
            if made:
                self.first.setdefault(name, (self.turns, self.ms))
        with self.all:
            self.scheduler.update_from_output(output, told)
        return output.total_num_scheduled_tokens

    def finish(self) -> None:
        """Until all requests have ended."""
        idle = 0
        while self.scheduler.has_unfinished_requests():
            idle = 0 if self.turn() else idle + 1
            if idle > 1000:
                raise RuntimeError(f"{self.name}: {len(self.scheduler.requests)} requests do not end")

    def drain(self) -> None:
        """What is in flight ends; blocks are free, and vLLM's own cache is empty."""
        for _ in range(200):
            self.turn()
            if self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == \
                    self.scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1:
                break
        for _ in range(2 * (self.worker.copies.delay if self.worker else 0)):
            self.turn()
        if not self.scheduler.kv_cache_manager.reset_prefix_cache():
            raise RuntimeError(f"{self.name}: blocks are still held")

    def reset_counts(self) -> None:
        self.half.reset()
        self.all.reset()
        self.turns = self.computed = 0
        self.ms = 0.0
        self.first.clear()
        self.hits.__init__()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.connector.shutdown()
            self.scheduler.connector.shutdown()
