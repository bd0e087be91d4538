"""Quire: memory manager and scheduler of an LLM inference engine, with the decisions of vLLM 0.20.0.

    Hasher, Chain     from tokens to the names of KV blocks
    Pool              blocks with a prefix cache
    Cache             which blocks each request has
    Plan, plan        from a model and a GPU's memory to groups and blocks
    Scheduler         who computes what in the next step: Step, Outputs
    cost_...          bytes, blocks and seconds, with a pencil
    replay            a trace through the real scheduler and cache
    Recorder          the requests and decisions of an engine, in files

Each status of the library is an exception of the same name (NO_SPACE, E_DOUBLE_FREE, ...), all of
them kinds of Error. A call that raises one has changed nothing.

Threads take turns: a call holds the GIL from beginning to end, so a handle may be shared, and no
call is ever seen half done.
"""

from . import _core
from ._core import *  # noqa: F403
from ._core import __version__
from .model import model_layers, plan
from .replay import Replay, find_program, replay

try:
    from .record import Recorder
except ImportError:  # built without libzstd
    pass

__all__ = [name for name in vars(_core) if not name.startswith("_")]
__all__ += ["Replay", "__version__", "find_program", "model_layers", "plan", "replay"]
if "Recorder" in globals():
    __all__ += ["Recorder"]
