"""One scheduler of vLLM's, and every operation on it with all that it answered.

An operation is written down after it was done. Where vLLM raises in the middle of one, or what it
is about to do damages its own state, the workload ends before that operation: `stop REASON`.
"""
import struct
from types import SimpleNamespace

from cache_case import Ended, Stop
from recorder import ids
from release import IS_0_20
from sched_world import Calls, Connector, EncoderConnector, GrammarManager, dotted, number_of, spans

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import RequestStatus

STATE_EVERY = 8  # operations between two comparisons of all requests
SHOWN_BYTES = 3  # of each digest
RAISED = (AssertionError, ValueError, IndexError, KeyError, RuntimeError, TypeError)


def summed(tokens):
    """A list of tokens as its length and a number that depends on all of them."""
    value = 0
    for token in tokens:
        value = (value * 31 + token + 2) & 0xFFFFFFFF
    return f"{len(tokens)}.{value:x}"


def numbers(request_ids):
    return ids(sorted(number_of(r) for r in request_ids))


def queue(requests):
    return ids(number_of(r.request_id) for r in requests)


def prefix_stats(stats):
    if stats is None:
        return "-"
    return dotted((int(stats.reset), stats.requests, stats.queries, stats.hits,
                   stats.preempted_requests, stats.preempted_queries, stats.preempted_hits))


def skipped_of(scheduler):
    """The second queue: 0.20 has what was held up there, 0.32 what holds blocks."""
    return scheduler.skipped_waiting if IS_0_20 else scheduler.kv_holding_waiting


class Published:
    """Stands for vLLM's publisher of events."""

    def __init__(self):
        self.events = []

    def publish(self, batch):
        self.events += batch.events


