// charts.js - the charts over time: each has a heading with the exact values under the cursor, and
// a canvas. What a chart shows is a small object: see memoryChart and those behind it.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// A figure of the strip above the charts.
function tile(label, value, note, key) {
  return element("div", { class: "tile" }, element("dt", {}, label),
    element("dd", { "data-tile": key }, value), element("dd", { class: "note" }, note || ""));
}

class Chart {
  // spec: name, title, height, legend [{key, label, colour}], most(columns), draw, values(row), and
  // if need be label(tick), isFull (bands that reach the top), isStrip (no values)
  constructor(view, theme, spec) {
    this.view = view;
    this.theme = theme;
    this.spec = spec;
    this.canvas = element("canvas", { role: "img", class: "plot", "aria-label": spec.describe() });
    this.canvas.style.height = `${spec.height}px`;
    this.values = {};
    this.longest = {};
    const legend = element("dl", { class: "legend" });
    for (const { key, label, colour, shape } of spec.legend) {
      const swatch = element("i", { class: `swatch ${shape || ""}` });
      if (colour) swatch.style.setProperty("--swatch", `var(--${colour})`);
      this.values[key] = element("dd", { "data-value": key });
      const name = element("dt", {}, ...(colour ? [swatch] : []), label);
      legend.append(element("div", {}, name, this.values[key]));
    }
    this.root = element("section", { class: "chart", "data-chart": spec.name },
      element("header", {}, element("h2", {}, spec.title), legend), this.canvas);
  }

  draw(columns) {
    const { ctx, width, height } = openCanvas(this.canvas);
    const most = this.spec.most(columns);
    const top = this.spec.isFull ? 1 : 6;
    const y = (value) => height - 1 - value / most * (height - 1 - top);
    const all = { ctx, width, height, columns, y, most, view: this.view, theme: this.theme };
    if (this.spec.isStrip) {
      drawTimeLines(ctx, this.view, this.theme, height);
      this.spec.draw(all);
      return;
    }
    const ticks = valueTicks(most, height);
    ctx.save();
    ctx.beginPath();
    ctx.rect(...this.view.extent, height);
    ctx.clip();
    if (!this.spec.isFull) drawTimeLines(ctx, this.view, this.theme, height);
    this.spec.draw(all);
    ctx.restore();
    ctx.globalAlpha = this.spec.isFull ? 0.35 : 1;
    drawValueAxis(ctx, this.view, this.theme, ticks, y, () => "");
    ctx.globalAlpha = 1;
    this.drawLabels(ctx, ticks, y, height);
  }

  drawLabels(ctx, ticks, y, height) {
    ctx.textAlign = "right";
    ctx.fillStyle = this.theme.muted;
    for (const tick of ticks) {
      const at = Math.max(7, Math.min(height - 6, y(tick)));
      ctx.fillText((this.spec.label || short)(tick), this.view.left - 8, at);
    }
  }

  showValues(row) {
    const texts = this.spec.values(row);
    for (const [key, text] of Object.entries(texts)) {
      const place = this.values[key];
      if (place.textContent === text) continue;
      place.textContent = text;
      if (text.length > (this.longest[key] || 0)) { // what stands beside it must not dance
        this.longest[key] = text.length;
        place.style.minWidth = `${place.offsetWidth}px`;
      }
    }
  }
}

// Of rows that stand for many steps: "mean (low to high)".
function valueText(series, row, write = exact) {
  const low = series.min[row];
  const high = series.max[row];
  if (low === high) return write(low);
  return `${write(Math.round(series.mean(row, row + 1)))} (${write(low)} to ${write(high)})`;
}

function mostOf(series, columns, least) {
  const high = Math.max(...series.map((s) => s.range(...columns.rows, {}).high));
  return Math.max(least, high) * 1.02;
}

// ---- memory -----------------------------------------------------------------

function memoryChart(run, tier) {
  const suffix = tier === undefined ? "" : `.${tier}`;
  const { total_blocks: blocks, tiers } = run.meta;
  const total = Math.max(1, tier === undefined ? blocks : tiers[tier].total);
  const [active, cached, empty, used, pinned] =
    ["active", "cached", "empty", "used", "pinned"].map((name) => run.series[name + suffix]);
  const perBlock = run.meta.bytes_per_block;
  const write = (series, row) => {
    const share = series.mean(row, row + 1) / total;
    const bytes = perBlock ? ` · ${bytesText(series.mean(row, row + 1) * perBlock)}` : "";
    return `${valueText(series, row)} · ${percent(share)}${bytes}`;
  };
  const name = tier === undefined ? "GPU memory" : tiers[tier].name;
  return {
    name: `memory${suffix}`,
    title: `${name}, blocks`,
    height: tier === undefined ? 150 : 90,
    isFull: true,
    legend: [...(pinned ? [{ key: "pinned", label: "pinned", colour: "pinned" }] : []),
      { key: "active", label: "active", colour: "active" },
      { key: "cached", label: "cached", colour: "cached" },
      { key: "empty", label: "empty", colour: "empty" }],
    describe: () => `${name}: ${exact(total)} blocks, active, cached and empty, over time`,
    most: () => total,
    draw({ ctx, columns, y, theme }) {
      fillBetween(ctx, columns, 0, total, y, theme.empty);
      fillBand(ctx, columns, sample(used, columns), y, theme.cached);
      fillBand(ctx, columns, sample(active, columns), y, theme.active);
      if (pinned) fillBand(ctx, columns, sample(pinned, columns), y, theme.pinned);
    },
    values: (row) => ({
      ...(pinned ? { pinned: write(pinned, row) } : {}), active: write(active, row), cached: write(cached, row), empty: write(empty, row),
    }),
  };
}

