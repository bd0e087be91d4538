"""Records vLLM's SimpleCPUOffloadConnector, its scheduler's side, under vLLM's schedulers.

Each seed is one workload as in record_sched.py. The workers are imitated: a store or a load that
was handed out is reported some updates later, in any order, a store by each worker on its own.
"""
import record_sched  # first: it sets what vLLM reads while it is imported

from types import SimpleNamespace

from cache_case import Ended, Stop
from cache_mixes import Draw, Group
from recorder import ids
from sched_case import STATE_EVERY, SchedCase, queue
from sched_mixes import ASYNC, DEEP, EAGLE, FULL, HYBRID, NGRAM, TIGHT, Setup, gemma
from sched_world import number_of, spans

from vllm.distributed.kv_transfer.kv_connector.v1 import simple_cpu_offload_connector as module
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import RequestStatus
from vllm.v1.simple_kv_offload import manager as manager_module
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

module.logger.setLevel("CRITICAL")
manager_module.logger.setLevel("CRITICAL")

BLOCK_BYTES = 64


def window_first(d):
    return [d.window(), d.full()]


def sizes(d):
    return [d.full(), d.window(scale=2)]


def chunked(d):
    size = d.size
    return [d.full(), Group("L", size, {"c": size * d.rng.randint(1, 6)})]


PLAIN = {"images": 0.0, "grammars": 0.0, "connector": False, "resets": 0.0, "caching": True,
         "room": [0.9, 1.0, 1.1, 1.3, 2.0]}
LAZY = {"lazy": True}
SMALL = {"cpu": [0.05, 0.1, 0.2]}
LARGE = {"cpu": [2.0, 4.0]}
SESSIONS = {**FULL, "sessions": 0.5}

# name: settings that are not drawn
MIXES = {name: {**PLAIN, **settings} for name, settings in {
    "eager": {**FULL},
    "eager-tight": {**FULL, **TIGHT, **LARGE},
    "eager-small": {**FULL, **SMALL},
    "eager-workers": {**FULL, "workers": 3},
    "eager-slow": {**FULL, "pace": 0.08},
    "eager-mla": {"groups": lambda d: [d.full("M")]},
    "eager-hybrid": {**HYBRID},
    "eager-hybrid-tight": {**HYBRID, **TIGHT, **LARGE},
    "eager-window-first": {"groups": window_first},
    "eager-gemma": {"groups": gemma},
    "eager-sizes": {"groups": sizes},
    "eager-chunked": {"groups": chunked, "spec": (0, 0)},
    "eager-async": {**FULL, **ASYNC},
    "eager-async-hybrid": {**HYBRID, **ASYNC, **TIGHT},
    "eager-deep": {**FULL, **DEEP, **TIGHT},
    "eager-priority": {**FULL, **TIGHT, "priority": True},
    "eager-priority-async": {**HYBRID, **ASYNC, **TIGHT, "priority": True},
    "eager-ngram": {**FULL, **NGRAM},
    "eager-eagle": {**FULL, **EAGLE},
    "eager-async-eagle": {**FULL, **ASYNC, **EAGLE},
    "eager-pipeline": {"is_async": False, "pipeline": True, "depth": 2, "spec": (0, 0)},
    "eager-aborts": {"aborts": 0.25, **LARGE},
    "eager-sessions": {**SESSIONS},
    "eager-resets": {**FULL, "resets": 0.1},
    "lazy": {**FULL, **LAZY},
    "lazy-tight": {**FULL, **LAZY, **TIGHT, **LARGE},
    "lazy-small": {**FULL, **LAZY, **SMALL},
    "lazy-workers": {**FULL, **LAZY, "workers": 2},
    "lazy-slow": {**FULL, **LAZY, "pace": 0.08},
    "lazy-hybrid": {**HYBRID, **LAZY},
    "lazy-hybrid-tight": {**HYBRID, **LAZY, **TIGHT, **LARGE},
    "lazy-gemma": {"groups": gemma, **LAZY},
    "lazy-sizes": {"groups": sizes, **LAZY},
    "lazy-async": {**FULL, **LAZY, **ASYNC, **TIGHT},
    "lazy-deep": {**FULL, **LAZY, **DEEP, **TIGHT},
    "lazy-priority": {**FULL, **LAZY, **TIGHT, "priority": True},
    "lazy-async-eagle": {**FULL, **LAZY, **ASYNC, **EAGLE},
    "lazy-aborts": {**LAZY, "aborts": 0.25, **LARGE},
    "lazy-sessions": {**SESSIONS, **LAZY},
    "lazy-resets": {**FULL, **LAZY, "resets": 0.1},
    "anything": {},
    "anything-lazy": {**LAZY},
}.items()}


