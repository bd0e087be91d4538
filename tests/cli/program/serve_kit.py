"""`quire serve` as a child process, for the tests that look at it from outside.

    with Serving(quire, "--speed", "max", trace) as it:
        it.get("/metrics"), it.events, it.replay
"""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

WAIT_S = 60


def until(ready, what):
    """Asks again and again; the time limit is for a machine that is far too slow."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        answer = ready()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"did not come about: {what}")


class Serving:
    def __init__(self, quire, *args, listen="127.0.0.1:0"):
        self.err = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen([quire, "serve", "--listen", listen, *args], text=True,
                                        stdout=subprocess.PIPE, stderr=self.err)
        addresses = {}
        names = ["page", "metrics"]
        names += ["events"] if "--events" in args else []
        names += ["replay"] if "--replay-events" in args else []
        for name in names:
            line = self.process.stdout.readline()
            found = re.fullmatch(rf"{name} +(\S+)\n", line)
            if not found:
                self.process.wait(WAIT_S)
                said = self.said()
                self.close()
                raise AssertionError(f"{name} expected, not {line!r}: {said}")
            addresses[name] = found[1]
        self.page, self.events, self.replay = map(addresses.get, ("page", "events", "replay"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.err.close()

    def said(self):
        self.err.seek(0)
        return self.err.read()

    def get(self, path, **headers):
        """(status, text)"""
        request = urllib.request.Request(self.page.rstrip("/") + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            raise AssertionError(f"{path}: {error}; status {self.process.poll()}, {self.said()}")

    def metrics(self):
        """{name with labels, but those of the engine: value}"""
        status, text = self.get("/metrics")
        if status != 200:
            raise AssertionError(f"/metrics: {status} {text}")
        values = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'model_name="[^"]*",?|engine="[^"]*",?', "", name)
                values[name.replace("{}", "").replace(",}", "}")] = float(value)
        return values

    def has_ended(self):
        """The trace, with --hold."""
        return "The trace has ended" in self.said()

    def interrupt(self, number=signal.SIGINT):
        """(exit status, the rest of its output)"""
        self.process.send_signal(number)
        text = self.process.stdout.read()
        return self.process.wait(WAIT_S), text


def run(quire, *args, status=0, timeout=WAIT_S):
    """What it prints: on standard error where it fails."""
    done = subprocess.run([quire, *args], capture_output=True, text=True, timeout=timeout)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}, {done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stdout + done.stderr


def report(quire, *args):
    return json.loads(run(quire, "replay", "--quiet", "--json", "-", *args))


def write_private(path, text):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    return path
