"""Plain words: which words include/, messages and pages do not use, and what to say instead.

A reader must understand a sentence at the first reading: the noun instead of a pronoun, the field's
words (invalid, not found, timeout, evict, corrupt, retry, recreate, infinite) instead of a picture.
WORDS has (pattern, what to say). Any blanks may stand between the words of a pattern, so that a
phrase is found across the lines of a comment.
"""

import bisect
import re

_BE = r"(?:is|are|was|were)"
WORDS = (
    (r"somebody|someone|nobody|anybody|anyone|everybody|everyone|whoever",
     "name the user, request, thread or block"),
    (r"those", "repeat the noun"),
    (r"will not do", 'invalid value "x" for --option (expected ...)'),
    (r"it takes", "(expected ...)"),
    (rf"(?<!there ){_BE} no(?! longer| more than)", "is not a ..., invalid ..."),
    (rf"(?<!there ){_BE} none", "no ..., does not exist"),
    (rf"(?:{_BE}|be) there", "exists"),
    (r"left out|leaves? out", "skipped, excluded"),
    (r"pass(?:ed|es) over", "skipped"),
    (r"without end|for ever", "infinite, forever"),
    (r"lets? go", "releases"),
    (r"(?:started? )?anew", "again, recreated"),
    (r"on (?:its|their) way", "in flight, in progress"),
    (r"go(?:es)? on", "continues"),
    (r"(?:is|are|was|were|be) gone", "ended, removed, deleted"),
    (r"no more(?! than)(?= [.,;:)]|[.,;:)])", "no longer"),
    (r"what it says|has not what", "name the value"),
    (r"starved|purse|carts", "name the thing: deadlock, budget, batch"),
    (r"how (?:large|much|many)[^.;]{0,40}\?", "(expected ...)"),
    (r"any ?more(?! than)", "no longer"),
    (r"under ?way", "in flight"),
    (r"(?:held|holds?) up", "skipped, delayed, waits for ..."),
    (r"hand(?:ed|s) out", "allocated"),
    (r"(?:gives?|given|gave|giving) back", "frees, returns"),
    (r"(?:left|leaves?) alone", "gets no jobs, is not used"),
    (r"com(?:es?|ing) back|came back", "returns, is loaded, is restored"),
    (r"(?:one's|of (?:its|their|the caller's)) own", "its ..., a separate ..., your own ..."),
    (r"at one time", "at a time"),
    (r"makes? room|give more", "evicts, frees; increase ..."),
    (r"but for", "except"),
    (r"says so", "prints a message, reports"),
    (r"meanwhile", "in the meantime"),
    (r"thrown away", "dropped, destroyed"),
)
_ALL = [(re.compile(rf"\b(?:{words})(?!\w)", re.I), say) for words, say in WORDS]

_TOKEN = re.compile(r"""//(?:\\\n|[^\n])* | /\*.*?(?:\*/|\Z) | "(?:\\.|[^"\\\n])*"
                        | '(?:\\.|[^'\\\n])*' """, re.S | re.X)
_BETWEEN = re.compile(r"(?:\s|\\\n)*(?:PRI\w+(?:\s|\\\n)*)?")
_NOT_SHOWN = re.compile(r"#[ \t]*include\b|\b(?:_Static_|qr_)?assert\w*\s*\(|__asm__")


def _find(text):
    """(position, words found, what to say) in a text, whatever blanks stand between its words."""
    starts, places, flat = [], [], ""
    for m in re.finditer(r"\S+", text):
        starts.append(len(flat))
        places.append(m.start())
        flat += m[0] + " "
    for pattern, say in _ALL:
        for m in pattern.finditer(flat):
            yield places[bisect.bisect_right(starts, m.start()) - 1], m[0], say


def literals(text):
    """(position, text) of each string that a user may see: neighbouring literals are one."""
    runs = []
    for m in _TOKEN.finditer(text):
        if m[0][0] != '"':
            continue
        if runs and _BETWEEN.fullmatch(text, runs[-1][1], m.start()):
            runs[-1][1:] = [m.end(), runs[-1][2] + m[0][1:-1]]
        else:
            runs.append([m.start(), m.end(), m[0][1:-1]])
    for start, _, value in runs:
        line = text[text.rfind("\n", 0, start) + 1 : start]
        if " " in value.strip() and not _NOT_SHOWN.search(line):
            yield start, value.replace("\\n", " ")


_NOT_PROSE = re.compile(r"^```.*?^```|^    [^\n]*|`[^`]*`|\]\([^)\s]*\)", re.S | re.M)


def _positions(source):
    """Of everything in a public header, of the prose of a page, of the strings elsewhere."""
    if is_page(source.path):
        yield from _find(_NOT_PROSE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), source.text))
        return
    if source.path.startswith("include/"):
        flat = re.sub(r"(?m)^[ \t]*\*(?!/)", lambda m: " " * len(m[0]), source.text)
        yield from _find(re.sub(r'\\\n|"', lambda m: " " * len(m[0]), flat))
        return
    for start, value in literals(source.text):
        for _, words, say in _find(value):
            yield start, words, say


def is_page(path):
    """A page for users; docs/decisions has the past as it was."""
    return re.fullmatch(r"([^/]+|(?:docs|bench|python|viewer)/[^/]+)\.md", path) is not None


def applies(path):
    return is_page(path) or (path.endswith((".c", ".h"))
                             and path.startswith(("include/", "src/", "cli/")))


def plain_words(source, _repo):
    """A rule of rules.py."""
    for position, words, say in sorted(_positions(source)):
        yield source.line_of(position), f'"{words}": say {say}'
