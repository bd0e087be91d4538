#!/usr/bin/env python3
"""`quire serve --engines N` from outside: clients, metrics and KV events of several live engines.

    tests/cli/program/test_engines.py QUIRE
"""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from engines_kit import ANY, LONG, MODEL, Engines, tokens_of, words_of
from serve_kit import report, run, until, write_private

QUIRE = ""
BLOCK = 16


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def index_of(it, i):
    """The blocks of engine i as the project's own subscriber has them: {hash: tokens}."""
    text = run(QUIRE, "events", it.events[i], "--replay-events", it.replay[i], "--json", "--check",
               "--compare", "--from-start", "--seconds", "0.5")
    blocks, summary = {}, None
    for event in map(json.loads, text.splitlines()):
        if event.get("rank", i) != i:
            raise AssertionError(f"engine {i}: {event}")
        if event["kind"] == "stored":
            ids, n = event["token_ids"], event["block_size"]
            for k, block in enumerate(event["block_hashes"]):
                blocks[block] = ids[k * n:(k + 1) * n]
        if event["kind"] == "summary":
            summary = event
    return blocks, summary


def ports_in_a_row(count):
    """The first of so many free ports, below those that the system gives to connections."""
    for first in random.sample(range(15000, 32000, count), 100):
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                return first
            except OSError:
                continue
    raise unittest.SkipTest(f"no {count} free ports in a row")


