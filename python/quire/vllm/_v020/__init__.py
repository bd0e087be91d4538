"""What vLLM 0.20.x has of its own."""

PROFILE = 1  # QUIRE_PROFILE_VLLM_0_20
