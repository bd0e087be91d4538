"""A Request of a scheduler that can be written to, as far as the scheduler stays whole."""
from vllm.v1.request import RequestStatus

from quire.vllm.request import COMPUTED, PLACEHOLDERS, PREEMPTIONS, STATUS, BoundRequest

from _quire_shim import edit

HELD = (RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR, RequestStatus.WAITING_FOR_REMOTE_KVS,
        RequestStatus.WAITING_FOR_STREAMING_REQ)


def writable(read: property, which: int) -> property:
    """which: as tests/vllm/shim/src/edit.c counts."""

    def write(self, value) -> None:
        edit(*self._quire, which, int(value))

    return read.setter(write)


class WritableRequest(BoundRequest):
    status = writable(BoundRequest.status, STATUS)
    num_computed_tokens = writable(BoundRequest.num_computed_tokens, COMPUTED)
    num_output_placeholders = writable(BoundRequest.num_output_placeholders, PLACEHOLDERS)
    num_preemptions = writable(BoundRequest.num_preemptions, PREEMPTIONS)
