"""What QUIRE_RECORD costs: schedule + update_from_output with the recorder and without.

    python bench/vllm_record.py --rounds 9 [--platform MODULE]
    python bench/vllm_record.py --engine --model FOLDER [--scheduler quire]

Without --engine: decoding requests in a scheduler alone, as in bench/vllm_dropin.py. With --engine: a whole
engine of vLLM's CPU build with 16 running requests; FOLDER is the model `tiny` of tests/vllm/engine.
One scheduler, in alternating rounds with its recorded class and with its own. Rows: median (fastest ..
slowest) in microseconds of processor time by step, the difference of the medians, and its share: of 10 ms
without --engine, else of the step. `inside`: the time of the recorder's calls alone, with those for
requests that are added and end.
"""
import argparse
import importlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

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
            start = time.thread_time()
            inner(scheduler, line, *given)
            self.lines += time.thread_time() - start

        self.timed = timed

    def set(self, is_recorded):
        self.scheduler.__class__ = self.recorded if is_recorded else self.own

    def time_lines(self):
        self.recorded._record = self.timed


def column(values):
    return f"{statistics.median(values):9.1f} ({min(values):.1f} .. {max(values):.1f})"


def show(name, without, recorded, whole=None, lines=None):
    whole = whole or statistics.median(without)
    more = statistics.median(recorded) - statistics.median(without)
    text = f"{name:26} {column(without):32} {column(recorded):32} {more:+8.1f} {100 * more / whole:+6.2f} %"
    if lines:
        inside = statistics.median(lines)
        text += f"   inside {inside:.1f} ({100 * inside / whole:.2f} %)"
    print(text, flush=True)


def decode(side, num_requests, is_async, rounds, folder):
    import vllm_dropin
    from quire import vllm as quire_vllm

    vllm_dropin.time = SimpleNamespace(perf_counter=time.thread_time)
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    kv_cache_utils.init_none_hash(sha256)
    kinds = {"vllm": (Scheduler, AsyncScheduler),
             "quire": (quire_vllm.Scheduler, quire_vllm.AsyncScheduler)}[side]
    hasher = kv_cache_utils.get_request_block_hasher(vllm_dropin.BLOCK_SIZE, sha256)
    made = vllm_dropin.Side(kinds[is_async], hasher, num_requests, is_async)
    made.scheduler.vllm_config.model_config.model = "none"  # the config of a benchmark has no name
    toggle = Toggle(made.scheduler, f"{folder}/{side}-{num_requests}-{is_async}")
    spent = {False: [], True: []}
    for seed in range(2 * rounds + 2):
        toggle.set(seed % 2 == 1)
        by_request, _ = made.round(seed // 2)
        if seed > 1:  # the first two warm up
            spent[seed % 2 == 1].append(by_request * num_requests)
    show(f"{side}, {'async ' if is_async else ''}{num_requests}", spent[False], spent[True], GPU_STEP_US)


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
        start, steps = time.process_time(), 0
        while self.engine.has_unfinished_requests():
            self.engine.step()
            steps += 1
        return 1e6 * (time.process_time() - start) / steps, steps


def serve(given, folder):
    engine = Engine(given, folder)
    spent, lines = {False: [], True: []}, []
    for i in range(2 * given.rounds + 2):
        engine.toggle.set(i % 2 == 1)
        by_step, _ = engine.round()
        if i > 1:
            spent[i % 2 == 1].append(by_step)
    engine.toggle.time_lines()
    engine.toggle.set(True)
    for _ in range(given.rounds):
        engine.toggle.lines = 0.0
        _, count = engine.round()
        lines.append(1e6 * engine.toggle.lines / count)
    show(f"engine, {given.scheduler}, {ENGINE_REQUESTS}", spent[False], spent[True], lines=lines)


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
    print(f"{'':26} {'without, µs a step':32} {'recorded':32}     more  share", flush=True)
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
