"""`quire serve --engines N` as a child process, and clients of its engines.

    with Engines(quire, 4, "--event-tokens") as it:
        it.complete(1, prompt="Hello", max_tokens=8), it.events[1], it.replay[1]
"""

import http.client
import json
import re
import signal
import subprocess
import tempfile
import urllib.parse

from serve_kit import WAIT_S

ANY = "tcp://127.0.0.1:*"
MODEL = "llama-3.1-8b"
LONG = "The quick brown fox jumps over the lazy dog, again and again; " * 8  # 124 tokens
END, SYSTEM, USER, ASSISTANT = (1 << 29) + 0, (1 << 29) + 1, (1 << 29) + 2, (1 << 29) + 3


def tokens_of(text):
    """docs/live.md: four bytes of ASCII are a token, or three where one of four is not ASCII."""
    data, tokens = text.encode(), []
    while data:
        part = data[:4]
        if max(part) < 0x80:
            tokens.append(sum(b << 7 * i for i, b in enumerate(part)))
        else:
            part = data[:3]
            tokens.append(1 << 28 | sum(b << 8 * i for i, b in enumerate(part)))
        data = data[len(part):]
    return tokens


def words_of(answer):
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


class Engines:
    def __init__(self, quire, count, *args, listen="127.0.0.1:0", events=True, num_lines=0,
                 **options):
        self.err = tempfile.TemporaryFile(mode="w+")
        self.count = count
        if events:
            args = ("--events", ANY, "--replay-events", ANY, *args)
        self.process = subprocess.Popen([quire, "serve", "--engines", str(count), "--listen", listen,
                                         *args], text=True, stdout=subprocess.PIPE, stderr=self.err,
                                        **options)
        self.lists = {"engine": [], "page": [], "events": [], "replay": []}
        lines = count * (3 if events else 1) + count * ("--page-listen" in args)
        for _ in range(num_lines or lines):
            line = self.process.stdout.readline()
            found = re.fullmatch(r"(engine|page|events|replay) +(\d+)  (\S+)\n", line)
            if not found or int(found[2]) != len(self.lists[found[1]]):
                self.process.wait(WAIT_S)
                said = self.said()
                self.close()
                raise AssertionError(f"an address expected, not {line!r}: {said}")
            self.lists[found[1]].append(found[3])
        self.urls, self.events, self.replay = (self.lists[n] for n in ("engine", "events", "replay"))

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

    def interrupt(self, number=signal.SIGINT):
        """(exit status, the rest of its output)"""
        self.process.send_signal(number)
        text = self.process.stdout.read()
        return self.process.wait(WAIT_S), text

    def connect(self, i):
        where = urllib.parse.urlsplit(self.urls[i])
        return http.client.HTTPConnection(where.hostname, where.port, timeout=WAIT_S)

    def ask(self, i, method, path, data=None, **headers):
        """(status, text)"""
        connection = self.connect(i)
        body = None
        if data is not None:
            body = data if isinstance(data, (str, bytes)) else json.dumps(data)
            headers = {"Content-Type": "application/json", **headers}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def post(self, i, path, **data):
        """The answer as JSON; it must be one."""
        status, text = self.ask(i, "POST", path, data)
        if status != 200:
            raise AssertionError(f"{path} {data}: {status} {text}")
        return json.loads(text)

    def complete(self, i, **data):
        return self.post(i, "/v1/completions", **data)

    def chat(self, i, *messages, **data):
        """messages: (role, text)"""
        return self.post(i, "/v1/chat/completions",
                         messages=[{"role": r, "content": t} for r, t in messages], **data)

    def stream(self, i, path, **data):
        """The events of a stream, the last of which says that it is done."""
        status, text = self.ask(i, "POST", path, {"stream": True, **data})
        if status != 200:
            raise AssertionError(f"{path} {data}: {status} {text}")
        events = [part.removeprefix("data: ") for part in text.removesuffix("\n\n").split("\n\n")]
        if events[-1] != "[DONE]":
            raise AssertionError(f"no end: {text}")
        return [json.loads(e) for e in events[:-1]]

    def metrics(self, i):
        """{name with labels, but those of the engine: value}"""
        values = {}
        for line in self.ask(i, "GET", "/metrics")[1].splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'model_name="[^"]*",?|engine="[^"]*",?', "", name)
                values[name.replace("{}", "").replace(",}", "}")] = float(value)
        return values
