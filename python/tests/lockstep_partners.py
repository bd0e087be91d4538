"""Stand-ins for what vLLM plugs into a scheduler: grammars, connectors, publishers. They note what they
are asked and what they see.
"""
import random

from lockstep_parts import BLOCK_SIZE, is_0_32


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


class Logprobs:
    """Stands for vLLM's LogprobsLists."""

    def slice_request(self, row: int, count: int) -> tuple:
        return "logprobs", row, count


class Stats:
    """Stands for the stats of a connector."""

    def __init__(self, names: list[str]):
        self.names = names

    def is_empty(self) -> bool:
        return not self.names

    def aggregate(self, other: "Stats") -> "Stats":
        return Stats(self.names + other.names)

    def to_dict(self) -> dict:
        return {"names": self.names}


def drawn_stats(rng: random.Random) -> Stats | None:
    return Stats(["workers"]) if rng.random() < 0.2 else None


class Published:
    """Stands for vLLM's publisher of events."""

    def __init__(self):
        self.notes = []

    def publish(self, batch):
        self.notes.append(batch.events)


class Aux:
    """Stands for vLLM's AuxOutputSchedulerConnector."""

    def __init__(self):
        self.notes = []

    def build_connector_meta(self, output, requests):
        return [(name, len(requests[name].block_hashes), requests[name].num_output_tokens)
                for name in output.num_scheduled_tokens]

    def take_output(self, request, output):
        self.notes.append(("take", request.request_id, request.num_tokens, output))
        return f"experts {request.num_tokens}" if request.num_tokens % 5 else None

    def request_finished(self, request):
        self.notes.append(("finished", request.request_id, list(request.block_hashes)))

    def reset(self):
        self.notes.append(("reset",))


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

    def grammar_bitmask(self, requests, names: list[str], drafts: dict) -> tuple:
        self.notes.append(("mask", list(names), {name: drafts.get(name) for name in names},
                           [self.seen(requests[name]) for name in names]))
        return "mask", len(names)

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
            self.num_built = 0  # meta data, one for each step

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
            self.num_built += 1
            self.notes.append(("meta", list(output.num_scheduled_tokens.items())))
            state = getattr(output, "kv_connector_block_state", None)
            if state is not None:
                names = dict.fromkeys([*output.num_scheduled_tokens,
                                       *state.boundary_state_offloads])
                self.notes.append(("state", [(name, state.get_block_ids(name)) for name in names],
                                   state.boundary_state_offloads, state.req_ids))
            return f"meta {output.total_num_scheduled_tokens}"

        def request_finished_all_groups(self, request, block_ids):
            name = request.request_id
            delays = name not in self.loading and self.draw(name).random() < 0.3
            if delays:
                self.sending.add(name)
            self.notes.append(("finished", self.seen(request), block_ids))
            params = {"sent": name} | dict(request.kv_transfer_params or {})
            return delays, params if delays or len(params) > 1 else None

        def reset_cache(self):
            self.notes.append(("reset",))

        def update_connector_output(self, _output):
            self.notes.append(("output",))

        # -- 0.32

        requires_kv_delivery = seed % 3 == 0
        supports_divergent_local_hybrid_hits = seed % 4 == 1

        def register_finished_partial_tail(self, request, block_ids, states):
            self.notes.append(("tail", self.seen(request), block_ids, states))
            return self.keeps_tail(request.request_id)

        def keeps_tail(self, name):
            """As a load that is under way: then nothing is sent."""
            keeps = name not in self.loading and seed % 2 == 0
            if keeps:
                self.sending.add(name)
            return keeps

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
            self.notes.append(("pending",))
            return seed % 5 == 0 and self.num_built % 4 == 0

        def has_pending_push_work(self):
            return False

        def take_events(self):
            return ()

        def get_kv_connector_stats(self):
            return Stats(["scheduler"] * (self.num_built % 3))

    return Connector()


def make_encoder_connector(seed: int):
    """An encoder connector that has every third image or so, and others later."""

    class Connector:
        def __init__(self):
            self.notes, self.asked = [], {}

        def has_cache_item(self, identifier):
            self.notes.append(("has", identifier))
            return random.Random(f"{seed} {identifier}").random() < 0.3

        def update_state_after_alloc(self, request, index):
            self.notes.append(("alloc", request.request_id, index, request.num_computed_tokens))

        def request_finished(self, request):
            self.notes.append(("finished", request.request_id, int(request.status)))
            return False, {"images": request.request_id} if seed % 2 else None

        def ensure_cache_available(self, request, num_computed):
            """Images are on their way for a few questions."""
            name = request.request_id
            self.asked[name] = self.asked.get(name, 0) + 1
            self.notes.append(("ensure", name, num_computed, request.num_output_placeholders))
            return random.Random(f"{seed} {name} {self.asked[name] // 3}").random() < 0.8

        def update_state_after_free(self, request, index):
            self.notes.append(("free", request.request_id, index))

        def take_unavailable_requests(self):
            """Some of those that were asked for are lost."""
            lost = [name for name in self.asked
                    if random.Random(f"{seed} lost {name}").random() < 0.1]
            self.asked = {name: n for name, n in self.asked.items() if name not in lost}
            self.notes.append(("lost", lost))
            return OrderedSet(lost)

        def get_ec_connector_stats(self):
            return None

        def has_pending_push_work(self):
            return False

        def build_connector_meta(self, output):
            self.notes.append(("meta", list(output.num_scheduled_tokens)))
            return f"images {output.total_num_scheduled_tokens}"

    return Connector()
