"""A CPU engine that has nothing to load, with QuireConnector and without: the time of its steps.

    none     no connector
    null     one that does nothing: what vLLM itself does for any connector
    quire    QuireConnector

Each engine is a process of its own, which runs a round when it is told, so that rounds alternate. The
prompts are short and unlike, all requests decode at once, and all blocks fit into the engine's pool: what
is left to the connector are a plan and a report in each step, and the blocks that fill up.

Steps of two engines differ by more than a connector costs, unless a machine is very quiet. So the time
inside of all calls of the connector is measured too, in the scheduler's process and in the worker's, as a
share of the same steps: of the median one, in which nothing is stored, and of all together.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent / "tests" / "vllm"
REQUESTS, PROMPT, OUTPUT = 16, 48, 200
HOST_BYTES = 64 << 20


SIDES = {"none": "no connector", "null": "one that does nothing", "quire": "QuireConnector"}


class Side:
    """An engine in another process."""

    def __init__(self, model: str, name: str):
        order = {"model": model, "name": name,
                 "connector": {"host_bytes": HOST_BYTES} if name == "quire" else None}
        self.process = subprocess.Popen([sys.executable, __file__, json.dumps(order)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)

    def round(self, seed: int) -> dict:
        """"steps": (wall, processor, inside of the connector) of each, in seconds."""
        self.process.stdin.write(f"{seed}\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("STEPS "):
                return json.loads(line[6:])
        raise RuntimeError("an engine has ended")

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)


def measure(model: str, rounds: int) -> dict[str, list[list[float]]]:
    """Medians of each round, in seconds: {"none": [[wall, processor, inside, share of the median step,
    share of all], ...], ...}."""
    sides = {name: Side(model, name) for name in SIDES}
    made: dict[str, list[list[float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for i in range(len(SIDES)):  # in turns, each of them first, second and third
            name = list(SIDES)[(i + number) % len(SIDES)]
            told = sides[name].round(number)
            if number > 0:  # the first one warms up
                columns = [*zip(*((*step, step[2] / step[0]) for step in told["steps"]))]
                made[name].append([*map(statistics.median, columns), sum(columns[2]) / sum(columns[0])])
    for side in sides.values():
        side.close()
    return made


# ---- in the other process ----------------------------------------------------------------------


class Inside:
    """The time inside of the calls of a connector."""

    def __init__(self, connector):
        self.seconds, self.depth = 0.0, 0
        for name in dir(type(connector)):
            call = getattr(type(connector), name)
            if not name.startswith("_") and callable(call) and not isinstance(call, type):
                setattr(connector, name, self.timed(getattr(connector, name)))

    def timed(self, call):
        def run(*given, **named):
            self.depth += 1
            began = time.perf_counter()
            try:
                return call(*given, **named)
            finally:
                self.depth -= 1
                self.seconds += 0.0 if self.depth else time.perf_counter() - began
        return run


def watch_worker(_worker) -> None:
    """On the worker; its connector is a global of its process."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    connector = get_kv_transfer_group()
    connector.inside = Inside(connector)


def worker_seconds(_worker) -> float:
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    return get_kv_transfer_group().inside.seconds


def decode(engine, seed: int, inside) -> dict:
    """A round: the times of the steps in which all requests decode."""
    import random

    from vllm import SamplingParams

    numbers = random.Random(seed)
    for i in range(REQUESTS):
        prompt = [numbers.randrange(2, 500) for _ in range(PROMPT)]
        engine.add_request(f"{seed}-{i}", {"prompt_token_ids": prompt}, SamplingParams(
            temperature=0.0, max_tokens=OUTPUT, min_tokens=OUTPUT, ignore_eos=True, detokenize=False))
    made, before = [], inside()
    while engine.has_unfinished_requests():
        began = time.perf_counter(), time.process_time()
        outputs = engine.step()
        times = time.perf_counter() - began[0], time.process_time() - began[1]
        now = inside()
        if len(outputs) == REQUESTS and not any(output.finished for output in outputs):
            made.append((*times, now - before))
        before = now
    return {"steps": made[4:]}


def use_null() -> None:
    """The engine's connector is the one of vllm_null.py."""
    from vllm.config import KVTransferConfig
    from vllm.engine import arg_utils

    class Args(arg_utils.EngineArgs):
        def __init__(self, **given):
            super().__init__(**given, kv_transfer_config=KVTransferConfig(
                kv_connector="NullConnector", kv_connector_module_path="vllm_null",
                kv_role="kv_both"))

    arg_utils.EngineArgs = Args


def watch(engine):
    """A function that says how long the connector's calls took, on both sides."""
    import vllm_idle  # by its name, for the worker's process

    scheduler = Inside(engine.engine_core.engine_core.scheduler.connector)
    engine.collective_rpc(vllm_idle.watch_worker)
    return lambda: scheduler.seconds + sum(engine.collective_rpc(vllm_idle.worker_seconds))


def serve() -> None:
    sys.path[:0] = [str(TOOLS), str(HERE)]
    import connector_side

    order = json.loads(sys.argv[1])
    if order["name"] == "null":
        use_null()
    order.update(scheduler="vllm", blocks=REQUESTS * 20, max_num_seqs=REQUESTS)
    with tempfile.TemporaryDirectory() as scratch:
        engine = connector_side.engine_of(order, scratch)
        inside = watch(engine) if order["name"] == "quire" else float
        for line in sys.stdin:
            print("STEPS", json.dumps(decode(engine, int(line), inside)), flush=True)
        engine.engine_core.shutdown()


if __name__ == "__main__":
    serve()