class OffloadSetup(Setup):
    def __init__(self, name, seed, rng):
        self.name, self.seed, self.rng, self.given = name, seed, rng, MIXES[name]
        self.draw = Draw(rng)
        self.draw_drafts()
        self.draw_groups()
        if all(g.kind not in "FM" for g in self.groups):  # SimpleCPUOffload needs one
            self.groups = [self.draw.full()]
            self.block_size = self.hash_block_size = self.draw.size
        self.draw_habits()
        self.draw_limits()
        self.draw_num_blocks()
        self.draw_offload()

    def draw_offload(self):
        rng = self.rng
        self.lazy = self.choose("lazy", 0.0)
        self.workers = self.given.get("workers", rng.choice([1, 1, 1, 2]))
        self.pace = self.given.get("pace", rng.choice([0.2, 0.5, 0.9]))
        part = rng.choice(self.given.get("cpu", [0.1, 0.5, 1.0, 2.0, 4.0, 4.0]))
        self.num_cpu = max(2, min(500, int(self.num_blocks * part) + rng.randint(0, 3)))

    def line(self):
        return f"offload {self.num_cpu} {int(self.lazy)} {self.workers} {super().line()[6:]}"

    def make_connector(self, scheduler):
        """The config that vLLM's own would be, as far as the connector looks at it."""
        config = self.vllm_config()
        config.parallel_config.world_size = self.workers
        config.cache_config.block_size = self.hash_block_size
        config.kv_transfer_config = SimpleNamespace(kv_connector_extra_config={
            "cpu_bytes_to_use": self.num_cpu * BLOCK_BYTES * self.workers,
            "lazy_offload": self.lazy})
        groups = scheduler.kv_cache_config.kv_cache_groups
        tensors = [KVCacheTensor(self.num_blocks * BLOCK_BYTES, ["layer0"])]
        made = module.SimpleCPUOffloadConnector(config, KVConnectorRole.SCHEDULER,
                                                KVCacheConfig(self.num_blocks, tensors, groups))
        made.bind_gpu_block_pool(scheduler.kv_cache_manager.block_pool)
        return made


class OffloadCase(SchedCase):
    def __init__(self, writer, setup):
        super().__init__(writer, setup)
        self.connector = self.scheduler.connector = setup.make_connector(self.scheduler)
        self.offload = self.connector.scheduler_manager
        assert self.offload.num_cpu_blocks == setup.num_cpu
        if setup.log_stats:
            self.scheduler.connector_prefix_cache_stats = PrefixCacheStats()
        self.scheduler.recompute_kv_load_failures = not setup.fails
        self.note_calls()

    def note_calls(self):
        offload, calls = self.offload, self.calls
        match, alloc = offload.get_num_new_matched_tokens, offload.update_state_after_alloc
        finished = offload.request_finished_all_groups

        def noted_match(request, num_local):
            answer, later = match(request, num_local)
            calls.note(f"m{number_of(request.request_id)}({num_local})={answer}", "", "")
            assert later == (answer > 0)
            return answer, later

        def noted_alloc(request, blocks, num_external):
            calls.note(f"u{number_of(request.request_id)}({spans(blocks.get_block_ids())};"
                       f"{num_external})", "", "")
            alloc(request, blocks, num_external)
            load = offload._reqs_to_load.get(request.request_id)
            if load is not None and 0 in load.transfer_meta.gpu_block_ids:
                raise Stop("load-into-null-block")

        def noted_finished(request, block_ids):
            calls.note(f"f{number_of(request.request_id)}({spans(block_ids)})", "", "")
            return finished(request, block_ids)

        offload.get_num_new_matched_tokens = noted_match
        offload.update_state_after_alloc = noted_alloc
        offload.request_finished_all_groups = noted_finished

    # -- what must hold

    def count_users(self):
        """Users of blocks in both pools, beside requests: stores and loads on the way."""
        gpu, cpu = [0] * self.pool.num_gpu_blocks, [0] * self.setup.num_cpu
        transfers = list(self.offload._store_event_to_blocks.values())
        transfers += [load.transfer_meta for load in self.offload._reqs_to_load.values()]
        for transfer in transfers:
            for block in transfer.gpu_block_ids:
                gpu[block] += 1
            for block in transfer.cpu_block_ids:
                cpu[block] += 1
        return gpu, cpu

    def check_pool(self, pool, users):
        num_free = 0
        for block in pool.blocks[1:]:
            if block.ref_cnt != users[block.block_id]:
                raise Stop("damaged-users")
            num_free += block.ref_cnt == 0
        if num_free != pool.get_num_free_blocks():
            raise Stop("damaged-queue")

    def check_sound(self):
        self.check_queues()
        gpu, cpu = self.count_users()
        for manager in self.managers:
            for request_id, blocks in manager.req_to_blocks.items():
                if blocks and request_id not in self.scheduler.requests:
                    raise Stop("blocks-of-nobody")
                for block in blocks:
                    gpu[block.block_id] += 1
        self.check_pool(self.pool, gpu)
        self.check_pool(self.offload.cpu_block_pool, cpu)
        for request in self.scheduler.requests.values():
            if request.num_computed_tokens < 0:
                raise Stop("negative-computed")
            if request.num_output_placeholders < 0:
                raise Stop("negative-placeholders")
            if request.num_prompt_tokens > request.num_tokens:
                raise Stop("session-lost-its-prompt")

    # -- what is compared

    def pool_text(self, pool):
        free = ids(b.block_id for b in pool.free_block_queue.get_all_free_blocks())
        users = ",".join(f"{b.block_id}.{b.ref_cnt}" for b in pool.blocks[1:] if b.ref_cnt)
        return f"{free}/{users}/{len(pool.cached_block_hash_to_block)}"

    def finish_operation(self, line, answer, is_last=False):
        s = self.scheduler
        self.published.events, self.stored = [], []
        self.manager.take_events()
        notes, _ = self.calls.take()
        self.num_operations += 1
        text = (f"{answer}calls={notes}|events=|running={queue(s.running)}"
                f"|waiting={queue(s.waiting)}|skipped={queue(s.skipped_waiting)}"
                f"|unfinished={s.get_num_unfinished_requests()}.{int(s.has_finished_requests())}")
        is_whole = is_last or self.num_operations % STATE_EVERY == 0
        if is_whole:
            text += f"|requests={self.all_requests()}"
        if is_last:
            text += f"|free={self.free_blocks()}"
        cpu = self.offload.cpu_block_pool
        text += f"|pending={int(self.offload.has_pending_stores())}.{cpu.get_num_free_blocks()}"
        if is_whole:
            text += f"|gpu={self.pool_text(self.pool)}|cpu={self.pool_text(cpu)}"
        self.writer.checked(line, f"{line[0]}|{text}")

    def step_text(self, output):
        meta = output.kv_connector_metadata
        loads = meta.load_event_to_reqs.get(meta.load_event, [])
        pairs = ",".join(f"{c}>{g}" for g, c in zip(meta.load_gpu_blocks, meta.load_cpu_blocks))
        stores = ",".join(f"{g}>{c}" for g, c in zip(meta.store_gpu_blocks, meta.store_cpu_blocks))
        return (f"{super().step_text(output)}loads={meta.load_event}:"
                f"{ids(number_of(r) for r in loads)}:{pairs}"
                f"|stores={meta.store_event}:{stores}|flush={int(meta.need_flush)}|")

    def update(self, output, sampled, pooled, invalid, transfers):
        requests = list(output.num_scheduled_tokens)
        counts = "".join("P" if p else str(len(t)) for t, p in zip(sampled, pooled)) or "-"
        line = f"u {counts}"
        loaded, stored = transfers["V"], transfers["E"]
        line += f" V{ids(loaded)}" if loaded else ""
        line += f" E{','.join(f'{e}.{n}' for e, n in stored.items())}" if stored else ""
        runner = ModelRunnerOutput(
            requests, {r: i for i, r in enumerate(requests)}, sampled,
            pooler_output=[True if p else None for p in pooled] if any(pooled) else None)
        if loaded or stored:
            by_number = {number_of(r): r for r in self.scheduler.requests}
            runner.kv_connector_output = KVConnectorOutput(
                finished_recving=[by_number[n] for n in loaded],
                kv_connector_worker_meta=SimpleCPUOffloadWorkerMetadata(stored))
        self.operation(line, lambda: self.outputs_text(
            self.scheduler.update_from_output(output, runner)))


