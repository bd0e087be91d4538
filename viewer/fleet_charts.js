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

const STRETCH = 7; // pixels that are drawn as one: single bins would be a fence

// A value of each bin, and of several bins together: the sum of `part` by the sum of `all`.
class Ratio {
  constructor(part, all) {
    this.parts = prefixSums(part);
    this.alls = prefixSums(all);
  }

  // null: there was nothing.
  of(first, end = first + 1) {
    const all = this.alls[end] - this.alls[first];
    return all > 0 ? (this.parts[end] - this.parts[first]) / all : null;
  }
}

function prefixSums(values) {
  const sums = new Float64Array(values.length + 1);
  values.forEach((value, i) => { sums[i + 1] = sums[i] + value; });
  return sums;
}

// Areas on each other, or lines. spec: name, title, height, series [{key, label, colour, shape,
// width, ratio}], isStacked, isFine (each bin is drawn), isBytes, most (of the axis; else found), label(tick),
// text(value), note
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
    const bins = Array.from({ length: this.axis.count }, (_, i) => i);
    const parts = series.map(({ label, ratio }) =>
      `${label} at most ${text(most(bins.map((bin) => ratio.of(bin))))}`);
    return `${title} over time: ${parts.join(", ")}`;
  }

  // Bins that are drawn as one.
  stretches() {
    const { count, width, span, binUs } = this.axis;
    const each = this.spec.isFine ? 1 : Math.max(1, Math.ceil(STRETCH / (width * binUs / span)));
    return Array.from({ length: Math.ceil(count / each) }, (_, i) => [i * each, Math.min(count, (i + 1) * each)]);
  }

  top(stretches) {
    const { series, isStacked } = this.spec;
    if (this.spec.most) return this.spec.most;
    let high = 0;
    for (const [first, end] of stretches) {
      const values = series.map(({ ratio }) => ratio.of(first, end) || 0);
      const value = isStacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values);
      high = Math.max(high, value);
    }
    return high > 0 ? high : 1;
  }

  draw() {
    const { ctx, height } = openCanvas(this.canvas);
    const { axis, theme, spec } = this;
    const stretches = this.stretches();
    const top = this.top(stretches);
    const y = (value) => height - 6 - value / top * (height - 12);
    drawTimeLines(ctx, axis, theme, height);
    const unit = spec.isBytes ? 1024 ** Math.floor(Math.log2(top) / 10) : 1;
    const ticks = valueTicks(top / unit, height).map((tick) => tick * unit);
    if (spec.isStacked) this.drawAreas(ctx, y, stretches);
    drawValueAxis(ctx, axis, theme, ticks, y, (tick) => (tick === 0 ? "0" : spec.label(tick)));
    if (!spec.isStacked) this.drawLines(ctx, y, stretches);
    axis.marks.draw(ctx, axis, height);
  }

  drawAreas(ctx, y, stretches) {
    const { axis } = this;
    const whole = (x) => Math.round(x * devicePixelRatio) / devicePixelRatio; // no seams between bins
    const base = new Float64Array(axis.count);
    for (const { colour, ratio } of this.spec.series) {
      ctx.fillStyle = cssColour(colour);
      for (const [first, end] of stretches) {
        const value = ratio.of(first, end);
        if (!(value > 0)) continue;
        const [x0, x1] = [whole(axis.xOf(axis.begin(first))), whole(axis.xOf(axis.end(end - 1)))];
        const [y0, y1] = [y(base[first]), y(base[first] + value)];
        ctx.fillRect(x0, y1, Math.max(x1 - x0, 1 / devicePixelRatio), y0 - y1);
        base[first] += value;
      }
    }
  }

  // A line ends where there is no value.
  drawLines(ctx, y, stretches) {
    const { axis } = this;
    for (const { colour, shape, width, ratio } of this.spec.series) {
      ctx.beginPath();
      let isDown = false;
      for (const [first, end] of stretches) {
        const value = ratio.of(first, end);
        if (value === null) {
          isDown = false;
          continue;
        }
        const [x0, x1, at] = [axis.xOf(axis.begin(first)), axis.xOf(axis.end(end - 1)), y(value)];
        if (isDown) ctx.lineTo(x0, at);
        else ctx.moveTo(x0, at);
        ctx.lineTo(x1, at);
        isDown = true;
      }
      ctx.setLineDash(shape === "dashed" ? [5, 3] : []);
      ctx.strokeStyle = cssColour(colour);
      ctx.lineWidth = width || 1.5;
      ctx.lineJoin = "round";
      ctx.stroke();
    }
    ctx.setLineDash([]);
  }

  show(bin) {
    for (const { key, ratio } of this.spec.series) {
      const value = bin < 0 ? null : ratio.of(bin);
      this.shown[key].textContent = value === null ? "" : this.spec.text(value);
    }
  }

  // The values at the cursor as a sentence.
  say(bin) {
    return this.spec.series.filter(({ ratio }) => ratio.of(bin) !== null)
      .map(({ label, ratio }) => `${label} ${this.spec.text(ratio.of(bin))}`).join(", ");
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

// A mean over time, of values that are means of their bins.
function meanOverTime(values, axis) {
  const lengths = values.map((_, i) => axis.seconds(i));
  return new Ratio(values.map((value, i) => value * lengths[i]), lengths);
}

function perSecond(values, axis) {
  return new Ratio(values, values.map((_, i) => axis.seconds(i)));
}

function requestsChart(history, fleet, axis) {
  const mean = (name) => meanOverTime(sumOfRows(history, name, fleet.num_workers), axis);
  return { name: "requests", title: "Requests in all workers", height: 96, label: short,
    text: (x) => exact(x, 1), isStacked: true, isFine: true, series: [
      { key: "running", label: "running", colour: "running", ratio: mean("running") },
      { key: "waiting", label: "waiting", colour: "waiting", ratio: mean("waiting") }] };
}

// Ideal = hits + losses; what is above it no cache could have.
function tokensChart(history, axis) {
  const { bins } = history;
  const { beyond_ideal_tokens: beyond } = bins.losses;
  const series = [{ key: "hit_tokens", label: "found", colour: "hit",
    ratio: perSecond(bins.hit_tokens.map((value, i) => Math.max(0, value - beyond[i])), axis) }];
  for (const [key, name, colour] of LOSSES)
    if (most(bins.losses[key]) > 0)
      series.push({ key, label: name, colour, ratio: perSecond(bins.losses[key], axis) });
  const rest = bins.prompt_tokens.map((value, i) => Math.max(0, value - bins.ideal_tokens[i]));
  series.push({ key: "new", label: "new", colour: "empty", ratio: perSecond(rest, axis) });
  return { name: "tokens", title: "Prompt tokens per second", height: 132, isStacked: true, series,
    label: short, text: rough,
    note: "Found and all losses together are what one infinite cache for the fleet would find." };
}

function hitChart(history, hasBelief) {
  const { bins } = history;
  const share = (values) => new Ratio(values, bins.prompt_tokens);
  const series = [
    { key: "ideal", label: "ideal", colour: "ideal", shape: "dashed", ratio: share(bins.ideal_tokens) },
    { key: "hits", label: "found", colour: "hit", ratio: share(bins.hit_tokens) }];
  if (hasBelief) // a wide line behind the other, which is often the same
    series.splice(1, 0, { key: "believed", label: "believed by the router", colour: "believed", shape: "thin",
      width: 5, ratio: share(bins.believed_tokens) });
  return { name: "hits", title: "Part of prompt tokens", height: 96, most: 1, series,
    label: (x) => percent(x, 0), text: (x) => percent(x) };
}

// For the narrow gutter: 500 Gi.
function shortBytes(bytes) {
  const power = Math.max(0, Math.min(4, Math.floor(Math.log2(bytes) / 10)));
  return `${short(bytes / 1024 ** power)}${THIN}${["B", "Ki", "Mi", "Gi", "Ti"][power]}`;
}

function copiesChart(history, meta, gpusPerWorker, axis) {
  const { bins } = history;
  const bytes = meta.bytes_per_block * gpusPerWorker;
  const of = (blocks) => meanOverTime(blocks.map((n) => (bytes > 0 ? n * bytes : n)), axis);
  return { name: "copies", title: "KV cache of all workers", height: 96, isStacked: true, isFine: true,
    isBytes: bytes > 0, label: bytes > 0 ? shortBytes : short, text: bytes > 0 ? bytesText : (x) => exact(x), series: [
      { key: "blocks", label: "different blocks", colour: "active", ratio: of(bins.blocks) },
      { key: "duplicates", label: "held more than once", colour: "wrong",
        ratio: of(bins.copies.map((n, i) => n - bins.blocks[i])) }] };
}

function goodChart(history) {
  const { bins } = history;
  return { name: "good", title: "Requests that keep the SLO", height: 72, most: 1,
    label: (x) => percent(x, 0), text: (x) => percent(x), series: [
      { key: "good", label: "of those that end", colour: "hit", ratio: new Ratio(bins.good, bins.ended) }] };
}
