"""Records vLLM's BlockPool under a workload like that of a scheduler, and some rougher calls.

Requests sit in eight seats. A seat has the hashes of its request (those of one family up to some
depth, then of another, so that requests share prefixes), a group, and the blocks it holds. Lines
name seats rather than blocks: both sides know what a seat holds, because answers are compared.
"""
from recorder import digest, ids
from release import IS_0_20

from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.sampling_params import SamplingParams
from vllm.v1.core.block_pool import BlockPool
from vllm.v1.core.kv_cache_utils import (BlockHashListWithBlockSize, get_block_hash, get_group_id)
from vllm.v1.request import Request

SEATS = 8
HASH_BLOCK_SIZE = 16
SIZES = [1, 2, 3, 5, 8, 8, 16, 16, 24, 33, 48, 64, 100, 200]
PARAMS = SamplingParams(max_tokens=1)


def make_request(hashes):
    request = Request("r", [0], PARAMS, None)
    request.block_hashes = hashes
    return request


def event_text(event):
    if isinstance(event, BlockStored):
        hashes = ",".join(f"{h:x}" for h in event.block_hashes)
        parent = "-" if event.parent_block_hash is None else f"{event.parent_block_hash:x}"
        return f"S{event.group_idx}:{hashes}^{parent}/{event.block_size}"
    if isinstance(event, BlockRemoved):
        return f"R{event.group_idx}:{','.join(f'{h:x}' for h in event.block_hashes)}"
    assert isinstance(event, AllBlocksCleared)
    return "C"


def key_text(key):
    block_hash = get_block_hash(key)
    return f"@{get_group_id(key)}.{block_hash[:4].hex()}{block_hash[-4:].hex()}.{len(block_hash)}"


class Seat:
    """A request, its group, and the blocks it holds."""

    def __init__(self, hashes, group, scale):
        self.request = make_request(hashes)
        self.group = group
        self.scale = scale
        self.blocks = []
        self.num_cached = 0
        self.found = None

    def hashes(self):
        size = HASH_BLOCK_SIZE
        return BlockHashListWithBlockSize(self.request.block_hashes, size, size * self.scale)


