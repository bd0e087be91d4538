#!/usr/bin/env python3
"""Files that commands write: never the input, whole or not at all, whatever ends the run.

    test_files.py PROGRAM

The table at the end has one row for each output of replay, sweep, size and curve, and one column for each
way to end a run in its middle. "earlier" means that the file of the run before is there, byte for
byte; "whole" means that the new file is complete, marked as interrupted, and can be parsed.

The middle is certain: the program reads half of a trace from a pipe and waits for the rest.
"""

import csv
import fcntl
import json
import os
import re
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

QUIRE = FOLDER = TRACE = ""
TABLE = {}
POOL = ("--max-model-len", "8192", "--num-gpu-blocks", "900")
EARLIER = "earlier\n"
OUTPUTS = {
    "replay": ("json", "html", "csv", "trace", "why", "perfetto"),
    "sweep": ("json", "csv", "html"),
    "size": ("json",),
    "curve": ("json", "csv"),
}
SIZE = (*POOL, "--slo", "e2e=1000s", "--max-gpus", "2")
RESTARTED = {  # they read the trace again for each run; size tries a second worker too
    "sweep": (*POOL[:2], "--num-gpu-blocks", "900,901,902", "--jobs", "1"), "size": (*SIZE, "--jobs", "1")}
SIGNALS = {"SIGINT": (signal.SIGINT, 130, "interrupt"), "SIGTERM": (signal.SIGTERM, 143, "terminated")}


def run(*args, status=0, **more):
    done = subprocess.run([QUIRE, *args], capture_output=True, text=True, timeout=120, **more)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def until(condition, what):
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"waited in vain: {what}")


def is_gone(pid):
    try:
        return read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def is_waiting(pid):
    """It sleeps, and a moment later has still done nothing."""
    looks = []
    for _ in range(2):
        words = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()
        looks.append((words[0], words[11], words[12], read(f"/proc/{pid}/status").split("ctxt")[1]))
        time.sleep(0.04)
    return looks[0] == looks[1] and looks[0][0] == "S"


def children(pid):
    return [int(word) for word in read(f"/proc/{pid}/task/{pid}/children").split()]


def is_drained(fd):
    return struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0] == 0


def temporaries(folder):
    return [name for name in os.listdir(folder) if "quire-tmp" in name]


class Place:
    """A folder with an earlier file for each output of a command."""

    def __init__(self, command, folder=None):
        self.command = command
        self.folder = folder or tempfile.mkdtemp(dir=FOLDER)
        for name in OUTPUTS[command]:
            write(self.path(name), EARLIER)

    def path(self, name):
        return os.path.join(self.folder, f"out.{name}")

    def options(self):
        return [f"--{name}={self.path(name)}" for name in OUTPUTS[self.command]]

    def check_earlier(self, way):
        for name in OUTPUTS[self.command]:
            if read(self.path(name)) != EARLIER:
                raise AssertionError(f"{self.command} --{name}, {way}: the earlier file is gone")
            TABLE.setdefault((self.command, name), {})[way] = "earlier"

    def check_whole(self, way, word):
        for name in OUTPUTS[self.command]:
            text = read(self.path(name))
            try:
                CHECKS[self.command, name](text, word)
            except Exception as error:
                raise AssertionError(f"{self.command} --{name}, {way}: {text[-200:]!r}") from error
            TABLE.setdefault((self.command, name), {})[way] = "whole"


# ---- whole files -------------------------------------------------------------


def check_report(text, word):
    report = json.loads(text)
    assert report["ended_by"] == word and report["requests"] > 0, report["ended_by"]


