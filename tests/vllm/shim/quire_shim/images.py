"""scheduler.encoder_cache_manager: what the core's encoder cache holds."""
from contextlib import contextmanager

from _quire_shim import (find_image, free_images, image_fits, image_inputs, images, set_image_room,
                         take_image)


class Images:
    """A view with the attributes and methods of vLLM's EncoderCacheManager. A request that is given to it and
    was never added becomes the scheduler's, in none of its queues."""

    def __init__(self, scheduler):
        self._scheduler = scheduler

    def _part(self, index: int):
        return images(self._scheduler._core)[index]

    def _of(self, request) -> tuple:
        return self._scheduler._core, self._scheduler._number_of_guest(request)

    @property
    def cache_size(self) -> int:
        return self._scheduler._numbers.get("encoder_cache_size", 0)

    @cache_size.setter
    def cache_size(self, size: int) -> None:
        self._scheduler._change("encoder_cache_manager", encoder_cache_size=size)

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

    def get_freed_mm_hashes(self) -> list[str]:
        return self.freed

    @property
    def num_free_slots(self) -> int:
        return self._part(3)

    @num_free_slots.setter
    def num_free_slots(self, room: int) -> None:
        set_image_room(self._scheduler._core, room)

    @property
    def num_freeable_slots(self) -> int:
        return self._part(4)

    @num_freeable_slots.setter
    def num_freeable_slots(self, room: int) -> None:
        if room != self.num_freeable_slots:
            raise AttributeError("quire.vllm: num_freeable_slots follows from num_free_slots")

    @property
    def request_cached_ids(self) -> dict[str, set[int]]:
        return {name: held for name, request in self._scheduler.requests.items()
                if (held := self.get_cached_input_ids(request))}

    def get_cached_input_ids(self, request) -> set[int]:
        return image_inputs(*self._of(request)) if request.mm_features else set()

    def allocate(self, request, input_id: int) -> None:
        take_image(*self._of(request), input_id)

    def check_and_update_cache(self, request, input_id: int) -> bool:
        return find_image(*self._of(request), input_id)

    def can_allocate(self, request, input_id: int, encoder_compute_budget: int,
                     num_embeds_to_schedule: int) -> bool:
        return image_fits(*self._of(request), input_id, encoder_compute_budget,
                          num_embeds_to_schedule)

    @contextmanager
    def allocating(self):
        """For a step. Where a test put a function in the place of can_allocate, nothing is encoded."""
        room = self.num_free_slots
        if "can_allocate" in vars(self):
            self.num_free_slots = 0
        try:
            yield
        finally:
            if "can_allocate" in vars(self):
                self.num_free_slots = room

    def free(self, request) -> None:
        free_images(*self._of(request), False)

    def reset(self) -> None:
        self._scheduler._core.reset_encoder_cache()
