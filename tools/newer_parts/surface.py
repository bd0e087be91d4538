"""The surface of a release of vLLM: what its source files define, read without running them.

    [v1/core/block_pool.py]
    const   MEDIUM_GPU         'GPU'
    class   BlockPool          (object)
    field   BlockStored.lora_id        int | None = None
    attr    BlockPool.num_gpu_blocks
    def     BlockPool.free_blocks      (self, ordered_blocks) -> None        3f0a9c2b71de

A field is declared in the body of its class, an attr is set by the constructor. A definition has
names, parameters, defaults and types, and a hash of its body. Comments, docstrings, annotations and
log messages do not count in the hash: what is left is what the function does.
"""
import ast
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

MAX_VALUE = 80  # characters of a value that are kept; longer ones are told by their hash
CONSTRUCTORS = ("__init__", "__post_init__")
NOT_CODE = {"annotation", "returns", "type_comment", "ctx", "kind", "lineno", "col_offset"}
LOGGERS = ("logger", "logging")


@dataclass(frozen=True)
class Item:
    """One thing that a file defines. text: what a caller sees; body: hash of what it does, or ''."""

    kind: str
    name: str
    text: str
    body: str = ""


@dataclass
class Surface:
    """release: vLLM's version; files: path in the package -> {name: Item}; missing: names that Quire
    imports and that the release does not have."""

    release: str
    files: dict
    missing: list = field(default_factory=list)


def is_docstring(node):
    return (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str))


def is_log(node):
    """logger.debug(...) as a statement."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    function = node.value.func
    return (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
            and function.value.id in LOGGERS)


def words(node):
    """A syntax tree as words: the same for every version of Python that can read it, since fields
    without a value are passed over."""
    if isinstance(node, ast.AST):
        yield type(node).__name__
        for field in sorted(node._fields):
            value = getattr(node, field, None)
            if field not in NOT_CODE and value is not None and value != []:
                yield f"{field}="
                yield from words(value)
        yield ")"
    elif isinstance(node, list):
        for part in node:
            if not is_docstring(part) and not is_log(part):
                yield from words(part)
        yield "]"
    else:
        yield repr(node)


def digest(nodes):
    return hashlib.sha256("\0".join(words(nodes)).encode()).hexdigest()[:12]


def shown(node):
    """An expression as text, or as its hash if it is long."""
    if node is None:
        return ""
    text = ast.unparse(node)
    return text if len(text) <= MAX_VALUE else f"#{digest(node)}"


def parameters(args):
    """(a, b: int = 3, *, c) with each default and type at most MAX_VALUE long."""
    def one(arg, default):
        text = arg.arg + (f": {shown(arg.annotation)}" if arg.annotation else "")
        return text + (f" = {shown(default)}" if default is not None else "")

    plain = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(plain) - len(args.defaults)) + args.defaults
    parts = [one(arg, default) for arg, default in zip(plain, defaults)]
    if args.posonlyargs:
        parts.insert(len(args.posonlyargs), "/")
    if args.vararg:
        parts.append("*" + one(args.vararg, None))
    elif args.kwonlyargs:
        parts.append("*")
    parts += [one(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults)]
    if args.kwarg:
        parts.append("**" + one(args.kwarg, None))
    return f"({', '.join(parts)})"


class Reader:
    """Collects the items of one file."""

    def __init__(self):
        self.items = {}

    def add(self, kind, name, text, body=""):
        if kind == "const" and (name.startswith("__") or name in LOGGERS):  # __version__, __all__
            return
        number, key = 1, name
        while key in self.items:  # a property and its setter, or a branch for another platform
            number += 1
            key = f"{name}#{number}"
        self.items[key] = Item(kind, key, " ".join(text.split()), body)

    def block(self, body, owner=""):
        """The statements of a module or of a class."""
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.function(node, owner)
            elif isinstance(node, ast.ClassDef):
                self.type(node, owner)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                value = f" = {shown(node.value)}" if node.value is not None else ""
                self.add("field" if owner else "const", owner + node.target.id,
                         shown(node.annotation) + value)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        self.add("field" if owner else "const", owner + target.id,
                                 f"= {shown(node.value)}")
            elif isinstance(node, ast.If):
                self.block(node.body + node.orelse, owner)
            elif isinstance(node, ast.Try):
                handled = [each for handler in node.handlers for each in handler.body]
                self.block(node.body + handled + node.orelse + node.finalbody, owner)

    def function(self, node, owner):
        marks = " ".join(f"@{shown(mark)}" for mark in node.decorator_list)
        returns = f" -> {shown(node.returns)}" if node.returns else ""
        kind = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
        self.add(kind, owner + node.name, f"{marks} {parameters(node.args)}{returns}",
                 digest(node.body))
        if owner and node.name in CONSTRUCTORS:
            self.attributes(node, owner)

    def attributes(self, constructor, owner):
        for node in ast.walk(constructor):
            targets = node.targets if isinstance(node, ast.Assign) else (
                [node.target] if isinstance(node, ast.AnnAssign) else [])
            for target in targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if (isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name)
                            and each.value.id == "self" and owner + each.attr not in self.items):
                        self.add("attr", owner + each.attr, "")

    def type(self, node, owner):
        marks = " ".join(f"@{shown(mark)}" for mark in node.decorator_list)
        bases = ", ".join([*map(shown, node.bases),
                           *(f"{k.arg}={shown(k.value)}" for k in node.keywords)])
        self.add("class", owner + node.name, f"{marks} ({bases})")
        self.block(node.body, f"{owner}{node.name}.")


def describe_file(path):
    """{name: Item} of a source file."""
    reader = Reader()
    reader.block(ast.parse(Path(path).read_text(encoding="utf-8")).body)
    return reader.items


def top_name(name):
    """The class or function of the module that an item belongs to."""
    return name.split(".")[0].split("#")[0]


def describe(package, release, watched):
    """The surface of an installed package. watched: path -> names, or None for all of the file.

    A file that cannot be parsed is told as an item of its own."""
    files = {}
    for path, names in sorted(watched.items()):
        source = Path(package) / path
        if not source.is_file():
            continue
        try:
            items = describe_file(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            items = {"(unreadable)": Item("const", "(unreadable)", str(error))}
        files[path] = {name: item for name, item in items.items()
                       if names is None or top_name(name) in names}
    return Surface(release, files)


# ---- the file ----------------------------------------------------------------

HEAD = """\
# What vLLM {release} defines in the files that tools/newer watches: names, parameters, defaults,
# types, and a hash of each body. Made by tools/newer --write-surface; do not edit.
"""


def write(surface, path):
    lines = [f"vllm {surface.release}", *(f"missing {name}" for name in surface.missing)]
    for name, items in surface.files.items():
        lines.append(f"[{name}]")
        lines += ["\t".join((i.kind, i.name, i.text, i.body)).rstrip("\t") for i in items.values()]
    Path(path).write_text(HEAD.format(release=surface.release) + "\n".join(lines) + "\n",
                          encoding="utf-8")


def read(path):
    surface, items = Surface("", {}), {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if line.startswith("vllm "):
            surface.release = line.split()[1]
        elif line.startswith("missing "):
            surface.missing.append(line.split()[1])
        elif line.startswith("["):
            items = surface.files[line[1:-1]] = {}
        else:
            parts = line.split("\t")
            if len(parts) < 2:
                raise ValueError(f"{path}:{number}: invalid line")
            item = Item(*(parts + ["", ""])[:4])
            items[item.name] = item
    if not surface.release:
        raise ValueError(f"{path} does not name the release that it describes")
    return surface
