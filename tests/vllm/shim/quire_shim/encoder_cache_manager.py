"""vLLM's managers of encoder outputs, in C; see tests/vllm/shim/src/encoder.c."""
from _quire_shim import EncoderCache

__all__ = ["EncoderCacheManager", "EncoderDecoderCacheManager"]


class EncoderCacheManager(EncoderCache):
    """Outputs of the encoder, shared by all requests that name the same input."""

    def __init__(self, cache_size: int):
        super().__init__(cache_size)


class EncoderDecoderCacheManager(EncoderCacheManager):
    """For encoder-decoder models: nothing is shared, and an output is gone after its step."""

    def __init__(self, cache_size: int):
        EncoderCache.__init__(self, cache_size, is_encoder_decoder=True)
