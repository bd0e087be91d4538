"""scheduler.running, .waiting, .skipped_waiting and the sets of loads: views on the core's queues.

They are what vLLM's own objects are to those who look into the scheduler: tests, mostly. A Request
that is put into one and was never added becomes the scheduler's.
"""
from collections.abc import Iterable, Iterator, MutableSet

from vllm.v1.request import Request

from _quire_shim import edit, enqueue, flags, leave

RUNNING, WAITING, SKIPPED = range(3)
RECEIVED, FAILED = 4, 5  # as tests/vllm/shim/src/edit.c counts
FLAGS = {RECEIVED: 0, FAILED: 1}


class Running(list):
    """The requests that run, as they are now; append makes one run."""

    def __init__(self, scheduler):
        super().__init__(scheduler._core.queue(RUNNING))
        self._scheduler = scheduler

    def append(self, request: Request) -> None:
        number = self._scheduler._number_of(request)
        enqueue(self._scheduler._core, number, RUNNING, False)
        super().append(request)

    def remove(self, request: Request) -> None:
        super().remove(request)
        leave(self._scheduler._core, self._scheduler._number_of(request))


class Waiting:
    """One of the two queues of requests that wait, with the methods of vLLM's RequestQueue."""

    def __init__(self, scheduler, which: int):
        self._scheduler, self._which = scheduler, which

    def _requests(self) -> list[Request]:
        return self._scheduler._core.queue(self._which)

    def _put(self, request: Request, in_front: bool) -> None:
        number = self._scheduler._number_of(request)
        enqueue(self._scheduler._core, number, self._which, in_front)

    def add_request(self, request: Request) -> None:
        self._put(request, False)

    def prepend_request(self, request: Request) -> None:
        self._put(request, True)

    def prepend_requests(self, requests: Iterable[Request]) -> None:
        for request in reversed(list(requests)):
            self._put(request, True)

    def peek_request(self) -> Request:
        requests = self._requests()
        if not requests:
            raise IndexError("the queue is empty")
        return requests[0]

    def pop_request(self) -> Request:
        request = self.peek_request()
        self.remove_request(request)
        return request

    def remove_request(self, request: Request) -> None:
        if request not in self:
            raise ValueError(f"request {request.request_id} is not in this queue")
        leave(self._scheduler._core, request._quire[1])

    def remove_requests(self, requests: Iterable[Request]) -> None:
        for request in list(requests):
            if request in self:
                self.remove_request(request)

    append = add_request
    remove = remove_request

    def __contains__(self, request) -> bool:
        return any(request is other for other in self._requests())

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests())

    def __reversed__(self) -> Iterator[Request]:
        return reversed(self._requests())

    def __len__(self) -> int:
        return self._scheduler._core.queue_length(self._which)

    def __getitem__(self, place):
        return self._requests()[place]

    def __eq__(self, other) -> bool:
        return list(self) == list(other)

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self._requests())


class Loads(MutableSet):
    """Ids of requests that wait and whose load has come, or has failed."""

    def __init__(self, scheduler, which: int):
        self._scheduler, self._which = scheduler, which

    def __contains__(self, name) -> bool:
        request = self._scheduler.requests.get(name)
        if request is None:
            return False
        return bool(flags(self._scheduler._core, request._quire[1])[FLAGS[self._which]])

    def __iter__(self) -> Iterator[str]:
        return (name for name in list(self._scheduler.requests) if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _set(self, name: str, value: int) -> None:
        request = self._scheduler.requests.get(name)
        if request is None and value:
            raise KeyError(f"no request {name}")
        if request is not None:
            edit(self._scheduler._core, request._quire[1], self._which, value)

    def add(self, name: str) -> None:
        self._set(name, 1)

    def discard(self, name: str) -> None:
        self._set(name, 0)
