#!/usr/bin/env python3
"""Names of this project that the Markdown pages mention exist, and so do the targets of their links.

    tests/style/doc_names.py [ROOT]     prints page:line for each name that does not

The names in backquotes and in fenced blocks are checked:

    quire_pool_create, qr_..., QUIRE_...    a word of a source file, outside the comments of C;
                                            quire_pool_* and quire_pool_…: the beginning of one
    make_room, make_room(...), MAX_ROOM     at the start of its backquotes: the same
    quire_pool_config.num_blocks            a member of that struct
    --block-size                            an option of the program, of a script, or of a test
    -DQUIRE_WERROR=ON                       an option of CMake
    --preset release                        a preset of CMakePresets.json
    QUIRE_VLLM_PYTHON=...                   an environment variable that a script reads
    build/release/tests/tier/tier_torture   a target of CMake
    src/block/pool.c, pool.c, quire/pool.h  a file or folder, or the end of a path; * stands for a part
"""

import fnmatch
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from check import files_by_git, files_by_walk

TOP_FOLDERS = ("bench", "bindings", "cli", "cmake", "docs", "examples", "include", "python", "src", "tests", "tools",
               "viewer")
SOURCES = (".c", ".h", ".cpp", ".hpp", ".rs", ".cu", ".py", ".pyi", ".js", ".sh", ".cmake", ".txt", ".map", ".in", ".json",
           ".toml", ".html", ".tsv")
C_SOURCES = (".c", ".h", ".cpp", ".cu")
ENDINGS = "c|h|cpp|cu|py|js|sh|md|cmake|map|tsv|toml|svg|png"

# Options of other programs, and files of other projects.
FOREIGN_OPTIONS = {"disable-log-stats": "vllm", "kv-cache-metrics": "vllm", "kv-transfer-config": "vllm",
                   "kv-events-config": "vllm", "no-disable-hybrid-kv-cache-manager": "vllm",
                   "enable-log-requests": "vllm", "max-log-len": "vllm",
                   "branch": "git", "pattern": "redis-cli", "html-details": "gcovr"}
# The first column of its table has the old names.
HISTORY = "docs/api-changes.md"
FOREIGN_FILES = {"kv_events_subscriber.py": "vLLM", "request_logger.py": "vLLM", "host_platform.py": "the user's",
                 "prompt.c": "the user's", "live_page.h": "written by a build"}
# Words of others, and words that stand for many or are put together at run time.
FOREIGN_WORDS = {"kv_caches": "vLLM", "VLLM_PLUGINS": "vLLM", "CURLOPT_AWS_SIGV4": "libcurl", "credential_process": "AWS",
                 "system_tokens": "agent traces", "host_pinned": "Dynamo",
                 **dict.fromkeys(("host_total", "host_empty", "host_cached", "host_active", "host_stored",
                                  "host_loaded", "host_hit_tokens", "host_failed"), "columns of a tier"),
                 **dict.fromkeys(("quire_noun_verb", "qr_noun_verb"), "style")}

SNAKE = re.compile(r"(?:[a-z]+(?:_[a-z0-9]+)+|[A-Z]+(?:_[A-Z0-9]+)+)(?=$|\(|=)")
CMAKE_OPTION = re.compile(r"(?<![\w-])-D([A-Z]\w+)=")
PRESET = re.compile(r"--preset[ =]([\w-]+)")
VARIABLE = re.compile(r"(?:^|\s)(QUIRE_[A-Z_]+)=(?!=)")
TARGET = re.compile(r"(?<![\w./-])(?:build/[\w-]+|BUILD)/((?:[\w-]+/)*)(\w+)(?=[\s,;:)]|$)")
WORD = re.compile(r"(?<![\w./])((?:quire|qr|QUIRE)_\w+)(\*|…|\.\.\.)?")
MEMBER = re.compile(r"(?<!\w)(quire_\w+)\.([a-z]\w+)(?!\w*[(/])")
OPTION = re.compile(r"(?<![\w-])--([a-z][\w-]*[a-z0-9])")
FILE = re.compile(rf"(?<![\w./$~*<-])((?:[\w*{{}},-]+/)*[\w*-]+\.(?:{ENDINGS}))(?![\w/*])")
FOLDER = re.compile(rf"(?<![\w./$~-])((?:{'|'.join(TOP_FOLDERS)})/[\w*/{{}},.-]*)(?![\w$])")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def code_of(text):
    """(line, code) of the fenced lines and of the backquoted spans, which may continue in the next line."""
    fence, prose = False, []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        is_mark = line.lstrip().startswith("```")
        is_code = not is_mark and (fence or line.startswith("    "))
        is_prose = line != "" and not is_mark and not is_code
        if not is_prose or line.startswith("|"):
            yield from spans_of(prose, number - len(prose))
            prose = []
        if is_code:
            yield number, line
        if is_prose:
            prose.append(line)
        fence ^= is_mark


def spans_of(prose, first):
    """(line, code) of the backquoted spans of a paragraph."""
    text = "\n".join(prose)
    for m in re.finditer(r"(`+)(.+?)\1", text, re.S):
        yield first + text.count("\n", 0, m.start()), m[2].replace("\n", " ")


