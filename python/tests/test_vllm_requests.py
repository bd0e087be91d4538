"""Requests that clients make as they like: numbers beyond all limits are served as by vLLM, and what
cannot be served ends alone, with an error. An exception would end the engine with all requests."""
import pytest
import vllm_kit


@pytest.fixture(autouse=True)
def _vllm(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)


def repetition(largest: int, smallest: int, count: int):
    from vllm.sampling_params import RepetitionDetectionParams

    return RepetitionDetectionParams(largest, smallest, count)


# name: what a Request has besides, and its SamplingParams
SERVED = {
    "priority": lambda: ({"priority": 2**63 - 1}, {}),
    "stop tokens": lambda: ({}, {"stop_token_ids": [2**31, -2**40, 2**70]}),
    "stop tokens and one that comes": lambda: ({}, {"stop_token_ids": [2**31, 5]}),
    "max_tokens": lambda: ({}, {"max_tokens": 2**32 + 1, "stop_token_ids": [5]}),
    "min_tokens": lambda: ({}, {"max_tokens": 2**40, "min_tokens": 2**40}),
    "long patterns": lambda: ({}, {"repetition_detection": repetition(2**40, 2**40, 2)}),
    "short and long patterns": lambda: ({}, {"repetition_detection": repetition(2**40, 1, 2),
                                             "max_tokens": 9}),
    "many repetitions": lambda: ({}, {"repetition_detection": repetition(3, 1, 2**40)})}

LATER = 5  # the output of a request that is not refused
REFUSED = {"id": {"name": "x" * 20_000}, "arrival time": {"arrival_time": float("nan")},
           "token id": {"prompt": [1, 2**31]}, "no prompt": {"prompt": []}}


def made(name="r", prompt=(1, 2, 3, 4, 5), params=None, **given):
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    return Request(name, list(prompt), SamplingParams(**({"max_tokens": 3} | (params or {}))), None,
                   block_hasher=vllm_kit.hasher(), **given)


def outputs_of(scheduler, limit=100) -> list[tuple]:
    """All outputs until no request is left: who, tokens, why it ended. A request that vLLM 0.20 never
    ends, because min_tokens lies beyond max_model_len, must not end here either."""
    found = []
    for _ in range(limit):
        if not scheduler.has_requests():
            return found
        _step, answer = vllm_kit.step_once(scheduler, LATER)
        found += [(client, out.request_id, out.new_token_ids, out.finish_reason)
                  for client, outs in answer.items() for out in outs.outputs]
    return [*found, ("not ended",)]


@pytest.mark.parametrize("what", SERVED)
def test_numbers_beyond_all_limits(what):
    given, params = SERVED[what]()
    found = []
    for module in ("vllm.v1.core.sched.scheduler", "quire.vllm"):
        scheduler = vllm_kit.make(module=module)
        scheduler.add_request(made(params=params, **given))
        found.append(outputs_of(scheduler))
    assert found[0] and found[0] == found[1]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("what", REFUSED)
def test_a_request_that_cannot_be_served_ends_alone(what, is_async, caplog):
    from vllm.v1.engine import FinishReason
    from vllm.v1.request import RequestStatus

    scheduler = vllm_kit.make(is_async=is_async)
    scheduler.add_request(made("before"))
    vllm_kit.step_once(scheduler, LATER)
    odd = made(**REFUSED[what], client_index=1)
    scheduler.add_request(odd)
    scheduler.add_request(made("after"))
    assert "ends with an error: add_request" in caplog.text or "token id" in caplog.text
    assert odd.status == RequestStatus.FINISHED_ERROR and odd.request_id not in scheduler.requests
    found = outputs_of(scheduler)
    assert [(client, tokens, why) for client, name, tokens, why in found
            if name == odd.request_id] == [(1, [], FinishReason.ERROR)]
    assert {name for _, name, _, why in found if why == FinishReason.LENGTH} == {"before", "after"}


def test_a_request_that_cannot_be_served_is_told_of_without_others():
    from vllm.v1.core.sched.interface import PauseState

    scheduler = vllm_kit.make()
    scheduler.set_pause_state(PauseState.PAUSED_ALL)
    scheduler.add_request(made("r" * 20_000))
    assert scheduler.has_requests() and len(outputs_of(scheduler)) == 1
    assert not scheduler.has_requests()


def test_priorities_that_cannot_be_compared(monkeypatch):
    """With PRIORITY a number beyond 32 bits would be decided wrongly."""
    scheduler = vllm_kit.make()
    monkeypatch.setattr(scheduler.scheduler_config, "policy", "priority")
    scheduler.add_request(made(priority=2**31))
    assert [name for _, name, _, _ in outputs_of(scheduler)] == ["r"] and not scheduler.requests


def test_more_requests_than_there_is_room_for():
    from vllm.v1.engine import FinishReason

    scheduler = vllm_kit.make()  # has 1,024 places
    for i in range(1100):
        scheduler.add_request(made(f"r{i}", params={"max_tokens": 1}))
    found = outputs_of(scheduler, limit=400)
    assert len(found) == 1100
    assert sum(why == FinishReason.ERROR for _, _, _, why in found) == 76


def test_an_input_of_a_session_that_cannot_be_served():
    from vllm.v1.engine import FinishReason

    scheduler = vllm_kit.make()
    scheduler.add_request(made("session", resumable=True))
    scheduler.add_request(made("other"))
    vllm_kit.step_once(scheduler, LATER)
    scheduler.add_request(made("session", prompt=[2**31], resumable=True))
    found = outputs_of(scheduler)
    assert [why for _, name, _, why in found if name == "session"][-1] == FinishReason.ERROR
    assert [why for _, name, _, why in found if name == "other"][-1] == FinishReason.LENGTH
