"""What the lock-step test draws for both schedulers: configs, groups of layers, and stand-ins for
the parts that vLLM plugs in, which note what they are asked and what they see.
"""
import random
from types import SimpleNamespace

BLOCK_SIZE = 4
MAX_MODEL_LEN = 96
ALPHABET = 12


def drawn_config(rng: random.Random, is_async: bool):
    """What both schedulers read of a VllmConfig."""
    chunked = rng.random() < 0.8
    tokens = rng.choice([8, 24, 64]) if chunked else MAX_MODEL_LEN
    return SimpleNamespace(
        scheduler_config=SimpleNamespace(
            max_num_seqs=rng.choice([1, 3, 8]), max_num_scheduled_tokens=None,
            max_num_batched_tokens=tokens, policy=rng.choice(["fcfs", "fcfs", "priority"]),
            long_prefill_token_threshold=rng.choice([0, 0, 5]), enable_chunked_prefill=chunked,
            scheduler_reserve_full_isl=rng.random() < 0.7, async_scheduling=is_async,
            disable_chunked_mm_input=False),
        cache_config=SimpleNamespace(
            num_gpu_blocks=rng.choice([30, 40, 80]), enable_prefix_caching=rng.random() < 0.8,
            mamba_cache_mode="none", block_size=BLOCK_SIZE, prefix_caching_hash_algo="sha256"),
        lora_config=SimpleNamespace(max_loras=2) if rng.random() < 0.3 else None,
        kv_events_config=SimpleNamespace(enable_kv_cache_events=rng.random() < 0.4,
                                         publisher="null"),
        kv_transfer_config=None, ec_transfer_config=None,
        speculative_config=drawn_spec(rng),
        parallel_config=SimpleNamespace(data_parallel_index=0, decode_context_parallel_size=1,
                                        prefill_context_parallel_size=1,
                                        pipeline_parallel_size=rng.choice([1, 1, 1, 2])),
        observability_config=SimpleNamespace(kv_cache_metrics=False, kv_cache_metrics_sample=1.0,
                                             enable_mfu_metrics=False),
        model_config=SimpleNamespace(is_encoder_decoder=False, max_model_len=MAX_MODEL_LEN,
                                     enable_return_routed_experts=False))


def is_0_32() -> bool:
    from vllm import __version__

    return __version__.startswith("0.32.")


def add_0_32(config, rng: random.Random, depth: int, takes_images: bool):
    """What vLLM 0.32 reads besides. depth: steps in flight."""
    sched, spec = config.scheduler_config, config.speculative_config
    sched.max_num_active_seqs = rng.choice([None] * 4 + [max(1, sched.max_num_seqs - 1)])
    sched.long_prefill_token_threshold_adaptive = rng.random() < 0.3
    sched.watermark = rng.choice([0.0] * 4 + [0.05, 0.2])
    sched.prefill_schedule_interval = 1
    config.cache_config.enable_mamba_shared_prefix_checkpoint = False
    config.observability_config.per_request_spec_decode_metrics = "none"
    config.observability_config.enable_logging_iteration_details = rng.random() < 0.2
    vars(config.model_config).update(
        uses_mrope=False, is_diffusion=False, supports_multimodal_inputs=takes_images,
        runner_type="generate", return_sampling_mask=False)
    drafts = ahead = prefill_ahead = 0
    if spec is not None:
        drafts = spec.num_speculative_tokens
        uses_model = not spec.use_eagle() and rng.random() < 0.3
        ahead = drafts if spec.use_eagle() or uses_model else 0
        prefill_ahead = rng.choice([1, 1, 1, drafts]) if spec.use_eagle() else 0
        drops = spec.use_eagle() and rng.random() < 0.8
        spec.num_speculative_tokens_per_batch_size = None
        spec.use_eagle_block_drop = lambda: drops
        spec.max_num_new_slots_for_drafting = int(uses_model)
    config.is_mm_encoder_only = False
    config.ec_manager_config = SimpleNamespace(get_encoder_cache_manager_obj=lambda: None)
    config.aux_output_config = SimpleNamespace(enabled=False)
    config.attention_config = SimpleNamespace(hisparse_config=None)
    config.num_speculative_tokens, config.num_lookahead_tokens = drafts, ahead
    config.num_prefill_lookahead_tokens = prefill_ahead
    config.max_concurrent_batches = depth
    config.max_in_flight_tokens = depth * sched.max_num_batched_tokens
    is_staggered = config.parallel_config.pipeline_parallel_size > 1 and sched.async_scheduling
    config.use_v2_model_runner = not is_staggered and rng.random() < 0.4


