"""One side of the engine comparison: a whole vLLM engine, in this process, with a given scheduler.

    python engine_side.py '{"side": ..., "model": ..., "configs": [...], "requests": N, "seed": S}'

vLLM is imported once; each configuration runs in a process forked from this one and prints a line
of JSON: digests of tokens and steps, preemptions, tokens found in the cache, and the time that the
scheduler took. What would differ between two runs of vLLM itself is pinned: names of requests,
arrival times, threads, grammars compiled on the side, and when an asynchronous step counts as done.
"""
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_DISABLE_REQUEST_ID_RANDOMIZATION="1",
                  VLLM_CPU_KVCACHE_SPACE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                  VLLM_LOGGING_LEVEL="ERROR", TOKENIZERS_PARALLELISM="false",
                  VLLM_NO_USAGE_STATS="1", TORCHDYNAMO_DISABLE="1",
                  # numba compiles the n-gram search for the processor that the machine names; a
                  # virtual machine may lack some of its instructions.
                  NUMBA_CPU_NAME="generic")

import engine_models  # noqa: E402
import engine_work  # noqa: E402

SCHEDULERS = {"vllm": {False: "vllm.v1.core.sched.scheduler.Scheduler",
                       True: "vllm.v1.core.sched.async_scheduler.AsyncScheduler"},
              "quire": {False: "quire.vllm.Scheduler", True: "quire.vllm.AsyncScheduler"}}


class Watch:
    """Wraps the scheduler's two calls: their time on the processor, and a digest of every step."""

    def __init__(self, scheduler):
        self.seconds, self.steps, self.tokens = 0.0, 0, 0
        self.digest = hashlib.sha256()
        self.schedule, self.update = scheduler.schedule, scheduler.update_from_output
        scheduler.schedule, scheduler.update_from_output = self.timed_schedule, self.timed_update

    def timed_schedule(self, *given):
        begin = time.thread_time()
        made = self.schedule(*given)
        self.seconds += time.thread_time() - begin
        self.steps += 1
        self.tokens += made.total_num_scheduled_tokens
        cached = made.scheduled_cached_reqs
        seen = [list(made.num_scheduled_tokens.items()), made.scheduled_spec_decode_tokens,
                sorted(made.finished_req_ids), cached.req_ids, cached.new_block_ids,
                cached.num_computed_tokens,
                [(new.req_id, new.block_ids, new.num_computed_tokens)
                 for new in made.scheduled_new_reqs]]
        self.digest.update(repr(seen).encode())
        return made

    def timed_update(self, step, computed):
        begin = time.thread_time()
        made = self.update(step, computed)
        self.seconds += time.thread_time() - begin
        return made


def engine_of(config, side, model, scratch):
    """The engine, in this process."""
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    from engine_pins import PINS

    model = engine_models.prepare(model, scratch, config.needs)
    is_async = config.needs == "streams"
    given = dict(config.engine)
    if vllm.__version__.startswith("0.32."):  # whose attention on a CPU wants larger blocks
        given["block_size"] = 2 * engine_work.BLOCK
    vllm_config = EngineArgs(
        model=model, load_format="dummy", seed=0, dtype="float32", max_model_len=1024,
        enforce_eager=True, skip_tokenizer_init=config.needs != "tokenizer",
        distributed_executor_backend=UniProcExecutor, disable_log_stats=False,
        scheduler_cls=SCHEDULERS[side][is_async], **given).create_engine_config()
    executor = UniProcExecutor
    if config.needs in PINS:
        executor = PINS[config.needs](vllm_config)
    engine = LLMEngine(vllm_config, executor, log_stats=True, multiprocess_mode=False)
    core = engine.engine_core.engine_core
    core.structured_output_manager._use_async_grammar_compilation = False
    return engine, core


def params_of(given):
    from vllm import SamplingParams
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    given = dict(given)
    bad = given.pop("bad_words_ids", None)
    grammar = given.pop("grammar", None)
    if "repetition_detection" in given:
        given["repetition_detection"] = RepetitionDetectionParams(**given["repetition_detection"])
    if grammar is not None:
        given["structured_outputs"] = StructuredOutputsParams(**engine_models.GRAMMARS[grammar])
    params = SamplingParams(**given)
    if bad is not None:
        params._bad_words_token_ids = bad
    return params


