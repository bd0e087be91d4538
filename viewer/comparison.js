// comparison.js - a replay beside the recording that it was made from: curves over time, and how
// far single requests are off. Only in reports with a comparison (docs/compare.md).

const COMPARED = [["ttft_ms", "Time to first token"], ["tpot_ms", "Per output token"],
  ["e2e_ms", "End to end"], ["step_ms", "A step"]];
const COMPARED_CURVES = [["ttft_ms", "Time to first token", ms],
  ["running", "Running requests", three], ["step_ms", "Time of a step", ms]];
const SIDES = [["measured", "running"], ["predicted", "prefill"]];

class Comparison {
  constructor(theme, comparison) {
    this.theme = theme;
    this.comparison = comparison;
    document.getElementById("comparison").hidden = false;
    const { engine, engine_version: version, model, requests, excluded } = comparison;
    document.getElementById("comparison-note").textContent =
      `${engine} ${version}, ${model}: ${exact(requests)} requests` +
      (excluded > 0 ? `, ${exact(excluded)} excluded because they did not end by themselves` : "");
    this.curves = COMPARED_CURVES.map((curve) => this.makeCurve(...curve));
    this.errors = COMPARED.filter(([key]) => comparison.errors[key])
      .map(([key, title]) => this.makeErrors(key, title));
    document.getElementById("comparison-charts").append(
      ...[...this.curves, ...this.errors].map((chart) => chart.root));
    document.getElementById("comparison-table").append(this.table());
  }

