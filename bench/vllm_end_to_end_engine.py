"""One engine of bench/vllm_end_to_end.py: AsyncLLM, the engine of `vllm serve`, or `vllm serve` itself with HTTP clients.

    python bench/vllm_end_to_end_engine.py ORDER     # ORDER: the engine, as JSON; vllm_end_to_end.py starts this program

Each line of standard input is a round, as JSON; each line of standard output is its answer. Standard error has the logs.
"""
import asyncio
import contextlib
import hashlib
import importlib.metadata
import json
import os
import random
import socket
import subprocess
import sys
import time

from vllm_end_to_end_probe import BYTES, HEAD, SCHEDULE, UPDATE, open_rows, read_rows
from vllm_tiers_engine import GIB, Engine, Request

GRAPH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024]
SERVER_START_S = 600


def set_environment(order: dict) -> None:
    root = os.environ.get("VLLM_CACHE_ROOT", os.path.expanduser("~/.cache/vllm"))
    os.environ.update(VLLM_ALLOW_INSECURE_SERIALIZATION="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1",
                      TOKENIZERS_PARALLELISM="false", VLLM_SERVER_DEV_MODE="1", QUIRE_BENCH_ROWS=order["rows"],
                      VLLM_CACHE_ROOT=os.path.join(root, "end-to-end-" + order["name"].replace(" ", "-")))
    os.environ.setdefault("PYTHONHASHSEED", "0")  # vLLM 0.20: the same block hashes in each engine
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    for name in ("QUIRE_VLLM", "QUIRE_RECORD", "VLLM_PLUGINS"):
        os.environ.pop(name, None)
    if order["cpu"]:
        os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")
    if order["side"] == "plugin":
        if not importlib.metadata.entry_points(group="vllm.general_plugins", name="quire"):
            raise RuntimeError("vLLM's plugin quire is not found: install the package quire")
        os.environ["QUIRE_VLLM"] = "1"
    with open(order["rows"], "wb") as file:
        file.truncate(BYTES)


def arguments(order: dict) -> dict:
    """Arguments of the engine; the server has the same as options."""
    made = {"model": order["model"], "load_format": "dummy", "skip_tokenizer_init": True, "seed": 0,
            "max_num_seqs": 1024, "max_model_len": order["max_model_len"], "enable_prefix_caching": True,
            "prefix_caching_hash_algo": "sha256", "gpu_memory_utilization": 0.05,
            "kv_cache_memory_bytes": int(order["kv_gib"] * GIB), "async_scheduling": order["is_async"],
            "max_num_batched_tokens": 2048 if order["cpu"] else 8192}
    if order["side"] == "flag":
        made["scheduler_cls"] = f"quire.vllm.{'AsyncScheduler' if order['is_async'] else 'Scheduler'}"
    if order["cpu"]:
        made.update(dtype="float32", enforce_eager=True, block_size=32)
    else:
        made.update(dtype="bfloat16", compilation_config={"cudagraph_capture_sizes": GRAPH_SIZES})
    return made


