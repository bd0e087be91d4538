"""The C side of quire.vllm. Requests, blocks' hashes and outputs are vLLM's own objects."""

from collections.abc import Callable
from typing import Any, Self

_Request = Any

class BlockHasher:
    def __new__(cls, algorithm: str, block_size: int, module: Any,
                fallback: Callable[[_Request], list[bytes]], profile: int = 1,
                /) -> Self: ...
    def __call__(self, request: _Request, /) -> list[bytes]: ...

class Core:
    """A scheduler; quire.vllm.Scheduler is its face."""
    def __getattr__(self, name: str) -> Any: ...