def drawn_spec(rng: random.Random):
    if rng.random() < 0.6:
        return None
    is_eagle = rng.random() < 0.5
    return SimpleNamespace(num_speculative_tokens=rng.randint(1, 3), use_eagle=lambda: is_eagle,
                           uses_draft_model=lambda: False)


class OrderedSet(dict):
    """Takes the place of `set` in both schedulers of 0.32, which end requests in the order of a set
    of ids: that order changes from one run of Python to the next."""

    def __init__(self, given=()):
        super().__init__(dict.fromkeys(given))

    def __eq__(self, other):
        return len(self) == len(other) and all(item in self for item in other)

    def __or__(self, other):
        return OrderedSet([*self, *other])

    def __ior__(self, other):
        self.update(other)
        return self

    def add(self, item):
        self[item] = None

    def discard(self, item):
        self.pop(item, None)

    def remove(self, item):
        del self[item]

    def update(self, given):
        for item in given:
            self[item] = None

    def difference_update(self, given):
        for item in given:
            self.pop(item, None)


class Published:
    """Stands for vLLM's publisher of events."""

    def __init__(self):
        self.notes = []

    def publish(self, batch):
        self.notes.append(batch.events)


class Grammars:
    """Stands for vLLM's StructuredOutputManager, and notes what it is asked and what it sees."""

    def __init__(self):
        self.notes = []
        self.num_steps = 0  # of its scheduler, so far

    def seen(self, request) -> tuple:
        return (request.request_id, request.num_computed_tokens, request.num_output_placeholders,
                list(request.all_token_ids))

    def accept_tokens(self, request, tokens: list[int]) -> bool:
        """0.32: the manager decides by itself whether a grammar is asked."""
        if not request.use_structured_output:
            return True
        self.notes.append(("accept", self.seen(request), list(tokens)))
        return sum(tokens) % 13 != 12

    def validate_tokens(self, request, tokens: list[int]) -> list[int]:
        if not request.use_structured_output:
            return tokens
        self.notes.append(("validate", self.seen(request), list(tokens)))
        return tokens[:1 + sum(tokens) % 3]

    def should_advance(self, request) -> bool:
        if not request.use_structured_output:
            return False
        tokens = list(request.all_token_ids)
        self.notes.append(("advance", request.request_id, request.num_computed_tokens,
                           request.num_output_placeholders, tokens))
        return len(tokens) % 5 != 0


class Grammar:
    """The structured-output part of a request: compiled after a few questions."""

    def __init__(self, manager: Grammars, request, questions: int):
        self.manager, self.request, self.questions = manager, request, questions

    @property
    def grammar(self):
        if is_0_32():  # which looks several times
            if self.questions < 0 and self.manager.num_steps >= -self.questions:
                return ValueError("no grammar")
            return self if 0 <= self.questions <= self.manager.num_steps else None
        from vllm.v1.request import RequestStatus

        if self.request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            self.manager.notes.append(("ready", self.request.request_id))
            self.questions -= 1
        return self if self.questions <= 0 else None

    def accept_tokens(self, name: str, tokens: list[int]) -> bool:
        self.manager.notes.append(("accept", name, list(tokens)))
        return sum(tokens) % 13 != 12

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.manager.notes.append(("validate", list(tokens)))
        return tokens[:1 + sum(tokens) % 3]


