#!/usr/bin/env python3
"""Public recordings, counted by `quire trace info` and by this script, which shares no code with it.

    tests/cli/program/test_trace_public.py QUIRE [FOLDER]

FOLDER (or QUIRE_PUBLIC_TRACES) has the folders lmcache/NAME/ (files of LMCache/lmcache-agent-trace),
kv-cache-tester/ (files trace_*.json of callanjfox/kv-cache-tester) and otel/ (OTLP as JSON lines).
tests/cli/trace/README.md says where they come from. A folder that is missing is skipped.
"""

import json
import os
import subprocess
import sys
import unittest

QUIRE = FOLDER = ""


def info(*args):
    done = subprocess.run([QUIRE, "trace", "info", "--json", "-", "--skip-bad", *args],
                          capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def files_of(folder):
    found = []
    for root, _, names in os.walk(folder):
        found += [os.path.join(root, name) for name in names if name.endswith((".json", ".jsonl"))]
    return sorted(found)


def shared_tokens(prompts):
    """Tokens of leading parts that an earlier prompt began with; a prompt is a list of (part, tokens)."""
    seen, shared = set(), 0
    for prompt in prompts:
        key, is_leading = (), True
        for part, tokens in prompt:
            key = hash((key, part, tokens))
            is_leading = is_leading and key in seen
            shared += tokens if is_leading else 0
            seen.add(key)
    return shared


class Public(unittest.TestCase):
    def folder(self, name):
        path = os.path.join(FOLDER, name)
        if not os.path.isdir(path):
            self.skipTest(f"no folder {path}")
        return path

    def test_lmcache(self):
        for name in sorted(os.listdir(self.folder("lmcache"))):
            with self.subTest(name):
                self.check_lmcache(os.path.join(FOLDER, "lmcache", name))

    def check_lmcache(self, folder):
        rows, bad = [], 0
        for path in files_of(folder):
            with open(path, encoding="utf-8") as file:
                for line, text in enumerate(file):
                    row = json.loads(text)
                    if row["input"]:
                        rows.append((row["timestamp"], path, line, row))
                    else:
                        bad += 1
        rows.sort(key=lambda row: row[0])
        prompts = []
        for *_, row in rows:
            data = row["input"].encode()
            pieces = [data[i:i + 64] for i in range(0, len(data), 64)]
            prompts.append([(piece, -(-len(piece) // 4)) for piece in pieces])
        outputs = [max(1, -(-len(row["output"].encode()) // 4)) for *_, row in rows]
        got = info(folder)
        print(f"\n{folder}: {got['requests']} requests, {got['prompt_tokens']} prompt tokens, "
              f"{got['output_tokens']} output tokens, {got['shared_tokens']} shared, "
              f"{got['turns']['count']} sessions, {got['invalid_records']} invalid records")
        self.assertEqual(got["format"], "lmcache")
        self.assertEqual(got["requests"], len(rows))
        self.assertEqual(got["invalid_records"], bad)
        self.assertEqual(got["prompt_tokens"], sum(n for prompt in prompts for _, n in prompt))
        self.assertEqual(got["output_tokens"], sum(outputs))
        self.assertEqual(got["turns"]["count"], len({row["session_id"] for *_, row in rows}))
        self.assertAlmostEqual(got["span_s"], (rows[-1][0] - rows[0][0]) / 1e6, places=5)
        self.assertEqual(got["shared_tokens"], shared_tokens(prompts))

    def test_kv_cache_tester(self):
        folder = self.folder("kv-cache-tester")
        requests, outputs, tokens, sessions, prompts = 0, 0, 0, 0, []

        def walk(items, scope, size):
            nonlocal requests, outputs, tokens, sessions
            sessions += any("in" in item for item in items)
            for item in items:
                if "requests" in item:
                    walk(item["requests"], scope, size)
                    continue
                requests += 1
                outputs += max(1, item["out"])
                tokens += item["in"]
                ids = item["hash_ids"]
                lengths = [size] * (item["in"] // size) + [item["in"] % size]
                prompts.append([((scope, block), n) for block, n in zip(ids, lengths) if n])

        for path in files_of(folder):
            with open(path, encoding="utf-8") as file:
                document = json.load(file)
            scope = path if document.get("hash_id_scope", "local") == "local" else ""
            walk(document["requests"], scope, document["block_size"])
        got = info(folder)
        print(f"\n{folder}: {got['requests']} requests, {got['prompt_tokens']} prompt tokens, "
              f"{got['output_tokens']} output tokens, {got['turns']['count']} sessions, "
              f"{got['shared_tokens']} shared")
        self.assertEqual(got["format"], "agent")
        self.assertEqual(got["requests"], requests)
        self.assertEqual(got["prompt_tokens"], tokens)
        self.assertEqual(got["output_tokens"], outputs)
        self.assertEqual(got["turns"]["count"], sessions)
        self.assertEqual(got["shared_tokens"], self.shared_ids(prompts))

    def shared_ids(self, prompts):
        """An id stands for its block and all before it, so each counts by itself."""
        seen, shared = set(), 0
        for prompt in prompts:
            is_leading = True
            for part, tokens in prompt:
                is_leading = is_leading and part in seen
                shared += tokens if is_leading else 0
                seen.add(part)
        return shared

    def test_otel(self):
        for path in files_of(self.folder("otel")):
            with self.subTest(path):
                self.check_otel(path)

    def check_otel(self, path):
        spans = {}
        with open(path, encoding="utf-8") as file:
            for line in file:
                for resource in json.loads(line)["resourceSpans"]:
                    for scope in resource["scopeSpans"]:
                        for span in scope["spans"]:
                            values = {a["key"]: next(iter(a["value"].values()))
                                      for a in span["attributes"]}
                            spans[span["spanId"]] = (span, values)
        calls = {key: (span, values) for key, (span, values) in spans.items()
                 if "gen_ai.usage.input_tokens" in values
                 and values.get("gen_ai.operation.name") != "invoke_agent"}
        calls = {key: call for key, call in calls.items()
                 if call[0].get("parentSpanId") not in calls}
        starts = [int(span["startTimeUnixNano"]) for span, _ in calls.values()]
        got = info(path)
        print(f"\n{path}: {got['requests']} requests, {got['prompt_tokens']} prompt tokens, "
              f"{got['output_tokens']} output tokens, {got['span_s']} s")
        self.assertEqual(got["format"], "otel")
        self.assertEqual(got["contents"], "unknown")
        self.assertEqual(got["requests"], len(calls))
        for key, attribute in (("prompt_tokens", "input"), ("output_tokens", "output")):
            self.assertEqual(got[key], sum(int(values[f"gen_ai.usage.{attribute}_tokens"])
                                           for _, values in calls.values()))
        if not any("gen_ai.conversation.id" in values for _, values in calls.values()):
            self.assertAlmostEqual(got["span_s"], (max(starts) - min(starts)) / 1e9, places=6)


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv[1])
    FOLDER = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("QUIRE_PUBLIC_TRACES", "")
    if not os.path.isdir(FOLDER):
        print("skipped: no public traces (QUIRE_PUBLIC_TRACES is not a folder)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
