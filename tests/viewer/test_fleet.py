#!/usr/bin/env python3
"""The page of `quire fleet` in Chromium: what it shows is what the program wrote.

    tests/viewer/test_fleet.py --quire BUILD/cli/quire [--only NAME]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from page_kit import PageCase
from pages import need_chromium, need_playwright, number, quantity

SIZES = [(1440, 900), (768, 1024), (390, 844)]


class Fleet:
    """The page of a generated workload, with the report beside it."""

    def __init__(self, quire, folder, name, *more, kind="mixed", requests=400, trace=None):
        self.path = folder / f"{name}.html"
        if trace is None:
            trace = folder / f"{name}.jsonl"
            subprocess.run([quire, "generate", kind, "--requests", str(requests), "--rate", "20",
                            "--seed", "2", "--out", trace], check=True)
        report = folder / f"{name}.json"
        subprocess.run([quire, "fleet", trace, "--quiet", "--skip-bad", "--html", self.path, "--json",
                        report, *more], check=True)
        self.report = json.loads(report.read_text())
        self.fleet = self.report["fleet"]
        self.history = self.fleet["history"]


class FleetPageTest(PageCase):
    def open_fleet(self, made, *size, **options):
        return self.open(made.path, *size, ready="window.quireFleet", **options)

    def axis(self):
        return self.page.evaluate("(({left, width, binUs, to, count}) => "
                                  "({left, width, binUs, to, count}))(quireFleet.axis)")

    def point(self, chart, bin, row_share=0.5):
        """Moves the pointer to a bin of a chart."""
        self.page.locator(f"[data-chart='{chart}']").scroll_into_view_if_needed()
        box, axis = self.canvas(chart), self.axis()
        middle = (bin + 0.5) * axis["binUs"] / axis["to"]
        self.page.mouse.move(box["x"] + axis["left"] + middle * axis["width"],
                             box["y"] + row_share * box["height"])
        self.settle()

    # ---- numbers ------------------------------------------------------------------

    def test_figures_are_those_of_the_report(self):
        self.open_fleet(self.small)
        report = self.small.report
        for key in ("requests", "steps", "prompt_tokens", "output_tokens", "hit_tokens", "preemptions"):
            self.assertEqual(number(self.page.text_content(f"[data-figure='{key}']")), report[key], key)
        self.check_latencies(report)
        tile = lambda key: self.page.text_content(f"[data-tile='{key}']")
        self.assertAlmostEqual(quantity(tile("hit_rate")), report["hit_rate"], delta=0.0006)
        self.assertAlmostEqual(quantity(tile("slo")), report["goodput"]["share"], delta=0.0006)
        self.assertAlmostEqual(number(tile("cost")), self.small.fleet["cost"]["gpu_hours"], delta=0.006)
        self.assertAlmostEqual(quantity(tile("believed")), self.small.fleet["believed_tokens"] /
                               report["prompt_tokens"], delta=0.0006)

    def test_hover_shows_the_bin(self):
        self.open_fleet(self.small)
        bins = self.small.history["bins"]
        rows = len(self.small.history["running"])
        for bin in (2, len(bins["ended"]) // 3, len(bins["ended"]) // 2):
            self.point("tokens", bin)
            seconds = self.small.history["bin_s"]
            found = number(self.value("tokens", "hit_tokens").replace("k", ""))
            factor = 1000 if "k" in self.value("tokens", "hit_tokens") else 1
            self.assertAlmostEqual(found * factor, bins["hit_tokens"][bin] / seconds,
                                   delta=0.006 * bins["hit_tokens"][bin] / seconds + 0.006)
            for row in (0, rows - 1):
                self.point("map-running", bin, (row + 0.5) / rows)
                text = self.value("map-running", "cell")
                self.assertTrue(text.startswith(f"worker {row}: "), text)
                self.assertAlmostEqual(number(text.split(": ")[1]), self.small.history["running"][row][bin],
                                       delta=0.51)
        self.page.mouse.move(1, 1)
        self.settle()
        self.assertTrue(self.page.is_hidden("#cursor"))

    def test_maps_have_the_colours_of_their_values(self):
        """The hottest cell has the hottest colour; a cell without prompts has that of the paper."""
        self.open_fleet(self.small)
        running = self.small.history["running"]
        most = max(max(row) for row in running)
        row, bin = next((r, b) for r, cells in enumerate(running) for b, value in enumerate(cells)
                        if value == most)
        colour = self.page.evaluate("""([row, bin]) => {
          const {axis, maps} = quireFleet, map = maps[0], scale = devicePixelRatio;
          const x = (axis.left + (bin + 0.5) * axis.binUs / axis.to * axis.width) * scale;
          const y = (row + 0.5) / map.spec.rows.length * map.canvas.height;
          const pixel = map.canvas.getContext("2d").getImageData(Math.round(x), Math.round(y), 1, 1).data;
          return {pixel: [...pixel].slice(0, 3), hot: map.colours().hot}; }""", [row, bin])
        for seen, hot in zip(colour["pixel"], colour["hot"]):
            self.assertAlmostEqual(seen, hot, delta=3)

    def test_workers_are_sorted(self):
        self.open_fleet(self.small)
        busiest = max(self.small.fleet["workers"], key=lambda worker: worker["busy_s"])
        self.page.click("#worker-list >> text=Busy")
        first = self.page.locator("#worker-list tbody tr").first
        self.assertEqual(number(first.locator("th").text_content()), busiest["worker"])
        self.assertEqual(self.page.get_attribute("#worker-list th[aria-sort]", "aria-sort"), "descending")
        self.page.click("#worker-list >> text=Busy")
        first = self.page.locator("#worker-list tbody tr").first
        self.assertNotEqual(number(first.locator("th").text_content()), busiest["worker"])

    def test_decisions_are_found(self):
        self.open_fleet(self.small)
        decision = self.small.history["decisions"]["list"][37]
        self.page.fill("#search", str(decision["request"]))
        rows = self.page.locator("#decision-list tbody tr")
        self.assertEqual(rows.count(), 1)
        self.assertEqual(rows.locator("td").last.text_content(), decision["why"])
        self.page.fill("#search", "worker 2")
        workers = set(self.page.locator("#decision-list tbody td:nth-child(3)").all_text_contents())
        self.assertEqual(workers, {"2"})
        self.page.fill("#search", "999999")
        self.assertEqual(rows.count(), 0)
        self.assertIn("not on the page", self.page.text_content("#decisions-note"))
        self.page.fill("#search", "abc")
        self.assertIn("Expected a number", self.page.text_content("#decisions-note"))

    def test_classes_and_prefixes(self):
        self.open_fleet(self.small)
        for one in self.small.history["slo_classes"]:
            if one["group"] != "prompt":
                continue
            key = f"slo.prompt.{one['from']}"
            self.assertEqual(number(self.page.text_content(f"[data-figure='{key}']")), one["requests"])
            self.assertAlmostEqual(quantity(self.page.text_content(f"[data-figure='{key}1']")),
                                   one["good"] / one["requests"], delta=0.0006)
        self.assertGreater(len(self.small.history["prefixes"]), 0)
        for one in self.small.history["prefixes"]:
            key = f"prefix.{one['first_request']}.{one['tokens']}"
            self.assertEqual(number(self.page.text_content(f"[data-figure='{key}']")), one["requests"])
            self.assertEqual(number(self.page.text_content(f"[data-figure='{key}1']")), one["copies"])

    def test_a_crash_and_the_recovery_are_drawn(self):
        made = self.crashed
        crash = made.fleet["failures"]["crashes"][0]
        self.assertIsNotNone(crash["resumed_after_s"])
        self.open_fleet(made)
        lines = self.page.evaluate("quireFleet.axis.marks.lines.map(({us, kind}) => [kind, us / 1e6])")
        self.assertEqual([kind for kind, _ in lines][:2], ["crash", "resumed"])
        self.assertAlmostEqual(lines[0][1], crash["at_s"], places=6)
        self.assertAlmostEqual(lines[1][1], crash["at_s"] + crash["resumed_after_s"], places=5)
        # The line is there in each chart, and the worker's row is marked while it is off.
        reddest = """([name, us, share]) => {
          const {axis, charts, maps} = quireFleet, scale = devicePixelRatio;
          const {canvas} = [...charts, ...maps].find(({spec}) => spec.name === name);
          const probe = document.createElement("canvas").getContext("2d");
          probe.fillStyle = cssColourOf("wrong"); probe.fillRect(0, 0, 1, 1);
          const wrong = probe.getImageData(0, 0, 1, 1).data;
          const x = Math.round(axis.xOf(us) * scale), y = Math.round(canvas.height * share);
          const near = canvas.getContext("2d").getImageData(x - 2, y, 5, 1).data;
          let least = 999;
          for (let i = 0; i < near.length; i += 4)
            least = Math.min(least, [0, 1, 2].reduce((sum, k) => sum + Math.abs(near[i + k] - wrong[k]), 0));
          return least; }""".replace("cssColourOf(\"wrong\")",
                                     "getComputedStyle(document.documentElement).getPropertyValue('--wrong')")
        for chart in ("requests", "ttft", "ready", "tokens", "hits", "copies"):
            self.assertLess(self.page.evaluate(reddest, [chart, crash["at_s"] * 1e6, 0.02]), 160, chart)
        off = (crash["at_s"] + crash["ready_s"]) / 2 * 1e6
        share = (crash["worker"] + 0.5) / made.fleet["num_workers"]
        self.assertLess(self.page.evaluate(reddest, ["map-running", off, share]), 6)
        self.assertGreater(self.page.evaluate(reddest, ["map-running", off + 60e6, share]), 30)
        # Workers that are ready before, during and after; the mean time to first token of a bin.
        for at_s, ready in ((crash["at_s"] - 10, 16), (crash["at_s"] + 10, 15), (crash["ready_s"] + 10, 16)):
            self.point("ready", int(at_s / made.history["bin_s"]))
            self.assertAlmostEqual(number(self.value("ready", "ready")), ready, delta=0.01)
        self.assertEqual(number(self.page.text_content("[data-figure='crash.02']")), crash["interrupted"])
        self.open_fleet(self.small)
        self.assertEqual(self.page.locator("[data-chart='ttft']").count(), 0)

    # ---- keys, names, widths ---------------------------------------------------------

    def test_keys_move_and_speak(self):
        self.open_fleet(self.small)
        self.page.focus("#plots")
        state = lambda: self.page.evaluate("[quireFleet.bin, quireFleet.row]")
        count, rows = self.axis()["count"], len(self.small.history["running"])
        for key, expected in (("ArrowRight", [0, -1]), ("ArrowRight", [1, -1]), ("ArrowDown", [1, 0]),
                              ("ArrowUp", [1, 0]), ("ArrowDown", [1, 1]), ("End", [count - 1, 1]),
                              ("ArrowRight", [count - 1, 1]), ("Shift+ArrowDown", [count - 1, rows - 1]),
                              ("Home", [0, rows - 1]), ("ArrowLeft", [0, rows - 1])):
            self.page.keyboard.press(key)
            self.assertEqual(state(), expected, key)
        spoken = self.page.text_content("#spoken")
        self.assertTrue(spoken.startswith(f"worker {rows - 1}, "), spoken)
        self.assertIn(f"running {self.small.history['running'][-1][0]:.1f}".replace(".0", "")[:9], spoken)
        self.page.keyboard.press("Escape")
        self.assertEqual(state(), [-1, -1])

    def test_fits_every_width(self):
        for made in (self.small, self.large, self.crashed):
            for scheme in ("light", "dark"):
                for width, height in SIZES:
                    self.open_fleet(made, width, height, scheme=scheme)
                    wide = self.page.evaluate("document.documentElement.scrollWidth")
                    self.assertLessEqual(wide, width, (scheme, width))
                    self.assertEqual(self.complaints, [])
                    self.context.close()

    def test_hovering_moves_nothing(self):
        """A value in a heading must not change the height of the page."""
        for width in (1440, 390):
            self.open_fleet(self.small, width, 900)
            height = lambda: self.page.evaluate("document.getElementById('plots').offsetHeight")
            before = height()
            for bin in range(0, len(self.small.history["bins"]["ended"]), 9):
                self.page.evaluate(f"quireFleet.moveTo({bin}, {bin % 6})")
                self.assertEqual(height(), before, (width, bin))
            self.context.close()

    def test_theme(self):
        self.open_fleet(self.small, scheme="dark")
        colour = lambda: self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        pixels = lambda: self.page.evaluate("document.querySelector('#charts canvas').toDataURL()")
        dark, drawn = colour(), pixels()
        self.page.click("#theme")
        self.settle()
        self.assertNotEqual(colour(), dark)
        self.assertNotEqual(pixels(), drawn)

    def test_everything_has_a_name(self):
        self.open_fleet(self.small)
        unnamed = self.page.evaluate("""() => [...document.querySelectorAll(
            "button, input, canvas:not([aria-hidden]), [role=img], [role=region], [tabindex]")].filter(e => !(
              e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") ||
              (e.labels && e.labels.length) || e.textContent.trim())).map(e => e.outerHTML)""")
        self.assertEqual(unnamed, [])
        label = self.page.get_attribute("[data-chart='map-running'] canvas", "aria-label")
        self.assertRegex(label, r"highest worker \d+ .*, lowest worker \d+")

    # ---- edges ----------------------------------------------------------------------

    def test_many_workers(self):
        self.open_fleet(self.large)
        self.assertEqual(len(self.large.history["running"]), 513)
        self.assertEqual(self.page.locator("#worker-list tbody tr").count(), 1025)
        self.point("map-running", 5, 0.0001)
        self.assertIn("workers 0 to 1:", self.value("map-running", "cell"))
        self.page.mouse.move(1, 1)
        self.page.focus("#plots")
        self.page.keyboard.press("ArrowUp") # from none to the last row, which has one worker
        self.assertIn("worker 1024:", self.value("map-running", "cell"))

    def test_a_fleet_without_requests(self):
        trace = self.folder / "none.jsonl"
        trace.write_text('{"timestamp":0,"input_length":5120,"output_length":2,"hash_ids":'
                         '[1,2,3,4,5,6,7,8,9,10]}\n')
        made = Fleet(self.quire, self.folder, "none", "--workers", "2", "--max-model-len", "1024",
                     trace=trace)
        self.assertEqual(made.report["requests"], 0)
        self.open_fleet(made)
        self.page.keyboard.press("Tab")

    def test_a_trace_without_contents(self):
        trace = self.folder / "azure.csv"
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
            f"2023-11-16 18:17:{i:02}.0000000,{100 + i},{5 + i}\n" for i in range(40)))
        made = Fleet(self.quire, self.folder, "azure", "--workers", "3", "--format", "azure",
                     trace=trace)
        self.open_fleet(made)
        self.assertEqual(self.page.text_content("[data-tile='hit_rate']"), "–")
        self.assertEqual(self.page.locator("[data-chart='map-hits']").count(), 0)
        self.assertTrue(self.page.is_hidden("#prefixes"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--quire", required=True, help="the program quire")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    args = parser.parse_args()
    playwright = need_playwright()
    chromium = need_chromium()
    suite = unittest.TestSuite(
        test for test in unittest.defaultTestLoader.loadTestsFromTestCase(FleetPageTest)
        if args.only in test.id())
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as runner:
        PageCase.quire = args.quire
        PageCase.folder = Path(folder)
        PageCase.small = Fleet(args.quire, Path(folder), "small", "--workers", "6", "--router", "dynamo-kv",
                               "--kv-lag", "200", "--slo", "ttft=300ms,tpot=20ms")
        PageCase.large = Fleet(args.quire, Path(folder), "large", "--workers", "1025",
                               "--num-gpu-blocks", "9000", requests=3000)
        PageCase.crashed = Fleet(args.quire, Path(folder), "crashed", "--workers", "16", "--fail",
                                 "crash:worker=3,at=40,restart=20", requests=2400)
        PageCase.browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        PageCase.browser.close()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
