"""What surrounds vLLM's Scheduler in a recording: requests, connector, grammar, sets with an order.

Connector and grammar answer from the random numbers of the workload. A call that the scheduler
makes is noted with its arguments, and both sides compare these notes; an answer that is not the
usual one is written into the operation's line as CALL:ANSWER, CALL being the number of the call
within the operation. So the replayer's callbacks answer the same without knowing why.

    m3(16)     matched tokens past 16 of request 3        usual: 0    also: 8, 8a (loaded later), n
    u3(..;8)   its blocks, and 8 tokens to load           no answer
    b()        meta data                                  no answer
    b(3.1.9.8) the same; block 9 of group 1 holds the
               state after 8 tokens of request 3          no answer
    p3(..;..)  request 3 ends, and leaves these states    usual: 0    1: they are still being sent
    f3(..)     request 3 ends with these blocks           usual: 0    1: they are still being sent
    h()        will blocks become free                    usual: 0    1: wait for them
    c()        the connector's own cache is reset         usual: 0    1: it could not be
    e3(16)     are the encoder outputs past 16 there      usual: 1    0: in flight
    i(image2)  does another engine have this one          usual: 0    1: it is loaded
    A3(0)      input 0 of request 3 has a place           no answer
    F3(0)      input 0 of request 3 needs it no longer    no answer
    B()        meta data of the encoder connector         no answer
    g3()       request 3 ends, asked of that connector    usual: 0    1: they are still being sent
    k()        whose outputs never come                   usual: none else the numbers, as 3.5
    r3         is its grammar ready                       usual: 1
    d3         does its grammar advance                   usual: 1
    t3(1.2)    tokens for the grammar                     usual: 1    0: not accepted
    v3(1.2)    drafts for the grammar                     usual: all  else how many are allowed
"""
from recorder import MASK64, SplitMix
from release import IS_0_20

from vllm.distributed.kv_transfer.kv_connector.v1 import SupportsHMA
from vllm.v1.request import RequestStatus

PROMPT, SAMPLED, DRAFT, EMBED = range(4)


def draw(seed, kind, a, b):
    """A number that both languages know."""
    return SplitMix((seed ^ (kind << 60) ^ (a << 28) ^ b) & MASK64).next()


def name_of(number):
    """The id of a request: numbers, but in another order as text."""
    return f"{chr(97 + number * 7 % 26)}{number}"


def number_of(request_id):
    return int(request_id[1:])


def dotted(numbers):
    return ".".join(map(str, numbers))


class OrderedSet(dict):
    """Takes the place of `set` in vLLM's scheduler: the order of a set of strings changes from one
    run of Python to the next, and with it the order in which requests end."""

    def __init__(self, given=()):
        super().__init__(dict.fromkeys(given))

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

    def __or__(self, other):
        return OrderedSet([*self, *other])

    def __ior__(self, other):
        self.update(other)
        return self


class Params:
    """Sampling params, as far as the scheduler looks at them."""
    extra_args = None
    logprobs = num_logprobs = None
    structured_outputs = None

    def __init__(self, max_tokens, min_tokens=0, eos=None, stops=(), repetition=None, skip=False):
        self.max_tokens, self.min_tokens = max_tokens, min_tokens
        self.eos_token_id, self.stop_token_ids = eos, list(stops)
        self.repetition_detection = repetition
        self.skip_reading_prefix_cache = skip


class Calls:
    """The calls of one operation, and the answers that are not the usual ones."""

    def __init__(self):
        self.notes, self.answers = [], []

    def note(self, text, answer, usual):
        if answer != usual:
            self.answers.append(f"{len(self.notes)}:{answer}")
        self.notes.append(text)

    def take(self):
        notes, answers = self.notes, self.answers
        self.notes, self.answers = [], []
        return " ".join(notes), ("~" + ",".join(answers) if answers else "")


