"""The object store tier under quire._connector, with a server in this process. Needs no vLLM."""
import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("quire._connector")

from test_connector import Engine, Memory, connector, hashes_of, tier

FINGERPRINT = connector.fingerprint({"model": "toy"})


class Store(BaseHTTPRequestHandler):
    """HEAD, GET, PUT and DELETE of a bucket that believes every signature."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", size=None):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if size is None else size))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        found = self.server.objects.get(self.path)
        self.answer(404 if found is None else 200, size=len(found or b""))

    def do_GET(self):
        found = self.server.objects.get(self.path)
        self.answer(404 if found is None else 200, found or b"")

    def do_PUT(self):
        self.server.objects[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200)

    def do_DELETE(self):
        self.server.objects.pop(self.path, None)
        self.answer(204)

    def log_message(self, *_given):
        pass


@pytest.fixture
def store():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.objects, server.daemon_threads = {}, True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def object_tier(port, **more):
    return {"kind": "object", "label": "object", "endpoint": f"http://127.0.0.1:{port}",
            "bucket": "kv-blocks", "access_key": "a", "secret_key": "s",
            "fingerprint": FINGERPRINT} | more


def engine(store, num_ranks):
    tiers = [[object_tier(store.server_address[1])] for _ in range(num_ranks)]
    return Engine(num_ranks, tiers, tiers=tier(label="object", medium="OBJ", is_shared=1))


@pytest.mark.parametrize("num_ranks", [1, 2])
def test_objects_are_found_by_another_engine(store, num_ranks):
    rng = random.Random(num_ranks)
    tokens = [rng.randrange(250) for _ in range(61)]
    first = engine(store, num_ranks)
    assert first.serve("a", tokens) == 0
    first.settle()
    assert first.planner.stats()["tiers"][0]["stored_blocks"] == 15
    assert len(store.objects) == 15 * num_ranks and all("/kv-blocks/quire/" in name for name in store.objects)
    second = engine(store, num_ranks)
    assert second.serve("b", tokens) == 60
    second.settle()
    assert second.planner.stats()["tiers"][0]["hit_tokens"] == 60
    for each in first.ranks + second.ranks:
        assert each.worker.close(1_000_000_000)


def test_a_corrupt_object_is_computed(store):
    tokens = list(range(61))
    first = engine(store, 1)
    first.serve("a", tokens)
    first.settle()
    (name,) = (name for name in store.objects if hashes_of(tokens)[3].hex() in name)
    bad = bytearray(store.objects[name])
    bad[-1] ^= 1
    store.objects[name] = bytes(bad)
    second = engine(store, 1)
    assert second.serve("b", tokens) == 12  # what is before the bad block
    second.settle()
    for each in first.ranks + second.ranks:
        assert each.worker.close(1_000_000_000)


@pytest.mark.parametrize("more, sentence", [
    ({"bucket": None}, "bucket"),
    ({"endpoint": "http://192.0.2.1:9000"}, "TLS|https|trust_network"),
    ({"fingerprint": b""}, "fingerprint"),
    ({"connections": 1000}, "connections"),
])
def test_object_tiers_that_are_refused(more, sentence):
    with pytest.raises(ValueError, match=sentence):
        Memory(tiers=[object_tier(9, **more)])
