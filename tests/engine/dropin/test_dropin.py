#!/usr/bin/env python3
"""The drop-in's step outputs drive the reference engine: do its block ids hold the right bytes?

    tests/engine/dropin/test_dropin.py ENGINE_STEPS [--site FOLDER] [--requests N] [--record FOLDER]

    quire.vllm.Scheduler ── SchedulerOutput ──► engine_steps: paged forward pass, every bit compared
            ▲                                        │
            └────── ModelRunnerOutput ◄── sampled tokens

Requests, configuration, step outputs and model outputs are vLLM 0.20.0's own objects. The pool is so
small that requests are preempted, prompts share their beginnings and come in chunks. QUIRE_VLLM_PYTHON
is a Python that has vLLM 0.20.0, QUIRE_VLLM_PLATFORM a file to run first where there is no GPU, --site
a folder with the package quire where that Python has none. What is missing is said, and the test is
skipped (77).
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

SEED = 11
VOCABULARY = 256
MAX_LEN = 192
BLOCK_SIZE = 8
NUM_BLOCKS = 72
MAX_TOKENS = 64
MAX_SEQS = 16
BREAK_AT = 40  # a step in the middle
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
         "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": MAX_LEN}


class Engine:
    """An engine_steps process that is told steps and answers tokens."""

    def __init__(self, program, num_requests, record):
        self.process = subprocess.Popen([program, "--record", record], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.tell("model", SEED, VOCABULARY, MAX_LEN, BLOCK_SIZE, NUM_BLOCKS, MAX_TOKENS, MAX_SEQS,
                  num_requests)

    def tell(self, word, *numbers):
        self.process.stdin.write(" ".join(map(str, (word, *numbers))) + "\n")

    def tell_step(self, output):
        """Names are numbers: a step of vLLM, line by line."""
        scheduled = output.num_scheduled_tokens
        for word, names in (("preempted", output.preempted_req_ids),
                            ("finished", output.finished_req_ids)):
            if names:
                self.tell(word, *sorted(names, key=int))
        for new in output.scheduled_new_reqs:
            self.tell("new", new.req_id, new.num_computed_tokens, scheduled[new.req_id],
                      len(new.prompt_token_ids), *new.prompt_token_ids, *new.block_ids[0])
        cached = output.scheduled_cached_reqs
        for name, blocks, computed in zip(cached.req_ids, cached.new_block_ids,
                                          cached.num_computed_tokens):
            self.tell("resumed" if name in cached.resumed_req_ids else "run", name, computed,
                      scheduled[name], *(blocks[0] if blocks else ()))

    def go(self, output):
        """The step's sampled tokens, by name."""
        self.tell_step(output)
        self.tell("go")
        self.process.stdin.flush()
        word, *numbers = self.process.stdout.readline().split() or ["nothing"]
        if word != "tokens":
            sys.exit(f"engine_steps ended with {self.process.wait()}")
        return dict(zip(numbers[::2], map(int, numbers[1::2])))

    def end(self):
        """Exit status and counts."""
        self.tell("end")
        text, _ = self.process.communicate()
        return self.process.returncode, read_counts(text)


def read_counts(text):
    lines = [line.split() for line in text.splitlines()]
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def make_config(folder, is_async):
    from vllm.config import CacheConfig, ModelConfig, SchedulerConfig, VllmConfig

    (Path(folder) / "config.json").write_text(json.dumps(MODEL))
    config = VllmConfig(
        model_config=ModelConfig(model=folder, dtype="float32", skip_tokenizer_init=True,
                                 max_model_len=MAX_LEN),
        scheduler_config=SchedulerConfig.default_factory(
            max_num_seqs=MAX_SEQS, max_num_batched_tokens=MAX_TOKENS, max_model_len=MAX_LEN,
            enable_chunked_prefill=True, async_scheduling=is_async),
        cache_config=CacheConfig(block_size=BLOCK_SIZE, enable_prefix_caching=True))
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    return config


def make_scheduler(kind, config):
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    layers = FullAttentionSpec(block_size=BLOCK_SIZE, num_kv_heads=2, head_size=8,
                               dtype=torch.float32)
    return kind(vllm_config=config, log_stats=True, block_size=BLOCK_SIZE,
                kv_cache_config=KVCacheConfig(NUM_BLOCKS, [], [KVCacheGroupSpec(["layer"], layers)]),
                structured_output_manager=StructuredOutputManager(config))


