"""The release that is looked at: its interpreter, its package, and which release of Quire's is near."""
import ast
import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

LOOK = """
import importlib.metadata, importlib.util, json, sys
spec = importlib.util.find_spec("vllm")
print(json.dumps({"package": spec and list(spec.submodule_search_locations)[0],
                  "version": spec and importlib.metadata.version("vllm"),
                  "python": ".".join(map(str, sys.version_info[:3]))}))
"""


class Missing(Exception):
    """What is needed and not there, as a sentence."""


@dataclass
class Reference:
    python: Path
    platform: Path | None
    package: Path
    version: str
    python_version: str

    @property
    def environment(self):
        """For recorders and lock step."""
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"}
        if self.platform is not None:
            env["QUIRE_VLLM_PLATFORM"] = str(self.platform)
        return env


def find_python(folder, python):
    if python is not None:
        return Path(python).absolute()
    for place in ("venv/bin/python", "bin/python", ".venv/bin/python"):
        if (folder / place).exists():
            return (folder / place).absolute()
    raise Missing(f"{folder} has no interpreter (expected {folder}/venv/bin/python); "
                  "name it with --python")


def find_platform(folder, platform):
    """--platform, $QUIRE_VLLM_PLATFORM, or host_platform.py of the folder; None: vLLM finds a GPU."""
    given = platform or os.environ.get("QUIRE_VLLM_PLATFORM")
    if given is None:
        beside = folder / "host_platform.py" if folder is not None else None
        return beside.absolute() if beside is not None and beside.is_file() else None
    path = Path(given).absolute()
    path = path / "host_platform.py" if path.is_dir() else path
    if not path.is_file():
        raise Missing(f"--platform {given}: file not found")
    return path


def find(folder, python, platform):
    """The reference; vLLM itself is not imported."""
    folder = Path(folder) if folder is not None else None
    if folder is not None and not folder.is_dir():
        raise Missing(f"{folder} is not a folder")
    python = find_python(folder, python)
    try:
        done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True)
    except OSError as error:
        raise Missing(f"{python}: {error.strerror}") from error
    if done.returncode != 0:
        raise Missing(f"{python} does not run: {(done.stderr.strip() or 'no message')[-300:]}")
    found = json.loads(done.stdout)
    if found["package"] is None:
        raise Missing(f"{python} has no vLLM")
    return Reference(python, find_platform(folder, platform), Path(found["package"]),
                     found["version"], found["python"])


def known_releases(root):
    """Releases that the recorders know, such as 0.20 and 0.32, oldest first."""
    source = (root / "tests/parity/record/release.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "KNOWN":
            return sorted(ast.literal_eval(node.value), key=number_of)
    raise Missing("tests/parity/record/release.py does not name the known releases")


def number_of(release):
    """0.31.0 -> (0, 31, 0), whatever follows the numbers."""
    return tuple(int(part) for part in re.findall(r"\d+", release.split("+")[0])[:3])


def nearest(version, known):
    """The known release with the fewest releases between; of two, the newer one. known: oldest
    first."""
    wanted = number_of(version)[:2]
    if wanted <= number_of(known[0])[:2]:
        return known[0]
    if wanted >= number_of(known[-1])[:2]:
        return known[-1]

    def distance(release):
        major, minor = number_of(release)[:2]
        return abs(major - wanted[0]) * 1000 + abs(minor - wanted[1]), -minor

    return min(known, key=distance)
