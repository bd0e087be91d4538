"""quire._connector: planners and workers over real memory, driven by a toy engine. Needs no vLLM."""
import ctypes
import hashlib
import random
from types import SimpleNamespace

import pytest

connector = pytest.importorskip("quire._connector")

BLOCK, PAGE, DIGEST = 4, 64, 32  # tokens, bytes of a region's page, bytes of a hash
NUM_BLOCKS, NUM_SLOTS = 24, 80
FULL, WINDOW = 1, 5


def numbers(**more):
    cache = {"num_blocks": NUM_BLOCKS, "max_model_len": 400, "hash_block_size": BLOCK,
             "digest_bytes": DIGEST, "profile": 1,
             "groups": [{"kind": FULL, "block_size": BLOCK, "num_kv_heads": 1, "head_size": 2,
                         "dtype": 2}]}
    return {"cache": cache, "num_slots": NUM_SLOTS, "block_bytes": 2 * PAGE, "num_ranks": 1,
            "max_requests": 64, "tiers": []} | more


class Memory:
    """The engine's KV memory of one rank: K and V apart."""

    def __init__(self, rank=0, num_ranks=1, tiers=(), **more):
        self.rank = rank
        self.parts = [ctypes.create_string_buffer(NUM_BLOCKS * PAGE) for _ in range(2)]
        self.worker = connector.Worker({
            "regions": [(ctypes.addressof(part), PAGE, PAGE) for part in self.parts],
            "num_blocks": NUM_BLOCKS, "num_slots": NUM_SLOTS, "rank": rank, "key_rank": rank,
            "num_ranks": num_ranks, "tiers": list(tiers)} | more)

    def page(self, part, block_hash):
        """What the engine computes for a block: other bytes for each rank."""
        return hashlib.sha512(block_hash + bytes([part, self.rank])).digest()

    def write(self, block, block_hash):
        for part, memory in enumerate(self.parts):
            memory[block * PAGE:(block + 1) * PAGE] = self.page(part, block_hash)

    def has(self, block, block_hash):
        return all(memory[block * PAGE:(block + 1) * PAGE] == self.page(part, block_hash)
                   for part, memory in enumerate(self.parts))


