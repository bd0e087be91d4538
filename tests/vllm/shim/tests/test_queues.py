"""Request queues: the same order as vLLM's after any operations, and clear exceptions."""
import gc
import importlib
import random

import pytest
import vllm_kit


@pytest.fixture(scope="module")
def modules(request):
    """vLLM's module and ours."""
    vllm_kit.need_vllm(request.config)
    return (importlib.import_module("vllm.v1.core.sched.request_queue"),
            importlib.import_module("quire_shim.request_queue"))


@pytest.fixture(scope="module")
def make(modules):
    from vllm.v1.request import Request

    class Waiting:
        __lt__ = Request.__lt__

        def __init__(self, random_):
            self.priority = random_.randrange(-2, 3)
            self.arrival_time = float(random_.randrange(4))
            self.request_id = random_.choice(["a", "b", "é", "\U0001f600", "aa"])

    return Waiting


def step(pair, known, make, random_):
    """One random operation on both queues."""
    queues = [queue for queue, _ in pair]
    inside = list(queues[0])
    kind = random_.choice(["add", "add", "add", "prepend", "pop", "remove", "remove_all", "join"])
    if kind in ("add", "prepend"):
        known.append(make(random_))
        for queue in queues:
            (queue.add_request if kind == "add" else queue.prepend_request)(known[-1])
    elif kind == "join":
        more = [make(random_) for _ in range(3)]
        for queue, new in pair:
            other = new()
            for request in more:
                other.add_request(request)
            queue.prepend_requests(other)
    elif inside and kind == "pop":
        assert queues[0].peek_request() is queues[1].peek_request()
        assert queues[0].pop_request() is queues[1].pop_request()
    elif inside and kind == "remove":
        chosen = random_.choice(inside)
        for queue in queues:
            queue.remove_request(chosen)
    elif kind == "remove_all":
        chosen = [r for r in inside if random_.random() < 0.2] + known[-1:]
        for queue in queues:
            queue.remove_requests(chosen)


@pytest.mark.parametrize("policy", ["FCFS", "PRIORITY"])
@pytest.mark.parametrize("seed", range(10))
def test_the_order_is_vllms(modules, make, policy, seed):
    random_ = random.Random(seed)
    known = []
    pair = [(module.create_request_queue(module.SchedulingPolicy[policy]),
             lambda module=module: module.create_request_queue(module.SchedulingPolicy[policy]))
            for module in modules]
    for _ in range(300):
        step(pair, known, make, random_)
        theirs, ours = pair[0][0], pair[1][0]
        assert list(theirs) == list(ours)
        assert len(theirs) == len(ours) and bool(theirs) == bool(ours)


def test_first_come_is_a_deque(modules, make):
    queue = modules[1].FCFSRequestQueue()
    a, b, c = (make(random.Random(i)) for i in range(3))
    queue.extend([a, b])
    queue.appendleft(c)
    assert [queue[0], queue[1], queue[-1]] == [c, a, b]
    assert a in queue and queue.index(b) == 2 and list(reversed(queue)) == [b, a, c]
    queue.extend(queue)
    assert len(queue) == 6 and queue.popleft() is c
    queue.remove(a)
    assert list(queue) == [b, c, a, b]
    queue.clear()
    assert not queue and isinstance(queue, modules[0].RequestQueue)


@pytest.mark.parametrize("name", ["FCFSRequestQueue", "PriorityRequestQueue"])
def test_misuse(modules, make, name):
    queue = getattr(modules[1], name)()
    for method in (queue.pop_request, queue.peek_request):
        with pytest.raises(IndexError, match="empty queue"):
            method()
    with pytest.raises(ValueError, match="not in the queue"):
        queue.remove_request(make(random.Random(0)))
    with pytest.raises(TypeError):
        queue.remove_requests(7)
    with pytest.raises(TypeError):
        queue.remove_requests([[]])
    with pytest.raises(ValueError, match="not a scheduling policy"):
        modules[1].create_request_queue("lottery")


@pytest.mark.parametrize("field, value, error", [
    ("priority", "high", TypeError), ("priority", 1 << 70, OverflowError),
    ("arrival_time", None, TypeError), ("arrival_time", float("nan"), ValueError),
    ("request_id", 7, TypeError)])
def test_a_request_without_an_order(modules, make, field, value, error):
    queue, request = modules[1].PriorityRequestQueue(), make(random.Random(0))
    setattr(request, field, value)
    with pytest.raises(error):
        queue.add_request(request)
    with pytest.raises(AttributeError):
        queue.add_request(object())
    assert len(queue) == 0


@pytest.mark.parametrize("name", ["FCFSRequestQueue", "PriorityRequestQueue"])
def test_a_queue_that_changes_under_its_feet(modules, make, name):
    queue = getattr(modules[1], name)()

    class Nosy(make):
        def __hash__(self):
            while queue:
                queue.pop_request()
            return 1

    for i in range(20):
        queue.add_request((Nosy if i % 2 else make)(random.Random(i)))
    try:
        queue.remove_requests([make(random.Random(99))])
    except RuntimeError as error:
        assert "changed" in str(error)
    assert len(list(queue)) == len(queue)


@pytest.mark.parametrize("name", ["FCFSRequestQueue", "PriorityRequestQueue"])
def test_nothing_is_kept(modules, make, name):
    alive = []

    class Counted(make):
        def __init__(self, random_):
            super().__init__(random_)
            alive.append(1)

        def __del__(self):
            alive.pop()

    queue = getattr(modules[1], name)()
    for i in range(100):
        queue.add_request(Counted(random.Random(i)))
        queue.peek_request().queue = queue  # a cycle, which only the collector can undo
    queue.pop_request()
    list(queue)
    del queue
    gc.collect()
    assert not alive
