"""What QUIRE_RECORD costs: schedule + update_from_output with the recorder and without.

    python bench/vllm_record.py --rounds 9 [--platform MODULE]
    python bench/vllm_record.py --engine --model FOLDER [--scheduler quire]

Without --engine: decoding requests in a scheduler alone, as in bench/vllm_dropin.py. With --engine: a whole
engine of vLLM's CPU build with 16 running requests; FOLDER is the model `tiny` of tests/vllm/engine.
One scheduler, in alternating rounds with its recorded class and with its own. Rows: median (fastest ..
slowest) in microseconds by step; the difference of the medians, as a share of the step: of 10 ms
without --engine. `lines`: the time inside of the recorder's calls, of the recorded rounds. `thread`: processor
time of the recorder's thread, by step.
"""
import argparse
import importlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

GPU_STEP_US = 10_000
ENGINE_REQUESTS, ENGINE_TOKENS = 16, 64


class Toggle:
    """A scheduler that is recorded in some rounds."""

    def __init__(self, scheduler, path):
        from quire.vllm import record

        self.scheduler, self.own = scheduler, type(scheduler)
        record.attach(scheduler, path, {})
        self.recorded, self.lines = type(scheduler), 0.0
        assert self.recorded is not self.own, "the scheduler is not recorded"
        inner = record.Recorded._record

        def timed(scheduler, line, *given):
            start = time.perf_counter()
            inner(scheduler, line, *given)
            self.lines += time.perf_counter() - start

        self.timed = timed

    def set(self, is_recorded):
        self.scheduler.__class__ = self.recorded if is_recorded else self.own

    def time_lines(self):
        self.recorded._record = self.timed


def thread_seconds():
    """Processor time of the threads `quire-record`."""
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)
        if fields[0].endswith("(quire-record"):
            values = fields[1].split()
            ticks += int(values[11]) + int(values[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def column(values):
    return f"{statistics.median(values):9.1f} ({min(values):.1f} .. {max(values):.1f})"


def show(name, without, recorded, lines, thread, whole=None):
    more = statistics.median(recorded) - statistics.median(without)
    share = 100 * more / (whole or statistics.median(without))
    print(f"{name:26} {column(without):34} {column(recorded):34} {more:+8.1f} {share:+6.2f} %  "
          f"lines {statistics.median(lines):6.1f} ({100 * statistics.median(lines) / (whole or statistics.median(without)):.2f} %)"
          f"  thread {thread:5.1f}", flush=True)


def decode(side, num_requests, is_async, rounds, folder):
    import vllm_dropin
    from quire import vllm as quire_vllm
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    kv_cache_utils.init_none_hash(sha256)
    kinds = {"vllm": (Scheduler, AsyncScheduler),
             "quire": (quire_vllm.Scheduler, quire_vllm.AsyncScheduler)}[side]
    hasher = kv_cache_utils.get_request_block_hasher(vllm_dropin.BLOCK_SIZE, sha256)
    made = vllm_dropin.Side(kinds[is_async], hasher, num_requests, is_async)
    toggle = Toggle(made.scheduler, f"{folder}/{side}-{num_requests}-{is_async}")
    spent, lines, steps = {False: [], True: []}, [], 0
    before = thread_seconds()
    for seed in range(2 * rounds + 2):
        toggle.set(seed % 2 == 1)
        by_request, _ = made.round(seed // 2)
        steps += (seed % 2) * vllm_dropin.STEPS
        if seed > 1:  # the first two warm up
            spent[seed % 2 == 1].append(by_request * num_requests)
    time.sleep(1.5)
    thread = 1e6 * (thread_seconds() - before) / steps
    toggle.time_lines()
    for seed in range(rounds):
        toggle.set(True)
        toggle.lines = 0.0
        made.round(seed)
        lines.append(1e6 * toggle.lines / (vllm_dropin.STEPS + 4))  # with its adds and ends
    show(f"{side}, {'async ' if is_async else ''}{num_requests}", spent[False], spent[True], lines,
         thread, GPU_STEP_US)


class Engine:
    """Rounds of requests through an engine in this process."""

    def __init__(self, given, folder):
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/vllm"))
        import engine_work
        from engine_side import engine_of

        config = engine_work.Config("record", {"num_gpu_blocks_override": 400, "block_size": 16,
                                               "max_num_seqs": ENGINE_REQUESTS})
        self.engine, core = engine_of(config, given.scheduler, str(given.model), folder)
        self.toggle = Toggle(core.scheduler, f"{folder}/engine")
        self.count = 0

    def round(self):
        """Microseconds by step."""
        from vllm import SamplingParams

        for i in range(ENGINE_REQUESTS):
            self.count += 1
            prompt = {"prompt_token_ids": [2 + (self.count * 7 + k) % 500 for k in range(40)]}
            self.engine.add_request(f"r{self.count}", prompt, SamplingParams(
                temperature=0.0, max_tokens=ENGINE_TOKENS, ignore_eos=True, detokenize=False))
        start, steps = time.perf_counter(), 0
        while self.engine.has_unfinished_requests():
            self.engine.step()
            steps += 1
        return 1e6 * (time.perf_counter() - start) / steps, steps


def serve(given, folder):
    engine = Engine(given, folder)
    spent, lines, steps = {False: [], True: []}, [], 0
    before = thread_seconds()
    for i in range(2 * given.rounds + 2):
        engine.toggle.set(i % 2 == 1)
        by_step, count = engine.round()
        steps += (i % 2) * count
        if i > 1:
            spent[i % 2 == 1].append(by_step)
    thread = 1e6 * (thread_seconds() - before) / steps
    engine.toggle.time_lines()
    engine.toggle.set(True)
    for _ in range(given.rounds):
        engine.toggle.lines = 0.0
        _, count = engine.round()
        lines.append(1e6 * engine.toggle.lines / count)
    show(f"engine, {given.scheduler}, {ENGINE_REQUESTS}", spent[False], spent[True], lines, thread)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, nargs="*", default=[16, 256])
    parser.add_argument("--platform", help="a module that lets vLLM run without a GPU")
    parser.add_argument("--engine", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scheduler", choices=("vllm", "quire"), default="vllm")
    given = parser.parse_args()
    if given.platform:
        importlib.import_module(given.platform)
    print(f"{'':26} {'without, µs a step':34} {'recorded':34}     more  share", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if given.engine:
            serve(given, folder)
            return
        for side in ("vllm", "quire"):
            for num_requests in given.requests:
                for is_async in (False, True):
                    decode(side, num_requests, is_async, given.rounds, folder)


if __name__ == "__main__":
    main()