def make_requests(count, hasher):
    """Four system prompts, of which each request has one or none; some end with a token."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    draw = random.Random(SEED)

    def words(least, most):
        return [draw.randrange(VOCABULARY) for _ in range(draw.randint(least, most))]

    systems = [words(20, 60) for _ in range(4)] + [[]]
    requests = []
    for i in range(count):
        stops = [draw.randrange(VOCABULARY) for _ in range(4)] if i % 3 == 0 else []
        given = SamplingParams(max_tokens=draw.randint(1, 70), stop_token_ids=stops)
        given.update_from_generation_config({}, None)
        requests.append(Request(str(i), draw.choice(systems) + words(1, 50), given, None,
                                arrival_time=float(i), block_hasher=hasher))
    return requests


def run(scheduler, requests, engine, is_async):
    """Requests come a few at a time, until all have ended. Asynchronous: one step is in flight.

    Returns how many parts of steps sampled nothing, and all sampled tokens by request.
    """
    from vllm.v1.outputs import ModelRunnerOutput

    waiting, flights, num_chunks = list(requests), [], 0
    answers = {request.request_id: [] for request in requests}
    for _ in range(100 * len(requests)):
        for request in waiting[:4]:
            scheduler.add_request(request)
        del waiting[:4]
        if not (waiting or flights or scheduler.has_requests()):
            return num_chunks, answers
        output = scheduler.schedule()
        sampled = engine.go(output)
        for name, token in sampled.items():
            answers[name].append(token)
        names = list(output.num_scheduled_tokens)
        num_chunks += len(names) - len(sampled)
        tokens = [[sampled[name]] if name in sampled else [] for name in names]
        flights.append((output, ModelRunnerOutput(
            names, {name: i for i, name in enumerate(names)}, tokens)))
        while flights and (not is_async or len(flights) == 2 or not names):
            scheduler.update_from_output(*flights.pop(0))
    sys.exit("FAILED: requests do not come to an end")


def replay(program, record, *options):
    done = subprocess.run([program, "--replay", record, *options], stdout=subprocess.PIPE,
                          text=True, check=False)
    return done.returncode, read_counts(done.stdout)


def check(name, is_good, problems):
    if not is_good:
        problems.append(name)


def drive(kind, is_async, given, folder):
    """One scheduler, from the first request to the last. Returns what is wrong."""
    from vllm.utils.hashing import sha256

    import quire.vllm as ours

    hasher = ours.get_request_block_hasher(BLOCK_SIZE, sha256)
    requests = make_requests(given.requests, hasher)
    scheduler = make_scheduler(kind, make_config(folder, is_async))
    record = str(Path(given.record or folder) / f"{kind.__name__}.steps")
    engine = Engine(given.program, len(requests), record)
    num_chunks, answers = run(scheduler, requests, engine, is_async)
    status, counts = engine.end()
    print(f"{kind.__name__}: {num_chunks} chunks;", ", ".join(f"{v} {k}" for k, v in counts.items()))
    problems = []
    check("bits differ", status == 0 and counts["differing"] == 0, problems)
    check("not all requests ran", counts["requests"] == len(requests), problems)
    check("logits were not compared", counts["compared"] > 0, problems)
    check("nobody was preempted", counts["preempted"] > 0 and counts["resumed"] > 0, problems)
    check("no prefix was found", counts["hit_tokens"] > 0, problems)
    check("no prompt came in chunks", num_chunks > 0, problems)
    # A token that was in flight when its request ended is the engine's alone.
    check("requests have other tokens than were sampled", all(
        answers[request.request_id][:request.num_output_tokens] == list(request.output_token_ids)
        and len(answers[request.request_id]) - request.num_output_tokens <= int(is_async)
        and request.is_finished() for request in requests), problems)
    status, counts = replay(given.program, record)
    check("the recording gives something else", status == 0, problems)
    status, counts = replay(given.program, record, "--break", str(BREAK_AT))
    print(f"  with one wrong block id: {counts.get('differing', 0)} of {counts.get('compared', 0)} differ")
    check("a wrong block id is not found",
          status == 1 and counts["broken"] == 1 and counts["differing"] > 0, problems)
    return [f"{kind.__name__}: {problem}" for problem in problems]


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def enter_vllm(site):
    """Into the Python that has vLLM, with the package on its path; and its platform."""
    python, platform = os.environ.get("QUIRE_VLLM_PYTHON"), os.environ.get("QUIRE_VLLM_PLATFORM")
    if not python:
        skip("QUIRE_VLLM_PYTHON names no Python that has vLLM 0.20.0")
    if "QUIRE_DROPIN_ENTERED" not in os.environ:
        path = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
        os.execve(python, [python, *sys.argv],
                  {**os.environ, "PYTHONPATH": path, "QUIRE_DROPIN_ENTERED": "1"})
    for name in ("vllm", "quire"):
        if importlib.util.find_spec(name) is None:
            skip(f"{python} has no package {name}")
    if platform:
        sys.path.insert(0, os.path.dirname(platform))
        importlib.import_module(os.path.basename(platform).removesuffix(".py"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="engine_steps")
    parser.add_argument("--site", help="folder that has the package quire")
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--record", help="folder for the recordings; default: none are kept")
    given = parser.parse_args()
    enter_vllm(given.site)
    from vllm.utils.hashing import sha256
    from vllm.v1.core import kv_cache_utils

    import quire.vllm as ours

    kv_cache_utils.init_none_hash(sha256)
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, is_async in ((ours.Scheduler, False), (ours.AsyncScheduler, True)):
            problems += drive(kind, is_async, given, folder)
    print("\n".join(problems) if problems else "every bit is the same")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
