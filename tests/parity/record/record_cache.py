"""Records vLLM's KVCacheManager under a small engine, and some calls that no engine makes.

Each seed is one workload: a model of the mix whose turn it is, requests whose prompts branch off
from earlier ones, steps with a budget of tokens, drafts that are accepted in part, preemption when
there is no room, connectors that load prefixes at once or later, resets and evictions.
"""
import os

os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0"  # whole hashes in events

from cache_case import CacheCase, Ended
from cache_mixes import MIXES, REFUSED, Model
from release import IS_0_20

from vllm.lora.request import LoRARequest
from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core import kv_cache_utils
from vllm.v1.request import Request

PARAMS = SamplingParams(max_tokens=64)
ALGORITHMS = {16: "xxhash_cbor", 32: "sha256_cbor"}
MAX_SEATS = 120


class Prompts:
    """Prompts that branch off from earlier ones, with what else goes into their hashes."""

    def __init__(self, rng, model):
        self.rng, self.model = rng, model
        self.made = []
        function = get_hash_fn_by_name(ALGORITHMS[model.digest_bytes])
        kv_cache_utils.init_none_hash(function)
        self.hasher = kv_cache_utils.get_request_block_hasher(model.hash_block_size, function)

    def draw_features(self, length):
        offset = self.rng.randrange(length)
        return [(f"image{self.rng.randint(0, 2)}", offset, self.rng.randint(1, length))]

    def draw(self):
        """Tokens, features, salt, adapter: of an earlier prompt up to some point, then new."""
        rng, most = self.rng, self.model.max_model_len - 1
        length = rng.randint(1, most) if rng.random() < 0.7 else rng.randint(max(1, most // 2), most)
        tokens, features, salt, lora = [], [], None, None
        if self.made and rng.random() < 0.8:
            tokens, features, salt, lora = rng.choice(self.made[-8:])
            if rng.random() < 0.2:
                return tokens, features, salt, lora
            tokens = tokens[:rng.randint(rng.randint(0, len(tokens)), len(tokens))]
            features = [f for f in features if f[1] < len(tokens)]
        elif rng.random() < 0.25:
            salt = rng.choice([None, "salt", "pepper"])
            lora = rng.choice([None, "adapter", "other"])
        if not features and rng.random() < 0.15:
            features = self.draw_features(length)
        length = max(length, min(most, len(tokens) + 1))
        tokens = (tokens + [rng.randint(0, 9) for _ in range(length)])[:length]
        prompt = (tokens, [f for f in features if f[1] < len(tokens)], salt, lora)
        self.made.append(prompt)
        return prompt

    def request(self, index):
        tokens, features, salt, lora = self.draw()
        features = [MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset, length))
                    for name, offset, length in features]
        hasher = self.hasher if self.model.caching or self.rng.random() < 0.2 else None
        request = Request(f"r{index}", list(tokens), PARAMS, None, mm_features=features,
                          lora_request=LoRARequest(lora, 1, "path") if lora else None,
                          cache_salt=salt, block_hasher=hasher)
        request.skip_reading_prefix_cache = self.rng.random() < 0.04
        return request


