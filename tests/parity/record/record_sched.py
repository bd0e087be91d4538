"""Records vLLM's Scheduler and AsyncScheduler under an engine that draws what a model would say.

Each seed is one workload: a scheduler of the mix whose turn it is, requests whose prompts branch
off from earlier ones, and steps of which several may be in flight. Between the steps requests are
aborted, caches reset, sessions continued, and the connector reports what it loaded and sent.
"""
import os

os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"  # whole hashes in events
os.environ["PYTHONHASHSEED"] = "0"  # the seed of the first block's parent

import torch
from cache_case import Ended
from extra_mixes import SCHED as EXTRA
from part_mixes import SCHED as PARTS
from release import IS_0_20
from sched_case import SchedCase, skipped_of
from sched_mixes import ALGORITHMS, MIXES, Setup
from sched_world import (DRAFT, EMBED, PROMPT, SAMPLED, Grammar, Params, dotted, draw, name_of,
                         number_of)

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.pooling_params import PoolingParams
from vllm.sampling_params import RepetitionDetectionParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request, RequestStatus

MAX_REQUESTS = 400
MAX_WAITING = 10
MAX_FEATURES = 28  # of one request; above 7 the order of Python's sets of numbers is not theirs
STUCK_AFTER = 5  # steps without any token, and one request is given up


