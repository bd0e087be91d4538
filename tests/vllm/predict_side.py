"""The engine of tests/vllm/predict: two workloads by turns through one vLLM engine, each recorded.

    python predict_side.py '{"model": ..., "folder": ..., "seconds": S, "turns": N, "async": false,
                             "clock": "real" or FILE, "seed": S}'

A turn of workload a, then one of workload b, and so on: what else the machine does meets both alike.
A turn ends when the engine has nothing left.
"""
import ctypes
import json
import os
import random
import sys
import time

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1",
                  OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", VLLM_LOGGING_LEVEL="ERROR",
                  TOKENIZERS_PARALLELISM="false", VLLM_NO_USAGE_STATS="1", TORCHDYNAMO_DISABLE="1",
                  NUMBA_CPU_NAME="generic")

# Requests a second; the middle of the tokens of prompts behind a shared prefix, and of outputs.
WORKLOADS = {"a": {"rate": 8.0, "prompt": 110, "output": 33},
             "b": {"rate": 4.0, "prompt": 270, "output": 70}}
PREFIX, PREFIXES, SHARE, BLOCKS = 128, 4, 0.4, 8192


class Workload:
    def __init__(self, name, seed):
        self.name, self.draw, self.given, self.count = name, random.Random(seed), WORKLOADS[name], 0
        self.prefixes = [[self.draw.randrange(2, 500) for _ in range(PREFIX)]
                         for _ in range(PREFIXES)]

    def add(self, engine, arrival):
        from vllm import SamplingParams

        draw = self.draw
        own = min(1400, max(8, round(self.given["prompt"] * draw.lognormvariate(0, 0.6))))
        tokens = min(400, max(2, round(self.given["output"] * draw.lognormvariate(0, 0.5))))
        prompt = draw.choice(self.prefixes) if draw.random() < SHARE else []
        prompt = prompt + [draw.randrange(2, 500) for _ in range(own)]
        self.count += 1
        engine.add_request(f"{self.name}{self.count}", {"prompt_token_ids": prompt},
                           SamplingParams(temperature=0, max_tokens=tokens, min_tokens=tokens,
                                          ignore_eos=True), arrival_time=arrival)


def make_engine(given):
    import vllm
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine
    from vllm.v1.executor.uniproc_executor import UniProcExecutor

    block_size = 32 if vllm.__version__.startswith("0.32") else 16
    config = EngineArgs(model=given["model"], load_format="dummy", seed=0, dtype="float32",
                        max_model_len=2048, enforce_eager=True, skip_tokenizer_init=True,
                        distributed_executor_backend=UniProcExecutor, block_size=block_size,
                        max_num_seqs=64, max_num_batched_tokens=512,
                        num_gpu_blocks_override=BLOCKS,
                        async_scheduling=given["async"]).create_engine_config()
    return LLMEngine(config, UniProcExecutor, log_stats=False, multiprocess_mode=False)


def own_clock():
    """What waits on the clock of predict_clock.c."""
    clock = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
    clock.predict_skip.argtypes = [ctypes.c_int64]
    return lambda seconds: clock.predict_skip(int(seconds * 1e9))


def serve(engine, workload, seconds, wait):
    """Requests arrive at their times, whatever the engine does."""
    due = time.time()
    end = due + seconds
    while due < end or engine.has_unfinished_requests():
        while due < end and time.time() >= due:
            workload.add(engine, due)
            due += workload.draw.expovariate(workload.given["rate"])
        if engine.has_unfinished_requests():
            engine.step()
        elif due < end:
            wait(max(0.0, due - time.time()))


def load_clock(path):
    """Begins anew with the clock, beside what the interpreter has loaded already."""
    loaded = os.environ.get("LD_PRELOAD", "")
    if path not in loaded:
        os.environ["LD_PRELOAD"] = ":".join(filter(None, (path, loaded)))
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main(given):
    if given["clock"] != "real":
        load_clock(given["clock"])
    from quire.vllm import record
    from vllm.multimodal import MULTIMODAL_REGISTRY

    wait = own_clock() if given["clock"] != "real" else time.sleep
    engine = make_engine(given)
    serve(engine, Workload("b", given["seed"] + 9), 5, wait)  # nothing of it is recorded
    engine.reset_prefix_cache()
    scheduler = engine.engine_core.engine_core.scheduler
    record.attach(scheduler, os.path.join(given["folder"], "a"), {})
    first = scheduler._recording
    second = record.Recording(scheduler, os.path.join(given["folder"], "b"), first.hash_block_size,
                              MULTIMODAL_REGISTRY)
    both = [(Workload("a", given["seed"]), first), (Workload("b", given["seed"] + 1), second)]
    for _ in range(given["turns"]):
        for workload, recording in both:
            scheduler._recording = recording
            serve(engine, workload, given["seconds"] / given["turns"], wait)
    for workload, recording in both:
        print("RESULT " + json.dumps({"name": workload.name, "requests": workload.count,
                                      "path": recording.recorder.path}), flush=True)
        recording.close()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
