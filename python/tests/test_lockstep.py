"""vLLM's scheduler and quire.vllm's side by side: the same requests, the same sampled tokens, and
every field of every output compared.

    pytest python/tests/test_lockstep.py --seed 7 --count 50

--platform names a module to import first, where there is no GPU.
"""
import collections
import copy
import gc
import importlib
import os
import random
import traceback
from types import SimpleNamespace

import lockstep_0_32
import lockstep_compare
import vllm_kit
from lockstep_compare import (compare_notes, compare_outputs, compare_pools, compare_requests,
                              compare_steps, images_of, same)
from lockstep_partners import (Aux, Grammar, Grammars, Logprobs, OrderedSet, Published, drawn_stats,
                               make_connector, make_encoder_connector)
from lockstep_parts import (ALPHABET, BLOCK_SIZE, MAX_MODEL_LEN, drawn_config, drawn_groups,
                            is_0_32)


HOLDERS = ("skipped_waiting", "kv_holding_waiting")  # the second queue of 0.20 and of 0.32


class Ended(Exception):
    """vLLM cannot go on."""

    def reason(self) -> str:
        """Where vLLM raised."""
        if self.__cause__ is None:
            return "a session is in two queues, or in none"
        place = traceback.extract_tb(self.__cause__.__traceback__)[-1]
        return f"{type(self.__cause__).__name__} in {place.name}: {place.line}"


