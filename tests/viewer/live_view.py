"""The live page under a reader's hand: following, pausing, its list of events, how it draws."""

import time

from live_kit import MadeUpCase
from made_up_server import COLUMNS
from pages import number

SIZES = [(1600, 1000), (1440, 900), (1024, 768), (768, 1024), (390, 844), (320, 640)]


class ViewTest(MadeUpCase):
    """What a reader does with the page, with the made-up server."""

    # ---- following, pausing -------------------------------------------------

    def test_follows_until_touched(self):
        self.watch(1000)
        self.assertAlmostEqual(self.view()["to"] - self.view()["from"], 60e6)
        self.make(50)
        self.assertEqual(self.view()["to"], self.run_of("run.end"))
        self.hover("queue", 0.7)
        self.page.mouse.wheel(0, -400)
        self.settle()
        held = self.view()
        self.assertFalse(held["isFollowing"])
        self.assertLess(held["to"] - held["from"], 40e6)
        self.make(100)
        self.assertEqual(self.view(), held)
        self.page.click("#follow")
        self.settle()
        self.assertEqual(self.view()["to"], self.run_of("run.end"))
        self.assertTrue(self.page.is_disabled("#follow"))

    def test_windows(self):
        self.watch(1000)
        for key, seconds in (("2", 300), ("3", 900), ("1", 60)):
            self.page.keyboard.press(key)
            self.settle()
            view = self.view()
            self.assertAlmostEqual(view["to"] - view["from"], seconds * 1e6)
            pressed = self.page.get_attribute(f"[data-seconds='{seconds}']", "aria-pressed")
            self.assertEqual(pressed, "true")
        self.page.click("#zoom-reset")
        self.make(10)
        view = self.view()
        self.assertEqual((view["from"], view["to"]), (0, self.run_of("run.end")))

    def test_pause(self):
        self.watch(500)
        before = self.last()
        self.page.click("#pause")
        held = self.view()
        self.server.make(200)
        self.until("() => quireLive.run.lastStep === 700")
        self.page.wait_for_timeout(300)
        self.until_sign("paused")
        self.assertEqual(self.view(), held)
        self.check_last(before, 4000)
        self.page.click("#pause")
        self.until_sign("live")
        self.page.wait_for_timeout(250)
        self.check_last(self.last(), 4000)

    def test_keys(self):
        self.watch(500)
        self.page.keyboard.press("ArrowLeft")
        self.page.keyboard.press("ArrowLeft")
        self.settle()
        self.assertEqual(self.step(), 498)
        self.make(20)  # the cursor stays where it was put
        self.assertEqual(self.step(), 498)
        self.page.keyboard.press("Escape")
        self.settle()
        self.assertEqual(self.step(), 520)
        self.page.keyboard.press("+")
        self.settle()
        self.assertFalse(self.view()["isFollowing"])
        self.page.keyboard.press("f")
        self.settle()
        self.assertTrue(self.view()["isFollowing"])
        self.page.keyboard.press("Space")
        self.until_sign("paused")
        self.page.keyboard.press("Space")
        self.until_sign("live")

    def test_preemptions_are_found(self):
        self.watch(2500)
        rows = [dict(zip(COLUMNS, row)) for row in self.server.engine.steps]
        steps = [row["step"] for row in rows if row["preempted"] > 0]
        self.page.keyboard.press("p")
        self.settle()
        self.assertEqual(self.step(), steps[-1])
        self.page.keyboard.press("p")
        self.settle()
        self.assertEqual(self.step(), steps[-2])

    # ---- the list of events -------------------------------------------------

    def test_events(self):
        self.watch(2000)
        self.server.tell("kv", {"events": [
            {"kind": "stored", "group": 1, "blocks": 7, "hash": "00112233445566ff", "parent": None,
             "medium": "GPU"},
            *({"kind": "removed", "group": 0, "blocks": 1, "hash": f"{i:016x}", "parent": None,
               "medium": medium} for medium in ("CPU", "DISK") for i in range(3)),
            {"kind": "cleared", "group": 0, "blocks": 0, "hash": None, "parent": None}],
            "skipped": 12})
        self.until("() => document.querySelectorAll('#events tr').length === 4")
        rows = [[cell.strip() for cell in row.split("\t")] for row in
                self.page.inner_text("#events").split("\n")]
        self.assertEqual([row[1:5] for row in rows], [
            ["× cleared", "", "all", ""], ["− removed", "0", "3", "DISK"], ["− removed", "0", "3", "CPU"],
            ["+ stored", "1", "7", "GPU"]])
        self.assertEqual(rows[3][5], "00112233445566ff")
        self.assertEqual(rows[1][5], "0" * 16)
        self.assertEqual(self.page.text_content("#events-note"),
                         "7 stored · 6 removed · 1 × cleared · 12 not listed")

    def test_events_hold_still_for_who_reads(self):
        self.watch(2000)
        self.make(300)
        self.until("() => document.querySelectorAll('#events tr').length > 60")
        self.page.evaluate("document.getElementById('events-scroll').scrollTop = 300")
        before = self.page.inner_text("#events")
        self.make(50)
        self.until("() => !document.getElementById('events-newer').hidden")
        self.assertEqual(self.page.inner_text("#events"), before)
        self.page.click("#events-newer")
        self.settle()
        self.assertNotEqual(self.page.inner_text("#events"), before)
        self.assertTrue(self.page.is_hidden("#events-newer"))

    # ---- drawing ------------------------------------------------------------

    COUNT_DRAWINGS = """
      window.drawings = 0;
      const clear = CanvasRenderingContext2D.prototype.clearRect;
      CanvasRenderingContext2D.prototype.clearRect = function (...all) {
        if (this.canvas.closest("[data-chart=memory]")) window.drawings++;
        return clear.apply(this, all);
      };
      window.isHidden = false;
      Object.defineProperty(Document.prototype, "hidden", { get: () => window.isHidden });
    """

    def drawings(self, seconds):
        before = self.page.evaluate("window.drawings")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.server.make(1)
            time.sleep(0.02)
        return self.page.evaluate("window.drawings") - before

    def test_draws_ten_times_a_second_and_not_while_hidden(self):
        self.watch(300, script=self.COUNT_DRAWINGS)
        self.assertIn(self.drawings(2), range(8, 23))
        self.page.evaluate("window.isHidden = true")
        self.page.wait_for_timeout(200)
        self.assertEqual(self.drawings(1), 0)
        self.page.evaluate("window.isHidden = false")
        self.until_step(self.server.engine.step)
        self.check_last(self.last(), 4000)

    def test_less_motion_for_who_asks(self):
        self.watch(300, script=self.COUNT_DRAWINGS, reduced_motion="reduce")
        self.assertIn(self.drawings(3), range(2, 5))
        self.assertEqual(self.page.evaluate(
            "getComputedStyle(document.querySelector('#sign i')).animationName"), "none")

    # ---- for everybody ------------------------------------------------------

    def test_fits_every_screen(self):
        self.serve(2500)
        for width, height in SIZES:
            for scheme in ("light", "dark"):
                self.open(self.server.url, width, height, scheme)
                self.until_step(2500)
                wide = self.page.evaluate("document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width, (width, scheme))
                self.assertTrue(self.page.is_visible("#state"))
                box = self.page.locator("#sign").bounding_box()
                self.assertLessEqual(box["x"] + box["width"], width)
                self.page.context.close()

    def test_prints_light(self):
        self.watch(500, scheme="dark")
        self.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        self.page.emulate_media(media="print")
        self.assertEqual(self.page.evaluate("document.documentElement.dataset.theme"), "light")
        self.assertGreater(len(self.page.pdf()), 10000)

    def test_texts_are_texts(self):
        self.watch(5)
        self.assertEqual(self.page.text_content("#title"), "Made <up>")

    def test_everything_has_a_name(self):
        self.watch(5)
        unnamed = self.page.evaluate("""() => [...document.querySelectorAll(
            "button, input, canvas:not([aria-hidden]), [role=img], dialog, [tabindex]")].filter(e =>
              !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") ||
              e.textContent.trim()) && !e.hidden).map(e => e.outerHTML)""")
        self.assertEqual(unnamed, [])
        self.page.click("#show-help")
        self.assertTrue(self.page.is_visible("#help"))
