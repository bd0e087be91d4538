"""What vLLM 0.32.x has of its own."""

PROFILE = 2  # QUIRE_PROFILE_VLLM_0_32
