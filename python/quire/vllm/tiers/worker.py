"""The worker half: the slab, the device and the tiers of one rank.

    register_kv_caches ─► regions ─► Worker ─► self test
    start_load_kv ─► submit(plan)            build_connector_worker_meta ─► poll ─► Report

Nothing is done in the hooks of layers: full CUDA graphs stay.
"""
import os
import time
from typing import Any

import torch

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.logger import init_logger

from quire._connector import Worker

from .events import has_events
from .identity import fingerprint_of
from .metadata import Plan, Report
from .metrics import QuireStats, Since, worker_totals
from .options import SWITCHES, Options, refuse
from .regions import View, all_regions, block_dimension
from .sizes import num_slots, refuse_kinds

logger = init_logger("vllm.quire.tiers")

IDLE_WAIT_NS = 1_000_000  # a step that computes nothing waits so long for a transfer
LAST_WAIT_S = 0.05  # and the last step of vLLM 0.20 so long for all of them
# 0.32 makes steps as long as transfers are in flight, 0.20 makes one behind the last request.
HAS_MORE_STEPS = hasattr(KVConnectorBase_V1, "has_pending_push_work")


def is_mla(vllm_config, kv_cache_config) -> bool:
    """All ranks of a tensor-parallel group have the same bytes."""
    return bool(vllm_config.model_config.use_mla) and all(
        "MLA" in type(group.kv_cache_spec).__name__ for group in kv_cache_config.kv_cache_groups)


