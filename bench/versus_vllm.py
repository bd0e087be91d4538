"""Quire beside vLLM 0.20.0 or 0.32.0: the same operations, in one run, on one core.

    $QUIRE_VLLM_PYTHON bench/versus_vllm.py --bench build/release/bench/quire_bench [--json FILE]

    QUIRE_VLLM_PYTHON     an interpreter that has one of these releases, whose profile is measured
                          (and xxhash, for those two rows)
    QUIRE_VLLM_PLATFORM   a Python file to import before vllm, which lets it run without a GPU

vLLM's side calls vLLM's own classes; Quire's side is `quire_bench --machine`. Rounds alternate (one
of vLLM, one of Quire, and again), so that whatever else the machine does meets both. Python's
garbage collector stays on, with the start-up heap frozen: that is how vLLM's engine core runs. Both
sides hash the same tokens, and the last digest of each must be the same; both give the same
requests their blocks, and the block ids must be the same. Prefix caching is on, events are off;
stats are off in the cache rows and on in the scheduler rows, as in a server.

The exit status is 0 whatever the figures say: a benchmark is not a test. It is 1 when the two sides
did not do the same work, and 2 when something that is needed is missing.
"""

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

sys.dont_write_bytecode = True
import vllm_cache
import vllm_sched
import vllm_slots
from vllm_cache import BLOCK_SIZE, Pass, Timer, splitmix

NUM_BLOCKS = 2048
POOL_BLOCKS = 100_000
BATCH = 100
ROUND_NS = 100_000_000
UNIT_NS = {"ns": 1, "us": 1e3, "ms": 1e6}


@dataclass
class Operation:
    """One row of the table."""

    name: str
    case: str  # of quire_bench
    target: float | None  # times faster than vLLM
    make: Callable[[], Pass]  # sets up vLLM's side
    per: str = "block"  # what one operation is
    vllm_ns: list[float] = field(default_factory=list)
    quire_ns: list[float] = field(default_factory=list)
    vllm_check: str | None = None
    quire_check: str | None = None

    @property
    def ratio(self) -> float:
        return statistics.median(self.vllm_ns) / statistics.median(self.quire_ns)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return "-"
        return "ok" if self.ratio >= self.target else "BELOW"


# ---- the same inputs as quire_bench ------------------------------------------------------------


def tokens(count: int) -> list[int]:
    """Token ids by splitmix64 from seed 1, as bench_tokens in cached.c."""
    return [x % 128_000 for x in islice(splitmix(1), count)]


def make_request(token_ids: list[int]):
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request("bench", token_ids, SamplingParams(max_tokens=1), None)


# ---- vLLM's side -------------------------------------------------------------------------------


def take_give() -> Pass:
    """BlockPool.get_new_blocks and free_blocks, 100 blocks at a time."""
    from vllm.v1.core.block_pool import BlockPool

    pool = BlockPool(POOL_BLOCKS, True, BLOCK_SIZE)

    def run(timer):
        with timer(100 * BATCH):
            for _ in range(100):
                pool.free_blocks(pool.get_new_blocks(BATCH))

    return run


def lookup() -> Pass:
    """FullAttentionManager.find_longest_cache_hit: 2,048 hits in a pool full of cached blocks."""
    import torch
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    pool = BlockPool(POOL_BLOCKS, True, BLOCK_SIZE)
    blocks = pool.get_new_blocks(POOL_BLOCKS - 1)
    request = make_request([0])
    request.block_hashes = [os.urandom(32) for _ in blocks]
    pool.cache_full_blocks(request, blocks, 0, len(blocks), BLOCK_SIZE, 0)
    pool.free_blocks(blocks)
    hashes = request.block_hashes[:NUM_BLOCKS]
    spec = FullAttentionSpec(BLOCK_SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)

    def run(timer):
        with timer(NUM_BLOCKS):
            found = FullAttentionManager.find_longest_cache_hit(
                hashes, NUM_BLOCKS * BLOCK_SIZE, [0], pool, spec, False, BLOCK_SIZE)
        (hit,) = found if vllm_cache.is_0_20() else found[0]
        if len(hit) != NUM_BLOCKS:
            raise RuntimeError("vLLM missed a cached block")

    return run


