"""Memory does not grow while requests go through the shim's KVCacheManager."""
import random

import vllm_growth
import vllm_kit


class Manager:
    """Requests through the KVCacheManager, without a scheduler."""

    def __init__(self):
        import torch
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core import kv_cache_utils
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec

        from quire_shim.kv_cache_manager import KVCacheManager

        kv_cache_utils.init_none_hash(get_hash_fn_by_name("sha256"))
        group = KVCacheGroupSpec(["full"], FullAttentionSpec(
            block_size=vllm_kit.BLOCK_SIZE, num_kv_heads=1, head_size=2, dtype=torch.bfloat16))
        self.manager = KVCacheManager(
            KVCacheConfig(200, [], [group]), max_model_len=96, hash_block_size=vllm_kit.BLOCK_SIZE,
            enable_caching=True, log_stats=True)
        self.hasher, self.rng, self.number = vllm_kit.hasher(), random.Random(1), 0

    def serve(self, count: int) -> None:
        for _ in range(count):
            self.number += 1
            prompt = [self.rng.randrange(6), *range(self.rng.randint(4, 24))]
            request = vllm_kit.request(f"r{self.number}", prompt, self.hasher)
            found, num_found = self.manager.get_computed_blocks(request)
            assert self.manager.allocate_slots(
                request, len(prompt) - num_found, num_found, found) is not None
            self.manager.get_block_ids(request.request_id)
            self.manager.free(request)


def test_no_growth(pytestconfig):
    vllm_kit.need_vllm(pytestconfig)
    for what, growth, bound in vllm_growth.grown(Manager(), 600):
        assert growth <= bound, what
