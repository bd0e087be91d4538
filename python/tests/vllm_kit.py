"""A quire.vllm scheduler for tests: small, without a model, with parts that tests can replace."""
import importlib
import random
from types import SimpleNamespace

import pytest

BLOCK_SIZE = 4


def need_vllm(config) -> None:
    """Skips where vLLM or the extension is not there. config: pytest's, for --platform."""
    platform = config.getoption("--platform")
    if platform:
        importlib.import_module(platform)
    pytest.importorskip("vllm")
    pytest.importorskip("quire._vllm")


class Publisher:
    """Takes event batches and forgets them."""

    def __init__(self):
        self.batches = 0

    def publish(self, _batch) -> None:
        self.batches += 1

    def shutdown(self) -> None:
        pass


class Grammars:
    """Every request with a grammar is at its grammar's will."""

    def should_advance(self, request) -> bool:
        return request.structured_output_request is not None

    def grammar_bitmask(self, *_given):
        return None

    def accept_tokens(self, request, tokens) -> bool:
        """0.32: the manager asks the grammar."""
        part = request.structured_output_request
        return part is None or part.grammar.accept_tokens(request.request_id, tokens)

    def validate_tokens(self, request, tokens):
        part = request.structured_output_request
        return tokens if part is None else part.grammar.validate_tokens(tokens)


class Grammar:
    """Ready at once; takes every token."""

    def __init__(self):
        self.grammar = self

    def accept_tokens(self, _name, _tokens) -> bool:
        return True

    def validate_tokens(self, tokens):
        return tokens


def connector_class():
    """Nothing to load, nothing to send."""
    from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA

    class Connector(SupportsHMA):
        def get_num_new_matched_tokens(self, _request, _num_local):
            return 0, False

        def update_state_after_alloc(self, _request, _blocks, _num_external):
            pass

        def build_connector_meta(self, _output):
            return None

        def request_finished_all_groups(self, _request, _block_ids):
            return False, None

        def reset_cache(self):
            return True

        def update_connector_output(self, _output):
            pass

        def take_events(self):
            return ()

        def get_kv_connector_stats(self):
            return None

        def shutdown(self):
            pass

        # -- 0.32

        requires_kv_delivery = supports_divergent_local_hybrid_hits = False

        def on_new_request(self, _request):
            pass

        def bind_kv_cache_manager(self, _manager):
            pass

        def get_loaded_kv_cache_group_ids(self, _request):
            return (0,)

        def get_external_cache_hit_sources(self, _request, _num_tokens):
            return None

        def has_pending_block_frees(self):
            return False

        def has_pending_push_work(self):
            return False

    return Connector


def full_group():
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec

    return KVCacheGroupSpec(["full"], FullAttentionSpec(
        block_size=BLOCK_SIZE, num_kv_heads=1, head_size=2, dtype=torch.bfloat16))


def make(is_async=False, connector=None, events=False, num_blocks=200, log_stats=True, drafts=0,
         max_num_seqs=16, grammars=None, module="quire.vllm"):
    """A scheduler on one group of full attention. module: where its class comes from."""
    from lockstep_parts import add_0_32, drawn_config, is_0_32
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.kv_cache_interface import KVCacheConfig

    from quire.vllm import config as limits

    limits.MAX_REQUESTS, limits.MAX_TEXT_TOKENS = 1024, 1 << 16  # small, so quick to make
    kv_cache_utils.init_none_hash(get_hash_fn_by_name("sha256"))
    config = drawn_config(random.Random(0), is_async)
    vars(config.scheduler_config).update(
        max_num_seqs=max_num_seqs, max_num_batched_tokens=256, policy="fcfs",
        long_prefill_token_threshold=0, enable_chunked_prefill=True, scheduler_reserve_full_isl=True)
    vars(config.cache_config).update(num_gpu_blocks=num_blocks, enable_prefix_caching=True)
    config.kv_events_config.enable_kv_cache_events = events
    config.lora_config = config.speculative_config = None
    if drafts:
        config.speculative_config = SimpleNamespace(
            num_speculative_tokens=drafts, use_eagle=lambda: False, uses_draft_model=lambda: False)
    if connector is not None:
        config.kv_transfer_config = SimpleNamespace(
            kv_load_failure_policy="recompute", is_kv_consumer=not is_async, is_kv_producer=True)
    if is_0_32():
        add_0_32(config, random.Random(0), 1 + is_async, False)
        vars(config.scheduler_config).update(max_num_active_seqs=None, watermark=0.0)
        config.use_v2_model_runner = False
    create = KVConnectorFactory.create_connector
    KVConnectorFactory.create_connector = lambda **_given: connector
    try:
        kinds = importlib.import_module(module)
        made = (kinds.AsyncScheduler if is_async else kinds.Scheduler)(
            config, KVCacheConfig(num_blocks, [], [full_group()]), grammars or Grammars(), BLOCK_SIZE,
            BLOCK_SIZE, SimpleNamespace(supports_multimodal_inputs=lambda _config: False),
            log_stats=log_stats)
    finally:
        KVConnectorFactory.create_connector = create
    made.kv_event_publisher = Publisher()
    return made


def hasher():
    from vllm.utils.hashing import get_hash_fn_by_name

    from quire.vllm import get_request_block_hasher

    return get_request_block_hasher(BLOCK_SIZE, get_hash_fn_by_name("sha256"))


def request(name: str, prompt, block_hasher=None, max_tokens=4, grammar=None, **params):
    """vLLM's own Request."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request, RequestStatus

    made = Request(name, list(prompt), SamplingParams(max_tokens=max_tokens, **params), None,
                   block_hasher=block_hasher)
    if grammar is not None:
        made.structured_output_request = grammar
        made.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    return made


def computed(step, token=5, connector_output=None):
    """What a model runner would say: one token for each request whose tokens are all computed."""
    from vllm.v1.outputs import ModelRunnerOutput

    names = list(step.num_scheduled_tokens)
    return ModelRunnerOutput(req_ids=names, req_id_to_index={n: i for i, n in enumerate(names)},
                             sampled_token_ids=[[token] for _ in names], logprobs=None,
                             prompt_logprobs_dict={}, pooler_output=[],
                             kv_connector_output=connector_output)


def step_once(scheduler, token=5):
    """Schedule and update."""
    step = scheduler.schedule()
    return step, scheduler.update_from_output(step, computed(step, token))
