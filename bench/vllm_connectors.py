"""QuireConnector beside vLLM's OffloadingConnector and SimpleCPUOffloadConnector: their scheduler halves.

    PYTHONPATH=build/python/site PYTHON bench/vllm_connectors.py [--platform FILE] [--rounds 5] [--json FILE]
    PYTHONPATH=build/python/site CPU_PYTHON bench/vllm_connectors.py --model FOLDER     # only "idle"

PYTHON has vLLM 0.20.0 or 0.32.0; each release is a run of its own. Every connector runs under vLLM's own
Scheduler, in this process, on the same requests, in alternating rounds; copies take --delay steps
(vllm_halves.py says what stands for the GPU). Request objects and block hashes are made before the clock
starts. Time is that inside of the connector's scheduler-side calls: processor time, and wall in brackets.

    hits      requests with shared prefixes, more of them than host memory holds
    waiting   prompts that wait, all in host memory, and a pool that has room for some of them
    shared    requests on one prefix that is only in host memory (vLLM issue 44294)
    idle      steps of a CPU engine that has nothing to load: with QuireConnector, with a connector that
              does nothing (what vLLM itself does for any connector), and without. CPU_PYTHON has a CPU
              build of vLLM, FOLDER a small model (its config.json is enough).

The exit status is 1 if a target is missed, on a quiet machine.
"""
import argparse
import gc
import json
import os
import random
import runpy
import statistics
import sys

sys.dont_write_bytecode = True
from vllm_cache import BLOCK_SIZE  # noqa: E402
from vllm_halves import NONE, OFFLOADING, QUIRE, SIMPLE, STEP_MS, TOKEN_MS, Engine  # noqa: E402

TIMES_LESS = 20.0  # waiting: time in the connector, of each other one by Quire's
IDLE_OVERHEAD = 0.01  # of the steps, inside of the connector's calls
CONNECTORS = (OFFLOADING, SIMPLE, QUIRE)
VOCABULARY = 128_000


class Misses:
    """The targets that were missed."""

    def __init__(self):
        self.names: list[str] = []

    def check(self, name: str, is_met: bool) -> str:
        if not is_met:
            self.names.append(name)
        return "ok" if is_met else "MISSED"


def spread(values: list[float], digits: int = 1) -> str:
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} .. {max(values):,.{digits}f})"


def table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))).rstrip())
    print(flush=True)


# ---- requests ----------------------------------------------------------------------------------


class Maker:
    """Makes requests; ids of tokens are shared objects, so that long prompts are small."""

    def __init__(self):
        from vllm.utils.hashing import sha256
        from vllm.v1.core import kv_cache_utils

        kv_cache_utils.init_none_hash(sha256)
        self.hasher = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, sha256)
        numbers = random.Random(1)
        self.tokens = [numbers.randrange(VOCABULARY) for _ in range(1 << 17)]

    def prompt(self, number: int, count: int) -> list[int]:
        """Unlike all others from its first block on."""
        return [number, *self.tokens[1:count]]

    def request(self, name: str, prompt: list[int], output: int):
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=output, ignore_eos=True)
        return Request(name, prompt, params, None, block_hasher=self.hasher)


def freeze() -> None:
    """As vLLM's engine core does."""
    gc.collect()
    gc.freeze()


# ---- hits --------------------------------------------------------------------------------------

HITS = {"requests": 600, "prefixes": 48, "at_once": 24, "pool": 3000, "slots": 9000}


def hits_of(maker: Maker, name: str, delay: int, seed: int) -> dict:
    """A seeded stream; a new request for each that ends."""
    numbers = random.Random(seed)
    prefixes = [maker.prompt(1000 + i, numbers.randrange(1000, 8000)) for i in range(HITS["prefixes"])]
    requests = []
    for i in range(HITS["requests"]):
        prefix = prefixes[min(int(numbers.expovariate(3 / len(prefixes))), len(prefixes) - 1)]
        tail = [numbers.randrange(VOCABULARY) for _ in range(numbers.randrange(16, 500))]
        requests.append(maker.request(f"r{i}", prefix + tail, numbers.randrange(8, 64)))
    engine = Engine(name, HITS["pool"], HITS["slots"], 9000, 16, 2048, delay)
    freeze()
    prompts = sum(request.num_prompt_tokens for request in requests)
    while requests or engine.scheduler.has_unfinished_requests():
        while requests and len(engine.scheduler.requests) < HITS["at_once"]:
            engine.add(requests.pop(0))
        engine.turn()
    found = {"prompt_tokens": prompts, "found": engine.hits.found, "external": engine.hits.external,
             "computed": engine.computed, "turns": engine.turns, "cpu": engine.half.cpu,
             "wall": engine.half.wall}
    engine.close()
    return found


