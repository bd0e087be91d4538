"""Which releases of vLLM quire.vllm stands in for.

    0.20.x   _v020      what differs from one release to the other is in its folder;
    0.32.x   _v032      what is common is above
"""
from importlib import import_module
from types import ModuleType

RELEASES = {"0.20.": "_v020", "0.32.": "_v032"}


def check() -> str:
    """The folder of the release that is installed; refuses one whose decisions are not known."""
    from vllm import __version__

    for begin, folder in RELEASES.items():
        if __version__.startswith(begin):
            return folder
    known = " and ".join(f"{begin}x" for begin in RELEASES)
    raise ImportError(f"quire.vllm makes the decisions of vLLM {known}; "
                      f"this is vLLM {__version__}")


def part(name: str) -> ModuleType:
    """A module of the release's folder."""
    return import_module(f".{check()}.{name}", __package__)


def profile() -> int:
    """The number of the release's decisions, a quire_profile of quire/config.h."""
    return import_module(f".{check()}", __package__).PROFILE
