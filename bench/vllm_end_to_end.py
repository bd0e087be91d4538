"""What vLLM's users gain by Quire's scheduler: whole engines, one workload after the other, with Quire and without.

    python bench/vllm_end_to_end.py --model FOLDER [--sides vllm,plugin,flag] [--modes sync,async] [--rounds N] [--json FILE]
    python bench/vllm_end_to_end.py --model FOLDER --http --workloads decode-256,agents
    python bench/vllm_end_to_end.py --cpu --model FOLDER            # engines of vLLM's CPU build, small workloads

FOLDER has a config.json; weights are made up. An engine for each side and mode is in a process of its own; one of them
runs a round while the others idle, in alternating order.

    vllm      vLLM's own scheduler
    plugin    Quire, by QUIRE_VLLM=1: scheduler and block hasher
    flag      Quire, by --scheduler-cls quire.vllm.Scheduler, or AsyncScheduler: the scheduler alone

    decode-N  N requests decode side by side. They wait in the engine, and begin together
    agents    agents in groups with a common system prompt: turns with all turns before, tools' results, pauses
    long      long prompts that share nothing
    tokens    as decode, with weights that make each token depend on its context, with shared prefixes, and a cache that
              is too small for all: are the tokens the same? With --http the batches differ, so there is none

    tokens/s      output tokens by the client's time; x: beside vLLM's scheduler in the same mode, median of the rounds' ratios
    TTFT, ITL     time to first token, inter-token latency: of the client; for decode and tokens ITL is that of the engine core
    scheduler     schedule + update_from_output of each step; share: of the engine core's time
    processor     processor seconds of the engine core's process, by 1,000 output tokens

The exit status is 1 if tokens differ or a target is missed, 2 if an engine fails.
"""
import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path

from vllm_tiers import START_S, Failure, Side, percentile

SIDES = {"vllm": "vllm.v1.core.sched.", "plugin": "quire.vllm.", "flag": "quire.vllm."}  # where the scheduler's class is
WORKLOADS = {
    "decode-64": {"kind": "batch", "requests": 64, "prompt": 64, "output": 256},
    "decode-256": {"kind": "batch", "requests": 256, "prompt": 64, "output": 256},
    "decode-1024": {"kind": "batch", "requests": 1024, "prompt": 64, "output": 256},
    "agents": {"kind": "agents", "agents": 192, "groups": 8, "system": 2048, "turns": 3, "user": [64, 384],
               "answer": [32, 96], "pause_s": 0.3, "ramp_s": 2.0},
    "long": {"kind": "long", "requests": 24, "prompt": 16384, "output": 32, "concurrency": 8},
    "tokens": {"kind": "batch", "requests": 1024, "prompt": 320, "shared": 128, "output": 192},
}
SMALL = {"decode-64": {"output": 32}, "decode-256": {"output": 16}, "decode-1024": {"output": 8},
         "agents": {"agents": 16, "groups": 4, "system": 256, "user": [16, 64], "answer": [8, 16], "pause_s": 0.1, "ramp_s": 0.5},
         "long": {"requests": 8, "prompt": 2048, "output": 8, "concurrency": 4},
         "tokens": {"prompt": 96, "shared": 32, "output": 24}}
WARM = {"batch": {"output": 4}, "agents": {"agents": 8, "turns": 1}, "long": {"requests": 4, "output": 4}}  # not measured
MAX_MODEL_LEN = {False: 16640, True: 2304}
LEAST = 0.99  # of the tokens/s of vLLM's scheduler, in each workload


