"""One KVCacheManager of vLLM's, its requests, and every call to it with what it answered.

A call is written down after it was made. Three things end a workload early:

    Stop     what vLLM is about to do damages its own pool or the data of a request: Quire does not
             follow, so the call is left out. `stop REASON` says how often this happened.
    error    vLLM raises in the middle of the call: Quire must refuse it too. The call is the last.
    damage   after the call the pool is not sound: treated as a Stop.
"""
import struct

from recorder import ids
from release import IS_0_20

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id
from vllm.v1.core.single_type_kv_cache_manager import CrossAttentionManager
from vllm.v1.request import RequestStatus

STATE_EVERY = 4  # calls between two comparisons of all blocks


class Stop(Exception):
    """The call must not be recorded."""


class Ended(Exception):
    """The workload is over: nothing may be called after an error or a Stop."""


def ranges(numbers):
    """1,2,3,7 as 1-3,7."""
    parts, numbers = [], list(numbers)
    while numbers:
        count = 1
        while count < len(numbers) and numbers[count] == numbers[0] + count:
            count += 1
        last = numbers[count - 1]
        parts.append(str(last) if count == 1 else f"{numbers[0]}-{last}")
        del numbers[:count]
    return ",".join(parts) or "-"


class Digests:
    """Digests by the order of their first appearance: to the cache only equality matters."""

    def __init__(self):
        self.numbers = {}

    def number(self, digest):
        return self.numbers.setdefault(bytes(digest), len(self.numbers))

    def text(self, joined, size):
        parts = [joined[i:i + size] for i in range(0, len(joined), size)]
        return "+".join(str(self.number(p)) for p in parts)


class Seat:
    """A request, and what the recording has said of it so far."""

    def __init__(self, index, request):
        self.index, self.request = index, request
        self.told_tokens = self.told_hashes = 0
        self.num_drafts = 0
        self.tokens_left = 0
        self.tries = 0
        self.has_blocks = False

    @property
    def id(self):
        return self.request.request_id


