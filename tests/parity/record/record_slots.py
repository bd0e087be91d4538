"""Records vLLM's CPUOffloadingManager with its two policies, LRU and ARC.

Keys are numbers on a ring; a line names some of them as first, how many and step, so that most lists
are runs as of a request's blocks, and some are scattered. Calls that vLLM answers with an assertion
after half of its work are not made: Quire must refuse them, and change nothing.
"""
from recorder import digest, ids

from vllm.v1.kv_offload.abstract import ReqContext, make_offload_key
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

SIZES = [1, 2, 3, 4, 6, 8, 8, 12, 16, 24, 40]
CONTEXT = ReqContext()


def key_of(number):
    return make_offload_key(digest(0, number, 32), number % 3)


class SlotsCase:
    """A manager, and which of its keys are being written or read."""

    def __init__(self, writer, rng, policy):
        self.writer, self.rng, self.policy = writer, rng, policy
        self.num_slots = rng.choice(SIZES)
        self.num_keys = rng.randint(self.num_slots + 1, 3 * self.num_slots + 6)
        self.keys = [key_of(i) for i in range(self.num_keys)]
        self.numbers = {key: i for i, key in enumerate(self.keys)}
        self.manager = CPUOffloadingManager(self.num_slots, policy, enable_events=True)
        self.haste = rng.choice([0.5, 0.8, 0.95])  # how soon what was begun is completed
        self.writing, self.reading = [], []
        writer.start_case(f"slots {policy} {self.num_slots} {self.num_keys}")

    # -- what is compared

    def names(self, keys):
        return ids(self.numbers[k] for k in keys)

    def blocks_text(self, blocks):
        return ",".join(f"{self.numbers[k]}:{b.block_id}:{b.ref_cnt}" for k, b in blocks.items())

    def state(self):
        policy = self.manager._policy
        if self.policy == "lru":
            return self.blocks_text(policy.blocks)
        return (f"{self.blocks_text(policy.t1)}/{self.blocks_text(policy.t2)}/"
                f"{self.names(policy.b1)}/{self.names(policy.b2)}/{policy.target_t1_size:.17g}")

    def checked(self, line, answer):
        events = " ".join(("R" if e.removed else "S") + self.names(e.keys)
                          for e in self.manager.take_events())
        self.writer.checked(line, f"{line[0]}={answer}|{events}|{self.state()}")

    # -- operations

    def draw(self, most=None):
        """first, how many, step: a run mostly, else scattered, without the same key twice."""
        rng = self.rng
        most = min(self.num_keys, most or self.num_slots + 2)
        n = rng.randint(1, most)
        first = rng.randrange(self.num_keys)
        if rng.random() < 0.4:
            first = 0  # many requests begin alike
        step = 1
        if rng.random() < 0.15:
            step = rng.randint(1, self.num_keys - 1)
            n = min(n, len({i * step % self.num_keys for i in range(self.num_keys)}))
        return first, n, step

    def list_of(self, spec):
        first, n, step = spec
        return [self.keys[(first + i * step) % self.num_keys] for i in range(n)]

    @staticmethod
    def text(op, spec):
        first, n, step = spec
        return f"{op}{first} {n}" + (f" {step}" if step != 1 else "")

    def lookup(self):
        spec = self.draw()
        found = [self.manager.lookup(k, CONTEXT) for k in self.list_of(spec)]
        self.checked(self.text("l", spec), "".join("01"[f] for f in found))

    def touch(self):
        spec = self.draw()
        if self.rng.random() < 0.05:
            spec = (spec[0], spec[1], 0)
        self.manager.touch(self.list_of(spec))
        self.checked(self.text("t", spec), "")

    def prepare_store(self):
        spec = self.draw()
        keys = self.list_of(spec)
        output = self.manager.prepare_store(keys, CONTEXT)
        if output is None:
            self.checked(self.text("s", spec), "!")
            return
        if output.keys_to_store:
            self.writing.append(spec)
        self.checked(self.text("s", spec),
                     f"{self.names(output.keys_to_store)}@{ids(output.store_spec.block_ids)}"
                     f"-{self.names(output.evicted_keys)}")

    def complete_store(self):
        rng = self.rng
        if not self.writing or rng.random() < 0.05:
            spec = self.draw()
        else:
            spec = self.writing.pop(rng.randrange(len(self.writing)))
        success = rng.random() < 0.85
        self.manager.complete_store(self.list_of(spec), success)
        self.checked(self.text("c" if success else "x", spec), "")

    def prepare_load(self):
        spec = self.draw(4)
        if self.rng.random() < 0.05:
            spec = (spec[0], spec[1], 0)
        keys = self.list_of(spec)
        if not all(self.manager.lookup(k, CONTEXT) for k in keys):
            self.checked(self.text("p", spec), "!")
            return
        slots = self.manager.prepare_load(keys, CONTEXT).block_ids
        self.reading.append(spec)
        self.checked(self.text("p", spec), ids(slots))

    def complete_load(self):
        if not self.reading:
            return self.lookup()
        spec = self.reading.pop(self.rng.randrange(len(self.reading)))
        self.manager.complete_load(self.list_of(spec))
        self.checked(self.text("q", spec), "")

    def misuse(self):
        """The end of a load that was not begun."""
        spec = self.draw(3)
        used = {}
        for key in self.list_of(spec):
            used[key] = used.get(key, 0) + 1
        blocks = [(self.manager._policy.get(k), n) for k, n in used.items()]
        if all(b is not None and b.ref_cnt >= n for b, n in blocks):
            return self.lookup()
        self.checked(self.text("q", spec), "!")

    def step(self):
        rng = self.rng
        if self.writing and rng.random() < self.haste * 0.5:
            return self.complete_store()
        if self.reading and rng.random() < self.haste * 0.3:
            return self.complete_load()
        op = rng.choice("llttttttsssssssssccpppqm")
        return {"l": self.lookup, "t": self.touch, "s": self.prepare_store,
                "c": self.complete_store, "p": self.prepare_load, "q": self.complete_load,
                "m": self.misuse}[op]()


def record_slots(writer, rng, count, _edges):
    """One manager in a run; the policies take turns by a draw."""
    goal = writer.count + count
    case = SlotsCase(writer, rng, rng.choice(["lru", "arc"]))
    while writer.count < goal:
        case.step()
    writer.end_case()
