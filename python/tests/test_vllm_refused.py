"""What quire.vllm does not serve of vLLM 0.32 is refused at the start, with a sentence."""
import random
from types import SimpleNamespace

import pytest
import vllm_kit
from lockstep_0_32 import add_0_32
from lockstep_parts import BLOCK_SIZE, drawn_config, is_0_32


@pytest.fixture(autouse=True)
def _vllm(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    if not is_0_32():
        pytest.skip("the settings of vLLM 0.32")


def config(is_async: bool = False):
    made = drawn_config(random.Random(1), is_async)
    made.parallel_config.pipeline_parallel_size = 1
    made.speculative_config = SimpleNamespace(
        num_speculative_tokens=2, use_eagle=lambda: False, uses_draft_model=lambda: False)
    add_0_32(made, random.Random(1), 1 + is_async, False)
    made.use_v2_model_runner = False
    return made


def refuse(given) -> None:
    from quire.vllm.version import part

    part("config").refuse(given)


def put(path: str, value):
    """A function that sets an attribute of a config."""
    *folders, name = path.split(".")

    def change(given) -> None:
        for folder in folders:
            given = getattr(given, folder)
        setattr(given, name, value)

    return change


REFUSED = {
    "diffusion": put("model_config.is_diffusion", True),
    "HiSparse": put("attention_config.hisparse_config", object()),
    "custom encoder cache": put("ec_manager_config.get_encoder_cache_manager_obj", lambda: object)}


def test_the_usual_settings_are_served():
    refuse(config())
    encoder_only = config()
    put("is_mm_encoder_only", True)(encoder_only)
    refuse(encoder_only)
    refuse(config(is_async=True))


@pytest.mark.parametrize("what", REFUSED)
def test_settings(what):
    given = config()
    REFUSED[what](given)
    with pytest.raises(NotImplementedError, match=f"quire.vllm does not support .*{what}"):
        refuse(given)


def states(**fields):
    """A model with one group of Mamba layers in align mode."""
    import torch
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, MambaSpec

    spec = MambaSpec(block_size=2 * BLOCK_SIZE, shapes=((2,),), dtypes=(torch.float32,),
                     mamba_cache_mode="align", **fields)
    return KVCacheConfig(30, [], [KVCacheGroupSpec(["states"], spec)])


def refuse_groups(given, groups) -> None:
    from quire.vllm.version import part

    part("config").refuse_groups(given, groups)


def test_states():
    """What is served of them: states inside of a chunk, connectors, ranks that share no states."""
    given = config()
    refuse_groups(given, states())
    refuse_groups(given, states(num_prefill_checkpoint_blocks=1, prefill_checkpoint_alignment=1))
    given.kv_transfer_config = SimpleNamespace()
    given.parallel_config.decode_context_parallel_size = 2
    refuse_groups(given, states())


def test_attention_that_ranks_do_not_share():
    import dataclasses
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

    given, group = config(), vllm_kit.full_group()
    spec = dataclasses.replace(group.kv_cache_spec, dcp_sharded=False)
    cache = KVCacheConfig(30, [], [group, KVCacheGroupSpec(["other"], spec)])
    refuse_groups(given, cache)
    given.parallel_config.decode_context_parallel_size = 2
    with pytest.raises(NotImplementedError, match="attention layers that are not sharded"):
        refuse_groups(given, cache)


@pytest.mark.parametrize("kind", ["SinkFullAttentionSpec", "HiSparseHotSpec", "HiSparseResidentSpec",
                                  "UniformTypeKVCacheSpecs"])
def test_layers(kind):
    from quire.vllm.layers import kind_of
    from vllm.v1 import kv_cache_interface as specs

    made = object.__new__(getattr(specs, kind))
    with pytest.raises(NotImplementedError, match=f"layers of {kind}"):
        kind_of(made)


def test_layers_of_another_package():
    import torch
    from quire.vllm.layers import kind_of
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    class Own(FullAttentionSpec):
        pass

    shape = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}
    assert kind_of(FullAttentionSpec(**shape)) == 1
    with pytest.raises(NotImplementedError, match="layers of Own"):
        kind_of(Own(**shape))


def test_bounded_replay():
    import torch
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, SlidingWindowMLASpec

    def cache(**given):
        spec = SlidingWindowMLASpec(block_size=BLOCK_SIZE, num_kv_heads=1, head_size=2,
                                    dtype=torch.bfloat16, sliding_window=8, **given)
        return KVCacheConfig(9, [], [KVCacheGroupSpec(["layer"], spec)])

    refuse_groups(config(), cache())
    refuse_groups(config(), cache(tokens_per_state=4))
    with pytest.raises(NotImplementedError, match="bounded replay"):
        refuse_groups(config(), cache(bounded_replay=True))


def test_groups_with_different_specs_are_told_apart():
    import torch
    from quire.vllm._v032.config import tell_apart
    from vllm.v1.kv_cache_interface import MLAAttentionSpec

    shape = {"block_size": BLOCK_SIZE, "num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}
    specs = [MLAAttentionSpec(**shape), MLAAttentionSpec(**shape, tokens_per_state=4),
             MLAAttentionSpec(**shape)]
    groups = [{"num_kv_heads": 1} for _ in specs] + [{"mamba_mode": 0}]
    tell_apart(groups, specs + [None])
    assert [group.get("num_kv_heads") for group in groups] == [1, 2, 1, None]


def test_failed_blocks_of_several_groups():
    """Their numbers do not say which request has failed: vLLM raises, too."""
    from vllm.v1.outputs import KVConnectorOutput

    scheduler = vllm_kit.make(connector=vllm_kit.connector_class()(), num_blocks=60)
    scheduler.kv_cache_config.kv_cache_groups.append(vllm_kit.full_group())
    scheduler.add_request(vllm_kit.request("r", range(9), vllm_kit.hasher(), 2))
    step = scheduler.schedule()
    told = KVConnectorOutput(invalid_block_ids={1})
    with pytest.raises(RuntimeError, match="several KV cache groups"):
        scheduler.update_from_output(step, vllm_kit.computed(step, connector_output=told))
    scheduler.update_from_output(step, vllm_kit.computed(step))  # nothing was done
