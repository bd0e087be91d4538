"""The pages of `quire replay`, `quire sweep` and `quire view`: their numbers are those of the program."""

import json
import subprocess

from page_kit import PageCase
from pages import Replayed, number, quantity


def compared_recording(path):
    """Eight requests of four tokens, one after the other, in steps of 20 ms and more."""
    lines = [{"type": "header", "format": "quire.recording.v1", "part": 0, "time": 0, "t": 0,
              "recording": 32 * "0", "engine": "vllm", "engine_version": "0.32.0", "model": "tiny",
              "config": {"profile": "vllm-0.32", "num_blocks": 100, "block_size": 16,
                         "hash_block_size": 16, "max_model_len": 512, "max_num_seqs": 8,
                         "max_num_batched_tokens": 64, "enable_chunked_prefill": True,
                         "reserve_full_sequence": True}}]
    step = 0
    for req in range(1, 9):
        begin, seconds = float(req), 0.02 + 0.001 * req
        lines.append({"type": "request", "t": begin, "req": req, "arrival": begin, "prompt": 9,
                      "max_tokens": 4})
        for k in range(4):
            step += 1
            fresh = {"new": [[req, 0]], "tokens": [9]} if k == 0 else {"tokens": [1]}
            lines.append({"type": "schedule", "step": step, "t": begin + k * seconds, "reqs": [req],
                          "running": 1, "waiting": 0, **fresh})
            lines.append({"type": "update", "step": step, "t": begin + (k + 1) * seconds,
                          "seconds": seconds})
        lines.append({"type": "end", "t": begin + 4 * seconds, "req": req, "reason": "length",
                      "output": 4, "first": begin + seconds, "last": begin + 4 * seconds})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


class ReplayPageTest(PageCase):
    """Pages that the program writes."""

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

    def test_a_replay_beside_its_recording(self):
        """Figures, curves and errors of the comparison are those of the report."""
        self.need_quire()
        path, report = self.folder / "compared.html", self.folder / "compared.json"
        recording = compared_recording(self.folder / "rec.jsonl")
        subprocess.run([self.quire, "replay", "--compare-with", recording, "--roofline", "0",
                        "--step-ms", "15", "--quiet", "--html", path, "--json", report], check=True)
        comparison = json.loads(report.read_text())["comparison"]
        for scheme, width in (("light", 1440), ("dark", 390)):
            self.open(path, width=width, scheme=scheme)
            wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            self.assertLessEqual(wide, 0)
            self.assertIn("8 requests", self.page.text_content("#comparison-note"))
            for metric in ("ttft_ms", "tpot_ms", "e2e_ms", "step_ms"):
                for side in ("measured", "predicted"):
                    shown = self.page.text_content(f"[data-{side}='{metric}.mean']")
                    self.assert_rounded(shown, comparison[metric][side]["mean"] / 1000, metric)
            for metric, errors in comparison["errors"].items():
                shown = quantity(self.page.text_content(f"[data-error='{metric}.median']"))
                self.assertAlmostEqual(shown, errors["median"], delta=0.0006)
            drawn = self.page.evaluate("""() => ["ttft_ms", "step_ms"].map((key) => {
              const canvas = document.querySelector(`[data-curve='${key}']`), found = new Set();
              const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
              for (let i = 0; i < data.length; i += 4) found.add(data.slice(i, i + 3).join());
              const style = getComputedStyle(document.documentElement);
              return ["--running", "--prefill"].every((name) => {
                const text = style.getPropertyValue(name).trim();
                return found.has([1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16)).join());
              }); })""")
            self.assertEqual(drawn, [True, True])

    def test_a_replay_has_no_comparison_by_itself(self):
        self.need_quire()
        self.open(Replayed(self.quire, self.folder, requests=20).path)
        self.assertFalse(self.page.is_visible("#comparison"))

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
