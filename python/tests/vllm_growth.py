"""Does memory grow while requests go through quire.vllm?

    python vllm_growth.py [--platform MODULE] [--requests 100000]

Traffic of several kinds through the scheduler (synchronous and asynchronous, with a connector, KV
events, grammars, drafts, aborts, preemptions). After a fifth of the requests memory is taken down; at
the end it is compared: resident bytes, bytes that Python's allocator knows of, and the number of
objects. The last line says `no growth` or what grew, and the exit status is 1 then.
"""
import argparse
import gc
import importlib
import random
import resource
import sys
import tracemalloc
from pathlib import Path

import vllm_kit

BATCH = 40
RESIDENT, TRACED, OBJECTS = 4 << 20, 64 << 10, 300  # what may come and go


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def drain(scheduler) -> None:
    """Until nothing is left, two steps under way where the scheduler is asynchronous."""
    flight = []
    while scheduler.has_requests() or flight:
        if scheduler.has_requests():
            flight.append(scheduler.schedule())
        if flight and (len(flight) > scheduler.is_async or not scheduler.has_requests()):
            step = flight.pop(0)
            scheduler.update_from_output(step, vllm_kit.computed(step))


class Traffic:
    """Requests in batches: prefixes that come again, some with a grammar, some aborted."""

    def __init__(self, name: str, **given):
        self.name, self.rng, self.number = name, random.Random(name), 0
        self.scheduler = vllm_kit.make(**given)
        self.hasher = vllm_kit.hasher()
        self.with_grammars, self.drafts = name == "grammars", given.get("drafts", 0)

    def serve(self, count: int) -> None:
        from vllm.v1.request import RequestStatus

        for _ in range(0, count, BATCH):
            names = []
            for _ in range(BATCH):
                self.number += 1
                names.append(f"r{self.number}")
                prompt = [self.rng.randrange(6), *range(self.rng.randint(4, 24))]
                grammar = vllm_kit.Grammar() if self.with_grammars and self.number % 3 else None
                self.scheduler.add_request(vllm_kit.request(
                    names[-1], prompt, self.hasher, self.rng.randint(1, 4), grammar,
                    stop_token_ids=[9]))
            vllm_kit.step_once(self.scheduler)
            if self.drafts:
                self.draft(names)
            self.scheduler.finish_requests(names[::7], RequestStatus.FINISHED_ABORTED)
            drain(self.scheduler)

    def draft(self, names: list[str]) -> None:
        from vllm.v1.outputs import DraftTokenIds

        self.scheduler.update_draft_token_ids(DraftTokenIds(names, [[5, 6] for _ in names]))


def grown(traffic, count: int) -> list[tuple[str, int, int]]:
    """(what, growth, bound) of the requests after the first fifth; the last tenth is traced."""
    traffic.serve(count // 5)
    gc.collect()
    before = resident_bytes()
    traffic.serve(count * 7 // 10)
    gc.collect()
    made = [("resident bytes", resident_bytes() - before, RESIDENT)]
    tracemalloc.start()
    traffic.serve(max(count // 50, 2 * BATCH))
    gc.collect()
    traced, objects = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
    traffic.serve(max(count // 12, 4 * BATCH))
    gc.collect()
    made.append(("traced bytes", tracemalloc.get_traced_memory()[0] - traced, TRACED))
    tracemalloc.stop()
    made.append(("objects", len(gc.get_objects()) - objects, OBJECTS))
    return made


def kinds() -> list:
    """One maker for each kind of traffic."""
    connector = vllm_kit.connector_class()
    return [lambda: Traffic("plain"), lambda: Traffic("asynchronous", is_async=True),
            lambda: Traffic("preempted", num_blocks=60),
            lambda: Traffic("connector", connector=connector(), events=True),
            lambda: Traffic("grammars"), lambda: Traffic("drafts", drafts=2)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--platform", help="module to import before vLLM, where there is no GPU")
    parser.add_argument("--requests", type=int, default=100_000, help="over all kinds of traffic")
    given = parser.parse_args()
    if given.platform:
        importlib.import_module(given.platform)
    faults, makers = [], kinds()
    for make in makers:
        traffic = make()
        rows = grown(traffic, given.requests // len(makers))
        print(f"{traffic.name:14} {traffic.number:7} requests: "
              + ", ".join(f"{what} {growth:+,}" for what, growth, _ in rows), flush=True)
        faults += [f"{traffic.name}: {what} {growth:+,}" for what, growth, bound in rows
                   if growth > bound]
    print("growth: " + "; ".join(faults) if faults else "no growth")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
