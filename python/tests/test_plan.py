"""Plan, plan, model_layers and Cache."""

import pytest

import quire

LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512,
         "num_attention_heads": 8, "num_key_value_heads": 2, "max_position_embeddings": 2048,
         "torch_dtype": "bfloat16", "vocab_size": 32000}
GEMMA = {"model_type": "gemma3", "text_config": {
    "model_type": "gemma3_text", "num_hidden_layers": 12, "hidden_size": 1024,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "sliding_window": 512,
    "max_position_embeddings": 8192}}
PAGE = 2 * 16 * 2 * 64 * 2  # keys and values, tokens, heads, head size, bytes


def test_layers_of_a_model():
    layers = quire.model_layers(LLAMA)
    assert len(layers) == 4 and layers[0]["kind"] == "full"
    assert (layers[0]["num_kv_heads"], layers[0]["head_size"]) == (2, 64)
    assert quire.model_layers(LLAMA, tensor_parallel_size=2)[0]["num_kv_heads"] == 1
    with pytest.raises(quire.E_UNKNOWN_NAME):
        quire.model_layers({**LLAMA, "model_type": "nobody"})
    with pytest.raises(quire.E_CONFIG):
        quire.model_layers({"model_type": "llama"})
    with pytest.raises(TypeError, match="no_such"):
        quire.model_layers(LLAMA, no_such=1)
    with pytest.raises(ValueError, match="guessing"):
        quire.model_layers({**LLAMA, "layer_types": ["guessing"] * 4})
    with pytest.raises(ValueError):
        quire.model_layers({**LLAMA, "layer_types": ["full_attention"]})


def test_plan_of_one_group():
    plan = quire.plan(LLAMA, 1000 * 4 * PAGE)
    assert plan.num_blocks == 1000 == plan.info["num_blocks"]
    (group,) = plan.groups
    assert group["page_bytes"] == PAGE and group["layers"] == [0, 1, 2, 3]
    assert group["spec"]["kind"] == "full" and not group["is_eagle"]
    assert plan.workers[0]["used_bytes"] == 1000 * 4 * PAGE
    assert plan.tensors(0) == [(1000 * PAGE, [i]) for i in range(4)]
    with pytest.raises(quire.E_RANGE):
        plan.tensors(1)


def test_plan_of_a_hybrid_model():
    plan = quire.plan(GEMMA, [10**9, 2 * 10**9])
    kinds = [g["spec"]["kind"] for g in plan.groups]
    assert kinds.count("full") == 1 and kinds.count("sliding_window") == len(kinds) - 1 > 0
    assert len(plan.workers) == 2
    sched = quire.Scheduler(plan=plan)
    sched.add("a", range(100))
    assert sched.schedule().num_groups == len(kinds)


def test_too_little_memory():
    with pytest.raises(quire.E_MEMORY_LIMIT, match="2048 tokens needs .* would fit"):
        quire.plan(LLAMA, 10 * 4 * PAGE)
    fitted = quire.plan(LLAMA, 10 * 4 * PAGE, auto_fit=True)
    assert fitted.info["max_model_len"] == 160


def test_plan_misuse():
    layers = quire.model_layers(LLAMA)
    with pytest.raises(TypeError, match="no_such"):
        quire.Plan(layers, 10**9, max_model_len=10, no_such=1)
    with pytest.raises(TypeError):
        quire.Plan([3], 10**9, max_model_len=10)
    with pytest.raises(TypeError, match="no_such"):
        quire.Plan([{**layers[0], "no_such": 1}], 10**9, max_model_len=10)
    with pytest.raises(quire.E_CONFIG):
        quire.Plan([{**layers[0], "block_size": 0}], 10**9, max_model_len=10)
    with pytest.raises(OverflowError):
        quire.Plan(layers, -1, max_model_len=10)


def hashes(n):
    return [bytes([i + 1]) * 32 for i in range(n)]


def test_cache():
    cache = quire.Cache(num_gpu_blocks=10, max_model_len=128, event_log_bytes=4096)
    assert cache.get_computed_blocks(48, hashes(3)) == ([[]], 0)
    seq, new = cache.allocate_slots(0, 48, 48, hashes=hashes(3))
    assert seq and new == [[1, 2, 3]] == cache.blocks(seq)
    hit, tokens = cache.get_computed_blocks(48, b"".join(hashes(3)))
    assert hit == [[1, 2]] and tokens == 32
    other, new = cache.allocate_slots(0, 48, 16, hashes=hashes(3), num_new_computed_tokens=32,
                                      new_computed_blocks=hit)
    assert cache.blocks(other) == [[1, 2, 4]] and new == [[4]]
    assert cache.usage()["active"] == 4
    with pytest.raises(quire.NO_SPACE):
        cache.allocate_slots(0, 128, 128, hashes=[bytes([99, i]) * 16 for i in range(8)])
    with pytest.raises(quire.BUSY):
        cache.reset_prefix_cache()
    cache.free(seq)
    cache.free(other)
    with pytest.raises(quire.E_UNKNOWN_SEQ):
        cache.blocks(seq)
    assert cache.take_events()[0]["blocks"] == [1, 2, 3]
    cache.new_step_starts()
    cache.reset_prefix_cache()
    cache.check()
    with pytest.raises(ValueError):
        cache.allocate_slots(0, 48, 16, new_computed_blocks=[[1], [2]])
    cache.close()
    with pytest.raises(quire.Closed):
        cache.free(0)


def test_fork_copies_on_write():
    cache = quire.Cache(num_gpu_blocks=10, max_model_len=128, max_copies=4)
    parent, _ = cache.allocate_slots(0, 20, 20, hashes=hashes(1))
    child = cache.fork(parent)
    assert cache.blocks(child) == cache.blocks(parent) == [[1, 2]]
    assert cache.take_copies().tolist() == []
    cache.allocate_slots(child, 21, 1, num_computed_tokens=20, hashes=hashes(1))
    assert cache.take_copies().tolist() == [2, 3, 0]
    assert cache.blocks(child) == [[1, 3]]
