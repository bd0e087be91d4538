"""What quire.vllm does not serve of vLLM 0.32 is refused at the start, with a sentence."""
import random
from types import SimpleNamespace

import pytest
import vllm_kit
from lockstep_parts import BLOCK_SIZE, add_0_32, drawn_config, is_0_32


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


def stagger(given) -> None:
    given.parallel_config.pipeline_parallel_size = 2
    given.scheduler_config.async_scheduling = given.use_v2_model_runner = True


def connect(given) -> None:
    given.kv_transfer_config = SimpleNamespace(is_kv_consumer=True)
    given.max_concurrent_batches = 2


def encode(given) -> None:
    given.ec_transfer_config = SimpleNamespace()
    given.model_config.is_encoder_decoder = True


REFUSED = {
    "auxiliary outputs": put("aux_output_config.enabled", True),
    "diffusion": put("model_config.is_diffusion", True),
    "encoder-only": put("is_mm_encoder_only", True),
    "HiSparse": put("attention_config.hisparse_config", object()),
    "custom encoder cache": put("ec_manager_config.get_encoder_cache_manager_obj", lambda: object),
    "return_sampling_mask": put("model_config.return_sampling_mask", True),
    "per_request_spec_decode": put("observability_config.per_request_spec_decode_metrics", "basic"),
    "num_speculative_tokens_per_batch_size":
        put("speculative_config.num_speculative_tokens_per_batch_size", [(1, 2)]),
    "prefill_schedule_interval": put("scheduler_config.prefill_schedule_interval", 4),
    "V2 model runner": stagger, "a KV connector that loads": connect,
    "encoder connectors with encoder-decoder": encode}


def test_the_usual_settings_are_served():
    refuse(config())
    refuse(config(is_async=True))


@pytest.mark.parametrize("what", REFUSED)
def test_settings(what):
    given = config()
    REFUSED[what](given)
    with pytest.raises(NotImplementedError, match=f"quire.vllm does not support .*{what}"):
        refuse(given)


def test_a_connector_that_loads_is_served_one_step_at_a_time():
    given = config()
    connect(given)
    given.max_concurrent_batches = 1
    refuse(given)


@pytest.mark.parametrize("kind", ["SinkFullAttentionSpec", "RSWASpec", "HiddenStateCacheSpec",
                                  "CircularBufferSpec", "MambaSpec"])
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


def test_reports_by_request():
    from vllm.v1.outputs import KVConnectorOutput

    scheduler = vllm_kit.make(connector=vllm_kit.connector_class()(), num_blocks=60)
    scheduler.add_request(vllm_kit.request("r", range(9), vllm_kit.hasher(), 2))
    step = scheduler.schedule()
    told = KVConnectorOutput(failed_recving={"r"})
    with pytest.raises(NotImplementedError, match="failed_recving"):
        scheduler.update_from_output(step, vllm_kit.computed(step, connector_output=told))
    scheduler.update_from_output(step, vllm_kit.computed(step))  # nothing was done


def test_throttled_steps():
    with pytest.raises(NotImplementedError, match="prefill_schedule_interval"):
        vllm_kit.make().schedule(throttle_prefills=True)
