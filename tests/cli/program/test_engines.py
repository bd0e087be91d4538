#!/usr/bin/env python3
"""`quire serve --engines N` from outside: clients, metrics and KV events of several live engines.

    tests/cli/program/test_engines.py QUIRE
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from engines_kit import ASSISTANT, END, MODEL, SYSTEM, USER, Engines, tokens_of
from serve_kit import report, run, until, write_private

QUIRE = ""
BLOCK = 16
LONG = "The quick brown fox jumps over the lazy dog, again and again; " * 8  # 124 tokens


def words_of(answer):
    choice = answer["choices"][0]
    return choice["text"] if "text" in choice else choice["message"]["content"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def index_of(it, i):
    """The blocks of engine i as the project's own subscriber has them: {hash: tokens}."""
    text = run(QUIRE, "events", it.events[i], "--replay-events", it.replay[i], "--json", "--check",
               "--compare", "--from-start", "--seconds", "0.5")
    blocks, summary = {}, None
    for event in map(json.loads, text.splitlines()):
        if event["kind"] == "stored":
            ids, n = event["token_ids"], event["block_size"]
            for k, block in enumerate(event["block_hashes"]):
                blocks[block] = ids[k * n:(k + 1) * n]
        if event["kind"] == "summary":
            summary = event
    return blocks, summary


