"""Records vLLM's free queue and its map from keys to blocks."""
from recorder import digest, ids
from release import IS_0_20

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import (FreeKVCacheBlockQueue, KVCacheBlock,
                                         make_block_hash_with_group_id)

SIZES = [1, 2, 3, 5, 8, 20, 60, 200]


def queue_state(queue):
    free = queue.get_all_free_blocks()
    return f"{queue.num_free_blocks}|{ids(b.block_id for b in free)}"


def queue_step(rng, queue, out):
    """One operation: what the recording says, and what it answered."""
    op = rng.choice("ppPPaAArr" if IS_0_20 else "ppPPaAABBrr")
    inside = queue.get_all_free_blocks()
    if op == "p":
        try:
            return "p", f"p={queue.popleft().block_id}"
        except ValueError:
            return "p", "p=!"
    if op == "P":
        most = len(inside) if rng.random() < 0.3 else 4
        n = min(len(inside), rng.randint(0, most))
        return f"P {n}", f"P={ids(b.block_id for b in queue.popleft_n(n))}"
    if op == "r" and inside:
        block = rng.choice(inside)
        queue.remove(block)
        return f"r {block.block_id}", "r"
    if op == "a" and out:
        block = rng.choice(out)
        queue.append(block)
        return f"a {block.block_id}", "a"
    some = rng.sample(out, rng.randint(0, len(out)))
    if op == "B":
        queue.prepend_n(some)
        return f"B {ids(b.block_id for b in some)}", "B"
    queue.append_n(some)
    return f"A {ids(b.block_id for b in some)}", "A"


def record_queue(writer, rng, count, _edges):
    """Sequences of operations on queues of several sizes."""
    goal = writer.count + count
    while writer.count < goal:
        size = rng.choice(SIZES)
        first = rng.randint(0, min(2, size))
        blocks = [KVCacheBlock(i) for i in range(size)]
        queue = FreeKVCacheBlockQueue(blocks[first:])
        writer.start_case(f"queue {size} {first}")
        for _ in range(min(goal - writer.count, rng.randint(20, 120))):
            out = [b for b in blocks[first:] if b.next_free_block is None]
            line, answer = queue_step(rng, queue, out)
            writer.checked(line, f"{answer}|{queue_state(queue)}")
        writer.end_case()


class MapCase:
    """A map, and which key each block has: (family, depth, length, group) or None.

    A hash of 16 bytes is the first half of the one of 32 bytes of the same family and depth, so
    that keys differ in nothing but their length now and then."""

    def __init__(self, rng, size):
        self.rng = rng
        self.map = BlockHashToBlockMap()
        self.blocks = [KVCacheBlock(i) for i in range(size)]
        self.keys = [None] * size

    def draw_key(self):
        rng = self.rng
        return (rng.randint(0, 1), rng.randint(0, 7), rng.choice([16, 32, 32, 64]),
                rng.randint(0, 2))

    @staticmethod
    def pack(key):
        family, depth, size, group = key
        return make_block_hash_with_group_id(digest(family, depth, size), group)

    def chain(self, packed):
        found = self.map._cache.get(packed)
        if found is None:
            return []
        return list(found) if isinstance(found, dict) else [found.block_id]

    def state(self):
        chains = sorted(self.chain(key) for key in self.map._cache)
        return f"{len(self.map)}|{' '.join('>'.join(map(str, c)) for c in chains)}"

    def get(self):
        key = self.draw_key()
        block = self.map.get_one_block(self.pack(key))
        return "g {} {} {} {}".format(*key), f"g={block.block_id if block else 0}"

    def get_run(self):
        family, _, size, group = self.draw_key()
        length = self.rng.randint(1, 8)
        found = []
        for i in range(length):
            block = self.map.get_one_block(self.pack((family, i, size, group)))
            if block is None:
                break
            found.append(block.block_id)
        return f"u {family} {length} {size} {group}", f"u={ids(found)}"

    def insert(self, block):
        key = self.draw_key()
        self.map.insert(self.pack(key), self.blocks[block])
        self.keys[block] = key
        return "i {} {} {} {} {}".format(block, *key), "i"

    def pop(self, block):
        packed = self.pack(self.keys[block])
        assert self.map.pop(packed, block) is self.blocks[block]
        self.keys[block] = None
        return f"p {block}", f"p={int(bool(self.chain(packed)))}"

    def contain(self):
        key, block = self.draw_key(), self.rng.randrange(len(self.keys))
        if self.keys[block] and self.rng.random() < 0.5:
            key = self.keys[block]
        return "c {} {} {} {} {}".format(block, *key), f"c={int(self.map.contain(self.pack(key), block))}"

    def step(self):
        bare = [b for b in range(1, len(self.keys)) if self.keys[b] is None]
        keyed = [b for b in range(1, len(self.keys)) if self.keys[b] is not None]
        op = self.rng.choice("giiiippu" if IS_0_20 else "giiiippuc")
        if op == "c":
            return self.contain()
        if op == "i" and bare:
            return self.insert(self.rng.choice(bare))
        if op == "p" and keyed:
            return self.pop(self.rng.choice(keyed))
        return self.get_run() if op == "u" else self.get()


def record_map(writer, rng, count, _edges):
    """Sequences of operations on maps of several sizes, with few keys, so that many are equal."""
    goal = writer.count + count
    while writer.count < goal:
        case = MapCase(rng, rng.choice(SIZES[1:]))
        writer.start_case(f"map {len(case.keys)}")
        for _ in range(min(goal - writer.count, rng.randint(20, 120))):
            line, answer = case.step()
            writer.checked(line, f"{answer}|{case.state()}")
        writer.end_case()
