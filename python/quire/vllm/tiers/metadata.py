"""What the halves send each other, through vLLM.

    scheduler half ── Plan: bytes ──► all ranks       the jobs of a step
                   ◄── Report: bytes of each rank ──  the jobs that have ended
"""
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (KVConnectorMetadata,
                                                               KVConnectorWorkerMetadata)


@dataclass
class Plan(KVConnectorMetadata):
    step: int = 0
    plan: bytes = b""  # may be empty
    num_slots: int = 0
    is_idle: bool = False  # the step computes nothing: a worker may wait for a transfer
    is_last: bool = False  # and no request is left
    has_counted: bool = False  # vLLM 0.20 asks the scheduler half for counters if a worker has some
    # Loads that failed: vLLM is told by the workers, with a step's results.
    failed: tuple[str, ...] = ()
    failed_blocks: tuple[int, ...] = ()


@dataclass
class Report(KVConnectorWorkerMetadata):
    step: int = 0
    reports: list[bytes] = field(default_factory=list)  # of the ranks
    failed: tuple[str, ...] = ()  # of the plan, told to vLLM with this step

    def aggregate(self, other: "Report") -> "Report":
        return Report(max(self.step, other.step), self.reports + other.reports,
                      self.failed or other.failed)
