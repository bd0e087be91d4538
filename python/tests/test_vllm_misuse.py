"""quire.vllm where others fail: exceptions of grammars and connectors, wrong types, late calls."""
import gc
from types import SimpleNamespace

import pytest
import vllm_kit


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


def test_what_a_request_may_be_changed_to(pair):
    from vllm.v1.request import RequestStatus

    pair.add()
    (request,) = pair.both[1].requests.values()
    waits = RequestStatus.WAITING_FOR_REMOTE_KVS
    request.status = waits
    assert request.status == waits
    for status in (RequestStatus.RUNNING, RequestStatus.FINISHED_STOPPED):
        with pytest.raises(AttributeError, match="finish_requests"):
            request.status = status
    with pytest.raises(ValueError, match="num_computed_tokens cannot be"):
        request.num_computed_tokens = request.num_tokens + 1
    with pytest.raises((OverflowError, ValueError)):
        request.num_computed_tokens = -1
    with pytest.raises(AttributeError):
        request.is_prefill_chunk = True
    assert request.num_computed_tokens == 0


def test_queues_refuse_what_cannot_be(pair):
    pair.add()
    ours = pair.both[1]
    (request,) = ours.requests.values()
    ours.schedule()
    if request in ours.running:
        with pytest.raises(ValueError, match="cannot wait"):
            ours.waiting.add_request(request)
    for queue in (ours.waiting, ours.skipped_waiting):
        if request not in queue:
            with pytest.raises(ValueError, match="not in this queue"):
                queue.remove_request(request)
    with pytest.raises(AttributeError, match="while there are requests"):
        ours.max_num_encoder_input_tokens = 7
    with pytest.raises(KeyError):
        ours.finished_recving_kv_req_ids.add("nobody")


def test_requests_outlive_their_scheduler(pair):
    pair.add()
    request = next(iter(pair.both[1].requests.values()))
    pair.both.clear()
    gc.collect()
    assert request.num_computed_tokens >= 0