class Prompts:
    """Requests whose prompts branch off from earlier ones, as vLLM's objects and as lines."""

    def __init__(self, case):
        self.case, self.setup, self.rng = case, case.setup, case.setup.rng
        self.prompts = []  # lists of parts: (family, length)
        self.done = []     # requests that may be continued by a new prompt
        self.num_families = 0
        self.clock = 0
        function = get_hash_fn_by_name(ALGORITHMS[self.setup.algorithm])
        kv_cache_utils.init_none_hash(function)
        self.hasher = None
        if self.setup.caching:
            self.hasher = kv_cache_utils.get_request_block_hasher(self.setup.hash_block_size,
                                                                  function)

    # -- tokens

    def tokens_of(self, parts):
        tokens = []
        for kind, which, length in parts:
            if kind == "@":
                tokens += self.done[which][1][:length]
            else:
                tokens += [draw(self.setup.seed, PROMPT, which, i) % 1000 for i in range(length)]
        return tokens

    def parts_text(self, parts):
        return "+".join(f"{'@' if kind == '@' else ''}"
                        f"{self.done[which][0] if kind == '@' else which}:{length}"
                        for kind, which, length in parts)

    def draw_parts(self, most):
        rng, parts = self.rng, []
        choice = rng.random()
        if self.prompts and choice < 0.6:
            parts = list(rng.choice(self.prompts[-8:]))
            parts = parts[:rng.randint(1, len(parts))]
        elif self.done and choice < 0.75:
            which = rng.randrange(max(0, len(self.done) - 6), len(self.done))
            parts = [("@", which, rng.randint(1, len(self.done[which][1])))]
        used, kept = 0, []
        for kind, which, length in parts:  # no longer than fits
            length = min(length, most - used)
            if length > 0:
                kept.append((kind, which, length))
                used += length
        if used < most and (not kept or rng.random() < 0.7):
            longest = most - used
            length = rng.randint(1, longest if rng.random() < 0.5 else min(longest, 12))
            kept.append(("", self.num_families, length))
            self.num_families += 1
        return kept

    # -- what else a request has

    def draw_features(self, length):
        """Images at rising positions; (name, offset, length, seed of its mask or 0)."""
        rng, setup, made, at = self.rng, self.setup, [], 0
        if setup.encoder_decoder:
            return [(rng.randrange(6), 0, rng.randint(1, setup.image_size), 0)]
        while len(made) < setup.max_images:
            name = rng.randrange(2 * setup.max_images)
            size = 1 + draw(setup.seed, EMBED, 0, name) % setup.image_size
            if setup.odd_images:  # one name for images of different sizes
                size = rng.randint(1, setup.image_size)
            if at + size > length or (made and rng.random() < 1 / setup.max_images):
                break
            offset = rng.randint(at, min(length - size, at + length // setup.max_images))
            has_mask = draw(setup.seed, EMBED, 1, name) % 3 == 0
            made.append((name, offset, size, name + 1 if has_mask else 0))
            at = offset + size
        return made

    def mask(self, seed, length):
        """Which placeholders get an embedding; at least one."""
        flags = [draw(self.setup.seed, EMBED, 2 + seed, i) % 2 == 1 for i in range(length)]
        flags[0] = True
        return flags

    def feature(self, name, offset, length, seed):
        mask = torch.tensor(self.mask(seed, length)) if seed else None
        return MultiModalFeatureSpec(None, "image", f"image{name}",
                                     PlaceholderRange(offset, length, mask))

    def draw_params(self, room):
        """With min_tokens beyond the longest request, vLLM's would grow past it."""
        rng, setup = self.rng, self.setup
        eos = rng.randrange(2 * setup.alphabet) if rng.random() < 0.4 else None
        stops = rng.sample(range(2 * setup.alphabet), 2) if rng.random() < 0.25 else []
        repetition = None
        if rng.random() < 0.2:
            most = rng.randint(1, 4)
            repetition = RepetitionDetectionParams(most, rng.randint(0, most), rng.randint(2, 4))
        max_tokens = rng.randint(1, max(1, setup.max_output))
        min_tokens = rng.randint(0, min(max_tokens, room)) if rng.random() < 0.2 else 0
        params = Params(max_tokens, min_tokens, eos, stops, repetition, rng.random() < 0.03)
        if not IS_0_20 and rng.random() < setup.reports:
            params.extra_args = {"kv_cache_report_mode": "full"}
        return params

    def params_text(self, p):
        text = f" o{p.max_tokens}"
        text += f" i{p.min_tokens}" if p.min_tokens else ""
        text += f" e{p.eos_token_id}" if p.eos_token_id is not None else ""
        text += f" s{dotted(p.stop_token_ids)}" if p.stop_token_ids else ""
        if p.repetition_detection is not None:
            r = p.repetition_detection
            text += f" R{r.max_pattern_size}.{r.min_pattern_size}.{r.min_count}"
        text += " F1" if p.extra_args else ""
        return text + (" K1" if p.skip_reading_prefix_cache else "")

    def features_text(self, features):
        return " M" + ",".join(dotted(f) for f in features) if features else ""

    def tick(self):
        """Arrival times, with ties."""
        self.clock += self.rng.choice([0, 0, 1, 3])
        return self.clock

    # -- whole requests

    def add_new(self):
        rng, setup = self.rng, self.setup
        number = self.case.num_requests
        parts = self.draw_parts(setup.max_prompt)
        tokens = self.tokens_of(parts)
        features = self.draw_features(len(tokens)) if rng.random() < setup.images else []
        is_pooling = rng.random() < setup.pooling
        params = None if is_pooling else self.draw_params(setup.max_model_len - len(tokens))
        session = not is_pooling and rng.random() < setup.sessions
        has_grammar = not is_pooling and rng.random() < setup.grammars
        lora = rng.randint(0, 4) if setup.loras else 0
        salt = rng.randint(0, 2) if setup.salts else 0
        priority = rng.randint(-1, 2) if setup.priority else 0
        client, time = rng.randrange(setup.num_clients), self.tick()
        request = Request(
            name_of(number), tokens, params, PoolingParams() if is_pooling else None,
            client_index=client, arrival_time=time / 4,
            mm_features=[self.feature(*f) for f in features],
            lora_request=LoRARequest(f"lora{lora}", lora, "path") if lora else None,
            cache_salt=f"salt{salt}" if salt else None, priority=priority,
            block_hasher=self.hasher, resumable=session)
        if has_grammar:
            request.structured_output_request = Grammar(self.case.scheduler
                                                        .structured_output_manager, request)
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        line = f"a{number} {self.parts_text(parts)} T{time}"
        line += " Q1" if is_pooling else self.params_text(params)
        line += "".join(f" {letter}{value}" for letter, value in (
            ("P", priority), ("C", client), ("L", lora), ("S", salt), ("G", int(has_grammar)),
            ("Z", int(session))) if value)
        self.case.add(request, line + self.features_text(features))
        self.prompts.append(parts)
        if not session:
            self.done.append((number, request._all_token_ids))
        return request

    def continue_session(self, session, most):
        """The next input of a session, or its end."""
        rng, setup = self.rng, self.setup
        number = number_of(session.request_id)
        if most < 1 or rng.random() < 0.25:
            ending = Request(session.request_id, [0], Params(1), None, arrival_time=0.0)
            self.case.operation(f"y{number} -",
                                lambda: self.case.scheduler.add_request(ending) or "")
            return None
        parts = self.draw_parts(rng.randint(1, most))
        tokens = self.tokens_of(parts)
        features = []
        known = len(session.mm_features) + sum(len(u.mm_features) for u in session.streaming_queue)
        if rng.random() < setup.images and known + setup.max_images <= MAX_FEATURES:
            features = self.draw_features(len(tokens))
        params = self.draw_params(min(session.max_tokens, most - len(tokens)))
        # A changed time would leave vLLM's heap of waiting requests out of order.
        time = round(session.arrival_time * 4) if setup.priority else self.tick()
        update = Request(session.request_id, tokens, params, None, arrival_time=time / 4,
                         mm_features=[self.feature(*f) for f in features], resumable=True)
        line = f"y{number} {self.parts_text(parts)} T{time}{self.params_text(params)}"
        line += self.features_text(features)
        self.case.operation(line, lambda: self.case.scheduler.add_request(update) or "")
        return len(tokens)


class Engine:
    """Schedules steps, computes them, and does to the scheduler what clients do."""

    def __init__(self, case, num_steps):
        self.case, self.setup, self.rng = case, case.setup, case.setup.rng
        self.scheduler = case.scheduler
        self.goal = num_steps
        self.prompts = Prompts(case)
        self.flight = []    # (number of the step, output, which requests sample)
        self.sessions = {}  # request id: (request, tokens of inputs that are queued)
        self.ended_sessions = set()
        self.idle_steps = 0
        self.is_paused = False

    # -- what comes from outside

    def num_waiting(self):
        return len(self.scheduler.waiting) + len(skipped_of(self.scheduler))

    def arrive(self):
        while (self.case.num_requests < MAX_REQUESTS and self.num_waiting() < MAX_WAITING
               and self.rng.random() < self.setup.arrivals):
            request = self.prompts.add_new()
            if request.resumable:
                self.sessions[request.request_id] = [request, 0]

    def continue_sessions(self):
        for request_id, entry in list(self.sessions.items()):
            if request_id not in self.scheduler.requests:
                del self.sessions[request_id]
            elif self.rng.random() < 0.15 and not entry[0].is_finished():
                request, queued = entry
                waits = request.status == RequestStatus.WAITING_FOR_STREAMING_REQ
                queued = 0 if waits else queued
                pending = 1 + len(request.streaming_queue)
                outputs = pending * request.max_tokens
                if not IS_0_20:  # where an input brings its own limit
                    outputs = request.max_tokens + sum(u.max_tokens
                                                       for u in request.streaming_queue)
                most = self.setup.max_model_len - 2 - request.num_tokens - queued - outputs
                length = self.prompts.continue_session(request, most)
                if length is None:
                    del self.sessions[request_id]
                else:
                    entry[1] = queued + length

    def abort(self):
        rng, known = self.rng, list(self.scheduler.requests)
        status = rng.choice([RequestStatus.FINISHED_ABORTED] * 3
                            + [RequestStatus.FINISHED_STOPPED, RequestStatus.FINISHED_ERROR])
        if rng.random() < 0.05:
            self.case.finish(None, status)
        elif known:
            count = 1 if rng.random() < 0.6 else rng.randint(2, 4)
            chosen = rng.sample(known, min(count, len(known)))
            if rng.random() < 0.1:
                chosen.append(name_of(rng.randrange(self.case.num_requests)))
            self.case.finish(list(dict.fromkeys(chosen)), status)

    def holds_blocks_elsewhere(self):
        """Whether requests that do not run have blocks: then a forced reset would fail."""
        running = {r.request_id for r in self.scheduler.running}
        return any(blocks and request_id not in running for manager in self.case.managers
                   for request_id, blocks in manager.req_to_blocks.items())

    def reset(self):
        rng = self.rng
        forced = rng.random() < 0.5 and not self.holds_blocks_elsewhere()
        if self.setup.is_async and len(self.flight) > 1 and rng.random() < 0.8:
            forced = False  # more than one token in flight would have to be dropped
        if self.setup.images and rng.random() < 0.15 and not self.flight:
            self.case.reset_encoder()
        self.case.reset(forced, rng.random() < 0.3)

    def happen(self):
        rng, setup = self.rng, self.setup
        if rng.random() < 0.8:
            self.arrive()
        if setup.sessions:
            self.continue_sessions()
        if rng.random() < setup.aborts:
            self.abort()
        if rng.random() < setup.resets:
            self.reset()
        if self.is_paused and rng.random() < 0.4:
            self.case.pause(0)
            self.is_paused = False
        elif rng.random() < setup.pauses:
            self.case.pause(rng.randint(1, 2))
            self.is_paused = True

    # -- steps

    def schedule(self):
        output, samples = self.case.schedule()
        self.flight.append((self.case.num_steps, output, samples))
        self.idle_steps = 0 if output.total_num_scheduled_tokens else self.idle_steps + 1
        if self.idle_steps >= STUCK_AFTER and not self.is_paused:
            self.give_up()

    def give_up(self):
        """What cannot be scheduled would wait for ever, and so would all behind it."""
        self.idle_steps = 0
        waiting = [r.request_id for r in (*skipped_of(self.scheduler), *self.scheduler.waiting)]
        if waiting:
            self.case.finish([self.rng.choice(waiting[:2])], RequestStatus.FINISHED_ABORTED)

    def sample(self, step, output, samples):
        """Tokens, pooled outputs and invalid drafts of each request of the step."""
        rng, setup = self.rng, self.setup
        sampled, pooled, invalid = [], [], []
        for i, request_id in enumerate(output.num_scheduled_tokens):
            request = self.scheduler.requests.get(request_id)
            drafts = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
            is_pooling = request is not None and request.pooling_params is not None
            accepted = 0
            while accepted < drafts and rng.random() < setup.acceptance:
                accepted += 1
            has_tokens = samples[i] and not is_pooling and "encoder_only" not in setup.extras
            count = accepted + 1 if has_tokens else 0
            sampled.append([draw(setup.seed, SAMPLED, step, i * 16 + k) % setup.alphabet
                            for k in range(count)])
            pooled.append(is_pooling and samples[i])
            wrong = drafts - accepted if setup.grammars and rng.random() < 0.3 else 0
            invalid.append(rng.randint(0, wrong) if count else 0)
        return sampled, pooled, invalid

    def draw_invalid(self, loading):
        """Blocks whose loads failed: of requests that load, or that loaded at once."""
        holders = loading + list(self.scheduler.running)
        if not holders or self.rng.random() >= self.setup.failures:
            return []
        (blocks,) = self.case.manager.get_block_ids(self.rng.choice(holders).request_id)
        blocks = [b for b in blocks if b != 0]
        return sorted(self.rng.sample(blocks, min(len(blocks), self.rng.randint(1, 2))))

    def transfers(self):
        """What the connector reports: X sent, V received, B blocks whose loads failed."""
        rng, s = self.rng, self.scheduler
        if self.case.connector is None:
            return {"X": [], "V": [], "B": [], "E": []}
        loading = self.case.loading()
        sending = self.case.connector.sending
        received = [number_of(r.request_id) for r in loading
                    if r.request_id not in s.finished_recving_kv_req_ids and rng.random() < 0.35]
        for r in s.requests.values():  # ended while loading
            if r.is_finished() and number_of(r.request_id) not in sending and rng.random() < 0.5:
                received.append(number_of(r.request_id))
        sent = [n for n in sorted(sending) if rng.random() < 0.3]
        invalid = self.draw_invalid(loading)
        lost = []
        if not IS_0_20 and loading and rng.random() < self.setup.losses:
            lost = [number_of(rng.choice(loading).request_id)]
        return {"X": sent, "V": received, "B": invalid, "E": lost}

    def update(self):
        step, output, samples = self.flight.pop(0)
        sampled, pooled, invalid = self.sample(step, output, samples)
        self.case.update(output, sampled, pooled, invalid, self.transfers())
        if self.setup.num_spec and not self.setup.is_async and output.num_scheduled_tokens:
            self.draft(step, output)

    def draft(self, step, output):
        rng, setup = self.rng, self.setup
        drafts = []
        for i in range(len(output.num_scheduled_tokens)):
            count = rng.choice([0, setup.num_spec, setup.num_spec,
                                rng.randint(0, setup.num_spec)])
            drafts.append([draw(setup.seed, DRAFT, step, i * 16 + k) % setup.alphabet
                           for k in range(count)] if rng.random() < 0.95 else None)
        self.case.update_drafts(output, drafts)

    def run(self):
        while self.case.num_steps < self.goal:
            self.happen()
            if len(self.flight) < self.setup.depth and (
                    len(self.flight) < self.setup.depth - 1 or self.rng.random() < 0.9):
                self.schedule()
            if len(self.flight) == self.setup.depth or (self.flight and self.rng.random() < 0.3):
                self.update()
        while self.flight:
            self.update()
        self.case.look_at_all()


def record_sched(writer, rng, count, _edges):
    """One workload; the seed says which mix."""
    seed = int(writer.lines[-1].split()[1])
    mixes = {"parts": PARTS, "extra": EXTRA}.get(writer.mixes, MIXES)
    name = list(mixes)[seed % len(mixes)]
    setup = Setup(name, seed, rng, mixes[name])
    case = SchedCase(writer, setup)
    try:
        Engine(case, rng.randint(count * 3 // 4, count * 5 // 4)).run()
    except Ended:
        pass
    writer.end_case()
