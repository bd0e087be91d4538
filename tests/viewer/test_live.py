#!/usr/bin/env python3
"""The live page in Chromium: what it shows is what the scheduler did, whatever becomes of the
connection.

    tests/viewer/test_live.py [--quire BUILD/cli/quire] [--only NAME] [--quick]

With a server whose engine is made up (here, and live_view.py), and with `quire serve`
(live_serve.py).
"""

import argparse
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from live_kit import MadeUpCase, Watching
from live_serve import ServeTest
from live_view import ViewTest
from made_up_server import COLUMNS, Engine
from pages import assembled, need_chromium, need_playwright, number, quantity

QUICK = {"test_shows_the_last_step", "test_all_pages_show_the_schedulers_clock",
         "test_lost_and_found", "test_block_maps", "test_maps_agree_with_the_server",
         "test_follows_until_touched",
         "test_numbers_agree_with_metrics_of_an_engine_held_still"}


# What is written beside the axis of times, in axisTexts.
NOTE_AXIS = """window.axisTexts = [];
  const write = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
    if (this.canvas.id === "axis") window.axisTexts.push(text);
    return write.call(this, text, ...rest);
  };"""


def seconds_of(step):
    return step["time_us"] / 1e6


class MadeUpTest(MadeUpCase):
    """Numbers, block maps and the connection, with the made-up server."""

    # ---- numbers ------------------------------------------------------------

    def test_shows_the_last_step(self):
        self.watch(1)
        for count in (1, 30, 400, 1000):
            self.make(count)
            self.check_last(self.last(), 4000)
        used = self.last()["swap_slots"]
        self.assertEqual(number(self.value("memory.0", "active")), used)
        self.assertEqual(number(self.value("memory.0", "empty")), 512 - used)
        last = self.last()
        self.assertEqual(number(self.value("memory", "pinned")), last["pinned"])
        for key in ("active", "cached", "empty", "pinned"):
            self.assertEqual(number(self.value("memory.1", key)), last[f"file_{key}"], key)
        self.assertEqual(number(self.value("moves.1", "stored")), last["file_stored"])
        self.assertEqual(number(self.value("moves.1", "loaded")), last["file_loaded"])
        self.assertEqual(number(self.value("moves.1", "hits")), last["file_hit_tokens"])
        self.assertEqual(number(self.value("moves.1", "failed")), last["file_failed"])

    def test_all_pages_show_the_schedulers_clock(self):
        """One page that was there from the start, one that comes when old steps are gone."""
        self.watch(300)
        first = self.page
        self.make(6000)
        self.open(self.server.url, script=NOTE_AXIS)
        self.until_step(self.last()["step"])
        seconds = seconds_of(self.last())
        wanted = f"step {self.last()['step']:,} · {seconds // 60:.0f}:{seconds % 60:06.3f}"
        for page in (first, self.page):
            page.wait_for_function("text => document.getElementById('readout').textContent === text",
                                   arg=wanted, timeout=5000)
        starts = [page.evaluate("quireLive.run.origin") for page in (first, self.page)]
        self.assertLess(starts[0], starts[1])
        self.page.evaluate("axisTexts.length = 0")
        self.make(1)
        self.until("() => axisTexts.length > 3")  # the axis has round numbers of that clock
        for text in self.page.evaluate("axisTexts"):
            minutes, seconds = text.split(":")
            self.assertEqual(int(seconds) % 5, 0, text)
            self.assertTrue(-61 < 60 * int(minutes) + int(seconds) - seconds_of(self.last()) < 1, text)

    def test_hover_shows_the_step_under_the_pointer(self):
        self.watch(600)
        rows = {row[0]: dict(zip(COLUMNS, row)) for row in self.server.engine.steps}
        seen = set()
        for share in (0.85, 0.91, 0.97):
            self.hover("queue", share)
            row = rows[self.step()]
            seen.add(row["step"])
            self.assertEqual(number(self.value("queue", "running")), row["running"])
            self.assertEqual(number(self.value("memory", "cached")), row["cached"])
            self.assertAlmostEqual(quantity(self.value("work", "schedule")),
                                   row["schedule_us"] / 1e6, delta=0.51e-6)
        self.assertEqual(len(seen), 3)
        self.page.mouse.move(5, 5)
        self.settle()
        self.assertEqual(self.step(), 600)

    def test_bands_move(self):
        self.watch(100)
        heights = []
        for count in (1, 300, 700, 900):
            self.make(count)
            row = self.last()
            found = self.bands(0.999)
            for share, name in zip(found, ("active", "cached", "empty")):
                self.assertAlmostEqual(share, row[name] / 4000, delta=0.05, msg=name)
            heights.append(found[0])
        self.assertGreater(max(heights) - min(heights), 0.1)

    def test_columns_are_found_by_name(self):
        self.serve()
        self.server.order = [*reversed(COLUMNS), "unheard_of"]
        self.server.make(700, told=False)
        self.open(self.server.url)
        self.until_step(700)
        self.assertEqual(self.run_of("run.count"), 700)
        self.make(5)
        self.check_last(self.last(), 4000)

    def test_speeds_and_rates(self):
        self.watch(1500)
        rows = [dict(zip(COLUMNS, row)) for row in self.server.engine.steps]
        end = rows[-1]["time_us"]
        first = max(i for i, row in enumerate(rows) if row["time_us"] <= end - 10e6)
        seconds = (end - rows[first]["time_us"]) / 1e6
        tokens = sum(row["tokens"] for row in rows[first + 1:])
        self.assertAlmostEqual(number(self.tile("steps")), (len(rows) - 1 - first) / seconds,
                               delta=0.06)
        self.assertAlmostEqual(number(self.tile("tokens")) * 1000, tokens / seconds,
                               delta=0.006 * tokens / seconds)
        minute = [row for row in rows if row["time_us"] > end - 60e6]
        rate = sum(r["hit_tokens"] for r in minute) / sum(r["query_tokens"] for r in minute)
        self.assertAlmostEqual(quantity(self.tile("hit_minute")), rate, delta=0.0006)

    # ---- block maps ---------------------------------------------------------

    def until_map(self, step):
        self.until("step => quireLive.maps.maps[0].map?.last_step >= step", step)

    def test_block_maps(self):
        self.watch(400)
        for count, scheme in ((1, "light"), (900, "dark"), (500, "light")):
            if scheme == "dark":
                self.page.keyboard.press("t")
            self.make(count)
            self.until_map(self.last()["step"])
            gpu, lower = self.check_map("map"), self.check_map("host-map")
            last = self.last()
            for state in ("pinned", "active", "cached", "empty"):
                self.assertEqual(gpu[state], last[state])
                self.assertEqual(lower[state], last[f"file_{state}"])
            self.assertEqual((gpu["cell_blocks"], lower["cell_blocks"]), (1, 3))
            self.assertEqual(self.page.text_content("#map-step"), f"step {last['step']:,}")
        self.assertEqual(self.page.text_content("#map-title"), "Block map, GPU")
        self.assertEqual(self.page.text_content("#host-map-title"), "Block map, file")
        self.assertFalse(self.page.is_visible("#no-map"))

    def test_a_square_is_described(self):
        self.watch(900)
        self.until_map(900)
        told = self.map_of("map")
        for state, name in (("cached", "cached"), ("pinned", "active, pinned")):
            cell = told["cells"][state].index(1)
            box = self.page.locator("#map-blocks").bounding_box()
            self.page.mouse.move(box["x"] + (cell % told["across"] + 0.5) * told["size"],
                                 box["y"] + (cell // told["across"] + 0.5) * told["size"])
            self.settle()
            self.assertEqual(self.page.text_content("#map-note"), f"block {cell:,}: {name}")
        self.page.mouse.move(5, 5)
        self.settle()
        self.assertEqual(self.page.text_content("#map-note"), "4,001 blocks, a square is a block")
        self.assertEqual(self.page.text_content("#host-map-note"),
                         "9,001 blocks, a square is 3 blocks")

    def test_paused_maps_stand_still(self):
        self.watch(300)
        self.until_map(300)
        self.page.click("#pause")
        self.server.make(50)
        self.page.wait_for_timeout(700)
        self.assertEqual(self.map_of("map")["last_step"], 300)
        self.page.click("#pause")
        self.until_map(350)

    def test_no_block_maps(self):
        self.serve(200)
        self.server.has_maps = False
        self.open(self.server.url)
        self.until("() => document.getElementById('no-map').textContent.includes('--map-ms')")
        self.assertTrue(self.page.is_visible("#no-map"))
        self.assertFalse(self.page.is_visible("#map"))
        self.assertFalse(self.page.is_visible("#host-map"))
        asked = self.server.asked.count("/blocks")
        self.page.wait_for_timeout(600)
        self.assertEqual(self.server.asked.count("/blocks"), asked)

    def test_a_server_that_knows_no_maps(self):
        self.serve(200)
        self.server.has_maps = None
        self.open(self.server.url)
        self.until("() => document.getElementById('no-map').textContent === 'This server has no block map.'")
        self.complaints = [text for text in self.complaints if "404" not in text]

    # ---- before the page was there ------------------------------------------

    def test_older_steps_are_asked_for(self):
        self.watch(3000)
        self.assertEqual(self.run_of("[run.count, run.step[0], run.missed]"), [3000, 1, 0])

    def test_totals_are_those_of_the_engine(self):
        """Also what happened so long ago that no step of it is kept."""
        self.watch(9000)
        self.assertEqual(self.run_of("run.step[0]"), 9000 - 4096 + 1)
        sums = self.server.engine.sums
        self.until("n => +document.querySelector('[data-tile=preemptions]').textContent === n",
                   sums["preempted"])
        self.assertGreater(sums["preempted"], 10)
        self.assertAlmostEqual(quantity(self.tile("hit_total")),
                               sums["hit_tokens"] / sums["query_tokens"], delta=0.0006)
        before = sums["preempted"]
        while sums["preempted"] == before:
            self.make(100)
        self.assertEqual(number(self.tile("preemptions")), sums["preempted"])

    def test_no_step_yet(self):
        self.serve()
        self.open(self.server.url)
        self.until_sign("live")
        self.assertTrue(self.page.is_visible("#empty"))
        self.assertFalse(self.page.is_visible("#content"))
        self.make(3)
        self.assertFalse(self.page.is_visible("#empty"))
        self.check_last(self.last(), 4000)

    def test_steps_that_were_not_received_are_counted_and_pale(self):
        self.watch(1500)
        self.server.make(1000, told=False)
        self.make(500)
        self.assertEqual(self.run_of("[run.count, run.missed]"), [2000, 1000])
        self.assertIn("1,000 made faster", self.page.text_content("#made-by"))
        self.page.keyboard.press("0")
        self.settle()
        gap, known = self.page.evaluate("""() => [2000, 2750].map(step => {
          const {view, run} = quireLive.page;
          const [from, to] = [run.time[1499], run.time[1500]];
          const time = step === 2000 ? (from + to) / 2 : run.time[run.count - 100];
          const canvas = document.querySelector("[data-chart=memory] canvas");
          const x = Math.round(view.xOf(time) * devicePixelRatio);
          return Math.min(...canvas.getContext("2d").getImageData(x, canvas.height - 4, 1, 1).data);
        })""")
        self.assertGreater(gap, 180)
        self.assertLess(known, 60)

    # ---- the connection -----------------------------------------------------

    def test_lost_and_found(self):
        self.watch(300)
        self.until_sign("live")
        self.server.stop()
        self.until_sign("lost")
        self.assertEqual(self.page.title(), "Lost · Made <up>")
        self.server.make(800)  # more than a hello has
        self.server.start()
        self.until_sign("live")
        self.make(5)
        self.assertEqual(self.run_of("[run.count, run.missed]"), [1105, 0])
        self.assertTrue(self.run_of("run.step.every((step, i) => step === i + 1)"))
        self.check_last(self.last(), 4000)
        self.forgive_lost_connections()

    def test_another_engine_at_the_same_address(self):
        self.watch(700)
        self.server.stop()
        self.until_sign("lost")
        self.server.engine, self.server.started = Engine(seed=2), time.time()
        self.server.make(900)  # further than the one before was
        self.server.start()
        self.until_sign("live")
        self.make(5)
        self.assertEqual(self.run_of("[run.count, run.step[0], run.missed]"), [905, 1, 0])
        self.assertEqual(self.run_of("[...run.series.running.min.subarray(0, run.count)]"),
                         [row[COLUMNS.index("running")] for row in self.server.engine.steps])
        self.check_last(self.last(), 4000)
        self.forgive_lost_connections()

    def test_another_engine_with_other_memory(self):
        self.watch(400)
        self.server.stop()
        self.until_sign("lost")
        self.server.engine, self.server.started = Engine(seed=3, total=1000, swap=0), time.time()
        self.server.start()
        self.until("() => document.getElementById('facts').textContent.includes('1,000 blocks')")
        self.make(50)
        self.check_last(self.last(), 1000)
        self.assertEqual(self.page.locator("[data-chart='memory.0']").count(), 0)
        self.forgive_lost_connections()

    def test_a_connection_that_is_gone_without_a_sign(self):
        self.watch(300)
        self.server.is_mute = True
        self.until_sign("lost")
        self.server.is_mute = False
        self.until_sign("live")
        self.make(5)
        self.check_last(self.last(), 4000)

    def test_stalled_and_idle(self):
        self.watch(300)
        self.make(2000)
        self.assertGreater(self.last()["running"], 0)
        self.until_sign("stalled")
        self.assertIn("no step for", self.page.text_content("#detail"))
        self.make(1)
        self.until_sign("live")
        while self.server.engine.running or self.server.engine.waiting:
            self.make(100, arrivals=False)
        self.make(1, arrivals=False)
        self.until("() => document.getElementById('detail').textContent.includes('idle')")
        self.assertEqual(self.tile("steps"), "0")

    def test_what_the_last_step_could_not_know(self):
        """Its requests end with the update behind it: metrics say so, no step does."""
        self.watch(300)
        self.make(2000)
        while len(self.server.engine.running) != 1:
            self.make(1, arrivals=False)
        self.server.engine.running.clear()
        self.until("() => document.getElementById('detail').textContent.includes('idle')")
        self.assertEqual(self.tile("running"), "0")

    def test_token_is_passed_on(self):
        self.serve(600, token="secret-token-of-16")
        self.open(self.server.url)
        self.until_step(600)
        self.assertEqual(self.run_of("run.count"), 600)
        asked = [url for url in self.asked if not url.startswith("data:")]
        self.assertTrue(all("token=secret-token-of-16" in url for url in asked), asked)
        self.assertNotIn("secret", self.page.inner_text("body"))

    def test_only_the_first_version_is_read(self):
        self.serve(5)
        self.server.version = 2
        self.open(self.server.url)
        self.until_sign("broken")
        self.assertIn("version mismatch", self.page.text_content("#detail"))

    # ---- long runs ----------------------------------------------------------

    def test_half_an_hour(self):
        """90,000 steps: more than there are rows; what was lowest and highest is still there."""
        self.watch(10)
        most, totals = dict.fromkeys(COLUMNS, 0), dict.fromkeys(COLUMNS, 0)
        for row in self.server.engine.steps:
            for name, value in zip(COLUMNS, row):
                most[name], totals[name] = max(most[name], value), totals[name] + value
        for _ in range(45):
            self.server.make(2000)
            for row in self.server.engine.steps[-2000:]:
                for name, value in zip(COLUMNS, row):
                    most[name], totals[name] = max(most[name], value), totals[name] + value
            self.until("step => quireLive.run.lastStep === step", self.server.engine.step)
        self.page.keyboard.press("0")
        self.until_step(90010)
        self.check_last(self.last(), 4000)
        self.assertEqual(self.run_of("[run.received, run.missed]"), [90010, 0])
        self.assertLessEqual(self.run_of("run.count"), 49152)
        for series, name in (("running", "running"), ("active", "active"), ("tokens", "tokens"),
                             ("waiting", "waiting")):
            self.assertEqual(self.run_of(f"run.series.{series}.range(0, run.count, {{}}).high"),
                             most[name])
            self.assertEqual(self.run_of(f"run.series.{series}.sums[run.count]"), totals[name])
        self.assertEqual(self.run_of("run.preempted[run.count]"), totals["preempted"])
        self.assertEqual(self.run_of("run.marks.num[run.marks.count]"), totals["preempted"])
        self.assertIn(self.bytes_held(), range(5_000_000, 50_000_000))
        view = self.view()
        self.assertEqual(view["from"], 0)
        self.assertGreater(view["to"], 1800e6 * 0.9)

    def bytes_held(self):
        return self.run_of("""[...new Set([run, run.rows, run.marks, ...Object.values(run.series)
            .flatMap(series => [series, ...series.levels])].flatMap(Object.values)
              .filter(column => column instanceof Float64Array).map(column => column.buffer))]
              .reduce((sum, buffer) => sum + buffer.byteLength, 0)""")

    def test_ranges_are_those_of_their_rows(self):
        self.watch(900)
        self.make(700)
        wrong = self.run_of("""(() => {
          const {min, max} = run.series.tokens;
          let wrong = 0;
          for (let first = 0; first < run.count; first += 13)
            for (let end = first + 1; end <= run.count; end += 37) {
              const {low, high} = run.series.tokens.range(first, end, {});
              wrong += low !== Math.min(...min.subarray(first, end));
              wrong += high !== Math.max(...max.subarray(first, end));
            }
          return wrong;
        })()""")
        self.assertEqual((self.run_of("run.count"), wrong), (1600, 0))

    def test_rows_are_merged_by_age(self):
        """A quarter of a million steps in 4,096 rows: sums, order and detail."""
        self.watch(5)
        found = self.page.evaluate("""() => {
          const run = new quireLive.run.constructor({total_blocks: 100, tiers: []}, 4096);
          const names = COLUMNS;
          run.setColumns(names);
          let tokens = 0;
          for (let step = 1; step <= 250000; step++) {
            const values = names.map(() => step % 97);
            values[names.indexOf("step")] = step;
            values[names.indexOf("time_us")] = 20000 * step;
            tokens += step % 97;
            run.append([values]);
          }
          const widths = [...run.step].map((step, i) =>
            (i + 1 < run.count ? run.step[i + 1] : 250001) - step);
          const newer = (i) => 250001 - run.step[i] - widths[i];
          return {count: run.count, sum: run.series.tokens.sums[run.count], tokens,
            points: run.points[run.count], last: run.lastStep, missed: run.missed,
            single: widths.slice(-500).every(width => width === 1),
            low: run.series.tokens.range(0, run.count, {}).low,
            coarsest: Math.max(...widths.map((width, i) => width / (newer(i) + 1500))),
            first: run.step[0], ordered: run.time.every((t, i) => i === 0 || t >= run.time[i - 1])};
        }""".replace("COLUMNS", repr(list(COLUMNS))))
        self.assertLessEqual(found["count"], 4096)
        self.assertEqual((found["sum"], found["points"], found["last"], found["missed"]),
                         (found["tokens"], 250000, 250000, 0))
        self.assertEqual((found["first"], found["low"]), (1, 0))
        self.assertTrue(found["single"] and found["ordered"])
        self.assertLess(found["coarsest"], 1 / 250)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quire", help="the program quire")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="a few of them: some seconds")
    args = parser.parse_args()
    playwright = need_playwright()
    chromium = need_chromium()
    suite = unittest.TestSuite(
        test for case in (MadeUpTest, ViewTest, ServeTest)
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(case)
        if args.only in test.id() and (not args.quick or test.id().split(".")[-1] in QUICK))
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as runner:
        Watching.quire = args.quire
        Watching.folder = Path(folder)
        Watching.text = assembled(Path(folder))
        Watching.trace = Path(folder) / "trace.jsonl"
        if args.quire:
            subprocess.run([args.quire, "generate", "chat", "--requests", "600", "--rate", "30",
                            "--seed", "5", "--out", Watching.trace], check=True)
        Watching.browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        Watching.browser.close()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
