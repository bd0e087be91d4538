"""Quire beside vLLM 0.20.0: the same operations, in one run, on one core.

    $QUIRE_VLLM_PYTHON bench/versus_vllm.py --bench build/release/bench/quire_bench [--json FILE]

    QUIRE_VLLM_PYTHON     an interpreter that has vLLM 0.20.0 (and xxhash, for those two rows)
    QUIRE_VLLM_PLATFORM   a Python file to import before vllm, which lets it run without a GPU

vLLM's side calls vLLM's own classes; Quire's side is `quire_bench --machine`. Rounds alternate (one
of vLLM, one of Quire, and again), so that whatever else the machine does meets both. Python's
garbage collector stays on, with the start-up heap frozen: that is how vLLM's engine core runs. Both
sides hash the same tokens, and the last digest of each must be the same.

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
import time
from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK_SIZE = 16
NUM_BLOCKS = 2048
POOL_BLOCKS = 100_000
BATCH = 100
ROUND_NS = 100_000_000
MASK = (1 << 64) - 1

# A pass does some operations and returns how many, and a check value (or None).
Pass = Callable[[], tuple[int, str | None]]


@dataclass
class Operation:
    """One row of the table."""

    name: str
    case: str  # of quire_bench
    target: float | None  # times faster than vLLM
    make: Callable[[], Pass]  # sets up vLLM's side
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
    state, out = 1, []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        x = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        out.append((x ^ (x >> 31)) % 128_000)
    return out


def make_request(token_ids: list[int]):
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request("bench", token_ids, SamplingParams(max_tokens=1), None)


# ---- vLLM's side -------------------------------------------------------------------------------


def take_give() -> Pass:
    """BlockPool.get_new_blocks and free_blocks, 100 blocks at a time."""
    from vllm.v1.core.block_pool import BlockPool

    pool = BlockPool(POOL_BLOCKS, True, BLOCK_SIZE)

    def run():
        for _ in range(100):
            pool.free_blocks(pool.get_new_blocks(BATCH))
        return 100 * BATCH, None

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

    def run():
        (hit,) = FullAttentionManager.find_longest_cache_hit(
            hashes, NUM_BLOCKS * BLOCK_SIZE, [0], pool, spec, False, BLOCK_SIZE)
        if len(hit) != NUM_BLOCKS:
            raise RuntimeError("vLLM missed a cached block")
        return NUM_BLOCKS, None

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

        def run():
            prepare_hash(algo)  # NONE_HASH is one global for all algorithms
            parent = None
            for block in blocks:
                parent = hash_block_tokens(function, parent, block)
            return NUM_BLOCKS, parent[-8:].hex()

        return run

    return make


def hash_request(algo: str) -> Callable[[], Pass]:
    """The block hasher of a whole request, as the engine calls it for a prompt of 32,768 tokens."""

    def make() -> Pass:
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher

        hasher = get_request_block_hasher(BLOCK_SIZE, prepare_hash(algo))
        request = make_request(tokens(NUM_BLOCKS * BLOCK_SIZE))

        def run():
            prepare_hash(algo)
            return NUM_BLOCKS, hasher(request)[-1][-8:].hex()

        return run

    return make


def vllm_round(run: Pass, shortest_ns: int) -> tuple[float, str | None]:
    """Passes until enough time has gone by: nanoseconds per operation, and the last check value."""
    elapsed = operations = 0
    check = None
    while elapsed < shortest_ns:
        start = time.perf_counter_ns()
        count, check = run()
        elapsed += time.perf_counter_ns() - start
        operations += count
    return elapsed / operations, check


# ---- Quire's side ------------------------------------------------------------------------------


def quire_round(bench: str, case: str) -> tuple[float, str]:
    """One case in a process of its own: the median of 5 x 20 ms, as long as vLLM's round."""
    command = [bench, "--machine", "--rounds", "5", "--filter", case]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in output.splitlines():
        name, *rest = line.split("\t")
        if name == case:
            return statistics.median(map(float, rest[2:])), rest[1]
    raise RuntimeError(f"{bench} has no case {case}")


def quire_header(bench: str) -> str:
    command = [bench, "--machine", "--rounds", "1", "--filter", "table/slots/decode"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return output.splitlines()[0].removeprefix("# ")


# ---- the run -----------------------------------------------------------------------------------


def operations() -> list[Operation]:
    rows = [
        Operation("take + give back, 100", "pool/take_give/100", 55, take_give),
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


def spread(values: list[float]) -> str:
    return f"{min(values):,.1f} .. {max(values):,.1f}"


def print_table(rows: list[Operation]) -> None:
    form = "{:<28} {:>12} {:>24} {:>12} {:>20} {:>8} {:>7} {:>6}"
    print(form.format("ns per block", "vLLM median", "min .. max", "Quire median", "min .. max",
                      "ratio", "target", ""))
    for row in rows:
        target = "-" if row.target is None else f"{row.target:.0f}x"
        print(form.format(row.name, f"{statistics.median(row.vllm_ns):,.1f}", spread(row.vllm_ns),
                          f"{statistics.median(row.quire_ns):,.2f}", spread(row.quire_ns),
                          f"{row.ratio:,.1f}x", target, row.verdict))


def write_json(path: str, rows: list[Operation], about: dict) -> None:
    results = [{"operation": row.name, "case": row.case, "vllm_ns": row.vllm_ns,
                "quire_ns": row.quire_ns, "ratio": row.ratio, "target": row.target,
                "verdict": row.verdict} for row in rows]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"about": about, "results": results}, file, indent=1)
        file.write("\n")


def different(rows: list[Operation]) -> list[str]:
    """Rows whose two sides came to different digests."""
    return [row.name for row in rows
            if row.vllm_check is not None and row.vllm_check != row.quire_check]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", required=True, help="path of quire_bench")
    parser.add_argument("--rounds", type=int, default=9, help="of each side; at least 7, default 9")
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
    rows = operations()
    about = {"vllm": vllm.__version__, "python": platform.python_version(), "core": core,
             "rounds": args.rounds, "gc": "on, start-up heap frozen",
             "quire": quire_header(args.bench)}
    measure(rows, args.bench, args.rounds)
    print(f"vLLM {about['vllm']}, CPython {about['python']}, gc {about['gc']}; core {core}; "
          f"{args.rounds} alternating rounds\n{about['quire']}\n")
    print_table(rows)
    if args.json:
        write_json(args.json, rows, about)
    wrong = different(rows)
    if wrong:
        print("NOT THE SAME DIGESTS: " + ", ".join(wrong), file=sys.stderr)
        return 1
    print("\nboth sides came to the same digests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
