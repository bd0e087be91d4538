// latency.js - how latencies are distributed: bins of equal width on a logarithmic axis, and the
// percentiles that the report states.

const LATENCIES = [["ttft", "Time to first token"], ["tpot", "Per output token"],
  ["e2e", "End to end"], ["queue", "Queue"]];

// Lengths of time that people count in, a few for each power of ten, or one where there are many.
function logTicks(least, most) {
  const isWide = most / least > 200;
  const ticks = [];
  for (let unit = 1; unit <= 1e7; unit *= 10)
    for (const factor of isWide ? [1] : [1, 2, 5]) ticks.push(factor * unit);
  for (const minutes of isWide ? [1, 10] : [1, 2, 5, 10, 30]) ticks.push(minutes * 60e6);
  for (const hours of isWide ? [1, 10, 100] : [1, 2, 5, 10, 20, 50]) ticks.push(hours * 3600e6);
  return ticks.filter((us) => us >= least && us <= most && us !== 5e7);
}

class Latencies {
  constructor(view, theme) {
    this.theme = theme;
    this.run = view.run;
    const host = document.getElementById("latencies");
    this.charts = LATENCIES.filter(([name]) => this.run.latency[name].count > 0)
      .map(([name, title]) => this.makeChart(name, title));
    host.append(...this.charts.map((chart) => chart.root));
    document.getElementById("latency").hidden = this.charts.length === 0;
  }

  percentilesOf(name) {
    const stated = this.run.report && this.run.report[`${name}_ms`];
    if (stated) return { isExact: true, ...stated };
    const found = { isExact: false };
    for (const p of [50, 90, 99]) found[`p${p}`] = this.fromBins(this.run.latency[name], p / 100);
    return found;
  }

  // Upper end of the bin that it falls into, in ms.
  fromBins({ count, bins }, share) {
    let seen = 0;
    for (let i = 0; i < bins.length; i++) {
      seen += bins[i];
      if (seen >= share * count) return this.edge(i + 1) / 1000;
    }
    return 0;
  }

  edge(bin) {
    return 2 ** (bin / this.run.latency.binsPerOctave);
  }

  makeChart(name, title) {
    const percentiles = this.percentilesOf(name);
    const sign = percentiles.isExact ? "" : "≈ ";
    const facts = ["p50", "p90", "p99"].map((p) => element("div", {}, element("dt", {}, p),
      element("dd", { "data-latency": `${name}.${p}` }, sign + ms(percentiles[p]))));
    const number = exact(this.run.latency[name].count);
    const canvas = element("canvas", { role: "img",
      "aria-label": `${title}: distribution over ${number} requests` });
    const chart = { name, canvas, percentiles, root: element("div", { class: "histogram" },
      element("header", {}, element("h3", {}, title), element("dl", { class: "legend" }, ...facts)),
      canvas) };
    canvas.addEventListener("pointermove", (event) => this.hover(chart, event));
    return chart;
  }

  layout() {
    this.charts.forEach((chart) => this.draw(chart));
  }

  // Bins from the first to the last that has something; the few that waited next to nothing would
  // take half the width, so what is before the first half percent is one bin with it.
  extentOf({ bins, count }) {
    let first = 0;
    for (let seen = bins[0]; seen < count / 200; seen += bins[first]) first++;
    while (first < bins.length && bins[first] === 0) first++;
    if (first === 0) first = bins.findIndex((n, i) => i > 0 && n > 0);
    let end = bins.length;
    while (end > 0 && bins[end - 1] === 0) end--;
    first = Math.max(0, first - 1);
    return [first, Math.max(end + 1, first + 8)];
  }

  // As drawn: what lies before the first bin is in it.
  drawnBins({ bins }, first, end) {
    const drawn = bins.slice(first, end);
    for (let i = 0; i < first; i++) drawn[0] += bins[i];
    return drawn;
  }

  draw(chart) {
    const { ctx, width, height } = openCanvas(chart.canvas);
    const latency = this.run.latency[chart.name];
    const [first, end] = this.extentOf(latency);
    const bins = this.drawnBins(latency, first, end);
    const base = height - 16;
    const most = Math.max(...bins);
    const step = width / (end - first);
    const xOf = (us) => (Math.log2(us) * this.run.latency.binsPerOctave - first) * step;
    ctx.fillStyle = this.theme.accent;
    for (let i = 0; i < bins.length; i++) {
      const high = Math.max(1, bins[i] / most * (base - 6));
      if (bins[i] > 0) ctx.fillRect(i * step, base - high, Math.max(1, step - 1), high);
    }
    hairline(ctx, 0, base + 0.5, width, base + 0.5, this.theme.faint);
    this.drawAxis(ctx, xOf, width, base, [this.edge(first), this.edge(end)]);
    this.drawPercentiles(ctx, chart.percentiles, xOf, base);
    chart.at = (x) => [Math.floor(x / step) + first, first, bins[Math.floor(x / step)]];
  }

  drawAxis(ctx, xOf, width, base, [least, most]) {
    ctx.fillStyle = this.theme.muted;
    ctx.textAlign = "center";
    let lastEnd = -Infinity;
    for (const us of logTicks(least, most)) {
      const half = ctx.measureText(shortTime(us)).width / 2;
      const x = xOf(us);
      if (x - half < Math.max(0, lastEnd + 6) || x + half > width) continue;
      ctx.fillText(shortTime(us), x, base + 9);
      lastEnd = x + half;
    }
  }

  drawPercentiles(ctx, percentiles, xOf, base) {
    ["p50", "p90", "p99"].forEach((name, i) => {
      const us = Math.max(1, 1000 * percentiles[name]);
      if (xOf(us) < 0) return;
      ctx.setLineDash([[], [4, 2], [1.5, 2]][i]);
      hairline(ctx, sharp(xOf(us)), 2, sharp(xOf(us)), base, this.theme.text);
    });
    ctx.setLineDash([]);
  }

  hover(chart, event) {
    if (!chart.at) return;
    const [bin, first, number] = chart.at(event.offsetX);
    if (number === undefined) return;
    const span = bin === first ? `up to ${duration(this.edge(bin + 1))}`
      : `${duration(this.edge(bin))} to ${duration(this.edge(bin + 1))}`;
    const { count } = this.run.latency[chart.name];
    chart.canvas.title = `${span}: ${exact(number)} of ${exact(count)} requests`;
  }
}
