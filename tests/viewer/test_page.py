#!/usr/bin/env python3
"""The page in Chromium: what it shows is what the run wrote, and it does what its help says.

    tests/viewer/test_page.py --maker BUILD/tests/viewer/viewer_make_page [--quire BUILD/cli/quire]
                              [--only NAME]

Pages of made-up runs (here), and pages that the program writes (page_replay.py).
"""

import argparse
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from page_kit import PageCase
from page_replay import ReplayPageTest
from pages import Made, need_chromium, need_playwright, number, quantity

SIZES = [(1600, 1000), (1280, 800), (768, 1024), (360, 740)]


class PageTest(PageCase):
    """Pages of made-up runs."""

    # ---- numbers ------------------------------------------------------------

    def test_figures_are_those_of_the_report(self):
        self.open(self.small.path)
        self.check_figures(self.small.report)

    def test_latencies_are_those_of_the_report(self):
        self.open(self.small.path)
        self.check_latencies(self.small.report)

    def test_tiles_are_those_of_the_report(self):
        self.open(self.small.path)
        report = self.small.report
        tile = lambda key: self.page.text_content(f"[data-tile='{key}']")
        self.assertAlmostEqual(quantity(tile("hit_rate")), report["hit_rate"], delta=0.0006)
        self.assertAlmostEqual(quantity(tile("ttft_ms")), report["ttft_ms"]["p50"] / 1000,
                               delta=0.006 * report["ttft_ms"]["p50"] / 1000)
        self.assertEqual(number(tile("preemptions")), report["preemptions"])
        label = self.page.text_content("[data-tile='ttft_ms'] >> xpath=preceding-sibling::dt")
        self.assertEqual(label, "First token, p50")

    def test_hover_shows_exact_values(self):
        self.open(self.small.path)
        seen = set()
        for share in (0.02, 0.11, 0.37, 0.5, 0.73, 0.99):
            self.hover("queue", share)
            step = self.small.steps[self.step()]
            seen.add(step["step"])
            for chart, key, name in (
                    ("memory", "active", "active"), ("memory", "cached", "cached"),
                    ("memory", "empty", "empty"), ("queue", "running", "num_running"),
                    ("tokens", "prefill", "num_prefill_tokens")):
                self.assertEqual(number(self.value(chart, key)), step[name], (step["step"], name))
            self.assertEqual(number(self.value("queue", "waiting")),
                             step["num_waiting"] + step["num_skipped"])
            self.assertEqual(number(self.value("tokens", "decode")),
                             step["num_tokens"] - step["num_prefill_tokens"])
            tier = step["tiers"][0]
            self.assertEqual(number(self.value("memory.0", "cached")), tier["cached"])
            self.assertEqual(number(self.value("traffic.0", "in")), tier["in"])
            self.assertEqual(number(self.value("traffic.0", "out")), tier["out"])
            if step["query_tokens"] > 0:
                self.assertEqual(number(self.value("sources", "gpu")), step["num_hit_tokens"])
                self.assertEqual(number(self.value("sources", "tier0")), tier["hits"])
                self.assertEqual(number(self.value("sources", "computed")),
                                 step["query_tokens"] - step["num_hit_tokens"] - tier["hits"])
            self.assert_rounded(self.value("duration", "duration"), step["duration_ms"] / 1000)
            self.assertEqual(number(self.value("preemptions", "step")), step["num_preempted"])
            if step["query_tokens"] > 0:
                self.assertEqual(number(self.value("hits", "step")), step["num_hit_tokens"])
        self.assertGreater(len(seen), 4)

    def test_hovered_step_is_the_one_at_that_time(self):
        self.open(self.small.path)
        for share in (0.1, 0.4, 0.8):
            self.hover("memory", share)
            view = self.view()
            time_s = (view["from"] + share * (view["to"] - view["from"])) / 1e6
            started = [s for s in self.small.steps.values() if s["time_s"] <= time_s + 1e-5]
            self.assertIn(self.step() - max(s["step"] for s in started), (-1, 0, 1))

    def test_bands_are_as_high_as_their_values(self):
        """Colours on the canvas, at the columns of some steps, against the blocks of these."""
        self.open(self.small.path)
        for share in (0.15, 0.5, 0.9):
            self.hover("memory", share)
            step = self.small.steps[self.step()]
            total = step["active"] + step["cached"] + step["empty"]
            found = self.page.evaluate("""share => {
              const {view, theme} = quirePage;
              const canvas = document.querySelector("[data-chart=memory] canvas");
              const x = Math.round((view.left + share * view.width) * devicePixelRatio);
              const column = canvas.getContext("2d").getImageData(x, 0, 1, canvas.height).data;
              const near = (i, colour) =>
                rgb(colour).every((c, k) => Math.abs(c - column[4 * i + k]) < 40);
              const rgb = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16));
              const counts = {active: 0, cached: 0, empty: 0};
              for (let i = 0; i < canvas.height; i++)
                for (const name in counts) if (near(i, theme[name])) { counts[name]++; break; }
              return {...counts, height: canvas.height};
            }""", share)
            for name in ("active", "cached", "empty"):
                self.assertAlmostEqual(found[name] / found["height"], step[name] / total,
                                       delta=0.04, msg=(step["step"], name))

    def test_preemptions_are_all_marked(self):
        self.open(self.small.path)
        total = sum(step["num_preempted"] for step in self.small.steps.values())
        self.assertGreater(total, 0)
        self.assertEqual(self.value("preemptions", "view"), f"{total} of {total}")
        self.page.keyboard.press("Home")
        visited = []
        for _ in range(total + 3):
            self.page.keyboard.press("n")
            self.settle()
            visited.append(self.step())
        marked = [n for n, step in self.small.steps.items() if step["num_preempted"] > 0]
        self.assertEqual(sorted(set(visited)), marked)

    # ---- moving about -------------------------------------------------------

    def test_wheel_zooms_at_the_pointer(self):
        self.open(self.small.path)
        self.hover("memory", 0.25)
        before = self.view()
        under = before["from"] + 0.25 * (before["to"] - before["from"])
        self.page.mouse.wheel(0, -400)
        self.settle()
        after = self.view()
        self.assertLess(after["to"] - after["from"], 0.7 * (before["to"] - before["from"]))
        share = (under - after["from"]) / (after["to"] - after["from"])
        self.assertAlmostEqual(share, 0.25, delta=0.01)
        self.page.mouse.wheel(0, 5000)
        self.settle()
        self.assertEqual(self.view(), before)

    def test_drag_zooms_to_the_stretch_and_double_click_resets(self):
        self.open(self.small.path)
        whole = self.view()
        x0, y = self.hover("queue", 0.4)
        self.page.mouse.down()
        x1 = x0 + 0.2 * whole["width"]
        self.page.mouse.move((x0 + x1) / 2, y)
        self.page.mouse.move(x1, y)
        self.settle()
        self.assertTrue(self.page.is_visible("#brush"))
        self.page.mouse.up()
        self.settle()
        view = self.view()
        self.assertAlmostEqual(view["from"] / whole["to"], 0.4, delta=0.01)
        self.assertAlmostEqual(view["to"] / whole["to"], 0.6, delta=0.01)
        self.assertFalse(self.page.is_visible("#brush"))
        self.page.mouse.dblclick(x0, y)
        self.settle()
        self.assertEqual(self.view(), whole)

    def test_keys(self):
        self.open(self.small.path)
        press = lambda key: (self.page.keyboard.press(key), self.settle())
        press("Home")
        self.assertEqual(self.step(), 1)
        for _ in range(3):
            press("ArrowRight")
        press("ArrowLeft")
        self.assertEqual(self.step(), 3)
        whole = self.view()
        press("+")
        self.assertAlmostEqual(self.view()["to"], whole["to"] / 2, delta=whole["to"] * 0.01)
        press("-")
        self.assertEqual(self.view(), whole)
        press("+")
        press("0")
        self.assertEqual(self.view(), whole)
        press("End")
        self.assertEqual(self.step(), 300)
        press("?")
        self.assertTrue(self.page.is_visible("#help"))
        press("Escape")
        self.assertFalse(self.page.is_visible("#help"))
        press("/")
        self.assertEqual(self.page.evaluate("document.activeElement.id"), "search")

    def test_cursor_stays_where_it_is_pinned(self):
        self.open(self.small.path)
        x, y = self.hover("memory", 0.3)
        self.page.mouse.click(x, y)
        pinned = self.step()
        self.hover("memory", 0.8)
        self.assertEqual(self.step(), pinned)
        self.page.keyboard.press("Escape")
        self.hover("memory", 0.8)
        self.assertGreater(self.step(), pinned)

    def test_touch_pinches_pans_and_taps(self):
        self.open(self.small.path, 360, 740, has_touch=True, is_mobile=True)
        self.page.evaluate("document.querySelector('[data-chart=queue]')"
                           ".scrollIntoView({block: 'center'})")
        self.settle()
        device = self.context.new_cdp_session(self.page)
        y = self.canvas("queue")["y"] + 40

        def touch(*moves):
            """Each move: the places of all fingers."""
            for i, places in enumerate(moves):
                points = [{"x": x, "y": y, "id": k} for k, x in enumerate(places)]
                device.send("Input.dispatchTouchEvent", {
                    "type": "touchMove" if i > 0 else "touchStart", "touchPoints": points})
                self.settle()
            device.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
            self.settle()

        whole = self.view()
        touch(*[(170 - 8 * k, 200 + 8 * k) for k in range(8)])
        pinched = self.view()
        span = pinched["to"] - pinched["from"]
        self.assertLess(span, 0.5 * whole["to"])
        touch(*[(250 - 10 * k,) for k in range(8)])
        self.assertGreater(self.view()["from"], pinched["from"])
        self.assertAlmostEqual(self.view()["to"] - self.view()["from"], span, delta=2)
        before = self.step()
        self.page.touchscreen.tap(100, y)
        self.settle()
        self.assertNotEqual(self.step(), before)

    # ---- requests -----------------------------------------------------------

    def fact(self, name):
        return self.page.text_content(f"#request [data-fact='{name}']")

    def test_a_request_is_found_by_its_id(self):
        self.open(self.small.path)
        for request in list(self.small.requests.values())[1::5]:
            self.page.fill("#search", f"{request['id']:.0f}")
            self.settle()
            self.assertEqual(number(self.fact("request")), request["id"])
            self.assertEqual(number(self.fact("prompt")), request["prompt"])
            self.assertEqual(number(self.fact("output")), request["output"])
            self.assertEqual(number(self.fact("of it cached")), request["hit"])
            self.assertEqual(number(self.fact("preempted")), request["preempted"])
            for name, end in (("queue", "scheduled"), ("first token", "first_token"),
                              ("in all", "end")):
                self.assert_rounded(self.fact(name), request[end] - request["arrival"], name)
        self.page.press("#search", "Enter")
        self.settle()
        view = self.view()
        self.assertLessEqual(view["from"], 1e6 * request["arrival"])
        self.assertGreaterEqual(view["to"], min(1e6 * request["end"], view["to"]))
        self.page.press("#search", "Escape")
        self.assertFalse(self.page.is_visible("#request"))

    def test_requests_are_found_by_session_and_preemption(self):
        self.open(self.large.path)
        session = next(iter(self.large.requests.values()))["session"]
        self.page.fill("#search", f"s{session:.0f}")
        self.settle()
        shown = number(self.page.text_content("#requests-note"))
        known = sum(r["session"] == session for r in self.large.requests.values())
        still_open = self.page.evaluate("quirePage.run.requests.total") - len(self.large.requests)
        self.assertIn(shown - known, range(int(still_open) + 1))
        self.assertEqual(number(self.fact("session")), session)
        self.page.fill("#search", "preempted")
        self.settle()
        shown = number(self.page.text_content("#requests-note"))
        known = sum(r["preempted"] > 0 for r in self.large.requests.values())
        self.assertGreater(known, 0)
        self.assertIn(shown - known, range(int(still_open) + 1))
        self.page.fill("#search", "nothing of the kind")
        self.settle()
        self.assertEqual(number(self.page.text_content("#requests-note")), 0)

    def test_a_click_on_a_bar_selects_its_request(self):
        self.open(self.small.path)
        request = self.small.requests[3]
        self.page.locator("#lanes").scroll_into_view_if_needed()
        box = self.page.locator("#lanes").bounding_box()
        place = self.page.evaluate("""() => { const {timeline, view, run} = quirePage;
          const i = run.requests.id.indexOf(3);
          return {x: view.xOf((run.requests.arrival[i] + run.requests.ended[i]) / 2),
                  y: timeline.lane[i] * 9 + 4}; }""")
        self.page.mouse.click(box["x"] + place["x"], box["y"] + place["y"])
        self.settle()
        self.assertEqual(number(self.fact("request")), 3)
        self.assertEqual(number(self.fact("prompt")), request["prompt"])

    # ---- block map ----------------------------------------------------------

    def test_block_map_has_the_blocks_of_its_step(self):
        self.open(self.small.path)
        for share in (0.2, 0.6, 0.95):
            self.hover("memory", share)
            step = self.small.steps[self.step()]
            self.assertEqual(number(self.page.text_content("#map-step")), step["step"])
            counts = self.page.evaluate("""() => { const {map, theme} = quirePage;
              const ctx = map.canvas.getContext("2d"), scale = devicePixelRatio, counts = {};
              const rgb = c => [1, 3, 5].map(i => parseInt(c.slice(i, i + 2), 16)).join();
              for (let i = 1; i < map.frames.cells; i++) {
                const [x, y] = map.placeOf(i);
                const middle = [x, y].map(edge => (edge + map.size / 2) * scale);
                const [r, g, b] = ctx.getImageData(...middle, 1, 1).data;
                for (const name of ["empty", "cached", "active"])
                  if (rgb(theme[name]) === [r, g, b].join()) counts[name] = (counts[name] || 0) + 1;
              }
              return counts; }""")
            for name in ("empty", "cached", "active"):
                self.assertEqual(counts.get(name, 0), step[name], (step["step"], name))

    def test_block_map_names_the_nearest_recorded_step(self):
        self.open(self.large.path)
        self.hover("memory", 0.613)
        recorded = number(self.page.text_content("#map-step"))
        self.assertEqual((recorded - 1) % 4, 0)
        self.assertLess(abs(recorded - self.step()), 64)

    # ---- many steps ---------------------------------------------------------

    def test_merged_rows_keep_every_extreme(self):
        self.open(self.merged.path)
        found = self.page.evaluate("""() => { const out = {};
          for (const name of ["active", "waiting", "running", "tokens", "prefill"]) {
            const s = quirePage.run.series[name];
            out[name] = [s.range(0, s.min.length, {}).low, s.range(0, s.min.length, {}).high];
          }
          return {...out, rows: quirePage.run.count}; }""")
        self.assertLessEqual(found["rows"], 1000)
        waiting = lambda s: s["num_waiting"] + s["num_skipped"]
        for name, get in (("active", lambda s: s["active"]), ("waiting", waiting),
                          ("running", lambda s: s["num_running"]),
                          ("tokens", lambda s: s["num_tokens"]),
                          ("prefill", lambda s: s["num_prefill_tokens"])):
            values = [get(step) for step in self.merged.steps.values()]
            self.assertEqual(found[name][1], max(values), name)
            self.assertLessEqual(found[name][0], min(values), name)  # idle times are rows too
        self.hover("queue", 0.5)
        self.assertRegex(self.page.text_content("#readout"), r"^steps [\d,]+ to [\d,]+ ")
        total = sum(step["num_preempted"] for step in self.merged.steps.values())
        self.assertIn(f" of {total:,}", self.value("preemptions", "view"))

    def test_zooms_from_all_steps_to_one(self):
        self.open(self.large.path)
        self.hover("memory", 0.5)
        for _ in range(40):
            self.page.mouse.wheel(0, -400)
        self.settle()
        self.assertLess(self.view()["to"] - self.view()["from"], 100)
        step = self.large.steps[self.step()]
        self.assertEqual(number(self.value("memory", "active")), step["active"])
        self.page.keyboard.press("0")
        self.settle()
        self.assertTrue(self.page.evaluate("quirePage.view.isWhole"))

    # ---- looks --------------------------------------------------------------

    def test_fits_every_width(self):
        for scheme in ("light", "dark"):
            for width, height in SIZES:
                self.open(self.small.path, width, height, scheme)
                wide = self.page.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, scheme)
                self.assertEqual(self.complaints, [])
                self.context.close()

    def brightness(self):
        colour = self.page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, colour[4:-1].split(","))) / 3

    def test_follows_the_system_and_the_button(self):
        self.open(self.small.path, scheme="dark")
        self.assertLess(self.brightness(), 60)
        self.page.click("#theme")
        self.assertGreater(self.brightness(), 200)
        self.page.reload()
        self.page.wait_for_function("window.quirePage")
        self.assertGreater(self.brightness(), 200)
        self.asked = []

    def test_prints_light(self):
        self.open(self.small.path, scheme="dark")
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.emulate_media(media="print")
        self.assertGreater(self.brightness(), 200)
        self.assertGreater(len(self.page.pdf()), 10000)
        self.page.evaluate("dispatchEvent(new Event('afterprint'))")
        self.assertLess(self.brightness(), 60)

    def test_texts_are_texts(self):
        self.open(self.small.path)
        self.assertEqual(self.page.text_content("#title"), "toy & <sons>.jsonl")
        self.assertEqual(self.page.text_content("[data-figure='note']"), "</script><b>")

    def test_everything_has_a_name(self):
        self.open(self.small.path)
        unnamed = self.page.evaluate("""() => [...document.querySelectorAll(
            "button, input, canvas:not([aria-hidden]), [role=img], dialog")].filter(e => !(
              e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") ||
              e.textContent.trim())).map(e => e.outerHTML)""")
        self.assertEqual(unnamed, [])

    def test_a_run_without_steps_says_so(self):
        context = self.browser.new_context()
        self.addCleanup(context.close)
        self.complaints, self.asked = [], []
        page = context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(Made(self.maker, self.folder, "empty", steps=0).path.as_uri())
        self.assertTrue(page.is_visible("#empty"))
        self.assertFalse(page.is_visible("#content"))

    def test_the_side_is_whole_beside_short_charts(self):
        self.open(self.small.path, width=1400, height=500)
        self.page.add_style_tag(content="#timeline, .chart:not([data-chart=memory]) "
                                        "{ display: none }")
        self.page.evaluate("quirePage.layout()")
        self.settle()
        cut = self.page.evaluate("""() => { const side = document.querySelector(".side");
          return side.scrollHeight - side.clientHeight; }""")
        self.assertLessEqual(cut, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--maker", required=True, help="the program viewer_make_page")
    parser.add_argument("--quire", help="the program quire")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    args = parser.parse_args()
    playwright = need_playwright()
    chromium = need_chromium()
    suite = unittest.TestSuite(
        test for case in (PageTest, ReplayPageTest)
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(case)
        if args.only in test.id())
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as runner:
        PageCase.quire = args.quire
        PageCase.maker = args.maker
        PageCase.folder = Path(folder)
        PageCase.small = Made(args.maker, Path(folder), "small", steps=300, blocks=512, tiers=1)
        PageCase.large = Made(args.maker, Path(folder), "large", steps=20000, blocks=5000)
        PageCase.merged = Made(args.maker, Path(folder), "merged", steps=20000, blocks=5000,
                               rows=1000)
        PageCase.browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        PageCase.browser.close()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
