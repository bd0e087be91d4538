"""What two schedulers made and hold, compared field by field."""
from lockstep_parts import is_0_32


def same(theirs, ours):
    assert ours == theirs, f"vLLM: {theirs}\nQuire: {ours}"


def compare_notes(theirs: list, ours: list):
    for a, b in zip(theirs, ours):
        same(a, b)
    same(len(theirs), len(ours))
    theirs.clear()
    ours.clear()


def fields_of(item) -> dict:
    return {name: value for name, value in vars(item).items() if name != "_quire_step"}


def compare_pools(theirs, ours):
    """The free queue in its order; users and hashes of every block."""
    same(theirs.get_num_free_blocks(), ours.get_num_free_blocks())
    same(*([block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
           for pool in (theirs, ours)))
    same(*([(block.block_id, block.ref_cnt, block.block_hash) for block in pool.blocks
            if not block.is_null] for pool in (theirs, ours)))
    if hasattr(theirs, "cached_block_hashes_by_block"):  # 0.32
        same(*(dict(pool.cached_block_hashes_by_block) for pool in (theirs, ours)))


def images_of(scheduler):
    """The encoder cache of a core, where tests/vllm/shim is there to look into it."""
    try:
        from quire_shim.images import Images
    except ImportError:
        return None
    return Images(scheduler)


def compare_steps(theirs, ours):
    mine = fields_of(ours)
    for name, value in fields_of(theirs).items():
        other = mine.pop(name)
        if name == "scheduled_new_reqs":
            same([vars(data) for data in value], [vars(data) for data in other])
        elif name == "scheduled_cached_reqs":
            same(vars(value), vars(other))
        elif name == "num_scheduled_tokens":
            same(list(value.items()), list(other.items()))
        else:
            assert other == value, f"{name}: vLLM {value}, Quire {other}"
    assert not mine


num_lives = 0  # compared, of blocks of all seeds


def compare_lives(theirs, ours):
    """The lives of blocks: as many, with as many gaps, in the same order; each life is as long as
    its parts say. Their times differ, and are taken out."""
    global num_lives
    if theirs is None or ours is None:
        return
    lives = ours.kv_cache_eviction_events
    same([len(life.reuse_gaps_seconds) for life in theirs.kv_cache_eviction_events],
         [len(life.reuse_gaps_seconds) for life in lives])
    for a, b in zip(theirs.kv_cache_eviction_events, lives):
        assert 0 <= b.idle_seconds <= b.lifetime_seconds and min(b.reuse_gaps_seconds, default=0) >= 0
        assert sum(b.reuse_gaps_seconds) + b.idle_seconds <= b.lifetime_seconds + 1e-6
        assert (a.idle_seconds == a.lifetime_seconds) <= (b.idle_seconds == b.lifetime_seconds)
    num_lives += len(lives)
    theirs.kv_cache_eviction_events, ours.kv_cache_eviction_events = [], []


def compare_stats(theirs, ours):
    compare_lives(theirs, ours)
    same(theirs, ours)


def compare_outputs(theirs, ours):
    same(list(theirs), list(ours))
    for client, outputs in theirs.items():
        mine = ours[client]
        same(outputs.finished_requests, mine.finished_requests)
        compare_stats(outputs.scheduler_stats, mine.scheduler_stats)
        same(len(outputs.outputs), len(mine.outputs))
        for a, b in zip(outputs.outputs, mine.outputs):
            for name in a.__struct_fields__:
                x, y = getattr(a, name), getattr(b, name)
                if name == "events" and x is not None:  # times differ
                    x, y = [e.type for e in x], [e.type for e in y]
                assert x == y, f"{a.request_id}.{name}: vLLM {x}, Quire {y}"


COUNTERS = ("num_in_flight_tokens", "num_stale_output_tokens", "drop_stale_output")


def compare_requests(theirs, ours):
    for name in ("status", "num_computed_tokens", "num_output_placeholders", "num_preemptions",
                 "is_prefill_chunk", "num_tokens", "num_tokens_with_spec", "num_output_tokens",
                 "block_hashes", "spec_token_ids", "stop_reason", "prompt_token_ids",
                 "num_prompt_tokens", "arrival_time", "mm_features", "max_tokens",
                 *(COUNTERS if is_0_32() else ())):
        x, y = getattr(theirs, name), getattr(ours, name)
        assert x == y, f"{theirs.request_id}.{name}: vLLM {x}, Quire {y}"
    same(list(theirs.all_token_ids), list(ours.all_token_ids))
