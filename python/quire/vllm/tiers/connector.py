"""QuireConnector, as vLLM 0.20 and 0.32 call it.

    vllm serve MODEL --kv-transfer-config '{"kv_connector": "QuireConnector",
        "kv_connector_module_path": "quire.vllm", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"host_bytes": "64GiB"}}'
"""
from collections import Counter
from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorBase_V1, KVConnectorRole,
                                                               SupportsHMA)
from vllm.logger import init_logger

from .metrics import QuirePromMetrics, QuireStats
from .options import read_options, refuse
from .scheduler import SchedulerHalf
from .worker import WorkerHalf

try:
    from vllm.v1.metrics.cache_hit_source import CacheHitSource
except ImportError:  # 0.20
    CacheHitSource = None

logger = init_logger("vllm.quire.tiers")
HAS_RESULTS = hasattr(base, "KVConnectorTransferResults")  # 0.32


class QuireConnector(KVConnectorBase_V1, SupportsHMA):
    """Host memory, files, Redis and object stores under vLLM's KV cache."""

    def __init__(self, vllm_config, role: KVConnectorRole, kv_cache_config=None):
        super().__init__(vllm_config, role, kv_cache_config)
        if kv_cache_config is None:
            refuse("vLLM gave no kv_cache_config")
        transfer = vllm_config.kv_transfer_config
        if transfer.kv_role != "kv_both":
            refuse(f'kv_role is "{transfer.kv_role}" (expected "kv_both")')
        options = read_options(transfer.kv_connector_extra_config)
        self._scheduler = self._worker = None
        if role == KVConnectorRole.SCHEDULER:
            if transfer.kv_load_failure_policy != "recompute":
                logger.warning('QuireConnector: kv_load_failure_policy is "%s": a request whose load '
                               'fails ends with an error. Set "kv_load_failure_policy": "recompute" in '
                               "--kv-transfer-config: its tokens are computed then",
                               transfer.kv_load_failure_policy)
            self._scheduler = SchedulerHalf(options, vllm_config, kv_cache_config)
        else:
            self._worker = WorkerHalf(options, vllm_config, kv_cache_config)

    @property
    def requires_kv_delivery(self) -> bool:
        return False  # a store that is lost is a miss later

    # -- the worker half

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        return True  # 0.20: a block is one piece in all layers, which the copy engine moves alone

    def register_kv_caches(self, kv_caches: dict) -> None:
        self._worker.register(kv_caches)

    def register_cross_layers_kv_cache(self, kv_cache, attn_backend) -> None:
        self._worker.register_cross_layers(kv_cache, attn_backend)

    def start_load_kv(self, forward_context, **_more: Any) -> None:
        self._worker.submit(self._get_connector_metadata())

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass

    def save_kv_layer(self, layer_name: str, kv_layer, attn_metadata, **_more: Any) -> None:
        pass

    def wait_for_save(self) -> None:
        pass

    def get_transfer_results(self, finished_req_ids: set[str]):
        """0.32. Requests that are loaded are told by the scheduler half. Of several ranks vLLM believes a
        failure that has finished on all of them."""
        failed = self._get_connector_metadata().failed
        return base.KVConnectorTransferResults(set(), set(failed), set(failed))

    def get_block_ids_with_load_errors(self) -> set[int]:
        return set() if HAS_RESULTS else set(self._get_connector_metadata().failed_blocks)

    def build_connector_worker_meta(self):
        return self._worker.report(self._get_connector_metadata())

    # -- the scheduler half

    def bind_gpu_block_pool(self, gpu_block_pool) -> None:
        self._scheduler.bind(gpu_block_pool)

    def on_new_request(self, request) -> None:
        self._scheduler.new_request(request)

    def get_num_new_matched_tokens(self, request, num_computed_tokens: int):
        return self._scheduler.match(request, num_computed_tokens)

    def update_state_after_alloc(self, request, blocks, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output):
        return self._scheduler.plan(scheduler_output)

    def update_connector_output(self, connector_output) -> None:
        self._scheduler.take(connector_output)

    def get_external_cache_hit_sources(self, request, num_external_tokens: int) -> dict:
        """0.32."""
        left, found = num_external_tokens, Counter()
        for kind, tokens in self._scheduler.hit_tiers(request).items():
            source = CacheHitSource.DISK if kind == "file" else CacheHitSource.EXTERNAL_UNSPECIFIED
            found[source] += min(tokens, left)
            left -= min(tokens, left)
        found[CacheHitSource.HOST] += left
        return {source: tokens for source, tokens in found.items() if tokens}

    def request_finished(self, request, block_ids: list[int]):
        self._scheduler.finished(request, (block_ids,))
        return False, None

    def request_finished_all_groups(self, request, block_ids: tuple[list[int], ...]):
        self._scheduler.finished(request, block_ids)
        return False, None

    def has_pending_push_work(self) -> bool:
        return self._scheduler.has_pending()

    def reset_cache(self) -> bool:
        return self._scheduler.reset()

    def take_events(self) -> Iterable:
        return self._scheduler.take_events()

    # -- both

    def get_kv_connector_stats(self) -> QuireStats | None:
        if self._scheduler is not None:
            return self._scheduler.take_stats()
        plan = self._connector_metadata
        return self._worker.take_stats(plan is not None and plan.has_counted)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> QuireStats:
        return QuireStats(data or {})

    @classmethod
    def build_prom_metrics(cls, *given) -> QuirePromMetrics:
        return QuirePromMetrics(*given)

    def shutdown(self) -> None:
        if self._worker is not None:
            self._worker.close()