class EndToEnd(Engine):
    """AsyncLLM, with its EngineCore in a process beside this one."""

    def __init__(self, order: dict):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(disable_log_stats=False, **arguments(order)))
        self.start(order)

    def start(self, order: dict) -> None:
        self.vocabulary, self.small = order["vocabulary"], 0
        self.rows, self.first = open_rows(order["rows"]), 0

    async def run(self, request: Request) -> None:
        await request.run(self.engine)

    async def run_together(self, requests: list[Request]) -> float:
        """All requests wait in a paused engine, and begin together: each engine has the same steps. When they began."""
        await self.engine.pause_generation(mode="keep", clear_cache=False)
        tasks = [asyncio.create_task(self.run(request)) for request in requests]
        while self.engine.output_processor.get_num_unfinished_requests() < len(requests):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        begin = time.monotonic()
        await self.engine.resume_generation()
        await asyncio.gather(*tasks)
        return begin

    async def weights(self, _: dict) -> dict:
        from vllm_tiers_engine import make_weights as function  # the worker finds it in the module, not in __main__
        await self.engine.collective_rpc("apply_model", args=(function,))
        return {"has_weights": True}

    # ---- workloads -----------------------------------------------------------------------------------------------------

    def prompt(self, round_: dict, i: int) -> list[int]:
        """Groups of eight requests share their first tokens."""
        shared = round_.get("shared", 0)
        return (self.tokens(f"{round_['seed']}/shared-{i // 8}", shared)
                + self.tokens(f"{round_['seed']}/{i}", round_["prompt"] - shared))

    async def batch(self, round_: dict) -> dict:
        """So many requests decode side by side; outputs are not streamed, so that the client costs little."""
        requests = [Request(f"{round_['seed']}-{i}", self.prompt(round_, i), round_, False) for i in range(round_["requests"])]
        await self.reset()
        self.mark()
        begin = await self.run_together(requests)
        core = self.core()
        first = [each.stats.first_token_ts if each.stats else each.times[0] for each in requests]
        return self.summary(requests, begin, [1e3 * (at - begin) for at in first], core["itl_ms"], core)

    async def long(self, round_: dict) -> dict:
        """Long prompts that share nothing, a fixed number of them in flight."""
        requests = [Request(f"{round_['seed']}-{i}", self.prompt(round_, i), round_, True) for i in range(round_["requests"])]
        todo = iter(requests)

        async def client() -> None:
            for request in todo:
                await self.run(request)

        await self.reset()
        self.mark()
        begin = time.monotonic()
        await asyncio.gather(*(client() for _ in range(round_["concurrency"])))
        return self.streamed(requests, begin)

    async def agents(self, round_: dict) -> dict:
        """Agents in groups with a common system prompt: each turn has all turns before it, a tool's result, and a pause."""
        systems = [self.tokens(f"{round_['seed']}/system-{i}", round_["system"]) for i in range(round_["groups"])]
        requests = []

        async def agent(i: int) -> None:
            numbers, history = random.Random(f"{round_['seed']}/agent-{i}"), list(systems[i % len(systems)])
            await asyncio.sleep(numbers.uniform(0, round_["ramp_s"]))
            for turn in range(round_["turns"]):
                seed = f"{round_['seed']}-{i}-{turn}"
                history = history + self.tokens(seed, numbers.randint(*round_["user"]))
                request = Request(seed, history, {"output": numbers.randint(*round_["answer"])}, True)
                requests.append(request)
                await self.run(request)
                history = history + request.tokens
                await asyncio.sleep(numbers.expovariate(1 / round_["pause_s"]))

        await self.reset()
        self.mark()
        begin = time.monotonic()
        await asyncio.gather(*(agent(i) for i in range(round_["agents"])))
        return self.streamed(sorted(requests, key=lambda each: each.name), begin)

    # ---- answers -------------------------------------------------------------------------------------------------------

    def mark(self) -> None:
        self.first = HEAD.unpack_from(self.rows)[0]

    def core(self) -> dict:
        """What the engine core did since the mark."""
        rows = read_rows(self.rows, self.first)
        if not rows:
            raise RuntimeError("the engine core tells nothing: its plugin for this measurement is not loaded")
        updates = [row for row in rows if row[0] == UPDATE and row[3]]
        return {"scheduler": HEAD.unpack_from(self.rows)[1].rstrip(b"\0").decode(),
                "steps": sum(row[0] == SCHEDULE and row[4] > 0 for row in rows),
                "scheduler_s": sum(row[2] - row[1] for row in rows), "core_s": rows[-1][2] - rows[0][1],
                "processor_s": rows[-1][5] - rows[0][5],
                "itl_ms": [1e3 * (b[2] - a[2]) for a, b in zip(updates, updates[1:]) for _ in range(int(b[3]))]}

    def streamed(self, requests: list[Request], begin: float) -> dict:
        return self.summary(requests, begin, [1e3 * (each.times[0] - each.begin) for each in requests],
                            [1e3 * (b - a) for each in requests for a, b in zip(each.times, each.times[1:])], self.core())

    def summary(self, requests: list[Request], begin: float, ttft_ms: list[float], itl_ms: list[float], core: dict) -> dict:
        seconds = max(each.times[-1] for each in requests) - begin
        made = sum(len(each.tokens) for each in requests)
        del core["itl_ms"]
        return {**core, "tokens_per_s": made / seconds, "output_tokens": made, "ttft_ms": ttft_ms, "itl_ms": itl_ms,
                "prompt_tokens": sum(len(each.prompt) for each in requests),
                "cached_tokens": sum(each.cached for each in requests),
                "distinct": len({token for each in requests for token in each.tokens}),
                "digests": [hashlib.sha256(json.dumps(each.tokens).encode()).hexdigest()[:12] for each in requests]}

    async def stop(self) -> None:
        self.engine.shutdown()


