"""One engine of bench/vllm_tiers.py: AsyncLLM, the engine of `vllm serve`, in a process with its EngineCore beside it.

    python bench/vllm_tiers_engine.py ORDER          # ORDER: the engine, as JSON; vllm_tiers.py starts this program

Each line of standard input is a round, as JSON; each line of standard output is its answer. Standard error has
the logs. All times are those of the client: of the outputs that AsyncLLM returns, and of its requests' statistics.
"""
import asyncio
import importlib.metadata
import json
import os
import random
import sys
import time

GIB = 1 << 30
CONNECTORS = {  # name: (vLLM's name, option with the bytes of host memory)
    "none": None, "quire": ("QuireConnector", "host_bytes"), "quire+scheduler": ("QuireConnector", "host_bytes"),
    "offloading": ("OffloadingConnector", "cpu_bytes_to_use"), "simple": ("SimpleCPUOffloadConnector", "cpu_bytes_to_use")}
GRAPH_SIZES = [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]


def set_environment(order: dict) -> None:
    root = os.environ.get("VLLM_CACHE_ROOT", os.path.expanduser("~/.cache/vllm"))
    os.environ.update(VLLM_ALLOW_INSECURE_SERIALIZATION="1", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1",
                      TOKENIZERS_PARALLELISM="false", VLLM_CACHE_ROOT=os.path.join(root, f"tiers-{order['name']}"))
    os.environ.setdefault("PYTHONHASHSEED", "0")  # vLLM 0.20: the same block hashes in each engine
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.pop("QUIRE_VLLM", None)
    if order["cpu"]:
        os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")
    if order["name"] == "quire+scheduler":
        if not importlib.metadata.entry_points(group="vllm.general_plugins", name="quire"):
            raise RuntimeError("vLLM's plugin quire is not found: install the package quire")
        os.environ["QUIRE_VLLM"] = "1"