def hashes_of(tokens):
    made, last = [], b""
    for i in range(len(tokens) // BLOCK):
        last = hashlib.sha256(last + bytes(tokens[i * BLOCK:(i + 1) * BLOCK])).digest()
        made.append(last)
    return made


class Engine:
    """Requests one after the other; blocks are held as plans say."""

    def __init__(self, num_ranks=1, rank_tiers=(), **more):
        self.planner = connector.Planner(numbers(num_ranks=num_ranks, **more))
        self.ranks = [Memory(rank, num_ranks, rank_tiers[rank] if rank_tiers else ()) for rank in range(num_ranks)]
        self.users = [0] * NUM_BLOCKS
        self.step, self.known, self.loaded, self.failed = 0, {}, [], []

    def take(self, count):
        """Blocks without users, in any order."""
        free = [i for i in range(1, NUM_BLOCKS) if self.users[i] == 0][:count]
        assert len(free) == count
        for i in free:
            self.users[i] += 1
        return free

    def free(self, blocks):
        for i in blocks:
            self.users[i] -= 1
            assert self.users[i] >= 0

    def turn(self, new=(), wait_ns=0):
        self.step += 1
        self.planner.new_requests(self.known, list(new))
        plan, held = self.planner.plan(self.step, 8, 1)
        for i in held:
            self.users[i] += 1
        for rank in self.ranks:
            if plan:
                assert rank.worker.submit(plan)
        for rank in self.ranks:
            report = rank.worker.poll(wait_ns)
            if report:
                assert self.planner.report(report)
        loaded, failed, _, released = self.planner.results(self.step)
        self.loaded += loaded
        self.failed += failed
        self.free(released)

    def serve(self, name, tokens):
        """Computes a request, or loads a part of it; the number of tokens that were loaded."""
        request = SimpleNamespace(request_id=name, block_hashes=hashes_of(tokens))
        known = self.known[name] = self.planner.add(request)
        count = self.planner.match(known, len(tokens), 0)
        for _ in range(2000):
            if count is not None:
                break
            self.turn(wait_ns=1_000_000)
            count = self.planner.match(known, len(tokens), 0)
        assert count is not None
        blocks = self.take((len(tokens) + BLOCK - 1) // BLOCK)
        self.planner.allocated(known, (blocks,) if count else None, count)
        while count and known not in self.loaded:
            assert not self.failed
            self.turn(wait_ns=1_000_000)
        known.is_loading = 0
        for i, block_hash in enumerate(request.block_hashes):
            for rank in self.ranks:
                if i < count // BLOCK:
                    assert rank.has(blocks[i], block_hash), f"{name}: block {i} has other bytes"
                rank.write(blocks[i], block_hash)
        data = SimpleNamespace(req_id=name, block_ids=(blocks,), num_computed_tokens=count)
        self.turn([data])
        for i in self.planner.finished(known, (blocks,), len(tokens)):
            self.users[i] += 1
        del self.known[name]
        self.free(blocks)
        self.turn()
        return count

    def settle(self):
        for _ in range(2000):
            self.turn(wait_ns=1_000_000)
            if not self.planner.has_pending():
                break
        self.planner.check()
        assert not any(self.users), "blocks are still held"


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_bytes_come_back(num_ranks):
    engine, rng = Engine(num_ranks), random.Random(num_ranks)
    prefixes = [[rng.randrange(250) for _ in range(rng.randrange(8, 40))] for _ in range(6)]
    found = 0
    for i in range(120):
        tokens = rng.choice(prefixes) + [rng.randrange(250) for _ in range(rng.randrange(1, 24))]
        found += engine.serve(f"r{i}", tokens)
    engine.settle()
    stats = engine.planner.stats()
    assert found > 1000 and stats["hit_tokens"] == found
    assert stats["stored_blocks"] > 100 and stats["failed_loads"] == 0


def file_tiers(folder, num_ranks, **more):
    identity = connector.fingerprint({"model": "toy"})
    return [[{"kind": "file", "path": f"{folder}/{rank}", "bytes": 1 << 20, "fingerprint": identity,
              "checkpoint_ms": 50} | more] for rank in range(num_ranks)]


def tier(**more):
    return [{"label": "file", "medium": "DISK", "is_persistent": 1} | more]


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_files_survive_a_restart(tmp_path, num_ranks):
    rng = random.Random(7)
    tokens = [rng.randrange(250) for _ in range(61)]
    first = Engine(num_ranks, file_tiers(tmp_path, num_ranks), tiers=tier())
    assert first.serve("a", tokens) == 0
    first.settle()
    assert first.planner.stats()["tiers"][0]["stored_blocks"] == 15
    for rank in first.ranks:
        assert rank.worker.close(1_000_000_000)
    second = Engine(num_ranks, file_tiers(tmp_path, num_ranks), tiers=tier())
    assert second.serve("b", tokens) == 60
    second.settle()
    assert second.planner.stats()["tiers"][0]["hit_tokens"] == 60


def test_a_corrupt_file_of_one_rank_is_computed(tmp_path):
    tokens = list(range(61))
    first = Engine(2, file_tiers(tmp_path, 2), tiers=tier())
    first.serve("a", tokens)
    first.settle()
    for rank in first.ranks:
        assert rank.worker.close(1_000_000_000)
    bad = bytearray((tmp_path / "1").read_bytes())
    page = first.ranks[1].page(0, hashes_of(tokens)[3])
    at = bytes(bad).find(page)
    assert at > 0
    bad[at] ^= 1
    (tmp_path / "1").write_bytes(bad)
    second = Engine(2, file_tiers(tmp_path, 2), tiers=tier())
    assert second.serve("b", tokens) == 3 * BLOCK  # what is before the bad block
    second.settle()
    assert second.planner.stats()["tiers"][0]["failed_blocks"] >= 1


def test_self_test():
    memory = Memory()
    memory.worker.self_test(22, 23, 1_000_000_000)
    assert memory.worker.stats()["jobs_in_flight"] == 0


def test_reset_forgets_all():
    engine, tokens = Engine(), list(range(41))
    assert engine.serve("a", tokens) == 0 and engine.serve("b", tokens) == 40
    assert engine.planner.reset()
    assert engine.serve("c", tokens) == 0 and engine.serve("d", tokens) == 40
    engine.settle()


def test_another_identity(tmp_path):
    engine = Engine(1, file_tiers(tmp_path, 1), tiers=tier())
    tokens = list(range(41))
    engine.serve("a", tokens)
    engine.settle()
    engine.planner.set_identity(connector.fingerprint({"model": "other"}))
    engine.turn()
    assert engine.serve("b", tokens) == 0 and engine.serve("c", tokens) == 40
    engine.settle()


def test_events_name_positions():
    engine = Engine(events=True)
    tokens = list(range(41))
    engine.serve("a", tokens)
    stored = engine.planner.take_events()
    assert [event[1] for event in stored] == hashes_of(tokens) and engine.planner.take_events() == []
    assert [event[4] for event in stored] == list(range(10)) and {event[0] for event in stored} == {1}
    assert all(event[3].request.request_id == "a" for event in stored)
    engine.planner.reset()
    assert {event[0] for event in engine.planner.take_events()} == {2}


def window_planner(**more):
    groups = [{"kind": WINDOW, "block_size": BLOCK, "num_kv_heads": 1, "head_size": 2, "dtype": 2,
               "sliding_window": 8}]
    planner = connector.Planner(numbers(cache=numbers()["cache"] | {"groups": groups}, **more))
    hashes = hashes_of(list(range(40)))
    pool = [SimpleNamespace(block_hash=None, ref_cnt=1) for _ in range(NUM_BLOCKS)]
    for i in (6, 7, 8):  # the others were given to somebody else
        pool[i + 1].block_hash = hashes[i] + (0).to_bytes(4, "big")
    planner.bind(pool)
    known = planner.add(SimpleNamespace(request_id="a", block_hashes=hashes))
    new = [SimpleNamespace(req_id="a", block_ids=(list(range(1, 11)),), num_computed_tokens=40)]
    return planner, pool, known, new


def go_on(planner, known, computed):
    planner.cached_requests({"a": known}, ["a"], [None], [computed], set())


def test_windows_store_only_what_the_pool_still_has():
    planner, _, known, new = window_planner()
    planner.new_requests({"a": known}, new)
    assert planner.plan(1, 1, 1)[1] == [7, 8, 9]


def test_windows_that_another_request_fills_are_stored_in_the_next_step():
    """vLLM counts a block as computed that another request fills in the same step."""
    planner, pool, known, new = window_planner()
    pool[8].ref_cnt = 2
    planner.new_requests({"a": known}, new)
    assert planner.plan(1, 1, 1)[1] == [7]
    pool[8].ref_cnt = 1
    go_on(planner, known, 41)
    assert planner.plan(2, 1, 1)[1] == [8, 9]


def test_windows_wait_for_stores_in_flight():
    planner, _, known, new = window_planner(num_slots=4)  # two in flight
    planner.new_requests({"a": known}, new)
    assert planner.plan(1, 1, 1)[1] == [7, 8]
    go_on(planner, known, 41)
    assert planner.plan(2, 1, 1)[1] == []  # no worker has reported
    planner.finished(known, ([],), 0)


# -- refusals

@pytest.mark.parametrize("more, sentence", [
    ({"num_slots": 1}, "num_slots"),
    ({"cache": {}}, "groups"),
    ({"cache": 1}, "cache must be a dict"),
    ({"num_ranks": 1000}, "num_ranks"),
    ({"tiers": [1]}, "must be a dict"),
    ({"tiers": [{}] * 9}, "tiers"),
])
def test_planners_that_are_refused(more, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence):
        connector.Planner(numbers(**more))


@pytest.mark.parametrize("more, kind, sentence", [
    ({"regions": []}, ValueError, "regions"),
    ({"regions": [(1, 2)]}, TypeError, "argument"),
    ({"num_slots": 0}, ValueError, "num_slots|bytes"),
    ({"rank": 2}, ValueError, "rank"),
    ({"tiers": [{"kind": "tape"}]}, ValueError, 'no tier of kind "tape"'),
    ({"tiers": [{"kind": "file"}]}, ValueError, "fingerprint"),
])
def test_workers_that_are_refused(more, kind, sentence):
    with pytest.raises(kind, match=sentence):
        Memory(**more)


def test_plans_and_reports_that_are_refused():
    memory, planner = Memory(), connector.Planner(numbers())
    with pytest.raises(RuntimeError, match="plan"):
        memory.worker.submit(b"no plan at all, but long enough for a head")
    with pytest.raises(RuntimeError, match="report"):
        planner.report(b"no report at all, but long enough for a head")
    assert memory.worker.close(0)
    with pytest.raises(RuntimeError, match="closed"):
        memory.worker.submit(b"")


def test_requests_that_are_wrong():
    planner = connector.Planner(numbers(max_requests=2))
    short = planner.add(SimpleNamespace(request_id="a", block_hashes=[b"short"]))
    with pytest.raises(ValueError, match=r"block_hashes\[0\] must be 32 bytes"):
        planner.match(short, 9, 0)
    odd = planner.add(SimpleNamespace(request_id="b", block_hashes=3))
    with pytest.raises(TypeError, match="must be a list"):
        planner.match(odd, 9, 0)
    assert planner.add(SimpleNamespace(request_id="c", block_hashes=[])) is None  # too many
    with pytest.raises(ValueError, match="tuple of 1 lists"):
        planner.allocated(short, ([1], [2]), 4)
    planner.finished(short, ([],), 0)
    with pytest.raises(LookupError):
        planner.finished(short, ([],), 0)


def test_hashes_that_change_are_read_again():
    """A session whose last tokens were cut: other hashes from there on."""
    engine = Engine()
    engine.serve("a", list(range(41)))
    request = SimpleNamespace(request_id="b", block_hashes=hashes_of(list(range(20)) + [9] * 20))
    known = engine.planner.add(request)
    assert engine.planner.match(known, 41, 0) == 20
    request.block_hashes = hashes_of(list(range(40)))
    assert engine.planner.match(known, 42, 0) == 40