def make_connector(seed: int):
    """A KV connector whose answers depend on the request and on how often it was asked."""
    from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA

    class Connector(SupportsHMA):
        def __init__(self):
            self.notes, self.asked, self.loading, self.sending = [], {}, set(), set()

        def draw(self, name: str) -> random.Random:
            self.asked[name] = self.asked.get(name, 0) + 1
            return random.Random(f"{seed} {name} {self.asked[name]}")

        def seen(self, request) -> tuple:
            return (request.request_id, int(request.status), request.num_computed_tokens,
                    list(request.all_token_ids), list(request.block_hashes))

        def get_num_new_matched_tokens(self, request, num_local):
            rng = self.draw(request.request_id)
            self.notes.append(("match", self.seen(request), num_local))
            left, later = request.num_tokens - num_local, rng.random() < 0.5
            if rng.random() < 0.1:
                return None, False
            if rng.random() < 0.5 or left <= 1:
                return 0, False
            most = left - (not later)
            return rng.choice([most, max(1, most // BLOCK_SIZE * BLOCK_SIZE) if most >= BLOCK_SIZE
                               else 1, rng.randint(1, most)]), later

        def update_state_after_alloc(self, request, blocks, num_external):
            self.notes.append(("alloc", self.seen(request), blocks.get_block_ids(),
                               [[(b.ref_cnt, b.block_hash) for b in group if not b.is_null]
                                for group in blocks.blocks], num_external))

        def build_connector_meta(self, output):
            self.notes.append(("meta", list(output.num_scheduled_tokens.items())))
            state = getattr(output, "kv_connector_block_state", None)
            if state is not None:
                self.notes.append(("state", [(name, state.get_block_ids(name))
                                             for name in output.num_scheduled_tokens]))
            return f"meta {output.total_num_scheduled_tokens}"

        def request_finished_all_groups(self, request, block_ids):
            name = request.request_id
            delays = name not in self.loading and self.draw(name).random() < 0.3
            if delays:
                self.sending.add(name)
            self.notes.append(("finished", self.seen(request), block_ids))
            return delays, {"sent": name} if delays else None

        def reset_cache(self):
            self.notes.append(("reset",))

        def update_connector_output(self, _output):
            self.notes.append(("output",))

        # -- 0.32

        requires_kv_delivery = seed % 3 == 0
        supports_divergent_local_hybrid_hits = False

        def on_new_request(self, request):
            self.notes.append(("new", self.seen(request)))

        def bind_kv_cache_manager(self, manager):
            self.manager = manager

        def get_loaded_kv_cache_group_ids(self, _request):
            return tuple(range(len(self.manager.kv_cache_config.kv_cache_groups)))

        def get_external_cache_hit_sources(self, request, num_tokens):
            self.notes.append(("sources", request.request_id, num_tokens))
            return {"near": num_tokens // 2, "far": num_tokens - num_tokens // 2}

        def has_pending_block_frees(self):
            return False

        def has_pending_push_work(self):
            return False

        def take_events(self):
            return ()

        def get_kv_connector_stats(self):
            return None

    return Connector()


def make_encoder_connector(seed: int, sees_ends: bool):
    """An encoder connector that has every third image or so. sees_ends: notes requests that end."""

    class Connector:
        def __init__(self):
            self.notes = []

        def has_cache_item(self, identifier):
            self.notes.append(("has", identifier))
            return random.Random(f"{seed} {identifier}").random() < 0.3

        def update_state_after_alloc(self, request, index):
            self.notes.append(("alloc", request.request_id, index, request.num_computed_tokens))

        def request_finished(self, request):
            if not sees_ends:
                return False, None
            self.notes.append(("finished", request.request_id, int(request.status)))
            return False, {"images": request.request_id} if seed % 2 else None

        def ensure_cache_available(self, _request, _num_computed):
            return True

        def update_state_after_free(self, _request, _index):
            pass

        def take_unavailable_requests(self):
            return set()

        def get_ec_connector_stats(self):
            return None

        def has_pending_push_work(self):
            return False

        def build_connector_meta(self, output):
            self.notes.append(("meta", list(output.num_scheduled_tokens)))
            return f"images {output.total_num_scheduled_tokens}"

    return Connector()


def drawn_groups(rng: random.Random):
    import torch
    from vllm.v1.kv_cache_interface import (FullAttentionSpec, KVCacheGroupSpec,
                                            SlidingWindowMLASpec, SlidingWindowSpec)

    shape = {"num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}
    full = KVCacheGroupSpec(["full"], FullAttentionSpec(block_size=BLOCK_SIZE, **shape))
    window_spec = rng.choice([SlidingWindowSpec] * 3 + [SlidingWindowMLASpec])
    window = KVCacheGroupSpec(["window"], window_spec(
        block_size=BLOCK_SIZE, sliding_window=rng.randint(2, 24), **shape))
    return rng.choice([[full], [full], [window], [full, window]])
