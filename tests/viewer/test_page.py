#!/usr/bin/env python3
"""The page in Chromium: what it shows is what the run wrote, and it does what its help says.

    tests/viewer/test_page.py --maker BUILD/tests/viewer/viewer_make_page [--quire BUILD/cli/quire]
                              [--only NAME]
"""

import argparse
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
from pages import Made, Replayed, need_chromium, need_playwright, number, quantity

SIZES = [(1600, 1000), (1280, 800), (768, 1024), (360, 740)]


class PageTest(unittest.TestCase):
    """One browser for all; each test opens a page of its own and ends without complaints."""

    def open(self, path, width=1280, height=900, scheme="light", ready="window.quirePage", **options):
        self.context = self.browser.new_context(viewport={"width": width, "height": height},
                                                color_scheme=scheme, **options)
        self.addCleanup(self.context.close)
        page = self.context.new_page()
        self.complaints = []
        self.asked = []
        page.on("console", self.complain)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_function(ready)
        self.page = page
        self.settle()
        return page

    def complain(self, message):
        """Errors and warnings, but for what the browser says of the tests' looking at pixels."""
        if message.type != "log" and "willReadFrequently" not in message.text:
            self.complaints.append(message.text)

    def settle(self):
        """Until what is pending is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame("
                           "() => requestAnimationFrame(done)))")

    def tearDown(self):
        self.assertEqual(self.complaints, [])
        others = [url for url in self.asked if not url.startswith(("file:", "data:"))]
        self.assertEqual((others, len(self.asked) <= 2), ([], True))

    def view(self):
        return self.page.evaluate("""() => { const {from, to, left, width} = quirePage.view;
          return {from, to, left, width}; }""")

    def step(self):
        return int(number(self.page.text_content("#readout")))

    def value(self, chart, key):
        return self.page.text_content(f"[data-chart='{chart}'] [data-value='{key}']")

    def canvas(self, chart):
        return self.page.locator(f"[data-chart='{chart}'] canvas").bounding_box()

    def hover(self, chart, share):
        """Moves the pointer to a share of a chart's width, and says where that is."""
        self.page.locator(f"[data-chart='{chart}']").scroll_into_view_if_needed()
        box, view = self.canvas(chart), self.view()
        x = box["x"] + view["left"] + share * view["width"]
        self.page.mouse.move(x, box["y"] + box["height"] / 2)
        self.settle()
        return x, box["y"] + box["height"] / 2

    # ---- numbers ------------------------------------------------------------

    def assert_rounded(self, shown, seconds, name=None):
        """A length of time on the page: three digits of it, or whole microseconds."""
        self.assertAlmostEqual(quantity(shown), seconds, delta=0.006 * seconds + 2e-6, msg=name)

    def check_figures(self, report):
        for key in ("requests", "steps", "prompt_tokens", "output_tokens", "hit_tokens",
                    "hit_blocks", "query_blocks", "preemptions", "recomputed_tokens", "errors"):
            shown = self.page.text_content(f"[data-figure='{key}']")
            self.assertEqual(number(shown), report[key], key)
        for key in ("hit_rate", "ideal_hit_rate"):
            shown = quantity(self.page.text_content(f"[data-figure='{key}']"))
            self.assertAlmostEqual(shown, report[key], delta=0.00006, msg=key)
        for name in ("total", "empty", "cached", "active"):
            shown = self.page.text_content(f"[data-figure='{name}']")
            self.assertEqual(number(shown), report["blocks"][name], name)

    def test_figures_are_those_of_the_report(self):
        self.open(self.small.path)
        self.check_figures(self.small.report)

    def test_latencies_are_those_of_the_report(self):
        self.open(self.small.path)
        self.check_latencies(self.small.report)

    def check_latencies(self, report):
        for key in ("ttft", "tpot", "e2e", "queue"):
            stated = report[f"{key}_ms"]
            columns = [name for name in ("mean", "p50", "p90", "p95", "p99") if name in stated]
            for i, name in enumerate(columns):
                shown = self.page.text_content(f"[data-figure='{key}_ms{i or ''}']")
                self.assert_rounded(shown, stated[name] / 1000, f"{key} {name}")
            for name in ("p50", "p90", "p99"):
                shown = self.page.text_content(f"[data-latency='{key}.{name}']")
                self.assert_rounded(shown, stated[name] / 1000, f"{key} {name}")

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

    # ---- the program --------------------------------------------------------

    def need_quire(self):
        if self.quire is None:
            self.complaints, self.asked = [], []
            self.skipTest("the program quire is not given")

    def test_replay_shows_what_it_reports(self):
        self.need_quire()
        made = Replayed(self.quire, self.folder)
        self.open(made.path)
        self.check_figures(made.report)
        self.check_latencies(made.report)
        for share in (0.05, 0.4, 0.8):
            self.hover("queue", share)
            text = self.page.text_content("#readout")
            step = made.steps[self.step()]
            if text.startswith("idle"):
                self.assertEqual(number(self.value("queue", "running")), 0)
                continue
            self.assertEqual(number(self.value("memory", "active")), step["active"])
            self.assertEqual(number(self.value("memory", "cached")), step["cached"])
            self.assertEqual(number(self.value("queue", "running")), step["num_running"])
            self.assertEqual(number(self.value("tokens", "prefill")), step["num_prefill_tokens"])
        self.page.keyboard.press("End")
        self.settle()
        self.assertEqual(made.report["preemptions"], 0)
        self.assertAlmostEqual(quantity(self.value("hits", "sofar")), made.report["hit_rate"],
                               delta=0.0006)
        total = self.page.evaluate("quirePage.run.requests.total")
        self.assertEqual(total, made.report["requests"])

    def test_verdict_losses_and_options_of_a_replay(self):
        self.need_quire()
        made = Replayed(self.quire, self.folder, "--tp", "2", "--gpu", "H100")
        self.open(made.path)
        report = made.report
        self.assertEqual(self.page.text_content("#verdict"), report["verdict"]["text"])
        self.assertIn("2 x H100", self.page.text_content("#facts"))
        note = self.page.text_content("[data-tile='ttft_ms'] + .note")
        for name in ("p99", "p95", "mean"):
            self.assertIn(name, note)
        parts = self.page.evaluate("""() => [...document.querySelectorAll("[data-loss]")]
          .map((e) => [e.dataset.loss, e.textContent])""")
        self.assertAlmostEqual(sum(quantity(text.split("·")[0]) for _, text in parts), 1, delta=0.01)
        shown = dict(parts)
        for key in ("evicted_tokens", "not_ready_tokens", "last_token_tokens", "partial_tokens"):
            self.assertEqual(key in shown, report["losses"][key] > 0, key)
        for name in ("speed", "tp", "kv-cache-dtype", "quantization", "gpu-memory-utilization",
                     "enable-prefix-caching", "lookahead"):
            self.assertEqual(self.page.locator(f"[data-figure='option.{name}']").count(), 1, name)
        words = self.page.text_content("#glossary")
        for word in ("active", "cached", "empty", "ideal", "losses", "TTFT", "TPOT"):
            self.assertIn(word, words)

    def test_a_trace_without_contents_has_no_hit_rate(self):
        self.need_quire()
        trace, path = self.folder / "azure.csv", self.folder / "azure.html"
        rows = "".join(f"2024-05-10 00:00:{i:02}.0000000,500,20\n" for i in range(40))
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
        subprocess.run([self.quire, "replay", trace, "--quiet", "--html", path], check=True)
        self.open(path)
        self.assertFalse("%" in self.page.text_content("[data-tile='hit_rate']"))
        self.assertEqual(self.page.locator("[data-chart='hits']").count(), 0)
        self.assertFalse(self.page.is_visible("#losses"))

    def test_the_side_is_whole_beside_short_charts(self):
        self.open(self.small.path, width=1400, height=500)
        self.page.add_style_tag(content="#timeline, .chart:not([data-chart=memory]) "
                                        "{ display: none }")
        self.page.evaluate("quirePage.layout()")
        self.settle()
        cut = self.page.evaluate("""() => { const side = document.querySelector(".side");
          return side.scrollHeight - side.clientHeight; }""")
        self.assertLessEqual(cut, 1)

    def test_a_sweep_hides_no_series(self):
        self.need_quire()
        workload, path = self.folder / "sweep.w", self.folder / "sweep.html"
        subprocess.run([self.quire, "generate", "chat", "--requests", "60", "--rate", "5", "--seed",
                        "3", "--out", workload], check=True)
        subprocess.run([self.quire, "sweep", workload, "--num-gpu-blocks", "9000,12000",
                        "--lookahead", "0,1", "--no-plot", "--html", path], check=True,
                       capture_output=True)
        for width in (1400, 390):
            self.open(path, width=width, ready="window.quireSweep")
            wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0)
        dashes = self.page.locator("[data-plot='Hit rate'] polyline").evaluate_all(
            "(lines) => lines.map((line) => line.getAttribute('stroke-dashoffset'))")
        self.assertEqual(len(set(dashes)), 2)  # equal lines: the dashes take turns
        self.page.locator("[data-plot='Hit rate'] .place").first.hover()
        tip = self.page.text_content("#tip")
        self.assertIn("lookahead 0", tip)
        self.assertIn("lookahead 1", tip)

    def test_tiers_of_a_replay(self):
        self.need_quire()
        made = Replayed(self.quire, self.folder, "--cpu-blocks", "6000", "--file-tier", "10G",
                        "--num-gpu-blocks", "8500", "--model", "llama-3.2-1b", "--clock", "burst",
                        kind="agent", requests=120)
        self.open(made.path)
        report = made.report
        self.assertGreater(report["hits_by_tier"]["cpu"], 0)
        names = self.page.locator("section.chart h2").all_text_contents()
        for name in ("CPU, blocks", "File, blocks", "CPU traffic", "File traffic", "Prompt tokens from"):
            self.assertIn(name, names)
        for i, tier in enumerate(report["tiers"]):
            for key in ("blocks", "cached", "hit_tokens", "failed_blocks"):
                shown = self.page.text_content(f"[data-figure='tiers.{key}{i or ''}']")
                self.assertEqual(number(shown), tier[key], (tier["tier"], key))
        for name, tokens in report["hits_by_tier"].items():
            shown = self.page.text_content(f"[data-figure='hits_by_tier.{name}']")
            self.assertEqual(number(shown), tokens)
        sums = self.page.evaluate("""() => [0, 1].map((i) => ["in", "out", "hits"].map((name) =>
          quirePage.run.series[`${name}.${i}`].sums.at(-1)))""")
        for i, tier in enumerate(report["tiers"]):
            steps = [step["tiers"][i] for step in made.steps.values()]
            for name, shown in zip(("in", "out", "hits"), sums[i]):
                moved = sum(step[name] for step in steps)
                self.assertGreaterEqual(shown, moved)  # idle times have some, too
        self.check_host_map(made)
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        self.assertLessEqual(wide, 0)

    def check_host_map(self, made):
        """The map of the host pool has as many blocks of each state as the pool had in that step."""
        for share in (0.3, 0.9):
            self.hover("memory", share)
            step, cached, active, colours = self.page.evaluate("""() => { const map = quirePage.hostMap;
              const ctx = map.canvas.getContext("2d"), colours = new Set();
              let cached = 0, active = 0;
              for (let i = 0; i < map.frames.cells; i++) {
                const middle = map.placeOf(i).map((edge) => (edge + map.size / 2) * devicePixelRatio);
                colours.add(ctx.getImageData(...middle, 1, 1).data.join());
                cached += map.cells[i] & 15;
                active += map.cells[i] >> 4;
              }
              return [map.frames.step[map.index], cached, active, colours.size]; }""")
            tier = made.steps[step]["tiers"][0]
            self.assertEqual((cached, active), (tier["cached"], tier["active"]), step)
            self.assertGreater(colours, 1)
            self.assertEqual(number(self.page.text_content("#host-map-step")), step)

    def test_swap_of_a_replay(self):
        self.need_quire()
        made = Replayed(self.quire, self.folder, "--swap-memory", "2Gi", "--num-gpu-blocks", "900", "--max-model-len", "8192", "--clock", "burst",
                        "--watermark", "0.01", "--admit-below", "0.9", "--preempt-above", "0.9",
                        requests=120)
        swap = made.report["swap"]
        self.assertGreater(swap["swaps"], 0)
        self.open(made.path)
        names = self.page.locator("section.chart h2").all_text_contents()
        for name in ("Swap, blocks", "Swap traffic", "Prompt tokens from"):
            self.assertIn(name, names)
        for name, keys in (("Swap", ("swaps", "requests", "out_blocks", "in_blocks", "kept_tokens")),
                           ("Pressure", ("preemptions", "held_up")), ("Watermark", ("blocks",))):
            for key in keys:
                shown = self.page.text_content(
                    f"table:has(caption:text-is('{name}')) [data-figure='{key}']")
                self.assertEqual(number(shown), made.report[name.lower()][key], (name, key))
        shown = self.page.evaluate("""() => ["in", "out", "hits"].map((name) =>
          quirePage.run.series[`${name}.0`].sums.at(-1))""")
        self.assertEqual(shown, [swap["out_blocks"], swap["in_blocks"], swap["kept_tokens"]])

    def test_view_makes_the_same_charts_of_snapshots(self):
        self.need_quire()
        path = self.folder / "view.html"
        subprocess.run([self.quire, "view", self.small.snapshots_path, "--html", path], check=True,
                       capture_output=True)
        self.open(path)
        self.assertFalse(self.page.is_visible("#timeline"))
        self.assertFalse(self.page.is_visible("#map"))
        for share in (0.2, 0.9):
            self.hover("queue", share)
            step = self.small.steps[self.step()]
            self.assertEqual(number(self.value("memory", "active")), step["active"])
            self.assertEqual(number(self.value("queue", "running")), step["num_running"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--maker", required=True, help="the program viewer_make_page")
    parser.add_argument("--quire", help="the program quire")
    parser.add_argument("--only", default="", help="tests whose name has this in it")
    args = parser.parse_args()
    playwright = need_playwright()
    chromium = need_chromium()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(PageTest)
    suite = unittest.TestSuite(test for test in suite if args.only in test.id())
    with tempfile.TemporaryDirectory() as folder, playwright.sync_playwright() as runner:
        PageTest.quire = args.quire
        PageTest.maker = args.maker
        PageTest.folder = Path(folder)
        PageTest.small = Made(args.maker, Path(folder), "small", steps=300, blocks=512, tiers=1)
        PageTest.large = Made(args.maker, Path(folder), "large", steps=20000, blocks=5000)
        PageTest.merged = Made(args.maker, Path(folder), "merged", steps=20000, blocks=5000,
                               rows=1000)
        PageTest.browser = runner.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        result = unittest.TextTestRunner(verbosity=2).run(suite)
        PageTest.browser.close()
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
