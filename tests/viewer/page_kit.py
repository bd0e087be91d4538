"""The page of a finished run in a browser: what all tests of it share."""

from browser_kit import BrowserTest
from pages import number, quantity


class PageCase(BrowserTest):
    """Opens a page from a file; the page asks for nothing else."""

    def open(self, path, width=1280, height=900, scheme="light", ready="window.quirePage", **options):
        page = self.new_page(width, height, scheme, **options)
        page.goto(path.as_uri())
        page.wait_for_function(ready)
        self.settle()
        return page

    def tearDown(self):
        self.assertEqual(self.complaints, [])
        others = [url for url in self.asked if not url.startswith(("file:", "data:"))]
        self.assertEqual((others, len(self.asked) <= 2), ([], True))

    def view(self):
        return self.page.evaluate("""() => { const {from, to, left, width} = quirePage.view;
          return {from, to, left, width}; }""")

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
