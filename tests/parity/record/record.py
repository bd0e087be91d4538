#!/usr/bin/env python3
"""Records what vLLM answers, for the replayers beside this file.

    record.py KIND --seed N --count M --out FILE [--runs R] [--edges] [--explain]

KIND is hash, queue, map, pool, table, cache, plan, sched, slots or offload. R runs with seeds N, N+1,
... are recorded into one file, each until it has M checks (cache: about M; sched and offload: about
M steps). Needs vLLM 0.20.0 or, for all kinds but table, slots and offload, 0.32.0 (release.py);
QUIRE_VLLM_PLATFORM names the file to run first.
"""
import argparse
import importlib
import os

MODULES = {"hash": "record_hash", "queue": "record_blocks", "map": "record_blocks",
           "pool": "record_pool", "table": "record_table", "cache": "record_cache",
           "plan": "record_plan", "sched": "record_sched", "slots": "record_slots",
           "offload": "record_offload"}


def parse():
    parser = argparse.ArgumentParser(description="Record what vLLM answers.")
    parser.add_argument("kind", choices=sorted(MODULES))
    parser.add_argument("--seed", type=int, required=True, help="of the first run")
    parser.add_argument("--count", type=int, required=True, help="checks in each run, at least")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--runs", type=int, default=1, help="how many seeds to record")
    parser.add_argument("--edges", action="store_true", help="hash: the large and odd cases too")
    parser.add_argument("--explain", action="store_true", help="write each answer in full")
    return parser.parse_args()


def main():
    args = parse()
    # Triton's interpreter runs kernels on the CPU. vLLM accepts a Triton without a driver only
    # where no device is visible.
    os.environ["TRITON_INTERPRET"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from recorder import Writer, load_platform
    from release import order_sets
    load_platform()
    order_sets()
    writer = Writer(args.kind, args.seed, args.runs, args.explain)
    module = importlib.import_module(MODULES[args.kind])
    record = getattr(module, f"record_{args.kind}")
    for run in range(args.runs):
        rng = writer.start_run(args.seed + run)
        record(writer, rng, args.count, args.edges and run == 0)
    writer.save(args.out)
    print(f"recorded {args.kind}: {args.runs} seeds, {writer.count} checks, {args.out}")


if __name__ == "__main__":
    main()
