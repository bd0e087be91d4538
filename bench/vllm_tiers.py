"""QuireConnector beside vLLM's OffloadingConnector and SimpleCPUOffloadConnector: whole engines on one GPU.

    python bench/vllm_tiers.py --model FOLDER [--connectors none,quire,...] [--tokens] [--json FILE]
    python bench/vllm_tiers.py --cpu --model FOLDER --connectors none,quire --host-gib 0.1 --kv-gib 0.01 --prefixes 24 \\
        --prefix-tokens 256 --output 16 --concurrency 4 --rounds 2 --fits-pairs 2 --fits-requests 8

FOLDER has a config.json; weights are made up. Each connector has an engine in a process of its own. All engines are
started at once; one of them runs a round while the others idle, in alternating order.

    short     shared prefixes, larger together than the engine's cache, in host memory since the first round; --concurrency
              requests are in flight. Each round visits every prefix twice, and begins with an empty cache of the engine.
    fits      requests that all fit into the engine's cache, so that a connector only costs. ITL: the mean of each request
    tokens    --tokens: are the tokens those of an engine without a connector? In float32, at most 4 layers, with weights
              that make each token depend on its context. tie: the best two tokens are equal to 0.002

The exit status is 1 if a target is missed, 2 if an engine fails. With --cpu only the target of the tokens is checked.
"""
import argparse
import contextlib
import json
import math
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from vllm_tiers_engine import CONNECTORS

TARGETS = (  # workload, engine, beside this engine, at least this ratio of tokens/s (median of the rounds)
    ("short", "quire", "offloading", 1.0),
    ("short", "quire", "simple", 1.0),
    ("fits", "quire", "none", 0.995),
)
WRONG_TOKENS = 0  # requests whose tokens differ from those without a connector, and not in a tie
TIE = 2e-3
FITS = {"workload": "fits", "prefixes": 8, "prefix_tokens": 384, "tail": 96, "output": 96}
TOKENS = {"workload": "short", "prefixes": 16, "prefix_tokens": 1024, "tail": 40, "output": 32, "has_gaps": True}
TOKENS_CACHE, TOKENS_LENGTH = 4096, 2048
START_S, ROUND_S = 900, 600


class Failure(Exception):
    """An engine that has failed, or a setup that measures nothing."""


