#!/usr/bin/env python3
"""Records what vLLM's Prometheus logger shows after a made-up run, for test_metrics_parity.c.

    record_metrics.py [--seed N] [--cases N] [--out FILE]

Requests come, are scheduled, preempted, get tokens and end; both sides make the same run from the
same random numbers. vLLM's IterationStats and PrometheusStatLogger are fed as its OutputProcessor
and its engine do it. What is written is every sample that vLLM then shows: name, labels, value.
"""
import argparse

from vllm_metrics import Random, families, load_platform, make_logger

load_platform()

from vllm.v1.engine import EngineCoreEvent, EngineCoreEventType, EngineCoreOutput, FinishReason
from vllm.v1.metrics.stats import (IterationStats, LoRARequestStates, PrefillStats,
                                   PrefixCacheStats, RequestStateStats, SchedulerStats)
from vllm.v1.engine.parallel_sampling import ParentRequest
from vllm.v1.spec_decode.metrics import SpecDecodingStats

SLOTS = 12
# What a scheduler does not know: n of a request, caches of the front end, sleep, flops.
LEFT_OUT = ("vllm:request_params_n", "vllm:mm_cache", "vllm:engine_sleep_state",
            "vllm:corrupted_requests", "vllm:lora_requests_info", "vllm:estimated_")
REASONS = (FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR, FinishReason.REPETITION)


class Slot:
    def __init__(self, now, num_prompt, max_tokens):
        self.stats = RequestStateStats(arrival_time=now)
        self.num_prompt, self.max_tokens = num_prompt, max_tokens
        self.events = [EngineCoreEvent(EngineCoreEventType.QUEUED, now)]
        self.is_running = False
        self.is_prefilling = True
        self.num_cached = 0


class Run:
    def __init__(self, seed, max_model_len, num_spec, pace):
        self.random = Random(seed)
        self.max_model_len, self.num_spec, self.pace = max_model_len, num_spec, pace
        self.logger = make_logger(max_model_len, num_spec)
        self.now_ns = 1
        self.slots = [None] * SLOTS
        self.lora = LoRARequestStates()

    def now(self):
        return self.now_ns / 1e9

    def wait(self):
        scale = self.random.below(4)
        # 7 ns, so that no time is a bound of a bucket: vLLM's floats fall on either side of one
        self.now_ns += (1 + self.random.below(100000)) * 10**(self.pace + scale) + 7

    def add(self):
        for i in range(SLOTS):
            if self.slots[i] is None and self.random.below(4) == 0:
                num_prompt = 1 + self.random.below(self.max_model_len // 2)
                self.slots[i] = Slot(self.now(), num_prompt, 1 + self.random.below(500))

    def schedule(self):
        for slot in self.slots:
            if slot is None:
                continue
            if not slot.is_running and self.random.below(2) == 0:
                slot.is_running = True
                slot.events.append(EngineCoreEvent(EngineCoreEventType.SCHEDULED, self.now()))
            elif slot.is_running and self.random.below(12) == 0:
                slot.is_running = False
                slot.events.append(EngineCoreEvent(EngineCoreEventType.PREEMPTED, self.now()))

    def prefill(self, slot):
        stats = PrefillStats()
        local = self.random.below(slot.num_prompt)
        external = self.random.below(slot.num_prompt - local)
        stats.set(slot.num_prompt, local, external)
        return stats

    def output(self, i, slot, stats):
        prefill = self.prefill(slot) if slot.is_prefilling else None
        num_new = 1 + self.random.below(1 + self.num_spec)
        ends = self.random.below(10) == 0
        reason = REASONS[self.random.below(4)] if ends else None
        out = EngineCoreOutput(str(i), [0] * num_new, finish_reason=reason, events=slot.events,
                               prefill_stats=prefill)
        stats.update_from_output(out, self.now(), slot.is_prefilling, slot.stats, self.lora, None)
        slot.events = []
        if slot.is_prefilling:
            slot.num_cached = prefill.num_cached_tokens
        slot.is_prefilling = False
        if ends:
            stats.update_from_finished_request(reason, str(i), slot.num_prompt, slot.max_tokens,
                                               slot.stats, slot.num_cached)
            ParentRequest.observe_finished_request(None, stats, slot.stats.num_generation_tokens)
            self.slots[i] = None

    def update(self):
        stats = IterationStats()
        stats.iteration_timestamp = self.now()
        any_output = False
        for i, slot in enumerate(self.slots):
            if slot is not None and slot.is_running and self.random.below(8) > 0:
                self.output(i, slot, stats)
                any_output = True
        self.logger.record(self.scheduler_stats(), stats if any_output else None)

    def prefix(self):
        stats = PrefixCacheStats()
        for is_preempted in (False, True):
            queries = self.random.below(1000)
            stats.record(queries, self.random.below(queries + 1), is_preempted)
        return stats

    def scheduler_stats(self):
        spec = None
        running = self.random.below(100)
        waiting = self.random.below(100)
        skipped = self.random.below(100)
        active = self.random.below(1001)
        prefix = self.prefix()
        connector = self.prefix()
        if self.num_spec:
            spec = SpecDecodingStats.new(self.num_spec)
            for _ in range(self.random.below(3)):
                spec.observe_draft(self.num_spec, self.random.below(self.num_spec + 1))
        return SchedulerStats(running, waiting, skipped, kv_cache_usage=1 - (1000 - active) / 1000,
                              prefix_cache_stats=prefix, connector_prefix_cache_stats=connector,
                              spec_decoding_stats=spec)


def samples():
    """All samples, with sorted labels."""
    for family in families().values():
        if family.name.startswith(LEFT_OUT):
            continue
        for s in family.samples:
            if not s.name.endswith("_created"):
                labels = ",".join(f'{k}="{v}"' for k, v in sorted(s.labels.items()))
                yield f"{s.name}{{{labels}}} {s.value!r}"


def record(seed, max_model_len, num_spec, pace, steps):
    run = Run(seed, max_model_len, num_spec, pace)
    for _ in range(steps):
        run.add()
        run.wait()
        run.schedule()
        run.wait()
        run.update()
    lines = sorted(samples())
    return [f"case {seed} {max_model_len} {num_spec} {pace} {steps} {len(lines)}"] + lines


def main():
    parser = argparse.ArgumentParser(description="Records what vLLM's Prometheus logger shows.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=4)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    lines = ["# vLLM 0.20.0, record_metrics.py: case SEED MAX_MODEL_LEN SPEC_TOKENS PACE STEPS LINES"]
    for i in range(args.cases):
        lines += record(args.seed + i, (4096, 131072, 3000000, 200)[i % 4], (0, 3, 0, 5)[i % 4],
                        1 + i % 4, 1000)
    with open(args.out, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


main()
