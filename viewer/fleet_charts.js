// fleet_charts.js - charts of a fleet over time. All share one time axis of bins and one cursor.

const US = 1e6;

// The time axis: bins of equal width, the last one ends with the run.
class FleetAxis {
  constructor(history) {
    this.binUs = history.bin_s * US;
    this.count = history.bins.arrived.length;
    this.from = 0;
    this.to = Math.max(history.end_s * US, 1);
    this.span = this.to;
    this.run = { origin: 0 };
    this.left = 0;
    this.width = 1;
  }

  layout(width) {
    const style = getComputedStyle(document.documentElement);
    this.left = parseFloat(style.getPropertyValue("--gutter"));
    this.width = Math.max(1, width - this.left - parseFloat(style.getPropertyValue("--margin")));
  }

  xOf(us) {
    return this.left + us / this.span * this.width;
  }

  begin(bin) {
    return bin * this.binUs;
  }

  end(bin) {
    return Math.min((bin + 1) * this.binUs, this.to);
  }

  seconds(bin) {
    return Math.max((this.end(bin) - this.begin(bin)) / US, 1e-9);
  }

  binAt(x) {
    const bin = Math.floor((x - this.left) / this.width * this.span / this.binUs);
    return Math.max(0, Math.min(this.count - 1, bin));
  }
}

// Areas on each other, or lines. spec: name, title, height, series [{key, label, colour, shape,
// values}], isStacked, most (of the axis; else found), label(tick), text(value), note
class FleetChart {
  constructor(axis, theme, spec) {
    this.axis = axis;
    this.theme = theme;
    this.spec = spec;
    this.canvas = element("canvas", { role: "img", class: "plot", "aria-label": this.describe() });
    this.canvas.style.height = `${spec.height}px`;
    this.shown = {};
    const legend = element("dl", { class: "legend" });
    for (const { key, label, colour, shape } of spec.series) {
      const swatch = element("i", { class: `swatch ${shape || ""}` });
      swatch.style.setProperty("--swatch", `var(--${colour})`);
      this.shown[key] = element("dd", { "data-value": key });
      legend.append(element("div", {}, element("dt", {}, swatch, label), this.shown[key]));
    }
    this.root = element("section", { class: "chart", "data-chart": spec.name },
      element("header", {}, element("h2", {}, spec.title), legend), this.canvas);
    if (spec.note) this.root.append(element("p", { class: "note" }, spec.note));
  }

  // For those who do not see it: the largest value of each series.
  describe() {
    const { title, series, text } = this.spec;
    const parts = series.map(({ label, values }) => `${label} at most ${text(most(values))}`);
    return `${title} over time: ${parts.join(", ")}`;
  }

  top() {
    const { series, isStacked } = this.spec;
    if (this.spec.most) return this.spec.most;
    let high = 0;
    for (let i = 0; i < this.axis.count; i++) {
      const values = series.map(({ values: all }) => all[i] || 0);
      const value = isStacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values);
      high = Math.max(high, value);
    }
    return high > 0 ? high : 1;
  }

  draw() {
    const { ctx, height } = openCanvas(this.canvas);
    const { axis, theme, spec } = this;
    const top = this.top();
    const y = (value) => height - 1 - value / top * (height - 7);
    drawTimeLines(ctx, axis, theme, height);
    const ticks = valueTicks(top, height);
    if (spec.isStacked) this.drawAreas(ctx, y);
    drawValueAxis(ctx, axis, theme, ticks, y, (tick) => (tick === 0 ? "0" : spec.label(tick)));
    if (!spec.isStacked) this.drawLines(ctx, y);
  }

  drawAreas(ctx, y) {
    const { axis } = this;
    const base = new Float64Array(axis.count);
    for (const { colour, values } of this.spec.series) {
      ctx.fillStyle = cssColour(colour);
      for (let i = 0; i < axis.count; i++) {
        if (!(values[i] > 0)) continue;
        const [x0, x1] = [axis.xOf(axis.begin(i)), axis.xOf(axis.end(i))];
        const [y0, y1] = [y(base[i]), y(base[i] + values[i])];
        ctx.fillRect(x0, y1, Math.max(x1 - x0, 0.5), y0 - y1);
        base[i] += values[i];
      }
    }
  }

  // A line ends where there is no value.
  drawLines(ctx, y) {
    const { axis } = this;
    for (const { colour, shape, values } of this.spec.series) {
      ctx.beginPath();
      let isDown = false;
      for (let i = 0; i < axis.count; i++) {
        if (values[i] === null) {
          isDown = false;
          continue;
        }
        const [x0, x1, at] = [axis.xOf(axis.begin(i)), axis.xOf(axis.end(i)), y(values[i])];
        if (isDown) ctx.lineTo(x0, at);
        else ctx.moveTo(x0, at);
        ctx.lineTo(x1, at);
        isDown = true;
      }
      ctx.setLineDash(shape === "dashed" ? [5, 3] : []);
      ctx.strokeStyle = cssColour(colour);
      ctx.lineWidth = 1.5;
      ctx.lineJoin = "round";
      ctx.stroke();
    }
    ctx.setLineDash([]);
  }

  show(bin) {
    for (const { key, values } of this.spec.series) {
      const value = bin < 0 ? null : values[bin];
      this.shown[key].textContent = value === null ? "" : this.spec.text(value);
    }
  }

  // The values at the cursor as a sentence.
  say(bin) {
    return this.spec.series.filter(({ values }) => values[bin] !== null)
      .map(({ label, values }) => `${label} ${this.spec.text(values[bin])}`).join(", ");
  }
}

