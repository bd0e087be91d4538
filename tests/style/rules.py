"""The style rules: each is a small function, and RULES is the table of all of them.

A rule gets one file and the repository, and yields (line, message) for each finding. Parsing is by
regular expressions over code whose comments and strings are blanked (csource.py): enough for this
code base, and it needs no compiler.
"""

import re
from dataclasses import dataclass, field
from typing import Callable

import words

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 80
MAX_COLUMNS = 100
MAX_FILE_BYTES = 1_500_000
MAX_README_WORDS = 900

# From the bottom up; a room of the core includes itself and what is below it.
CORE = ("base", "obs", "hash", "block", "group", "plan", "cache", "sched")
# Libraries beside the core: they use its public headers, and base, which each has inside.
BESIDE = ("events", "http", "record", "tier")

# Sources without a header of their own, and why.
NO_HEADER = {
    r"src/api/\w+_api\.c": "defines what a public header declares",
    r"src/tier/device/cuda/(arena|device_open|tables)\.c": "define what quire/device_cuda.h declares",
    r"src/block/same\.c": "what pool.h does with two pools",
    r"src/block/pool_check\.c": "the walker of pool.h, apart because it is long",
    r"src/group/(full|window|chunked|mamba|cross|rswa|ring)\.c": "kinds of layers, all behind group.h",
    r"src/sched/(sched_check|requests/(requests|hashes)|step/(schedule|running|admit|hits|stop|update|loads|reset)|watch/tell)\.c":
        "the parts of sched.h, which names them",
    r"src/sched/image/image_(cache|encoder|requests)\.c": "the parts of image.h",
    r"src/cache/(lookup|slots|fork|rows|cache_check|diverge|report)\.c": "the parts of cache.h, which names them",
    r"src/events/wire/wire_(read|write)\.c": "define what quire/wire.h declares, around events/wire/wire.h",
    r"src/events/(publish/publisher|subscribe/(subscriber|index))\.c": "define what a public header declares",
    r"src/record/recorder\.c": "defines what a public header declares",
    r"src/tier/(core/(fingerprint|open)|device/(device_host|device_pages|host_memory))\.c": "define what a public header declares",
    r"src/tier/slots/policy_\w+\.c": "the policies, all behind policy.h",
    r"src/tier/slots/check\.c": "a part of slots.h, which names it",
    r"src/tier/file/(pool|uring)\.c": "the two ways of io.h, which names them",
    r"src/tier/file/shared\.c": "the other kind of tier that private.h declares",
    r"src/tier/object/absent\.c": "defines what quire/tier_object.h declares, without libcurl",
    r"src/tier/object/(answer|lane|multi|renew|request|tier_object)\.c": "the parts of object.h, which names them",
    r"src/tier/peer/(link|tier_peer)\.c": "the parts of peer.h, which names them",
    r"src/tier/peer/session\.c": "a part of server.h, which names it",
    r"src/tier/offload/(check|copy|eager|ends|load|match|plan|protect|round|store|tiers|transfers)\.c":
        "the parts of offload.h, which names them",
    r"src/tier/planner/(check|copies|events|loads|match|stores)\.c": "the parts of planner.h, which names them",
    r"src/tier/promote/(check|events|jobs|moves|plan|store)\.c": "the parts of parts.h, which names them",
    r"src/tier/transfer/remote_(device|tier)\.c": "the parts of transfer.h, which names them",
    r"src/tier/worker/(copies|gone|self_test|submit|turn)\.c": "the parts of worker.h, which names them",
    r"src/tier/redis/(batch|link|map|node|reply|usage|tier_redis)\.c": "the parts of redis.h, which names them",
}

# Headers without a guard, and why.
NO_GUARD = {
    r"tests/model/operation_calls\.h": "read twice on purpose, for the real pool and the naive one",
}


@dataclass(frozen=True)
class Repository:
    """What a rule may ask about the other files."""

    paths: frozenset = frozenset()
    public_functions: frozenset = frozenset()


@dataclass(frozen=True)
class Rule:
    name: str
    reason: str
    applies: Callable
    check: Callable = field(repr=False)


def is_c(path):
    return path.endswith((".c", ".h", ".cpp"))


def is_source(path):
    return is_c(path) or path.endswith((".py", ".js"))


def in_src(path):
    return is_c(path) and path.startswith("src/")


def in_include(path):
    return is_c(path) and path.startswith("include/")


def is_header(path):
    return path.endswith(".h")


def is_readme(path):
    return path == "README.md"


def any_file(_path):
    return True


def _listed(path, exceptions):
    return any(re.fullmatch(pattern, path) for pattern in exceptions)


# ---- shape of the text ------------------------------------------------------


def file_length(source, _repo):
    if len(source.lines) > MAX_FILE_LINES:
        yield MAX_FILE_LINES + 1, f"{len(source.lines)} lines, at most {MAX_FILE_LINES}"


def function_length(source, _repo):
    for f in source.functions:
        length = f.last_line - f.first_line + 1
        if length > MAX_FUNCTION_LINES:
            yield f.first_line, f"{f.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


