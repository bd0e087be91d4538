"""quire in wrong hands, without vLLM: every method with arguments of every kind, buffers that are gone,
views of handles that are closed, threads. A Python exception or an answer, never a crash.

Under a sanitizer: build the extension with -DQUIRE_SANITIZE=address,undefined and preload libasan.
"""
import array
import gc
import random
import threading

import pytest

import quire


class Awkward:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise ValueError(name)

    def __len__(self):
        raise ArithmeticError("no length")

    def __iter__(self):
        raise ArithmeticError("no items")

    def __index__(self):
        raise ArithmeticError("no number")

    def __hash__(self):
        raise ArithmeticError("no hash")


def palette() -> list:
    gone = memoryview(bytearray(64))
    gone.release()
    return [None, 0, 1, -1, 7, 2**31, 2**32, 2**63, -2**70, 1.5, float("nan"), True, "", "x", "a\0b",
            "\ud800", b"", b"\0" * 32, [], [None], [0], [-1], [2**40], ["x"], [[1], [2]], [[]], (),
            (1, 2), {}, {"x": 1}, set(), object(), type, len, range(3), gone, memoryview(b"abc"),
            memoryview(bytearray(64))[::-3], array.array("d", [1.5]), array.array("q", [1, -2**60]),
            array.array("i"), iter([1, 2]), Awkward(), [Awkward()]]


def attempt(call, *given, **named) -> None:
    """An answer, or an exception that is not the interpreter's own complaint."""
    try:
        call(*given, **named)
    except SystemError:
        raise
    except Exception:
        pass


def handles() -> dict:
    hasher = quire.Hasher(seed="0")
    pool = quire.Pool(8, events=True)
    pool.take(3)
    sched = quire.Scheduler(num_gpu_blocks=30, max_model_len=64, seed="0", snapshots=True)
    for i in range(3):
        sched.add(str(i), range(9 + i), max_tokens=4)
    step = sched.schedule()
    outputs = sched.update(step, [[5]] * len(step))
    sched.schedule()
    layer = {"kind": "full", "block_size": 16, "num_kv_heads": 1, "head_size": 8, "dtype": "float16"}
    return {"hasher": hasher, "chain": hasher.chain(), "pool": pool,
            "cache": quire.Cache(num_gpu_blocks=20, max_model_len=64), "sched": sched, "step": step,
            "outputs": outputs, "plan": quire.Plan([layer] * 2, 1 << 20, max_model_len=64)}


NAMES = ["hasher", "chain", "pool", "cache", "sched", "step", "outputs", "plan"]


@pytest.mark.parametrize("name", NAMES)
def test_every_method_with_wrong_types(name):
    rng = random.Random(name)
    for method in dir(handles()[name]):
        if method.startswith("__") and method not in ("__len__", "__getitem__", "__enter__"):
            continue
        given = handles()
        for _ in range(80):
            call = getattr(given[name], method, None)
            odd = [*palette(), *given.values()]
            if callable(call) and method != "close":
                attempt(call, *rng.choices(odd, k=rng.randint(0, 4)))
            attempt(setattr, given[name], method, rng.choice(odd))


def test_every_function_and_constructor_with_wrong_types():
    rng = random.Random(2)
    for name, call in vars(quire._core).items():
        if callable(call) and not name.startswith("_"):
            for _ in range(150):
                attempt(call, *rng.choices(palette(), k=rng.randint(0, 4)))
                attempt(call, **{rng.choice(["num_gpu_blocks", "max_model_len", "seed", "x", "layers",
                                             "algorithm", "block_size"]): rng.choice(palette())})


@pytest.mark.parametrize("name", NAMES)
def test_calls_after_close(name):
    """Whatever can be closed says so; views that came out before stay what they were."""
    given = handles()
    handle = given[name]
    views = [getattr(handle, m) for m in dir(handle) if not m.startswith("__")]
    kept = [(view, view.tolist()) for view in views if isinstance(view, memoryview)]
    if hasattr(handle, "close"):
        handle.close()
        handle.close()
        for method in dir(handle):
            if not method.startswith("__"):
                attempt(lambda: getattr(handle, method))
                for odd in ((), (1,), ([1],), ("x", [1])):
                    attempt(lambda: getattr(handle, method)(*odd))
    del given, handle
    gc.collect()
    assert all(view.tolist() == before for view, before in kept)


def test_buffers_that_change_or_go():
    """Nothing is kept of what is passed in."""
    hasher, tokens = quire.Hasher(seed="0"), array.array("i", range(64))
    before = hasher.hash(tokens)
    view = memoryview(tokens)
    assert hasher.hash(view) == before
    view.release()
    with pytest.raises(ValueError):
        hasher.hash(view)
    tokens.extend([1] * 1000)  # would fail while a buffer of it is held
    sched = quire.Scheduler(num_gpu_blocks=30, max_model_len=64, seed="0")
    prompt = array.array("i", range(20))
    sched.add("a", prompt, max_tokens=2)
    prompt.extend(range(1000))
    del prompt
    gc.collect()
    step = sched.schedule()
    numbers = step.num_tokens
    sched.close()
    del sched, step
    gc.collect()
    assert numbers.tolist() == [20]


def test_many_threads_and_one_scheduler():
    sched = quire.Scheduler(num_gpu_blocks=60, max_model_len=64, seed="0")
    faults = []

    def work(name):
        for i in range(200):
            try:
                sched.add(f"{name}{i}", range(9), max_tokens=2)
                step = sched.schedule()
                sched.update(step, [[5]] * len(step))
                step.num_tokens.tolist()
            except (quire.Error, ValueError):
                pass
            except BaseException as error:
                faults.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    sched.check()
