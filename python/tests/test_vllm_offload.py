"""vLLM's own CPU offloading on both schedulers in lock step: it holds blocks of the scheduler's pool,
walks along its free queue, and reads users and hashes of its blocks, while both go on deciding.
"""
import copy
import random
from types import SimpleNamespace

import pytest
import vllm_kit
from lockstep_parts import is_0_32
from test_lockstep import compare_outputs, compare_pools, compare_requests, compare_steps, same

NUM_BLOCKS, NUM_CPU_BLOCKS, BLOCK_BYTES = 40, 50, 64


def offload_class():
    from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

    class Offload(SimpleCPUOffloadScheduler, vllm_kit.connector_class()):
        """The scheduler's half of SimpleCPUOffloadConnector; notes what the workers would do."""

        def __init__(self, is_lazy: bool):
            from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor

            size, sizes = NUM_BLOCKS * BLOCK_BYTES, {}
            if is_0_32():
                tensor = KVCacheTensor(size, ["full"], size, BLOCK_BYTES)
                sizes = dict.fromkeys(("scheduler_block_size", "hash_block_size"),
                                      vllm_kit.BLOCK_SIZE)
            else:
                tensor = KVCacheTensor(size=size, shared_by=["full"])
            super().__init__(CONFIG, KVCacheConfig(NUM_BLOCKS, [tensor], [vllm_kit.full_group()]),
                             NUM_CPU_BLOCKS * BLOCK_BYTES, lazy_offload=is_lazy, **sizes)
            self.notes, self.loading = [], []

        def bind_kv_cache_manager(self, manager):
            self.bind_gpu_block_pool(manager.block_pool)

        def build_connector_meta(self, output):
            meta = super().build_connector_meta(output)
            self.notes.append(copy.deepcopy(vars(meta)))
            self.loading += meta.load_event_to_reqs.get(meta.load_event, ())
            return meta

    return Offload


CONFIG = SimpleNamespace(
    kv_events_config=None, cache_config=SimpleNamespace(block_size=vllm_kit.BLOCK_SIZE),
    parallel_config=SimpleNamespace(decode_context_parallel_size=1, world_size=1,
                                    prefill_context_parallel_size=1),
    model_config=SimpleNamespace(max_model_len=96), speculative_config=None,
    max_in_flight_tokens=256, num_prefill_lookahead_tokens=0,
    scheduler_config=SimpleNamespace(max_num_batched_tokens=256))


def report(rng: random.Random, connector):
    """Some of the copies under way are done; the same for both."""
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

    stored = [event for event in connector._store_event_to_blocks if rng.random() < 0.5]
    loaded = [name for name in connector.loading if rng.random() < 0.5]
    return lambda: KVConnectorOutput(
        finished_recving=set(loaded), kv_connector_worker_meta=SimpleCPUOffloadWorkerMetadata(
            {event: 1 for event in stored})), loaded


def add(rng: random.Random, both, number: int) -> None:
    prompt = [rng.randrange(4)] * rng.randint(4, 16) + [rng.randrange(9)] * rng.randint(4, 24)
    most = rng.randint(1, 8)
    for scheduler in both:
        request = vllm_kit.request(f"r{number}", prompt, vllm_kit.hasher(), most)
        request.arrival_time = number
        scheduler.add_request(request)


@pytest.mark.parametrize("is_lazy", [False, True], ids=["eager", "lazy"])
@pytest.mark.parametrize("seed", range(6))
def test_lockstep(pytestconfig, seed, is_lazy):
    vllm_kit.need_vllm(pytestconfig)
    rng, kind = random.Random(seed), offload_class()
    both = [vllm_kit.make(connector=kind(is_lazy), num_blocks=NUM_BLOCKS, max_num_seqs=6,
                          module=module) for module in ("vllm.v1.core.sched.scheduler", "quire.vllm")]
    theirs, ours = both
    for number in range(120):
        if rng.random() < 0.5 and len(theirs.requests) < 8:
            add(rng, both, number)
        token = rng.randrange(9)
        steps = [scheduler.schedule() for scheduler in both]
        compare_steps(*steps)
        same(theirs.connector.notes, ours.connector.notes)
        made, loaded = report(rng, theirs.connector)
        compare_outputs(*(scheduler.update_from_output(
            step, vllm_kit.computed(step, token, connector_output=made()))
            for scheduler, step in zip(both, steps)))
        for scheduler in both:
            scheduler.connector.loading = [name for name in scheduler.connector.loading
                                           if name not in loaded]
        compare_pools(theirs.kv_cache_manager.block_pool, ours.kv_cache_manager.block_pool)
        same(list(theirs.requests), list(ours.requests))
        for name in theirs.requests:
            compare_requests(theirs.requests[name], ours.requests[name])
    notes = ours.connector.notes
    assert any(note["store_gpu_blocks"] for note in notes), "nothing was stored"
    assert any(note["load_gpu_blocks"] for note in notes), "nothing was loaded"


def test_blocks_of_another_pool_are_refused(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    pools = [vllm_kit.make(num_blocks=10).kv_cache_manager.block_pool for _ in range(2)]
    with pytest.raises(ValueError, match="not a block of this pool"):
        pools[0].touch([pools[1].blocks[3]])
    with pytest.raises(IndexError):
        pools[0].blocks[10]
    with pytest.raises(RuntimeError, match="free_blocks"):
        pools[0].free_blocks([pools[0].blocks[3]])
    pools[0].touch([pools[0].null_block, pools[0].blocks[3]])
    assert pools[0].blocks[3].ref_cnt == 1 and pools[0].blocks[3].next_free_block is None
    assert pools[0].get_num_free_blocks() == 8 and pools[0].get_usage() == 1 - 8 / 9