class CacheCase:
    def __init__(self, writer, model):
        self.writer, self.model = writer, model
        self.manager = model.make()
        self.pool = self.manager.block_pool
        self.digests = Digests()
        self.stored = []
        self.hit = None  # of the seat that was looked up last
        self.calls = 0
        self.num_seats = 0
        self.at_risk = set()
        self.touched = []  # blocks with a user that is not a request
        self.sinks = {b.block_id for m in self.managers for b in getattr(m, "sink_blocks", [])}
        self.watch_pool()
        writer.start_case(model.line())

    @property
    def managers(self):
        return self.manager.coordinator.single_type_managers

    # -- watching the pool

    def watch_pool(self):
        """Which blocks of its request an event is about; and what must not be followed."""
        cache_full, get_new = self.pool.cache_full_blocks, self.pool.get_new_blocks

        def watched_cache_full(**given):
            before = len(self.pool.kv_event_queue)
            cache_full(**given)
            if len(self.pool.kv_event_queue) > before:
                first, last = given["num_cached_blocks"], given["num_full_blocks"]
                size = given["block_size"]
                tokens = given["request"].all_token_ids[first * size:last * size]
                assert self.pool.kv_event_queue[-1].token_ids == tokens
                self.stored.append((first, last - first))

        def watched_get_new(num_blocks):
            if num_blocks < 0:
                raise Stop("negative-count")
            free = self.pool.free_block_queue.get_all_free_blocks()[:num_blocks]
            if num_blocks <= self.pool.get_num_free_blocks() and self.at_risk.intersection(
                    b.block_id for b in free):
                raise Stop("hit-evicted-by-other-group")
            return get_new(num_blocks)

        def watched_cache_partial(**given):
            before = len(self.pool.kv_event_queue)
            key = cache_partial(**given)
            if len(self.pool.kv_event_queue) > before:
                size = self.pool.hash_block_size
                first = given["num_tokens"] // size - 1
                tokens = given["request"].all_token_ids[first * size:(first + 1) * size]
                assert self.pool.kv_event_queue[-1].token_ids == tokens
                self.stored.append((first, 1))
            return key

        self.pool.cache_full_blocks = watched_cache_full
        if not IS_0_20:
            cache_partial = self.pool.cache_partial_block
            self.pool.cache_partial_block = watched_cache_partial
        self.pool.get_new_blocks = watched_get_new

    def hits_at_risk(self, total):
        """Hits without a user that this call will keep: with external tokens, blocks for one group
        are taken before the hits of the next are kept."""
        risky = set()
        for manager, blocks in zip(self.managers, self.hit[1].blocks):
            skipped = max(0, manager.get_num_skipped_tokens(total)) // manager.block_size
            risky.update(b.block_id for b in blocks[skipped:] if b.ref_cnt == 0 and not b.is_null)
        return risky

    def is_settled(self, seat):
        """Whether vLLM takes the request for one that runs: not before its first full block. (0.32
        asks for one group only; there, blocks get their first keys in all groups at once.)"""
        return all(seat.id in m.num_cached_block for m in self.managers
                   if not isinstance(m, CrossAttentionManager))

    def is_sound(self):
        """Users are those that requests are; the queue has each block without a user once."""
        users = [0] * self.pool.num_gpu_blocks
        for manager in self.managers:
            for blocks in manager.req_to_blocks.values():
                for block in blocks:
                    users[block.block_id] += 1
        for block in self.touched:
            users[block] += 1
        queue = [b.block_id for b in self.pool.free_block_queue.get_all_free_blocks()]
        free = {b.block_id for b in self.pool.blocks[1:] if b.ref_cnt == 0} - self.sinks
        return (len(queue) == len(free) == self.pool.get_num_free_blocks()
                and free == set(queue)
                and all(b.ref_cnt == users[b.block_id] for b in self.pool.blocks[1:]))

    # -- what is compared

    def hash_text(self, joined):
        return self.digests.text(joined, self.model.digest_bytes)

    def event_text(self, event):
        if isinstance(event, AllBlocksCleared):
            return "C"
        hashes = ",".join(self.hash_text(h) for h in event.block_hashes)
        if isinstance(event, BlockRemoved):
            return f"R{event.group_idx}:{hashes}"
        assert isinstance(event, BlockStored)
        first, count = self.stored.pop(0)
        parent = event.parent_block_hash
        parent = "-" if parent is None else self.hash_text(parent)
        return f"S{event.group_idx}:{first}+{count}:{hashes}^{parent}/{event.block_size}"

    def key_text(self, block):
        if block.block_hash is None:
            return ""
        text = f"@{get_group_id(block.block_hash)}.{self.hash_text(get_block_hash(block.block_hash))}"
        if not IS_0_20:
            for key in self.pool.cached_block_hashes_by_block.get(block.block_id, ()):
                text += f"~{self.hash_text(get_block_hash(key))}"
        return text

    def all_blocks(self):
        free = ids(b.block_id for b in self.pool.free_block_queue.get_all_free_blocks())
        used = [f"{b.block_id}:{b.ref_cnt}{self.key_text(b)}" for b in self.pool.blocks[1:]
                if (b.ref_cnt or b.block_hash) and b.block_id not in self.sinks]
        return f"|{free}|{' '.join(used)}"

    def blocks_text(self, groups):
        return ";".join(ids(b.block_id for b in blocks) for blocks in groups) or "."

    def request_text(self, seat):
        return self.blocks_text(self.manager.get_blocks(seat.id).blocks)

    def checked(self, line, answer):
        """Writes a call down; all blocks are compared at every fourth, and at the last."""
        events = " ".join(self.event_text(e) for e in self.manager.take_events())
        usage = struct.pack(">d", self.manager.usage).hex()
        self.calls += 1
        whole = self.all_blocks() if self.calls % STATE_EVERY == 0 or line == "q" else ""
        keys = len(self.pool.cached_block_hash_to_block)
        self.writer.checked(line, f"{line[0]}={answer}|{events}|{self.pool.get_num_free_blocks()} "
                                  f"{usage} {keys}{whole}")

    def call(self, line, function):
        """Makes a call that may fail, and writes it down with its answer."""
        try:
            answer = function()
            if not self.is_sound():
                raise Stop("damage")
        except Stop as stop:
            self.writer.line(f"stop {stop}")
            raise Ended from None
        except (AssertionError, ValueError, IndexError) as error:
            predicted = str(error).startswith("Cannot get ")
            self.writer.line(f"!{'P' if predicted else 'A'} {line}", 1)
            raise Ended from None
        self.checked(line, answer)

    # -- requests

    def add(self, request):
        seat = Seat(self.num_seats, request)
        self.num_seats += 1
        seat.told_tokens, seat.told_hashes = request.num_tokens, len(request.block_hashes)
        numbers = [self.digests.number(h) for h in request.block_hashes]
        self.writer.line(f"r{seat.index} {request.num_tokens} "
                         f"{int(request.skip_reading_prefix_cache)} {ranges(numbers)}")
        return seat

    def tell(self, seat):
        """Says how far the request has grown."""
        request = seat.request
        if request.num_tokens == seat.told_tokens:
            return
        numbers = [self.digests.number(h) for h in request.block_hashes[seat.told_hashes:]]
        seat.told_tokens, seat.told_hashes = request.num_tokens, len(request.block_hashes)
        self.writer.line(f"t{seat.index} {request.num_tokens} {ranges(numbers)}")

    # -- calls about a request

    def look_up(self, seat, admits=False):
        """An engine that admits the request notes how far others have a prefix in common."""
        self.tell(seat)
        line = f"g{seat.index} {seat.request.num_computed_tokens}"
        if IS_0_20:
            blocks, num_tokens = self.manager.get_computed_blocks(seat.request)
            answer = f"{num_tokens}"
        else:
            blocks, num_tokens, boundary = self.manager.get_computed_blocks(seat.request)
            answer = f"{num_tokens}+{boundary}"
            line += f" {int(admits)}"
            if admits:
                seat.request.shared_prefix_boundary = boundary
        self.hit = (seat, blocks, num_tokens)
        self.checked(line, f"{answer} {self.blocks_text(blocks.blocks)}")
        return num_tokens

    def hit_arguments(self, seat, use_hit):
        if not use_hit:
            return {}, ""
        assert self.hit[0] is seat
        return {"num_new_computed_tokens": self.hit[2], "new_computed_blocks": self.hit[1]}, " h"

    def fits(self, seat, use_hit, external, encoder):
        self.tell(seat)
        given, shown = self.hit_arguments(seat, use_hit)
        answer = self.manager.can_fit_full_sequence(
            seat.request, num_external_computed_tokens=external, num_encoder_tokens=encoder,
            **given)
        line = f"c{seat.index} {seat.request.num_computed_tokens}{shown}"
        self.checked(line + options(x=external, e=encoder), int(answer))
        return answer

    def rules_arguments(self, seat, whole, is_waiting, others, in_flight, reserved, unzeroed):
        """What 0.32 asks besides; the watermark is for those that wait, while others run."""
        if IS_0_20:
            return {}, ""
        request = seat.request
        request.num_in_flight_tokens = in_flight
        request.status = RequestStatus.RUNNING
        if is_waiting:
            request.status = (RequestStatus.PREEMPTED if request.num_preemptions
                              else RequestStatus.WAITING)
        given = {"full_sequence_must_fit": whole, "reserved_blocks": reserved,
                 "has_scheduled_reqs": others, "skip_zeroing_group_ids": tuple(unzeroed)}
        shown = options(f=int(whole), w=int(is_waiting and others), i=in_flight, r=reserved)
        return given, shown + (f" z{ids(unzeroed)}" if unzeroed else "")

    def count_lookup(self, seat, use_hit):
        """0.32's engine says when an admission counts: here, at a request's first blocks."""
        if not IS_0_20 and not seat.has_blocks:
            self.manager.record_prefix_cache_stats(seat.request, self.hit[2] if use_hit else 0)

    def allocate(self, seat, num_new, use_hit=False, lookahead=0, external=0, encoder=0,
                 delay=False, misuse=False, whole=False, is_waiting=False, others=True,
                 in_flight=0, reserved=0, unzeroed=()):
        """True when there was room. A misuse that vLLM does not notice is left out."""
        self.tell(seat)
        given, shown = self.hit_arguments(seat, use_hit)
        rules, shown_rules = self.rules_arguments(seat, whole, is_waiting, others, in_flight,
                                                  reserved, unzeroed)
        given.update(rules)
        computed = seat.request.num_computed_tokens
        line = (f"a{seat.index} {computed} {num_new}{shown}"
                + options(l=lookahead, x=external, e=encoder, d=int(delay)) + shown_rules)
        if external and use_hit and IS_0_20:
            self.at_risk = self.hits_at_risk(computed + self.hit[2] + external)
        fitted = []

        def allocate():
            new = self.manager.allocate_slots(
                seat.request, num_new, num_lookahead_tokens=lookahead,
                num_external_computed_tokens=external, delay_cache_blocks=delay,
                num_encoder_tokens=encoder, **given)
            if misuse:
                raise Stop("misuse-not-noticed")
            if new is None:
                return f"! {self.request_text(seat)}"
            fitted.append(True)
            self.count_lookup(seat, use_hit)
            return f"{self.blocks_text(new.blocks)} {self.request_text(seat)}"

        self.call(line, allocate)
        self.at_risk = set()
        self.hit = None
        seat.has_blocks = seat.has_blocks or bool(fitted)
        return bool(fitted)

    def cache_blocks(self, seat, num_computed):
        self.tell(seat)
        self.call(f"k{seat.index} {num_computed}",
                  lambda: self.manager.cache_blocks(seat.request, num_computed)
                  or self.request_text(seat))

    def remove_skipped(self, seat, num_computed):
        self.call(f"s{seat.index} {num_computed}",
                  lambda: self.manager.remove_skipped_blocks(seat.id, num_computed)
                  or self.request_text(seat))

    def free(self, seat, preempt=False):
        self.manager.free(seat.request)
        seat.has_blocks = False
        if preempt:
            seat.request.num_preemptions += 1
        self.checked(f"{'p' if preempt else 'f'}{seat.index}", self.request_text(seat))

    def count_common(self, seat):
        counts = self.manager.get_num_common_prefix_blocks(seat.id)
        self.checked(f"o{seat.index}", ids(counts))

    # -- calls about the cache

    def evict(self, chosen):
        """In the order in which Python goes through the set: that of the events."""
        self.call(f"e {ids(chosen)}", lambda: self.manager.evict_blocks(chosen) or "")

    def touch(self, chosen):
        """As a connector does that reads blocks for a while."""
        self.pool.touch([self.pool.blocks[b] for b in chosen])
        self.touched += chosen
        self.checked(f"u {ids(chosen)}", "")

    def free_touched(self):
        going, self.touched = self.touched, []
        for block in going:  # one by one: a block that is listed twice would be queued twice
            self.pool.free_blocks([self.pool.blocks[block]])
        self.checked(f"v {ids(going)}", "")

    def reset(self):
        self.checked("z", int(self.manager.reset_prefix_cache()))

    def start_step(self):
        self.manager.new_step_starts()
        self.checked("n", "")

    def num_new_block_ids(self):
        return sum(len(m.new_block_ids) for m in self.managers)

    def take_new_block_ids(self):
        self.checked("b", ids(self.manager.take_new_block_ids()))

    def take_stats(self):
        stats = self.manager.make_prefix_cache_stats()
        self.checked("m", "-" if stats is None else " ".join(str(n) for n in (
            int(stats.reset), stats.requests, stats.queries, stats.hits, stats.preempted_requests,
            stats.preempted_queries, stats.preempted_hits)))

    def look_at_all(self):
        self.checked("q", "")


def options(**given):
    """Those that are not 0, as letter and number."""
    return "".join(f" {letter}{value}" for letter, value in given.items() if value)