def prepare_hash(algo: str) -> Callable:
    """vLLM's hash function, with NONE_HASH made from the seed "0" as quire_bench does."""
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils

    os.environ["PYTHONHASHSEED"] = "0"
    function = get_hash_fn_by_name(algo)
    kv_cache_utils.init_none_hash(function)
    return function


def hash_blocks(algo: str) -> Callable[[], Pass]:
    """hash_block_tokens over a chain of 2,048 blocks: the hash, without a request around it."""

    def make() -> Pass:
        from vllm.v1.core.kv_cache_utils import hash_block_tokens

        function = prepare_hash(algo)
        ids = tokens(NUM_BLOCKS * BLOCK_SIZE)
        blocks = [ids[i:i + BLOCK_SIZE] for i in range(0, len(ids), BLOCK_SIZE)]

        def run(timer):
            prepare_hash(algo)  # NONE_HASH is one global for all algorithms
            parent = None
            with timer(NUM_BLOCKS):
                for block in blocks:
                    parent = hash_block_tokens(function, parent, block)
            return parent[-8:].hex()

        return run

    return make


def hash_request(algo: str) -> Callable[[], Pass]:
    """The block hasher of a whole request, as the engine calls it for a prompt of 32,768 tokens."""

    def make() -> Pass:
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher

        hasher = get_request_block_hasher(BLOCK_SIZE, prepare_hash(algo))
        request = make_request(tokens(NUM_BLOCKS * BLOCK_SIZE))

        def run(timer):
            prepare_hash(algo)
            with timer(NUM_BLOCKS):
                hashes = hasher(request)
            return hashes[-1][-8:].hex()

        return run

    return make


def vllm_round(run: Pass, shortest_ns: int) -> tuple[float, str | None]:
    """Passes until enough time was timed: nanoseconds per operation, and the last check value."""
    timer = Timer()
    check = None
    while timer.elapsed_ns < shortest_ns:
        check = run(timer)
    return timer.elapsed_ns / timer.operations, check


# ---- Quire's side ------------------------------------------------------------------------------


def quire_profile() -> str:
    from vllm import __version__

    return "vllm-" + ".".join(__version__.split(".")[:2])


def quire_round(bench: str, case: str) -> tuple[float, str]:
    """One case in a process of its own: the median of 5 x 20 ms, as long as vLLM's round, in ns."""
    command = [bench, "--machine", "--rounds", "5", "--profile", quire_profile(), "--filter", case]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        name, *rest = line.split("\t")
        if name == case:
            unit, check, *values = rest
            return statistics.median(map(float, values)) * UNIT_NS[unit[:2]], check
    raise RuntimeError(f"{bench} has no case {case}")