class Side:
    """The engine of one connector, in a process of its own."""

    def __init__(self, order: dict, folder: str, program: str = "vllm_tiers_engine.py", **environment: str):
        self.name, self.log = order["name"], Path(folder) / f"{order['name']}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name(program)), json.dumps(order)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env={**os.environ, **environment})
        self.answers: queue.Queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def answer(self, seconds: int) -> dict:
        with contextlib.suppress(queue.Empty):
            if made := self.answers.get(timeout=seconds):
                return made
        log = self.log.read_text(errors="replace").splitlines()[-60:]
        raise Failure("\n".join([f"engine {self.name}: ended, or timeout after {seconds} s; the end of its log:", *log]))

    def run(self, round_: dict) -> dict:
        with contextlib.suppress(OSError):
            print(json.dumps(round_), file=self.process.stdin, flush=True)
        return self.answer(ROUND_S)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.process.stdin.close()

    def wait(self, seconds: int) -> None:
        """Waits so many seconds for the engine's end, then kills its processes."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


class Engines:
    """All engines of a run; they end with the block."""

    def __init__(self, options, folder: str, **more):
        order = {"model": options.model, "cpu": options.cpu, "vocabulary": options.config["vocab_size"],
                 "layers": options.config["num_hidden_layers"], "host_gib": options.host_gib, "kv_gib": options.kv_gib,
                 "is_context": False, **more}
        self.sides = {name: Side({**order, "name": name}, folder) for name in options.connectors}

    def __enter__(self):
        try:
            self.ready = {name: side.answer(START_S) for name, side in self.sides.items()}
        except BaseException:
            self.__exit__(True)
            raise
        return self

    def __exit__(self, failed, *_):
        for side in self.sides.values():
            side.stop()
        for side in self.sides.values():
            side.wait(0 if failed else 20)

    def measure(self, round_: dict, names: list[str], rounds: int, label: str) -> dict[str, list[dict]]:
        made: dict[str, list[dict]] = {name: [] for name in names}
        for number in range(rounds):
            for name in names[::-1] if number % 2 else names:
                made[name].append(self.sides[name].run({**round_, "seed": f"{label}-{number}"}))
                print(f"{label}, round {number + 1} of {rounds}: {name}, {made[name][-1]['tokens_per_s']:,.0f} tokens/s",
                      file=sys.stderr, flush=True)
        return made


def percentile(values: list[float], percent: int) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(len(values) * percent / 100))]


def ratio(made: dict[str, list[dict]], name: str, other: str) -> float:
    return statistics.median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(made[name], made[other]))


def compare(made: list[dict], reference: list[dict]) -> list[int]:
    """Requests with the same tokens, with a first difference in a tie of the reference, with other tokens."""
    counts = [0, 0, 0]
    for mine, base in zip(made, reference):
        for tokens, wanted, gaps in zip(mine["tokens"], base["tokens"], base["gaps"]):
            at = next((i for i, (a, b) in enumerate(zip(tokens, wanted)) if a != b), None)
            counts[0 if at is None else 1 if gaps and gaps[at] < TIE else 2] += 1
    return counts


def summarize(made: dict[str, list[dict]]) -> dict[str, dict]:
    rows = {}
    for name, rounds in made.items():
        times = {key: [ms for each in rounds for ms in each[key]] for key in ("ttft_ms", "itl_ms")}
        rows[name] = {"tokens_per_s": [each["tokens_per_s"] for each in rounds], "of_none": ratio(made, name, "none"),
                      **{f"{key}_p{percent}": percentile(values, percent)
                         for key, values in times.items() for percent in (50, 99)},
                      **{key: sum(each[key] for each in rounds) for key in ("prompt_tokens", "cached_tokens")},
                      "same_tie_wrong": compare(rounds, made["none"])}
    return rows


def show(title: str, rows: dict[str, dict]) -> None:
    table = [[title, "tokens/s", "of none", "TTFT p50/p99, ms", "ITL p50/p99, ms", "hits", "same tokens"]]
    for name, row in rows.items():
        speed, (same, tie, wrong) = row["tokens_per_s"], row["same_tie_wrong"]
        table.append([name, f"{statistics.median(speed):,.0f} [{min(speed):,.0f}..{max(speed):,.0f}]",
                      f"{row['of_none']:.4f}", f"{row['ttft_ms_p50']:.1f}/{row['ttft_ms_p99']:.1f}",
                      f"{row['itl_ms_p50']:.2f}/{row['itl_ms_p99']:.2f}",
                      f"{100 * row['cached_tokens'] / row['prompt_tokens']:.1f} %",
                      f"{same} of {same + tie + wrong}" + (f", {tie} tie" if tie else "")])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(flush=True)


def check_sizes(options, cache: int) -> None:
    """A workload that fits where it must not, or does not fit where it must, measures nothing."""
    prefixes, host = options.prefixes * options.prefix_tokens, int(cache * options.host_gib / options.kv_gib)
    fits = FITS["prefixes"] * FITS["prefix_tokens"] + options.fits_requests * (FITS["tail"] + FITS["output"])
    if options.rounds and not cache < prefixes <= host:
        raise Failure(f"short: the prefixes have {prefixes:,} tokens (expected: more than the engine's cache of {cache:,}, "
                      f"at most host memory, about {host:,}): change --kv-gib, --host-gib or --prefixes")
    if options.fits_pairs and fits > cache:
        raise Failure(f"fits: the requests have {fits:,} tokens (expected: at most the engine's cache of {cache:,}): "
                      "increase --kv-gib or decrease --fits-requests")


def measure_speed(options, folder: str) -> dict[str, dict[str, list[dict]]]:
    short = {"workload": "short", "prefix_seed": "short", "passes": 2, "prefixes": options.prefixes, "tail": options.tail,
             "prefix_tokens": options.prefix_tokens, "output": options.output, "concurrency": options.concurrency}
    fits = {**FITS, "requests": options.fits_requests}
    longest = max(sum(each[key] for key in ("prefix_tokens", "tail", "output")) for each in (short, fits))
    made = {}
    with Engines(options, folder, max_model_len=-(-longest // 256) * 256) as engines:
        ready = engines.ready["none"]
        print(f"vLLM {ready['vllm']}, {Path(options.model).name}; the engine's cache has {ready['cache_tokens']:,} tokens, "
              f"host memory {options.host_gib:g} GiB each\n", flush=True)
        check_sizes(options, ready["cache_tokens"])
        if options.rounds:
            engines.measure({**short, "passes": 1}, options.connectors, 1, "fill")
            made["short"] = engines.measure(short, options.connectors, options.rounds, "short")
        pair = [name for name in options.connectors if name == "none" or name.startswith("quire")]
        if options.fits_pairs:
            engines.measure(fits, pair, 1, "warm")
            made["fits"] = engines.measure(fits, pair, options.fits_pairs, "fits")
    return made


def measure_tokens(options, folder: str) -> dict[str, dict[str, list[dict]]]:
    tokens = {**TOKENS, "prefix_seed": "tokens", "passes": 2, "concurrency": 1}
    names, made = options.connectors, {}
    with Engines(options, folder, is_context=True, cache_tokens=TOKENS_CACHE, max_model_len=TOKENS_LENGTH,
                 kv_gib=1, host_gib=min(2, options.host_gib)) as engines:
        engines.measure({**tokens, "passes": 1}, names, 1, "fill")
        made["tokens, one request at a time"] = engines.measure(tokens, names, 2, "one")
        made["tokens, three at a time"] = engines.measure({**tokens, "concurrency": 3}, names, 1, "three")
    return made


def missed(options, made: dict[str, dict], rows: dict[str, dict]) -> list[str]:
    names = []
    for workload, name, other, least in () if options.cpu else TARGETS:
        if name in made.get(workload, ()) and other in made[workload]:
            reached = ratio(made[workload], name, other)
            if not (reached >= least if least < 1 else reached > least):
                names.append(f"{workload}: {name} has {reached:.4f} of {other}'s tokens/s (expected {least:g})")
    for title in rows:
        for name, row in rows[title].items():
            if title.startswith("tokens") and row["same_tie_wrong"][2] > WRONG_TOKENS:
                names.append(f"{title}: {row['same_tie_wrong'][2]} requests of {name} have wrong tokens")
            if title.startswith("tokens") and name != "none" and 2 * row["cached_tokens"] < row["prompt_tokens"]:
                names.append(f"{title}: {name} has found less than half of the prompts")
    return names


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="a folder with a config.json")
    parser.add_argument("--connectors", default=",".join(CONNECTORS), help="default: %(default)s; none is needed")
    parser.add_argument("--host-gib", type=float, default=24, help="host memory of each connector (default: %(default)s)")
    parser.add_argument("--kv-gib", type=float, default=7, help="KV cache of each engine (default: %(default)s)")
    for name, default, text in (("prefixes", 42, "short: shared prefixes"), ("prefix-tokens", 4096, "short: tokens of each"),
                                ("tail", 64, "short: tokens of each prompt after its prefix"),
                                ("output", 64, "short: tokens that each request makes"),
                                ("concurrency", 12, "short: requests in flight"), ("rounds", 8, "rounds of short; 0: skip it"),
                                ("fits-pairs", 16, "rounds of fits; 0: skip it"), ("fits-requests", 256, "fits: requests")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{text} (default: %(default)s)")
    parser.add_argument("--tokens", action="store_true", help="also compare tokens, in engines of their own")
    parser.add_argument("--json", metavar="FILE", help="write the figures into this file")
    parser.add_argument("--cpu", action="store_true", help="engines of vLLM's CPU build: to try the program without a GPU")
    options = parser.parse_args()
    options.connectors = options.connectors.split(",")
    for name in options.connectors:
        if name not in CONNECTORS:
            parser.error(f'invalid value "{name}" for --connectors (expected {", ".join(CONNECTORS)})')
    if "none" not in options.connectors:
        parser.error("--connectors needs none, with which the other engines are compared")
    for name in ("prefixes", "prefix_tokens", "tail", "output", "concurrency", "fits_requests", "host_gib", "kv_gib"):
        if getattr(options, name) <= 0:
            parser.error(f"invalid value for --{name.replace('_', '-')} (expected more than 0)")
    try:
        options.config = json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"--model {options.model}: {error}")
    return options


def main() -> int:
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the engines end too
    made, rows = {}, {}
    try:
        with tempfile.TemporaryDirectory() as folder:
            for measure, is_wanted in ((measure_speed, options.rounds or options.fits_pairs), (measure_tokens, options.tokens)):
                for title, each in measure(options, folder).items() if is_wanted else ():
                    made[title], rows[title] = each, summarize(each)
                    show(title, rows[title])
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    misses = missed(options, made, rows)
    for name in misses:
        print(f"target missed: {name}")
    if options.json:
        Path(options.json).write_text(json.dumps({"workloads": rows, "missed": misses}, indent=1), encoding="ascii")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