def line_length(source, _repo):
    for number, line in enumerate(source.lines, 1):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns, at most {MAX_COLUMNS}"


def tabs(source, _repo):
    for number, line in enumerate(source.lines, 1):
        if "\t" in line:
            yield number, "a tab"


def trailing_blanks(source, _repo):
    for number, line in enumerate(source.lines, 1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"


def final_newline(source, _repo):
    if not source.text.endswith("\n") or source.text.endswith("\n\n"):
        yield len(source.lines), "the file must end with one newline"


# ---- names ------------------------------------------------------------------


def internal_names(source, repo):
    for f in source.functions:
        if f.is_static or f.name.startswith("qr_"):
            continue
        if f.name.startswith("quire_"):
            if f.name not in repo.public_functions:
                yield f.first_line, f"{f.name} is in no public header: static or qr_"
        else:
            yield f.first_line, f"{f.name} is visible to the linker: static or qr_"


def _declared_names(source):
    """(position, name) of what a header defines: macros, tags, types, functions, constants."""
    for m in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", source.code, re.M):
        yield m.start(1), m[1]
    for m in re.finditer(r"\b(?:struct|union|enum)\s+(\w+)\s*\{", source.code):
        yield m.start(1), m[1]
    for m in re.finditer(r"\btypedef\b[^;{}]*(?:\{[ \n]*\}\s*)?\b(\w+)\s*;", source.outside):
        yield m.start(1), m[1]
    for m in re.finditer(r"\btypedef\b[^;{}()]*\(\s*\*\s*(\w+)\s*\)", source.outside):
        yield m.start(1), m[1]
    for m in re.finditer(r"(?:^|[;{}])[^;{}()]*?\b(\w+)\s*\([^;{}]*\)\s*[;{]", source.outside):
        if m[1] != "__attribute__":
            yield m.start(1), m[1]
    for body in re.finditer(r"\benum\b[^{};]*\{([^}]*)\}", source.undirected):
        for m in re.finditer(r"(?:^|,)\s*([A-Za-z_]\w*)", body[1]):
            yield body.start(1) + m.start(1), m[1]


def public_names(source, _repo):
    seen = set()
    for position, name in _declared_names(source):
        if not name.startswith(("quire_", "QUIRE_")) and (position, name) not in seen:
            seen.add((position, name))
            yield source.line_of(position), f"{name} is neither quire_ nor QUIRE_"


# ---- rooms ------------------------------------------------------------------


def _quoted_includes(source):
    for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', source.bare, re.M):
        yield source.line_of(m.start(1)), m[1]


def may_include(room, other):
    if room == other or room == "api" or (room in BESIDE and other == "base"):
        return True
    return room in CORE and other in CORE and CORE.index(other) < CORE.index(room)


def include_direction(source, _repo):
    for line, target in _quoted_includes(source):
        other = target.split("/")[0]
        if other in (*CORE, *BESIDE, "api") and "/" in target:
            if not may_include(source.room, other):
                yield line, f"{source.room} must not include {target}"


def include_room_name(source, repo):
    folder = source.path.rsplit("/", 1)[0]
    for line, target in _quoted_includes(source):
        if ".." in target.split("/"):
            yield line, f'"{target}" climbs; write "room/file.h"'
        elif "/" not in target and f"{folder}/{target}" not in repo.paths:
            yield line, f'"{target}" is not in {folder}; write "room/file.h"'


def file_pair(source, repo):
    if not source.path.endswith(".c"):
        return
    name = source.path.rsplit("/", 1)[1][:-2]
    if f"{source.path[:-2]}.h" in repo.paths or f"include/quire/{name}.h" in repo.paths:
        return
    if not _listed(source.path, NO_HEADER):
        yield 1, f"no {name}.h beside it"


def expected_guard(path):
    """The guard's name, whole for the library's headers, else the end of it."""
    stem = re.sub(r"\W", "_", path[:-2]).upper() + "_H"
    if path.startswith("include/"):
        return stem.removeprefix("INCLUDE_")
    if path.startswith("src/"):
        return "QR_" + stem.removeprefix("SRC_")
    return re.sub(r"\W", "_", path.rsplit("/", 1)[-1][:-2]).upper() + "_H"


def include_guard(source, _repo):
    if _listed(source.path, NO_GUARD):
        return
    wanted = expected_guard(source.path)
    whole = source.path.startswith(("include/", "src/"))
    found = re.match(r"\s*#ifndef[ \t]+(\w+)\s*\n#define[ \t]+(\w+)[ \t]*\n", source.code)
    ended = re.search(r"#endif\s*\Z", source.code)
    if not found or found[1] != found[2] or not ended:
        yield 1, f"no include guard {wanted}"
    elif (found[1] != wanted) if whole else not found[1].endswith(wanted):
        yield source.line_of(found.start(1)), f"guard {found[1]}, expected {wanted}"


# ---- calls ------------------------------------------------------------------


def _calls(names, *homes):
    """A rule that finds calls of these names outside the files that may make them: one a library."""
    pattern = re.compile(r"(?<![\w.])(?<!->)(" + "|".join(names) + r")\s*\(")

    def check(source, _repo):
        if source.path in homes:
            return
        for m in pattern.finditer(source.code):
            where = f"; it belongs in {homes[0]}" if homes else ""
            yield source.line_of(m.start()), f"{m[1]}(){where}"

    return check


# Defined in an inner room itself.
INNER_PUBLIC = {"quire_strerror"}


def call_direction(source, repo):
    if source.room not in ("hash", "block", "group", "plan", "cache", "sched"):
        return
    for m in re.finditer(r"(?<![\w.])(?<!->)(quire_\w+)\s*\(", source.code):
        if m[1] in repo.public_functions and m[1] not in INNER_PUBLIC:
            yield source.line_of(m.start()), f"{m[1]}() is for callers of the library"


def locks(source, _repo):
    if source.room in ("base", "hash", "block"):
        words = r"\b(pthread_(?:mutex|rwlock|spin|cond|barrier|once)\w*|(?:mtx|cnd)_\w+|sem_\w+)\b"
        for m in re.finditer(words, source.code):
            yield source.line_of(m.start()), m[1]


# ---- all text files ---------------------------------------------------------

# Spelled in two halves, so that these lines are no findings themselves.
_NOTES = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
_MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:(?:work|root)(?![\w-])|home/[A-Za-z])[^\s\"'`)]*")


