"""vLLM's side of the slots rows: CPUOffloadingManager doing what bench_slots.c does.

The same keys (splitmix64 from seed 1, four words each), the same calls in the same order; the check
value is made of the slots that the first calls give. Events are off.
"""

import struct
from collections.abc import Callable
from itertools import islice

from vllm_cache import FNV_OFFSET, FNV_PRIME, MASK, Pass, splitmix

SLOTS = 100_000
CALL_KEYS = 100
RING = 3
FIRST_CALLS = 20


class Slots:
    """A manager whose slots are all used, and the ring of keys."""

    def __init__(self, policy: str):
        from vllm.v1.kv_offload.abstract import ReqContext, make_offload_key
        from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

        self.context = ReqContext()
        self.manager = CPUOffloadingManager(SLOTS, policy)
        self.stream = splitmix(1)
        words = list(islice(self.stream, 4 * RING * SLOTS))
        self.keys = [make_offload_key(struct.pack("<4Q", *words[i:i + 4]), 0)
                     for i in range(0, len(words), 4)]
        self.at = 0
        for _ in range(SLOTS // CALL_KEYS):
            self.store_next()
        self.check = FNV_OFFSET
        for call in range(FIRST_CALLS):
            first = call * 7 * CALL_KEYS % SLOTS
            self.manager.touch(self.keys[first:first + CALL_KEYS])
            for slot in self.store_next().store_spec.block_ids:
                self.check = (self.check ^ int(slot)) * FNV_PRIME & MASK

    def store_next(self):
        keys = self.keys[self.at:self.at + CALL_KEYS]
        self.at = (self.at + CALL_KEYS) % len(self.keys)
        output = self.manager.prepare_store(keys, self.context)
        self.manager.touch(keys)
        self.manager.complete_store(keys)
        return output

    def draw_there(self) -> list:
        back = CALL_KEYS * (1 + next(self.stream) % 50)
        first = (self.at - back) % len(self.keys)
        return self.keys[first:first + CALL_KEYS]


def store(policy: str) -> Callable[[], Pass]:
    """prepare_store, touch, complete_store: each key evicts one."""

    def make() -> Pass:
        slots = Slots(policy)

        def run(timer):
            with timer(FIRST_CALLS * CALL_KEYS):
                for _ in range(FIRST_CALLS):
                    slots.store_next()
            return f"{slots.check:016x}"

        return run

    return make


def hit(policy: str) -> Callable[[], Pass]:
    """lookup, touch, prepare_load, complete_load."""

    def make() -> Pass:
        slots = Slots(policy)
        manager, context = slots.manager, slots.context

        def run(timer):
            with timer(FIRST_CALLS * CALL_KEYS):
                for _ in range(FIRST_CALLS):
                    keys = slots.draw_there()
                    if not all(manager.lookup(key, context) for key in keys):
                        raise RuntimeError("vLLM missed a key")
                    manager.touch(keys)
                    manager.prepare_load(keys, context)
                    manager.complete_load(keys)
            return f"{slots.check:016x}"

        return run

    return make
