"""quire.vllm's schedulers for vLLM 0.20, open to those who look into them and write into them, as vLLM's
tests do."""
import quire.vllm
from quire.vllm import config as configs

from . import queues
from .kv_cache_manager import KVCacheManager
from .opened import Opened
from .request import WritableRequest


class Scheduler(Opened, quire.vllm.Scheduler):
    """As vllm.v1.core.sched.scheduler.Scheduler, with its inner parts."""

    bound_request = WritableRequest

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
    def skipped_waiting(self) -> queues.Waiting:
        return queues.Waiting(self, queues.SKIPPED)


class AsyncScheduler(Scheduler):
    """As vllm.v1.core.sched.async_scheduler.AsyncScheduler."""

    is_async = True
