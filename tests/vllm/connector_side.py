"""One engine of the connector test: vLLM in this process, with or without QuireConnector.

    python connector_side.py '{"scheduler": "vllm", "connector": {"host_bytes": ...} or null, ...}'

Prints RESULT and a line of JSON: the tokens and log probabilities of all requests, prompt tokens that
were found by tier, the counters of the connector, and the time of the steps. Weights are made up, and
large enough that each token depends on all tokens before it.
"""
import json
import os
import random
import signal
import sys
import tempfile
import time

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_DISABLE_REQUEST_ID_RANDOMIZATION="1",
                  VLLM_CPU_KVCACHE_SPACE="1", OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false", VLLM_NO_USAGE_STATS="1",
                  TORCHDYNAMO_DISABLE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import engine_models  # noqa: E402
from engine_side import SCHEDULERS  # noqa: E402

SIGNALS = {"stop": signal.SIGSTOP, "continue": signal.SIGCONT, "kill": signal.SIGKILL}


def make_weights(model):
    """Weights that mix all positions: those of load_format dummy are almost zero."""
    import zlib

    import torch

    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
            if weight.dim() < 2:
                weight.fill_(0.0 if "bias" in name or "gemma" in type(model).__name__.lower() else 1.0)
            else:
                scale = 1.6 / weight.shape[-1] ** 0.5
                weight.copy_(torch.randn(weight.shape, generator=generator) * scale)


def set_weights(worker):
    make_weights(worker.model_runner.model)


def engine_of(order, scratch):
    import torch
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    more = {}
    if order["connector"] is not None:
        more["kv_transfer_config"] = KVTransferConfig(
            kv_connector="QuireConnector", kv_connector_module_path="quire.vllm",
            kv_role="kv_both", kv_load_failure_policy="recompute",
            kv_connector_extra_config=order["connector"])
    if order.get("window"):
        more["disable_hybrid_kv_cache_manager"] = False
    if order.get("events"):
        from vllm.config import KVEventsConfig
        more["kv_events_config"] = KVEventsConfig(enable_kv_cache_events=True, publisher="null")
    is_async = bool(order.get("async"))
    config = EngineArgs(
        model=engine_models.prepare(order["model"], scratch, "window" if order.get("window") else ""),
        load_format="dummy", seed=0, dtype="float32", max_model_len=1024, enforce_eager=True,
        skip_tokenizer_init=True, block_size=order.get("block_size", 32),
        num_gpu_blocks_override=order["blocks"], max_num_seqs=order.get("max_num_seqs", 16),
        max_num_batched_tokens=order.get("max_num_batched_tokens", 512), disable_log_stats=False,
        tensor_parallel_size=order.get("tp", 1), async_scheduling=is_async,
        distributed_executor_backend="mp" if order.get("tp", 1) > 1 else "uni",
        scheduler_cls=SCHEDULERS[order["scheduler"]][is_async], **more).create_engine_config()
    if order.get("tp", 1) == 1:  # vLLM 0.20 has a worker process on a CPU; two processes that spin are slow on few cores
        config.parallel_config.distributed_executor_backend = "uni"
        torch.accelerator.synchronize = lambda *_: None  # vLLM 0.20 asks for a GPU at the end, where there is none
    from vllm.v1.executor.abstract import Executor
    engine = LLMEngine(config, Executor.get_class(config), log_stats=True, multiprocess_mode=False)
    engine.collective_rpc(set_weights)
    engine.reset_prefix_cache()
    return engine


def requests_of(order):
    """(prompt, params): shared prefixes of several lengths, with tails of their own."""
    made, numbers = [], random.Random(order["seed"])
    prefixes = [[numbers.randrange(2, 500) for _ in range(numbers.randrange(96, 420))]
                for _ in range(order.get("prefixes", 24))]
    for i in range(order["requests"]):
        prompt = list(numbers.choice(prefixes)) if numbers.random() < 0.9 else []
        prompt += [numbers.randrange(2, 500) for _ in range(numbers.randrange(4, 60))]
        made.append((prompt, numbers.randrange(4, order.get("output", 14)),
                     numbers.random() < order.get("aborts", 0.0), numbers.randrange(1, 12)))
    return made