class PoolCase:
    """A pool, its seats, and the ids that were touched outside of any seat."""

    def __init__(self, writer, rng):
        self.writer, self.rng = writer, rng
        self.num_blocks = rng.choice(SIZES)
        self.caching = rng.random() < 0.93
        self.digest_bytes = rng.choice([16, 32, 32])
        self.families = rng.randint(1, 5)
        self.pool = BlockPool(self.num_blocks, self.caching, HASH_BLOCK_SIZE,
                              enable_kv_cache_events=True)
        self.scales = [1, 1, 1]
        if rng.random() < 0.4:
            self.scales[rng.randint(0, 2)] = rng.choice([2, 2, 3])
        self.seats = [None] * SEATS
        self.loose = []
        writer.start_case(f"pool {self.num_blocks} {int(self.caching)} {self.digest_bytes} "
                          f"{ids(self.scales)}")

    # -- what is compared

    def state(self):
        pool = self.pool
        free = pool.free_block_queue.get_all_free_blocks()
        blocks = [f"{b.block_id}:{b.ref_cnt}" + (key_text(b.block_hash) if b.block_hash else "")
                  for b in pool.blocks[1:] if b.ref_cnt or b.block_hash]
        return (f"{pool.get_num_free_blocks()} {pool.get_usage():.9f} "
                f"{len(pool.cached_block_hash_to_block)}|{ids(b.block_id for b in free)}|"
                f"{' '.join(blocks)}")

    def checked(self, line, answer, in_order=True):
        events = [event_text(e) for e in self.pool.take_events()]
        if not in_order:
            events.sort()
        self.writer.checked(line, f"{line[0]}={answer}|{' '.join(events)}|{self.state()}")

    # -- operations on seats

    def draw_hashes(self):
        rng = self.rng
        first, second = rng.randrange(self.families), rng.randrange(self.families)
        length = rng.randint(1, min(24, max(2, self.num_blocks)))
        split = rng.randint(0, length)
        return first, split, second, length

    def hashes_of(self, first, split, second, length):
        return [digest(first if i < split else second, i, self.digest_bytes)
                for i in range(length)]

    def sit(self, index):
        spec = self.draw_hashes()
        group = self.rng.randint(0, 2)
        seat = self.seats[index] = Seat(self.hashes_of(*spec), group, self.scales[group])
        seat.found = self.look_up(seat) if self.caching else []
        self.checked("q{} {} {} {} {} {}".format(index, *spec, group),
                     ids(b.block_id for b in seat.found))

    def get_new_blocks(self, index):
        seat, rng = self.seats[index], self.rng
        room = len(seat.hashes()) + 1 - len(seat.blocks)
        n = rng.randint(0, max(1, room) if rng.random() < 0.95 else 2 * self.num_blocks)
        if rng.random() < 0.8:
            n = min(n, self.pool.get_num_free_blocks())
        if rng.random() < 0.05:
            self.writer.line(f"0{index}")
            seat.blocks.append(self.pool.null_block)
        try:
            new = self.pool.get_new_blocks(n)
            answer = ids(b.block_id for b in new)
            seat.blocks += new
        except ValueError:
            answer = "!"
        self.checked(f"n{index} {n}", answer)

    def look_up(self, seat):
        """The longest cached prefix, as the cache's manager would look for it."""
        found = []
        for block_hash in seat.hashes():
            hit = self.pool.get_cached_block(block_hash, [seat.group])
            if hit is None:
                break
            found += hit
        return found

    def touch_found(self, index):
        seat = self.seats[index]
        self.pool.touch(seat.found)
        seat.blocks = seat.found
        seat.num_cached = len(seat.found)
        seat.found = None
        self.checked(f"u{index}", "")

    def cache_full(self, index):
        seat = self.seats[index]
        most = min(len(seat.blocks), len(seat.hashes()))
        full = self.rng.randint(min(seat.num_cached, most), most)
        self.pool.cache_full_blocks(seat.request, seat.blocks, seat.num_cached, full,
                                    HASH_BLOCK_SIZE * seat.scale, seat.group)
        seat.num_cached = max(seat.num_cached, full)
        self.checked(f"c{index} {full}", "")

    def free_seat(self, index):
        """All blocks, or those from some point on, last to first or first to last."""
        seat, rng = self.seats[index], self.rng
        start = 0 if rng.random() < 0.8 else rng.randint(0, len(seat.blocks))
        order = int(rng.random() < 0.15)
        going = [b for b in seat.blocks[start:] if not b.is_null]
        self.pool.free_blocks(going if order else reversed(going))
        seat.blocks = seat.blocks[:start]
        seat.num_cached = min(seat.num_cached, start)
        self.checked(f"F{index} {start} {order}" if start or order else f"f{index}", "")
        if start == 0:
            self.seats[index] = None

    # -- rougher calls, on blocks by their ids

    def some_blocks(self, most):
        rng = self.rng
        return [rng.randrange(1, self.num_blocks) for _ in range(rng.randint(0, most))]

    def touch(self):
        chosen = self.some_blocks(3)
        self.pool.touch([self.pool.blocks[b] for b in chosen])
        self.loose += chosen
        self.checked(f"t {ids(chosen)}", "")

    def free_loose(self):
        """Never a block twice in one call that frees it for good: vLLM would queue it twice."""
        self.rng.shuffle(self.loose)
        going = []
        for block in self.loose[:self.rng.randint(0, len(self.loose))]:
            if block not in going or self.pool.blocks[block].ref_cnt > going.count(block) + 1:
                going.append(block)
        going = [b for b in going
                 if going.count(b) == 1 or self.pool.blocks[b].ref_cnt > going.count(b)]
        for block in going:
            self.loose.remove(block)
        self.pool.free_blocks([self.pool.blocks[b] for b in going])
        self.checked(f"d {ids(going)}", "")

    def get_cached(self):
        rng = self.rng
        family, depth = rng.randrange(self.families), rng.randint(0, 6)
        scale = rng.choice([1, 1, 2])
        groups = rng.sample([0, 1, 2], rng.randint(1, 3)) if rng.random() < 0.5 else [0]
        joined = b"".join(digest(family, depth * scale + i, self.digest_bytes)
                          for i in range(0 if IS_0_20 else scale - 1, scale))
        hit = self.pool.get_cached_block(joined, groups)
        answer = "!" if hit is None else ids(b.block_id for b in hit)
        self.checked(f"g {family} {depth} {scale} {ids(groups)}", answer)

    def cache_one(self):
        """A block without a key, in use or not, as the one at some depth of a request."""
        rng = self.rng
        bare = [b for b in self.pool.blocks[1:] if b.block_hash is None]
        if not bare:
            return self.get_cached()
        block = rng.choice(bare)
        for seat in self.seats:
            if seat and any(b is block for b in seat.blocks[seat.num_cached:]):
                return self.get_cached()  # its seat will give it a key
        family, depth, group = rng.randrange(self.families), rng.randint(0, 5), rng.randint(0, 2)
        request = make_request(self.hashes_of(family, depth + 1, family, depth + 1))
        blocks = [self.pool.null_block] * depth + [block]
        self.pool.cache_full_blocks(request, blocks, depth, depth + 1, HASH_BLOCK_SIZE, group)
        self.checked(f"k {family} {depth} {group} {block.block_id}", "")

    def evict(self):
        chosen = set(self.some_blocks(4))
        self.pool.evict_blocks(chosen)
        self.checked(f"e {ids(sorted(chosen))}", "", in_order=False)

    def reset(self):
        self.checked("z", int(self.pool.reset_prefix_cache()))

    # -- the workload

    def rough_step(self):
        if self.num_blocks == 1:
            return self.get_new_blocks(0) if self.seats[0] else self.sit(0)
        calls = [self.touch, self.free_loose, self.free_loose]
        if self.caching:
            calls += [self.get_cached, self.get_cached, self.cache_one, self.evict]
        return self.rng.choice(calls)()

    def seat_step(self):
        index = self.rng.randrange(SEATS)
        seat = self.seats[index]
        if seat is None:
            return self.sit(index)
        if seat.found and not seat.blocks:
            return self.touch_found(index)
        seat.found = None
        choice = self.rng.random()
        holders = [i for i, other in enumerate(self.seats) if other and other.blocks]
        if holders and self.pool.get_num_free_blocks() == 0 and choice < 0.5:
            return self.free_seat(self.rng.choice(holders))
        if choice < 0.4 or not seat.blocks:
            return self.get_new_blocks(index)
        if choice < 0.8 and self.caching:
            return self.cache_full(index)
        return self.free_seat(index)

    def step(self):
        choice = self.rng.random()
        if choice < 0.86:
            return self.seat_step()
        return self.reset() if choice < 0.87 else self.rough_step()

    def drain(self):
        """Everything is given back, and the cache is reset: the one time that it can be."""
        for index, seat in enumerate(self.seats):
            while self.seats[index]:
                self.free_seat(index)
        while self.loose:
            self.free_loose()
        self.reset()


def record_pool(writer, rng, count, _edges):
    """Sequences of operations on pools of several sizes."""
    goal = writer.count + count
    while writer.count < goal:
        case = PoolCase(writer, rng)
        for _ in range(min(goal - writer.count, rng.randint(40, 260))):
            case.step()
        case.drain()
        writer.end_case()
