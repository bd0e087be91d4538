"""One side of tests/vllm/record: vLLM engines in this process, whose schedulers are recorded.

    python record_side.py '{"side": "vllm", "model": ..., "configs": [...], "requests": N, "seed": S,
                            "folder": ..., "kill_after": STEPS or 0}'

Each configuration of engine_work.py runs in a process forked from this one and prints a line of JSON:
what the engine itself says about its requests, to compare the recording with. With kill_after the
process kills itself after so many steps.
"""
import json
import os
import signal
import sys
import tempfile
import time
import traceback

from engine_side import Run, count_preemptions, engine_of

import engine_work


def kill_after(scheduler, steps, requests):
    """kill -9 of this process before step `steps`; the time is printed first."""
    inner, count = scheduler.schedule, 0

    def schedule(*given):
        nonlocal count
        count += 1
        if count > steps:
            time.sleep(2.2)  # two frames of the recorder
            print("RESULT " + json.dumps({"killed": True, "steps": count - 1, "at": time.time()}),
                  flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return inner(*given)

    scheduler.schedule = schedule


def count_steps(scheduler):
    inner, counts = scheduler.schedule, {"steps": 0, "tokens": 0}

    def schedule(*given):
        made = inner(*given)
        counts["steps"] += 1
        counts["tokens"] += made.total_num_scheduled_tokens
        return made

    scheduler.schedule = schedule
    return counts


def measure(config, given, scratch):
    from quire.vllm.plugin import register

    os.environ["QUIRE_RECORD"] = os.path.join(given["folder"], f"{given['side']}-{config.name}")
    register()
    arrivals = engine_work.arrivals(config, given["requests"], given["seed"])
    engine, core = engine_of(config, given["side"], given["model"], scratch)
    run = Run(engine, arrivals, scratch)
    recording = core.scheduler._recording
    path = recording.recorder.path
    counts = count_steps(core.scheduler)
    count_preemptions(core.scheduler, run)
    if given.get("kill_after"):
        kill_after(core.scheduler, given["kill_after"], run)
    run.go()
    core.scheduler.shutdown()
    return {"path": path, "steps": counts["steps"], "scheduled": counts["tokens"],
            "requests": len(run.tokens), "found": run.found, "preemptions": run.preempted,
            "output_tokens": sum(len(tokens[0]) for tokens in run.tokens.values()),
            "ended": recording.recorder is None and not recording.requests}


def child(config, given):
    report = {"config": config.name, "side": given["side"]}
    try:
        with tempfile.TemporaryDirectory() as scratch:
            report.update(measure(config, given, scratch))
    except Exception as error:  # the driver shows it
        traceback.print_exc()
        report["error"] = f"{type(error).__name__}: {error}"[:400]
    print("RESULT " + json.dumps(report), flush=True)


def main():
    given = json.loads(sys.argv[1])
    import vllm  # noqa: F401
    import vllm.v1.engine.llm_engine  # noqa: F401
    import vllm.v1.worker.gpu_model_runner  # noqa: F401
    for name in given["configs"]:
        (config,) = (c for c in engine_work.CONFIGS if c.name == name)
        number = os.fork()
        if number == 0:
            child(config, given)
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(number, 0)
        if os.WIFSIGNALED(status) and not given.get("kill_after"):
            report = {"config": name, "side": given["side"],
                      "error": f"the process ended by {signal.Signals(os.WTERMSIG(status)).name}"}
            print("RESULT " + json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