class Pair:
    """Both schedulers, and everything that is done to both."""

    def __init__(self, seed: int, module: str = "quire.vllm"):
        """module: where the schedulers that are compared with vLLM's come from."""
        from quire.vllm import get_request_block_hasher
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler as VllmAsyncScheduler
        from vllm.v1.core.sched.scheduler import Scheduler as VllmScheduler
        from vllm.v1.kv_cache_interface import KVCacheConfig

        self.rng = rng = random.Random(seed)
        self.is_async = rng.random() < 0.5
        self.config = drawn_config(rng, self.is_async)
        self.config.observability_config.kv_cache_metrics = seed % 2 == 0
        self.log_stats, self.with_finished = rng.random() < 0.7, rng.random() < 0.5
        groups = drawn_groups(rng)
        os.environ["VLLM_USE_V2_MODEL_RUNNER"] = str(int(rng.random() < 0.15))
        self.has_sessions, self.has_embeds = rng.random() < 0.25, rng.random() < 0.15
        self.reorders = rng.random() < 0.3
        self.drops = rng.random() < 0.15 and self.config.speculative_config is None
        self.is_encoder_decoder = rng.random() < 0.08
        self.inputs = {}
        if self.is_encoder_decoder:
            groups = self.set_encoder_decoder()
        elif rng.random() < 0.35:
            self.set_connector(seed)
            groups = groups[:1]
        function = get_hash_fn_by_name("sha256")
        kv_cache_utils.init_none_hash(function)
        ours = importlib.import_module(module)
        kinds = ((VllmAsyncScheduler, ours.AsyncScheduler) if self.is_async
                 else (VllmScheduler, ours.Scheduler))
        self.num_spec = 0
        if self.config.speculative_config is not None:
            self.num_spec = self.config.speculative_config.num_speculative_tokens
        self.has_images, self.has_grammars = rng.random() < 0.3, rng.random() < 0.3
        self.has_images |= self.is_encoder_decoder
        if self.has_images and rng.random() < 0.4:
            self.set_encoder_connector(seed)
        self.set_budget()
        self.retained, self.block_size = None, BLOCK_SIZE
        self.pools = self.throttles = False
        self.hash_block_size = BLOCK_SIZE
        if is_0_32():
            groups = self.set_0_32(groups)
        self.both = [self.make(kind, groups, KVCacheConfig) for kind in kinds]
        for scheduler in self.both:
            scheduler.kv_event_publisher = Published()
        self.hashers = [None, None]
        if self.config.cache_config.enable_prefix_caching:
            self.hashers = [make(self.hash_block_size, function) for make in
                            (kv_cache_utils.get_request_block_hasher, get_request_block_hasher)]
        self.pairs, self.prompts, self.flight, self.num_added = {}, [], [], 0

    def set_connector(self, seed: int):
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

        self.config.kv_transfer_config = SimpleNamespace(kv_load_failure_policy="recompute")
        KVConnectorFactory.create_connector = lambda **_given: make_connector(seed)

    def set_encoder_connector(self, seed: int):
        from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory

        self.config.ec_transfer_config = SimpleNamespace()
        ECConnectorFactory.create_connector = lambda **_given: make_encoder_connector(seed)

    def set_encoder_decoder(self) -> list:
        """As vLLM sets such models up: whole prompts, no prefix caching, no embeddings."""
        import torch
        from vllm.v1.kv_cache_interface import (CrossAttentionSpec, FullAttentionSpec,
                                                KVCacheGroupSpec)

        config, self.has_embeds, self.has_sessions = self.config, False, False
        config.model_config.is_encoder_decoder = True
        config.cache_config.enable_prefix_caching = False
        config.scheduler_config.enable_chunked_prefill = False
        config.scheduler_config.max_num_batched_tokens = MAX_MODEL_LEN
        shape = {"num_kv_heads": 1, "head_size": 2, "dtype": torch.bfloat16}
        kinds = {"full": FullAttentionSpec, "cross": CrossAttentionSpec}
        return [KVCacheGroupSpec([name], kind(block_size=BLOCK_SIZE, **shape))
                for name, kind in kinds.items()]

    def set_budget(self):
        """The encoder's limits come from a model; here they are drawn."""
        from quire.vllm import config
        from vllm.v1.core.sched import scheduler

        budget = SimpleNamespace(encoder_compute_budget=self.rng.choice([6, 12, 40]),
                                 encoder_cache_size=self.rng.choice([8, 16, 60]),
                                 mm_max_toks_per_item={})
        for module in (config, scheduler):
            module.MultiModalBudget = lambda _config, _registry: budget

    def set_0_32(self, groups: list) -> list:
        from quire.vllm import scheduler as ours
        from quire.vllm._v032 import scheduler as ours_0_32
        from vllm.v1.core.sched import scheduler as theirs

        ours.as_set = theirs.set = OrderedSet
        ours_0_32.AuxOutputSchedulerConnector = theirs.AuxOutputSchedulerConnector = Aux
        return lockstep_0_32.settle(self, groups)

    def make(self, kind, groups, config_class):
        num_blocks = self.config.cache_config.num_gpu_blocks
        more = {"prefix_cache_retention_interval": self.retained} if is_0_32() else {}
        return kind(self.config, config_class(num_blocks, [], groups, **more),
                    Grammars(), self.block_size, self.hash_block_size,
                    SimpleNamespace(supports_multimodal_inputs=lambda _config: self.has_images),
                    include_finished_set=self.with_finished, log_stats=self.log_stats)

    # -- requests

    def drawn_params(self):
        from vllm.pooling_params import PoolingParams
        from vllm.sampling_params import RepetitionDetectionParams, SamplingParams

        rng = self.rng
        if self.pools or rng.random() < 0.05:
            return None, PoolingParams()
        params = SamplingParams(max_tokens=rng.randint(1, 30), temperature=0.0)
        if rng.random() < 0.3:
            params.stop_token_ids = rng.sample(range(ALPHABET), 2)
        if rng.random() < 0.3:
            params._eos_token_id = rng.randrange(ALPHABET)
        if rng.random() < 0.2:
            params.min_tokens = rng.randint(0, params.max_tokens)
        if rng.random() < 0.1:
            params.repetition_detection = RepetitionDetectionParams(3, 1, 2)
        if rng.random() < 0.1:
            params.skip_reading_prefix_cache = True
        if rng.random() < 0.2:
            params.logprobs = rng.randint(0, 2)
        if self.config.kv_transfer_config is not None and rng.random() < 0.2:
            params.extra_args = {"kv_transfer_params": {"do_remote_prefill": rng.random() < 0.7}}
        is_split = self.config.parallel_config.decode_context_parallel_size > 1  # then vLLM fails
        if is_0_32() and rng.random() < 0.1 and not is_split:
            params.extra_args = {**(params.extra_args or {}), "kv_cache_report_mode": "full"}
        return params, None

    def drawn_features(self, length: int) -> list:
        import torch
        from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

        rng, made, at = self.rng, [], 0
        if self.is_encoder_decoder:
            size = rng.randint(1, 6)
            return [MultiModalFeatureSpec(None, "audio", f"audio{rng.randrange(9)}",
                                          PlaceholderRange(0, size))] if rng.random() < 0.8 else []
        while self.has_images and rng.random() < 0.6:
            number = rng.randrange(6)
            size = 1 + number
            offset = at + rng.randint(0, 6)
            if offset + size > length:
                break
            flags = torch.tensor([i % 2 == 0 for i in range(size)]) if number % 2 else None
            made.append(MultiModalFeatureSpec(None, "image", f"image{number}",
                                              PlaceholderRange(offset, size, flags)))
            at = offset + size
        return made

    def drawn_prompt(self) -> list[int]:
        """Many begin as an earlier one did."""
        rng = self.rng
        prompt = [rng.randrange(3) for _ in range(rng.randint(1, MAX_MODEL_LEN - 36))]
        if self.prompts and rng.random() < 0.6:
            before = rng.choice(self.prompts)
            kept = rng.randint(0, len(before))
            prompt = before[:kept] + prompt[kept:]
        self.prompts.append(prompt)
        return prompt

    def set_grammar(self, made: list):
        from vllm.v1.request import RequestStatus

        questions = self.rng.randint(1, 3)
        if is_0_32():  # the step from which on it is ready; below 0: has failed
            questions += self.both[0].structured_output_manager.num_steps
            questions *= self.rng.choice([1] * 9 + [-1])
        for scheduler, request in zip(self.both, made):
            request.structured_output_request = Grammar(scheduler.structured_output_manager,
                                                        request, questions)
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

    def add(self):
        from vllm.lora.request import LoRARequest
        from vllm.v1.request import Request

        rng = self.rng
        prompt = self.drawn_prompt()
        params, pooling = self.drawn_params()
        lora = None
        if self.config.lora_config is not None and rng.random() < 0.7:
            number = rng.randint(1, 4)
            lora = LoRARequest(f"lora{number}", number, "path")
        given = {"client_index": rng.randrange(2), "arrival_time": float(self.num_added // 2),
                 "priority": rng.randint(-1, 1), "lora_request": lora,
                 "cache_salt": "salt" if rng.random() < 0.1 else None,
                 "trace_headers": {"a": "b"} if rng.random() < 0.1 else None}
        embeds, is_session = None, False
        if self.has_sessions and params is not None and rng.random() < 0.5:
            is_session, prompt, params.max_tokens = True, prompt[:30], rng.randint(1, 6)
            params.min_tokens = 0
        elif self.has_embeds and rng.random() < 0.5:
            embeds = self.drawn_embeds(len(prompt))
        features = self.drawn_features(len(prompt)) if embeds is None else []
        given.update(prompt_embeds=embeds, resumable=is_session)
        name = f"{chr(97 + self.num_added * 7 % 26)}{self.num_added}"
        self.num_added += 1
        made = [Request(name, list(prompt) if embeds is None else None, copy.copy(params), pooling,
                        block_hasher=hasher, mm_features=copy.deepcopy(features), **given)
                for hasher in self.hashers]
        if self.has_grammars and params is not None and rng.random() < 0.5:
            self.set_grammar(made)
        if is_session:
            self.inputs[name] = 0
        self.pairs[name] = made
        for scheduler, request in zip(self.both, made):
            scheduler.add_request(request)

    def drawn_embeds(self, length: int):
        """Rows of one of two series: prompts share their beginnings."""
        import torch

        rows = torch.Generator().manual_seed(self.rng.randrange(2))
        return torch.rand((MAX_MODEL_LEN, 3), generator=rows)[:length].to(torch.bfloat16)

    def go_on(self):
        """A session gets its next input, or its end."""
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        rng = self.rng
        sessions = [name for name in self.both[0].requests if self.inputs.get(name, 4) < 4]
        if not sessions:
            return
        name = rng.choice(sessions)
        self.inputs[name] += 1
        prompt = [rng.randrange(3) for _ in range(rng.randint(1, 8))]
        params = SamplingParams(max_tokens=5, temperature=0.0, stop_token_ids=[rng.randrange(9)])
        features = self.drawn_features(len(prompt))
        arrival = float(self.num_added)
        if self.config.scheduler_config.policy == "priority":  # vLLM's heap does not see the change
            arrival = self.pairs[name][0].arrival_time
        for scheduler, hasher in zip(self.both, self.hashers):
            scheduler.add_request(Request(
                name, list(prompt), copy.copy(params), None, block_hasher=hasher,
                mm_features=copy.deepcopy(features), resumable=self.inputs[name] < 4,
                arrival_time=arrival))

    def finish(self):
        from vllm.v1.request import RequestStatus

        known = list(self.both[0].requests)
        self.tell_loading()
        names = self.rng.sample(known, min(len(known), self.rng.randint(1, 3))) + ["nobody"]
        if self.rng.random() < 0.1:
            names = None
        elif self.rng.random() < 0.3:
            names = names[0]
        ended = [s.finish_requests(names, RequestStatus.FINISHED_ABORTED) for s in self.both]
        if is_0_32():  # which answers with the requests
            ended = [[(r.request_id, r.client_index) for r in each] for each in ended]
        same(*ended)

    def reset(self):
        """Of the prefix cache; in 0.32 also with the requests that run, and with the connector."""
        more = {}
        if is_0_32():
            more = {"reset_running_requests": self.rng.random() < 0.5,
                    "reset_connector": self.rng.random() < 0.3}
        done = []
        for scheduler in self.both:
            try:
                done.append(scheduler.reset_prefix_cache(**more))
            except RuntimeError:  # blocks are being loaded or sent, or a session keeps them
                done.append("refused")
        same(*done)

    # -- what a connector's workers report

    def loading(self) -> list:
        from vllm.v1.request import RequestStatus

        theirs = self.both[0]
        return [r for r in getattr(theirs, HOLDERS[is_0_32()])
                if r.status == RequestStatus.WAITING_FOR_REMOTE_KVS
                and r.request_id not in theirs.finished_recving_kv_req_ids]

    def tell_loading(self):
        """A connector sends nothing of requests that end while they load."""
        if self.both[0].connector is not None:
            loading = {r.request_id for r in self.loading()}
            for scheduler in self.both:
                scheduler.connector.loading = loading

    def report(self):
        from vllm.v1.outputs import KVConnectorOutput

        rng, theirs = self.rng, self.both[0]
        if theirs.connector is None:
            return None
        sending = theirs.connector.sending
        received = [r.request_id for r in self.loading() if rng.random() < 0.35]
        received += [name for name, r in theirs.requests.items()
                     if r.is_finished() and name not in sending and rng.random() < 0.5]
        sent = [name for name in sorted(sending) if rng.random() < 0.3]
        for scheduler in self.both:
            scheduler.connector.sending -= set(sent)
        if is_0_32():
            more = lockstep_0_32.drawn_report(self, self.loading(), received)
            more["kv_connector_stats"] = drawn_stats(rng)
        else:
            more = {"invalid_block_ids": set(self.failed_blocks())}
        return KVConnectorOutput(set(sent), set(received), **more)

    def failed_blocks(self) -> list[int]:
        holders = self.loading() + list(self.both[0].running)
        if not holders or self.rng.random() >= 0.1:
            return []
        manager = self.both[0].kv_cache_manager
        (blocks,) = manager.get_block_ids(self.rng.choice(holders).request_id)
        return [b for b in blocks if b != 0][:1]

    # -- steps

    def schedule(self):
        for scheduler in self.both:
            scheduler.structured_output_manager.num_steps += 1
        throttle = [self.rng.random() < 0.5] if self.throttles else []
        try:
            made = [self.both[0].schedule(*throttle)]
        except (ValueError, AssertionError, IndexError) as error:
            raise Ended from error  # bugs of vLLM's: it predicted too few blocks, a session has
            # nothing to compute, or the event of a hit inside a block wants the whole block's hash
        made.append(self.both[1].schedule(*throttle))
        compare_steps(*made)
        samples = {}
        if self.is_async and self.num_spec and self.rng.random() < 0.5:
            self.fill_in_drafts(made)
        for name in made[0].num_scheduled_tokens:
            samples[name] = not self.both[0].requests[name].is_prefill_chunk
        same(*(scheduler.get_grammar_bitmask(step) for scheduler, step in zip(self.both, made)))
        self.flight.append((made, samples))

    def update(self):
        from vllm.v1.outputs import ModelRunnerOutput

        is_late = self.reorders and self.rng.random() < 0.3
        made, samples = self.flight.pop(-1 if is_late else 0)
        if self.drops and self.rng.random() < 0.05:
            return
        names = list(samples)
        self.rng.shuffle(names)
        index = {name: i for i, name in enumerate(names)}
        is_pooling = [self.pairs[name][0].pooling_params is not None for name in names]
        sampled = [self.drawn_tokens(made[0], name) if samples[name] and not pooling else []
                   for name, pooling in zip(names, is_pooling)]
        pooled = [f"pooled {name}" if pooling and samples[name] else None
                  for name, pooling in zip(names, is_pooling)]
        report = self.report()
        if is_0_32():  # where loads may end requests
            self.tell_loading()
        nans = {name: self.rng.randrange(3) for name in names if self.rng.random() < 0.05} or None
        if report is not None and report.invalid_block_ids:  # whose requests take nothing
            nans = None
        prompts = {name: f"prompt {name}" for name, tokens in zip(names, sampled)
                   if tokens and self.rng.random() < 0.05}
        outputs = []
        for scheduler, step in zip(self.both, made):
            given = ModelRunnerOutput(
                list(names), dict(index), [list(tokens) for tokens in sampled], Logprobs(),
                dict(prompts), pooler_output=pooled if any(is_pooling) else None,
                kv_connector_output=copy.copy(report), num_nans_in_logits=nans,
                **({"sampling_masks": Logprobs(), "aux_output_connector_output": {}}
                   if is_0_32() else {}))
            try:
                outputs.append(scheduler.update_from_output(step, given))
            except AssertionError as error:
                if scheduler is self.both[0] and is_0_32() and self.may_assert(error):
                    raise Ended from error
                raise
            self.check_queues()
        compare_outputs(*outputs)
        if self.num_spec and not self.is_async and names:
            self.draft(names)

    def may_assert(self, error: AssertionError) -> bool:
        """Bugs of vLLM 0.32's: it counts on the order of the steps; and a session that stops while
        a load that failed has taken its computed tokens has fewer of them than tokens in flight."""
        place = traceback.extract_tb(error.__traceback__)[-1].name
        return self.reorders or self.drops or place == "_handle_stopped_request"

    def check_queues(self):
        """A bug of vLLM's: a session that stops twice, since a step was in flight when it did, is
        listed twice, and both entries are scheduled; or it is in no queue any more; or its prompt
        is longer than all of its tokens."""
        theirs = self.both[0]
        listed = [r.request_id for r in (*theirs.running, *theirs.waiting,
                                         *getattr(theirs, HOLDERS[is_0_32()]))]
        known = [name for name, request in theirs.requests.items() if not request.is_finished()]
        if sorted(listed) != sorted(known) or any(
                request.num_prompt_tokens > request.num_tokens
                for request in theirs.requests.values()):
            raise Ended

    def drawn_tokens(self, output, name: str) -> list[int]:
        """Some of the drafts, and one token more."""
        accepted = self.rng.randint(0, len(output.scheduled_spec_decode_tokens.get(name, ())))
        return [self.rng.randrange(ALPHABET) for _ in range(accepted + 1)]

    def draft(self, names: list[str]):
        from vllm.v1.outputs import DraftTokenIds

        drafts = [[self.rng.randrange(ALPHABET) for _ in range(self.rng.randint(0, self.num_spec))]
                  for _ in names]
        for scheduler in self.both:
            scheduler.update_draft_token_ids(DraftTokenIds(list(names), [list(d) for d in drafts]))

    def fill_in_drafts(self, made: list):
        """In async scheduling the workers' drafts come after the step."""
        from vllm.v1.outputs import DraftTokenIds

        names = list(made[0].scheduled_spec_decode_tokens)
        drafts = [[self.rng.randrange(ALPHABET) for _ in range(self.num_spec)] for _ in names]
        for scheduler, output in zip(self.both, made):
            scheduler.update_draft_token_ids_in_output(
                DraftTokenIds(list(names), [list(d) for d in drafts]), output)
        compare_steps(*made)

    def compare_state(self):
        theirs, ours = self.both
        same(theirs.get_request_counts(), ours.get_request_counts())
        same(theirs.get_num_unfinished_requests(), ours.get_num_unfinished_requests())
        same(theirs.has_finished_requests(), ours.has_finished_requests())
        same(theirs.has_requests(), ours.has_requests())
        same(list(theirs.requests), list(ours.requests))
        same(theirs.finished_req_ids, ours.finished_req_ids)
        same(theirs.num_waiting_for_streaming_input, ours.num_waiting_for_streaming_input)
        self.compare_caches()
        for kind in ("structured_output_manager", "connector", "ec_connector",
                     "aux_output_connector", "kv_event_publisher"):
            if getattr(theirs, kind, None) is not None:
                compare_notes(*(getattr(s, kind).notes for s in self.both))
        for queue in ("running", "waiting", HOLDERS[is_0_32()]):
            same([r.request_id for r in getattr(theirs, queue)],
                 [r.request_id for r in getattr(ours, queue)])
        for name in theirs.requests:
            compare_requests(theirs.requests[name], ours.requests[name])

    def compare_caches(self):
        theirs, ours = (scheduler.kv_cache_manager for scheduler in self.both)
        compare_pools(theirs.block_pool, ours.block_pool)
        for name in self.both[0].requests:
            same(theirs.get_block_ids(name), ours.get_block_ids(name))
        images = images_of(self.both[1])
        if self.is_encoder_decoder or images is None:
            return
        theirs = self.both[0].encoder_cache_manager
        for name in ("cached", "freed", "num_free_slots", "num_freeable_slots"):
            same(getattr(theirs, name), getattr(images, name))
        same(list(theirs.freeable.items()), list(images.freeable.items()))

    def run(self, num_steps: int):
        from vllm.v1.core.sched.interface import PauseState

        # Without async, vLLM schedules -1 tokens where drafts of a step in flight are rejected.
        is_pipeline = self.config.parallel_config.pipeline_parallel_size > 1
        depth = 2 if self.is_async or is_pipeline and not self.num_spec else 1
        self.num_steps = 0
        for _ in range(num_steps):
            self.num_steps += 1
            while len(self.both[0].requests) < 12 and self.rng.random() < 0.4:
                self.add()
            if self.has_sessions and self.rng.random() < 0.3:
                self.go_on()
            if self.rng.random() < 0.05 and self.both[0].requests:
                self.finish()
            if self.rng.random() < 0.03:
                self.reset()
            if self.rng.random() < 0.02:
                for scheduler in self.both:
                    scheduler.reset_encoder_cache()
            if self.rng.random() < 0.03:
                lockstep_compare.compare_stats(*(s.make_stats() for s in self.both))
            if self.rng.random() < 0.05:
                pause = self.rng.choice([PauseState.UNPAUSED] * 2 + list(PauseState))
                for scheduler in self.both:
                    scheduler.set_pause_state(pause)
            if len(self.flight) < depth:
                self.schedule()
            if len(self.flight) == depth or self.rng.random() < 0.3 and self.flight:
                self.update()
            self.compare_state()


def test_lockstep(request):
    vllm_kit.need_vllm(request.config)
    first, count = (request.config.getoption(name) for name in ("--seed", "--count"))
    num_steps, reasons = 0, collections.Counter()
    for seed in range(first, first + count):
        try:
            pair = Pair(seed)
            pair.run(60)
        except Ended as ended:
            reasons[ended.reason()] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        num_steps += pair.num_steps
        if seed % 50 == 49:
            gc.collect()  # schedulers are large, and in cycles
    assert lockstep_compare.num_lives > 0 or count < 20
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\nlock step: {count:,} seeds from {first}, {num_steps:,} steps, 0 differences; "
              f"{lockstep_compare.num_lives:,} lives of blocks; {reasons.total()} ended early, where "
              "vLLM is lost")
        for reason, number in reasons.most_common():
            print(f"    {number:4} {reason}")