def hits(maker: Maker, options, misses: Misses) -> dict:
    rounds = {name: [] for name in CONNECTORS}
    for seed in range(options.rounds):
        for name in CONNECTORS:
            rounds[name].append(hits_of(maker, name, options.delay, seed))
    print(f"hits: {HITS['requests']} requests on {HITS['prefixes']} prefixes, pool {HITS['pool']} blocks, "
          f"host memory {HITS['slots']}; tokens, means of {options.rounds} seeds")
    rows = [["", "of prompts", "found", "external", "computed", "connector, ms", ""]]
    means = {name: {key: statistics.mean(each[key] for each in made) for key in made[0]}
             for name, made in rounds.items()}
    for name, mean in means.items():
        verdict = ""
        if name == QUIRE:
            verdict = misses.check("hits", all(mean["found"] >= other["found"]
                                               for other in means.values()))
        rows.append([name, *(f"{mean[key]:,.0f}" for key in ("prompt_tokens", "found", "external",
                                                             "computed")),
                     spread([1e3 * each["cpu"] for each in rounds[name]]), verdict])
    table(rows)
    return means


# ---- waiting -----------------------------------------------------------------------------------


class Waiting:
    """One engine whose host memory has all prompts."""

    def __init__(self, maker: Maker, name: str, options):
        count, tokens = options.prompts, options.prompt_tokens
        blocks = tokens // BLOCK_SIZE
        self.maker, self.options = maker, options
        pool = options.fit * (blocks + 4) + 1
        self.engine = Engine(name, pool, count * blocks + 64, tokens + 64, 256, 8192, options.delay)
        for i in range(count):  # one after the other: each is stored whole
            self.engine.add(maker.request(f"first{i}", maker.prompt(i, tokens), 1))
            self.engine.finish()
            self.engine.turn()
        self.engine.drain()

    def round(self, number: int) -> dict:
        options, engine = self.options, self.engine
        requests = [self.maker.request(f"{number}-{i}", self.maker.prompt(i, options.prompt_tokens),
                                       options.output) for i in range(options.prompts)]
        freeze()
        engine.reset_counts()
        for request in requests:
            engine.add(request)
        engine.finish()
        made = {"cpu": engine.half.cpu, "wall": engine.half.wall, "all": engine.all.cpu,
                "turns": engine.turns, "external": engine.hits.external, "computed": engine.computed}
        engine.drain()
        gc.unfreeze()
        return made


def waiting(maker: Maker, options, misses: Misses) -> dict:
    sides = {name: Waiting(maker, name, options) for name in CONNECTORS}
    rounds = {name: [] for name in CONNECTORS}
    for number in range(options.rounds):
        for name, side in sides.items():
            rounds[name].append(side.round(number))
    print(f"waiting: {options.prompts} prompts of {options.prompt_tokens:,} tokens, all in host memory, "
          f"pool for {options.fit}; {options.output} tokens each, a copy takes {options.delay} steps")
    rows = [["", "in the connector, ms", "wall, ms", "us a step", "steps", "schedule + update, ms",
             "external", "times Quire's", ""]]
    ours = statistics.median(each["cpu"] for each in rounds[QUIRE])
    for name, made in rounds.items():
        cpu = [each["cpu"] for each in made]
        ratio = statistics.median(cpu) / ours
        verdict = "" if name == QUIRE else misses.check(f"waiting, {name}", ratio >= TIMES_LESS)
        last = made[-1]
        rows.append([name, spread([1e3 * x for x in cpu]), spread([1e3 * each["wall"] for each in made]),
                     f"{1e6 * statistics.median(cpu) / last['turns']:,.1f}", f"{last['turns']:,}",
                     spread([1e3 * each["all"] for each in made]), f"{last['external']:,}",
                     f"{ratio:.1f}", verdict])
    table(rows)
    for side in sides.values():
        side.engine.close()
    return rounds


# ---- shared ------------------------------------------------------------------------------------

# Issue 44294: 10,000 tokens of 144 KiB take 60 ms at 25 GB/s: so many steps that compute nothing.
SHARED_DELAY = 12


