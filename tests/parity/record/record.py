#!/usr/bin/env python3
"""Records what vLLM answers, for the replayers beside this file.

    record.py KIND --seed N --count M --out FILE [--runs R] [--mixes NAME,NAME] [--edges] [--explain]
              [--split]

KIND is hash, queue, map, pool, table, cache, plan, sched, slots or offload. R runs with seeds N, N+1,
... are recorded into one file, each until it has M checks (cache: about M; sched and offload: about
M steps). Needs vLLM 0.20.0 or, for all kinds but table, slots and offload, 0.32.0 (release.py);
QUIRE_VLLM_PLATFORM names the file to run first.

With --split, FILE is a folder that gets a recording of each seed, and SEED.error with the traceback
where a recorder raises; the other seeds are recorded nevertheless (tools/newer).
"""
import argparse
import importlib
import os
import traceback
from pathlib import Path

MODULES = {"hash": "record_hash", "queue": "record_blocks", "map": "record_blocks",
           "pool": "record_pool", "table": "record_table", "cache": "record_cache",
           "plan": "record_plan", "sched": "record_sched", "slots": "record_slots",
           "offload": "record_offload"}
TABLES = {"cache": ("parts",), "sched": ("parts", "extra")}  # mixes that are not among the others


def parse():
    parser = argparse.ArgumentParser(description="Record what vLLM answers.")
    parser.add_argument("kind", choices=sorted(MODULES))
    parser.add_argument("--seed", type=int, required=True, help="of the first run")
    parser.add_argument("--count", type=int, required=True, help="checks in each run, at least")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds to record")
    parser.add_argument("--mixes", default="", metavar="NAME,NAME",
                        help="cache, sched: only mixes whose names begin so; parts, and for sched "
                             "extra: those of part_mixes.py and extra_mixes.py, which are not "
                             "among the others")
    parser.add_argument("--edges", action="store_true", help="hash: the large and odd cases too")
    parser.add_argument("--explain", action="store_true", help="write each answer in full")
    parser.add_argument("--split", action="store_true",
                        help="--out is a folder: a file for each seed; go on where one raises")
    return parser.parse_args()


def record_apart(args, record, make_writer):
    """A file for each seed. Returns how many seeds raised."""
    folder, num_errors = Path(args.out), 0
    folder.mkdir(parents=True, exist_ok=True)
    for seed in range(args.seed, args.seed + args.runs):
        writer = make_writer(args.kind, seed, 1, args.explain, args.mixes)
        try:
            record(writer, writer.start_run(seed), args.count, args.edges and seed == args.seed)
            writer.save(folder / f"{seed}.txt")
        except Exception:
            num_errors += 1
            (folder / f"{seed}.error").write_text(traceback.format_exc())
    return num_errors


def main():
    args = parse()
    # Triton's interpreter runs kernels on the CPU. vLLM accepts a Triton without a driver only
    # where no device is visible.
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from recorder import Writer, load_platform
    from release import forgive, order_sets
    load_platform()
    order_sets()
    forgive()
    module = importlib.import_module(MODULES[args.kind])
    record = getattr(module, f"record_{args.kind}")
    if args.mixes and args.mixes not in TABLES.get(args.kind, ()):
        first_words = tuple(args.mixes.split(","))
        module.MIXES = {name: mix for name, mix in module.MIXES.items()
                        if name.startswith(first_words)}
    if args.split:
        num_errors = record_apart(args, record, Writer)
        print(f"recorded {args.kind}: {args.runs} seeds, {num_errors} raised, {args.out}")
        return
    writer = Writer(args.kind, args.seed, args.runs, args.explain, args.mixes)
    for run in range(args.runs):
        rng = writer.start_run(args.seed + run)
        record(writer, rng, args.count, args.edges and run == 0)
    writer.save(args.out)
    print(f"recorded {args.kind}: {args.runs} seeds, {writer.count} checks, {args.out}")


if __name__ == "__main__":
    main()
