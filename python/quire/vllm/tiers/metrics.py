"""Counters of the connector, as vLLM logs them and as Prometheus reads them.

    vllm:quire_hit_tokens_total{tier="file", ...}      one counter for each row of COUNTERS

Both halves count; a stats object has what was counted since the last one, by "counter|tier".
"""
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (KVConnectorPromMetrics,
                                                                  KVConnectorStats)

HOST = "host"
COUNTERS = {
    "hit_tokens": "Prompt tokens found, by the tier that had them",
    "loaded_blocks": "Blocks loaded: from host memory to the engine, from a tier to host memory",
    "stored_blocks": "Blocks stored: from the engine to host memory, from host memory to a tier",
    "loaded_bytes": "Bytes loaded from a tier, all ranks",
    "stored_bytes": "Bytes stored in a tier, all ranks",
    "failed_blocks": "Blocks that could not be loaded or stored: I/O errors, corrupt content",
    "late_blocks": "Blocks that were not loaded before the timeout",
    "corrupt_blocks": "Blocks whose content was not what was stored; they were not used",
    "dropped_blocks": "Blocks that were not stored: no room, or the tier was too slow",
    "skipped_tokens": "Tokens in a tier that were computed instead, because that is faster",
    "failed_loads": "Requests whose load failed; their tokens were computed",
    "breaker_opened": "Times that a tier was left alone after failures in a row",
}
# (counter, field of the planner), for host memory and for each tier below
OF_HOST = (("loaded_blocks", "loaded_blocks"), ("stored_blocks", "stored_blocks"),
           ("failed_blocks", "failed_stores"), ("dropped_blocks", "no_room"),
           ("failed_loads", "failed_loads"))
OF_TIER = (("hit_tokens", "hit_tokens"), ("loaded_blocks", "promoted_blocks"),
           ("stored_blocks", "stored_blocks"), ("failed_blocks", "failed_blocks"),
           ("late_blocks", "late_blocks"), ("dropped_blocks", "dropped_blocks"),
           ("skipped_tokens", "skipped_tokens"))
OF_WORKER = (("loaded_bytes", "bytes_loaded"), ("stored_bytes", "bytes_stored"),
             ("breaker_opened", "breaker_opened"))


def planner_totals(stats: dict[str, Any], tiers: list[str]) -> dict[str, int]:
    made = {f"{name}|{HOST}": stats[source] for name, source in OF_HOST}
    below = 0
    for tier, counts in zip(tiers, stats["tiers"]):
        made.update({f"{name}|{tier}": counts[source] for name, source in OF_TIER})
        below += counts["hit_tokens"]
    made[f"hit_tokens|{HOST}"] = max(0, stats["hit_tokens"] - below)
    return made


def worker_totals(stats: dict[str, Any], tiers: list[str]) -> dict[str, int]:
    made = {"corrupt_blocks|all": stats["corrupt_keys"]}
    for tier, counts in zip(tiers, stats["tiers"]):
        made.update({f"{name}|{tier}": counts[source] for name, source in OF_WORKER})
    return made


class Since:
    """What counters have grown by since the last time."""

    def __init__(self):
        self._last: dict[str, int] = {}

    def take(self, totals: dict[str, int]) -> "QuireStats | None":
        grown = {key: value - self._last.get(key, 0) for key, value in totals.items()
                 if value > self._last.get(key, 0)}
        if not grown:
            return None
        self._last.update(totals)
        return QuireStats(grown)


@dataclass
class QuireStats(KVConnectorStats):
    """data: {"counter|tier": number}."""

    def reset(self) -> None:
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> "QuireStats":
        for key, value in other.data.items():
            self.data[key] = self.data.get(key, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        return {key.replace("|", " "): value for key, value in sorted(self.data.items())}

    def is_empty(self) -> bool:
        return not self.data


class QuirePromMetrics(KVConnectorPromMetrics):
    def __init__(self, vllm_config, metric_types, labelnames, per_engine_labelvalues):
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {name: self._counter_cls(name=f"vllm:quire_{name}", documentation=text,
                                                  labelnames=[*labelnames, "tier"])
                          for name, text in COUNTERS.items()}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        labels = self.per_engine_labelvalues[engine_idx]
        for key, value in transfer_stats_data.items():
            name, _, tier = key.partition("|")
            if name in self._counters:
                self._counters[name].labels(*labels, tier).inc(value)