def page_data(text):
    assert text.rstrip().endswith("</html>"), "cut"
    return json.loads(re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', text, re.S)[1])


def check_page(text, word):
    assert page_data(text)["report"]["ended_by"] == word


def check_requests(text, _):
    rows = list(csv.reader(text.splitlines()))
    assert len(rows) > 2 and len({len(row) for row in rows}) == 1 and text.endswith("\n"), rows[-1]


def check_lines(text, _):
    assert text.endswith("\n") and [json.loads(line) for line in text.splitlines()]


def check_sweep(text, word):
    sweep = json.loads(text)
    assert sweep["ended_by"] == word
    check_runs([run.get("error") for run in sweep["runs"]])


def check_runs(errors):
    assert not errors[0] and errors[1:] == ["interrupted", "interrupted: not started"], errors


def check_sweep_rows(text, _):
    rows = list(csv.DictReader(text.splitlines()))
    check_runs([row["error"] for row in rows])
    assert float(rows[0]["hit_rate"]) > 0 and text.endswith("\n")


def check_size(text, word):
    sized = json.loads(text)
    found = [(c["state"], [run["workers"] for run in c["runs"]]) for c in sized["combinations"]]
    assert (sized["ended_by"], found) == (word, [("stopped", [1])]), found


def check_curve(text, word):
    curve = json.loads(text)
    assert curve["ended_by"] == word and curve["requests"] == 99 and curve["points"]


CHECKS = {
    ("replay", "json"): check_report,
    ("replay", "html"): check_page,
    ("replay", "csv"): check_requests,
    ("replay", "trace"): check_lines,
    ("replay", "why"): check_lines,
    ("replay", "perfetto"): lambda text, _: json.loads(text)["traceEvents"][10],
    ("sweep", "json"): check_sweep,
    ("sweep", "csv"): check_sweep_rows,
    ("sweep", "html"): lambda text, _: check_runs([row.get("error") for row in page_data(text)["rows"]]),
    ("size", "json"): check_size,
    ("curve", "json"): check_curve,
    ("curve", "csv"): check_requests,
}


# ---- a run in its middle -----------------------------------------------------


class Middle:
    """A run that has read half of its trace, and waits for more."""

    def __init__(self, place, *more, **popen):
        lines = read(TRACE).splitlines(keepends=True)
        self.half = "".join(lines[: len(lines) // 2]).encode()
        self.place = place
        self.worker = None
        self.start(place.command, [*place.options(), *more], popen)
        self.pid = self.worker or self.process.pid
        until(lambda: is_drained(self.feed), "the program reads")
        until(lambda: is_waiting(self.pid), "the program waits")

    def start(self, command, options, popen):
        pool = {**RESTARTED, "replay": POOL, "curve": ()}[command]
        source = "-"
        if command in RESTARTED:
            source = os.path.join(self.place.folder, "fifo")
            os.mkfifo(source)
        self.process = subprocess.Popen([QUIRE, command, *pool, *options, "--format", "quire", source],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, **popen)
        if command not in RESTARTED:
            self.feed = self.process.stdin.fileno()
            os.write(self.feed, self.half)
            return
        with open(source, "wb") as feed:  # the first replay ends, the second is in its middle
            first = children(self.process.pid)
            with open(TRACE, "rb") as trace:
                feed.write(trace.read())
        until(lambda: children(self.process.pid) not in ([], first), "the next replay")
        self.worker = children(self.process.pid)[0]
        self.feed = os.open(source, os.O_WRONLY)
        os.write(self.feed, self.half)

    def end(self):
        """The exit status, and what was printed. Nothing of the run is left but its files."""
        self.process.wait(timeout=30)  # the pipe is open until then
        said = self.process.communicate()
        if self.place.command in RESTARTED:
            os.close(self.feed)
            until(lambda: is_gone(self.worker), "the worker ends with the program")
        return self.process.returncode, "".join(said)


class Signals(unittest.TestCase):
    def test_ends_with_a_report_and_whole_files(self):
        for command in OUTPUTS:
            for way, (number, status, word) in SIGNALS.items():
                place = Place(command)
                it = Middle(place)
                it.process.send_signal(number)
                got, said = it.end()
                self.assertEqual(got, status, (command, way, said))
                place.check_whole(way, word)
                self.assertEqual(temporaries(place.folder), [])
                self.assertRegex(said, "(?i)" + {"interrupt": "interrupted", "terminated":
                                                 "terminated|interrupted"}[word])
                self.assertIn({"replay": "Prefix cache", "sweep": "TTFT", "curve": "smallest pool",
                               "size": "interrupted after 1 fleets"}[command], said)

    def test_killed(self):
        for command in OUTPUTS:
            place = Place(command)
            it = Middle(place)
            it.process.kill()
            self.assertEqual(it.end()[0], -signal.SIGKILL)
            place.check_earlier("SIGKILL")
            left = {name.split(".quire-tmp-")[0] for name in temporaries(place.folder)}
            self.assertEqual(left, {f".out.{name}" for name in OUTPUTS[command]})

    def test_a_second_signal_ends_at_once(self):
        for command in OUTPUTS:
            place = Place(command)
            it = Middle(place)
            for number in (signal.SIGSTOP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                it.process.send_signal(number)
            self.assertIn(it.end()[0], (-signal.SIGTERM, -signal.SIGINT))
            place.check_earlier("twice")
            self.assertEqual(temporaries(place.folder), [])

    def test_other_signals_leave_no_temporaries(self):
        for number in (signal.SIGHUP, signal.SIGQUIT):
            place = Place("replay")
            it = Middle(place, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
            it.process.send_signal(number)
            self.assertEqual(it.end()[0], -number)
            place.check_earlier("SIGHUP" if number == signal.SIGHUP else "SIGQUIT")
            self.assertEqual(temporaries(place.folder), [])

    def test_a_whole_group(self):
        """Ctrl-C on a terminal goes to the workers of a sweep too."""
        place = Place("sweep")
        it = Middle(place, start_new_session=True)
        os.killpg(it.process.pid, signal.SIGINT)
        self.assertEqual(it.end()[0], 130)
        place.check_whole("Ctrl-C", "interrupt")

    def test_generate(self):
        folder = tempfile.mkdtemp(dir=FOLDER)
        path = os.path.join(folder, "t.jsonl")
        write(path, EARLIER)
        it = subprocess.Popen([QUIRE, "generate", "chat", "--requests", "1G", "--out", path])
        self.addCleanup(it.kill)
        until(lambda: temporaries(folder), "it writes")
        it.send_signal(signal.SIGTERM)
        self.assertEqual(it.wait(), -signal.SIGTERM)
        self.assertEqual((read(path), temporaries(folder)), (EARLIER, []))


# ---- runs that fail ----------------------------------------------------------


def limit_files(num_bytes):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))


class Failures(unittest.TestCase):
    def command(self, command, options, trace=None):
        pool = {"replay": POOL, "sweep": (*POOL, "--jobs", "2"), "curve": (),
                "size": (*SIZE, "--jobs", "2")}[command]
        return (command, *pool, *options, trace or TRACE)

    def test_a_broken_trace(self):
        trace = os.path.join(FOLDER, "broken.jsonl")
        write(trace, read(TRACE) + "{broken\n")
        for command in ("replay", "curve"):  # a sweep tells of replays that failed
            place = Place(command)
            self.assertIn("broken.jsonl:", run(*self.command(command, place.options(), trace),
                                               status=1))
            place.check_earlier("bad trace")
            self.assertEqual(temporaries(place.folder), [])

    def test_limit_of_a_file(self):
        for command, names in OUTPUTS.items():
            for name in names:
                place = Place(command)
                one = [f"--{name}={place.path(name)}"]
                said = run(*self.command(command, one), status=1, preexec_fn=limit_files(64))
                self.assertIn("File too large", said, (command, name))
                place.check_earlier("RLIMIT_FSIZE")
                self.assertEqual(temporaries(place.folder), [])

    def test_all_or_none(self):
        """One output is too large: the others, which could be written, are not replaced either."""
        place = Place("replay")
        said = run(*self.command("replay", place.options()), status=1, preexec_fn=limit_files(20000))
        self.assertIn("cannot be written: File too large", said)
        self.assertEqual([read(place.path(name)) for name in OUTPUTS["replay"]], [EARLIER] * 6)

    def test_full_device(self):
        for command, names in OUTPUTS.items():
            for name in names:
                place = Place(command)
                options = [option for option in place.options() if not option.startswith(f"--{name}=")]
                said = run(*self.command(command, [*options, f"--{name}=/dev/full"]), status=1)
                self.assertIn("/dev/full: cannot be written: No space left", said)
                place.check_earlier("/dev/full")
                self.assertEqual(temporaries(place.folder), [])

    def test_full_disk(self):
        disk = tempfile.mkdtemp(dir=FOLDER)
        size = "size=64k"
        mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            self.skipTest("a small disk cannot be mounted here")
        try:
            for command in OUTPUTS:
                place = Place(command, disk)
                rest = os.path.join(disk, "rest")
                with open(rest, "wb") as file:  # all but one page of it
                    file.write(b"x" * os.statvfs(disk).f_bavail * 4096)
                said = run(*self.command(command, place.options()), status=1)
                self.assertIn("No space left", said)
                place.check_earlier("full disk")
                os.unlink(rest)
                self.assertEqual(temporaries(place.folder), [])
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_known_at_once(self):
        """A file that cannot be written is an error before the work, and nothing else is opened."""
        for command, names in OUTPUTS.items():
            for name in names:
                place = Place(command)
                where = os.path.join(place.folder, "none", "file")
                said = run(*self.command(command, [f"--{name}={where}"]), status=1)
                self.assertIn(f"--{name}: {where}: cannot be written: No such file", said)


# ---- the same file twice -----------------------------------------------------


class SameFile(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=FOLDER)
        self.trace = self.make("t.jsonl", read(TRACE))
        self.link = os.path.join(self.folder, "link")
        self.hard = os.path.join(self.folder, "hard")
        os.symlink("t.jsonl", self.link)
        os.link(self.trace, self.hard)

    def make(self, name, text):
        path = os.path.join(self.folder, name)
        write(path, text)
        return path

    def refused(self, *args, names, **more):
        before = {name: read(os.path.join(self.folder, name)) for name in os.listdir(self.folder)}
        said = run(*args, status=2, **more)
        self.assertIn("are the same file", said, args)
        for name in names:
            self.assertIn(name, said, args)
        after = {name: read(os.path.join(self.folder, name)) for name in os.listdir(self.folder)}
        self.assertEqual(before, after, args)

    def test_the_input(self):
        outputs = {**OUTPUTS, "serve": ("json",), "view": ("html",)}
        for command, names in outputs.items():
            for name in names:
                for path in (self.trace, self.link, self.hard):
                    self.refused(command, f"--{name}", path, self.trace,
                                 names=(f"--{name} ({path})", f"the input ({self.trace})"))

    def test_standard_input(self):
        for path in (self.hard, "/dev/stdin", "/proc/self/fd/0", "/dev/fd/0"):
            with open(self.trace, encoding="utf-8") as file:
                self.refused("replay", "--csv", path, "-", stdin=file, names=("--csv", "the input (-)"))

    def test_standard_output(self):
        for command in ("replay", "curve", "compare"):
            args = (self.trace, self.trace) if command == "compare" else (self.trace,)
            with open(self.trace, "a", encoding="utf-8") as file:
                done = subprocess.run([QUIRE, command, *args], stdout=file, stderr=subprocess.PIPE,
                                      text=True, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("and standard output are the same file", done.stderr)
        self.assertEqual(read(self.trace), read(TRACE))

    def test_other_options(self):
        config = self.make("config.json", "{}")
        link = os.path.join(self.folder, "l")
        os.symlink(config, link)
        for command in ("replay", "sweep", "curve"):
            self.refused(command, "--model", config, "--csv", link, self.trace,
                         names=("--csv", "--model"))
        for command in RESTARTED:
            self.refused(command, "--model", f"llama-3.1-8b,{config}", "--slo", "e2e=9s", "--json", link,
                         self.trace, names=("--json", "--model"))
        self.refused("replay", "--time-constants", config, "--why", link, self.trace,
                     names=("--why", "--time-constants"))
        self.refused("time", "--calibrate", config, "--write-constants", link,
                     names=("--write-constants", "--calibrate"))
        self.refused("serve", "--token-file", config, "--json", link, self.trace,
                     names=("--json", "--token-file"))

    def test_two_outputs(self):
        there = self.make("there", EARLIER)
        hanging = os.path.join(self.folder, "hanging")
        os.symlink("new", hanging)
        new = os.path.join(self.folder, "new")
        os.symlink(self.folder, os.path.join(self.folder, "loop"))
        same = (there, there), (new, new), (new, hanging), (new, os.path.join(self.folder, "loop/new"))
        os.unlink(os.path.join(self.folder, "hard"))
        before = sorted(os.listdir(self.folder))
        for a, b in (*same, ("-", "-"), ("-", "/dev/stdout")):
            for command in ("replay", "sweep", "curve"):
                said = run(command, "--json", a, "--csv", b, self.trace, status=2)
                self.assertIn(f"--json ({a}) and --csv ({b}) are the same file", said)
        self.assertEqual(before, sorted(os.listdir(self.folder)))

    def test_outputs_without_an_option(self):
        """A CSV has a record of its options beside it; rerun reads a result."""
        table = os.path.join(self.folder, "table")
        trace = self.make("table.meta.json", read(TRACE))
        done = subprocess.run([QUIRE, "curve", "--csv", table, trace], capture_output=True, text=True,
                              check=False)
        self.assertIn("table.meta.json: cannot be written: the command reads this file", done.stderr)
        self.assertEqual(read(trace), read(TRACE))
        result = os.path.join(self.folder, "result.json")
        run("curve", "--json", result, self.trace)
        before = read(result)
        said = run("rerun", result, "--json", result, status=1)
        self.assertIn("result.json: cannot be written: the command reads this file", said)
        self.assertEqual(read(result), before)
        one, two = os.path.join(self.folder, "one"), os.path.join(self.folder, "one.meta.json")
        done = subprocess.run([QUIRE, "curve", "--csv", one, "--json", two, self.trace],
                              capture_output=True, text=True, check=False)
        self.assertIn("one.meta.json: cannot be written: it is also another output", done.stderr)
        self.assertEqual(len(json.loads(read(two))["points"]) + 1, len(read(one).splitlines()))

    def test_devices_may_be_used_twice(self):
        run("curve", "--json", "/dev/null", "--csv", "/dev/null", self.trace)
        run("replay", *POOL, "--json", "/dev/null", "--csv", "/dev/null", self.trace)


# ---- what a user expects of a file ---------------------------------------------


class Kept(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(dir=FOLDER)
        self.path = os.path.join(self.folder, "out.csv")

    def curve(self, path, **more):
        return run("curve", "--csv", path, TRACE, **more)

    def test_mode_and_links(self):
        write(self.path, EARLIER)
        os.chmod(self.path, 0o640)
        os.symlink("out.csv", os.path.join(self.folder, "a"))
        os.symlink(os.path.join(self.folder, "a"), os.path.join(self.folder, "b"))
        self.curve(os.path.join(self.folder, "b"))
        links = [os.path.islink(os.path.join(self.folder, name)) for name in ("a", "b", "out.csv")]
        self.assertEqual(links, [True, True, False])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o640)
        check_requests(read(self.path), None)

    def test_a_link_to_nothing(self):
        os.symlink("out.csv", os.path.join(self.folder, "a"))
        self.curve(os.path.join(self.folder, "a"))
        self.assertFalse(os.path.islink(self.path))
        check_requests(read(self.path), None)

    def test_umask(self):
        self.curve(self.path, preexec_fn=lambda: os.umask(0o027))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o640)

    def test_name_in_the_working_folder(self):
        self.curve("x.csv", cwd=self.folder)
        self.assertEqual(sorted(os.listdir(self.folder)), ["x.csv", "x.csv.meta.json"])

    def test_owner(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives files away")
        write(self.path, EARLIER)
        os.chown(self.path, 12345, 12345)
        self.curve(self.path)
        self.assertEqual((os.stat(self.path).st_uid, os.stat(self.path).st_gid), (12345, 12345))

    def test_a_read_only_folder(self):
        """The file may be written, but nothing beside it."""
        if os.geteuid() != 0:
            self.skipTest("another user is needed")
        write(self.path, EARLIER)
        os.chown(self.path, 12345, 12345)

        def become():
            os.setgid(12345)
            os.setuid(12345)

        os.chmod(FOLDER, 0o755)
        os.chmod(self.folder, 0o755)
        self.curve(self.path, preexec_fn=become)
        check_requests(read(self.path), None)
        write(self.path, EARLIER)
        run("curve", "--csv", self.path, os.path.join(FOLDER, "none"), status=1, preexec_fn=become)
        self.assertEqual(read(self.path), EARLIER)
        os.chmod(self.path, 0o444)
        self.assertIn("Permission denied", self.curve(self.path, status=1, preexec_fn=become))

    def test_pipes(self):
        whole = run("curve", "--csv", "-", TRACE)
        self.assertEqual(run("curve", "--csv", "/dev/stdout", TRACE), whole)
        self.assertEqual(run("replay", *POOL, "--json", "/dev/fd/1", TRACE)[0], "{")
        fifo = os.path.join(self.folder, "fifo")
        os.mkfifo(fifo)
        it = subprocess.Popen([QUIRE, "curve", "--csv", fifo, TRACE], stdout=subprocess.DEVNULL)
        self.assertEqual(read(fifo), whole)
        self.assertEqual((it.wait(), os.listdir(self.folder)), (0, ["fifo"]))

    def test_standard_output_to_a_file(self):
        """It is written where it stands, behind what was there."""
        write(self.path, EARLIER)
        with open(self.path, "a", encoding="utf-8") as file:
            subprocess.run([QUIRE, "curve", "--csv", "/dev/stdout", TRACE], stdout=file, check=True)
        self.assertEqual(read(self.path), EARLIER + run("curve", "--csv", "-", TRACE))


def print_table():
    ways = []
    for row in TABLE.values():
        ways += [way for way in row if way not in ways]
    print(f"{'':18}" + "".join(f"{way:>14}" for way in ways))
    for (command, name), row in sorted(TABLE.items()):
        print(f"{command + ' --' + name:18}" + "".join(f"{row.get(way, '-'):>14}" for way in ways))


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup and others ignore it for all that they start
    QUIRE = os.path.abspath(sys.argv.pop(1))
    with tempfile.TemporaryDirectory() as folder:
        FOLDER = folder
        TRACE = os.path.join(folder, "trace.jsonl")
        run("generate", "rag", "--requests", "200", "--seed", "3", "--document-tokens", "2000",
            "--max-tokens", "8000", "--out", TRACE)
        program = unittest.main(exit=False)
        print_table()
        sys.exit(not program.result.wasSuccessful())