function most(values) {
  return values.reduce((high, value) => Math.max(high, value || 0), 0);
}

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// ---- what they show -------------------------------------------------------------------

// Sum over workers of a value that is the mean of the workers of a row.
function sumOfRows(history, name, numWorkers) {
  const rows = history[name];
  const perRow = history.workers_per_row;
  const sums = new Array(history.bins.arrived.length).fill(0);
  rows.forEach((row, i) => {
    const workers = Math.min(perRow, numWorkers - i * perRow);
    row.forEach((value, bin) => { sums[bin] += value * workers; });
  });
  return sums;
}

function shares(part, all) {
  return part.map((value, i) => (all[i] > 0 ? value / all[i] : null));
}

function requestsChart(history, fleet) {
  return { name: "requests", title: "Requests in all workers", height: 96, label: short, text: (x) => exact(x, 1),
    isStacked: true, series: [
      { key: "running", label: "running", colour: "running",
        values: sumOfRows(history, "running", fleet.num_workers) },
      { key: "waiting", label: "waiting", colour: "waiting",
        values: sumOfRows(history, "waiting", fleet.num_workers) }] };
}

// Ideal = hits + losses; what is above it no cache could have.
function tokensChart(history, axis) {
  const { bins } = history;
  const perSecond = (values) => values.map((value, i) => value / axis.seconds(i));
  const beyond = bins.losses.beyond_ideal_tokens;
  const rest = bins.prompt_tokens.map((value, i) => Math.max(0, value - Math.max(bins.ideal_tokens[i], bins.hit_tokens[i])));
  const series = [{ key: "hit_tokens", label: "found", colour: "hit",
    values: perSecond(bins.hit_tokens.map((value, i) => Math.max(0, value - beyond[i]))) }];
  for (const [key, name, colour] of LOSSES)
    if (most(bins.losses[key]) > 0)
      series.push({ key, label: name, colour, values: perSecond(bins.losses[key]) });
  series.push({ key: "new", label: "new", colour: "empty", values: perSecond(rest) });
  return { name: "tokens", title: "Prompt tokens per second", height: 132, isStacked: true, series,
    label: short, text: (x) => rough(x),
    note: "Found and all losses together are what one infinite cache for the fleet would find." };
}

function hitChart(history, hasBelief) {
  const { bins } = history;
  const series = [{ key: "hits", label: "found", colour: "hit", values: shares(bins.hit_tokens, bins.prompt_tokens) },
    { key: "ideal", label: "ideal", colour: "ideal", shape: "dashed", values: shares(bins.ideal_tokens, bins.prompt_tokens) }];
  if (hasBelief)
    series.push({ key: "believed", label: "believed by the router", colour: "stale", shape: "thin",
      values: shares(bins.believed_tokens, bins.prompt_tokens) });
  return { name: "hits", title: "Part of prompt tokens", height: 96, most: 1, series, label: (x) => percent(x, 0),
    text: (x) => percent(x) };
}

function copiesChart(history, meta, gpusPerWorker) {
  const { bins } = history;
  const bytes = meta.bytes_per_block * gpusPerWorker;
  const of = (blocks) => (bytes > 0 ? blocks * bytes : blocks);
  const text = bytes > 0 ? bytesText : (x) => exact(x);
  return { name: "copies", title: "KV cache of all workers", height: 96, isStacked: true, text,
    label: bytes > 0 ? bytesText : short, series: [
      { key: "blocks", label: "different blocks", colour: "active", values: bins.blocks.map(of) },
      { key: "duplicates", label: "held more than once", colour: "wrong",
        values: bins.copies.map((n, i) => of(n - bins.blocks[i])) }] };
}

function goodChart(history) {
  const { bins } = history;
  return { name: "good", title: "Requests that keep the SLO", height: 72, most: 1, label: (x) => percent(x, 0),
    text: (x) => percent(x), series: [{ key: "good", label: "of those that end", colour: "hit",
      values: shares(bins.good, bins.ended) }] };
}
