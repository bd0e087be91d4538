"""Plan, plan, model_layers and Cache."""

import json
import subprocess

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
    with pytest.raises(quire.E_UNKNOWN_NAME, match='unknown model_type "nobody"'):
        quire.model_layers({**LLAMA, "model_type": "nobody"})
    with pytest.raises(quire.E_CONFIG, match="invalid num_attention_heads 0"):
        quire.model_layers({"model_type": "llama"})
    with pytest.raises(quire.E_CONFIG, match="invalid tensor_parallel_size 3"):
        quire.model_layers(LLAMA, tensor_parallel_size=3)
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
    with pytest.raises(quire.E_CONFIG, match=r"layers\[0\]: invalid block_size 0"):
        quire.Plan([{**layers[0], "block_size": 0}], 10**9, max_model_len=10)
    with pytest.raises(quire.E_CONFIG, match="invalid max_model_len 0"):
        quire.Plan(layers, 10**9)
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


def test_models_by_name_and_by_path(tmp_path):
    by_name = quire.plan("llama-3.1-8b", 10**10, max_model_len=4096)
    assert by_name.num_blocks == 10**10 // (16 * 131072)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    wanted = quire.plan(LLAMA, 10**9).info
    assert quire.plan(path, 10**9).info == wanted
    assert quire.plan(str(path), 10**9).info == wanted
    assert quire.plan(tmp_path, 10**9).info == wanted  # a folder, as models have them
    assert len(quire.model_layers("llama-3.1-8b")) == 32
    for model, error, words in (
            ("llama-3.1-8x", ValueError, "did you mean 'llama-3.1-8b'"),
            (tmp_path / "none.json", ValueError, "neither a preset nor a file"),
            (8, TypeError, "not int"), (None, TypeError, "not NoneType")):
        with pytest.raises(error, match=words):
            quire.plan(model, 10**9)
    path.write_text("[]")
    with pytest.raises(ValueError, match="no object"):
        quire.plan(path, 10**9)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        quire.plan(path, 10**9)


def test_presets_are_those_of_the_program():
    """The same model, the same bytes of a token, for every name that the program has."""
    try:
        program = quire.find_program()
    except FileNotFoundError:
        pytest.skip("without the program")
    presets = quire._core._model_presets()
    assert len(presets) > 30
    for name, config in presets.items():
        plan = [program, "plan", "--json", "--model", name, "--gpu", "B200", "--tp", "1",
                "--num-gpu-blocks", "500000", "--max-model-len", "4096"]
        told = subprocess.run(plan, capture_output=True, text=True)
        if told.returncode != 0:  # weights that must be given, or are too large for it
            continue
        told = json.loads(told.stdout)
        align = {"mamba_mode": "align"} if config["linear_conv_kernel_dim"] else {}
        made = quire.plan(name, 10**13, max_model_len=4096, num_blocks_override=500000, **align)
        assert made.info["num_groups"] == told["num_groups"], name
        assert made.num_blocks == told["num_blocks"], name
        total = sum(size for size, _ in made.tensors(0))
        assert total == told["num_blocks"] * told["block_bytes"], name
