"""A scheduler whose queues and requests can be written to: what that may change, and what is refused."""
import pytest
import vllm_kit
from conftest import is_0_32

MODULE = "quire_shim.scheduler_0_32" if is_0_32() else "quire_shim.scheduler"


@pytest.fixture
def pair(request):
    """Two schedulers; ours is the second."""
    vllm_kit.need_vllm(request.config)
    from test_lockstep import Pair

    return next(made for made in (Pair(seed, MODULE) for seed in range(200))
                if made.both[0].connector is not None and not made.is_async
                and not made.has_sessions and not made.drops)


def test_what_a_request_may_be_changed_to(pair):
    from vllm.v1.request import RequestStatus

    pair.add()
    (request,) = pair.both[1].requests.values()
    waits = RequestStatus.WAITING_FOR_REMOTE_KVS
    request.status = waits
    assert request.status == waits
    refused = [RequestStatus.RUNNING] + ([] if is_0_32() else [RequestStatus.FINISHED_STOPPED])
    for status in refused:
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
    apart = ours.kv_holding_waiting if is_0_32() else ours.skipped_waiting
    for queue in (ours.waiting, apart):
        if request not in queue:
            with pytest.raises(ValueError, match="not in this queue"):
                queue.remove_request(request)
    with pytest.raises(AttributeError, match="while there are requests"):
        ours.max_num_encoder_input_tokens = 7
    with pytest.raises(KeyError):
        ours.finished_recving_kv_req_ids.add("nobody")


def test_lockstep(request):
    """The parts that the shim adds do not change what is decided."""
    vllm_kit.need_vllm(request.config)
    from test_lockstep import Ended, Pair

    for seed in range(10):
        try:
            Pair(seed, MODULE).run(40)
        except Ended:
            pass
