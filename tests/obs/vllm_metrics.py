"""vLLM's own Prometheus logger, and what both recorders of this folder share.

The logger is the real one (PrometheusStatLogger of vLLM 0.20.0) over a config that has just the
fields it reads. QUIRE_VLLM_PLATFORM names the file that lets vLLM run without a GPU.
"""
import importlib.util
import os
from types import SimpleNamespace

MASK = (1 << 64) - 1


def load_platform():
    path = os.environ.get("QUIRE_VLLM_PLATFORM")
    if path:
        spec = importlib.util.spec_from_file_location("host_platform", path)
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


class Random:
    """splitmix64, as the tests in C have it."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, n):
        return (self.next() >> 32) * n >> 32

    def random(self):
        return (self.next() >> 11) * 2.0**-53


def make_logger(max_model_len, num_spec_tokens=0):
    """A fresh logger: all of its metrics are zero."""
    from vllm.v1.metrics.loggers import PrometheusStatLogger
    spec = None
    if num_spec_tokens:
        spec = SimpleNamespace(num_speculative_tokens=num_spec_tokens)
    config = SimpleNamespace(
        observability_config=SimpleNamespace(show_hidden_metrics=False, kv_cache_metrics=True,
                                             enable_mfu_metrics=False),
        model_config=SimpleNamespace(served_model_name="m", max_model_len=max_model_len),
        speculative_config=spec, kv_transfer_config=None, lora_config=None,
        parallel_config=None, cache_config=None)
    return PrometheusStatLogger(config)


def families():
    """What prometheus_client would show of vLLM's metrics, by name."""
    from prometheus_client import REGISTRY
    return {f.name: f for f in REGISTRY.collect() if f.name.startswith("vllm:")}


def histogram(family):
    """Counts of the buckets, the one without a bound last, and the sum."""
    counts, sums = [], 0.0
    for s in family.samples:
        if s.name.endswith("_bucket"):
            counts.append(int(s.value))
        elif s.name.endswith("_sum"):
            sums = s.value
    return [b - a for a, b in zip([0] + counts, counts)], sums
