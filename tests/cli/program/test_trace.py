#!/usr/bin/env python3
"""`quire trace`: info, check, convert, cut, scale, mix and anonymise, through the whole program.

    tests/cli/program/test_trace.py QUIRE
"""

import json
import math
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import trace_samples  # noqa: E402

QUIRE = ""


def run(*args, status=0, stdin=None):
    done = subprocess.run([QUIRE, *map(str, args)], capture_output=True, text=True, timeout=300,
                          input=stdin)
    if done.returncode != status:
        raise AssertionError(f"quire {args}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def trace(*args, **kwargs):
    return run("trace", *args, **kwargs)


class Kit(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.samples = {}
        for name, (ending, form, text) in trace_samples.all_samples().items():
            self.samples[name] = (self.write(name + ending, text),
                                  ("--format", form) if form else ())

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def rows(self, path):
        """What a workload file says, its first line apart."""
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file][1:]

    def replay(self, path, *args):
        """A replay's report, without the names of the trace and its format."""
        text = run("replay", "--quiet", "--deterministic", "--json", "-", "--num-gpu-blocks", "9000",
                   *args, path).stdout
        report = json.loads(text)
        for name in ("made_by", "trace", "format"):
            report.pop(name, None)
        return report

    def info(self, *args):
        return json.loads(trace("info", "--json", "-", *args).stdout)


def is_near(a, b):
    """The same, but for the rounding of times."""
    if isinstance(a, dict):
        return set(a) == set(b) and all(is_near(a[key], b[key]) for key in a)
    if isinstance(a, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6)
    return a == b


class Info(Kit):
    def test_figures_are_those_of_a_naive_count(self):
        path, _ = self.samples["mooncake"]
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        info = self.info(path)
        prompts = sorted(row["input_length"] for row in rows)
        self.assertEqual(info["requests"], len(rows))
        self.assertEqual(info["prompt_tokens"], sum(prompts))
        self.assertEqual(info["output_tokens"], sum(row["output_length"] for row in rows))
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            rank = max(1, math.ceil(share * len(prompts)))
            self.assertEqual(info["prompt_length"][name], prompts[rank - 1], name)
        self.assertEqual(info["prompt_length"]["max"], prompts[-1])
        line = re.search(r"^  prompt +(.*)$", trace("info", path).stdout, re.M)[1].split()
        self.assertEqual([word.replace(",", "") for word in line[1:]],
                         [str(prompts[max(1, math.ceil(share * len(prompts))) - 1])
                          for share in (0.5, 0.9, 0.99, 1)] + [str(sum(prompts))])
        times = [row["timestamp"] / 1000 for row in rows]
        self.assertAlmostEqual(info["span_s"], times[-1] - times[0], places=9)
        self.assertAlmostEqual(info["arrivals_per_s"], (len(rows) - 1) / (times[-1] - times[0]))
        minutes = [int((time - times[0]) // 60) for time in times]
        self.assertEqual(info["most_arrivals_in_a_minute"], max(map(minutes.count, minutes)))
        seen, shared, different, blocks, prefixes = set(), 0, set(), 0, {}
        for row in rows:
            tokens, is_leading = row["input_length"], True
            for i, block in enumerate(row["hash_ids"]):
                is_leading = is_leading and block in seen
                shared += min(512, tokens - 512 * i) if is_leading else 0
                seen.add(block)
                different.add(block)
                blocks += 1
                if tokens >= 512 * (i + 1):
                    key = tuple(row["hash_ids"][:i + 1])
                    prefixes[key] = prefixes.get(key, 0) + 1
        self.assertEqual(info["shared_tokens"], shared)
        self.assertEqual((info["ids"], info["different_ids"]), (blocks, len(different)))
        self.assertEqual(info["contents"], "known")
        self.assertGreater(len(info["prefixes"]), 0)
        counts = {(512 * len(key), count) for key, count in prefixes.items()}
        for prefix in info["prefixes"]:
            if prefix["tokens"] % 512 == 0:
                self.assertIn((prefix["tokens"], prefix["prompts"]), counts)

    def test_the_heaviest_prefix_comes_first(self):
        rows = [{"quire_workload": 1}]
        rows += [{"time": i, "prompt": [[1, 100], [10 + i, 50]], "output": 1} for i in range(8)]
        rows += [{"time": 9, "prompt": [[2, 900], [30 + i, 5]], "output": 1} for i in range(2)]
        rows += [{"time": 9, "prompt": [[1, 100], [3, 400]], "output": 1} for i in range(3)]
        info = self.info(self.write("p.jsonl", trace_samples.lines(rows)))
        self.assertEqual(info["prefixes"], [{"tokens": 100, "prompts": 11},
                                            {"tokens": 500, "prompts": 3},
                                            {"tokens": 900, "prompts": 2}])

    def test_sessions_turns_and_think_times(self):
        info = self.info(self.samples["sessions"][0])
        self.assertEqual(info["arrivals"], 7)
        self.assertEqual(info["waiting_requests"], 53)
        self.assertEqual(info["turns"]["count"], 7)
        self.assertEqual(info["turns"]["max"], 9)
        self.assertEqual(info["think_s"]["count"], 53)

    def test_contents_that_are_not_known_are_not_guessed(self):
        for name in ("azure", "burstgpt"):
            path, _ = self.samples[name]
            info = self.info(path)
            self.assertEqual(info["contents"], "unknown")
            self.assertIsNone(info["shared_tokens"])
            self.assertEqual(info["prefixes"], [])
            self.assertIn("Contents   unknown", trace("info", path).stdout)

    def test_several_traces_and_bad_records(self):
        info = self.info(self.samples["azure"][0], self.samples["mooncake"][0])
        self.assertEqual((info["requests"], info["format"]), (110, "mixed"))
        bad = self.write("bad.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}\n{}\n')
        self.assertIn('bad.jsonl:2: field "input_length": is missing',
                      trace("info", bad, status=1).stderr)
        self.assertEqual(self.info("--skip-bad", bad)["invalid_records"], 1)
        self.assertIn("contains no requests",
                      trace("info", self.write("h.jsonl", '{"quire_workload": 1}\n'), status=1).stderr)


class Check(Kit):
    def test_all_problems_are_listed(self):
        path = self.write("bad.jsonl", '{"timestamp": 0, "input_length": -3, "output_length": 1}\n'
                          '{"timestamp": 1, "input_length": 5, "output_length": 1}\n'
                          'nothing\n'
                          '{"timestamp": 2, "input_length": 5}\n')
        done = trace("check", path, status=1)
        self.assertEqual(done.stdout,
                         f'{path}:1: field "input_length": -3 is negative\n'
                         f'{path}:3: invalid JSON: expected an object\n'
                         f'{path}:4: field "output_length": is missing\n'
                         "1 requests, 3 problems\n")
        done = trace("check", "--max-problems", "2", path, status=1)
        self.assertEqual(len(done.stdout.splitlines()), 3)
        self.assertIn("at least 2 problems", done.stdout)
        report = json.loads(trace("check", "--json", "-", path, status=1).stdout)
        self.assertEqual((report["requests"], report["num_problems"]), (1, 3))
        self.assertEqual(len(report["problems"]), 3)

    def test_traces_without_problems(self):
        for name, (path, form) in self.samples.items():
            self.assertIn(" 0 problems", trace("check", *form, path).stdout, name)

    def test_a_trace_that_cannot_be_read_does_not_hide_the_next(self):
        empty = self.write("empty.jsonl", "")
        bad = self.write("bad.jsonl", '{"input_length": 5, "output_length": 1}\n')
        done = trace("check", empty, self.path("no.jsonl"), bad, status=1)
        self.assertIn("empty.jsonl: the file is empty", done.stdout)
        self.assertIn("no.jsonl: cannot be opened", done.stdout)
        self.assertIn('bad.jsonl:1: field "timestamp": is missing', done.stdout)
        os.mkdir(self.path("day"))
        self.write("day/a.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}\n{}\n')
        done = trace("check", self.path("day"), status=1)
        self.assertEqual(done.stdout.count("a.jsonl:2:"), 1)


class Convert(Kit):
    def test_a_replay_of_the_converted_trace_is_the_same(self):
        for name, (path, form) in self.samples.items():
            out = self.path(name + ".quire.jsonl")
            trace("convert", *form, "--out", out, path)
            self.assertEqual(self.replay(out), self.replay(path, *form), name)
            self.assertEqual(self.info(out)["contents"], self.info(*form, path)["contents"])

    def test_generated_workloads_too(self):
        for kind in ("multi-turn", "agent", "rag", "mixed"):
            made, out = self.path("made.jsonl"), self.path("out.jsonl")
            run("generate", kind, "--requests", "120", "--out", made)
            trace("convert", "--out", out, made)
            self.assertEqual(self.replay(out), self.replay(made), kind)

    def test_packed_outputs(self):
        path, _ = self.samples["mooncake"]
        plain = trace("convert", path).stdout
        for ending, program in ((".zst", "zstd"), (".gz", "gzip")):
            out = self.path("out.jsonl" + ending)
            trace("convert", "--out", out, path)
            with open(out, "rb") as file:
                self.assertEqual(file.read(2), {"zstd": b"\x28\xb5", "gzip": b"\x1f\x8b"}[program])
            self.assertEqual(trace("convert", out).stdout.split("\n", 1)[1], plain.split("\n", 1)[1])

    def test_converting_twice_changes_nothing(self):
        for name, (path, form) in self.samples.items():
            once, twice = self.path("once.jsonl"), self.path("twice.jsonl")
            trace("convert", *form, "--out", once, path)
            trace("convert", "--out", twice, once)
            again = self.rows(twice)
            for a, b in zip(again, self.rows(once)):
                if "id" not in b: # requests of a workload file may be waited for
                    a.pop("id")
            self.assertEqual(again, self.rows(once), name)

    def test_the_output_says_what_made_it(self):
        first = json.loads(trace("convert", self.samples["azure"][0]).stdout.split("\n")[0])
        self.assertEqual(first["made_by"]["command"], "trace convert")
        self.assertEqual(len(first["made_by"]["trace"]["sha256"]), 64)

    def test_ids_of_the_same_size_stay_what_they_are(self):
        path, _ = self.samples["mooncake"]
        out = self.path("out.jsonl")
        done = trace("convert", "--to", "mooncake", "--out", out, path)
        self.assertEqual(done.stderr, "")
        with open(path, encoding="utf-8") as a, open(out, encoding="utf-8") as b:
            old, new = [json.loads(x) for x in a], [json.loads(x) for x in b]
        for x, y in zip(old, new):
            self.assertEqual(x["timestamp"] - old[0]["timestamp"], y["timestamp"])
            for key in ("input_length", "output_length"):
                self.assertEqual(x[key], y[key])
            self.assertEqual(x["priority"], y.get("priority", 0))
        self.assertTrue(is_near(self.replay(out), self.replay(path)))

    def test_mooncake_lines_with_sessions_and_waits(self):
        for name in ("sessions", "agentic", "azure"):
            path, form = self.samples[name]
            out = self.path("out.jsonl")
            trace("convert", "--to", "mooncake", "--out", out, *form, path)
            self.assertTrue(is_near(self.replay(out), self.replay(path, *form)), name)

    def test_what_mooncake_lines_cannot_say(self):
        done = trace("convert", "--to", "mooncake", self.samples["quire"][0], status=1)
        self.assertIn('field "pin": mooncake lines cannot say how long blocks are pinned', done.stderr)
        self.assertIn("request 1 (line 2)", done.stderr)
        done = trace("convert", "--to", "mooncake", "--block-size", "64", self.samples["bailian"][0])
        self.assertIn("the sessions of ", done.stderr)
        self.assertIn(" in blocks of 64 tokens", done.stderr)
        self.assertIn("need --id-block-size 64", done.stderr)
        done = trace("convert", "--block-size", "64", self.samples["azure"][0], status=2)
        self.assertIn("--block-size needs --to mooncake", done.stderr)
        self.assertIn("expected quire or mooncake",
                      trace("convert", "--to", "azure", self.samples["azure"][0], status=2).stderr)

    def test_a_failed_conversion_leaves_the_earlier_file(self):
        out = self.write("out.jsonl", "earlier\n")
        bad = self.write("bad.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}\n{}\n')
        trace("convert", "--out", out, bad, status=1)
        with open(out, encoding="utf-8") as file:
            self.assertEqual(file.read(), "earlier\n")
        self.assertIn("1 invalid records skipped",
                      trace("convert", "--skip-bad", "--out", out, bad).stderr)
        self.assertEqual(len(self.rows(out)), 1)
        self.assertIn("are the same file", trace("convert", "--out", bad, bad, status=2).stderr)

    def test_standard_input(self):
        path, _ = self.samples["azure"]
        with open(path, encoding="utf-8") as file:
            text = trace("convert", "-", stdin=file.read()).stdout
        self.assertEqual(text.split("\n")[1:], trace("convert", path).stdout.split("\n")[1:])


class Cut(Kit):
    def test_by_time(self):
        path, _ = self.samples["azure"]
        out = self.path("out.jsonl")
        trace("convert", "--out", out, path)
        rows = self.rows(out)
        trace("cut", "--from", 10, "--to", 20, "--out", out, path)
        kept = [row for row in rows if 10 <= row["time"] < 20]
        cut = self.rows(out)
        self.assertGreater(len(kept), 3)
        self.assertEqual([row["prompt"] for row in cut], [row["prompt"] for row in kept])
        for a, b in zip(cut, kept):
            self.assertAlmostEqual(a["time"], b["time"] - kept[0]["time"])

    def test_sessions_that_begin_in_time_stay_whole(self):
        path, _ = self.samples["agent"]
        out = self.path("out.jsonl")
        trace("cut", "--from", 2, "--to", 5, "--out", out, path)
        info, whole = self.info(out), self.info(path)
        self.assertEqual(info["arrivals"], 3)
        self.assertEqual(info["turns"]["count"], 9)
        self.assertEqual(whole["turns"]["count"], 24)

    def test_the_first(self):
        path, _ = self.samples["agentic"]
        out = self.path("out.jsonl")
        trace("convert", "--out", out, path)
        whole = self.rows(out)
        trace("cut", "--first", 7, "--out", out, path)
        self.assertEqual(self.rows(out), whole[:7])

    def test_requests_do_not_wait_for_what_is_cut_off(self):
        rows = [{"quire_workload": 1}, {"time": 0, "prompt": [[1, 5]], "output": 1, "id": "a"},
                {"time": 10, "prompt": [[2, 5]], "output": 1, "id": "b"},
                {"after": ["a", "b"], "prompt": [[3, 5]], "output": 1, "id": "c"},
                {"after": ["b"], "prompt": [[4, 5]], "output": 1, "id": "d"},
                {"after": ["c"], "prompt": [[5, 5]], "output": 1, "id": "e"}]
        path, out = self.write("waits.jsonl", trace_samples.lines(rows)), self.path("out.jsonl")
        trace("cut", "--to", 5, "--out", out, path)
        self.assertEqual([row.get("after") for row in self.rows(out)], [None, [0], [2]])
        self.assertEqual(self.replay(out)["requests"], 3)

    def test_a_share_of_the_sessions(self):
        made, out, other = self.path("made.jsonl"), self.path("out.jsonl"), self.path("other.jsonl")
        run("generate", "multi-turn", "--requests", "4000", "--out", made)
        sessions = self.info(made)["turns"]
        trace("cut", "--sessions", "25%", "--out", out, made)
        kept = self.info(out)["turns"]
        self.assertLess(abs(kept["count"] / sessions["count"] - 0.25), 0.05)
        by_session = {}
        for row in self.rows(out):
            by_session.setdefault(row["session"], []).append(row)
        self.assertTrue(all(rows[-1].get("last") for rows in by_session.values()))
        trace("cut", "--sessions", "0.25", "--out", other, made)
        self.assertEqual(self.rows(other), self.rows(out))
        trace("cut", "--sessions", "0.25", "--seed", 2, "--out", other, made)
        self.assertNotEqual(self.rows(other), self.rows(out))

    def test_refusals(self):
        path, _ = self.samples["azure"]
        for share in ("0", "101%", "x", "10 percent", "-1"):
            done = trace("cut", f"--sessions={share}", path, status=2)
            self.assertIn(f'invalid value "{share}" for --sessions (expected more than 0', done.stderr)
        self.assertIn("--from 9 is not less than --to 3",
                      trace("cut", "--from", 9, "--to", 3, path, status=2).stderr)
        self.assertIn("no request is left to write",
                      trace("cut", "--from", "1e6", path, status=1).stderr)
        self.assertIn("invalid value \"0\" for --first", trace("cut", "--first", 0, path,
                                                               status=2).stderr)


class Scale(Kit):
    def test_speed_is_that_of_a_replay(self):
        for name in ("sessions", "agent", "quire"):
            path, form = self.samples[name]
            out = self.path("out.jsonl")
            trace("scale", "--speed", 4, "--out", out, *form, path)
            self.assertEqual(self.replay(out), self.replay_speed(path, form), name)

    def replay_speed(self, path, form):
        report = self.replay(path, "--speed", "4", *form)
        return report

    def test_think_times_may_stay(self):
        path, _ = self.samples["sessions"]
        fast, slow = self.path("fast.jsonl"), self.path("slow.jsonl")
        trace("scale", "--speed", 2, "--out", fast, path)
        trace("scale", "--speed", 2, "--keep-think", "--out", slow, path)
        for a, b in zip(self.rows(fast), self.rows(slow)):
            if "think" in a:
                self.assertAlmostEqual(a["think"] * 2, b["think"])
            else:
                self.assertEqual(a, b)

    def test_more_requests_repeat_with_fresh_contents(self):
        path, _ = self.samples["agent"]
        out = self.path("out.jsonl")
        whole = self.info(path)
        trace("scale", "--requests", 3 * whole["requests"], "--out", out, path)
        info = self.info(out)
        for name in ("requests", "arrivals", "prompt_tokens", "shared_tokens", "different_ids"):
            self.assertEqual(info[name], 3 * whole[name], name)
        self.assertEqual(info["turns"]["count"], 3 * whole["turns"]["count"])
        self.assertAlmostEqual(info["arrivals_per_s"], whole["arrivals_per_s"])
        self.assertEqual(self.replay(out)["requests"], 3 * whole["requests"])

    def test_fewer_requests_leave_out_whole_sessions(self):
        made, out = self.path("made.jsonl"), self.path("out.jsonl")
        run("generate", "multi-turn", "--requests", "1000", "--out", made)
        trace("scale", "--requests", 333, "--out", out, made)
        rows = self.rows(out)
        self.assertEqual(len(rows), 333)
        by_session = {}
        for row in rows:
            by_session.setdefault(row["session"], []).append(row)
        self.assertTrue(all(rows[-1].get("last") for rows in by_session.values()))
        self.assertEqual(self.replay(out)["requests"], 333)

    def test_rate(self):
        made, out = self.path("made.jsonl"), self.path("out.jsonl")
        run("generate", "chat", "--requests", "200", "--out", made)
        for requests in (200, 150, 500):
            trace("scale", "--rate", 7.5, "--requests", requests, "--out", out, made)
            info = self.info(out)
            self.assertEqual(info["requests"], requests)
            self.assertLess(abs(info["arrivals_per_s"] / 7.5 - 1), 0.02)

    def test_refusals(self):
        path, _ = self.samples["azure"]
        self.assertIn("--speed and --rate cannot be used together",
                      trace("scale", "--speed", 1, "--rate", 1, path, status=2).stderr)
        self.assertIn("standard input can be read once",
                      trace("scale", "--requests", 5, "-", status=2, stdin="").stderr)
        one = self.write("one.jsonl", '{"timestamp": 0, "input_length": 5, "output_length": 1}\n')
        self.assertIn("all requests come at the same time",
                      trace("scale", "--rate", 2, one, status=1).stderr)
        self.assertIn("contains no requests",
                      trace("scale", "--requests", 2, self.write("h.jsonl", '{"quire_workload": 1}\n'),
                            status=1).stderr)


class Mix(Kit):
    def test_both_begin_at_0_and_share_nothing_by_chance(self):
        out = self.path("out.jsonl")
        a, b = self.samples["mooncake"][0], self.samples["agent"][0]
        trace("mix", "--out", out, a, b)
        one, two, both = self.info(a), self.info(b), self.info(out)
        for name in ("requests", "arrivals", "prompt_tokens", "shared_tokens", "different_ids"):
            self.assertEqual(both[name], one[name] + two[name], name)
        self.assertEqual(self.replay(out)["requests"], 60 + two["requests"])

    def test_speeds_and_shares(self):
        made, out = self.path("made.jsonl"), self.path("out.jsonl")
        run("generate", "chat", "--requests", "2000", "--out", made)
        azure = self.samples["azure"][0]
        trace("mix", "--speed", "1,4", "--share", "1,0.5", "--out", out, azure, made)
        both, one, two = self.info(out), self.info(azure), self.info(made)
        kept = both["requests"] - one["requests"]
        self.assertLess(abs(kept / two["requests"] - 0.5), 0.05)
        self.assertLess(abs(both["span_s"] / max(one["span_s"], two["span_s"] / 4) - 1), 0.02)
        trace("mix", "--speed", "2", "--out", out, made)
        self.assertAlmostEqual(self.info(out)["span_s"], two["span_s"] / 2)

    def test_folders_with_a_speed(self):
        os.mkdir(self.path("day"))
        rows = [{"timestamp": 1000 * i, "input_length": 9, "output_length": 1} for i in range(20)]
        self.write("day/a.jsonl", trace_samples.lines(rows[:10]))
        self.write("day/b.jsonl", trace_samples.lines(rows[10:]))
        out = self.path("out.jsonl")
        trace("mix", "--speed", "4", "--out", out, self.path("day"))
        self.assertEqual([row["time"] for row in self.rows(out)], [i / 4 for i in range(20)])

    def test_refusals(self):
        path, _ = self.samples["azure"]
        self.assertIn('invalid value "x" for --speed (expected numbers from 1e-06 to 1e+09',
                      trace("mix", "--speed", "1,x", path, path, status=2).stderr)
        self.assertIn("--share 1,1,1: 3 numbers for 2 traces",
                      trace("mix", "--share", "1,1,1", path, path, status=2).stderr)
        self.assertIn('invalid value "2" for --share', trace("mix", "--share", "2", path,
                                                             status=2).stderr)


class Anonymise(Kit):
    def test_a_replay_is_the_same_and_numbers_are_not(self):
        for name, (path, form) in self.samples.items():
            out, plain = self.path("out.jsonl"), self.path("plain.jsonl")
            trace("anonymise", "--out", out, *form, path)
            trace("convert", "--out", plain, *form, path)
            self.assertEqual(self.replay(out), self.replay(path, *form), name)
            known = {segment[0] for row in self.rows(plain) if isinstance(row["prompt"], list)
                     for segment in row["prompt"]}
            new = {segment[0] for row in self.rows(out) if isinstance(row["prompt"], list)
                   for segment in row["prompt"]}
            self.assertEqual(len(new), len(known), name)
            self.assertFalse(known & new, name)

    def test_each_run_has_its_own_secret(self):
        path, _ = self.samples["sharegpt"]
        one, two = trace("anonymise", path).stdout, trace("anonymise", path).stdout
        self.assertNotEqual(one, two)
        one, two = (trace("anonymise", "--seed", 3, path).stdout for _ in range(2))
        self.assertEqual(one, two)
        self.assertNotEqual(one, trace("anonymise", "--seed", 4, path).stdout)

    def test_nothing_says_where_it_came_from(self):
        path, _ = self.samples["mooncake"]
        first = trace("anonymise", "--seed", 77, path).stdout.split("\n")[0]
        self.assertEqual(json.loads(first), {"quire_workload": 1, "kind": "anonymise"})

    def test_times_can_be_rounded_and_moved(self):
        path, _ = self.samples["sessions"]
        out, plain = self.path("out.jsonl"), self.path("plain.jsonl")
        trace("convert", "--out", plain, path)
        trace("anonymise", "--round-times", 250, "--out", out, path)
        for a, b in zip(self.rows(out), self.rows(plain)):
            key = "think" if "think" in a else "time"
            self.assertAlmostEqual(a[key] * 4, round(a[key] * 4), places=6)
            self.assertLessEqual(abs(a[key] - b[key]), 0.25)
        trace("anonymise", "--jitter", 400, "--out", out, path)
        times = [row["time"] for row in self.rows(out) if "time" in row]
        self.assertEqual(times, sorted(times))
        moved = [abs(a["think"] - b["think"]) for a, b in zip(self.rows(out), self.rows(plain))
                 if "think" in a]
        self.assertLessEqual(max(moved), 0.4)
        self.assertGreater(max(moved), 0.1)

    def test_refusals(self):
        path, _ = self.samples["azure"]
        self.assertIn('invalid value "-1" for --jitter', trace("anonymise", "--jitter=-1", path,
                                                              status=2).stderr)
        self.assertIn('invalid value "0" for --round-times',
                      trace("anonymise", "--round-times", 0, path, status=2).stderr)


class Commands(Kit):
    PARTS = ("info", "check", "convert", "cut", "scale", "mix", "anonymise")

    def test_help(self):
        overview = trace("--help").stdout
        for part in self.PARTS:
            self.assertIn(f"  {part} ", overview)
            text = trace(part, "--help").stdout
            self.assertTrue(text.startswith(f"usage: quire trace {part} "), part)
            self.assertIn("Examples:", text)
            self.assertEqual(run("help", "trace", part).stdout, text)
            for option in re.findall(r"^  --(\S+)", text, re.M):
                self.assertIn("--" + option.replace("[no-]", ""), run("completion", "bash").stdout)
            self.assertIn(f"quire trace {part}".replace("-", "\\-"), run("man").stdout)
            self.assertTrue(trace(part, "--no-such-option-at-all", status=2).stderr
                            .startswith(f"quire trace {part}: unknown option"))
            self.assertIn("expected a TRACE", trace(part, status=2).stderr)
            self.assertIn("did you mean --format?", trace(part, "--formt=x", status=2).stderr)
            self.assertIn('invalid value "x" for --format', trace(part, "--format", "x", "-",
                                                                  status=2).stderr)

    def test_unknown_commands(self):
        self.assertIn("expected info, check", trace(status=2).stderr)
        self.assertIn('unknown command "inof"; did you mean info?', trace("inof", status=2).stderr)
        self.assertIn("see quire trace --help", trace("zzzzzz", status=2).stderr)


if __name__ == "__main__":
    QUIRE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