def shared_of(maker: Maker, name: str, options) -> dict:
    """The prefix is stored, leaves the engine, and many requests ask for it at once."""
    tokens = options.shared_tokens
    blocks = tokens // BLOCK_SIZE
    engine = Engine(name, 8 * blocks + options.sharers * 20, 2 * blocks + 64, tokens + 400, 256, 8192,
                    SHARED_DELAY)
    prefix = maker.prompt(5, tokens)
    engine.add(maker.request("first", prefix, 2))
    engine.finish()
    engine.drain()
    requests = [maker.request(f"r{i}", [*prefix, *maker.prompt(2000 + i, 100)], 32)
                for i in range(options.sharers)]
    engine.reset_counts()
    for request in requests:
        engine.add(request)
    engine.finish()
    steps, ms = zip(*engine.first.values())
    engine.close()
    return {"loads": engine.hits.loads, "loaded_tokens": engine.hits.external,
            "computed": engine.computed, "most_steps": max(steps), "mean_ms": statistics.mean(ms),
            "most_ms": max(ms)}


def shared(maker: Maker, options, misses: Misses) -> dict:
    made = {name: shared_of(maker, name, options) for name in (NONE, *CONNECTORS)}
    print(f"shared: {options.sharers} requests on one prefix of {options.shared_tokens:,} tokens, only in "
          f"host memory, a load takes {SHARED_DELAY} steps;\nwait for the first token in steps, and in ms "
          f"if a step takes {STEP_MS} ms and {TOKEN_MS} ms for each token")
    rows = [["", "loads", "tokens loaded", "tokens computed", "steps", "mean wait, ms", "longest, ms", ""]]
    for name, each in made.items():
        verdict = ""
        if name == QUIRE:
            verdict = misses.check("shared", each["loads"] == 1 and all(
                each[key] <= made[NONE][key] for key in ("mean_ms", "most_ms")))
        rows.append([name, str(each["loads"]), f"{each['loaded_tokens']:,}", f"{each['computed']:,}",
                     str(each["most_steps"]), f"{each['mean_ms']:.0f}", f"{each['most_ms']:.0f}", verdict])
    table(rows)
    return made


# ---- idle --------------------------------------------------------------------------------------


def idle(options, misses: Misses) -> dict:
    """Without a Maker: vLLM runs in other processes."""
    import vllm_idle

    made = vllm_idle.measure(options.model, options.rounds)
    print(f"idle: steps of a CPU engine, {vllm_idle.REQUESTS} requests decode; medians of "
          f"{options.rounds} rounds")
    rows = [["", "a step, us", "processor, us", "times null", "inside, us", "% of a step", "% of all", ""]]
    base = statistics.median(each[0] for each in made["null"])
    for name, rounds in made.items():
        wall, cpu, inside = ([1e6 * each[i] for each in rounds] for i in range(3))
        ratio = statistics.median(wall) / 1e6 / base
        row = [vllm_idle.SIDES[name], spread(wall, 0), spread(cpu, 0), f"{ratio:.3f}", "", "", "", ""]
        if name == "quire":
            share, whole = ([100 * each[i] for each in rounds] for i in (3, 4))
            row[4:] = [spread(inside, 1), spread(share, 2), spread(whole, 2),
                       misses.check("idle", statistics.median(share) <= 100 * IDLE_OVERHEAD)]
        rows.append(row)
    table(rows)
    return made


# ---- the program -------------------------------------------------------------------------------

SCENARIOS = {"hits": hits, "waiting": waiting, "shared": shared}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", help="a Python file to run before vLLM is imported")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--delay", type=int, default=2, help="steps that a copy takes")
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--prompt-tokens", type=int, default=32_768)
    parser.add_argument("--fit", type=int, default=16, help="prompts that the pool has room for")
    parser.add_argument("--output", type=int, default=16, help="tokens of each waiting request")
    parser.add_argument("--sharers", type=int, default=50)
    parser.add_argument("--shared-tokens", type=int, default=10_000)
    parser.add_argument("--model", help='a model folder: measure "idle" instead')
    parser.add_argument("--json", help="write the figures into this file")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    if options.platform:
        runpy.run_path(options.platform)
    from vllm import __version__

    print(f"vLLM {__version__}, {options.rounds} rounds: median (least .. most)\n")
    misses, figures = Misses(), {"vllm": __version__}
    if options.model:
        figures["idle"] = idle(options, misses)
    else:
        maker = Maker()
        for name in options.only:
            figures[name] = SCENARIOS[name](maker, options, misses)
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(figures, file, indent=1)
    for name in misses.names:
        print(f"target missed: {name}")
    return 1 if misses.names else 0


if __name__ == "__main__":
    sys.exit(main())
