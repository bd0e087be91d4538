#!/usr/bin/env python3
"""Tests the style check: for each rule a file that it must find, and one that it must let pass.

CASES has (rule, path, bad text, good text, other files); a rule without a case fails the test.
"""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "build"))
import check
import doc_names
import readme_commands
import words
from csource import Source, function_name, strip
from rules import RULES, expected_guard, may_include

SLASH = "/"  # keeps the samples below from being findings themselves
PUBLIC = {"include/quire/pool.h": "QUIRE_API int quire_pool_go(int a,\n    int b);\n"}


def function(lines, head="static int f(void)"):
    """A function of so many lines."""
    return f"{head}\n{{\n" + "    g();\n" * (lines - 3) + "}\n"


CASES = [
    ("file-length", "src/base/a.c", "int x;\n" * 601, "int x;\n" * 600, {}),
    ("file-length", "tests/viewer/a.py", "x = 1\n" * 601, "x = 1\n" * 600, {}),
    ("function-length", "tests/t.c", function(81), function(80) + function(80), {}),
    ("function-length", "src/base/a.c", "#if A\nint f(int a)\n{\n#else\nint f(void)\n{\n#endif\n"
     + "g();\n" * 90 + "}\n", "int a[] = {\n" + "1,\n" * 90 + "};\n", {}),
    ("line-length", "bench/b.c", "/* " + "x" * 98 + "\n", "/* " + "x" * 97 + "\n", {}),
    ("tabs", "src/base/a.c", "int\ta;\n", "int a; /* \\t */\n", {}),
    ("trailing-blanks", "src/base/a.h", "int a; \n", "int a;\n", {}),
    ("final-newline", "src/base/a.c", "int a;", "int a;\n", {}),
    ("final-newline", "src/base/a.c", "int a;\n\n", "int a;\n", {}),
    ("internal-names", "src/block/a.c", function(5, "int helper(void)"), function(5), {}),
    ("internal-names", "src/block/a.c", function(5, "void quire_pool_other(void)"),
     function(5, "int quire_pool_go(int a, int b)"), PUBLIC),
    ("internal-names", "src/block/a.c", "__attribute__((cold)) int go(int (*f)(void))\n{\n}\n",
     "__attribute__((cold)) int qr_go(int (*f)(void))\n{\n}\n", {}),
    ("internal-names", "src/block/a.c", "int go(void) __attribute__((cold));\nint go(void)\n{\n}\n",
     "extern int go(void);\n/* int go(void) { } */\n", {}),
    ("public-names", "include/quire/a.h", "#define LIMIT 4\n", "#define QUIRE_LIMIT 4\n", {}),
    ("public-names", "include/quire/a.h", "typedef struct pool quire_pool;\ntypedef int block;\n",
     "typedef struct quire_pool quire_pool;\ntypedef int quire_block;\n", {}),
    ("public-names", "include/quire/a.h", "enum quire_e { QUIRE_A = 1, B };\n",
     "enum quire_e {\n#define QUIRE_X(v, name) QUIRE_##name = (v),\nQUIRE_MAP(QUIRE_X)\n"
     "#undef QUIRE_X\n};\n", {}),
    ("public-names", "include/quire/a.h", 'extern "C" {\nint go(void);\n}\n',
     'extern "C" {\nQUIRE_API int quire_go(int (*call)(void *user), int b);\n}\n', {}),
    ("public-names", "include/quire/a.h", "struct box {\n    int go;\n};\n",
     "struct quire_box {\n    int go;\n    void (*call)(void *user);\n};\n", {}),
    ("include-direction", "src/hash/a.c", '#include "block/pool.h"\n',
     '#include "base/arena.h"\n#include "hash/b.h"\n/* #include "block/pool.h" */\n', {}),
    ("include-direction", "src/cache/a.c", '#include "tier/host.h"\n', '#include "block/pool.h"\n',
     {}),
    ("include-direction", "src/tier/a.c", '#include "cache/a.h"\n', '#include "base/arena.h"\n',
     {}),
    ("call-direction", "src/sched/a.c", "quire_go(1);\n", "qr_go(1);\nr->quire_go(1);\n",
     {"include/quire/a.h": "QUIRE_API int quire_go(int a);\n"}),
    ("include-room-name", "src/hash/a.c", '#include "arena.h"\n', '#include "base/arena.h"\n',
     {"src/base/arena.h": ""}),
    ("include-room-name", "src/hash/a.c", '#include "../base/arena.h"\n', '#include "b.h"\n',
     {"src/base/arena.h": "", "src/hash/b.h": ""}),
    ("include-guard", "src/base/a.h", "int a;\n",
     "/* base/a.h */\n#ifndef QR_BASE_A_H\n#define QR_BASE_A_H\nint a;\n#endif\n", {}),
    ("include-guard", "include/quire/a.h", "#ifndef QR_A_H\n#define QR_A_H\n#endif\n",
     "#ifndef QUIRE_A_H\n#define QUIRE_A_H\n#endif\n", {}),
    ("include-guard", "tests/model/a.h", "#pragma once\n",
     "#ifndef MODEL_A_H\n#define MODEL_A_H\n#endif /* MODEL_A_H */\n", {}),
    ("memory-calls", "src/hash/a.c", "p = malloc(4);\n",
     "allocator->free(allocator->user, p);\na.free(p);\nqr_free(p);\n/* malloc(4) */\n", {}),
    ("memory-calls", "src/hash/a.c", "q = strdup (p);\n", 's = "free(p)";\nvoid (*free)(void *);\n',
     {}),
    ("print-calls", "src/hash/a.c", "fprintf(stderr, s);\n", "snprintf(s, 4, f);\n", {}),
    ("abort-calls", "src/hash/a.c", "assert(a);\n",
     "qr_assert(a);\n_Static_assert(1, s);\nqr_abort(x);\n", {}),
    ("world-calls", "src/base/a.c", "t = time(NULL);\n", "t = hooks->time(u);\nlifetime(3);\n", {}),
    ("world-calls", "src/base/a.c", "clock_gettime(CLOCK_MONOTONIC, &t);\n", "now_ns(u);\n", {}),
    ("unsafe-calls", "tests/t.c", "sprintf(s, f);\n", "snprintf(s, n, f);\nstrncat(a, b, n);\n",
     {}),
    ("locks", "src/block/a.c", "pthread_mutex_lock(&m);\n", "/* pthread_mutex_lock */\n", {}),
    ("notes", "docs/a.md", "TO" + "DO: more\n", "mktemp XX" + "XXXX, TO" + "DOs\n", {}),
    ("notes", "src/base/a.c", "/* FIX" + "ME */\n", "/* fix me */\n", {}),
    ("machine-paths", "tests/run.sh", f"cd {SLASH}work/main\n", "cd $ROOT/work/main ../work/a\n",
     {}),
    ("machine-paths", "docs/a.md", f"see {SLASH}home/ann/x\n", "see https://host/home/ann\n", {}),
    ("readme-words", "README.md", "word " * 900 + "\n", "word " * 899 + "\n", {}),
    ("machine-paths", "a.txt", f"'{SLASH}root'\n", "a/root and/or /rooted\n", {}),
    ("file-size", "data/a.txt", "x" * 1_500_001, "x" * 1_500_000, {}),
    ("plain-words", "include/quire/a.h", "/* Blocks that nobody holds. */\n",
     "/* Blocks without a hold. There is no such block; it is no longer cached. */\n", {}),
    ("plain-words", "include/quire/a.h", "/* The block was passed\n * over. */\n",
     "/* The block was skipped. Cost: a pass over the pool. */\n", {}),
    ("plain-words", "include/quire/a.h", '#define A "a lock of \\\n" "those"\n',
     '#define A "a lock of blocks"\n', {}),
    ("plain-words", "src/block/a.c", 'say("the key is "\n    "no key");\n',
     '/* It is no key. */\nqr_assert_msg("it is no key");\nsay("those");\nsay("no key");\n', {}),
    ("plain-words", "src/block/a.c", 'say("%" PRIu64\n    " blocks are gone", n);\n',
     "say(\"the blocks are '%s'\", gone); /* \"it is gone\" */\n", {}),
    ("plain-words", "cli/a.c", 'error("\"%s\" will not do; it takes a number", value);\n',
     'error("invalid value \"%s\" for --a (expected 1..9)", value);\n', {}),
]


