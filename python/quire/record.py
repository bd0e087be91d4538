"""A recorder: the requests of an engine and the decisions of its scheduler, in files that
`quire replay` and `quire verify` read. docs/recording.md describes the lines.

    with Recorder("rec.jsonl.zst", engine="mine", config={"num_blocks": 1000, ...}) as recorder:
        req = recorder.add(time.time(), prompt=100, max_tokens=20, hashes=[...])
        step = recorder.schedule([req], [100], new=[(req, 0)], running=1, free=993)
        recorder.update(step)
        recorder.end(req, "stop", 1)
"""
import json
import os
from collections.abc import Mapping
from typing import Any, Self

from ._record import Recorder as _Recorder


class Recorder(_Recorder):
    """Call its methods in the order in which the engine calls its scheduler, on one thread at a time.
    A line that finds the buffer full is lost and counted (`stats`), and is no exception."""

    def __new__(cls, path: str | os.PathLike[str], *, config: Mapping[str, Any] | None = None,
                **settings: Any) -> Self:
        return super().__new__(cls, path, config=json.dumps(dict(config or {})), **settings)

    def __init__(self, path: str | os.PathLike[str], *, config: Mapping[str, Any] | None = None,
                 **settings: Any) -> None:
        super().__init__()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()
