"""What the engine core does, for bench/vllm_end_to_end.py: a plugin of vLLM, the same with each scheduler.

It takes times around schedule and update_from_output, some microseconds in each step, and writes them into a file
that the client has mapped too: $QUIRE_BENCH_ROWS.

    count, name of the scheduler's class, then rows: kind, begin, end, requests or outputs, tokens, processor seconds
"""
import mmap
import os
import struct
import time

SCHEDULE, UPDATE = 0, 1
HEAD, ROW, NUM_ROWS = struct.Struct("q120s"), struct.Struct("6d"), 1 << 17
BYTES = HEAD.size + NUM_ROWS * ROW.size


def open_rows(path: str) -> mmap.mmap:
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), BYTES)


def read_rows(rows: mmap.mmap, first: int) -> list[tuple]:
    """The rows from number `first` on."""
    count = HEAD.unpack_from(rows)[0]
    if count - first > NUM_ROWS:
        raise RuntimeError(f"{count - first} rows in one round (expected at most {NUM_ROWS})")
    return [ROW.unpack_from(rows, HEAD.size + i % NUM_ROWS * ROW.size) for i in range(first, count)]


class Probe:
    def __init__(self, scheduler, path: str):
        kind = type(scheduler)
        self.rows, self.count = open_rows(path), 0
        self.name = f"{kind.__module__}.{kind.__qualname__}".encode()[:120]
        self.wrap(scheduler, "schedule", SCHEDULE,
                  lambda made: (len(made.num_scheduled_tokens), made.total_num_scheduled_tokens))
        self.wrap(scheduler, "update_from_output", UPDATE,
                  lambda made: (sum(len(outputs.outputs) for outputs in made.values()), 0))
        HEAD.pack_into(self.rows, 0, 0, self.name)

    def wrap(self, scheduler, name: str, kind: int, sizes) -> None:
        inner = getattr(scheduler, name)

        def timed(*args, **kwargs):
            begin = time.monotonic()
            made = inner(*args, **kwargs)
            end = time.monotonic()
            ROW.pack_into(self.rows, HEAD.size + self.count % NUM_ROWS * ROW.size, kind, begin, end, *sizes(made),
                          time.process_time())
            self.count += 1
            HEAD.pack_into(self.rows, 0, self.count, self.name)
            return made

        setattr(scheduler, name, timed)


def register() -> None:
    from vllm.v1.engine.core import EngineCoreProc

    path, step, probes = os.environ["QUIRE_BENCH_ROWS"], EngineCoreProc._process_engine_step, []

    def probed(self, *args, **kwargs):
        if not probes:  # vLLM loads plugins before it makes the scheduler
            probes.append(Probe(self.scheduler, path))
        return step(self, *args, **kwargs)

    if not hasattr(step, "is_probed"):
        probed.is_probed = True
        EngineCoreProc._process_engine_step = probed