class Connector(SupportsHMA):
    """A KV connector whose habits are those of the workload."""

    def __init__(self, rng, calls, setup):
        self.rng, self.calls, self.setup = rng, calls, setup
        self.still_loading = set()  # ids of requests that end while they load
        self.sending = set()        # numbers of those that ended and are still being sent

    def get_num_new_matched_tokens(self, request, num_local):
        rng, setup = self.rng, self.setup
        answer, later = 0, False
        left = request.num_tokens - num_local
        choice = rng.random()
        if choice < setup.asks_again:
            answer = None
        elif choice < setup.asks_again + setup.loads:
            later = rng.random() < setup.loads_later
            most = left - (not later)
            size = setup.groups[0].block_size
            if most > 0:
                few = min(most, rng.randint(1, 4))  # as many as a step's drafts
                answer = rng.choice([most, most // size * size, rng.randint(1, most), few])
            later = later and answer > 0
        shown = "n" if answer is None else f"{answer}{'a' if later else ''}"
        self.calls.note(f"m{number_of(request.request_id)}({num_local})", shown, "0")
        return answer, later

    def update_state_after_alloc(self, request, blocks, num_external):
        number = number_of(request.request_id)
        self.calls.note(f"u{number}({spans(blocks.get_block_ids())};{num_external})", "", "")

    def build_connector_meta(self, output):
        states = ""
        if "takes_states" in self.setup.extras:
            offers = output.kv_connector_block_state.boundary_state_offloads
            states = ",".join(f"{number_of(r)}.{g}.{b}.{n}" for r in sorted(offers, key=number_of)
                              for g, b, n in offers[r])
        self.calls.note(f"b({states})", "", "")

    def send(self, request):
        """A request ends: its number, and whether its blocks are still being sent."""
        number = number_of(request.request_id)
        is_loading = request.request_id in self.still_loading
        delays = not is_loading and self.rng.random() < self.setup.sends
        if delays:
            self.sending.add(number)
        return number, delays

    def register_finished_partial_tail(self, request, block_ids, states):
        number, delays = self.send(request)
        shown = ",".join(dotted(s) for s in states)
        self.calls.note(f"p{number}({spans(block_ids)};{shown})", int(delays), 0)
        return delays

    def request_finished_all_groups(self, request, block_ids):
        number, delays = self.send(request)
        self.calls.note(f"f{number}({spans(block_ids)})", int(delays), 0)
        return delays, None

    def reset_cache(self):
        failed = self.rng.random() < 0.3
        self.calls.note("c()", int(failed), 0)
        return not failed

    def update_connector_output(self, _output):
        pass

    def take_events(self):
        return ()

    # -- 0.32 alone; none of this is a decision of the scheduler

    requires_kv_delivery = False

    @property
    def supports_divergent_local_hybrid_hits(self):
        return self.setup.diverges

    def on_new_request(self, _request):
        pass

    def bind_kv_cache_manager(self, _manager):
        pass

    def get_kv_connector_stats(self):
        return None

    def get_loaded_kv_cache_group_ids(self, _request):
        return tuple(range(len(self.setup.groups)))

    def get_external_cache_hit_sources(self, _request, _num_hits):
        return None

    def has_pending_block_frees(self):
        if "pending_frees" not in self.setup.extras:
            return False
        pending = self.rng.random() < 0.4
        self.calls.note("h()", int(pending), 0)
        return pending

    def has_pending_push_work(self):
        return False


class EncoderConnector:
    """Encoder outputs from another engine: they may be there, in flight, or never come."""

    def __init__(self, case):
        self.case, self.rng, self.calls = case, case.setup.rng, case.calls

    def ensure_cache_available(self, request, computed):
        is_there = self.rng.random() < 0.85
        # vLLM passes a negative number after a failed load with steps in flight; Quire's has no sign.
        computed = max(0, computed)
        self.calls.note(f"e{number_of(request.request_id)}({computed})", int(is_there), 1)
        return is_there

    def has_cache_item(self, identifier):
        has = self.rng.random() < 0.3
        self.calls.note(f"i({identifier})", int(has), 0)
        return has

    def update_state_after_alloc(self, request, index):
        self.calls.note(f"A{number_of(request.request_id)}({index})", "", "")

    def update_state_after_free(self, request, index):
        self.calls.note(f"F{number_of(request.request_id)}({index})", "", "")

    def build_connector_meta(self, _output):
        self.calls.note("B()", "", "")

    def request_finished(self, request):
        number, delays = self.case.connector.send(request)
        self.calls.note(f"g{number}()", int(delays), 0)
        return delays, None

    def take_unavailable_requests(self):
        lost = []
        live = list(self.case.scheduler.requests.values())
        if live and self.rng.random() < 0.06:
            lost = [number_of(r.request_id) for r in
                    self.rng.sample(live, min(len(live), self.rng.randint(1, 2)))]
        self.calls.note("k()", dotted(lost), "")
        return OrderedSet([name_of(n) for n in lost])

    def get_ec_connector_stats(self):
        return None

    def has_pending_push_work(self):
        return False


def spans(groups):
    """Block ids of all groups."""
    return ";".join(",".join(map(str, ids)) or "-" for ids in groups) or "."


class Grammar:
    """The structured-output part of one request: compiled after some questions."""

    def __init__(self, manager, request):
        self.manager, self.request, self.is_ready = manager, request, False
        self.number = number_of(request.request_id)

    @property
    def grammar(self):
        if self.request.status != RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR:
            return self
        if self.is_ready:  # 0.32 looks again: was it compiled, or did it fail?
            return self
        is_ready = self.manager.rng.random() < 0.5
        self.manager.calls.note(f"r{self.number}", int(is_ready), 1)
        self.is_ready = is_ready and not IS_0_20
        return self if is_ready else None

    def accept_tokens(self, _id, tokens):
        accepts = self.manager.rng.random() < 0.97
        self.manager.calls.note(f"t{self.number}({dotted(tokens)})", int(accepts), 1)
        return accepts

    def validate_tokens(self, tokens):
        allowed = len(tokens)
        if tokens and self.manager.rng.random() < 0.4:
            allowed = self.manager.rng.randint(0, len(tokens))
        self.manager.calls.note(f"v{self.number}({dotted(tokens)})", allowed, len(tokens))
        return tokens[:allowed]


class GrammarManager:
    """Stands for vLLM's StructuredOutputManager."""

    def __init__(self, rng, calls):
        self.rng, self.calls = rng, calls

    def should_advance(self, request):
        if not request.use_structured_output:
            return False
        advances = self.rng.random() < 0.85
        self.calls.note(f"d{number_of(request.request_id)}", int(advances), 1)
        return advances

    def accept_tokens(self, request, tokens):
        """0.32: the manager decides by itself whether it is asked."""
        if not request.use_structured_output:
            return True
        return request.structured_output_request.accept_tokens(None, tokens)

    def validate_tokens(self, request, tokens):
        if not request.use_structured_output:
            return tokens
        return request.structured_output_request.validate_tokens(tokens)