// ---- lines ------------------------------------------------------------------

function drawLines({ ctx, columns, y, theme }, lines) {
  const sampled = lines.map(({ series }) => sample(series, columns));
  lines.forEach(({ colour }, i) => {
    fillBetween(ctx, columns, sampled[i].low, sampled[i].high, y, theme[colour], 0.15);
  });
  lines.forEach(({ colour }, i) => strokeLine(ctx, columns, sampled[i].mean, y, theme[colour]));
}

// skipped: those that something else than room holds up, where they are counted apart.
function queueChart(run) {
  const { running, waiting, skipped } = run.series;
  const lines = [{ key: "waiting", label: "waiting", colour: "waiting", series: waiting },
    { key: "running", label: "running", colour: "running", series: running }];
  if (skipped)
    lines.unshift({ key: "skipped", label: "held up", colour: "prefill", series: skipped });
  return {
    name: "queue",
    title: "Requests",
    height: 92,
    legend: [...lines].reverse(),
    describe: () => "Requests that run and that wait, over time",
    most: (columns) => mostOf(lines.map(({ series }) => series), columns, 4),
    draw: (all) => drawLines(all, lines),
    values: (row) => Object.fromEntries(lines.map(({ key, series }) =>
      [key, valueText(series, row)])),
  };
}

function stepTimeChart(run) {
  const series = run.series.duration_us;
  return {
    name: "duration",
    title: "Step time",
    height: 64,
    legend: [{ key: "duration", label: "step", colour: "time" }],
    describe: () => "How long steps took, over time",
    most: (columns) => mostOf([series], columns, 100),
    label: shortTime,
    draw: (all) => drawLines(all, [{ series, colour: "time" }]),
    values: (row) => ({ duration: valueText(series, row, duration) }),
  };
}

function tokensChart(run) {
  const { tokens, prefill, decode } = run.series;
  return {
    name: "tokens",
    title: "Tokens per step",
    height: 92,
    legend: [{ key: "prefill", label: "prefill", colour: "prefill" },
      { key: "decode", label: "decode", colour: "decode" }],
    describe: () => "Tokens computed in a step: prefill and decode, over time",
    most: (columns) => mostOf([tokens], columns, 8),
    draw({ ctx, columns, y, theme }) {
      const all = sample(tokens, columns);
      const lower = sample(decode, columns);
      fillBetween(ctx, columns, lower.mean, all.mean, y, theme.prefill, 0.85);
      fillBetween(ctx, columns, all.mean, all.high, y, theme.prefill, 0.13);
      fillBetween(ctx, columns, 0, lower.mean, y, theme.decode);
      strokeLine(ctx, columns, lower.mean, y, theme.decode);
    },
    values: (row) => ({ prefill: valueText(prefill, row), decode: valueText(decode, row) }),
  };
}

// ---- hit rate ---------------------------------------------------------------

const HIT_WINDOW = 12; // pixels: single admissions would be a fence of 0 and 100 %

function rateBetween(run, first, end) {
  const queries = run.queries[end] - run.queries[first];
  const hits = run.hits[end] - run.hits[first] + run.externals[end] - run.externals[first];
  return queries > 0 ? hits / queries : NaN;
}

// Of what was admitted in a window around each column, and since the start of the run.
function ratesOf(run, columns) {
  const half = Math.round(HIT_WINDOW / columns.size / 2);
  const near = new Float64Array(columns.count);
  const soFar = new Float64Array(columns.count);
  for (let i = 0; i < columns.count; i++) {
    const first = Math.max(0, columns.first[Math.max(0, i - half)]);
    near[i] = rateBetween(run, first, columns.end[Math.min(columns.count - 1, i + half)]);
    soFar[i] = rateBetween(run, 0, columns.end[i]);
  }
  return { near, soFar };
}

// A line with gaps where nothing was admitted.
function strokeRates({ ctx, columns, y }, rates, colour, width) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.beginPath();
  let isOpen = false;
  for (let i = 0; i < columns.count; i++) {
    const isThere = !Number.isNaN(rates[i]);
    if (isThere && isOpen) ctx.lineTo(columns.x(i) + columns.size / 2, y(rates[i]));
    else if (isThere) ctx.moveTo(columns.x(i), y(rates[i]));
    isOpen = isThere;
  }
  ctx.stroke();
}