def plugin_folder(folder: Path) -> str:
    """vLLM finds plugins by the metadata of packages: a folder with those of vllm_end_to_end_probe.py."""
    made = folder / "site" / "quire_bench_probe-1.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: quire-bench-probe\nVersion: 1\n", encoding="ascii")
    (made / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nquire_bench_probe = vllm_end_to_end_probe:register\n", encoding="ascii")
    return str(made.parent)


class Engines:
    """All engines of a run; they end with the block."""

    def __init__(self, options, folder: str):
        path = ":".join(filter(None, [plugin_folder(Path(folder)), str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))
        self.sides, self.is_cpu = {}, options.cpu
        for mode in options.modes:
            for side in options.sides:
                name = f"{side} {mode}"
                order = {"name": name, "side": side, "is_async": mode == "async", "is_http": options.http, "cpu": options.cpu,
                         "model": options.model, "vocabulary": options.config["vocab_size"], "kv_gib": options.kv_gib,
                         "max_model_len": MAX_MODEL_LEN[options.cpu], "rows": str(Path(folder) / f"{side}-{mode}.rows")}
                self.sides[name] = Side(order, folder, "vllm_end_to_end_engine.py", PYTHONPATH=path)

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

    def run(self, side: str, round_: dict) -> dict:
        """Workers of vLLM's CPU build spin where they wait: an idle engine is stopped, or it takes the other's processor."""
        with contextlib.ExitStack() as stack:
            for name in self.sides if self.is_cpu else ():
                if name != side:
                    os.killpg(self.sides[name].process.pid, signal.SIGSTOP)
                    stack.callback(os.killpg, self.sides[name].process.pid, signal.SIGCONT)
            return self.sides[side].run(round_)

    def measure(self, name: str, workload: dict, rounds: int) -> dict[str, list[dict]]:
        names, made = list(self.sides), {side: [] for side in self.sides}
        for number in range(rounds):
            for side in names[::-1] if number % 2 else names:
                made[side].append(self.run(side, {**workload, "seed": f"{name}-{number}"}))
                print(f"{name}, round {number + 1} of {rounds}: {side}, {made[side][-1]['tokens_per_s']:,.0f} tokens/s",
                      file=sys.stderr, flush=True)
        return made


def ratio(mine: list[dict], other: list[dict]) -> float:
    return statistics.median(a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(mine, other))


def summarize(made: dict[str, list[dict]]) -> dict[str, dict]:
    rows = {}
    for name, rounds in made.items():
        base = made.get(f"vllm {name.split()[1]}", rounds)
        times = {key: [ms for each in rounds for ms in each[key]] for key in ("ttft_ms", "itl_ms")}
        total = {key: sum(each[key] for each in rounds)
                 for key in ("prompt_tokens", "cached_tokens", "output_tokens", "steps", "scheduler_s", "core_s", "processor_s")}
        rows[name] = {
            "tokens_per_s": [each["tokens_per_s"] for each in rounds], "ratio": ratio(rounds, base),
            **{f"{key}_p{percent}": percentile(values, percent) for key, values in times.items() for percent in (50, 99)},
            **total, "scheduler_ms_a_step": 1e3 * total["scheduler_s"] / total["steps"],
            "scheduler_share": total["scheduler_s"] / total["core_s"],
            "processor_s_by_1000": 1e3 * total["processor_s"] / total["output_tokens"],
            "requests": sum(len(each["digests"]) for each in rounds), "distinct": [each["distinct"] for each in rounds],
            "same": sum(a == b for mine, other in zip(rounds, base) for a, b in zip(mine["digests"], other["digests"])),
            "scheduler": rounds[0]["scheduler"]}
    return rows


def show(title: str, rows: dict[str, dict]) -> None:
    table = [[title, "tokens/s", "x", "TTFT p50/p99, ms", "ITL p50/p99, ms", "hits", "scheduler, ms", "share", "processor",
              "same tokens"]]
    for name, row in rows.items():
        speed = row["tokens_per_s"]
        table.append([name, f"{statistics.median(speed):,.0f} [{min(speed):,.0f}..{max(speed):,.0f}]", f"{row['ratio']:.3f}",
                      f"{row['ttft_ms_p50']:.1f}/{row['ttft_ms_p99']:.1f}", f"{row['itl_ms_p50']:.2f}/{row['itl_ms_p99']:.2f}",
                      f"{100 * row['cached_tokens'] / row['prompt_tokens']:.1f} %", f"{row['scheduler_ms_a_step']:.3f}",
                      f"{100 * row['scheduler_share']:.1f} %", f"{row['processor_s_by_1000']:.4f}",
                      f"{row['same']} of {row['requests']}"])
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    print(flush=True)


def check(options, rows: dict[str, dict[str, dict]]) -> list[str]:
    missed = []
    for title, each in rows.items():
        for name, row in each.items():
            side = name.split()[0]
            if not row["scheduler"].startswith(SIDES[side]):
                missed.append(f"{title}: {name} ran {row['scheduler']} (expected {SIDES[side]}...)")
            # pauses and HTTP make other batches; with these weights, rounding changes no token but where two are equal
            if title in ("tokens",) and row["same"] != row["requests"]:
                missed.append(f"{title}: {row['requests'] - row['same']} requests of {name} have other tokens")
            if row["ratio"] < LEAST and not options.cpu:
                missed.append(f"{title}: {name} has {row['ratio']:.3f} of the tokens/s of vLLM's scheduler (expected {LEAST})")
            if title == "tokens" and row["distinct"][0] < row["output_tokens"] / len(row["distinct"]) / 100:
                missed.append(f"tokens: {name} made {row['distinct'][0]} different tokens: they hardly depend on the context")
    return missed


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="a folder with a config.json")
    for name, known in (("sides", SIDES), ("modes", ("sync", "async")), ("workloads", WORKLOADS)):
        parser.add_argument(f"--{name}", default=",".join(known), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each workload (default: %(default)s); tokens has one")
    parser.add_argument("--kv-gib", type=float, help="KV cache of each engine (default: 10.5, with --cpu 0.15)")
    parser.add_argument("--output", type=int, help="output tokens of decode (default: 256, with --cpu 8 to 32)")
    parser.add_argument("--http", action="store_true", help="`vllm serve` and HTTP clients, instead of AsyncLLM")
    parser.add_argument("--json", metavar="FILE", help="write the figures into this file")
    parser.add_argument("--cpu", action="store_true", help="engines of vLLM's CPU build, with small workloads")
    options = parser.parse_args()
    for name, known in (("sides", SIDES), ("modes", ("sync", "async")), ("workloads", WORKLOADS)):
        setattr(options, name, getattr(options, name).split(","))
        for word in getattr(options, name):
            if word not in known:
                parser.error(f'invalid value "{word}" for --{name} (expected {", ".join(known)})')
    if "vllm" not in options.sides:
        parser.error("--sides needs vllm, with which the other sides are compared")
    if options.http:
        options.workloads = [name for name in options.workloads if name != "tokens"]
    options.kv_gib = options.kv_gib or (0.15 if options.cpu else 10.5)
    if options.rounds < 1:
        parser.error("invalid value for --rounds (expected at least 1)")
    try:
        options.config = json.loads((Path(options.model) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"--model {options.model}: {error}")
    return options


def run(options, folder: str) -> dict[str, dict[str, dict]]:
    rows = {}
    with Engines(options, folder) as engines:
        ready = next(iter(engines.ready.values()))
        print(f"vLLM {ready['vllm']}, {Path(options.model).name}, KV cache of {options.kv_gib:g} GiB"
              f"{', vllm serve and HTTP clients' if options.http else ''}\n", flush=True)
        for name in sorted(options.workloads, key=list(WORKLOADS).index):
            workload = {**WORKLOADS[name], **(SMALL[name] if options.cpu else {})}
            if options.output and name.startswith("decode"):
                workload["output"] = options.output
            if name == "tokens":
                for side in engines.sides:
                    engines.run(side, {"kind": "weights"})
            else:
                engines.measure(f"warm {name}", {**workload, **WARM[workload["kind"]]}, 1)
            rows[name] = summarize(engines.measure(name, workload, 1 if name == "tokens" else options.rounds))
            show(name, rows[name])
    return rows


def main() -> int:
    options = read_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the engines end too
    try:
        with tempfile.TemporaryDirectory() as folder:
            rows = run(options, folder)
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 2
    missed = check(options, rows)
    for name in missed:
        print(f"target missed: {name}")
    if options.json:
        Path(options.json).write_text(json.dumps({"workloads": rows, "missed": missed}, indent=1), encoding="ascii")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