class Run:
    def __init__(self, engine, order):
        self.engine, self.order = engine, order
        self.requests = requests_of(order)
        self.tokens, self.logprobs, self.found, self.aborted, self.steps = {}, {}, 0, [], 0
        self.seconds, self.longest = 0.0, 0.0
        self.acts = sorted(order.get("acts", ()), key=lambda act: act["at"])

    def add(self, i):
        from vllm import SamplingParams

        prompt, output, _, _ = self.requests[i]
        params = SamplingParams(temperature=0.0, max_tokens=output, min_tokens=output, logprobs=2,
                                ignore_eos=True, detokenize=False)
        self.engine.add_request(str(i), {"prompt_token_ids": prompt}, params)

    def act(self, done):
        """What happens when so many requests are done."""
        while self.acts and done >= self.acts[0]["at"]:
            act = self.acts.pop(0)
            if act["do"] in SIGNALS:
                os.kill(act["pid"], SIGNALS[act["do"]])
            elif act["do"] == "corrupt":
                corrupt(act["path"])
            elif act["do"] == "reset":
                self.engine.reset_prefix_cache(reset_connector=True)
            elif act["do"] == "reset_running":
                try:
                    self.engine.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
                except RuntimeError:  # a request waits for its load: again in the next step
                    self.acts.insert(0, act)
                    return
            elif act["do"] == "sleep":
                time.sleep(act["seconds"])

    def take(self, outputs):
        for output in outputs:
            sample = output.outputs[0]
            if sample.logprobs:
                self.logprobs[output.request_id] = [
                    sorted((round(v.logprob, 4) for v in place.values()), reverse=True)[:2]
                    for place in sample.logprobs]
            self.tokens[output.request_id] = list(sample.token_ids)
            if output.finished:
                self.found += output.num_cached_tokens or 0
                self.running.discard(output.request_id)

    def go(self):
        self.running, at, aborts = set(), 0, {}
        count = len(self.requests)
        while at < count or self.running:
            while at < count and len(self.running) < self.order.get("at_once", 24):
                self.add(at)
                self.running.add(str(at))
                if self.requests[at][2]:
                    aborts.setdefault(self.steps + self.requests[at][3], []).append(str(at))
                at += 1
            for name in aborts.pop(self.steps, ()):
                if name in self.running:
                    self.engine.abort_request([name])
                    self.running.discard(name)
                    self.aborted.append(name)
            begin = time.perf_counter()
            self.take(self.engine.step())
            passed = time.perf_counter() - begin
            self.seconds += passed
            self.longest = max(self.longest, passed)
            self.steps += 1
            self.act((at - len(self.running)) / count)
            if self.steps % 50 == 0 and self.order.get("progress"):
                print(f"PROGRESS {at - len(self.running)}", flush=True)


def corrupt(path):
    """A byte in each of many pages of a file, or of each file in a folder."""
    numbers = random.Random(1)
    paths = [path] if os.path.isfile(path) else [
        os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    for each in paths:
        size = os.path.getsize(each)
        with open(each, "r+b") as file:
            for offset in range(1 << 16, size, 1 << 14):
                file.seek(offset + numbers.randrange(1 << 13))
                old = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([old[0] ^ 0x41]) if old else b"")


def drain(engine):
    """Steps until nothing of the connector is in flight, and until a step counts nothing new: vLLM has
    told all of its counters then."""
    connector = engine.engine_core.engine_core.scheduler.connector
    before = None
    for i in range(200):
        engine.add_request(f"drain{i}", {"prompt_token_ids": [5, 6, 7]},
                           __import__("vllm").SamplingParams(max_tokens=1, detokenize=False))
        while engine.has_unfinished_requests():
            engine.step()
        if connector is None:
            return
        counted = connector._scheduler.planner.stats()["tiers"]
        if counted == before and not connector._scheduler.planner.has_pending():
            return
        before = counted
        time.sleep(0.02)


def counters(engine):
    connector = engine.engine_core.engine_core.scheduler.connector
    if connector is None:
        return {}
    planner = connector._scheduler.planner
    planner.check()
    return planner.stats()


def told(engine):
    """What the scheduler half has given to vLLM, as metrics() has it."""
    connector = engine.engine_core.engine_core.scheduler.connector
    return {} if connector is None else dict(connector._scheduler._counted._last)


def metrics():
    """vLLM's Prometheus metrics of the connector: {"name|tier": value}."""
    from prometheus_client import REGISTRY

    return {f"{sample.name[11:-6]}|{sample.labels['tier']}": sample.value
            for metric in REGISTRY.collect() for sample in metric.samples
            if sample.name.startswith("vllm:quire_") and sample.name.endswith("_total")}


def count_events(engine):
    """What the connector tells of each medium; unknown: removed, but never told as stored; bare: stored
    without tokens."""
    connector = engine.engine_core.engine_core.scheduler.connector
    counts, there, inner = {}, {}, connector.take_events

    def take_events():
        events = list(inner())
        for event in events:
            count = counts.setdefault(event.medium, {"stored": 0, "removed": 0, "unknown": 0, "bare": 0})
            known, hashes = there.setdefault(event.medium, set()), set(event.block_hashes)
            if hasattr(event, "token_ids"):
                count["stored"] += len(hashes)
                count["bare"] += 0 if event.token_ids else len(hashes)
                known |= hashes
            else:
                count["removed"] += len(hashes)
                count["unknown"] += len(hashes - known)
                known -= hashes
        return events
    connector.take_events = take_events
    return counts


def free_blocks(engine):
    """vLLM's blocks without users, when all requests have ended."""
    pool = engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
    return pool.get_num_free_blocks()


def main():
    order = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        engine = engine_of(order, scratch)
        events = count_events(engine) if order.get("events") and order["connector"] else {}
        run = Run(engine, order)
        begin = time.perf_counter()
        run.go()
        wall = time.perf_counter() - begin
        drain(engine)
        scheduler = engine.engine_core.engine_core.scheduler
        report = {"tokens": run.tokens, "logprobs": run.logprobs, "found": run.found,
                  "aborted": run.aborted, "steps": run.steps, "wall_s": wall,
                  "longest_s": run.longest, "free": free_blocks(engine), "blocks": order["blocks"],
                  "scheduler": f"{type(scheduler).__module__}", "counters": counters(engine),
                  "told": told(engine), "metrics": metrics(), "events": events}
        engine.engine_core.shutdown()
    print("RESULT " + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