class Run:
    """Requests through an engine, step by step."""

    def __init__(self, engine, arrivals, scratch):
        self.engine, self.arrivals, self.scratch = engine, arrivals, scratch
        self.tokens, self.found, self.preempted, self.reasons = {}, 0, 0, {}

    def add(self, arrival):
        lora = None
        if arrival.adapter:
            from vllm.lora.request import LoRARequest
            lora = LoRARequest(f"a{arrival.adapter}", arrival.adapter,
                               engine_models.adapter(self.scratch, arrival.adapter))
        prompt = {"prompt_token_ids": arrival.prompt}
        if arrival.salt is not None:
            prompt["cache_salt"] = arrival.salt
        self.engine.add_request(arrival.name, prompt, params_of(arrival.params),
                                arrival_time=float(arrival.step), lora_request=lora,
                                priority=arrival.priority)

    def take(self, outputs):
        for output in outputs:
            logprobs = None
            for sample in output.outputs:
                key = f"{output.request_id}/{sample.index}"
                if sample.logprobs:
                    logprobs = [{token: round(value.logprob, 5) for token, value in place.items()}
                                for place in sample.logprobs]
                self.tokens[key] = (list(sample.token_ids), sample.finish_reason,
                                    sample.stop_reason, logprobs)
                self.reasons[key] = sample.finish_reason
            if output.finished:
                self.found += output.num_cached_tokens or 0

    def go(self):
        waiting, step = self.arrivals[::-1], 0
        aborts = {}
        for arrival in self.arrivals:
            if arrival.abort_step is not None:
                aborts.setdefault(arrival.abort_step, []).append(arrival.name)
        while waiting or self.engine.has_unfinished_requests():
            while waiting and waiting[-1].step <= step:
                self.add(waiting.pop())
            if step in aborts:
                self.engine.abort_request(aborts[step])
            if self.engine.has_unfinished_requests():
                self.take(self.engine.step())
            step += 1


def count_preemptions(scheduler, run):
    """Requests that a step takes back: they come again as resumed, or end before."""
    inner = scheduler.schedule

    def schedule(*given):
        made = inner(*given)
        run.preempted += len(made.preempted_req_ids or ())
        return made

    scheduler.schedule = schedule


def measure(config, given, scratch):
    arrivals = engine_work.arrivals(config, given["requests"], given["seed"])
    engine, core = engine_of(config, given["side"], given["model"], scratch)
    run = Run(engine, arrivals, scratch)
    watch = Watch(core.scheduler)
    count_preemptions(core.scheduler, run)
    begin = time.perf_counter()
    run.go()
    reasons = {}
    for reason in run.reasons.values():
        reasons[str(reason)] = reasons.get(str(reason), 0) + 1
    kind = type(core.scheduler)
    return {"scheduler": f"{kind.__module__}.{kind.__qualname__}", "requests": len(arrivals),
            "sequences": len(run.tokens), "steps": watch.steps,
            "output_tokens": sum(len(tokens[0]) for tokens in run.tokens.values()),
            "digest": hashlib.sha256(json.dumps(run.tokens, sort_keys=True).encode()).hexdigest(),
            "step_digest": watch.digest.hexdigest(), "preemptions": run.preempted,
            "found": run.found, "reasons": reasons, "scheduler_s": watch.seconds,
            "wall_s": time.perf_counter() - begin,
            "tokens": {key: value[:2] for key, value in run.tokens.items()}}


def child(config, given):
    """In a process of its own: engines leave much behind."""
    report = {"config": config.name, "side": given["side"]}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            report.update(measure(config, given, scratch))
    except Exception as error:  # the driver shows it
        traceback.print_exc()
        report["error"] = f"{type(error).__name__}: {error}"[:400]
    print("RESULT " + json.dumps(report), flush=True)


def main():
    given = json.loads(sys.argv[1])
    import vllm  # noqa: F401
    import vllm.v1.engine.llm_engine  # noqa: F401
    import vllm.v1.worker.gpu_model_runner  # noqa: F401
    for name in given["configs"]:
        (config,) = (c for c in engine_work.CONFIGS if c.name == name)
        number = os.fork()
        if number == 0:
            child(config, given)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(number, 0)
        if os.WIFSIGNALED(status):
            report = {"config": name, "side": given["side"],
                      "error": f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"}
            print("RESULT " + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
