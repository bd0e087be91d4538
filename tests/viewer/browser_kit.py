"""A browser with one page of Quire in it: what the tests of both kinds of pages share."""

import unittest

from pages import number


class BrowserTest(unittest.TestCase):
    """One browser for all; each test opens a page of its own and ends without complaints.

    A kind of page has view(): its range of times, and the place of its charts.
    """

    def new_page(self, width, height, scheme, **options):
        self.context = self.browser.new_context(viewport={"width": width, "height": height},
                                                color_scheme=scheme, **options)
        self.addCleanup(self.context.close)
        self.complaints, self.asked = [], []
        self.page = self.context.new_page()
        self.page.on("console", self.complain)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        return self.page

    def complain(self, message):
        """Errors and warnings, except the browser's warning about tests that read pixels."""
        if message.type != "log" and "willReadFrequently" not in message.text:
            self.complaints.append(message.text)

    def settle(self):
        """Waits until pending changes are drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame("
                           "() => requestAnimationFrame(done)))")

    def step(self):
        return int(number(self.page.text_content("#readout")))

    def value(self, chart, key):
        return self.page.text_content(f"[data-chart='{chart}'] [data-value='{key}']")

    def canvas(self, chart):
        return self.page.locator(f"[data-chart='{chart}'] canvas").bounding_box()

    def hover(self, chart, share):
        """Moves the pointer to a share of a chart's width; returns the pointer's position."""
        self.page.locator(f"[data-chart='{chart}']").scroll_into_view_if_needed()
        box, view = self.canvas(chart), self.view()
        x, y = box["x"] + view["left"] + share * view["width"], box["y"] + box["height"] / 2
        self.page.mouse.move(x, y)
        self.settle()
        return x, y
