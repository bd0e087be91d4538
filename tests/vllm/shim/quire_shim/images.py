"""scheduler.encoder_cache_manager: what the core's encoder cache holds."""
from _quire_shim import images, take_image


class Images:
    """A view with the attributes of vLLM's EncoderCacheManager."""

    def __init__(self, scheduler):
        self._scheduler = scheduler

    def _part(self, index: int):
        return images(self._scheduler._core)[index]

    @property
    def cache_size(self) -> int:
        return self._scheduler._numbers.get("encoder_cache_size", 0)

    @property
    def cached(self) -> dict[str, set[str]]:
        return self._part(0)

    @cached.setter
    def cached(self, items: dict) -> None:
        if items:
            raise AttributeError("quire.vllm: cached can be emptied, not written; use allocate")
        self.reset()

    @property
    def freeable(self) -> dict[str, int]:
        return self._part(1)

    @property
    def freed(self) -> list[str]:
        return self._part(2)

    @property
    def num_free_slots(self) -> int:
        return self._part(3)

    @property
    def num_freeable_slots(self) -> int:
        return self._part(4)

    def allocate(self, request, input_id: int) -> None:
        take_image(self._scheduler._core, request._quire[1], input_id)

    def reset(self) -> None:
        self._scheduler._core.reset_encoder_cache()