def text_of(size: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"


class WorkerHalf:
    def __init__(self, options: Options, vllm_config, kv_cache_config):
        refuse_kinds(kv_cache_config)
        self.options, self.vllm_config, self.kv_cache_config = options, vllm_config, kv_cache_config
        parallel = vllm_config.parallel_config
        self.rank, self.world_size = parallel.rank, parallel.world_size
        self.worker: Worker | None = None
        self._submitted = 0  # the last step whose plan was submitted
        self._stream = None
        self._tiers = [kind for kind, _ in options.tiers]
        self._counted = Since()

    # -- start

    def register(self, kv_caches: dict) -> None:
        self.close()
        config = self.kv_cache_config
        regions = all_regions(kv_caches, config)
        self.num_slots = num_slots(self.options, config, self.world_size)
        identity = fingerprint_of(self.vllm_config, config, kv_caches, regions,
                                  self.options.host["namespace"])
        numbers = {"regions": [tuple(region) for region in regions],
                   "num_blocks": config.num_blocks, "num_slots": self.num_slots,
                   "hugepages": SWITCHES[self.options.host["hugepages"]],
                   "tiers": [self._tier(kind, values, identity)
                             for kind, values in self.options.tiers],
                   **self._ranks(), **self._device(kv_caches)}
        self.worker = Worker(numbers)
        if self.options.host["self_test"]:
            self._self_test(kv_caches)
            self._counted.take(worker_totals(self.worker.stats(), self._tiers))  # not of requests
        if self.rank == 0:
            self._say(sum(region.bytes for region in regions), len(regions))

    def register_cross_layers(self, kv_cache, attn_backend) -> None:
        """0.20: one tensor for all layers. The layers are views of it."""
        order = attn_backend.get_kv_cache_stride_order(include_num_layers_dimension=True)
        layers = kv_cache.permute(*(order.index(i) for i in range(len(order))))
        self.register({name: layers[i]
                       for i, tensor in enumerate(self.kv_cache_config.kv_cache_tensors)
                       for name in tensor.shared_by})

    def _ranks(self) -> dict[str, int]:
        parallel = self.vllm_config.parallel_config
        events = self.vllm_config.kv_events_config
        made = {"rank": self.rank, "num_ranks": self.world_size, "key_rank": self.rank,
                "tells_gone": SWITCHES["on" if has_events(events) else "off"]}
        if is_mla(self.vllm_config, self.kv_cache_config) and parallel.tensor_parallel_size > 1:
            made["key_rank"] = self.rank // parallel.tensor_parallel_size
            if self.rank % parallel.tensor_parallel_size:
                made["stores"] = SWITCHES["off"]
        return made

    def _device(self, kv_caches: dict) -> dict[str, int]:
        device = next(iter(kv_caches.values())).device
        if any(tensor.device != device for tensor in kv_caches.values()):
            refuse("the KV cache lies on several devices")
        if device.type == "cpu":
            return {}
        if device.type != "cuda":
            refuse(f"KV caches on {device.type} are not supported (expected cuda or cpu)")
        self._stream = torch.cuda.current_stream(device).cuda_stream
        return {"cuda_device": device.index or 0, "cuda_stream": self._stream}

    def _tier(self, kind: str, values: dict[str, Any], identity: bytes) -> dict[str, Any]:
        made = {"kind": kind, "label": kind, "fingerprint": identity,
                "deadline_ns": values["timeout_ms"] * 1_000_000}
        made.update({name: int(value) if isinstance(value, bool) else value
                     for name, value in values.items()
                     if value is not None and name not in ("timeout_ms", "admit")})
        if kind == "file":
            made.update(self._file(values))
        if kind == "object":
            made.update({name: SWITCHES[values[name]] for name in ("virtual_host", "sign_payload")})
        return made

    def _file(self, values: dict[str, Any]) -> dict[str, Any]:
        """A file for each rank; a shared directory is one for all: its keys have the rank."""
        folder = values["path"]
        try:
            os.makedirs(folder, exist_ok=True)
        except OSError as error:
            refuse(f"file.path: {error}")
        if values["shared"]:
            return {"path": folder}
        data_parallel = self.vllm_config.parallel_config.data_parallel_rank
        name = f"blocks-{data_parallel}-{self.rank}.quire"
        return {"path": os.path.join(folder, name), "bytes": values["bytes"] // self.world_size}

    def _self_test(self, kv_caches: dict) -> None:
        """With the last two blocks, which no request has yet. They are zero again afterwards: what is
        left in a block must be numbers."""
        num_blocks = self.kv_cache_config.num_blocks
        if num_blocks < 3:
            return
        first, second = num_blocks - 2, num_blocks - 1
        timeout_ms = self.options.host["self_test_timeout_ms"]
        self.worker.self_test(first, second, timeout_ms * 1_000_000)
        for name, tensor in kv_caches.items():
            dim = block_dimension(name, View.of(tensor), num_blocks)
            parts = tensor.shape[dim] // num_blocks
            tensor.narrow(dim, first * parts, 2 * parts).zero_()

    def _say(self, block_bytes: int, num_regions: int) -> None:
        slab, page, is_huge = self.worker.slab()
        tiers = "; ".join(self._describe(kind, values) for kind, values in self.options.tiers)
        logger.info("QuireConnector: host memory of %s for %d blocks of %s (%d pieces each) on each of "
                    "%d ranks, pages of %s%s; tiers below: %s; self test %s",
                    text_of(slab), self.num_slots, text_of(block_bytes), num_regions, self.world_size,
                    text_of(page), " (reserved)" if is_huge else "", tiers or "none",
                    "passed" if self.options.host["self_test"] else "off")

    @staticmethod
    def _describe(kind: str, values: dict[str, Any]) -> str:
        if kind == "file":
            return f"{'shared directory' if values['shared'] else 'files in'} {values['path']}, " \
                   f"{text_of(values['bytes'])}"
        if kind == "object":
            return f"bucket {values['bucket']} at {values['endpoint'] or 'AWS S3'}"
        return f"{kind} at {', '.join(values['servers'])}"

    # -- steps

    def submit(self, plan: Plan) -> None:
        """Once for each step; a plan must not be lost."""
        if plan.step == self._submitted or self.worker is None:
            return
        self._submitted = plan.step
        if plan.num_slots != self.num_slots:
            raise RuntimeError(f"QuireConnector: the scheduler plans for {plan.num_slots} blocks in "
                               f"host memory, and rank {self.rank} has {self.num_slots}: give "
                               "host_blocks instead of host_bytes")
        if not plan.plan:
            return
        if self._stream is not None:
            self._check_stream()
        while not self.worker.submit(plan.plan):
            self.worker.poll(IDLE_WAIT_NS)

    def _check_stream(self) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        if stream != self._stream:
            raise RuntimeError(f"QuireConnector: vLLM computes on stream {stream:#x}, and registered "
                               f"its KV cache on stream {self._stream:#x}: copies would not wait for it")

    def report(self, plan: Plan) -> Report:
        self.submit(plan)  # if vLLM did not start loads in this step
        if not self._tiers and not self.worker.has_pending():
            return Report(plan.step, [], plan.failed)
        reports = [self.worker.poll(IDLE_WAIT_NS if plan.is_idle else 0)]
        until = time.monotonic() + LAST_WAIT_S
        while (plan.is_last and not HAS_MORE_STEPS and self.worker.has_pending()
               and time.monotonic() < until):
            reports.append(self.worker.poll(IDLE_WAIT_NS))
        return Report(plan.step, [report for report in reports if report], plan.failed)

    def take_stats(self, has_counted: bool = False) -> QuireStats | None:
        """has_counted: the scheduler half has, and vLLM 0.20 asks it only if a worker gives stats."""
        made = None  # the usual answer, cheaply: vLLM asks in each step
        if self.worker is not None and self.worker.has_counted():
            made = self._counted.take(worker_totals(self.worker.stats(), self._tiers))
        return QuireStats({}) if made is None and has_counted else made

    # -- the end

    def close(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None and not worker.close(
                self.options.host["shutdown_timeout_ms"] * 1_000_000):
            logger.warning("a tier did not end in time")