class Answers(unittest.TestCase):
    """One engine, that all of these share."""

    @classmethod
    def setUpClass(cls):
        cls.it = Engines(QUIRE, 1, "--speed", "20", events=False)

    @classmethod
    def tearDownClass(cls):
        cls.it.close()

    def test_models(self):
        status, text = self.it.ask(0, "GET", "/v1/models")
        model = json.loads(text)["data"][0]
        self.assertEqual((status, model["id"], model["max_model_len"]), (200, MODEL, 131072))
        self.assertEqual(self.it.ask(0, "GET", "/health"), (200, ""))
        self.assertIn("quire", json.loads(self.it.ask(0, "GET", "/version")[1])["version"])

    def test_completion(self):
        answer = self.it.complete(0, model=MODEL, prompt="Grüße aus München!", max_tokens=9,
                                  return_token_ids=True)
        choice = answer["choices"][0]
        self.assertEqual(answer["object"], "text_completion")
        self.assertEqual(choice["prompt_token_ids"], tokens_of("Grüße aus München!"))
        self.assertEqual(choice["token_ids"], tokens_of(choice["text"]))
        self.assertEqual(len(choice["token_ids"]), 9)
        self.assertEqual((choice["finish_reason"], choice["stop_reason"]), ("length", None))
        self.assertEqual(answer["usage"], {
            "prompt_tokens": len(tokens_of("Grüße aus München!")), "completion_tokens": 9,
            "total_tokens": len(tokens_of("Grüße aus München!")) + 9,
            "prompt_tokens_details": {"cached_tokens": 0}})

    def test_prompt_forms(self):
        """A text, its tokens, and each of them in an array, are one prompt with one answer."""
        ids = tokens_of(LONG)
        wanted = words_of(self.it.complete(0, prompt=LONG))
        for prompt in (ids, [LONG], [ids]):
            answer = self.it.complete(0, prompt=prompt)
            self.assertEqual(words_of(answer), wanted)
            self.assertEqual(answer["usage"]["prompt_tokens"], len(ids))
            self.assertEqual(answer["usage"]["completion_tokens"], 16)  # by default
        self.assertNotEqual(words_of(self.it.complete(0, prompt=LONG + "!")), wanted)

    def test_tokenize(self):
        said = self.it.post(0, "/tokenize", prompt="Hello, world")
        self.assertEqual((said["count"], said["tokens"]), (3, tokens_of("Hello, world")))
        said = self.it.post(0, "/tokenize", messages=[{"role": "user", "content": "Hello"}])
        self.assertEqual(said["tokens"], [USER, *tokens_of("Hello"), END, ASSISTANT])

    def test_chat(self):
        parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
        answer = self.it.post(0, "/v1/chat/completions", max_completion_tokens=4, return_token_ids=True,
                              messages=[{"role": "system", "content": "Be brief."},
                                        {"role": "user", "content": parts}])
        self.assertEqual(answer["object"], "chat.completion")
        self.assertEqual(answer["choices"][0]["message"]["role"], "assistant")
        self.assertEqual(answer["choices"][0]["prompt_token_ids"],
                         [SYSTEM, *tokens_of("Be brief."), END, USER, *tokens_of("ab"), *tokens_of("cd"),
                          END, ASSISTANT])
        self.assertEqual(answer["usage"]["completion_tokens"], 4)

    def test_stream(self):
        """A stream says what the whole answer says, token for token."""
        for path, data in (("/v1/completions", {"prompt": LONG}),
                           ("/v1/chat/completions", {"messages": [{"role": "user", "content": LONG}]})):
            data |= {"max_tokens": 40, "return_token_ids": True}
            whole = self.it.post(0, path, **data)
            events = self.it.stream(0, path, stream_options={"include_usage": True,
                                                             "continuous_usage_stats": True}, **data)
            *chunks, last = events
            chat = "chat" in path
            if chat:
                self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
                chunks = chunks[1:]
            choices = [c["choices"][0] for c in chunks]
            text = "".join(c["delta"]["content"] if chat else c["text"] for c in choices)
            self.assertEqual(text, words_of(whole))
            self.assertEqual(sum((c["token_ids"] for c in choices), []), whole["choices"][0]["token_ids"])
            self.assertEqual([c["finish_reason"] for c in choices], [None] * (len(choices) - 1) + ["length"])
            self.assertEqual(len({e["id"] for e in events}), 1)
            counts = [c["usage"]["completion_tokens"] for c in chunks]
            self.assertEqual(counts, sorted(set(counts)))
            self.assertEqual(last["choices"], [])
            self.assertEqual(last["usage"]["completion_tokens"], 40)
            self.assertGreater(len(chunks), 1)

    def test_request_id(self):
        body = {"prompt": "x", "max_tokens": 1}
        said = self.it.ask(0, "POST", "/v1/completions", body, **{"X-Request-Id": "a-7"})[1]
        self.assertEqual(json.loads(said)["id"], "cmpl-a-7")
        ids = {self.it.complete(0, **body)["id"] for _ in range(3)}
        self.assertEqual(len(ids), 3)

    def test_stop_token(self):
        ids = self.it.complete(0, prompt="stop there", return_token_ids=True)["choices"][0]["token_ids"]
        place = next(i for i in range(1, len(ids)) if ids[i] not in ids[:i])
        answer = self.it.complete(0, prompt="stop there", stop_token_ids=[7, ids[place]])
        self.assertEqual(answer["usage"]["completion_tokens"], place + 1)
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual(answer["choices"][0]["stop_reason"], ids[place])
        self.assertEqual(tokens_of(words_of(answer)), ids[:place])
        late = self.it.complete(0, prompt="stop there", stop_token_ids=[ids[place]], min_tokens=place + 2)
        self.assertGreater(late["usage"]["completion_tokens"], place + 1)

    def test_refusals(self):
        """The status, the field, and a sentence that has the value and what is allowed."""
        longest = 131072
        cases = (
            ({"prompt": "x", "max_tokens": 0}, 400, "max_tokens", "value 0", f"1..{longest - 1}"),
            ({"prompt": "x", "max_tokens": -1}, 400, "max_tokens", "value -1", "expected 1.."),
            ({"prompt": "x", "max_tokens": longest}, 400, "max_tokens", str(longest), f"1..{longest - 1}"),
            ({"prompt": "x", "max_tokens": 1.5}, 400, "max_tokens", "1.5", "expected 1.."),
            ({"prompt": "x", "max_tokens": "7"}, 400, "max_tokens", '"7"', "expected 1.."),
            ({"prompt": "x", "max_tokens": 4, "min_tokens": 5}, 400, "min_tokens", "value 5", "0..4"),
            ({"prompt": "x", "n": 2}, 400, "n", "value 2", "1..1"),
            ({"prompt": "x", "stop": ["."]}, 400, "stop", '["."]', "not supported"),
            ({"prompt": "x", "logprobs": 1}, 400, "logprobs", "value 1", "not supported"),
            ({"prompt": "x", "echo": True}, 400, "echo", "true", "not supported"),
            ({"prompt": "x", "stream": 1}, 400, "stream", "value 1", "true or false"),
            ({"prompt": "x", "stream_options": {"include_usage": True}}, 400, "stream_options", "stream"),
            ({"prompt": "x", "stream": True, "stream_options": {"other": 1}}, 400, "stream_options",
             "other", "include_usage"),
            ({"prompt": "x", "priority": 3}, 400, "priority", "value 3", "--scheduling-policy"),
            ({"prompt": "x", "cache_salt": ""}, 400, "cache_salt", '""', "1..127"),
            ({"prompt": "x", "cache_salt": "s" * 128}, 400, "cache_salt", "sss...", "1..127"),
            ({"prompt": "x", "stop_token_ids": [1] * 65}, 400, "stop_token_ids", "[1,1", "at most 64"),
            ({"prompt": "x", "stop_token_ids": [-1]}, 400, "stop_token_ids", "-1", "0..2147483647"),
            ({"prompt": "x", "model": "gpt"}, 404, "model", '"gpt"', MODEL),
            ({"prompt": "x", "frobnicate": 1}, 400, "frobnicate", "unknown field frobnicate"),
            ({"prompt": "x", "messages": []}, 400, "messages", "unknown field messages"),
            ({"prompt": [1, 2147483648]}, 400, "prompt", "2147483648", "0..2147483647"),
            ({"prompt": [1, "a"]}, 400, "prompt", '"a"', "expected 0.."),
            ({"prompt": ["a", "b"]}, 400, "prompt", "2 prompts", "expected 1"),
            ({"prompt": []}, 400, "prompt", "[]", "array of token ids"),
            ({"prompt": ""}, 400, "prompt", "required"),
            ({"prompt": None}, 400, "prompt", "required"),
            ({}, 400, "prompt", "required"))
        for body, status, field, *parts in cases:
            got, text = self.it.ask(0, "POST", "/v1/completions", body)
            error = json.loads(text)["error"]
            self.assertEqual((got, error["code"], error["param"]), (status, status, field), (body, text))
            for part in parts:
                self.assertIn(part, error["message"], body)
        for messages, field, part in (("x", "messages", "an array of messages"),
                                      ([], "messages", "[]"),
                                      ([{"role": "robot", "content": "x"}], "messages.role", '"robot"'),
                                      ([{"content": "x"}], "messages.role", "content"),
                                      ([{"role": "user", "content": 7}], "messages.content", "value 7"),
                                      ([{"role": "user", "content": [{"type": "image_url"}]}],
                                       "messages.content", "image_url")):
            got, text = self.it.ask(0, "POST", "/v1/chat/completions", {"messages": messages})
            error = json.loads(text)["error"]
            self.assertEqual((got, error["param"]), (400, field), text)
            self.assertIn(part, error["message"])
        before = self.it.metrics(0)["vllm:prompt_tokens_total"]
        self.assertEqual(self.it.complete(0, prompt="x", temperature=0.7, n=1, stop=None, logprobs=None,
                                          user="me", seed=3)["usage"]["prompt_tokens"], 1)
        self.assertEqual(self.it.metrics(0)["vllm:prompt_tokens_total"], before + 1)

    def test_http_errors(self):
        for method, path, data, headers, status, part in (
                ("GET", "/v2/models", None, {}, 404, "/v1/models"),
                ("GET", "/v1/completions", None, {}, 405, "expected POST"),
                ("POST", "/health", {}, {}, 405, "expected GET"),
                ("POST", "/v1/completions", "{", {}, 400, "not JSON"),
                ("POST", "/v1/completions", "[]", {}, 400, "not a JSON object"),
                ("POST", "/v1/completions", '{"n":1,"n":1}', {}, 400, "duplicate"),
                ("POST", "/v1/completions", b'{"prompt":"\xff"}', {}, 400, "not JSON"),
                ("POST", "/v1/completions", '{"prompt":"a\\u0000b"}', {}, 400, "not JSON"),
                ("POST", "/v1/completions", "{}", {"Content-Type": "text/plain"}, 415,
                 "application/json")):
            got, text = self.it.ask(0, method, path, data, **headers)
            self.assertEqual(got, status, (path, text))
            self.assertIn(part, json.loads(text)["error"]["message"])