class Caches(unittest.TestCase):
    def test_two_of_four(self):
        """Two of four engines are followed: what one has cached, its clients, its metrics and its events
        say alike, and the others know nothing of it."""
        ids = tokens_of(LONG)
        whole = (len(ids) - 1) // BLOCK * BLOCK
        with Engines(QUIRE, 4, "--speed", "20", "--event-tokens") as it:
            self.assertEqual(cached(it.complete(1, prompt=LONG, max_tokens=1)), 0)
            self.assertEqual(cached(it.complete(1, prompt=LONG, max_tokens=1)), whole)
            self.assertEqual(cached(it.complete(1, prompt=ids[:40] + [1] * 40, max_tokens=1)), 32)
            self.assertEqual(cached(it.complete(1, prompt=LONG, max_tokens=1, cache_salt="s")), 0)
            self.assertEqual(cached(it.complete(3, prompt=LONG, max_tokens=1)), 0)
            one, said = index_of(it, 1)
            three, _ = index_of(it, 3)
            self.assertEqual((said["check"], said["gaps"], said["compare"]["differing"]), ("passed", 0, 0))
            blocks = [ids[k:k + BLOCK] for k in range(0, whole, BLOCK)]
            self.assertEqual(sorted(three.values()), sorted(blocks))
            self.assertEqual(len(one), 2 * len(blocks) + 3)  # also those of the salt, 3 of 80 tokens
            self.assertLess(set(three), set(one))  # the same names in all engines
            for i, hits in ((0, 0), (1, whole + 32), (2, 0), (3, 0)):
                self.assertEqual(it.metrics(i)["vllm:prefix_cache_hits_total"], hits)
            self.assertEqual(it.metrics(1)["vllm:prefix_cache_queries_total"], 3 * len(ids) + 80)
            self.assertEqual(it.metrics(2)["vllm:prompt_tokens_total"], 0)
            text = it.ask(3, "GET", "/metrics")[1]
            self.assertIn(f'vllm:prompt_tokens_total{{model_name="{MODEL}",engine="3"}} {len(ids)}', text)

    def test_turns(self):
        """The answer of a turn is found in the next one: but its last token, whose KV nobody computed."""
        with Engines(QUIRE, 1, "--speed", "50", "--answer-tokens", "70", events=False) as it:
            turns = [("system", LONG), ("user", "And then?")]
            for _ in range(3):
                answer = it.chat(0, *turns)
                known = answer["usage"]["total_tokens"] - 1
                turns += [("assistant", words_of(answer)), ("user", "Go on!")]
                more = it.chat(0, *turns, max_tokens=1)
                self.assertEqual(cached(more), known // BLOCK * BLOCK)

    def test_profiles(self):
        """All schedulers that replay has, with a pool of 40 blocks that evicts, and host memory behind it."""
        for args, from_host in ((("--profile", "vllm-0.20"), 0), (("--profile", "vllm-0.32"), 0),
                                (("--async-scheduling",), 0), (("--cpu-blocks", "400"), 112),
                                (("--scheduling-policy", "priority"), 0), (("--speed", "max"), 0)):
            with Engines(QUIRE, 1, "--speed", "50", "--num-gpu-blocks", "41", "--max-model-len", "600",
                         *args) as it:
                for text in (LONG, LONG, "a" * 2300, "b" * 2300, LONG):
                    answer = it.complete(0, prompt=text, max_tokens=8)
                    self.assertEqual(answer["usage"]["completion_tokens"], 8, args)
                self.assertEqual(cached(answer), from_host, args)
                self.assertEqual(index_of(it, 0)[1]["check"], "passed")
                self.assertEqual(it.interrupt()[0], 0)

    def test_priority(self):
        """With one place, the most urgent of those that wait is served first."""
        with Engines(QUIRE, 1, "--scheduling-policy", "priority", "--max-num-seqs", "1",
                     "--speed", "0.5", events=False) as it:
            order = []

            def ask(name, priority):
                it.complete(0, prompt=name * 20, max_tokens=20, priority=priority)
                order.append(name)
            threads = [threading.Thread(target=ask, args=a) for a in (("a", 0), ("b", 5), ("c", 1))]
            for thread in threads:
                thread.start()
                time.sleep(0.03)
            for thread in threads:
                thread.join()
            self.assertEqual(order, ["a", "c", "b"])


class Time(unittest.TestCase):
    def test_pace(self):
        """Answers take their simulated time, divided by the speed."""
        for speed in (1, 4):
            with Engines(QUIRE, 1, "--speed", str(speed), events=False) as it:
                start = time.monotonic()
                it.complete(0, prompt=LONG, max_tokens=100)
                took = time.monotonic() - start
                simulated = it.metrics(0)["vllm:e2e_request_latency_seconds_sum"]
            self.assertGreater(took, 0.99 * simulated / speed)
            self.assertLess(took, simulated / speed + 0.5)
            self.assertGreater(simulated, 0.3)

    def test_stream_paces(self):
        """Tokens come one by one, as steps end: not all at the end."""
        with Engines(QUIRE, 1, "--speed", "0.25", events=False) as it:
            connection = it.connect(0)
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "x", "max_tokens": 25, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            times = []
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    times.append(time.monotonic())
            connection.close()
            itl = it.metrics(0)["vllm:inter_token_latency_seconds_sum"]
        self.assertIn(len(times), range(20, 26))  # two tokens may come together
        self.assertGreater(times[-1] - times[0], 0.9 * 4 * itl)
        self.assertGreater(times[10] - times[0], 0.3 * (times[-1] - times[0]))

    def test_waits_for_the_step(self):
        """A request that comes while a step is computed waits for its end, from the time at which it came."""
        with Engines(QUIRE, 1, "--speed", "0.2", events=False) as it:
            first = threading.Thread(target=it.complete, args=(0,),
                                     kwargs={"prompt": list(range(8000)), "max_tokens": 1})
            first.start()
            until(lambda: it.metrics(0)["vllm:num_requests_running"] == 1, "a long step")
            it.complete(0, prompt="x", max_tokens=1)
            first.join()
            m = it.metrics(0)
        self.assertEqual(m["vllm:request_queue_time_seconds_count"], 2)
        self.assertGreater(m["vllm:request_queue_time_seconds_sum"], 0.5 * 0.1)
        self.assertLess(m["vllm:request_queue_time_seconds_sum"], 0.3)

    def test_same_as_replay(self):
        """The first token takes what `quire replay` says that it takes."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "one.jsonl")
            with open(trace, "w", encoding="utf-8") as file:
                file.write('{"timestamp": 0, "input_length": 5000, "output_length": 20, "hash_ids": '
                           + json.dumps(list(range(10))) + "}\n")
            wanted = report(QUIRE, trace)
        with Engines(QUIRE, 1, "--speed", "10", events=False) as it:
            it.complete(0, prompt=list(range(5000)), max_tokens=20)
            m = it.metrics(0)
        for name, key in (("time_to_first_token_seconds", "ttft_ms"), ("e2e_request_latency_seconds", "e2e_ms")):
            self.assertAlmostEqual(m[f"vllm:{name}_sum"] * 1e3, wanted[key]["mean"], delta=0.01)


class Crowds(unittest.TestCase):
    def test_many_clients(self):
        """Everything that clients were told adds up to what the metrics say."""
        sums = [{"prompt_tokens": 0, "completion_tokens": 0, "cached": 0, "requests": 0} for _ in range(3)]
        lock, failures = threading.Lock(), []

        def client(it, n):
            try:
                for k in range(6):
                    i, length = (n + k) % 3, 1 + (7 * n + k) % 40
                    prompt = LONG[:80 + 16 * (n % 5)] + str(k)
                    if n % 2:
                        answer = it.stream(i, "/v1/completions", prompt=prompt, max_tokens=length,
                                           stream_options={"include_usage": True})[-1]
                    else:
                        answer = it.complete(i, prompt=prompt, max_tokens=length)
                    if answer["usage"]["completion_tokens"] != length:
                        raise AssertionError(answer)
                    with lock:
                        sums[i]["requests"] += 1
                        sums[i]["cached"] += cached(answer)
                        for key in ("prompt_tokens", "completion_tokens"):
                            sums[i][key] += answer["usage"][key]
            except Exception as error:
                failures.append(error)
        with Engines(QUIRE, 3, "--speed", "10") as it:
            threads = [threading.Thread(target=client, args=(it, n)) for n in range(48)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            for i in range(3):
                m = it.metrics(i)
                self.assertEqual(sums[i]["requests"], 96)
                self.assertEqual(m['vllm:request_success_total{finished_reason="length"}'], 96)
                self.assertEqual(m["vllm:prompt_tokens_total"], sums[i]["prompt_tokens"])
                self.assertEqual(m["vllm:generation_tokens_total"], sums[i]["completion_tokens"])
                self.assertEqual(m["vllm:prefix_cache_hits_total"], sums[i]["cached"])
                self.assertGreater(sums[i]["cached"], 0)
                self.assertEqual(m["vllm:num_requests_running"], 0)
            self.assertEqual(it.interrupt()[0], 0)

    def test_more_clients_than_descriptors(self):
        """As many clients as the hard limit of descriptors allows, whatever the soft limit is."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        low = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
        with Engines(QUIRE, 1, events=False, preexec_fn=low) as it:
            clients = [self.open_raw(it, prompt="x", max_tokens=100000) for _ in range(300)]
            until(lambda: sum(it.metrics(0)[f"vllm:num_requests_{k}"] for k in ("running", "waiting")) == 300,
                  "300 requests")
            for raw in clients:
                raw.close()

    def open_raw(self, it, **data):
        """A socket that has sent a request, and reads nothing."""
        body = json.dumps(data)
        raw = socket.create_connection(it.urls[0].removeprefix("http://").split(":"))
        raw.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
        self.addCleanup(raw.close)
        return raw

    def test_clients_leave(self):
        """Running and waiting, streams and whole answers: who leaves is aborted, and nobody else."""
        with Engines(QUIRE, 1, "--max-num-seqs", "2", "--speed", "5", events=False) as it:
            stay = threading.Thread(target=lambda: done.append(it.complete(0, prompt="stay", max_tokens=400)))
            done = []
            stay.start()
            until(lambda: it.metrics(0)["vllm:num_requests_running"] == 1, "one that runs")
            leaving = [self.open_raw(it, prompt="leave", max_tokens=100000, stream=k % 2 == 0)
                       for k in range(4)]
            until(lambda: it.metrics(0)["vllm:num_requests_waiting"] == 3, "three that wait")
            for raw in leaving:
                raw.close()
            aborted = 'vllm:request_success_total{finished_reason="abort"}'
            until(lambda: it.metrics(0)[aborted] == 4, "four aborts")
            m = it.metrics(0)
            self.assertEqual((m["vllm:num_requests_running"], m["vllm:num_requests_waiting"]), (1, 0))
            stay.join()
            self.assertEqual(done[0]["usage"]["completion_tokens"], 400)
            self.assertEqual(done[0]["choices"][0]["finish_reason"], "length")

    def test_leave_before_the_scheduler(self):
        """Requests for which the scheduler has no room yet wait outside, in order; some of them leave."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "r.json")
            with Engines(QUIRE, 1, "--max-num-seqs", "1", "--max-model-len", "64", "--speed", "0.1", "--json",
                         path, events=False) as it:
                order, stay = [], []

                def ask(name):
                    if it.complete(0, prompt=name * 160, max_tokens=20)["usage"]["completion_tokens"] == 20:
                        order.append(name)
                for name in "abcdef":
                    if name in "ce":
                        leaving = self.open_raw(it, prompt=name * 160, max_tokens=20)
                        stay.append(leaving)
                    else:
                        stay.append(threading.Thread(target=ask, args=name))
                        stay[-1].start()
                    time.sleep(0.05)
                for one in stay:
                    if isinstance(one, socket.socket):
                        one.close()
                for one in stay:
                    if isinstance(one, threading.Thread):
                        one.join()
                self.assertEqual(order, list("abdf"))
                self.assertEqual(it.interrupt()[0], 0)
            with open(path, encoding="utf-8") as file:
                r = json.load(file)["engines"][0]
        self.assertEqual((r["asked"], r["requests"], r["aborted"], r["unfinished"]), (6, 4, 2, 0))

    def test_slow_reader(self):
        """A client that reads nothing until the end misses nothing, and holds up nobody."""
        with Engines(QUIRE, 1, "--speed", "max", events=False) as it:
            raw = self.open_raw(it, prompt="slow", max_tokens=60000, stream=True)
            until(lambda: it.metrics(0)["vllm:generation_tokens_total"] == 60000, "all tokens")
            self.assertEqual(it.complete(0, prompt="quick")["usage"]["completion_tokens"], 16)
            with raw.makefile("rb") as file:
                lines = []
                while not lines or "[DONE]" not in lines[-1]:
                    lines.append(file.readline().decode())
                    self.assertNotEqual(lines[-1], "")
            chunks = [json.loads(x[6:])["choices"][0] for x in lines if x.startswith("data: {")]
            self.assertEqual(sum(len(c["text"]) for c in chunks), 4 * 60000)
            self.assertEqual(chunks[-1]["finish_reason"], "length")

    def test_stops_while_busy(self):
        """Clients get the end of their answers, and the report has what ran until then."""
        for number in (signal.SIGINT, signal.SIGTERM):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "r.json")
                with Engines(QUIRE, 2, "--max-num-seqs", "2", "--json", path) as it:
                    answers = []
                    whole = [threading.Thread(target=lambda: answers.append(
                        it.complete(0, prompt="x", max_tokens=100000))) for _ in range(3)]
                    stream = threading.Thread(target=lambda: answers.append(
                        it.stream(1, "/v1/completions", prompt="y", max_tokens=100000)[-1]))
                    for thread in (*whole, stream):
                        thread.start()
                    until(lambda: it.metrics(0)["vllm:num_requests_waiting"] == 1 and
                          it.metrics(1)["vllm:generation_tokens_total"] > 3, "busy engines")
                    status, text = it.interrupt(number)
                    for thread in (*whole, stream):
                        thread.join()
                with open(path, encoding="utf-8") as file:
                    r = json.load(file)
            self.assertEqual(status, 0)
            self.assertIn("engine", text)
            self.assertEqual([a["choices"][0]["finish_reason"] for a in answers], ["abort"] * 4)
            self.assertEqual([e["asked"] for e in r["engines"]], [3, 1])
            self.assertEqual([e["requests"] for e in r["engines"]], [0, 0])
            self.assertGreater(r["engines"][1]["output_tokens"], 3)
            self.assertEqual(r["made_by"]["options"]["engines"], 2)


class Traces(unittest.TestCase):
    def test_trace(self):
        """A trace is dealt to the engines: each request once, sessions whole, and clients beside it."""
        with tempfile.TemporaryDirectory() as folder:
            trace, path = os.path.join(folder, "t.jsonl"), os.path.join(folder, "r.json")
            run(QUIRE, "generate", "chat", "--requests", "60", "--rate", "10", "--out", trace)
            wanted = report(QUIRE, trace)
            with Engines(QUIRE, 3, "--speed", "20", "--hold", "--json", path, trace) as it:
                mine = [it.complete(i, prompt=LONG, max_tokens=10) for i in range(3)]
                until(lambda: "The trace has ended" in it.said(), "the end of the trace")
                self.assertEqual(it.interrupt()[0], 0)
            with open(path, encoding="utf-8") as file:
                r = json.load(file)["engines"]
        self.assertEqual(sum(e["requests"] for e in r), wanted["requests"] + 3)
        self.assertEqual(sum(e["output_tokens"] for e in r), wanted["output_tokens"] + 30)
        self.assertEqual(sum(e["prompt_tokens"] for e in r), wanted["prompt_tokens"] + 3 * len(tokens_of(LONG)))
        self.assertTrue(all(e["requests"] > 1 for e in r))
        self.assertEqual([a["usage"]["completion_tokens"] for a in mine], [10] * 3)
        self.assertGreater(sum(e["hit_tokens"] for e in r), 0.9 * wanted["hit_tokens"])

    def test_sessions_stay(self):
        """Each turn of an agent finds what the turns before have left, as in one engine for all."""
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.jsonl")
            run(QUIRE, "generate", "agent", "--requests", "60", "--rate", "10", "--out", trace)
            wanted = report(QUIRE, trace)
            r = json.loads(run(QUIRE, "serve", "--engines", "3", "--listen", "127.0.0.1:0", "--speed", "60",
                               "--quiet", "--json", "-", trace))["engines"]
        self.assertEqual(sum(e["requests"] for e in r), 60)
        self.assertEqual(sum(e["hit_tokens"] for e in r), wanted["hit_tokens"])
        self.assertTrue(all(e["requests"] > 1 for e in r))

    def test_ends_with_the_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.jsonl")
            run(QUIRE, "generate", "chat", "--requests", "10", "--rate", "100", "--out", trace)
            said = run(QUIRE, "serve", "--engines", "2", "--listen", "127.0.0.1:0", "--speed", "50", trace)
        self.assertEqual(len([x for x in said.splitlines() if x.startswith("engine ")]), 3)


class Options(unittest.TestCase):
    def test_token(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write_private(os.path.join(folder, "token"), "0123456789abcdef\n")
            with Engines(QUIRE, 1, "--token-file", path, "--page-listen", "127.0.0.1:0", events=False) as it:
                for header in ({}, {"Authorization": "Bearer 0123456789abcdee"},
                               {"Authorization": "Bearer 0123456789abcdef0"}, {"Authorization": "Bearer "}):
                    status, text = it.ask(0, "GET", "/v1/models", **header)
                    self.assertEqual(status, 401)
                    self.assertNotIn(MODEL, text)
                    self.assertEqual(it.ask(0, "POST", "/v1/completions", {"prompt": "x"}, **header)[0], 401)
                good = {"Authorization": "Bearer 0123456789abcdef"}
                self.assertEqual(it.ask(0, "GET", "/v1/models", **good)[0], 200)
                self.assertEqual(it.ask(0, "GET", "/health")[0], 200)

    def test_topics(self):
        """Each engine has its own topic, where it has its number or its port."""
        with Engines(QUIRE, 2, "--topic", "kv@127.0.0.1:{port}@m{engine}{") as it:
            for i in range(2):
                it.complete(i, prompt=LONG, max_tokens=1)
                port = it.urls[i].rsplit(":", 1)[1]
                for topic, status in ((f"kv@127.0.0.1:{port}@m{i}{{", 0), (f"kv@127.0.0.1:{port}@m{1 - i}", 1)):
                    follower = subprocess.Popen(
                        [QUIRE, "events", it.events[i], "--topic", topic, "--check", "--seconds", "2",
                         "--quiet"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                    time.sleep(0.7)
                    it.complete(i, prompt=f"{topic} {LONG}", max_tokens=1)
                    self.assertEqual(follower.wait(), status, topic)
        said = run(QUIRE, "serve", "--engines", "1", "--listen", "127.0.0.1:0", "--events", ANY, "--topic",
                   "t" * 256, status=1)
        self.assertIn("--topic is too long (at most 255 bytes)", said)

    def test_host(self):
        """A page that reaches the server under a name of its own reads nothing."""
        with Engines(QUIRE, 1, "--host", "engine.example,other", events=False) as it:
            for host, status in (("localhost", 200), ("LocalHost:99", 200), ("[::1]:8000", 200),
                                 ("10.1.2.3", 200), ("Engine.Example:80", 200), ("evil.example", 421),
                                 ("localhost.evil", 421), ("", 421), ("127.0.0.1.evil", 421)):
                self.assertEqual(it.ask(0, "GET", "/v1/models", Host=host)[0], status, host)
            self.assertEqual(it.ask(0, "POST", "/v1/completions", {"prompt": "x"}, Host="evil")[0], 421)

    def test_refused(self):
        ports = ("--events", "tcp://127.0.0.1:25557", "--replay-events", "tcp://127.0.0.1:25558")
        for args, part in ((("--engines", "0"), "--engines (expected 1..256)"),
                           (("--engines", "257"), "--engines (expected 1..256)"),
                           ((), "or --engines N"),
                           (("--answer-tokens", "3", "x.jsonl"), "--answer-tokens needs --engines"),
                           (("--served-model-name", "m", "x.jsonl"), "--served-model-name needs --engines"),
                           (("--page-listen", "127.0.0.1:0", "x"), "--page-listen needs --engines"),
                           (("--engines", "2", "--loop", "x"), "--engines and --loop"),
                           (("--engines", "2", "--speed", "max", "x"), "--speed max"),
                           (("--engines", "2", "--hold"), "--hold needs a TRACE"),
                           (("--engines", "2", "--listen", "127.0.0.1:65535"), "expected 1..65534"),
                           (("--engines", "2", "--listen", "0.0.0.0:0"), "give --token-file"),
                           (("--engines", "2", *ports), "25557..25558 and 25558..25559 of 2 engines overlap"),
                           (("--engines", "3", "--listen", "127.0.0.1:9000", "--page-listen", "127.0.0.1:9002"),
                            "9000..9002 and 9002..9004")):
            self.assertIn(part, run(QUIRE, "serve", *args, status=2), args)

    def test_ports(self):
        """The ports after the first; one that is taken is named."""
        port = ports_in_a_row(20)
        first = f"127.0.0.1:{port}"
        with Engines(QUIRE, 2, "--served-model-name", "m", listen=first, events=False) as it:
            self.assertEqual(it.urls, [f"http://{first}", f"http://127.0.0.1:{port + 1}"])
            self.assertEqual(it.complete(1, model="m", prompt="x")["model"], "m")
            said = run(QUIRE, "serve", "--engines", "1", "--listen", f"127.0.0.1:{port + 1}", status=1)
            events = f"tcp://127.0.0.1:{port + 10}"
            with Engines(QUIRE, 3, "--events", events, events=False, num_lines=6) as two:
                self.assertEqual(two.events, [f"tcp://127.0.0.1:{port + 10 + i}" for i in range(3)])
            self.assertIn(f"cannot listen on 127.0.0.1 port {port + 1}", said)


class Page(unittest.TestCase):
    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_example(self):
        """The commands of docs/live.md, at other ports, and what the page says of them."""
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/live.md")
        with open(page, encoding="utf-8") as file:
            part = file.read().split("## Engines for a router")[1]
        commands = part.split("```sh\n")[1].split("```")[0]
        port = ports_in_a_row(30)
        for old, new in (("800", port), ("555", port + 10), ("565", port + 20)):
            commands = re.sub(rf"\b{old}(\d)\b", lambda m, n=new: str(n + int(m[1])), commands)
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(os.path.abspath(QUIRE), os.path.join(folder, "quire"))
            env = {**os.environ, "PATH": folder + ":" + os.environ["PATH"]}
            said = subprocess.run(["bash", "-m", "-c", commands], env=env, capture_output=True, text=True,
                                  timeout=60)
        self.assertEqual(said.returncode, 0, said.stdout + said.stderr)
        self.assertEqual(re.findall(r'"cached_tokens":(\d+)', said.stdout), ["0", "16", "0"])
        self.assertIn('engine="1"} 16', said.stdout)
        self.assertIn("Check: passed", said.stdout)


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
