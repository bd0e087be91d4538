"""quire.vllm in wrong hands: every method of every class with arguments of every kind, two threads,
calls from inside callbacks, callbacks that raise or answer nonsense. What must come of it is a Python
exception that says something, never a crash, and a scheduler that goes on.

Under a sanitizer: build the extension with -DQUIRE_SANITIZE=address,undefined and preload libasan.
"""
import random
import threading
import time

import pytest
import vllm_kit


@pytest.fixture(autouse=True)
def _vllm(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)


def palette(rng: random.Random) -> list:
    """Things that an argument is seldom."""
    return [None, 0, 1, -1, 7, 2**31, 2**63, -2**70, 1.5, float("nan"), True, "", "x", "r1", b"",
            b"\0" * 32, b"x" * 36, [], [None], [0], [-1], [2**40], ["x"], [[1], [2]], (), (1, 2),
            {}, {"x": 1}, set(), object(), type, len, range(3), rng, memoryview(b"abc"),
            iter([1, 2]), Awkward()]


class Awkward:
    """Has every attribute, and none is of use."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name.startswith("num") or name.endswith("id"):
            return -3
        raise ValueError(f"no {name} today")

    def __len__(self):
        raise ArithmeticError("no length")

    def __hash__(self):
        raise ArithmeticError("no hash")


def attempt(call, *given) -> None:
    """Whatever comes back, and any exception that says something; no other."""
    try:
        made = call(*given)
        if hasattr(made, "__next__"):
            for _ in zip(range(20), made):
                pass
    except SystemError:
        raise
    except Exception:
        pass


def busy_scheduler(**given):
    """With requests that run and one step in flight."""
    scheduler, hasher = vllm_kit.make(num_blocks=60, **given), vllm_kit.hasher()
    for i in range(5):
        scheduler.add_request(vllm_kit.request(f"r{i}", range(5 + i), hasher, max_tokens=8))
    vllm_kit.step_once(scheduler)
    scheduler.schedule()
    return scheduler


STRANGERS = {
    "scheduler": busy_scheduler, "async": lambda: busy_scheduler(is_async=True),
    "core": lambda: busy_scheduler()._core, "hasher": vllm_kit.hasher,
    "bound": lambda: busy_scheduler().requests["r1"],
    "viewed": lambda: busy_scheduler().kv_cache_manager,
    "viewed_pool": lambda: busy_scheduler().kv_cache_manager.block_pool,
    "viewed_block": lambda: busy_scheduler().kv_cache_manager.block_pool.blocks[1]}
OPERATORS = ["__len__", "__getitem__", "__setitem__", "__delitem__", "__contains__", "__iter__",
             "__call__", "__eq__", "__lt__", "__bool__", "__repr__", "__reversed__", "__init__"]


def call_every_method(make, name: str) -> None:
    rng = random.Random(name)
    given = make()
    request = vllm_kit.request("q", range(9), vllm_kit.hasher())
    methods = [m for m in dir(type(given)) if not m.startswith("__")] + OPERATORS
    for method in methods:
        if method in ("get_open_port", "mro") or not hasattr(given, method):
            continue
        given = make()
        for _ in range(60):
            odd = [*palette(rng), request, given]
            call = getattr(given, method, None)
            if callable(call):
                attempt(call, *rng.choices(odd, k=rng.choice([0, 1, 1, 2, 2, 3, 4, 5])))


def write_every_attribute(make, name: str) -> None:
    rng, given = random.Random(name), make()
    for attribute in dir(given):
        if not attribute.startswith("__"):
            attempt(lambda: getattr(given, attribute))
            for value in palette(rng)[::3]:
                attempt(setattr, given, attribute, value)
            attempt(delattr, given, attribute)
            given = make()


def make_every_kind(module) -> None:
    """Each type of an extension with wrong arguments; __new__ without __init__, then every method."""
    rng = random.Random(1)
    for kind in vars(module).values():
        if not isinstance(kind, type):
            continue
        for _ in range(300):
            attempt(kind, *rng.choices(palette(rng), k=rng.randint(0, 5)))
        try:
            empty = kind.__new__(kind)
        except TypeError:
            continue
        for method in dir(kind):
            if not method.startswith("__"):
                attempt(lambda: getattr(empty, method))
                attempt(lambda: getattr(empty, method)())
                attempt(lambda: getattr(empty, method)(1))
        for operator in (len, list, repr, bool):
            attempt(operator, empty)


@pytest.mark.parametrize("name", STRANGERS)
def test_every_method_with_wrong_types(name):
    call_every_method(STRANGERS[name], name)


@pytest.mark.parametrize("name", STRANGERS)
def test_every_attribute_with_wrong_types(name):
    write_every_attribute(STRANGERS[name], name)


def test_every_constructor_with_wrong_types():
    from quire import _vllm

    make_every_kind(_vllm)


# -- callbacks


def drain(scheduler) -> None:
    for _ in range(400):
        if not scheduler.has_requests():
            return
        vllm_kit.step_once(scheduler)
    raise AssertionError(f"{list(scheduler.requests)} do not end")


def goes_on_or_is_closed(scheduler) -> None:
    """After an exception inside a callback: all requests end, or every call says that it is over."""
    try:
        drain(scheduler)
        if not scheduler.requests:
            return
    except RuntimeError as error:
        assert "closed" in str(error)
    with pytest.raises(RuntimeError, match="closed"):
        scheduler.add_request(vllm_kit.request("after", range(8)))
    with pytest.raises(RuntimeError, match="closed"):
        scheduler.schedule()
    scheduler.get_request_counts()
    scheduler.shutdown()


def raising(*_given, **_named):
    raise LookupError("not today")


CONNECTOR = ["get_num_new_matched_tokens", "update_state_after_alloc", "build_connector_meta",
             "request_finished_all_groups", "take_events", "reset_cache"]


@pytest.mark.parametrize("method", CONNECTOR)
def test_a_connector_raises(method):
    connector = vllm_kit.connector_class()()
    scheduler = vllm_kit.make(connector=connector, num_blocks=60)
    for i in range(6):
        scheduler.add_request(vllm_kit.request(f"r{i}", range(6 + i), vllm_kit.hasher(), 2))
    usual = getattr(connector, method)
    setattr(connector, method, raising)
    with pytest.raises(LookupError, match="not today"):
        for _ in range(4):
            vllm_kit.step_once(scheduler)
        scheduler.reset_prefix_cache(reset_connector=True)
    setattr(connector, method, usual)
    goes_on_or_is_closed(scheduler)


@pytest.mark.parametrize("answer", [None, 5, "x", (1,), (1, 2, 3), (-5, False), (10**9, False),
                                    (2**70, True), ("x", None), (None, None)])
def test_a_connector_answers_nonsense(answer):
    connector = vllm_kit.connector_class()()
    scheduler = vllm_kit.make(connector=connector, num_blocks=60)
    usual = connector.get_num_new_matched_tokens
    connector.get_num_new_matched_tokens = lambda *_given: answer
    scheduler.add_request(vllm_kit.request("r", range(9), vllm_kit.hasher(), 2))
    try:
        vllm_kit.step_once(scheduler)
    except Exception as error:
        assert not isinstance(error, SystemError) and str(error)
    connector.get_num_new_matched_tokens = usual
    goes_on_or_is_closed(scheduler)


@pytest.mark.parametrize("answer", [None, 5, (1,), (1, 2, 3), ("", {}), (False, object())])
def test_a_connector_ends_with_nonsense(answer):
    connector = vllm_kit.connector_class()()
    connector.request_finished_all_groups = lambda *_given: answer
    scheduler = vllm_kit.make(connector=connector, num_blocks=60)
    scheduler.add_request(vllm_kit.request("r", range(9), vllm_kit.hasher(), 1))
    try:
        vllm_kit.step_once(scheduler)
    except Exception as error:
        assert not isinstance(error, SystemError) and str(error)
    goes_on_or_is_closed(scheduler)


@pytest.mark.parametrize("where", ["should_advance", "accept_tokens", "grammar", "validate_tokens"])
def test_a_grammar_raises(where):
    from lockstep_parts import is_0_32
    from vllm.v1.outputs import DraftTokenIds

    if where == "should_advance" and is_0_32():
        pytest.skip("0.32 does not ask this")
    broken = []

    def trouble(place):
        if broken and place == where:
            raising()

    class Part:
        @property
        def grammar(self):
            trouble("grammar")
            return self

        def accept_tokens(self, _name, _tokens):
            trouble("accept_tokens")
            return True

        def validate_tokens(self, tokens):
            trouble("validate_tokens")
            return tokens

    class Manager(vllm_kit.Grammars):
        def should_advance(self, request):
            trouble("should_advance")
            return super().should_advance(request)

    scheduler = vllm_kit.make(grammars=Manager(), drafts=2, num_blocks=60)
    scheduler.add_request(vllm_kit.request("r", range(9), vllm_kit.hasher(), 30, Part()))
    vllm_kit.step_once(scheduler)
    broken.append(True)
    with pytest.raises(LookupError, match="not today"):
        for _ in range(4):
            scheduler.update_draft_token_ids(DraftTokenIds(["r"], [[5, 6]]))
            vllm_kit.step_once(scheduler)
    broken.clear()
    goes_on_or_is_closed(scheduler)


def test_a_publisher_raises():
    scheduler = vllm_kit.make(events=True, num_blocks=60)
    scheduler.add_request(vllm_kit.request("r", range(19), vllm_kit.hasher(), 5))
    usual = scheduler.kv_event_publisher.publish
    scheduler.kv_event_publisher.publish = raising
    with pytest.raises(LookupError, match="not today"):
        vllm_kit.step_once(scheduler)
    scheduler.kv_event_publisher.publish = usual
    drain(scheduler)


def test_a_hasher_raises():
    scheduler = vllm_kit.make(num_blocks=60)
    request = vllm_kit.request("r", range(19), lambda _request: [], 3)
    request._block_hasher = raising
    try:
        scheduler.add_request(request)
        drain(scheduler)
    except LookupError as error:
        assert "not today" in str(error)
    goes_on_or_is_closed(scheduler)


# -- who calls from inside a call


INSIDE = {
    "schedule": lambda s: s.schedule(),
    "add": lambda s: s.add_request(vllm_kit.request("inner", range(8))),
    "finish": lambda s: s.finish_requests(list(s.requests), next(iter(
        s.requests.values())).status.FINISHED_ABORTED),
    "finish_all": lambda s: s.finish_requests(None, next(iter(
        s.requests.values())).status.FINISHED_ABORTED),
    "reset": lambda s: s.reset_prefix_cache(reset_running_requests=True),
    "step": lambda s: vllm_kit.step_once(s),
    "touch": lambda s: hold(s.kv_cache_manager.block_pool)}


def hold(pool) -> None:
    """As a connector that copies blocks."""
    blocks = pool.blocks[1:4]
    pool.touch(blocks)
    pool.free_blocks(blocks)


@pytest.mark.parametrize("deed", INSIDE)
@pytest.mark.parametrize("method", CONNECTOR[:4])
def test_calls_from_inside_a_callback(method, deed):
    """Refused with a sentence, or done; nothing breaks."""
    connector = vllm_kit.connector_class()()
    scheduler = vllm_kit.make(connector=connector, num_blocks=60)
    usual, depth = getattr(connector, method), []

    def nested(*given):
        if len(depth) < 2 and scheduler.requests:
            depth.append(1)
            try:
                INSIDE[deed](scheduler)
            except SystemError:
                raise
            except Exception as error:
                assert str(error)
        return usual(*given)

    setattr(connector, method, nested)
    for i in range(6):
        scheduler.add_request(vllm_kit.request(f"r{i}", range(6 + i), vllm_kit.hasher(), 2))
    for _ in range(6):
        attempt(vllm_kit.step_once, scheduler)
    setattr(connector, method, usual)
    goes_on_or_is_closed(scheduler)


# -- threads


def test_two_threads_and_one_scheduler():
    """Calls take turns; one that comes while another is inside Python's callbacks is refused."""
    connector = vllm_kit.connector_class()()
    usual = connector.get_num_new_matched_tokens

    def slow(*given):
        time.sleep(0.0002)  # the other thread gets its turn here
        return usual(*given)

    connector.get_num_new_matched_tokens = slow
    scheduler = vllm_kit.make(connector=connector, num_blocks=60)
    said, faults = [], []

    def work(name: str) -> None:
        from vllm.v1.request import RequestStatus

        for i in range(60):
            try:
                scheduler.add_request(vllm_kit.request(f"{name}{i}", range(9), vllm_kit.hasher(), 2))
                vllm_kit.step_once(scheduler)
                scheduler.finish_requests(f"{name}{i - 3}", RequestStatus.FINISHED_ABORTED)
            except SystemError as error:
                faults.append(error)
            except Exception as error:
                said.append(str(error))

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and all(said)
    connector.get_num_new_matched_tokens = usual
    drain(scheduler)


# -- the end


def test_calls_after_shutdown():
    scheduler = busy_scheduler(connector=vllm_kit.connector_class()())
    scheduler.shutdown()
    for call in (scheduler.schedule, scheduler.has_requests, scheduler.make_stats,
                 scheduler.reset_prefix_cache, scheduler.shutdown):
        attempt(call)


def test_parts_outlive_their_scheduler():
    import gc

    scheduler = busy_scheduler()
    request, part = scheduler.requests["r1"], scheduler.kv_cache_manager
    views = [part, part.block_pool, part.block_pool.blocks[3], part.get_blocks("r1")]
    del scheduler, part
    gc.collect()
    assert request.num_computed_tokens >= 0
    for view in views:
        for name in dir(view):
            if not name.startswith("__"):
                attempt(lambda: getattr(view, name))
        attempt(lambda: list(view))
    assert views[0].get_block_ids("r1") == views[3].get_block_ids()
