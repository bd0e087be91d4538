"""KV events of vLLM 0.32: extra keys without their tags, and which kind of layers a group has."""
from vllm.distributed.kv_events import BlockStored
from vllm.v1.core.kv_cache_utils import to_event_extra_keys
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind, get_kv_cache_spec_sliding_window

from ..events import stored_event


def maker_of(kv_cache_config):
    """A function that makes a BlockStored for this cache."""
    specs = [group.kv_cache_spec for group in kv_cache_config.kv_cache_groups]
    kinds = [(get_kv_cache_spec_kind(spec).value, get_kv_cache_spec_sliding_window(spec))
             for spec in specs]

    def make(request, hashes, group: int, first: int, parent, block_size: int) -> BlockStored:
        event = stored_event(request, hashes, group, first, parent, block_size)
        event.extra_keys = to_event_extra_keys(event.extra_keys)
        event.kv_cache_spec_kind, event.kv_cache_spec_sliding_window = kinds[group]
        event.session_id = request.session_id
        return event

    return make