class Engine:
    """Waiting, loading and running requests, and the habits of one workload."""

    def __init__(self, case, rng, num_calls):
        self.case, self.rng, self.model = case, rng, case.model
        self.goal = num_calls
        self.prompts = Prompts(rng, self.model)
        self.waiting, self.loading, self.running = [], [], []
        modes = [g.options["m"] for g in self.model.groups if g.kind == "S"]
        states = [g.options["n"] for g in self.model.groups if g.kind == "S"]
        self.is_aligned = 2 in modes and rng.random() < 0.85
        self.align_size = max([g.block_size for g in self.model.groups if g.kind == "S"] or [1])
        self.num_drafts = max(states, default=0) or rng.choice([0, 0, 0, 1, 2, 3])
        self.lookahead = self.num_drafts if self.model.eagle or rng.random() < 0.3 else 0
        self.acceptance = rng.choice([0.3, 0.7, 1.0])
        self.external = 0.0 if 2 in modes and rng.random() < 0.7 else rng.choice([0, 0.2, 0.5])
        self.touches = rng.random() < 0.3
        self.asks_to_fit = rng.random() < 0.4
        self.max_running = rng.choice([1, 3, 5, 8])
        self.max_output = rng.choice([2, 8, self.model.max_model_len // 2,
                                      self.model.max_model_len])
        self.arrivals = rng.choice([0.2, 0.4, 0.6])
        self.threshold = rng.choice([0, 0, self.model.batched // 2])
        self.steps_ahead = 0 if IS_0_20 else rng.choice([0, 0, 0.3])  # calls before outputs came

    # -- requests come and go

    def arrive(self):
        if self.case.num_seats < MAX_SEATS:
            seat = self.case.add(self.prompts.request(self.case.num_seats))
            seat.tokens_left = self.rng.randint(1, self.max_output)
            self.waiting.append(seat)

    def leave(self, seat):
        for queue in (self.waiting, self.loading, self.running):
            if seat in queue:
                queue.remove(seat)
        self.case.free(seat)

    def preempt(self, seat):
        self.running.remove(seat)
        self.case.free(seat, preempt=True)
        seat.request.num_computed_tokens = 0
        seat.num_drafts = 0
        self.waiting.insert(0, seat)

    # -- one step

    def aligned(self, seat, num_new, computed):
        """Chunks of a prompt end where blocks do, when Mamba states are kept there."""
        prompt = max(seat.request.num_prompt_tokens, seat.request.num_tokens - 1)
        if self.is_aligned and computed < prompt and num_new >= self.align_size:
            return num_new // self.align_size * self.align_size
        return num_new

    def new_tokens(self, seat, computed, budget):
        goal = seat.request.num_tokens + seat.num_drafts - computed
        if self.threshold and goal > self.threshold:
            goal = self.threshold
        goal = min(goal, budget, self.model.max_model_len - computed)
        return self.aligned(seat, goal, computed)

    def schedule_running(self, budget):
        scheduled = {}
        for seat in list(self.running):
            if seat not in self.running or budget <= 0:
                continue
            num_new = self.new_tokens(seat, seat.request.num_computed_tokens, budget)
            if num_new <= 0:
                continue
            encoder = self.draw_encoder() if self.rng.random() < 0.1 else 0
            in_flight = 0
            if self.steps_ahead and self.rng.random() < self.steps_ahead:
                in_flight = self.rng.randint(0, 2 * self.model.batched)
            while not self.case.allocate(seat, num_new, lookahead=self.lookahead,
                                         encoder=encoder, in_flight=in_flight):
                victim = self.running[-1] if self.rng.random() < 0.9 else self.rng.choice(
                    self.running)
                budget += scheduled.pop(victim, 0)
                self.preempt(victim)
                if victim is seat:
                    break
            else:
                scheduled[seat] = num_new
                budget -= num_new
        return scheduled, budget

    def draw_encoder(self):
        most = self.model.encoder_tokens
        return self.rng.randint(0, most) if most else 0

    def draw_external(self, seat, local):
        """Tokens that a connector has, and whether they come later."""
        rng, left = self.rng, seat.request.num_tokens - local
        if rng.random() >= self.external or left < 2:
            return 0, False
        later = rng.random() < 0.5
        most = min(left - (not later), self.model.max_model_len - local)
        size = self.model.hash_block_size
        external = rng.choice([most, most // size * size, rng.randint(1, most)])
        return external, later and external > 0

    def admit(self, seat, num_new, use_hit, external, encoder, later):
        if self.asks_to_fit and not self.case.fits(seat, use_hit, external, encoder):
            if self.rng.random() < 0.9:
                return False
        lookahead = self.lookahead if not use_hit or self.rng.random() < 0.1 else 0
        return self.case.allocate(seat, num_new, use_hit, lookahead, external, encoder, later)

    def admit_0_32(self, seat, num_new, use_hit, external, encoder, later):
        """The same call asks whether the whole sequence fits; a load that comes later leaves blocks
        to others, and writes some groups itself."""
        rng, groups = self.rng, range(len(self.model.groups))
        lookahead = 0 if later else self.lookahead
        reserved = rng.randint(0, 4) if later and rng.random() < 0.5 else 0
        unzeroed = [g for g in groups if rng.random() < 0.7] if later and external else []
        return self.case.allocate(seat, num_new, use_hit, lookahead, external, encoder, later,
                                  whole=self.asks_to_fit, is_waiting=True,
                                  others=bool(self.running), reserved=reserved,
                                  unzeroed=unzeroed)

    def schedule_new(self, seat, budget):
        """Tokens scheduled, 0 when they come later, or None when it must wait."""
        request, rng = seat.request, self.rng
        resumes = request.num_computed_tokens > 0
        local = 0 if resumes else self.case.look_up(seat, admits=True)
        external, later = (0, False) if resumes else self.draw_external(seat, local)
        computed = request.num_computed_tokens + local + external
        num_new = 0 if later else self.new_tokens(seat, computed, budget)
        if not later and num_new <= 0:
            return None
        if not IS_0_20 and local and not external and rng.random() < 0.02:
            num_new, later = 0, True  # takes the hit, and computes later
        encoder = 0 if seat.has_blocks else self.draw_encoder()
        admit = self.admit if IS_0_20 else self.admit_0_32
        if not admit(seat, num_new, not resumes, external, encoder, later):
            return None
        request.num_computed_tokens = computed
        return num_new

    def schedule_waiting(self, budget):
        scheduled = {}
        while self.waiting and budget > 0 and len(self.running) < self.max_running:
            seat = self.waiting[0]
            num_new = self.schedule_new(seat, budget)
            if num_new is None:
                seat.tries += 1
                if seat.tries > 3 and not self.running:
                    self.leave(seat)
                break
            self.waiting.pop(0)
            if num_new == 0:
                self.loading.append(seat)
                continue
            self.running.append(seat)
            scheduled[seat] = num_new
            budget -= num_new
        return scheduled

    def finish_loads(self):
        """Loads that are done; some brought less than they promised."""
        for seat in list(self.loading):
            if self.rng.random() < 0.5:
                continue
            self.loading.remove(seat)
            request = seat.request
            if self.rng.random() < 0.2:
                request.num_computed_tokens = self.rng.randint(0, request.num_computed_tokens)
            if request.num_computed_tokens == 0:
                self.case.free(seat)
            else:
                self.case.cache_blocks(seat, request.num_computed_tokens)
            if request.num_computed_tokens == request.num_tokens:
                request.num_computed_tokens -= 1
            self.waiting.insert(0, seat)

    def sample(self, seat, num_new):
        """What the model would say: the same after the same tokens, so that blocks repeat."""
        request = seat.request
        request.num_computed_tokens += num_new
        num_drafts = request.num_computed_tokens - request.num_tokens
        if num_drafts < 0:
            return
        accepted = sum(self.rng.random() < self.acceptance for _ in range(num_drafts))
        request.num_computed_tokens -= num_drafts - accepted
        count = min(accepted + 1, self.model.max_model_len - request.num_tokens)
        tokens = list(request.all_token_ids[-1:])
        for i in range(count):
            tokens.append((3 * tokens[-1] + request.num_tokens + i) % 7)
        if count > 0:
            request.append_output_token_ids(tokens[1:])
        seat.tokens_left -= count
        seat.num_drafts = self.rng.randint(0, self.num_drafts)
        if seat.tokens_left <= 0 or request.num_tokens >= self.model.max_model_len:
            self.leave(seat)

    def step(self):
        rng = self.rng
        if rng.random() < 0.97:
            self.case.start_step()
        while rng.random() < self.arrivals or not (self.waiting or self.running or self.loading):
            self.arrive()
            if self.case.num_seats >= MAX_SEATS:
                break
        self.finish_loads()
        scheduled, budget = self.schedule_running(self.model.batched)
        scheduled.update(self.schedule_waiting(budget))
        self.after_schedule()
        for seat, num_new in scheduled.items():
            if seat in self.running:
                self.sample(seat, num_new)

    # -- calls between steps

    def with_blocks(self):
        return [s for s in self.running + self.loading + self.waiting if s.has_blocks]

    def after_schedule(self):
        rng, holders = self.rng, self.with_blocks()
        if rng.random() < 0.4 or self.case.num_new_block_ids() > self.model.num_blocks:
            self.case.take_new_block_ids()
        if holders and rng.random() < 0.3:
            self.case.count_common(rng.choice(holders))
        if rng.random() < 0.1:
            self.case.take_stats()
        if rng.random() < 0.12:
            self.evict_some()
        if rng.random() < 0.06:
            self.case.reset()
        if self.case.touched and rng.random() < 0.3:
            self.case.free_touched()
        elif self.touches and rng.random() < 0.15:
            self.touch_some()
        if holders and rng.random() < 0.05:
            self.leave(rng.choice(holders))
        if rng.random() < 0.02:
            self.leave_all()
        if rng.random() < 0.15:
            self.odd_call()

    def evict_some(self):
        chosen = set(self.rng.sample(range(self.model.num_blocks),
                                     min(self.model.num_blocks, self.rng.randint(0, 6))))
        self.case.evict(chosen)

    def touch_some(self):
        free = [b for b in range(1, self.model.num_blocks) if b not in self.case.sinks]
        self.case.touch(self.rng.sample(free, min(len(free), self.rng.randint(1, 3))))

    def leave_all(self):
        """Everything is aborted, and the cache is reset: the one time that it can be."""
        for seat in self.with_blocks():
            self.leave(seat)
        self.case.reset()

    def odd_call(self):
        rng = self.rng
        seats = self.running + self.waiting + self.loading
        if not seats:
            return
        seat = rng.choice(seats)
        computed = seat.request.num_computed_tokens
        choice = rng.random()
        if choice < 0.3 and seat.has_blocks:
            most = computed if rng.random() < 0.7 else self.model.max_model_len
            self.case.remove_skipped(seat, rng.randint(0, most))
        elif choice < 0.5:
            self.case.look_up(seat)  # a request that has blocks, or that waits: just a question
        elif choice < 0.7 and seat.has_blocks:
            most = computed if rng.random() < 0.7 else seat.request.num_tokens
            self.case.cache_blocks(seat, rng.randint(0, most))
        elif choice < 0.85:
            if IS_0_20:
                self.case.fits(seat, False, 0, 0)
            elif seat in self.running:
                self.load_more(seat)
        elif choice < 0.88 and seat in self.waiting and not seat.has_blocks:
            self.case.free(seat)  # it has nothing
        elif choice < 0.94 and seat in self.running:
            self.load_more(seat)
        elif choice > 0.96:
            self.wrong_call(seat)

    def load_more(self, seat):
        """External tokens for a request that has blocks already."""
        request = seat.request
        left = request.num_tokens - 1 - request.num_computed_tokens
        if left > 0:
            external = self.rng.randint(1, left)
            misuse = not self.case.is_settled(seat)
            if self.case.allocate(seat, self.rng.randint(0, 1), external=external, misuse=misuse):
                request.num_computed_tokens += external

    def wrong_call(self, seat):
        """vLLM raises."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.1:
            self.case.allocate(seat, 0)
        elif choice < 0.3 and self.model.caching:
            self.case.evict({rng.randrange(self.model.num_blocks), self.model.num_blocks + 3})
        elif choice < 0.6 and seat.has_blocks and self.model.groups:
            self.case.cache_blocks(seat, seat.request.num_tokens + 9 * self.model.batched)
        elif seat.has_blocks and self.case.look_up(seat) > 0:
            self.case.allocate(seat, 1, use_hit=True, misuse=True)

    def run(self):
        while self.case.calls < self.goal:
            self.step()
        for seat in self.with_blocks():
            self.case.free(seat)
        if self.case.touched:
            self.case.free_touched()
        self.case.take_new_block_ids()
        self.case.take_stats()
        self.case.look_at_all()
        self.case.reset()


def is_refused(model):
    """Whether vLLM raises when it makes the cache, or when a request uses it."""
    try:
        manager = model.make()
        function = get_hash_fn_by_name(ALGORITHMS[model.digest_bytes])
        kv_cache_utils.init_none_hash(function)
        hasher = kv_cache_utils.get_request_block_hasher(model.hash_block_size, function)
        tokens = [0] * (model.max_model_len - 1)
        request = Request("r", tokens, PARAMS, None, block_hasher=hasher)
        manager.get_computed_blocks(request)
        manager.allocate_slots(request, len(tokens))
    except (AssertionError, ValueError, NotImplementedError, TypeError):
        return True
    return False


def record_refused(writer, rng):
    """A cache that cannot be: Quire must not make it either."""
    model = Model("refused", rng, rng.choice(REFUSED))
    if is_refused(model):
        writer.line(model.line().replace("cache ", "refused ", 1), 1)


def record_cache(writer, rng, count, _edges):
    """One workload; the seed says which mix."""
    seed = int(writer.lines[-1].split()[1])
    if rng.random() < 0.2:
        record_refused(writer, rng)
    model = Model(list(MIXES)[seed % len(MIXES)], rng)
    case = CacheCase(writer, model)
    try:
        Engine(case, rng, rng.randint(count // 2, count * 3 // 2)).run()
    except Ended:
        pass
    writer.end_case()
