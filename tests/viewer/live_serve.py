"""The live page of `quire serve`: its numbers are those of the program."""

import json
import re
import subprocess
import sys
import time
import unittest
import urllib.request

sys.dont_write_bytecode = True
from live_kit import Watching
from pages import number, quantity


class Serve:
    """A running `quire serve`."""

    def __init__(self, quire, trace, *options, port=0):
        self.process = subprocess.Popen(
            [quire, "serve", trace, "--listen", f"127.0.0.1:{port}", *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://127.0.0.1:(\d+)/", line)
        if found is None and "built without" in line:
            raise unittest.SkipTest(line)
        if found is None:
            raise AssertionError(line + self.process.communicate()[0])
        self.url, self.port = found[0], int(found[1])

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return answer.read().decode()

    def metrics(self):
        """By name, and by name with a label: blocks.active, waiting.capacity."""
        numbers = {}
        for line in self.get("metrics").splitlines():
            found = re.match(r'(quire_\w+)\{(.*)\} (\S+)$', line)
            if found:
                label = re.search(r'(?:state|reason)="(\w+)"', found[2])
                if label is None or 'tier="swap"' not in found[2]:
                    numbers[found[1] + (f".{label[1]}" if label else "")] = float(found[3])
        return numbers

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.communicate()


class ServeTest(Watching):
    """Against `quire serve`: short of memory, so that all there is to see happens."""

    OPTIONS = ("--num-gpu-blocks", "1000", "--model", "llama-3.1-8b", "--gpu", "H200")

    def setUp(self):
        self.complaints, self.asked, self.origin = [], [], ""
        if self.quire is None:
            self.skipTest("the program quire is not given")

    def serve(self, *options, port=0):
        self.server = Serve(self.quire, self.trace, *self.OPTIONS, *options, port=port)
        self.addCleanup(self.server.stop)
        return self.server

    def snapshot_rows(self, after, limit):
        told = json.loads(self.server.get(f"snapshot?after={after}&limit={limit}"))
        return [dict(zip(told["columns"], row)) for row in told["steps"]]

    def now(self, name):
        return self.page.evaluate(f"quireLive.now.get('{name}', true)")

    # ---- numbers ------------------------------------------------------------

    def test_numbers_agree_with_metrics_of_an_engine_held_still(self):
        self.serve("--speed", "max", "--max-steps", "4000", "--hold", "--quiet")
        self.open(self.server.url)
        self.until_step(4000)
        self.until("() => quireLive.feed.isQuiet && quireLive.now.told?.step === 4000")
        self.page.wait_for_timeout(200)
        told = self.server.metrics()
        self.assertEqual(told["quire_steps_total"], 4000)
        self.assertEqual(number(self.tile("running")), told["quire_requests_running"])
        self.assertEqual(number(self.tile("waiting")),
                         told["quire_requests_waiting_by_reason.capacity"])
        self.assertEqual(number(self.note("waiting")),
                         told["quire_requests_waiting_by_reason.deferred"])
        self.assertEqual(number(self.tile("preemptions")), told["quire_preemptions_total"])
        self.assertGreater(told["quire_preemptions_total"], 0)
        self.assertGreater(told["quire_requests_running"], 0)
        self.assertAlmostEqual(quantity(self.tile("hit_total")),
                               told["quire_prefix_cache_hits_total"] /
                               told["quire_prefix_cache_queries_total"], delta=0.0006)
        for name in ("active", "cached"):
            self.assertEqual(self.now(name), told[f"quire_blocks.{name}"])
        self.assertAlmostEqual(quantity(self.tile("memory")),
                               told["quire_blocks.active"] / 999, delta=0.0006)
        self.assertEqual(sum(told[f"quire_blocks.{name}"] for name in
                             ("active", "cached", "empty")), 999)

    def test_numbers_agree_with_metrics_of_the_same_step(self):
        """Steps slow enough that page and metrics can be seen at the same one."""
        self.serve("--speed", "0.01", "--quiet")
        self.open(self.server.url)
        self.until_step(3)
        agreed, last = set(), None
        end = time.monotonic() + 60
        while len(agreed) < 5 and time.monotonic() < end:
            before = self.server.metrics()
            self.page.wait_for_timeout(250)
            last = self.run_of("run.lastStep")
            shown = {name: self.run_of(f"run.series.{name}.max[run.count - 1]")
                     for name in ("running", "waiting", "skipped", "active", "cached", "empty")}
            after = self.server.metrics()
            if before != after or after["quire_steps_total"] != last:
                continue
            self.assertEqual(shown, {
                "running": after["quire_requests_running"],
                "waiting": after["quire_requests_waiting_by_reason.capacity"],
                "skipped": after["quire_requests_waiting_by_reason.deferred"],
                **{name: after[f"quire_blocks.{name}"] for name in ("active", "cached", "empty")}})
            agreed.add(last)
        self.assertGreaterEqual(len(agreed), 5)

    def test_rows_are_the_steps_of_the_server(self):
        self.serve("--speed", "max", "--max-steps", "3000", "--hold", "--quiet")
        self.open(self.server.url)
        self.until_step(3000)
        rows = [row for after in (0, 1000, 2000) for row in self.snapshot_rows(after, 1000)]
        self.assertEqual([row["step"] for row in rows], list(range(1, 3001)))
        self.assertEqual(self.run_of("[...run.step]"), [row["step"] for row in rows])
        for series, name in (("running", "running"), ("waiting", "waiting"), ("tokens", "tokens"),
                             ("prefill", "prefill_tokens"), ("active", "active"),
                             ("cached", "cached"), ("empty", "empty"), ("schedule", "schedule_us")):
            self.assertEqual(self.run_of(f"[...run.series.{series}.min.subarray(0, run.count)]"),
                             [row[name] for row in rows], name)
        self.check_last(rows[-1] | {"running": self.now("running"), "active": self.now("active"),
                                    "waiting": self.now("waiting")}
                        if self.run_of("quireLive.feed.isQuiet") else rows[-1], 999)

    def test_totals_are_those_of_a_replay(self):
        report_path = self.folder / "report.json"
        subprocess.run([self.quire, "replay", self.trace, *self.OPTIONS, "--quiet", "--json",
                        report_path], check=True)
        report = json.loads(report_path.read_text())
        self.serve("--speed", "max", "--hold", "--quiet")
        self.open(self.server.url)
        self.until_step(report["steps"])
        self.until("() => document.getElementById('detail').textContent.includes('idle')")
        self.assertEqual(number(self.tile("preemptions")), report["preemptions"])
        self.assertEqual(self.tile("running"), "0")
        self.assertEqual(self.tile("waiting"), "0")

    # ---- block maps ---------------------------------------------------------

    def test_maps_agree_with_the_server(self):
        """Of an engine held still, with a host pool: the page's, /blocks and the tiers of /snapshot."""
        self.serve("--speed", "max", "--cpu-blocks", "1500", "--hold", "--quiet")
        self.open(self.server.url)
        self.until("() => document.getElementById('detail').textContent.includes('idle')")
        told = json.loads(self.server.get("blocks"))
        tiers = {tier["name"]: tier for tier in json.loads(self.server.get("snapshot"))["meta"]["tiers"]}
        self.assertEqual([map["name"] for map in told["maps"]], ["gpu", "host"])
        self.until("step => quireLive.maps.maps[0].map?.last_step === step", told["maps"][0]["last_step"])
        for id, map in zip(("map", "host-map"), told["maps"]):
            for state in ("total", "null", "empty", "cached", "active", "pinned"):
                self.assertEqual(map[state], tiers[map["name"]][state], (map["name"], state))
            shown = self.check_map(id)
            self.assertEqual(shown["cells"], map["cells"])
        self.assertEqual(told["maps"][0]["active"], 0)
        self.assertGreater(told["maps"][0]["cached"], 0)
        self.assertGreater(told["maps"][1]["cached"], 0)

    def test_maps_move(self):
        self.serve("--speed", "3", "--cpu-blocks", "1500", "--quiet", "--hold")
        self.open(self.server.url)
        self.until_step(50)
        seen = set()
        for _ in range(6):
            last = max(seen, default=0)
            self.until("step => quireLive.maps.maps[0].map?.last_step > step", last)
            gpu = self.check_map("map")
            seen.add(gpu["last_step"])
            if gpu["first_step"] == gpu["last_step"] and gpu["after"] == "schedule":
                row = self.snapshot_rows(gpu["last_step"] - 1, 1)[0]
                self.assertEqual(row["step"], gpu["last_step"])
                for state in ("empty", "cached", "active", "pinned"):
                    self.assertEqual(row[state], gpu[state])
        self.assertEqual(len(seen), 6)

    # ---- moving -------------------------------------------------------------

    def test_bands_move(self):
        self.serve("--speed", "3", "--quiet", "--hold")
        self.open(self.server.url)
        self.until_step(50)
        seen = set()
        for _ in range(8):
            self.page.wait_for_timeout(400)
            self.page.click("#pause")  # so that pixels and numbers are of one moment
            self.settle()
            row = self.run_of("quireLive.page.view.row")
            active, total = self.run_of(f"run.series.active.max[{row}]"), 999
            self.assertAlmostEqual(self.bands(0.999)[0], active / total, delta=0.06)
            seen.add(active)
            self.page.click("#pause")
        self.assertGreater(len(seen), 4)
        self.until("() => document.querySelectorAll('#events tr').length > 20")
        self.assertRegex(self.page.inner_text("#events tr .hash"), "^[0-9a-f]{16}$")

    def test_stopped_and_started(self):
        first = self.serve("--speed", "5", "--quiet")
        self.open(first.url)
        self.until_step(30)
        self.until_sign("live")
        first.stop()
        self.until_sign("lost")
        self.serve("--speed", "5", "--quiet", port=first.port)
        self.until_sign("live")
        self.until_step(20)
        self.assertEqual(self.run_of("run.missed"), 0)
        self.forgive_lost_connections()

    def test_token(self):
        secret = self.folder / "token"
        secret.write_text("a-token-of-some-length\n")
        secret.chmod(0o600)
        self.serve("--speed", "max", "--hold", "--quiet", "--token-file", str(secret))
        self.open(self.server.url + "?token=a-token-of-some-length")
        self.until("() => quireLive.run?.lastStep > 1000")
        self.until_sign("live")
        self.assertGreater(number(self.tile("preemptions")), 0)
