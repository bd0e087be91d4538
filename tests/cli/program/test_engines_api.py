#!/usr/bin/env python3
"""What engines of `quire serve --engines N` answer: forms, lengths, refusals.

    tests/cli/program/test_engines_api.py QUIRE
"""

import json
import random
import socket
import sys
import unittest

from engines_kit import ASSISTANT, END, LONG, MODEL, SYSTEM, USER, Engines, tokens_of, words_of

QUIRE = ""


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

    def test_one_connection(self):
        """Answers, streams and refusals follow each other on one connection."""
        connection = self.it.connect(0)
        for body, status in (({"prompt": "x"}, 200), ({"prompt": "x", "stream": True}, 200), ({}, 400),
                             ({"prompt": "y"}, 200)):
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
            self.assertEqual(answer.status, status)
            self.assertTrue(answer.read())
        connection.close()

    def test_long_body(self):
        status, text = self.it.ask(0, "POST", "/v1/completions", b" " * (64 << 20) + b"{}")
        self.assertEqual(status, 413)
        self.assertIn("at most 67108864 bytes", text)
        status, text = self.it.ask(0, "POST", "/v1/completions", b" " * ((64 << 20) - 2) + b"{}")
        self.assertEqual(status, 400)
        self.assertIn("prompt is required", text)

    def test_damaged_requests(self):
        """Whatever bytes come, the server goes on."""
        draw = random.Random(7)
        whole = (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Connection: close\r\nContent-Length: 30\r\n\r\n"
                 b'{"prompt":[1,2],"max_tokens":1}')
        where = self.it.urls[0].removeprefix("http://").split(":")
        for _ in range(200):
            data = bytearray(whole)
            for _ in range(draw.randrange(1, 6)):
                data[draw.randrange(len(data))] = draw.randrange(256)
            data = data[:draw.randrange(len(data) + 1)] if draw.random() < 0.3 else data
            with socket.create_connection(where, timeout=0.05) as raw:
                raw.sendall(data)
                try:
                    while raw.recv(65536):
                        pass
                except (ConnectionError, TimeoutError):  # or it waits for more
                    pass
        self.assertEqual(self.it.complete(0, prompt="x")["usage"]["completion_tokens"], 16)

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


if __name__ == "__main__":
    QUIRE = sys.argv.pop(1)
    unittest.main()