def anchors_of(text):
    """The anchors that GitHub gives to headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        yield re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def without_comments(text):
    return re.sub(r"/\*.*?\*/|^\s*//[^\n]*", " ", text, flags=re.S | re.M)


def members_of(headers):
    """{struct: names in its body}, of all structs and unions of the headers."""
    found = {}
    for text in headers:
        for m in re.finditer(r"struct (quire_\w+) \{(.*?)^\}", without_comments(text), re.M | re.S):
            found.setdefault(m[1], set()).update(re.findall(r"\w+", m[2]))
    return found


def alternatives(path):
    """src/{a,b}.c: both."""
    m = re.search(r"\{([^{}]*)\}", path)
    if not m:
        return [path]
    return [p for one in m[1].split(",") for p in alternatives(path[:m.start()] + one + path[m.end():])]


class Names:
    """What exists."""

    def __init__(self, root, paths):
        self.root = root
        everything = set(paths) | {str(p) for path in paths for p in Path(path).parents} - {"."}
        self.ends = {"/".join(p.split("/")[i:]) for p in everything for i in range(p.count("/") + 1)}
        sources = [p for p in paths if p.endswith(SOURCES) or "." not in Path(p).name]
        texts = {p: (root / p).read_text(errors="replace") for p in sources}
        texts = {p: without_comments(t) if p.endswith(C_SOURCES) else t for p, t in texts.items()}
        text = "\n".join(texts.values())
        self.words = set(re.findall(r"\w+", text)) | FOREIGN_WORDS.keys()
        self.options = set(re.findall(r"(?<![\w-])--([a-z][\w-]*\w)", text))
        program = "\n".join(t for p, t in texts.items() if p.startswith("cli/"))
        self.options.update(re.findall(r"\"([a-z][a-z0-9-]*)\"", program))
        self.option_ends = tuple(re.findall(r"\"(-[a-z][a-z0-9-]*)\"", program))  # of a macro's name
        self.members = members_of(t for p, t in texts.items() if p.startswith("include/"))
        cmake = "\n".join(t for p, t in texts.items() if p.endswith((".cmake", "CMakeLists.txt")))
        self.targets = set(re.findall(r"\w+", cmake)) | {"quire"}
        self.targets.update(f"example_{Path(p).stem}" for p in paths if p.startswith("examples/"))
        self.cmake_options = set(re.findall(r"option\((\w+)|set\((\w+) [^()]*CACHE", cmake))
        self.cmake_options = {name for pair in self.cmake_options for name in pair}
        self.presets = set(re.findall(r'"name": "([\w-]+)"', texts.get("CMakePresets.json", "")))
        scripts = "\n".join(t for p, t in texts.items() if p.endswith((".py", ".sh")) or "." not in Path(p).name)
        self.variables = set(re.findall(r"QUIRE_[A-Z_]+", scripts))

    def has_word(self, word, more):
        if more:
            return any(w.startswith(word) for w in self.words)
        return word in self.words

    def has_option(self, name):
        known = self.options | FOREIGN_OPTIONS.keys()
        return (name in known or name.endswith(self.option_ends)
                or (name.startswith("no-") and name[3:] in known))

    def has_path(self, path):
        path = path.rstrip("/")
        return path in self.ends or ("*" in path and bool(fnmatch.filter(self.ends, path)))


def missing_names(line, code, names):
    for m in WORD.finditer(code):
        if not names.has_word(m[1], m[2]):
            yield line, f"{m[1]} is in no source file"
    snake = SNAKE.match(code)
    if snake and snake[0] not in names.words:
        yield line, f"{snake[0]} is in no source file"
    for m in CMAKE_OPTION.finditer(code):
        if m[1] not in names.cmake_options and not m[1].startswith("CMAKE_"):
            yield line, f"{m[1]} is not an option of CMake"
    for m in PRESET.finditer(code):
        if m[1] not in names.presets:
            yield line, f"{m[1]} is not a preset"
    for m in VARIABLE.finditer(code):
        if m[1] not in names.variables:
            yield line, f"no script reads {m[1]}"
    for m in TARGET.finditer(code):
        if m[2] not in names.targets and not names.has_path(m[1] + m[2]):
            yield line, f"{m[0]} is not a target"
    for m in MEMBER.finditer(code):
        if m[1] in names.members and m[2] not in names.members[m[1]]:
            yield line, f"{m[1]} has no member {m[2]}"
    for m in OPTION.finditer(code):
        if not names.has_option(m[1]):
            yield line, f"--{m[1]} is an option of nothing here"
    for pattern in (FILE, FOLDER):
        for m in pattern.finditer(code):
            for path in alternatives(m[1].rstrip(".,")):
                is_ours = Path(path).name not in FOREIGN_FILES and not path.split("/")[0].isupper()
                if is_ours and not names.has_path(path):
                    yield line, f"{path} does not exist"


def missing_links(page, text, names):
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (names.root / page).parent / path if path else names.root / page
            if not there.exists():
                yield number, f"the link {target} leads nowhere"
            elif anchor and anchor not in set(anchors_of(there.read_text())):
                yield number, f"{there.name} has no heading for #{anchor}"


def findings_of(page, names):
    """(line, message) of all that a page names and that does not exist."""
    text = (names.root / page).read_text()
    if page == HISTORY:
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.M)
    found = set(missing_links(page, text, names))
    for line, code in code_of(text):
        found.update(missing_names(line, code, names))
    return sorted(found)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    paths = files_by_git(root) or files_by_walk(root)
    names = Names(root, paths)
    pages = [p for p in paths if p.endswith(".md")]
    num_missing = 0
    for page in pages:
        for line, message in findings_of(page, names):
            print(f"{page}:{line}: {message}")
            num_missing += 1
    print(f"doc names: {len(pages)} pages, {num_missing} names that do not exist")
    return 1 if num_missing or len(pages) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
