"""Where a C file can be changed by one operator, constant, condition or statement.

Only the bodies of functions are looked at. Left out are lines whose change is no change of
behaviour: assertions, preprocessor lines, declarations of types. A prefetch is no behaviour either;
the runner compiles prefetches away, and finds such a mutant by its unchanged object file.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "style"))
from csource import Source  # noqa: E402

_OPERATORS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&",
    "+": "-", "-": "+", "/": "*", "%": "/", "<<": ">>", ">>": "<<", "|": "&", "^": "|",
    "+=": "-=", "-=": "+=", "|=": "&=", "++": "--", "--": "++",
}
_KINDS = {"<": "relation", "<=": "relation", ">": "relation", ">=": "relation",
          "==": "relation", "!=": "relation", "&&": "logic", "||": "logic"}
_TOKEN = re.compile(
    r"""(?P<number>(?<![\w.])(?:0[xX][0-9a-fA-F]+|\d+)[uUlL]*(?![\w.]))
      | (?P<operator><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||\+=|-=|\|=|&=|\*=|/=|[-+<>/%|^])
    """, re.X)
_STATEMENT = re.compile(r"^(?P<indent>[ \t]+)(?P<text>[A-Za-z_*(][^;{}\n]*;)[ \t]*$", re.M)
_NO_STATEMENT = re.compile(
    r"^(return|break|continue|goto|else|do|case|default|if|for|while|switch|static|const|struct|"
    r"union|enum|extern|typedef|unsigned|signed|int|char|bool|float|double|void|size_t|ssize_t|"
    r"u?int\d+_t|uintptr_t|qr_\w+ \**\w+( =|;|,|\[)|quire_\w+ \**\w+( =|;|,|\[)|\(void\)|"
    r"[A-Za-z_]\w* \*+\w+( =|;|,|\[)|[A-Za-z_]\w* [A-Za-z_]\w*( =|;|,|\[))")
_CONDITION = re.compile(r"\bif \(")
_ASSERTION = re.compile(r"\b(qr_assert\w*|QR_ASSERT\w*|_Static_assert|assert)\s*\(")


@dataclass(frozen=True)
class Point:
    """One change of one file: the text from start to end becomes `new`."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str
    function: str

    def apply(self, text):
        assert text[self.start:self.end] == self.old
        return text[: self.start] + self.new + text[self.end:]

    def __str__(self):
        old = " ".join(self.old.split())
        new = " ".join(self.new.split()) or "(nothing)"
        return f"{self.path}:{self.line} {self.function}: {self.kind}: {old} -> {new}"


def closing(code, opening):
    """The index of the parenthesis that closes the one at `opening`."""
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    return len(code) - 1


def _skipped(code):
    """Ranges that no point may touch: assertions and preprocessor lines."""
    ranges = [(m.start(), closing(code, m.end() - 1)) for m in _ASSERTION.finditer(code)]
    return ranges + [m.span() for m in re.finditer(r"^[ \t]*#(?:\\\n|[^\n])*", code, re.M)]


def _is_binary(code, start):
    """Whether an operator has an operand before it: `a - b`, not `-b`."""
    before = code[:start].rstrip()
    return before != "" and (before[-1].isalnum() or before[-1] in "_)]") and \
        not re.search(r"\b(return|case)$", before)


def _number(text):
    """The literal's neighbour: 0 becomes 1, 1 becomes 0, others one more."""
    digits = text.rstrip("uUlL")
    suffix = text[len(digits):]
    value = int(digits, 8 if re.match(r"0\d", digits) else 0)
    return ("0" if value == 1 else str(value + 1)) + suffix


def _token_points(code, first, last):
    for m in _TOKEN.finditer(code, first, last):
        if m["number"]:
            yield "constant", m.start(), m.end(), _number(m["number"])
            continue
        operator = m["operator"]
        if operator not in _OPERATORS:
            continue
        if operator in "+-" and not _is_binary(code, m.start()):
            continue
        if operator in "<>" and re.match(r"#\s*include", code[code.rfind("\n", 0, m.start()) + 1:]):
            continue
        yield _KINDS.get(operator, "arithmetic"), m.start(), m.end(), _OPERATORS[operator]


def _body_points(code, first, last):
    yield from _token_points(code, first, last)
    for m in _CONDITION.finditer(code, first, last):
        end = closing(code, m.end() - 1)
        yield "condition", m.end(), end, f"!({code[m.end():end]})"
    for m in _STATEMENT.finditer(code, first, last):
        if not _NO_STATEMENT.match(m["text"]) and re.search(r"[=(]|\+\+|--", m["text"]):
            yield "statement", m.start("text"), m.end("text"), ";"


def points_of(path, text):
    """All points of a file, in the order of their places."""
    source = Source(path, text)
    code = source.code
    skipped = _skipped(code)
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = []
    for f in source.functions:
        first = code.index("{", starts[f.first_line - 1])
        last = starts[f.last_line]
        for kind, start, end, new in _body_points(code, first, last):
            if any(a <= start <= b for a, b in skipped):
                continue
            if kind == "condition":
                new = f"!({text[start:end]})"
            line = text.count("\n", 0, start) + 1
            found.append(Point(path, line, kind, start, end, text[start:end], new, f.name))
    return sorted(found, key=lambda p: (p.start, p.end))