def engine_arguments(order: dict):
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import AsyncEngineArgs

    more = {}
    if CONNECTORS[order["name"]]:
        connector, option = CONNECTORS[order["name"]]
        transfer = {"kv_connector": connector, "kv_role": "kv_both",
                    "kv_connector_extra_config": {option: int(order["host_gib"] * GIB)}}
        if connector == "QuireConnector":
            transfer.update(kv_connector_module_path="quire.vllm", kv_load_failure_policy="recompute")
        more["kv_transfer_config"] = KVTransferConfig(**transfer)
    more.update(block_size=32 if order["cpu"] else 16, max_num_batched_tokens=2048 if order["cpu"] else 8192)
    if order["is_context"] or order["cpu"]:
        more.update(dtype="float32", enforce_eager=True)
    else:
        more.update(dtype="bfloat16", compilation_config={"cudagraph_capture_sizes": GRAPH_SIZES})
    if order["is_context"]:
        more.update(hf_overrides={"num_hidden_layers": min(4, order["layers"])},
                    num_gpu_blocks_override=order["cache_tokens"] // more["block_size"])
    return AsyncEngineArgs(
        model=order["model"], load_format="dummy", skip_tokenizer_init=True, seed=0, max_num_seqs=256,
        max_model_len=order["max_model_len"], enable_prefix_caching=True, prefix_caching_hash_algo="sha256",
        gpu_memory_utilization=0.05, kv_cache_memory_bytes=int(order["kv_gib"] * GIB),
        async_scheduling=not order["cpu"], disable_log_stats=False, **more)


def make_weights(model) -> int:
    """With vLLM's dummy weights, which are almost zero, tokens hardly depend on the context. With these weights they do."""
    import torch

    for number, (name, weight) in enumerate(sorted(model.named_parameters())):
        generator = torch.Generator(device=weight.device).manual_seed(1000 + number)
        if weight.dim() == 1:
            weight.data.fill_(1.0)
        else:
            scale = 1.0 if "embed" in name else 1.5 / weight.shape[-1] ** 0.5
            weight.data.copy_(scale * torch.randn(weight.shape, generator=generator, device=weight.device))
    return 1


class Request:
    """One request: when it began, when each output came, and what came."""

    def __init__(self, name: str, prompt: list[int], round_: dict, is_streamed: bool):
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.name, self.prompt = name, prompt
        self.params = SamplingParams(
            temperature=0.0, max_tokens=round_["output"], min_tokens=round_["output"], ignore_eos=True,
            detokenize=False, logprobs=2 if round_.get("has_gaps") else None,
            output_kind=RequestOutputKind.DELTA if is_streamed else RequestOutputKind.FINAL_ONLY)
        self.times, self.tokens, self.gaps, self.cached, self.stats = [], [], [], 0, None

    async def run(self, engine) -> None:
        self.begin = time.monotonic()
        async for made in engine.generate({"prompt_token_ids": self.prompt}, self.params, self.name):
            self.times.append(time.monotonic())
            new = made.outputs[0].token_ids
            self.tokens += new
            if self.params.logprobs and new:
                for place in list(made.outputs[0].logprobs)[-len(new):]:
                    best = sorted((each.logprob for each in place.values()), reverse=True)
                    self.gaps.append(best[0] - best[1])
            self.cached = max(self.cached, made.num_cached_tokens or 0)
            self.stats = made.metrics


class Engine:
    def __init__(self, order: dict):
        from vllm.v1.engine.async_llm import AsyncLLM

        self.engine = AsyncLLM.from_engine_args(engine_arguments(order))
        self.vocabulary, self.small = order["vocabulary"], 0

    def tokens(self, seed: str, count: int) -> list[int]:
        return random.Random(seed).choices(range(10, self.vocabulary - 10), k=count)

    async def reset(self) -> None:
        """Empties the engine's cache; host memory keeps its blocks. Blocks of a transfer in flight are freed only in
        a step, and an idle engine makes none: a small request makes one."""
        for _ in range(100):
            if await self.engine.reset_prefix_cache():
                return
            await asyncio.sleep(0.01)
            self.small += 1
            await Request(f"small-{self.small}", [11, 12, 13, 14], {"output": 2}, False).run(self.engine)
        raise RuntimeError("the prefix cache cannot be reset: its blocks are in use")

    def prompts(self, round_: dict, order: list[int]) -> list[list[int]]:
        seed = round_.get("prefix_seed", round_["seed"])  # without one, the prefixes are new in each round
        prefixes = [self.tokens(f"{seed}/prefix-{i}", round_["prefix_tokens"]) for i in range(round_["prefixes"])]
        return [prefixes[at] + self.tokens(f"{round_['seed']}/{i}", round_["tail"]) for i, at in enumerate(order)]

    async def short(self, round_: dict) -> dict:
        """A fixed number of requests is in flight; each pass visits all prefixes, in an order of its own."""
        numbers, order = random.Random(round_["seed"]), []
        for _ in range(round_["passes"]):
            order += numbers.sample(range(round_["prefixes"]), round_["prefixes"])
        requests = [Request(f"{round_['seed']}-{i}", prompt, round_, True)
                    for i, prompt in enumerate(self.prompts(round_, order))]
        await self.reset()
        todo = iter(requests)

        async def client() -> None:
            for request in todo:
                await request.run(self.engine)

        begin = time.monotonic()
        await asyncio.gather(*(client() for _ in range(round_["concurrency"])))
        return self.answer(requests, begin, [1e3 * (each.times[0] - each.begin) for each in requests],
                           [1e3 * (b - a) for each in requests for a, b in zip(each.times, each.times[1:])])

    async def fits(self, round_: dict) -> dict:
        """All requests wait in a paused engine, and begin together: each round has the same steps. With outputs that
        are not streamed, the client costs little; the times are of vLLM's statistics of each request."""
        order = [i % round_["prefixes"] for i in range(round_["requests"])]
        requests = [Request(f"{round_['seed']}-{i}", prompt, round_, False)
                    for i, prompt in enumerate(self.prompts(round_, order))]
        await self.reset()
        await self.engine.pause_generation(mode="keep", clear_cache=False)
        tasks = [asyncio.create_task(request.run(self.engine)) for request in requests]
        while self.engine.output_processor.get_num_unfinished_requests() < len(requests):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        begin = time.monotonic()
        await self.engine.resume_generation()
        await asyncio.gather(*tasks)
        stats = [(each.stats.first_token_ts, each.stats.last_token_ts) for each in requests]
        return self.answer(requests, begin, [1e3 * (first - begin) for first, _ in stats],
                           [1e3 * (last - first) / (round_["output"] - 1) for first, last in stats])

    def answer(self, requests: list[Request], begin: float, ttft_ms: list[float], itl_ms: list[float]) -> dict:
        seconds = max(each.times[-1] for each in requests) - begin
        return {"tokens_per_s": sum(len(each.tokens) for each in requests) / seconds, "ttft_ms": ttft_ms,
                "itl_ms": itl_ms, "prompt_tokens": sum(len(each.prompt) for each in requests),
                "cached_tokens": sum(each.cached for each in requests),
                "tokens": [each.tokens for each in requests], "gaps": [each.gaps for each in requests]}


async def serve(order: dict, answers) -> None:
    import vllm

    side = Engine(order)
    if order["is_context"]:
        from vllm_tiers_engine import make_weights as function  # the worker finds it in the module, not in __main__
        await side.engine.collective_rpc("apply_model", args=(function,))
    cache = side.engine.vllm_config.cache_config
    print(json.dumps({"vllm": vllm.__version__, "cache_tokens": cache.num_gpu_blocks * cache.block_size}), file=answers)
    lines = iter(sys.stdin.readline, "")
    while line := await asyncio.get_running_loop().run_in_executor(None, next, lines, None):
        round_ = json.loads(line)
        print(json.dumps(await getattr(side, round_["workload"])(round_)), file=answers)
    side.engine.shutdown()


def main() -> None:
    order = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM prints is no answer
    set_environment(order)
    asyncio.run(serve(order, answers))


if __name__ == "__main__":
    main()
