"""quire.vllm's KVCacheManager beside vLLM's: lookups, allocation and freeing, through Python.

    python bench/vllm_cache_dropin.py --rounds 7 [--platform MODULE]

Both sides in one process and in alternating rounds, with the same Request objects; caching is on,
stats and events are off. Both must come to the same block ids in every round. Rows: median
(fastest .. slowest) in microseconds for one call.
"""
import argparse
import importlib
import statistics
import time
from types import SimpleNamespace

BLOCK_SIZE = 16
PROMPT_BLOCKS = 4096
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_SIZE + 1
NUM_BLOCKS = 20_000
DECODERS = 256
DECODE_STEPS = 32


class Prompt:
    """What a KVCacheManager reads of a Request."""

    skip_reading_prefix_cache = False
    num_preemptions = 0

    def __init__(self, name: str, num_tokens: int, family: int):
        self.request_id, self.num_tokens, self.num_computed_tokens = name, num_tokens, 0
        self.block_hashes = [(family << 32 | i).to_bytes(32, "big")
                             for i in range(num_tokens // BLOCK_SIZE)]


class Side:
    """One manager."""

    def __init__(self, kind, mix: str):
        from vllm.v1.kv_cache_interface import KVCacheConfig
        from vllm_cache import groups_of

        self.manager = kind(KVCacheConfig(NUM_BLOCKS, [], groups_of(mix)), 2 * PROMPT_TOKENS,
                            BLOCK_SIZE)

    def fill(self, prompt: Prompt) -> None:
        """Its blocks are cached, and nobody's."""
        assert self.manager.allocate_slots(prompt, prompt.num_tokens) is not None
        self.manager.free(prompt)


def ids_of(blocks) -> list[int]:
    return [block.block_id for group in blocks.blocks for block in group]


def timed(call, *args) -> tuple[float, object]:
    start = time.perf_counter()
    answer = call(*args)
    return (time.perf_counter() - start) * 1e6, answer


def look_up(side: Side, is_hit: bool) -> tuple[float, object]:
    prompt = SimpleNamespace(**vars(Prompt("asked", PROMPT_TOKENS, 1 if is_hit else 7)),
                             skip_reading_prefix_cache=False, num_preemptions=0)
    spent, (blocks, num_tokens) = timed(side.manager.get_computed_blocks, prompt)
    return spent, (ids_of(blocks), num_tokens)


def admit(side: Side, is_hit: bool) -> tuple[float, object]:
    """get_computed_blocks, allocate_slots and free of one prompt."""
    manager, prompt = side.manager, Prompt("asked", PROMPT_TOKENS, 1)
    if not is_hit:
        prompt.skip_reading_prefix_cache = True

    def call():
        blocks, num_tokens = manager.get_computed_blocks(prompt)
        made = manager.allocate_slots(prompt, PROMPT_TOKENS - num_tokens, num_tokens, blocks)
        manager.free(prompt)
        return ids_of(made)

    return timed(call)


def decode(side: Side, _unused: bool) -> tuple[float, object]:
    """One token for each of the requests, by call."""
    manager, prompts, made = side.manager, [], []
    for i in range(DECODERS):
        prompts.append(Prompt(f"decoder-{i}", 500, 100 + i))
        manager.allocate_slots(prompts[-1], 500)
        prompts[-1].num_computed_tokens = 500
    spent = 0.0
    for step in range(DECODE_STEPS):
        for i, prompt in enumerate(prompts):
            prompt.num_tokens += 1
            if prompt.num_tokens % BLOCK_SIZE == 0:
                prompt.block_hashes.append((1000 + i << 40 | step).to_bytes(32, "big"))
        start = time.perf_counter()
        for prompt in prompts:
            made.append(manager.allocate_slots(prompt, 1))
        spent += time.perf_counter() - start
        for prompt in prompts:
            prompt.num_computed_tokens += 1
    for prompt in prompts:
        manager.free(prompt)
    return (spent / DECODE_STEPS / DECODERS * 1e6,
            [block_id for blocks in made for block_id in ids_of(blocks)])


def show(name: str, theirs: list[float], ours: list[float]) -> None:
    columns = [f"{statistics.median(side):9.2f} ({min(side):.2f} .. {max(side):.2f})"
               for side in (theirs, ours)]
    ratio = statistics.median(theirs) / statistics.median(ours)
    print(f"{name:44} {columns[0]:36} {columns[1]:32} {ratio:6.1f}", flush=True)


def row(name: str, mix: str, call, is_hit: bool, rounds: int) -> None:
    from quire.vllm.kv_cache_manager import KVCacheManager as Ours
    from vllm.v1.core.kv_cache_manager import KVCacheManager as Theirs

    sides = [Side(kind, mix) for kind in (Theirs, Ours)]
    for side in sides:
        side.fill(Prompt("first", PROMPT_TOKENS, 1))
    spent = [[], []]
    for number in range(rounds + 1):  # the first one warms up
        results = [call(side, is_hit) for side in sides]
        assert results[0][1] == results[1][1], "not the same answers"
        if number > 0:
            for column, (microseconds, _answer) in zip(spent, results):
                column.append(microseconds)
    show(name, *spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--platform", help="module to import first, where there is no GPU")
    given = parser.parse_args()
    if given.platform:
        importlib.import_module(given.platform)
    print(f"{'':44} {'vLLM, us':36} {'quire.vllm, us':32} ratio")
    for mix in ("full", "window"):
        row(f"get_computed_blocks, 64k tokens, {mix}", mix, look_up, True, given.rounds)
        row(f"the same, nothing is cached, {mix}", mix, look_up, False, given.rounds)
        row(f"admit and free, 64k tokens, all hits, {mix}", mix, admit, True, given.rounds)
        row(f"the same, all new, {mix}", mix, admit, False, given.rounds)
        row(f"allocate_slots, one token, {mix}", mix, decode, False, given.rounds)


if __name__ == "__main__":
    main()