class OffloadEngine(record_sched.Engine):
    """With workers that copy at their own pace."""

    def __init__(self, case, num_steps):
        super().__init__(case, num_steps)
        self.stores = {}  # event: workers that have not reported it

    def schedule(self):
        super().schedule()
        meta = self.flight[-1][1].kv_connector_metadata
        if meta.store_event >= 0:
            self.stores[meta.store_event] = self.setup.workers

    def transfers(self):
        rng, pace = self.rng, self.setup.pace
        s = self.scheduler
        loading = [r for r, load in self.case.offload._reqs_to_load.items()
                   if load.load_event is not None and r not in s.finished_recving_kv_req_ids]
        loaded = [number_of(r) for r in loading if rng.random() < pace]
        rng.shuffle(loaded)
        stored = {}
        for event, left in self.stores.items():
            count = sum(rng.random() < pace for _ in range(left))
            if count:
                stored[event] = count
        events = list(stored)
        rng.shuffle(events)
        stored = {event: stored[event] for event in events}
        for event, count in stored.items():
            self.stores[event] -= count
            if self.stores[event] == 0:
                del self.stores[event]
        return {"V": loaded, "E": stored}

    def reset(self):
        gpu, _ = self.case.count_users()
        forced = self.rng.random() < 0.5 and not self.holds_blocks_elsewhere() and not any(gpu)
        if self.setup.is_async and len(self.flight) > 1:
            forced = False
        self.case.reset(forced, False)

    def sample(self, step, output, samples):
        sampled, pooled, _ = super().sample(step, output, samples)
        return sampled, pooled, []

    def run(self):
        try:
            super().run()
        finally:
            self.case.calls.take()


def record_offload(writer, rng, count, _edges):
    """One workload; the seed says which mix."""
    seed = int(writer.lines[-1].split()[1])
    setup = OffloadSetup(list(MIXES)[seed % len(MIXES)], seed, rng)
    case = OffloadCase(writer, setup)
    try:
        OffloadEngine(case, rng.randint(count * 3 // 4, count * 5 // 4)).run()
    except Ended:
        pass
    writer.end_case()