class Lengths(unittest.TestCase):
    def test_longest(self):
        """Prompt and answer fill max_model_len to the last token, and not beyond."""
        with Engines(QUIRE, 1, "--speed", "50", "--max-model-len", "64", events=False) as it:
            for n in (1, 63):
                answer = it.complete(0, prompt=[5] * n, max_tokens=64 - n)
                self.assertEqual(answer["usage"]["completion_tokens"], 64 - n)
                self.assertEqual(answer["choices"][0]["finish_reason"], "length")
            self.assertEqual(it.complete(0, prompt=[5] * 60)["usage"]["completion_tokens"], 4)
            chat = it.chat(0, ("user", "x"))  # until the end of the model
            self.assertEqual(chat["usage"]["total_tokens"], 64)
            for n, most, field, part in ((64, 1, "prompt", "64 tokens (expected 1..63"),
                                         (60, 5, "max_tokens", "5 for max_tokens (expected 1..4")):
                status, text = it.ask(0, "POST", "/v1/completions", {"prompt": [5] * n, "max_tokens": most})
                error = json.loads(text)["error"]
                self.assertEqual((status, error["param"]), (400, field))
                self.assertIn(part, error["message"])

    def test_answer_tokens(self):
        """An answer ends by itself, unless the request forbids it."""
        with Engines(QUIRE, 1, "--speed", "50", "--answer-tokens", "5", events=False) as it:
            for data, tokens, words, reason in (({}, 6, 5, "stop"), ({"max_tokens": 6}, 6, 5, "stop"),
                                                ({"max_tokens": 5}, 5, 5, "length"),
                                                ({"min_tokens": 9}, 10, 9, "stop"),
                                                ({"ignore_eos": True, "max_tokens": 30}, 30, 30, "length")):
                answer = it.chat(0, ("user", "Hi"), **data)
                choice = answer["choices"][0]
                self.assertEqual((answer["usage"]["completion_tokens"], choice["finish_reason"]),
                                 (tokens, reason), data)
                self.assertEqual(len(choice["message"]["content"]), 4 * words)
                self.assertIsNone(choice["stop_reason"])


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
        self.assertEqual(len(times), 25)
        self.assertGreater(times[-1] - times[0], 0.9 * 4 * itl)
        self.assertGreater(times[12] - times[0], 0.3 * (times[-1] - times[0]))

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

    def open_raw(self, it, **data):
        """A socket that has sent a request, and reads nothing."""
        body = json.dumps(data)
        raw = socket.create_connection(it.urls[0].removeprefix("http://").split(":"))
        raw.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
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
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        first = f"127.0.0.1:{port}"
        with Engines(QUIRE, 2, "--served-model-name", "m", listen=first, events=False) as it:
            self.assertEqual(it.urls, [f"http://{first}", f"http://127.0.0.1:{port + 1}"])
            self.assertEqual(it.complete(1, model="m", prompt="x")["model"], "m")
            said = run(QUIRE, "serve", "--engines", "1", "--listen", f"127.0.0.1:{port + 1}", status=1)
            self.assertIn(f"cannot listen on 127.0.0.1 port {port + 1}", said)


class Page(unittest.TestCase):
    @unittest.skipUnless(shutil.which("curl"), "no curl here")
    def test_example(self):
        """The commands of docs/live.md, at other ports, and what the page says of them."""
        page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../docs/live.md")
        with open(page, encoding="utf-8") as file:
            part = file.read().split("## Engines for a router")[1]
        commands = part.split("```sh\n")[1].split("```")[0]
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1] // 300 * 300
        for old, new in (("800", port), ("555", port + 100), ("565", port + 200)):
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