  // Means and percentiles, measured and predicted.
  table() {
    const head = element("tr", {}, element("th", {}, ""), ...["Measured", "Predicted", "Difference"]
      .map((text) => element("th", { class: "number" }, text)));
    const rows = COMPARED.flatMap(([key, title]) => ["mean", "p50", "p99"].map((figure) => {
      const { measured, predicted } = this.comparison[key];
      return this.row(`${title}, ${figure}`, `${key}.${figure}`, measured[figure], predicted[figure], ms);
    }));
    const { measured, predicted } = this.comparison.counts;
    for (const [key, title] of [["steps", "Steps"], ["hit_tokens", "Hit tokens"],
      ["preemptions", "Preemptions"], ["mean_running", "Running requests, mean"],
      ["mean_waiting", "Waiting requests, mean"]])
      rows.push(this.row(title, key, measured[key], predicted[key], three));
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows));
  }

  row(title, key, measured, predicted, text) {
    const difference = measured > 0 ? predicted / measured - 1 : 0;
    const sign = difference > 0 ? "+" : "";
    return element("tr", {}, element("th", { scope: "row" }, title),
      element("td", { class: "number", "data-measured": key }, text(measured)),
      element("td", { class: "number", "data-predicted": key }, text(predicted)),
      element("td", { class: "number", "data-difference": key },
        measured > 0 ? `${sign}${percent(difference)}` : ""));
  }

  makeCurve(key, title, text) {
    const sides = this.comparison.curves[key];
    const legend = element("dl", { class: "legend" });
    for (const [side, colour] of SIDES) {
      const swatch = element("i", { class: "swatch thin" });
      swatch.style.setProperty("--swatch", `var(--${colour})`);
      legend.append(element("div", {}, element("dt", {}, swatch, side)));
    }
    const canvas = element("canvas", { role: "img", "data-curve": key,
      "aria-label": `${title} over time, measured and predicted` });
    const chart = { key, canvas, text, sides, root: element("div", { class: "compared" },
      element("header", {}, element("h3", {}, title), legend), canvas) };
    canvas.addEventListener("pointermove", (event) => this.hoverCurve(chart, event));
    return chart;
  }

  makeErrors(key, title) {
    const { bins, median, p90, signed_median: signed, requests } = this.comparison.errors[key];
    const facts = [["median", percent(median)], ["p90", percent(p90)],
      ["with sign", `${signed > 0 ? "+" : ""}${percent(signed)}`]];
    const legend = element("dl", { class: "legend" }, ...facts.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", { "data-error": `${key}.${name}` }, value))));
    const canvas = element("canvas", { role: "img",
      "aria-label": `${title}: errors of ${exact(requests)} requests` });
    const chart = { bins, requests, canvas, root: element("div", { class: "compared" },
      element("header", {}, element("h3", {}, `${title}: error of a request`), legend), canvas) };
    canvas.addEventListener("pointermove", (event) => this.hoverErrors(chart, event));
    return chart;
  }

  layout() {
    this.curves.forEach((chart) => this.drawCurve(chart));
    this.errors.forEach((chart) => this.drawErrors(chart));
  }

  drawCurve({ canvas, sides, text }) {
    const { ctx, width, height } = openCanvas(canvas);
    const { theme } = this;
    const all = SIDES.flatMap(([side]) => sides[side].filter((value) => value !== null));
    const top = Math.max(...all, 0) || 1;
    const area = { left: 62, width: Math.max(1, width - 64) };
    const y = (value) => height - 20 - value / top * (height - 28);
    drawValueAxis(ctx, area, theme, valueTicks(top, height - 28), y,
      (tick) => (tick === 0 ? "0" : text(tick)));
    this.drawTimes(ctx, area, height);
    for (const [side, colour] of SIDES) {
      const values = sides[side];
      const step = area.width / values.length;
      ctx.beginPath();
      let isDown = false; // bins without a value are passed over
      values.forEach((value, i) => {
        if (value === null) return;
        const x = area.left + (i + 0.5) * step;
        if (isDown) ctx.lineTo(x, y(value));
        else ctx.moveTo(x, y(value));
        isDown = true;
      });
      ctx.strokeStyle = theme[colour];
      ctx.lineWidth = 1.5;
      ctx.lineJoin = "round";
      ctx.stroke();
    }
  }

  // The ends of the axis, and its middle.
  drawTimes(ctx, area, height) {
    const { curves } = this.comparison;
    const endUs = curves.bin_s * curves.running.measured.length * 1e6;
    ctx.fillStyle = this.theme.muted;
    [["left", 0], ["center", 0.5], ["right", 1]].forEach(([align, share]) => {
      ctx.textAlign = align;
      ctx.fillText(share === 0 ? "0" : shortTime(+(share * endUs).toPrecision(3)),
        area.left + share * area.width, height - 8);
    });
  }

  drawErrors(chart) {
    const { ctx, width, height } = openCanvas(chart.canvas);
    const { bins } = chart;
    const { theme } = this;
    const most = Math.max(...bins, 1);
    const base = height - 16;
    const step = width / bins.length;
    ctx.fillStyle = theme.accent;
    bins.forEach((number, i) => {
      const high = Math.max(1, number / most * (base - 6));
      if (number > 0) ctx.fillRect(i * step, base - high, Math.max(1, step - 1), high);
    });
    hairline(ctx, 0, base + 0.5, width, base + 0.5, theme.faint);
    ctx.setLineDash([4, 2]);
    hairline(ctx, sharp(width / 2), 2, sharp(width / 2), base, theme.text);
    ctx.setLineDash([]);
    ctx.fillStyle = theme.muted;
    [["left", 0, "-100"], ["center", 0.25, "-50"], ["center", 0.5, "0"], ["center", 0.75, "+50"],
      ["right", 1, "+100"]].forEach(([align, share, text]) => {
      ctx.textAlign = align;
      ctx.fillText(`${text}${THIN}%`, share * width, base + 9);
    });
    chart.step = step;
  }

  hoverCurve({ canvas, sides, text }, event) {
    const { bin_s: binS } = this.comparison.curves;
    const count = sides.measured.length;
    const place = (event.offsetX - 62) / Math.max(1, canvas.clientWidth - 64);
    const bin = Math.max(0, Math.min(count - 1, Math.floor(place * count)));
    const valueOf = (value) => (value === null ? "nothing" : text(value));
    const said = SIDES.map(([side]) => `${side} ${valueOf(sides[side][bin])}`);
    canvas.title = `${duration(bin * binS * 1e6)}: ${said.join(", ")}`;
  }

  hoverErrors({ bins, requests, canvas, step }, event) {
    const bin = Math.max(0, Math.min(bins.length - 1, Math.floor(event.offsetX / step)));
    const edge = (i) => percent(2 * i / bins.length - 1, 0);
    const beyond = bin === bins.length - 1 ? " or more" : ` to ${edge(bin + 1)}`;
    canvas.title = `${edge(bin)}${beyond}: ${exact(bins[bin])} of ${exact(requests)} requests`;
  }
}
