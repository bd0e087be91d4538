"""vLLM's queues of waiting requests, in C; see tests/vllm/shim/src/ring.c and tests/vllm/shim/src/heap.c."""
from collections.abc import Sequence

from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy

from _quire_shim import RequestHeap, RequestRing

__all__ = ["FCFSRequestQueue", "PriorityRequestQueue", "RequestQueue", "SchedulingPolicy",
           "create_request_queue"]


class FCFSRequestQueue(RequestRing, Sequence, RequestQueue):
    """First come, first served."""


class PriorityRequestQueue(RequestHeap, RequestQueue):
    """The smallest (priority, arrival_time, request_id) first, as they were when it was added."""


def create_request_queue(policy: SchedulingPolicy) -> RequestQueue:
    if policy == SchedulingPolicy.FCFS:
        return FCFSRequestQueue()
    if policy == SchedulingPolicy.PRIORITY:
        return PriorityRequestQueue()
    raise ValueError(f"{policy!r} is not a scheduling policy; there are "
                     f"{', '.join(str(known) for known in SchedulingPolicy)}")
