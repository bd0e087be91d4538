"""A browser that watches a live page: what all tests of a live page share."""

import re

from browser_kit import BrowserTest
from made_up_server import COLUMNS, Engine, Server
from pages import number, quantity

WAIT_MS = 15000


class Watching(BrowserTest):
    """Opens a live page by its address; the page asks nothing of another one."""

    def open(self, url, width=1440, height=900, scheme="light", script=None, **options):
        page = self.new_page(width, height, scheme, **options)
        if script:
            page.add_init_script(script)
        page.add_init_script("""addEventListener("securitypolicyviolation",
            (event) => console.error("policy: " + event.violatedDirective));""")
        page.goto(url)
        self.origin = url.split("?")[0]
        return page

    def tearDown(self):
        self.assertEqual(self.complaints, [])
        self.assertEqual([url for url in self.asked
                          if not url.startswith((self.origin, "data:"))], [])

    def forgive_lost_connections(self):
        """The browser itself complains of these."""
        self.complaints = [text for text in self.complaints
                           if not re.search("ERR_(CONNECTION|INCOMPLETE|EMPTY_RESPONSE|SOCKET)", text)]

    # ---- what is shown ------------------------------------------------------

    def until(self, condition, argument=None):
        self.page.wait_for_function(condition, arg=argument, timeout=WAIT_MS, polling=20)
        self.settle()

    def until_step(self, step):
        self.until("step => window.quireLive?.run?.lastStep >= step", step)
        self.page.wait_for_timeout(150)  # the next drawing
        self.settle()

    def until_sign(self, state):
        self.until("state => document.getElementById('sign').dataset.state === state", state)

    def tile(self, key):
        return self.page.text_content(f"[data-tile='{key}']")

    def note(self, key):
        return self.page.text_content(f"[data-tile='{key}'] + .note")

    def run_of(self, expression):
        return self.page.evaluate(f"(({{run}}) => {expression})(quireLive)")

    def view(self):
        return self.page.evaluate("""() => { const {from, to, left, width, isFollowing} =
          quireLive.page.view; return {from, to, left, width, isFollowing}; }""")

    def bands(self, share):
        """Heights of the GPU's bands in a column of pixels, as shares: active, cached, empty."""
        return self.page.evaluate("""share => {
          const {view, theme} = quireLive.page;
          const canvas = document.querySelector("[data-chart=memory] canvas");
          const x = Math.round((view.left + share * view.width) * devicePixelRatio);
          const pixels = canvas.getContext("2d").getImageData(x, 0, 1, canvas.height).data;
          const names = ["active", "cached", "empty"];
          const wanted = names.map(name => [1, 3, 5].map(i =>
            parseInt(theme[name].slice(i, i + 2), 16)));
          const counts = [0, 0, 0];
          for (let y = 0; y < canvas.height; y++) {
            const far = wanted.map(rgb => rgb.reduce((sum, c, i) =>
              sum + Math.abs(c - pixels[4 * y + i]), 0));
            counts[far.indexOf(Math.min(...far))]++;
          }
          return counts.map(count => count / canvas.height);
        }""", share)

    def map_of(self, id):
        """The map that is shown: what the server told, and the words beside it."""
        return self.page.evaluate("""id => {
          const map = quireLive.maps.maps.find(({root}) => root.id === id);
          return {...map.map, across: map.across, size: map.size, isHidden: map.root.hidden};
        }""", id)

    def check_map(self, id):
        """Legend, squares and their colours, against what the server told; returns that."""
        self.page.click("#pause")  # so that all is of one moment
        self.settle()
        told = self.map_of(id)
        for state in ("pinned", "active", "cached", "empty"):
            shown = self.page.text_content(f"#{id}-legend [data-value={state}]")
            self.assertEqual(number(shown), told[state], state)
            cells = told["cells"].get(state)
            self.assertTrue(cells is None or sum(cells) == told[state])
        self.assertEqual(told["total"], told["null"] + told["empty"] + told["cached"] + told["active"])
        self.check_squares(id, told)
        self.page.click("#pause")
        return told

    def check_squares(self, id, told):
        """Each square of blocks that are all in one state has the colour of that state."""
        seen = self.page.evaluate("""([id, across, size, cells]) => {
          const canvas = document.getElementById(id + "-blocks");
          const {data, width} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const scale = devicePixelRatio;
          return Array.from({length: cells}, (_, cell) => {
            const x = Math.floor((cell % across + 0.4) * size * scale);
            const y = Math.floor((Math.floor(cell / across) + 0.4) * size * scale);
            return [...data.slice(4 * (y * width + x), 4 * (y * width + x) + 3)];
          });
        }""", [id, told["across"], told["size"], len(told["cells"]["active"])])
        colours = self.page.evaluate("""() => Object.fromEntries(["pinned", "active", "cached", "empty"]
          .map(name => [name, rgbOf(quireLive.theme[name])]))""".replace(
              "rgbOf(", "(text => [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16)))("))
        checked = set()
        for cell, colour in enumerate(seen):
            blocks = min(told["cell_blocks"], told["total"] - cell * told["cell_blocks"])
            pinned, active, cached = (told["cells"][state][cell] for state in
                                      ("pinned", "active", "cached"))
            counts = {"pinned": pinned, "active": active - pinned, "cached": cached,
                      "empty": blocks - (cell == 0) - active - cached}
            for state, count in counts.items():
                if count == blocks:
                    self.assertEqual(colour, colours[state], (cell, state))
                    checked.add(state)
        self.assertGreater(len(checked), 0)

    def check_last(self, row, total):
        """Tiles and legends, against a step."""
        self.assertEqual(self.step(), row["step"])
        self.assertEqual(number(self.tile("running")), row["running"])
        self.assertEqual(number(self.tile("waiting")), row["waiting"])
        self.assertEqual(number(self.note("waiting")), row["skipped"])
        self.assertAlmostEqual(quantity(self.tile("memory")), row["active"] / total, delta=0.0006)
        for chart, key, name in (
                ("memory", "active", "active"), ("memory", "cached", "cached"),
                ("memory", "empty", "empty"), ("queue", "running", "running"),
                ("queue", "waiting", "waiting"), ("queue", "skipped", "skipped"),
                ("tokens", "prefill", "prefill_tokens"), ("preemptions", "step", "preempted")):
            self.assertEqual(number(self.value(chart, key)), row[name], (row["step"], name))
        self.assertEqual(number(self.value("tokens", "decode")),
                         row["tokens"] - row["prefill_tokens"])


class MadeUpCase(Watching):
    """With the made-up server."""

    def serve(self, before=0, token=None, **options):
        self.server = Server(self.text, Engine(**options), token=token).start()
        self.addCleanup(self.server.stop)
        if before:
            self.server.make(before, told=False)
        return self.server

    def last(self):
        return dict(zip(COLUMNS, self.server.engine.steps[-1]))

    def watch(self, before=300, **options):
        self.serve(before)
        self.open(self.server.url, **options)
        self.until_step(before)

    def make(self, count=1, **options):
        self.server.make(count, **options)
        self.until_step(self.server.engine.step)
