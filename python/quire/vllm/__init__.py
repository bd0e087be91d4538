"""vLLM 0.20.x on Quire: `--scheduler-cls quire.vllm.AsyncScheduler`, same decisions, in C.

    from quire.vllm import Scheduler, AsyncScheduler, get_request_block_hasher

Importing this needs vLLM; a version other than 0.20.x is refused.
"""
from .version import check

check()

from .hasher import get_request_block_hasher  # noqa: E402
from .scheduler import AsyncScheduler, Scheduler  # noqa: E402

__all__ = ["AsyncScheduler", "Scheduler", "get_request_block_hasher"]
