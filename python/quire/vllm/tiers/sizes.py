"""Sizes that both halves must agree on, and the numbers of a planner."""
from typing import Any

from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes

from ..config import group_of
from ..layers import CROSS, MAMBA, kind_of
from ..version import part, profile
from .options import ADMITS, LOADS, SWITCHES, Options, refuse

DIGESTS = {"sha256": 32, "sha256_cbor": 32, "xxhash": 16, "xxhash_cbor": 16}
# What the planner must know of a tier; a worker that opens another kind says so.
MEDIUMS = {"file": "DISK", "redis": "REDIS", "object": "OBJ"}


def block_bytes(kv_cache_config) -> int:
    """Bytes of a block in all layers of a rank, by vLLM's plan of its memory."""
    tensors = kv_cache_config.kv_cache_tensors
    if not tensors:
        refuse("the model has no KV cache")
    if hasattr(tensors[0], "shared_by"):  # 0.20: each is an allocation of its own
        total = sum(tensor.size for tensor in tensors)
    else:  # 0.32: all are parts of one
        total = tensors[0].size
    return total // kv_cache_config.num_blocks


def num_slots(options: Options, kv_cache_config, world_size: int) -> int:
    """Blocks in the host memory of each rank."""
    if options.host["host_blocks"] is not None:
        return options.host["host_blocks"]
    size = block_bytes(kv_cache_config)
    slots = options.host["host_bytes"] // world_size // size
    if slots < 2:
        refuse(f"host_bytes ({options.host['host_bytes']}) is smaller than two blocks for each of "
               f"{world_size} ranks ({2 * size * world_size})")
    return slots


def refuse_kinds(kv_cache_config) -> None:
    for group in kv_cache_config.kv_cache_groups:
        spec = group.kv_cache_spec
        kind = kind_of(spec)
        if kind in (MAMBA, CROSS):
            refuse(f"layers of kind {type(spec).__name__} are not supported")
        if getattr(group, "host_resident", False) or not getattr(group, "enable_kv_transfer", True):
            refuse("KV cache groups in host memory (HiSparse) are not supported")


def digest_bytes(vllm_config) -> int:
    name = getattr(vllm_config.cache_config, "prefix_caching_hash_algo", "sha256")
    if name not in DIGESTS:
        refuse(f"unknown prefix_caching_hash_algo {name!r}")
    return DIGESTS[name]


def cache_numbers(vllm_config, kv_cache_config) -> dict[str, Any]:
    """The engine's cache, as quire._connector.Planner reads it."""
    _, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    parallel = vllm_config.parallel_config
    spec = vllm_config.speculative_config
    made = {"num_blocks": kv_cache_config.num_blocks,
            "max_model_len": vllm_config.model_config.max_model_len,
            "hash_block_size": hash_block_size, "digest_bytes": digest_bytes(vllm_config),
            "profile": profile(), "dcp_world_size": parallel.decode_context_parallel_size,
            "pcp_world_size": getattr(parallel, "prefill_context_parallel_size", 1),
            "groups": [group_of(group) for group in kv_cache_config.kv_cache_groups]}
    tell_apart = getattr(part("config"), "tell_apart", None)
    if tell_apart is not None:
        tell_apart(made["groups"], [g.kv_cache_spec for g in kv_cache_config.kv_cache_groups])
    if spec is not None and (spec.use_eagle() if hasattr(spec, "use_eagle") else False):
        made["use_eagle"] = 1
    return made


def planner_tiers(options: Options) -> list[dict[str, Any]]:
    return [{"label": kind, "medium": MEDIUMS[kind], "admit": ADMITS[values["admit"]],
             "deadline_ns": values["timeout_ms"] * 1_000_000, "is_persistent": 1,
             "is_shared": int(kind != "file" or values["shared"])}
            for kind, values in options.tiers]


def planner_numbers(options: Options, vllm_config, kv_cache_config) -> dict[str, Any]:
    world_size = vllm_config.parallel_config.world_size
    return {"cache": cache_numbers(vllm_config, kv_cache_config),
            "num_slots": num_slots(options, kv_cache_config, world_size),
            "block_bytes": block_bytes(kv_cache_config), "num_ranks": world_size,
            "max_requests": options.host["max_requests"],
            "learns": LOADS[options.host["load"]], "tiers": planner_tiers(options),
            "holds_loads": SWITCHES["off"]}  # vLLM keeps these blocks until finished_recving