def notes(source, _repo):
    for m in _NOTES.finditer(source.text):
        yield source.line_of(m.start()), m[1]


def machine_paths(source, _repo):
    for m in _MACHINE_PATH.finditer(source.text):
        yield source.line_of(m.start()), m[0]


def readme_words(source, _repo):
    words = len(source.text.split())
    if words >= MAX_README_WORDS:
        yield 1, f"{words} words, fewer than {MAX_README_WORDS} wanted; docs/ has room"


def file_size(source, _repo):
    size = len(source.text.encode("utf-8", "surrogateescape"))
    if size > MAX_FILE_BYTES:
        yield 1, f"{size} bytes, at most {MAX_FILE_BYTES}"


MEMORY = ("malloc", "calloc", "realloc", "reallocarray", "free", "aligned_alloc", "posix_memalign",
          "mmap", "strn?dup")
PRINT = ("v?f?printf", "f?puts", "f?putc", "putchar", "perror")
ABORT = ("abort", "_?exit", "_Exit", "quick_exit", "assert")
WORLD = ("s?rand", "rand_r", "s?random", "time", "gettimeofday", "clock_gettime", "clock",
         "getrandom", "getentropy")
UNSAFE = ("strcpy", "strcat", "v?sprintf", "gets", "strtok", "system", "popen")

RULES = (
    Rule("file-length", "a file holds one idea", is_source, file_length),
    Rule("function-length", "a function fits a screen", is_c, function_length),
    Rule("line-length", "two files fit side by side", is_c, line_length),
    Rule("tabs", "columns look the same everywhere", is_c, tabs),
    Rule("trailing-blanks", "diffs show what changed", is_c, trailing_blanks),
    Rule("final-newline", "diffs show what changed", is_c, final_newline),
    Rule("internal-names", "the static library must not clash with its host", in_src,
         internal_names),
    Rule("public-names", "the headers must not clash with their host", in_include, public_names),
    Rule("include-direction", "rooms know only what is below them", in_src, include_direction),
    Rule("call-direction", "inner rooms do not call the API, which checks and calls them", in_src,
         call_direction),
    Rule("include-room-name", "an include says which room it needs", in_src, include_room_name),
    Rule("file-pair", "one concept is one header and one source", in_src, file_pair),
    Rule("include-guard", "two headers never share a guard", is_header, include_guard),
    Rule("memory-calls", "memory is taken at creation only, in one place", in_src,
         _calls(MEMORY, "src/base/memory.c")),
    Rule("print-calls", "a library has no terminal", in_src, _calls(PRINT, "src/base/assert.c")),
    Rule("abort-calls", "a library does not end its host", in_src,
         _calls(ABORT, "src/base/assert.c")),
    Rule("world-calls", "clock and random bytes come through hooks, so that runs replay", in_src,
         _calls(WORLD, "src/base/hooks.c")),
    Rule("unsafe-calls", "these write without a bound or run a shell", is_c, _calls(UNSAFE)),
    Rule("locks", "one writer for each handle: nothing to lock", in_src, locks),
    Rule("notes", "what is left to do is an issue", any_file, notes),
    Rule("machine-paths", "files speak of the project, not of one machine", any_file,
         machine_paths),
    Rule("readme-words", "the first page is read to its end", is_readme, readme_words),
    Rule("file-size", "a clone stays small", any_file, file_size),
    Rule("plain-words", "a sentence is understood at the first reading", words.applies,
         words.plain_words),
)