class Served(EndToEnd):
    """`vllm serve` in a process of its own, and clients that send token ids by HTTP and read a stream of events."""

    def __init__(self, order: dict):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{found.getsockname()[1]}"
        options = ["--host", "127.0.0.1", "--port", self.url.rpartition(":")[2], "--served-model-name", "model",
                   "--enable-prompt-tokens-details", "--uvicorn-log-level", "warning"]
        given = arguments(order)
        model = given.pop("model")
        for name, value in given.items():
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                options.append(flag if value else f"--no-{flag[2:]}")
            else:
                options += [flag, json.dumps(value) if isinstance(value, dict) else str(value)]
        self.server = subprocess.Popen([sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model, *options])
        self.start(order)

    async def open(self) -> None:
        import aiohttp

        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=2),
                                             timeout=aiohttp.ClientTimeout(total=None))
        end = time.monotonic() + SERVER_START_S
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with self.session.get(f"{self.url}/health") as answer:
                    if answer.status == 200:
                        return
            if self.server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"vllm serve: exit status {self.server.poll()} before it answered")
            await asyncio.sleep(0.2)

    async def reset(self) -> None:
        async with self.session.post(f"{self.url}/reset_prefix_cache") as answer:
            answer.raise_for_status()

    async def run(self, request: Request) -> None:
        body = {"model": "model", "prompt": request.prompt, "max_tokens": request.params.max_tokens,
                "min_tokens": request.params.max_tokens, "ignore_eos": True, "temperature": 0, "stream": True,
                "return_token_ids": True, "stream_options": {"include_usage": True}}
        request.begin = time.monotonic()
        async with self.session.post(f"{self.url}/v1/completions", json=body) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {(await answer.text())[:500]}")
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise RuntimeError(str(event["error"])[:500])
                if event["choices"] and event["choices"][0].get("token_ids"):
                    request.times.append(time.monotonic())
                    request.tokens += event["choices"][0]["token_ids"]
                if event.get("usage") and event["usage"].get("prompt_tokens_details"):
                    request.cached = event["usage"]["prompt_tokens_details"].get("cached_tokens") or 0

    async def run_together(self, requests: list[Request]) -> float:
        begin = time.monotonic()
        await asyncio.gather(*(self.run(request) for request in requests))
        return begin

    async def stop(self) -> None:
        await self.session.close()
        self.server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.server.wait(10)  # vllm_end_to_end.py kills the whole group afterwards


async def serve(order: dict, answers) -> None:
    import vllm

    side = Served(order) if order["is_http"] else EndToEnd(order)
    try:
        if order["is_http"]:
            await side.open()
        print(json.dumps({"vllm": vllm.__version__}), file=answers)
        lines = iter(sys.stdin.readline, "")
        while line := await asyncio.get_running_loop().run_in_executor(None, next, lines, None):
            round_ = json.loads(line)
            print(json.dumps(await getattr(side, round_["kind"])(round_)), file=answers)
    finally:
        await side.stop()


def main() -> None:
    order = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints is no answer
    set_environment(order)
    asyncio.run(serve(order, answers))


if __name__ == "__main__":
    main()
