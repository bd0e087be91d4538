"""A C file as the style rules see it.

    text    as it is on disk
    bare    without comments, strings kept             for #include lines
    code    without comments and what strings hold     for calls and names

Blanking keeps every line break and every column, so a position in `code` is a position in the
file. Functions are found by counting braces; at #else the count starts again from where its #if
began, so that both branches may open the same brace.
"""

import bisect
import re
from dataclasses import dataclass
from functools import cached_property

_COMMENT_OR_STRING = re.compile(
    r"""//(?:\\\n|[^\n])*              # to the end of the line
      | /\*.*?(?:\*/|\Z)               # to the end of the comment
      | "(?:\\.|[^"\\\n])*"            # a string
      | '(?:\\.|[^'\\\n])*'            # a character
    """,
    re.S | re.X,
)
_SCAN = re.compile(r"^[ \t]*#[ \t]*(\w*)(?:\\\n|[^\n])*|[{};]", re.M)
_LAST_NAME = re.compile(r"([A-Za-z_]\w*)\s*$")
_EXTERN_C = re.compile(r'extern\s*"\s*"\s*$')


@dataclass(frozen=True)
class Function:
    """A function with a body; lines count from 1."""

    name: str
    signature: str
    first_line: int
    last_line: int

    @property
    def is_static(self):
        return re.search(r"\bstatic\b", self.signature) is not None


def _blank(piece):
    return re.sub(r"[^\n]", " ", piece)


def strip(text, keep_strings=False):
    """The text with comments blanked, and strings too unless they are to be kept."""

    def replace(match):
        piece = match[0]
        if piece[0] == "/":
            return _blank(piece)
        return piece if keep_strings else piece[0] + _blank(piece[1:-1]) + piece[-1]

    return _COMMENT_OR_STRING.sub(replace, text)


def _opening_paren(text):
    """Where the parenthesis opens that the text's last character closes."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == ")") - (text[i] == "(")
        if depth == 0:
            return i
    return -1


def function_name(signature):
    """The name in `static int name(int a)`, None where the text before a brace is no signature."""
    rest = signature.rstrip()
    while rest.endswith(")"):
        name = _LAST_NAME.search(rest[: max(_opening_paren(rest), 0)])
        if name is None:
            return None
        if name[1] not in ("__attribute__", "_Alignas"):
            return name[1]
        rest = rest[: name.start()].rstrip()
    return None


class Source:
    """One file of the repository; the path is relative to its root, with slashes."""

    def __init__(self, path, text):
        self.path = path
        self.text = text

    @cached_property
    def lines(self):
        return self.text.split("\n")[:-1] if self.text.endswith("\n") else self.text.split("\n")

    @cached_property
    def bare(self):
        return strip(self.text, keep_strings=True)

    @cached_property
    def code(self):
        return strip(self.text)

    @cached_property
    def undirected(self):
        """The code without preprocessor lines."""
        return _SCAN.sub(lambda m: m[0] if m[0] in "{};" else _blank(m[0]), self.code)

    @cached_property
    def _line_starts(self):
        return [0] + [m.end() for m in re.finditer("\n", self.text)]

    def line_of(self, position):
        return bisect.bisect_right(self._line_starts, position)

    @property
    def room(self):
        """The folder under src/, "" elsewhere."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "src" and len(parts) > 2 else ""

    @cached_property
    def outside(self):
        """The code at file level alone: directives and what stands between braces are blank."""
        out, depth, last, branches = [], 0, 0, []
        for mark in _SCAN.finditer(self.code):
            piece, seen = self.code[last : mark.start()], " "
            out.append(piece if depth == 0 else _blank(piece))
            last = mark.end()
            if mark[0] == "{" and _EXTERN_C.search(piece):
                seen = ";"  # what is inside is still at file level
            elif mark[0] == "{":
                seen = "{" if depth == 0 else " "
                depth += 1
            elif mark[0] == "}":
                seen = "}" if depth == 1 else " "
                depth = max(depth - 1, 0)
            elif mark[0] == ";":
                seen = ";" if depth == 0 else " "
            else:
                seen = _blank(mark[0])
                depth = _enter_directive(mark[1], depth, branches)
            out.append(seen)
        out.append(self.code[last:])
        return "".join(out)

    @cached_property
    def functions(self):
        found, start, head = [], 0, None
        for mark in re.finditer(r"[{};]", self.outside):
            if mark[0] == "{":
                head = (self.outside[start : mark.start()], start)
            elif mark[0] == "}" and head:
                found.extend(self._as_function(*head, mark.start()))
                head = None
            start = mark.end()
        return found

    def _as_function(self, signature, start, end):
        name = function_name(signature)
        if name is None:
            return []
        first = start + len(signature) - len(signature.lstrip())
        return [Function(name, signature.strip(), self.line_of(first), self.line_of(end))]


def _enter_directive(word, depth, branches):
    """The brace depth after a preprocessor line."""
    if word in ("if", "ifdef", "ifndef"):
        branches.append(depth)
    elif word in ("else", "elif") and branches:
        return branches[-1]
    elif word == "endif" and branches:
        branches.pop()
    return depth