def findings(rule, path, text, others):
    """The lines that one rule finds in one file."""
    sources = [Source(path, text)] + [Source(p, t) for p, t in others.items()]
    chosen = [r for r in RULES if r.name == rule]
    return [line for p, line, _, _ in check.apply_rules(sources, chosen) if p == path]


class Rules(unittest.TestCase):
    def test_every_rule_has_a_case(self):
        tested_apart = {"file-pair"}  # decided by the other files, not by the text
        self.assertEqual({r.name for r in RULES}, {c[0] for c in CASES} | tested_apart)

    def test_bad_is_found_and_good_is_not(self):
        for rule, path, bad, good, others in CASES:
            with self.subTest(rule=rule, bad=bad[:60]):
                self.assertTrue(findings(rule, path, bad, others))
            with self.subTest(rule=rule, good=good[:60]):
                self.assertEqual(findings(rule, path, good, others), [])

    def test_file_pair(self):
        for path, others, found in (
            ("src/block/a.c", [], [1]),
            ("src/block/a.c", ["src/base/a.h"], [1]),
            ("src/block/a.c", ["src/block/a.h"], []),
            ("src/base/a.c", ["include/quire/a.h"], []),
            ("src/api/pool_api.c", [], []),
            ("src/block/pool_check.c", [], []),
            ("src/block/map_check.c", [], [1]),
        ):
            with self.subTest(path=path, others=others):
                got = findings("file-pair", path, "int a;\n", dict.fromkeys(others, ""))
                self.assertEqual(got, found)

    def test_home_of_a_call(self):
        for rule, home, call in (
            ("memory-calls", "src/base/memory.c", "free(p);\n"),
            ("print-calls", "src/base/assert.c", "fprintf(f, s);\n"),
            ("abort-calls", "src/base/assert.c", "abort();\n"),
            ("world-calls", "src/base/hooks.c", "getrandom(p, n, 0);\n"),
        ):
            with self.subTest(rule=rule):
                self.assertEqual(findings(rule, home, call, {}), [])
                self.assertEqual(findings(rule, "src/base/other.c", call, {}), [1])

    def test_rooms(self):
        order = ["base", "obs", "hash", "block", "group", "plan", "cache", "sched"]
        for i, room in enumerate(order):
            for j, other in enumerate(order):
                self.assertEqual(may_include(room, other), j <= i, (room, other))
            for leaf in ("tier", "events", "http", "api"):
                self.assertFalse(may_include(room, leaf))
            self.assertTrue(may_include("api", room))
            self.assertEqual(may_include("tier", room), room == "base")
        self.assertFalse(may_include("tier", "events"))

    def test_guards(self):
        self.assertEqual(findings("include-guard", "tests/model/operation_calls.h", "", {}), [])
        self.assertEqual(expected_guard("include/quire.h"), "QUIRE_H")
        self.assertEqual(expected_guard("include/quire/pool.h"), "QUIRE_POOL_H")
        self.assertEqual(expected_guard("src/tier/file/log.h"), "QR_TIER_FILE_LOG_H")

    def test_every_word_is_found(self):
        for sample in ("somebody waits", "of those", "will not do", "it takes one", "is no block",
                       "are none", "is there", "was left out", "passed over", "without end",
                       "for ever", "let go", "begin anew", "on its way", "goes on", "is gone",
                       "use it no more.", "what it says", "starved", "how large are blocks?",
                       "everyone waits", "not any more", "copies under way", "is held up",
                       "handed out", "gives back", "left alone", "came back", "of its own",
                       "at one time", "makes room", "but for one", "says so", "Meanwhile",
                       "thrown away"):
            text = f"/* {sample} */\n"
            self.assertTrue(findings("plain-words", "include/quire/a.h", text, {}), sample)

    def test_words_of_pages(self):
        for path, text, expected in (
                ("docs/a.md", "One.\nThe block came\nback.\n", [2]), ("README.md", "Nobody waits.\n", [1]),
                ("docs/a.md", "`for ever`\n\n    for ever\n\n```\nfor ever\n```\n", []),
                ("docs/a.md", "[here](b.md#for-ever), if there is none\n", [])):
            found = findings("plain-words", path, text, {})
            self.assertEqual(found, expected, text)
        self.assertFalse(words.applies("docs/decisions/a.md") or words.applies("tests/a.md"))


