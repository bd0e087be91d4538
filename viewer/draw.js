// draw.js - what all charts share: a canvas as sharp as the screen, pixel columns of a stretch of
// time, ticks, bands and lines.

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

// A canvas that fills its element; drawing is in CSS pixels.
function openCanvas(canvas) {
  const scale = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const wide = Math.round(width * scale);
  const high = Math.round(height * scale);
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
  }
  const ctx = canvas.getContext("2d");
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  ctx.font = FONT;
  ctx.textBaseline = "middle";
  return { ctx, width, height, scale };
}

// For each column of pixels of the plot the rows that count there: those that begin in it, or the
// one that began before and still holds. Computed once for all charts.
class Columns {
  constructor(view) {
    const scale = devicePixelRatio || 1;
    const { run } = view;
    this.count = Math.max(1, Math.round(view.width * scale));
    this.size = view.width / this.count;
    this.left = view.left;
    this.first = new Int32Array(this.count); // may be -1: before the first row
    this.end = new Int32Array(this.count);
    let row = lastAtMost(run.time, view.from);
    for (let i = 0; i < this.count; i++) {
      const until = view.from + (i + 1) / this.count * view.span;
      const next = row + 1 < run.count && run.time[row + 1] < until
        ? Math.max(row, lastAtMost(run.time, until)) : row;
      this.first[i] = next > row ? row + 1 : row;
      this.end[i] = next + 1;
      row = next;
    }
  }

  x(i) {
    return this.left + i * this.size;
  }

  // Whole stretch: for the scale of an axis.
  get rows() {
    return [Math.max(0, this.first[0]), Math.max(this.end[this.count - 1], 1)];
  }
}

// low, mean and high of a series in each column
function sample(series, columns) {
  const low = new Float64Array(columns.count);
  const mean = new Float64Array(columns.count);
  const high = new Float64Array(columns.count);
  const range = {};
  for (let i = 0; i < columns.count; i++) {
    const first = columns.first[i];
    if (first < 0) continue;
    const end = columns.end[i];
    series.range(first, end, range);
    low[i] = range.low;
    high[i] = range.high;
    mean[i] = series.mean(first, end);
  }
  return { low, mean, high };
}

// Fills from edge `a` to edge `b`; an edge is an array, or a number for a straight one. y: value to
// pixel.
function fillBetween(ctx, columns, a, b, y, colour, alpha = 1) {
  const at = (edge, i) => y(typeof edge === "number" ? edge : edge[i]);
  ctx.beginPath();
  for (let i = 0; i < columns.count; i++) {
    ctx.lineTo(columns.x(i), at(b, i));
    ctx.lineTo(columns.x(i + 1), at(b, i));
  }
  for (let i = columns.count - 1; i >= 0; i--) {
    ctx.lineTo(columns.x(i + 1), at(a, i));
    ctx.lineTo(columns.x(i), at(a, i));
  }
  ctx.closePath();
  ctx.globalAlpha = alpha;
  ctx.fillStyle = colour;
  ctx.fill();
  ctx.globalAlpha = 1;
}

function strokeLine(ctx, columns, edge, y, colour, width = 1.25) {
  ctx.beginPath();
  for (let i = 0; i < columns.count; i++) {
    ctx.lineTo(columns.x(i), y(edge[i]));
    ctx.lineTo(columns.x(i + 1), y(edge[i]));
  }
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.lineJoin = "round";
  ctx.stroke();
}

// A band whose edge moves within a column: full up to the lowest, lighter up to the mean, lightest
// up to the highest, so that no extreme is hidden and none looks like the rule.
function fillBand(ctx, columns, sampled, y, colour) {
  fillBetween(ctx, columns, 0, sampled.low, y, colour);
  fillBetween(ctx, columns, sampled.low, sampled.mean, y, colour, 0.8);
  fillBetween(ctx, columns, sampled.mean, sampled.high, y, colour, 0.4);
}

function timeTicks(view) {
  const step = timeTick(view.span, Math.max(2, view.width / 90));
  const ticks = [];
  const { origin } = view.run; // round numbers of the clock, not of the run's own times
  const first = Math.ceil((Math.max(0, view.from) + origin) / step - 1e-9);
  for (let i = first; i * step - origin <= view.to + step * 1e-9; i++)
    ticks.push(i * step - origin);
  return { step, ticks };
}

function valueTicks(most, height) {
  let step = niceStep(most / Math.max(1, Math.min(4, Math.floor(height / 28))));
  if (step > most) step = niceStep(step / 3); // one beside 0 at least
  const ticks = [];
  for (let value = 0; value <= most * (1 + 1e-9); value += step) ticks.push(value);
  return ticks;
}

function hairline(ctx, x0, y0, x1, y1, colour) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

const sharp = (pixel) => Math.round(pixel) + 0.5;

// Lines across, with their values in the gutter on the left.
function drawValueAxis(ctx, view, theme, ticks, y, label) {
  ctx.textAlign = "right";
  for (const tick of ticks) {
    hairline(ctx, view.left, sharp(y(tick)), view.left + view.width, sharp(y(tick)), theme.line);
    ctx.fillStyle = theme.muted;
    ctx.fillText(label(tick), view.left - 8, y(tick));
  }
}

function drawTimeLines(ctx, view, theme, height) {
  for (const tick of timeTicks(view).ticks)
    hairline(ctx, sharp(view.xOf(tick)), 0, sharp(view.xOf(tick)), height, theme.line);
}
