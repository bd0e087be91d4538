"""quire.vllm's schedulers, open to those who look into them and write into them, as vLLM's tests do."""
import quire.vllm
from quire.vllm import config as configs

from _quire_shim import enqueue

from . import queues
from .images import Images
from .kv_cache_manager import KVCacheManager
from .request import HELD, WritableRequest

from vllm.v1.request import Request, RequestStatus


class Scheduler(quire.vllm.Scheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler, with its inner parts."""

    bound_request = WritableRequest
    _core = _connector = None

    # -- requests in any state

    def _add(self, request: Request) -> int:
        status, computed = request.status, request.num_computed_tokens
        request.status, request.num_computed_tokens = RequestStatus.WAITING, 0
        number = super()._add(request)
        if request.status != status and status != RequestStatus.RUNNING:
            request.status = status
            enqueue(self._core, number, queues.SKIPPED if status in HELD else queues.WAITING, False)
        if computed:
            request.num_computed_tokens = computed
        return number

    def _number_of(self, request: Request) -> int:
        """The core's number of a request; one that it does not know yet is added."""
        is_known = isinstance(request, WritableRequest)
        return request._quire[1] if is_known else self._add(request)

    # -- what a scheduler is made with, until it has requests

    def _change(self, what: str, **numbers: int) -> None:
        if self.requests:
            raise AttributeError(f"quire.vllm: {what} cannot be changed while there are requests")
        self._numbers.update(numbers)
        self._make_core()

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
    def kv_cache_manager(self) -> KVCacheManager:
        if self._manager is None:
            numbers = self._numbers
            self._manager = KVCacheManager.of_core(
                self._core, self.kv_cache_config, self.max_model_len, numbers["hash_block_size"],
                numbers["enable_caching"] == configs.ON,
                numbers.get("use_eagle") == configs.ON, numbers["dcp_world_size"],
                numbers["pcp_world_size"])
        return self._manager

    @kv_cache_manager.setter
    def kv_cache_manager(self, manager) -> None:
        raise AttributeError("quire.vllm: the scheduler's KV cache cannot be replaced")

    @property
    def encoder_cache_manager(self) -> Images:
        return Images(self)

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
    def skipped_waiting(self) -> queues.Waiting:
        return queues.Waiting(self, queues.SKIPPED)

    @property
    def finished_recving_kv_req_ids(self) -> queues.Loads:
        return queues.Loads(self, queues.RECEIVED)

    @property
    def failed_recving_kv_req_ids(self) -> queues.Loads:
        return queues.Loads(self, queues.FAILED)


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
