"""quire.vllm where others fail: exceptions of grammars and connectors, wrong types, late calls."""
import gc
from types import SimpleNamespace

import pytest
import vllm_kit
from lockstep_parts import is_0_32


@pytest.fixture
def pair(request):
    """Two schedulers; ours is the second."""
    vllm_kit.need_vllm(request.config)
    from test_lockstep import Pair

    return next(made for made in map(Pair, range(200))
                if made.both[0].connector is not None and not made.is_async
                and not made.has_sessions and not made.drops)


def steps(pair, count=40):
    for _ in range(count):
        pair.add()
        pair.schedule()
        pair.update()


@pytest.mark.parametrize("method", ["get_num_new_matched_tokens", "update_state_after_alloc",
                                    "build_connector_meta", "request_finished_all_groups"])
def test_a_connector_raises(pair, method):
    def fail(*_given):
        raise LookupError("not today")

    setattr(pair.both[1].connector, method, fail)
    with pytest.raises(LookupError, match="not today"):
        steps(pair)


def test_wrong_types(pair):
    _theirs, ours = pair.both
    pair.add()
    output = ours.schedule()
    for computed in (None, SimpleNamespace(sampled_token_ids=1, req_id_to_index={})):
        with pytest.raises((AttributeError, TypeError)):
            ours._core.update(output, computed, [], [], [])
    with pytest.raises(AttributeError):
        ours._core.update(object(), None, [], [], [])
    with pytest.raises(TypeError):
        ours._core.update(output)


def test_a_request_is_the_schedulers(pair):
    from vllm.v1.request import RequestStatus

    pair.add()
    (request,) = pair.both[1].requests.values()
    for name, value in (("status", RequestStatus.WAITING_FOR_REMOTE_KVS), ("num_preemptions", 1),
                        ("num_computed_tokens", 1), ("is_prefill_chunk", True),
                        *((("num_in_flight_tokens", 1),) if is_0_32() else ())):
        with pytest.raises(AttributeError):
            setattr(request, name, value)
    assert request.num_computed_tokens == 0


def test_requests_that_are_not_new(pair):
    from vllm.v1.request import RequestStatus

    pair.add()
    ours = pair.both[1]
    (request,) = ours.requests.values()
    with pytest.raises(ValueError, match="belongs to another scheduler"):
        vllm_kit.make().add_request(request)
    ours.finish_requests(request.request_id, RequestStatus.FINISHED_ABORTED)
    with pytest.raises(ValueError, match="was scheduled before: its status is FINISHED_ABORTED"):
        ours.add_request(request)
    assert not ours.requests


def test_requests_outlive_their_scheduler(pair):
    pair.add()
    request = next(iter(pair.both[1].requests.values()))
    pair.both.clear()
    gc.collect()
    assert request.num_computed_tokens >= 0
