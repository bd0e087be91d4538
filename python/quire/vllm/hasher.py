"""vLLM's request block hasher, in C: the same bytes for the same request."""
from collections.abc import Callable
from typing import Any

from vllm.utils import hashing
from vllm.v1.core import kv_cache_utils

from quire._vllm import BlockHasher

from .version import profile

# vLLM's own, whatever stands in its place later.
own_hasher = kv_cache_utils.get_request_block_hasher

ALGORITHMS = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def algorithm_of(function: Callable[[Any], bytes]) -> str | None:
    """The name of one of vLLM's four hash functions, None for any other function."""
    for name in ALGORITHMS:
        if getattr(hashing, name, None) is function:
            return name
    return None


def get_request_block_hasher(block_size: int, caching_hash_fn: Callable[[Any], bytes]):
    """As vllm.v1.core.kv_cache_utils.get_request_block_hasher. A function that is not one of
    vLLM's gets vLLM's own hasher."""
    own = own_hasher(block_size, caching_hash_fn)
    name = algorithm_of(caching_hash_fn)
    if name is None:
        return own
    return BlockHasher(name, block_size, kv_cache_utils, own, profile())
