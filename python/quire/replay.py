"""quire.replay: a trace through the real scheduler and cache, by the program `quire`.

The program runs as a process of its own. Its readers need jansson, zstd and zlib, its options are
the process's, and a replay may take minutes: in a process of its own the extension stays free of
all three, other threads go on, and Ctrl-C ends it.
"""

import csv
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class Replay(Mapping):
    """What came of a replay: the report as a mapping, and one row for each request.

    `requests` is a list of dicts with numbers where the program wrote numbers; `to_frame()` gives
    the same as a pandas DataFrame, which also takes `requests` itself.
    """

    def __init__(self, report: dict[str, Any], requests: list[dict[str, Any]]):
        self.report = report
        self.requests = requests

    def __getitem__(self, key: str) -> Any:
        return self.report[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.report)

    def __len__(self) -> int:
        return len(self.report)

    def __repr__(self) -> str:
        return f"<Replay of {len(self.requests)} requests>"

    def to_frame(self) -> Any:
        """The requests as a pandas DataFrame; ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame(self.requests)


def find_program(program: str | os.PathLike | None = None) -> str:
    """The program `quire`: as given, by QUIRE_PROGRAM, that of this package, or on the PATH."""
    if program is not None:
        return os.fspath(program)
    if os.environ.get("QUIRE_PROGRAM"):
        return os.environ["QUIRE_PROGRAM"]
    own = Path(__file__).parent / "bin" / "quire"
    found = str(own) if own.exists() else shutil.which("quire")
    if found is None:
        raise FileNotFoundError("the program quire is not part of this package (jansson, zstd or "
                                "zlib was missing when it was built), nor on the PATH")
    return found


def _options(settings: Mapping[str, Any]) -> list[str]:
    """Keywords as the program's options: max_num_seqs=64 is --max-num-seqs 64."""
    options = []
    for name, value in settings.items():
        name = name.replace("_", "-")
        if value is True or value is False:
            options.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            options += [f"--{name}", os.fspath(value) if hasattr(value, "__fspath__") else str(value)]
    return options


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text if text else None


def _read_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(newline="") as lines:
        return [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(lines)]


def replay(trace: str | os.PathLike, *, program: str | os.PathLike | None = None,
           **settings: Any) -> Replay:
    """Runs a trace and gives the report.

    settings are the options of `quire replay` with underscores: model="llama-3.1-8b", gpu="H200",
    num_gpu_blocks=4000, enable_prefix_caching=False. html="out.html" writes the page too. A trace
    or an option that the program refuses is a ValueError with its sentence.
    """
    with tempfile.TemporaryDirectory(prefix="quire-") as folder:
        report = Path(folder) / "report.json"
        rows = Path(folder) / "requests.csv"
        command = [find_program(program), "replay", "--quiet", "--json", str(report),
                   "--csv", str(rows), *_options(settings), "--", os.fspath(trace)]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise ValueError(done.stderr.strip() or f"quire replay ended with {done.returncode}")
        return Replay(json.loads(report.read_text()), _read_rows(rows))