function drawIdeal({ ctx, y, view, theme }, ideal) {
  ctx.setLineDash([4, 4]);
  hairline(ctx, view.left, sharp(y(ideal)), view.left + view.width, sharp(y(ideal)), theme.ideal);
  ctx.setLineDash([]);
}

function hitChart(run) {
  const ideal = run.report && run.report.ideal_hit_rate;
  const hasIdeal = typeof ideal === "number";
  let rates = null; // of the columns last drawn
  const legend = [{ key: "step", label: "prompt tokens found", colour: "hit" },
    { key: "sofar", label: "so far", colour: "text", shape: "thin" }];
  if (hasIdeal) legend.push({ key: "ideal", label: "ideal", colour: "ideal", shape: "dashed" });
  return {
    name: "hits",
    title: "Hit rate",
    height: 80,
    legend,
    describe: () => "Share of prompt tokens found in the cache, over time",
    most(columns) {
      rates = ratesOf(run, columns);
      const high = rates.near.reduce((most, rate) => (rate > most ? rate : most), 0);
      const needed = 1.05 * Math.max(high, hasIdeal ? ideal : 0);
      return [0.1, 0.2, 0.5].find((share) => share >= needed) || 1;
    },
    label: (share) => `${Math.round(100 * share)}%`,
    draw(all) {
      if (hasIdeal) drawIdeal(all, ideal);
      all.ctx.globalAlpha = 0.55;
      strokeRates(all, rates.soFar, all.theme.text, 1);
      all.ctx.globalAlpha = 1;
      strokeRates(all, rates.near, all.theme.hit, 1.25);
    },
    values(row) {
      const queries = run.queries[row + 1] - run.queries[row];
      const hits = run.hits[row + 1] - run.hits[row] + run.externals[row + 1] - run.externals[row];
      const sofar = rateBetween(run, 0, row + 1);
      const texts = {
        step: queries > 0 ? `${exact(hits)} of ${exact(queries)}` : "no admission",
        sofar: Number.isNaN(sofar) ? "–" : percent(sofar),
      };
      if (hasIdeal) texts.ideal = percent(ideal);
      return texts;
    },
  };
}

// ---- preemptions ------------------------------------------------------------

function preemptionChart(run) {
  const { marks } = run;
  const inWindow = (view) => {
    const first = lastAtMost(marks.time, view.from - 1e-6) + 1;
    return [first, lastAtMost(marks.time, view.to) + 1];
  };
  const ofStep = (row) => {
    const next = row + 1 < run.count ? run.step[row + 1] : Infinity;
    const first = lastAtMost(marks.step, run.step[row] - 1) + 1;
    return marks.num[lastAtMost(marks.step, next - 1) + 1] - marks.num[first];
  };
  let view = null;
  return {
    name: "preemptions",
    title: "Preemptions",
    height: 24,
    isStrip: true,
    inWindow,
    legend: [{ key: "step", label: "in this step", colour: "preempted" },
      { key: "view", label: "in view" }],
    describe: () => `${exact(marks.num[marks.count])} preemptions, as marks over time`,
    most: () => 1,
    draw({ ctx, height, view: shown, theme }) {
      view = shown;
      const [first, end] = inWindow(shown);
      hairline(ctx, shown.left, height - 0.5, shown.left + shown.width, height - 0.5, theme.line);
      ctx.fillStyle = theme.preempted;
      for (let i = first; i < end;) {
        const x = Math.round(2 * shown.xOf(marks.time[i])) / 2;
        ctx.fillRect(x - 0.75, 3, 1.5, height - 4);
        // One for each half of a pixel
        i = Math.max(i, lastAtMost(marks.time, shown.timeOf(x + 0.5))) + 1;
      }
    },
    values(row) {
      const [first, end] = view ? inWindow(view) : [0, marks.count];
      return { step: exact(ofStep(row)),
        view: `${exact(marks.num[end] - marks.num[first])} of ${exact(marks.num[marks.count])}` };
    },
  };
}

// ---- all of them ------------------------------------------------------------

function memoryCharts(run) {
  const charts = run.meta.tiers.map(({ total }, i) => (total > 0 ? memoryChart(run, i) : null));
  return [memoryChart(run), ...charts.filter(Boolean)]; // nobody knows the size of some servers
}

class Charts {
  constructor(view, theme, specs) {
    this.view = view;
    this.charts = specs.map((spec) => new Chart(view, theme, spec));
    document.getElementById("charts").append(...this.charts.map((chart) => chart.root));
    view.on("time", () => this.draw());
    view.on("cursor", () => this.showValues());
  }

  draw() {
    const columns = new Columns(this.view);
    this.charts.forEach((chart) => chart.draw(columns));
    this.showValues();
  }

  showValues() {
    this.charts.forEach((chart) => chart.showValues(this.view.row));
  }
}