def quire_header(bench: str) -> str:
    command = [bench, "--machine", "--rounds", "1", "--filter", "table/slots/decode"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.splitlines()[0].removeprefix("# ")


# ---- the run -----------------------------------------------------------------------------------


def cache_rows() -> list[Operation]:
    """KVCacheManager and quire_cache: the same requests, the same block ids."""
    decode, hit = "one decode token, ", "get_computed_blocks of 64k, "
    computed = vllm_cache.computed_blocks
    rows = [
        Operation(decode + "256 full", "cache/decode/full/256", 200,
                  vllm_cache.decode("full", 256), "call"),
        Operation(decode + "1,024 full", "cache/decode/full/1024", 200,
                  vllm_cache.decode("full", 1024), "call"),
        Operation(decode + "256 hybrid", "cache/decode/window/256", None,
                  vllm_cache.decode("window", 256), "call"),
        Operation(decode + "1,024 hybrid", "cache/decode/window/1024", None,
                  vllm_cache.decode("window", 1024), "call"),
        Operation(hit + "full", "cache/computed/full/64k", 60, computed("full"), "call"),
        Operation(hit + "window", "cache/computed/window/64k", None, computed("window"), "call"),
        Operation(hit + "Mamba", "cache/computed/mamba/64k", None, computed("mamba"), "call"),
        Operation("free of 4,097 blocks", "cache/free/64k", 20, vllm_cache.free, "call"),
        Operation("allocate 4,097 blocks", "cache/allocate/64k", None, vllm_cache.allocate, "call"),
        Operation("allocate, 4,096 of them hits", "cache/allocate_hit/64k", None,
                  vllm_cache.allocate_hit, "call"),
    ]
    return rows + rows_of_0_20() if vllm_cache.is_0_20() else rows


def rows_of_0_20() -> list[Operation]:
    """Calls that vLLM 0.32 has no longer."""
    return [
        Operation("can_fit_full_sequence, hits", "cache/can_fit/64k", None, vllm_cache.can_fit,
                  "call"),
        Operation("common prefix of 128 blocks", "cache/common_prefix/128", None,
                  vllm_cache.common_prefix, "call"),
    ]


def sched_rows() -> list[Operation]:
    """Scheduler, AsyncScheduler and quire_sched: the same requests, the same steps."""
    step, prompt = "a step's request, ", "128k-token prompt, "
    return [
        Operation(step + "256 running", "sched/decode/256", 200, vllm_sched.decode(256, False),
                  "req"),
        Operation(step + "1,024 running", "sched/decode/1024", 200, vllm_sched.decode(1024, False),
                  "req"),
        Operation(step + "256 async", "sched/decode_async/256", 200, vllm_sched.decode(256, True),
                  "req"),
        Operation(step + "1,024 async", "sched/decode_async/1024", 200,
                  vllm_sched.decode(1024, True), "req"),
        Operation(prompt + "admitted", "sched/admit/128k", 50, vllm_sched.admit(False), "call"),
        Operation(prompt + "all hits", "sched/admit_hit/128k", 50, vllm_sched.admit(True), "call"),
        Operation(prompt + "added", "sched/add/128k", None, vllm_sched.add, "call"),
        Operation("step of 256, with preemptions", "sched/preempt/256", None, vllm_sched.preempt,
                  "step"),
        Operation("abort of one in 10,000 waiting", "sched/abort/10k", None, vllm_sched.abort,
                  "call"),
    ]


def slots_rows() -> list[Operation]:
    """CPUOffloadingManager and quire_slots: the same keys, the same slots."""
    return [
        Operation("tier slots: store, evict, LRU", "slots/store/lru", None, vllm_slots.store("lru")),
        Operation("tier slots: store, evict, ARC", "slots/store/arc", None, vllm_slots.store("arc")),
        Operation("tier slots: hit and load, LRU", "slots/hit/lru", None, vllm_slots.hit("lru")),
        Operation("tier slots: hit and load, ARC", "slots/hit/arc", None, vllm_slots.hit("arc")),
    ]


def operations() -> list[Operation]:
    slots = slots_rows() if vllm_cache.is_0_20() else []  # quire_slots decides as vLLM 0.20
    rows = cache_rows() + sched_rows() + slots + [
        Operation("allocate + free, 100", "pool/take_give/100", 55, take_give),
        Operation("lookup of a cached prefix", "lookup/prefix/2048", 60, lookup),
    ]
    targets = {"sha256": 15, "sha256_cbor": 45, "xxhash": None, "xxhash_cbor": 150}
    for algo, target in targets.items():
        if algo.startswith("xx") and importlib.util.find_spec("xxhash") is None:
            print(f"SKIPPED: {algo}: the reference interpreter has no xxhash", file=sys.stderr)
            continue
        # The same job on both sides: a request's tokens in, the hashes of its blocks out. The row below
        # it leaves out what vLLM's hasher does around each hash_block_tokens, and Quire's does too.
        case = f"hash/{algo}/chain"
        rows.append(Operation(f"{algo}, a request's block", case, target, hash_request(algo)))
        rows.append(Operation("  its hash_block_tokens alone", case, None, hash_blocks(algo)))
    return rows


def import_platform(path: str | None) -> None:
    """Runs the file that makes vLLM run here; vLLM chooses a platform when it is imported."""
    if not path:
        return
    spec = importlib.util.spec_from_file_location("quire_vllm_platform", path)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def pin(core: int | None) -> int | None:
    """Stays on one core, and the processes started from here with it."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    chosen = max(os.sched_getaffinity(0)) if core is None else core
    os.sched_setaffinity(0, {chosen})
    return chosen


def measure(rows: list[Operation], bench: str, rounds: int) -> None:
    from vllm.utils.gc_utils import freeze_gc_heap

    passes = [row.make() for row in rows]
    freeze_gc_heap()
    for row, run in zip(rows, passes):
        vllm_round(run, ROUND_NS // 4)  # warm-up
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for row, run in zip(rows, passes):
            value, row.vllm_check = vllm_round(run, ROUND_NS)
            row.vllm_ns.append(value)
            value, row.quire_check = quire_round(bench, row.case)
            row.quire_ns.append(value)


def human(ns: float) -> str:
    """Three digits or so: 21.3 ns, 6.12 us, 4.10 ms."""
    for unit, size in reversed(UNIT_NS.items()):
        if ns >= size or unit == "ns":
            value = ns / size
            return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f} {unit}"


def spread(values: list[float]) -> str:
    return f"{human(min(values))} .. {human(max(values))}"


def print_table(rows: list[Operation]) -> None:
    form = "{:<34} {:<6} {:>9} {:>20} {:>9} {:>20} {:>8} {:>6} {:>6}"
    print(form.format("operation", "per", "vLLM", "min .. max", "Quire", "min .. max", "ratio",
                      "target", ""))
    for row in rows:
        target = "-" if row.target is None else f"{row.target:.0f}x"
        print(form.format(row.name, row.per, human(statistics.median(row.vllm_ns)),
                          spread(row.vllm_ns), human(statistics.median(row.quire_ns)),
                          spread(row.quire_ns), f"{row.ratio:,.1f}x", target, row.verdict))


def write_json(path: str, rows: list[Operation], about: dict) -> None:
    results = [{"operation": row.name, "per": row.per, "case": row.case, "vllm_ns": row.vllm_ns,
                "quire_ns": row.quire_ns, "ratio": row.ratio, "target": row.target,
                "verdict": row.verdict} for row in rows]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"about": about, "results": results}, file, indent=1)
        file.write("\n")


def different(rows: list[Operation]) -> list[str]:
    """Rows whose two sides came to different digests or block ids."""
    return [row.name for row in rows
            if row.vllm_check is not None and row.vllm_check != row.quire_check]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="path of quire_bench")
    parser.add_argument("--rounds", type=int, default=9, help="of each side; at least 7, default 9")
    parser.add_argument("--only", metavar="WORD", default="",
                        help="only rows whose case of quire_bench has WORD in its name")
    parser.add_argument("--core", type=int, help="the core to stay on; default the last one")
    parser.add_argument("--json", metavar="FILE", help="write all values there as well")
    args = parser.parse_args()
    if args.rounds < 7:
        parser.error("fewer than 7 rounds say nothing about the spread")
    if not os.access(args.bench, os.X_OK):
        parser.error(f"{args.bench} cannot be run; build the target quire_bench")
    return args


def main() -> int:
    args = arguments()
    core = pin(args.core)
    import_platform(os.environ.get("QUIRE_VLLM_PLATFORM"))
    try:
        import vllm
    except ImportError as error:
        print(f"versus_vllm.py: this interpreter has no vLLM: {error}", file=sys.stderr)
        return 2
    rows = [row for row in operations() if args.only in row.case]
    if not rows:
        print(f"versus_vllm.py: no case has {args.only} in its name", file=sys.stderr)
        return 2
    about = {"vllm": vllm.__version__, "python": platform.python_version(), "core": core,
             "rounds": args.rounds, "gc": "on, start-up heap frozen",
             "cache": "prefix caching on, events off, stats of the scheduler on",
             "quire": quire_header(args.bench)}
    measure(rows, args.bench, args.rounds)
    print(f"vLLM {about['vllm']}, CPython {about['python']}, gc {about['gc']}; core {core}; "
          f"{args.rounds} alternating rounds; {about['cache']}\n{about['quire']}\n")
    print_table(rows)
    if args.json:
        write_json(args.json, rows, about)
    wrong = different(rows)
    if wrong:
        print("NOT THE SAME DIGESTS OR BLOCK IDS: " + ", ".join(wrong), file=sys.stderr)
        return 1
    print("\nboth sides came to the same digests and block ids")
    return 0


if __name__ == "__main__":
    sys.exit(main())
