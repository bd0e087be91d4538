"""Which versions of vLLM quire.vllm stands in for."""

SUPPORTED = "0.20."


def check() -> None:
    """Refuses a vLLM whose decisions are not known."""
    from vllm import __version__

    if not __version__.startswith(SUPPORTED):
        raise ImportError(f"quire.vllm makes the decisions of vLLM {SUPPORTED}x; "
                          f"this is vLLM {__version__}")
