"""The C side of quire.vllm.QuireConnector."""

from typing import Any, Self

class Known:
    """What a planner knows of a request."""
    request: Any
    is_loading: int

class Planner:
    """A quire_planner; quire/vllm/tiers/scheduler.py is its face."""
    def __new__(cls, config: dict[str, Any], /) -> Self: ...
    def __getattr__(self, name: str) -> Any: ...

class Worker:
    """A quire_worker; quire/vllm/tiers/worker.py is its face."""
    def __new__(cls, config: dict[str, Any], /) -> Self: ...
    def __getattr__(self, name: str) -> Any: ...

def fingerprint(identity: dict[str, Any], /) -> bytes: ...
