"""A publisher of KV events that says what it is told to, right or wrong: ZeroMQ's protocol on a plain
socket (ZMTP 3.0, NULL security), and enough of msgpack for batches.
"""

import socket
import struct
import threading

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)


def ready(kind):
    body = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    return bytes([4, len(body)]) + body


def frame(body, more):
    if len(body) < 256:
        return bytes([int(more), len(body)]) + body
    return bytes([int(more) | 2]) + struct.pack(">Q", len(body)) + body


def text(value):
    data = value.encode() if isinstance(value, str) else value
    return bytes([0xa0 | len(data)]) + data if len(data) < 32 else b"\xd9" + bytes([len(data)]) + data


def number(value):
    return b"\xcf" + struct.pack(">Q", value)


def array(*items):
    return b"\xdc" + struct.pack(">H", len(items)) + b"".join(items)


NIL = b"\xc0"


def stored(hashes, parent=None, tokens=(), block_size=16, medium="GPU", group=0,
           keys=NIL):
    return array(text("BlockStored"), array(*map(number, hashes)),
                 NIL if parent is None else number(parent), array(*map(number, tokens)),
                 number(block_size), NIL, text(medium), NIL, keys, number(group))


def removed(hashes, medium="GPU", group=0):
    return array(text("BlockRemoved"), array(*map(number, hashes)), text(medium), number(group))


CLEARED = array(text("AllBlocksCleared"))


def batch(*events, time=1.5, rank=0):
    return array(b"\xcb" + struct.pack(">d", time), array(*events), number(rank))


class FakeSocket:
    """Whoever connects is handed to talk(), in a thread."""

    kind = b""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)  # accept() would hold it open
        self.listener.close()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.greet, args=(peer,), daemon=True).start()

    def greet(self, peer):
        try:
            with peer:
                peer.sendall(GREETING)
                self.receive(peer, 64)
                peer.sendall(ready(self.kind))
                self.receive_frame(peer)
                self.talk(peer)
        except OSError:
            pass

    def receive_frame(self, peer):
        return self.receive(peer, self.receive(peer, 2)[1])

    @staticmethod
    def receive(peer, count):
        data = b""
        while len(data) < count:
            more = peer.recv(count - len(data))
            if not more:
                raise OSError("closed")
            data += more
        return data


class FakePublisher(FakeSocket):
    """Sends the messages, each (number, payload), to everyone who subscribes."""

    kind = b"PUB"

    def __init__(self, *messages):
        self.messages = messages
        super().__init__()

    def talk(self, peer):
        self.receive_frame(peer)  # the subscription
        for at, payload in self.messages:
            peer.sendall(frame(b"", True) + frame(struct.pack(">Q", at), True) +
                         frame(payload, False))
        while peer.recv(4096):
            pass


class FakeReplay(FakeSocket):
    """Sends those of the messages whose number is not below the one asked for, and the end: what
    vLLM's publisher does, which takes a request for the whole index for a very large number. With an
    index, (number, payload) too, that request is understood."""

    kind = b"ROUTER"

    def __init__(self, *messages, index=()):
        self.messages, self.index = messages, index
        super().__init__()

    def talk(self, peer):
        while True:
            self.receive_frame(peer)  # empty
            request = self.receive_frame(peer)
            messages = self.index if request == b"snapshot" else [
                (at, payload) for at, payload in self.messages
                if at >= struct.unpack(">Q", request)[0]]
            for at, payload in (*messages, (2 ** 64 - 1, b"")):
                peer.sendall(frame(b"", True) + frame(struct.pack(">Q", at), True) +
                             frame(payload, False))
