"""Which files of vLLM are watched, and what Quire names of them.

Files that decide are watched as a whole. Of every other file that Quire's sources import, the
imported names are watched.
"""
import ast
import re
from pathlib import Path

# Patterns in the package vllm, and where Quire makes the same decisions.
DECIDES = {
    "v1/core/block_pool.py": "src/block",
    "v1/core/kv_cache_utils.py": "src/hash, src/block/queue.c, src/plan",
    "v1/core/kv_cache_manager.py": "src/cache",
    "v1/core/kv_cache_coordinator.py": "src/cache/lookup.c",
    "v1/core/single_type_kv_cache_manager.py": "src/group",
    "v1/core/encoder_cache_manager.py": "src/sched/encoder",
    "v1/core/*.py": "src/cache",
    "v1/core/sched/output.py": "python/quire/vllm, python/src/dropin/step.c",
    "v1/core/sched/utils.py": "src/sched/step/stop.c",
    "v1/core/sched/*.py": "src/sched",
    "v1/request.py": "src/sched/requests, python/quire/vllm/request.py",
    "v1/outputs.py": "python/src/dropin/update.c",
    "v1/engine/__init__.py": "python/src/dropin/update.c",
    "v1/engine/core.py": "python/quire/vllm/scheduler.py (what the engine asks)",
    "v1/kv_cache_interface.py": "src/group, src/plan",
    "v1/kv_cache_layout.py": "src/plan",
    "v1/kv_cache_spec_registry.py": "python/quire/vllm/layers.py",
    "v1/metrics/stats.py": "python/src/dropin/update.c",
    "v1/spec_decode/metrics.py": "python/quire/vllm/scheduler.py",
    "v1/structured_output/__init__.py": "python/quire/vllm/scheduler.py (grammars)",
    "v1/worker/block_table.py": "src/block/table.c",
    "v1/worker/gpu/block_table.py": "src/block/table.c",
    "v1/simple_kv_offload/*.py": "src/tier/offload",
    "v1/kv_offload/*.py": "src/tier/slots",
    "v1/kv_offload/cpu/*.py": "src/tier/slots",
    "v1/kv_offload/cpu/policies/*.py": "src/tier/slots",
    "distributed/kv_events.py": "src/events, python/quire/vllm/events.py",
    "distributed/kv_transfer/kv_connector/v1/base.py": "python/quire/vllm/connector.py",
    "distributed/kv_transfer/kv_connector/factory.py": "python/quire/vllm/connector.py",
    "distributed/ec_transfer/ec_connector/base.py": "python/quire/vllm/connector.py",
    "config/scheduler.py": "python/quire/vllm/config.py",
    "config/cache.py": "python/quire/vllm/config.py",
    "config/speculative.py": "python/quire/vllm/config.py",
    "config/kv_transfer.py": "python/quire/vllm/config.py",
    "config/kv_events.py": "python/quire/vllm/events.py",
    "config/ec_transfer.py": "python/quire/vllm/config.py",
    "config/vllm.py": "python/quire/vllm/config.py",
    "utils/hashing.py": "src/hash",
}
# Quire's sources that use vLLM.
USERS = ("python/quire/vllm/**/*.py", "python/src/dropin/*.c", "tests/parity/record/*.py",
         "tests/vllm/shim/**/*.py", "tests/vllm/shim/src/*.c", "python/tests/*.py")
C_STRING = re.compile(r'"([A-Za-z_][A-Za-z0-9_]*)"')
MAX_HOPS = 4  # files that pass an imported name on
MAX_MENTIONS = 3


def room_of(path):
    """Where Quire decides what this file decides; '' where it does not."""
    if path in DECIDES:
        return DECIDES[path]
    for pattern, room in DECIDES.items():
        if Path(path).match(pattern) and Path(path).parent == Path(pattern).parent:
            return room
    return ""


def deciding_files(package):
    """Paths in the package, in the order of the names."""
    found = set()
    for pattern in DECIDES:
        found.update(p.relative_to(package).as_posix() for p in Path(package).glob(pattern))
    return sorted(found)


# ---- what Quire names ----------------------------------------------------------


class Uses:
    """imports: module -> names; mentions: word -> places, 'file:line', at most MAX_MENTIONS."""

    def __init__(self, root):
        self.imports, self.mentions = {}, {}
        for pattern in USERS:
            for path in sorted(Path(root).glob(pattern)):
                place = path.relative_to(root).as_posix()
                text = path.read_text(encoding="utf-8")
                self.read_c(place, text) if path.suffix == ".c" else self.read_python(place, text)

    def mention(self, word, place, line):
        places = self.mentions.setdefault(word, [])
        if len(places) < MAX_MENTIONS and not any(p.startswith(f"{place}:") for p in places):
            places.append(f"{place}:{line}")

    def read_c(self, place, text):
        for number, line in enumerate(text.splitlines(), 1):
            for word in C_STRING.findall(line):
                self.mention(word, place, number)

    def read_python(self, place, text):
        for node in ast.walk(ast.parse(text)):
            line = getattr(node, "lineno", 0)
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                names = self.imports.setdefault(node.module, set())
                for alias in node.names:
                    names.add(alias.name)
                    self.mention(alias.name, place, line)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    if alias.name.split(".")[0] == "vllm":
                        self.imports.setdefault(alias.name, set())
            elif isinstance(node, ast.Attribute):
                self.mention(node.attr, place, line)
            elif isinstance(node, ast.keyword) and node.arg:
                self.mention(node.arg, place, node.value.lineno)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if node.value.isidentifier():
                    self.mention(node.value, place, line)

    def of(self, name):
        """Places that name an item by the last part of its name; dunders are named everywhere."""
        last = name.split(".")[-1].split("#")[0]
        return [] if last.startswith("__") else self.mentions.get(last, [])


# ---- where an imported name is defined -----------------------------------------


def file_of(package, module):
    """The path of a module in the package, or None."""
    base = "/".join(module.split(".")[1:])
    for path in (f"{base}.py", f"{base}/__init__.py" if base else "__init__.py"):
        if (Path(package) / path).is_file():
            return path
    return None


def defined_names(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def find_definition(package, module, name, hops=MAX_HOPS):
    """(path, name in that file, or None for the whole file) of `from module import name`; None where
    it cannot be found."""
    path = file_of(package, f"{module}.{name}")
    if path is not None:
        return path, None
    path = file_of(package, module)
    if path is None or hops == 0:
        return None
    try:
        tree = ast.parse((Path(package) / path).read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return None
    if name in defined_names(tree):
        return path, name
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    source = absolute(module, path, node)
                    return find_definition(package, source, alias.name, hops - 1)
    return None


def absolute(module, path, node):
    """The module that an import statement of `module` names."""
    if node.level == 0:
        return node.module
    parts = module.split(".")
    keep = len(parts) - node.level + path.endswith("__init__.py")
    return ".".join(parts[:keep] + ([node.module] if node.module else []))


def watched(package, uses):
    """({path: names or None for all}, imports that are not there)."""
    files = dict.fromkeys(deciding_files(package))
    missing = []
    for module, names in sorted(uses.imports.items()):
        for name in sorted(names):
            found = find_definition(package, module, name)
            if found is None:
                missing.append(f"{module}.{name}")
                continue
            path, defined = found
            if files.get(path, "") is None:
                continue
            # Of a module that is imported as a whole, what Quire mentions.
            wanted = set(uses.mentions) if defined is None else {defined}
            files.setdefault(path, set()).update(wanted)
        if not names and file_of(package, module) is None:
            missing.append(module)
    return files, missing
