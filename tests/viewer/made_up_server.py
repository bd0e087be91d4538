#!/usr/bin/env python3
"""A server that speaks as quire/http.h does, with an engine that is made up, so that the page can
be shown any state: stalled, lost, started again, hours of steps at once.

    tests/viewer/made_up_server.py [--port 8080] [--speed 1] [--before 0]
"""

import argparse
import base64
import hashlib
import json
import queue
import random
import re
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

sys.dont_write_bytecode = True
from pages import assembled

COLUMNS = ("step", "time_us", "running", "waiting", "skipped", "scheduled", "new", "resumed",
           "preempted", "finished", "tokens", "prefill_tokens", "draft_tokens", "query_tokens",
           "hit_tokens", "external_tokens", "empty", "cached", "active", "swap_slots", "pinned",
           "file_total", "file_empty", "file_cached", "file_active", "file_pinned", "file_stored",
           "file_loaded", "file_hit_tokens", "file_failed",
           "schedule_us", "update_us")
KEPT_STEPS = 4096
BLOCK = 16
FILE_BLOCKS = 9000
MAP_CELLS = 4096


class Engine:
    """Requests come, get blocks, give them back as cached ones; the last is preempted when none is
    left. Steps take 20 ms of its own clock."""

    def __init__(self, seed=1, total=4000, swap=512, rate=0.12):
        self.random = random.Random(seed)
        self.total, self.swap, self.rate = total, swap, rate
        self.step, self.time_us = 0, 1_700_000_000
        self.running, self.waiting = [], []
        self.cached = 0
        self.steps, self.events = [], []
        self.sums = dict.fromkeys(("preempted", "query_tokens", "hit_tokens"), 0)

    @property
    def active(self):
        return sum(request["blocks"] for request in self.running)

    def arrive(self):
        wave = 1 + 0.9 * (1 if (self.step // 900) % 2 else -0.6)
        while self.random.random() < self.rate * wave:
            self.waiting.append({"prompt": int(200 + self.random.expovariate(1 / 900)),
                                 "left": int(20 + self.random.expovariate(1 / 150)), "blocks": 0})

    def tell(self, kind, blocks):
        self.events.append({"kind": kind, "group": 0, "blocks": blocks,
                            "hash": f"{self.random.getrandbits(64):016x}",
                            "parent": f"{self.random.getrandbits(64):016x}"
                            if self.random.random() < 0.8 else None})

    def take(self, blocks):
        empty = self.total - self.active - self.cached
        if blocks > empty + self.cached:
            return False
        if blocks > empty:
            self.cached -= blocks - empty
            for _ in range(blocks - empty):
                self.tell("removed", 1)
        return True

    def admit(self, row):
        while self.waiting and len(self.running) < 64 and row["prefill_tokens"] < 8192:
            request = self.waiting[0]
            needed = request["prompt"] // BLOCK + 1
            hit = min(int(self.random.triangular(0, 0.9, 0.6) * request["prompt"]) // BLOCK,
                      self.cached)
            self.cached -= hit
            if not self.take(needed):  # those of the hit count as empty now
                self.cached += hit
                break
            self.waiting.pop(0)
            request["blocks"] = needed
            self.running.append(request)
            self.tell("stored", needed - hit)
            row["new"] += 1
            row["query_tokens"] += request["prompt"]
            row["hit_tokens"] += hit * BLOCK
            row["prefill_tokens"] += request["prompt"] - hit * BLOCK

    def decode(self, row):
        for request in list(self.running):
            if request not in self.running:
                continue
            request["left"] -= 1
            request["prompt"] += 1
            if request["prompt"] % BLOCK == 0:
                while not self.take(1):
                    loser = self.running.pop()
                    self.waiting.insert(0, loser)
                    self.cached += loser["blocks"]
                    row["preempted"] += 1
                    if loser is request:
                        break
                else:
                    request["blocks"] += 1
                    self.tell("stored", 1)
            if request["left"] <= 0 and request in self.running:
                self.running.remove(request)
                self.cached += request["blocks"]
                row["finished"] += 1

    def file_row(self):
        """A tier that fills, with copies on the way."""
        cached, active = min(FILE_BLOCKS - 40, 3 * self.step), 1 + self.step % 30
        return {"file_total": FILE_BLOCKS, "file_cached": cached, "file_active": active,
                "file_empty": FILE_BLOCKS - cached - active, "file_pinned": 0,
                "file_stored": 3 * self.step, "file_loaded": self.step // 2,
                "file_hit_tokens": BLOCK * (self.step // 2), "file_failed": self.step // 100}

    def block_map(self, name, medium):
        """As /blocks has it, of the last step; each block keeps its place in a shuffled order."""
        row = dict(zip(COLUMNS, self.steps[-1] if self.steps else [0] * len(COLUMNS)))
        prefix = "" if name == "gpu" else f"{name}_"
        total = 1 + (self.total if name == "gpu" else FILE_BLOCKS)
        cell_blocks = -(-total // MAP_CELLS)
        counts = {state: row[prefix + state] for state in ("pinned", "active", "cached")}
        order = list(range(1, total))
        random.Random(5).shuffle(order)
        cells = {state: [0] * -(-total // cell_blocks) for state in counts}
        for place, block in enumerate(order):
            for state, first, end in (("pinned", 0, counts["pinned"]), ("active", 0, counts["active"]),
                                      ("cached", counts["active"], counts["active"] + counts["cached"])):
                cells[state][block // cell_blocks] += first <= place < end
        return {"name": name, "medium": medium, "first_step": row["step"], "last_step": row["step"],
                "after": "schedule", "total": total, "null": 1, **counts,
                "empty": total - 1 - counts["active"] - counts["cached"], "cell_blocks": cell_blocks,
                "cells": cells}

    def make_step(self, arrivals=True):
        row = dict.fromkeys(COLUMNS, 0)
        if arrivals:
            self.arrive()
        self.decode(row)
        row["tokens"] = len(self.running)
        self.admit(row)
        self.step += 1
        self.time_us += int(self.random.uniform(14000, 26000)) + 4 * row["prefill_tokens"]
        row["tokens"] += row["prefill_tokens"]
        held_up = min(len(self.waiting), self.step // 200 % 4)
        row.update(step=self.step, time_us=self.time_us, running=len(self.running),
                   waiting=len(self.waiting) - held_up, skipped=held_up, active=self.active,
                   cached=self.cached, empty=self.total - self.active - self.cached,
                   swap_slots=min(self.swap, 6 * len(self.waiting)), pinned=self.active // 5,
                   schedule_us=round(2 + 0.09 * len(self.running) + self.random.random(), 3),
                   update_us=round(1 + 0.04 * len(self.running) + self.random.random(), 3))
        row.update(self.file_row())
        for name in self.sums:
            self.sums[name] += row[name]
        self.steps.append(list(row.values()))
        del self.steps[:-KEPT_STEPS]
        return self.steps[-1]


class Server:
    """All streams are told what `make` makes; an engine may be put in the place of another."""

    def __init__(self, page, engine, port=0, token=None):
        self.page, self.engine, self.token, self.port = page, engine, token, port
        self.lock = threading.Lock()
        self.started = time.time()
        self.streams, self.sockets, self.asked = set(), set(), []
        self.is_mute = False  # answers nothing, and does not say so
        self.version = 1
        self.order = COLUMNS  # of the columns that are sent
        self.has_maps = True  # None: the server knows no maps

    def start(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                server.sockets.add(self.connection)

            def do_GET(self):
                try:
                    server.answer(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.http.daemon_threads = True
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        for stream in list(self.streams):
            stream.put(None)
        for sock in list(self.sockets):
            try:
                sock.shutdown(2)
            except OSError:
                pass
        self.sockets.clear()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/" + (f"?token={self.token}" if self.token else "")

    def meta(self):
        tiers = [{"name": "gpu", "medium": "GPU", "total": self.engine.total + 1, "null": 1}]
        if self.engine.swap:
            tiers += [{"name": "swap", "medium": "CPU", "total": self.engine.swap, "null": 0},
                      {"name": "file", "medium": "DISK", "total": FILE_BLOCKS, "null": 0}]
        return {"title": "Made <up>", "model": "toy-8b", "gpu": "H200", "engine": "0",
                "version": "0.1.0", "started": self.started, "num_blocks": self.engine.total + 1,
                "total_blocks": self.engine.total, "block_size": BLOCK, "tiers": tiers,
                "max_num_seqs": 64}

    # ---- steps --------------------------------------------------------------

    def make(self, count=1, arrivals=True, told=True):
        """Makes steps and tells them in one message; untold ones are only in /snapshot."""
        with self.lock:
            rows = [self.engine.make_step(arrivals) for _ in range(count)]
            events, self.engine.events = self.engine.events, []
            if told:
                self.tell("steps", {"steps": self.ordered(rows), "skipped": 0})
                self.tell("kv", {"events": events[-200:], "skipped": len(events[:-200])})

    def ordered(self, rows):
        places = [COLUMNS.index(name) if name in COLUMNS else 0 for name in self.order]
        return [[row[place] for place in places] for row in rows]

    def tell(self, name, message):
        for stream in list(self.streams):
            stream.put(f"event: {name}\nid: {self.engine.step}\ndata: {json.dumps(message)}\n\n")

    # ---- requests -----------------------------------------------------------

    def answer(self, request):
        parts = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.asked.append(parts.path)
        while self.is_mute:
            time.sleep(0.05)
        if self.token is not None and query.get("token") != self.token:
            self.send(request, 401, "text/plain", "no token\n")
        elif parts.path == "/":
            self.send(request, 200, "text/html; charset=utf-8", self.page, csp=policy(self.page))
        elif parts.path == "/events":
            self.stream(request)
        elif parts.path == "/snapshot":
            self.send_json(request, self.snapshot(int(query["after"]), int(query["limit"])))
        elif parts.path == "/blocks" and self.has_maps is not None:
            self.send_json(request, self.blocks())
        elif parts.path == "/healthz":
            self.send_json(request, {"status": "ok", "step": self.engine.step})
        elif parts.path == "/metrics":
            self.send(request, 200, "text/plain; version=0.0.4", self.metrics())
        else:
            self.send(request, 404, "text/plain", "not found\n")

    def send(self, request, status, kind, text, csp=None):
        body = text.encode()
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        if csp:
            request.send_header("Content-Security-Policy", csp)
        request.end_headers()
        request.wfile.write(body)

    def send_json(self, request, value):
        self.send(request, 200, "application/json", json.dumps(value))

    def snapshot(self, after, limit):
        with self.lock:
            rows = [row for row in self.engine.steps if row[0] > after][:limit]
        return self.message(rows)

    def blocks(self):
        with self.lock:
            maps = [self.engine.block_map("gpu", "GPU")]
            if self.engine.swap:
                maps.append(self.engine.block_map("file", "DISK"))
        if not self.engine.steps or not self.has_maps:
            maps = []
        return {"version": 1, "map_ms": 50 if self.has_maps else 0, "maps": maps}

    def message(self, rows):
        return {"version": self.version, "meta": self.meta(), "columns": self.order,
                "steps": self.ordered(rows)}

    def metrics(self):
        with self.lock:
            engine, last = self.engine, dict(zip(COLUMNS, (self.engine.steps or [[0] * 22])[-1]))
            numbers = {"quire_steps_total": engine.step,
                       "quire_preemptions_total": engine.sums["preempted"],
                       "quire_prefix_cache_queries_total": engine.sums["query_tokens"],
                       "quire_prefix_cache_hits_total": engine.sums["hit_tokens"],
                       "quire_requests_running": len(engine.running)}
            for state in ("empty", "cached", "active"):
                numbers[f'quire_blocks{{tier="gpu",medium="GPU",state="{state}"}}'] = last[state]
            for reason, name in (("capacity", "waiting"), ("deferred", "skipped")):
                numbers[f'quire_requests_waiting_by_reason{{reason="{reason}"}}'] = last[name]
        return "".join(f"{name} {number}\n" for name, number in numbers.items())

    def stream(self, request):
        mine = queue.Queue()
        with self.lock:
            hello = self.message(self.engine.steps[-512:])
            self.streams.add(mine)
        try:
            request.send_response(200)
            request.send_header("Content-Type", "text/event-stream")
            request.send_header("Cache-Control", "no-store")
            request.end_headers()
            text = f"event: hello\ndata: {json.dumps(hello)}\n\n"
            while text is not None:
                request.wfile.write(text.encode())
                request.wfile.flush()
                text = mine.get()
        finally:
            self.streams.discard(mine)
            request.close_connection = True


def policy(page):
    """What the server says about the page: only its own script and style, only its own server."""
    found = {name: re.search(f"<{name}>(.*?)</{name}>", page, re.S)[1] for name in
             ("script", "style")}
    hashes = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
              for name, text in found.items()}
    return (f"default-src 'none'; script-src 'sha256-{hashes['script']}'; "
            f"style-src 'sha256-{hashes['style']}'; connect-src 'self'; img-src data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--speed", type=float, default=1)
    parser.add_argument("--before", type=int, default=0, help="steps made before anybody looks")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(assembled(Path(folder)), Engine(), args.port).start()
    server.make(args.before, told=False)
    print(server.url, flush=True)
    while True:
        server.make(max(1, round(5 * args.speed)))
        time.sleep(0.1)


if __name__ == "__main__":
    main()