class Parsing(unittest.TestCase):
    def test_strip(self):
        self.assertEqual(strip('a("/* b */"); // c'), 'a("       ");     ')
        self.assertEqual(strip("a /* b\n*/ c"), "a     \n   c")
        self.assertEqual(strip("'\"' x '\\'' y"), "' ' x '  ' y")
        self.assertEqual(strip('"a" /* "b" */', keep_strings=True), '"a"          ')

    def test_function_name(self):
        for text, name in (
            ("static int f(void)", "f"),
            ("int f(void (*g)(int))", "f"),
            ("int f(void) __attribute__((cold))", "f"),
            ("struct a", None),
            ("int a[] =", None),
            ("", None),
        ):
            self.assertEqual(function_name(text), name, text)

    def test_functions(self):
        text = 'extern "C" {\n/* } */\nint f(void)\n{\n#if A\n    if (a) {\n#else\n    if (b) {\n'
        text += '#endif\n        s = "}";\n    }\n}\n}\nstatic int\ng(int a)\n{\n}\n'
        got = [(f.name, f.first_line, f.last_line) for f in Source("a.c", text).functions]
        self.assertEqual(got, [("f", 3, 12), ("g", 14, 17)])


class Trees(unittest.TestCase):
    """The whole program over small trees on disk."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        (self.root / "src/base").mkdir(parents=True)
        (self.root / "build").mkdir()
        (self.root / "build/junk.c").write_text("int\ta;")

    def tearDown(self):
        self.folder.cleanup()

    def run_check(self, with_format=False):
        out = io.StringIO()
        return check.check(self.root, with_format, out), out.getvalue()

    def test_unpacked_tree(self):
        (self.root / "src/base/a.c").write_text("int\ta;\n")
        (self.root / "src/base/a.h").write_text(
            "#ifndef QR_BASE_A_H\n#define QR_BASE_A_H\n#endif\n")
        number, said = self.run_check()
        self.assertEqual(number, 1)
        self.assertIn("src/base/a.c:1: a tab", said)
        self.assertIn(f"style: 2 files, {len(RULES)} rules, 1 findings", said)

    @unittest.skipUnless(shutil.which("git"), "git is not installed")
    def test_checkout(self):
        subprocess.run(["git", "init", "-q", str(self.root)], check=True)
        (self.root / ".gitignore").write_text("/build/\n")
        (self.root / "new.txt").write_text(f"{SLASH}work/x\n")
        number, said = self.run_check()
        self.assertEqual(number, 1)
        self.assertIn("new.txt:1: ", said)
        self.assertIn("style: 2 files", said)

    @unittest.skipUnless(check.find_clang_format()[0], "no clang-format of the right version")
    def test_clang_format(self):
        (self.root / ".clang-format").write_text("BasedOnStyle: LLVM\n")
        (self.root / "b.c").write_text("int  a;\nint b;\n")
        number, said = self.run_check(with_format=True)
        self.assertEqual(number, 1)
        self.assertIn("b.c:1: clang-format would change this", said)


class DocNames(unittest.TestCase):
    """Pages that name what exists, and pages that do not."""

    FILES = {"include/quire/pool.h": "typedef struct quire_pool_config {\n    int num_blocks; /* size */\n"
                                     "} quire_pool_config;\n",
             "cli/a.c": 'static int make_room; /* quire_told */\n{"block-size", prefix "-tls-ca"}\n',
             "CMakeLists.txt": 'option(QUIRE_FAST "fast" ON)\nset(QUIRE_LEVEL 1 CACHE STRING "")\nfast_test(quick)\n',
             "CMakePresets.json": '{ "name": "release" }\n', "go.sh": "echo $QUIRE_HOME; cmake --preset release\n",
             "examples/one.c": "int one;\n",
             "docs/b.md": "# One, two\n"}
    GOOD = ("`quire_pool_config.num_blocks`", "`quire_pool_*`", "`QUIRE_`", "`make_room()`", "`--block-size 4`",
            "`--no-block-size`", "`--peer-tls-ca F`", "`quire/pool.h`", "`pool.h`", "`include/quire`",
            "`include/*/pool.h`", "[b](b.md#one-two)", "quire_gone in plain text", "`DIR/gone.c`",
            "`make_room(1, 2)`", "`QUIRE_HOME=/opt ./go.sh`", "`-DQUIRE_FAST=ON -DQUIRE_LEVEL=2 -DCMAKE_C_FLAGS=-g`",
            "`cmake --preset release`", "`build/release/tests/quick --block-size 4`", "`build/x/example_one`")
    BAD = ("`quire_pool_gone`", "`quire_gone_*`", "`quire_pool_config.size`", "`make_gone`", "`--gone`",
           "`quire replay --gone 4`", "`quire/gone.h`", "`gone.c`", "`src/gone`", "[b](gone.md)",
           "[b](b.md#three)", "    quire_pool_gone(1);", "```c\nquire_pool_gone(1);\n```", "`quire_told`", "`make_gone(1, 2)`", "`MAX_GONE`",
           "`HOME_GONE=/opt ./go.sh`", "    -DQUIRE_SLOW=ON", "`cmake --preset gone`", "`build/release/tests/gone`",
           "a span `of\nquire_gone`", "| `make_room` |\n| `make_gone` |")

    def findings(self, text):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in self.FILES.items() | {("docs/a.md", text)}:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(content)
            names = doc_names.Names(root, [*self.FILES, "docs/a.md"])
            return list(doc_names.findings_of("docs/a.md", names))

    def test_names(self):
        for text in self.GOOD:
            self.assertEqual(self.findings(text + "\n"), [], text)
        for text in self.BAD:
            self.assertEqual(len(self.findings(text + "\n")), 1, text)


class ReadmeCommands(unittest.TestCase):
    """What tests/build/readme_commands.py takes from a page, and what it does when a command fails."""

    PAGE = ("```sh\nx=1 # a comment\n# nothing but a comment\nrun a \\\n    b\n```\n"
            "<!-- not run: needs a GPU -->\n```sh\ngpu\n```\n"
            "```c\nint a;\n```\n<!-- server -->\n```sh\nserve 127.0.0.1:80\n```\n")

    def test_blocks(self):
        blocks = readme_commands.read_blocks(self.PAGE)
        self.assertEqual([(b.mark, b.reason, b.commands) for b in blocks],
                         [("", "", [(2, "x=1 # a comment"), (4, "run a \\\n    b")]),
                          ("not run", "needs a GPU", [(9, "gpu")]),
                          ("server", "", [(16, "serve 127.0.0.1:80")])])
        self.assertEqual(list(readme_commands.problems(blocks)), [])

    def test_problems(self):
        for page, words in (("text\n", "no command"), ("<!-- not run -->\n```sh\na\n```\n", "why"),
                            ("<!-- not run: x -->\n```sh\na\nb\nc\nd\n```\n", "4 commands"),
                            ("<!-- server -->\n```sh\na\n```\n", "127.0.0.1:PORT")):
            self.assertIn(words, " ".join(readme_commands.problems(readme_commands.read_blocks(page))))

    @unittest.skipUnless(shutil.which("bash") and shutil.which("timeout"), "no bash")
    def test_failures(self):
        with mock.patch.object(readme_commands, "copy_tree", Path.mkdir), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            for commands, status in ((["a=3", "test $a = 3"], 0), (["true", "false", "true"], 1),
                                     (["false | true"], 1), (["echo $unset"], 1)):
                block = readme_commands.Block(1, "", "", list(enumerate(commands, 2)))
                with tempfile.TemporaryDirectory() as folder:
                    script, _ = readme_commands.write_script([block])
                    self.assertEqual(readme_commands.run(script, Path(folder)), status, commands)
            dead = readme_commands.Block(1, "server", "", [(2, "true 127.0.0.1:9")])
            with tempfile.TemporaryDirectory() as folder:
                script, _ = readme_commands.write_script([dead])
                self.assertEqual(readme_commands.run(script, Path(folder)), 1)
        self.assertIn("README.md:3: exit status 1", out.getvalue())


if __name__ == "__main__":
    unittest.main()
