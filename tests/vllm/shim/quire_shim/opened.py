"""What the schedulers of all releases share, open to those who look into them and write into them, as
vLLM's tests do."""
from vllm.v1.request import Request, RequestStatus

from quire.vllm import config as configs
from quire.vllm.request import BoundRequest

from _quire_shim import enqueue, leave

from . import queues
from .images import Images
from .request import HELD, WritableRequest


class Opened:
    """Goes before a scheduler of quire.vllm."""

    _core = _connector = _images = None
    held = HELD  # waits that are not in `waiting`

    # -- requests in any state

    def _add(self, request: Request) -> int:
        status, computed = request.status, request.num_computed_tokens
        request.status, request.num_computed_tokens = RequestStatus.WAITING, 0
        number = super()._add(request)
        if request.status != status and status != RequestStatus.RUNNING:
            request.status = status
            enqueue(self._core, number, queues.SKIPPED if status in self.held else queues.WAITING, False)
        if computed:
            request.num_computed_tokens = computed
        return number

    def _number_of(self, request: Request) -> int:
        """The core's number of a request; one that it does not know yet is added."""
        is_known = isinstance(request, WritableRequest)
        return request._quire[1] if is_known else self._add(request)

    def _number_of_guest(self, request: Request) -> int:
        """The same, but one that is added now is in no queue: the scheduler does not serve it."""
        if isinstance(request, BoundRequest):
            return request._quire[1]
        number = self._add(request)
        leave(self._core, number)
        return number

    # -- what a scheduler is made with, until it has scheduled something

    def _change(self, what: str, **numbers: int) -> None:
        requests = list(self.requests.values())
        if any(request.num_computed_tokens for request in requests) or self.running:
            raise AttributeError(f"quire.vllm: {what} cannot be changed while there are requests")
        images = self.encoder_cache_manager
        held = [(request, images.get_cached_input_ids(request), request in self.waiting)
                for request in requests]
        for request in requests:
            self.requests_.ended(request, int(request.status), 0, 0, 0)
        self.requests.clear()
        self._numbers.update(numbers)
        self._make_core()
        for request, inputs, waits in held:
            (self._add if waits else self._number_of_guest)(request)
            for index in sorted(inputs):
                images.allocate(request, index)

    @property
    def connector(self):
        return self._connector

    @connector.setter
    def connector(self, connector) -> None:
        is_known = self._connector is not None and connector is not None
        self._connector = connector
        if self._core is not None and not is_known:
            self._change("connector")

    @property
    def max_num_encoder_input_tokens(self) -> int:
        return self._numbers.get("encoder_compute_budget", 0)

    @max_num_encoder_input_tokens.setter
    def max_num_encoder_input_tokens(self, budget: int) -> None:
        self._change("max_num_encoder_input_tokens", encoder_compute_budget=budget)

    @property
    def is_encoder_decoder(self) -> bool:
        return self._numbers.get("is_encoder_decoder") == configs.ON

    @is_encoder_decoder.setter
    def is_encoder_decoder(self, value: bool) -> None:
        self._change("is_encoder_decoder", is_encoder_decoder=configs.switch(value))

    # -- its parts

    @property
    def encoder_cache_manager(self) -> Images:
        if self._images is None:
            self._images = Images(self)
        return self._images

    @encoder_cache_manager.setter
    def encoder_cache_manager(self, manager) -> None:
        self._change("encoder_cache_manager", encoder_cache_size=manager.cache_size)

    @property
    def running(self) -> queues.Running:
        return queues.Running(self)

    @property
    def waiting(self) -> queues.Waiting:
        return queues.Waiting(self, queues.WAITING)

    @property
    def finished_recving_kv_req_ids(self) -> queues.Loads:
        return queues.Loads(self, queues.RECEIVED)

    @property
    def failed_recving_kv_req_ids(self) -> queues.Loads:
        return queues.Loads(self, queues.FAILED)
