"""Records vLLM's BlockTable, and its slot-mapping kernel run by Triton's interpreter on the CPU."""
import torch
from recorder import SplitMix, ids

from vllm.v1.worker.block_table import BlockTable, _compute_slot_mapping_kernel

# (block size, kernel block size): equal, split in 2, 3 and 4, and not a power of two
SIZES = [(8, 8), (16, 16), (32, 32), (24, 24), (32, 16), (32, 8), (24, 8), (48, 24), (1, 1)]
# (prefill ranks, decode ranks)
WORLDS = [(1, 1)] * 4 + [(1, 2), (2, 1), (1, 4), (4, 1), (2, 2)]
INTERLEAVES = [1, 1, 2, 4, 8, 16]


def need_interpreter():
    """Without it the kernel would be the placeholder of a vLLM that has no Triton."""
    name = type(_compute_slot_mapping_kernel).__name__
    assert name == "InterpretedFunction", f"the slot-mapping kernel is a {name}"


class TableCase:
    """A table of few rows, with a context-parallel rank of its own."""

    def __init__(self, writer, rng):
        self.writer, self.rng = writer, rng
        self.rows = rng.randint(1, 5)
        self.width = rng.randint(1, 6)
        self.tokens = rng.randint(1, 48)
        block_size, kernel_size = rng.choice(SIZES)
        pcp, dcp = rng.choice(WORLDS)
        pcp_rank, dcp_rank = rng.randrange(pcp), rng.randrange(dcp)
        interleave = rng.choice([i for i in INTERLEAVES if kernel_size % i == 0])
        table = BlockTable(block_size, self.rows, self.width, self.tokens, False,
                           torch.device("cpu"), kernel_size, interleave)
        # What its constructor would take from the process groups of a running engine.
        table.pcp_world_size, table.pcp_rank = pcp, pcp_rank
        table.dcp_world_size, table.dcp_rank = dcp, dcp_rank
        self.table = table
        self.positions_per_entry = table.block_size * pcp * dcp
        writer.start_case(f"table {self.rows} {self.width} {self.tokens} {block_size} "
                          f"{kernel_size} {pcp} {pcp_rank} {dcp} {dcp_rank} {interleave}")

    def checked(self, line):
        table = self.table
        entries = table.get_numpy_array().reshape(-1).tolist()
        slots = table.slot_mapping.gpu.tolist()
        self.writer.checked(line, f"{line[0]}|{ids(table.num_blocks_per_row.tolist())}|"
                                  f"{ids(entries)}|{ids(slots)}")

    def draw_blocks(self, most):
        return [self.rng.choice([self.rng.randint(0, 9), self.rng.randint(0, 100000)])
                for _ in range(self.rng.randint(0, most))]

    def append_row(self, row):
        table = self.table
        blocks_in_row = int(table.num_blocks_per_row[row]) // table.blocks_per_kv_block
        blocks = self.draw_blocks(self.width - blocks_in_row)
        table.append_row(blocks, row)
        self.checked(f"a {row} {ids(blocks)}")

    def add_row(self, row):
        blocks = self.draw_blocks(self.width)
        self.table.add_row(blocks, row)
        self.checked(f"d {row} {ids(blocks)}")

    def draw_piece(self, row, room):
        """How many of a row's tokens are in the batch, and their positions: (start, seed, n)."""
        limit = int(self.table.num_blocks_per_row[row]) * self.positions_per_entry
        n = self.rng.randint(0, min(room, limit, 24))
        if self.rng.random() < 0.7:
            start = self.rng.randint(0, limit - n)
            return f"{start}:{n}", list(range(start, start + n))
        seed = self.rng.randrange(1 << 16)
        stream = SplitMix(seed)
        return f"~{seed}:{n}", [stream.next() % limit for _ in range(n)]

    def slot_mapping(self):
        """A batch; sometimes it starts late, or has tokens after its last row that nobody maps."""
        num_reqs = self.rng.randint(1, self.rows)
        start = self.rng.randint(0, self.tokens) if self.rng.random() < 0.1 else 0
        locations, positions, pieces = [start], [0] * start, []
        for row in range(num_reqs):
            text, drawn = self.draw_piece(row, self.tokens - len(positions))
            pieces.append(text)
            positions += drawn
            locations.append(len(positions))
        if self.rng.random() < 0.2:
            positions += [0] * self.rng.randint(0, self.tokens - len(positions))
        self.table.commit_block_table(self.rows)
        self.table.compute_slot_mapping(num_reqs, torch.tensor(locations, dtype=torch.int32),
                                        torch.tensor(positions, dtype=torch.int64))
        self.checked(f"s {start} {len(positions)} {','.join(pieces)}")

    def step(self):
        rng, table = self.rng, self.table
        row, other = rng.randrange(self.rows), rng.randrange(self.rows)
        op = rng.choice("aaadddcmwsssss" + ("z" if rng.random() < 0.3 else ""))
        if op == "a":
            self.append_row(row)
        elif op == "d":
            self.add_row(row)
        elif op == "c":
            table.clear_row(row)
            self.checked(f"c {row}")
        elif op == "m":
            table.move_row(row, other)
            self.checked(f"m {row} {other}")
        elif op == "w":
            table.swap_row(row, other)
            self.checked(f"w {row} {other}")
        elif op == "z":
            table.clear()
            self.checked("z")
        else:
            self.slot_mapping()


def record_table(writer, rng, count, _edges):
    """Sequences of operations on small tables; the whole table and all slots are compared."""
    need_interpreter()
    goal = writer.count + count
    while writer.count < goal:
        case = TableCase(writer, rng)
        for _ in range(min(goal - writer.count, rng.randint(10, 40))):
            case.step()
        writer.end_case()