class SchedCase:
    def __init__(self, writer, setup):
        self.writer, self.setup = writer, setup
        self.calls = Calls()
        self.scheduler = setup.make(GrammarManager(setup.rng, self.calls))
        self.manager = self.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.published = self.scheduler.kv_event_publisher = Published()
        self.connector = None
        if setup.connector:
            self.add_connector()
        self.stored = []
        self.at_risk = set()
        self.num_operations = self.num_steps = self.num_requests = 0
        self.watch()
        writer.start_case(setup.line())

    def add_connector(self):
        self.connector = self.scheduler.connector = Connector(self.setup.rng, self.calls,
                                                              self.setup)
        self.scheduler.requires_kv_delivery = self.setup.delivers
        self.scheduler.defer_block_free = self.setup.fences
        if self.setup.log_stats:
            self.scheduler.connector_prefix_cache_stats = PrefixCacheStats()
        self.scheduler.recompute_kv_load_failures = not self.setup.fails
        if "encoder_connector" in self.setup.extras:
            self.scheduler.ec_connector = EncoderConnector(self)
        if "takes_states" in self.setup.extras:
            self.scheduler.vllm_config.kv_transfer_config = SimpleNamespace(is_kv_producer=True)
        finish = self.scheduler.finish_requests

        def watched_finish(request_ids, status):
            self.connector.still_loading = {
                r.request_id for r in skipped_of(self.scheduler)
                if r.status == RequestStatus.WAITING_FOR_REMOTE_KVS
                and r.request_id not in self.scheduler.finished_recving_kv_req_ids}
            if status == RequestStatus.FINISHED_ABORTED and any(
                    self.has_gap(name) for name in self.connector.still_loading):
                raise Stop("gap-of-a-load")
            return finish(request_ids, status)

        self.scheduler.finish_requests = watched_finish

    def has_gap(self, name):
        """Whether R-SWA gives blocks of a request back when it ends, to which a load may write."""
        request = self.scheduler.requests[name]
        for manager in self.managers:
            if hasattr(manager, "rswa_window"):
                prompt, size = request.num_prompt_tokens, manager.block_size
                start = max(prompt, request.num_computed_tokens - manager.rswa_window)
                gap = manager.req_to_blocks[name][-(-prompt // size):start // size]
                if any(not block.is_null for block in gap):
                    return True
        return False

    # -- watching

    @property
    def managers(self):
        return self.manager.coordinator.single_type_managers

    def watch(self):
        """Which blocks of which request an event is about; and what must not be followed."""
        cache_full, get_new = self.pool.cache_full_blocks, self.pool.get_new_blocks
        allocate = self.manager.allocate_slots

        def watched_cache_full(**given):
            before = len(self.pool.kv_event_queue)
            cache_full(**given)
            if len(self.pool.kv_event_queue) > before:
                first, last = given["num_cached_blocks"], given["num_full_blocks"]
                self.stored.append((given["request"].request_id, first, last - first))

        def watched_emit_cached(request, num_blocks, *given):
            emit_cached(request, num_blocks, *given)
            self.stored.append((request.request_id, 0, num_blocks))

        def watched_get_new(num_blocks):
            if num_blocks < 0:
                raise Stop("negative-count")
            if self.at_risk:
                free = self.pool.free_block_queue.get_all_free_blocks()[:num_blocks]
                if self.at_risk.intersection(b.block_id for b in free):
                    raise Stop("hit-evicted-by-other-group")
            return get_new(num_blocks)

        def watched_allocate(request, num_new_tokens, **given):
            if num_new_tokens < 0:
                raise Stop("negative-tokens")
            external = given.get("num_external_computed_tokens", 0)
            if external and len(self.managers) > 1:
                self.at_risk = self.hits_at_risk(request, given, external)
            answer = allocate(request, num_new_tokens, **given)
            self.at_risk = set()
            return answer

        def watched_cache_partial(**given):
            before = len(self.pool.kv_event_queue)
            key = cache_partial(**given)
            if len(self.pool.kv_event_queue) > before:
                first = given["num_tokens"] // self.pool.hash_block_size - 1
                self.stored.append((given["request"].request_id, first, 1))
            return key

        self.pool.cache_full_blocks = watched_cache_full
        if not IS_0_20:
            cache_partial = self.pool.cache_partial_block
            self.pool.cache_partial_block = watched_cache_partial
            emit_cached = self.pool.emit_cached_block_events
            self.pool.emit_cached_block_events = watched_emit_cached
        self.pool.get_new_blocks = watched_get_new
        self.manager.allocate_slots = watched_allocate

    def hits_at_risk(self, request, given, external):
        """Hits without a user that this call will keep: with external tokens, blocks for one group
        are taken before the hits of the next are kept."""
        total = request.num_computed_tokens + given["num_new_computed_tokens"] + external
        risky = set()
        for manager, blocks in zip(self.managers, given["new_computed_blocks"].blocks):
            skipped = max(0, manager.get_num_skipped_tokens(total)) // manager.block_size
            risky.update(b.block_id for b in blocks[skipped:] if b.ref_cnt == 0 and not b.is_null)
        return risky

    def check_queues(self):
        """Each request that has not ended is in one queue, once."""
        s = self.scheduler
        queued = [r.request_id for q in (s.running, s.waiting, skipped_of(s)) for r in q]
        if len(queued) != len(set(queued)):
            raise Stop("request-in-two-queues")
        if len(queued) != sum(not r.is_finished() for r in s.requests.values()):
            raise Stop("request-in-no-queue")

    def check_sound(self):
        """Users of blocks are those that requests are; no count is below zero."""
        self.check_queues()
        users = [0] * self.pool.num_gpu_blocks
        for manager in self.managers:
            for request_id, blocks in manager.req_to_blocks.items():
                if blocks and request_id not in self.scheduler.requests:
                    raise Stop("blocks-of-nobody")
                for block in blocks:
                    users[block.block_id] += 1
        for _, blocks in () if IS_0_20 else self.scheduler.deferred_frees:
            for block in blocks:
                users[block.block_id] += 1
        num_free = 0
        for block in self.pool.blocks[1:]:
            if block.ref_cnt != users[block.block_id]:
                raise Stop("damaged-users")
            num_free += block.ref_cnt == 0
        if num_free != self.pool.get_num_free_blocks():
            raise Stop("damaged-queue")
        for request in self.scheduler.requests.values():
            if request.num_computed_tokens < 0:
                raise Stop("negative-computed")
            if request.num_output_placeholders < 0:
                raise Stop("negative-placeholders")
            if request.num_prompt_tokens > request.num_tokens:
                raise Stop("session-lost-its-prompt")

    # -- what is compared

    def hash_text(self, joined):
        size = 16 if self.setup.algorithm >= 2 else 32
        return "+".join(joined[i:i + SHOWN_BYTES].hex() for i in range(0, len(joined), size))

    def event_text(self, event):
        if isinstance(event, AllBlocksCleared):
            return "C"
        hashes = ",".join(self.hash_text(h) for h in event.block_hashes)
        if isinstance(event, BlockRemoved):
            return f"R{event.group_idx}:{hashes}"
        assert isinstance(event, BlockStored)
        request_id, first, count = self.stored.pop(0)
        parent = event.parent_block_hash
        parent = "-" if parent is None else self.hash_text(parent)
        return (f"S{event.group_idx}:{number_of(request_id)}:{first}+{count}:{hashes}^{parent}"
                f"/{event.block_size}")

    def request_text(self, r):
        blocks = spans(self.manager.get_block_ids(r.request_id))
        return (f"{number_of(r.request_id)}:{int(r.status)}:{r.num_computed_tokens}:"
                f"{r.num_output_placeholders}:{r.num_prompt_tokens}:{len(r.spec_token_ids)}:"
                f"{r.num_preemptions}:{r.priority}:{r.arrival_time * 4:.0f}:"
                f"{summed(r._all_token_ids)}:{blocks}")

    def all_requests(self):
        return " ".join(self.request_text(r) for r in sorted(
            self.scheduler.requests.values(), key=lambda r: number_of(r.request_id)))

    def free_blocks(self):
        return ids(b.block_id for b in self.pool.free_block_queue.get_all_free_blocks())

    def finish_operation(self, line, answer, is_last=False):
        """Writes an operation down with its answer and what became of the scheduler."""
        s = self.scheduler
        events = self.published.events + self.manager.take_events()
        self.published.events = []
        events = " ".join(self.event_text(e) for e in events)
        notes, answers = self.calls.take()
        self.num_operations += 1
        text = (f"{answer}calls={notes}|events={events}|running={queue(s.running)}"
                f"|waiting={queue(s.waiting)}|skipped={queue(skipped_of(s))}"
                f"|unfinished={s.get_num_unfinished_requests()}.{int(s.has_finished_requests())}")
        if is_last or self.num_operations % STATE_EVERY == 0:
            text += f"|requests={self.all_requests()}"
        if is_last:
            text += f"|free={self.free_blocks()}"
        self.writer.checked(f"{line} {answers}" if answers else line, f"{line[0]}|{text}")

    def loading(self):
        return [r for r in skipped_of(self.scheduler)
                if r.status == RequestStatus.WAITING_FOR_REMOTE_KVS]

    def operation(self, line, function):
        """Does something that may fail, and writes it down with its answer."""
        loading = self.loading() if line[0] == "u" else []
        try:
            answer = function()
            self.check_sound()
            # Output of a step before its preemption can stop a request that loads by now.
            if any(RequestStatus.WAITING_FOR_REMOTE_KVS != r.status <= RequestStatus.PREEMPTED
                   for r in loading):
                raise Stop("load-forgotten")
        except Stop as stop:
            self.end_early(str(stop))
        except RAISED as error:
            where = error.__traceback__
            while where.tb_next is not None:
                where = where.tb_next
            code = where.tb_frame.f_code
            self.end_early(f"{type(error).__name__}-in-{code.co_name}-{where.tb_lineno}")
        self.finish_operation(line, answer)

    def end_early(self, reason):
        self.writer.line(f"stop {reason}")
        raise Ended

    # -- requests

    def add(self, request, line):
        self.num_requests += 1
        self.operation(line, lambda: self.scheduler.add_request(request) or "")

    def finish(self, request_ids, status):
        listed = "*" if request_ids is None else ids(number_of(r) for r in request_ids)

        def finish():
            return f"ended={len(self.scheduler.finish_requests(request_ids, status))}|"

        self.operation(f"f {listed} {int(status)}", finish)

    # -- steps

    def schedule(self):
        """The output, and for each request in it whether it will sample."""
        made = []
        setup = self.setup
        throttles = bool(setup.throttles) and setup.rng.random() < setup.throttles

        def schedule():
            output = self.scheduler.schedule(True) if throttles else self.scheduler.schedule()
            made.append(output)
            return self.step_text(output)

        self.num_steps += 1
        self.operation("s t" if throttles else "s", schedule)
        output = made[0]
        samples = [not self.scheduler.requests[r].is_prefill_chunk
                   for r in output.num_scheduled_tokens]
        return output, samples

    def new_text(self, data):
        return (f"{number_of(data.req_id)}:{data.num_computed_tokens}:{spans(data.block_ids)}:"
                f"{summed(data.prompt_token_ids)}")

    def cached_text(self, data, i):
        request_id = data.req_ids[i]
        blocks = data.new_block_ids[i]
        if blocks is None:
            blocks = [()] * len(self.setup.groups)
        tokens = data.all_token_ids.get(request_id)
        text = (f"{number_of(request_id)}{'R' if request_id in data.resumed_req_ids else ''}:"
                f"{data.num_computed_tokens[i]}:{data.num_output_tokens[i]}:{spans(blocks)}:"
                f"{'-' if tokens is None else summed(tokens)}")
        return f"{text}:{summed(data.new_token_ids[i])}" if data.new_token_ids else text

    def step_text(self, output):
        data = output.scheduled_cached_reqs
        zero = output.new_block_ids_to_zero
        tokens = " ".join(f"{number_of(r)}.{n}" for r, n in output.num_scheduled_tokens.items())
        spec = " ".join(f"{number_of(r)}:{dotted(output.scheduled_spec_decode_tokens[r])}"
                        for r in output.num_scheduled_tokens
                        if r in output.scheduled_spec_decode_tokens)
        encoder = " ".join(f"{number_of(r)}:{dotted(output.scheduled_encoder_inputs[r])}"
                           for r in output.num_scheduled_tokens
                           if r in output.scheduled_encoder_inputs)
        flags = (output.has_structured_output_requests, output.pending_structured_output_tokens)
        return (f"new={' '.join(self.new_text(n) for n in output.scheduled_new_reqs)}"
                f"|cached={' '.join(self.cached_text(data, i) for i in range(len(data.req_ids)))}"
                f"|tokens={tokens}|total={output.total_num_scheduled_tokens}|drafts={spec}"
                f"|encoder={encoder}|common={ids(output.num_common_prefix_blocks)}"
                f"|finished={numbers(output.finished_req_ids)}"
                f"|preempted={numbers(output.preempted_req_ids)}"
                f"|freed={' '.join(output.free_encoder_mm_hashes)}"
                f"|zero={ids(zero or ())}|grammar={int(flags[0])}{int(flags[1])}|"
                f"{'' if IS_0_20 else f'spec={output.num_spec_tokens_to_schedule}|'}"
                + self.copies_text(output))

    def copies_text(self, output):
        if not self.setup.has_parts:
            return ""
        copies = output.kv_cache_block_copies or ()
        return f"copies={' '.join(f'{c.src_block_id}>{c.dst_block_id}' for c in copies)}|"

    def update(self, output, sampled, pooled, invalid, transfers):
        """What the engine computed; all lists are in the order of the step."""
        requests = list(output.num_scheduled_tokens)
        counts = "".join("P" if p else str(len(t)) for t, p in zip(sampled, pooled)) or "-"
        line = f"u {counts}"
        if any(invalid):
            line += " I" + "".join(map(str, invalid))
            output.num_invalid_spec_tokens = {r: n for r, n in zip(requests, invalid) if n}
        for letter, listed in transfers.items():
            if listed:
                line += f" {letter}{ids(listed)}"
        runner = ModelRunnerOutput(
            requests, {r: i for i, r in enumerate(requests)}, sampled,
            pooler_output=[True if p else None for p in pooled] if any(pooled) else None)
        if any(transfers.values()):
            by_number = {number_of(r): r for r in self.scheduler.requests}
            runner.kv_connector_output = KVConnectorOutput(
                finished_sending=[by_number[n] for n in transfers["X"]],
                finished_recving=[by_number[n] for n in transfers["V"]],
                invalid_block_ids=set(transfers["B"]))
            if transfers["E"]:
                runner.kv_connector_output.failed_recving = [by_number[n] for n in transfers["E"]]
            if self.connector is not None:
                self.connector.sending.difference_update(transfers["X"])
        self.operation(line, lambda: self.outputs_text(
            self.scheduler.update_from_output(output, runner)))

    def output_text(self, output):
        reason = 0 if output.finish_reason is None else int(output.finish_reason) + 1
        stop = output.stop_reason if isinstance(output.stop_reason, int) else "-"
        prefill = output.prefill_stats
        prefill = "-" if prefill is None else dotted((
            prefill.num_local_cached_tokens, prefill.num_external_cached_tokens,
            prefill.num_prompt_tokens, *(() if IS_0_20 else (prefill.num_cache_creation_tokens,))))
        return (f"{number_of(output.request_id)}:{dotted(output.new_token_ids)}:{reason}:{stop}:"
                f"{prefill}")

    def stats_text(self, stats):
        if stats is None:
            return "-"
        spec = stats.spec_decoding_stats
        places = self.setup.num_spec if IS_0_20 else 2 * self.setup.num_spec
        spec = dotted((0, 0, 0, *[0] * places)) if spec is None else dotted(
            (spec.num_drafts, spec.num_draft_tokens, spec.num_accepted_tokens,
             *spec.num_accepted_tokens_per_pos,
             *(() if IS_0_20 else spec.num_draft_tokens_per_pos)))
        usage = struct.pack(">d", stats.kv_cache_usage).hex()
        prefix = prefix_stats(stats.prefix_cache_stats)
        return (f"{stats.num_running_reqs}.{stats.num_waiting_reqs}"
                f".{stats.num_skipped_waiting_reqs} {usage} {prefix}"
                f" {prefix_stats(stats.connector_prefix_cache_stats)} {spec}")

    def outputs_text(self, clients):
        outputs, ended, stats = [], [], None
        for client in sorted(clients):
            made = clients[client]
            outputs += [f"c{client}"] if made.outputs else []
            outputs += [self.output_text(o) for o in made.outputs]
            if made.finished_requests:
                ended.append(f"c{client} {numbers(made.finished_requests)}")
            stats = stats or made.scheduler_stats
        return (f"outputs={' '.join(outputs)}|ended={' '.join(ended)}"
                f"|stats={self.stats_text(stats)}|")

    def update_drafts(self, output, drafts):
        """None: nothing for that request."""
        counts = "".join("-" if d is None else str(len(d)) for d in drafts)
        told = [(r, d) for r, d in zip(output.num_scheduled_tokens, drafts) if d is not None]
        given = DraftTokenIds([r for r, _ in told], [d for _, d in told])
        self.operation(f"d {counts}",
                       lambda: self.scheduler.update_draft_token_ids(given) or "")

    # -- the rest

    def pause(self, state):
        self.operation(f"p {state}",
                       lambda: self.scheduler.set_pause_state(PauseState(state)) or "")

    def reset(self, running, connector):
        self.operation(f"z {int(running)} {int(connector)}", lambda: (
            f"done={int(self.scheduler.reset_prefix_cache(running, connector))}|"))

    def reset_encoder(self):
        self.operation("w", lambda: self.scheduler.reset_encoder_cache() or "")

    def look_at_all(self):
        self.finish_operation("q", "", is_last=True)
