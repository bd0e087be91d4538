// fleet_maps.js - heat maps: a row for each worker, a column for each bin of time.

const MAP_ROW = 14;      // pixels of a row, if there are few
const MAP_HEIGHTS = [56, 360];
const EMPTY = "\u00a0"; // so that a heading keeps its height

class HeatMap {
  // spec: name, title, rows, top (value of the hottest colour), text(value), isMean (several cells
  // under one pixel show their mean; else the largest), isGood (high values are good)
  constructor(axis, theme, spec, workersPerRow, numWorkers) {
    this.axis = axis;
    this.theme = theme;
    this.spec = spec;
    this.workersPerRow = workersPerRow;
    this.numWorkers = numWorkers;
    const height = Math.max(MAP_HEIGHTS[0], Math.min(MAP_HEIGHTS[1], MAP_ROW * spec.rows.length));
    this.canvas = element("canvas", { role: "img", class: "plot", "aria-label": this.describe() });
    this.canvas.style.height = `${height}px`;
    this.shown = element("dd", { "data-value": "cell" }, EMPTY);
    this.scale = element("i", {});
    this.root = element("section", { class: "chart", "data-chart": spec.name },
      element("header", {}, element("h2", {}, spec.title),
        element("span", { class: "scale" }, spec.text(0), this.scale, spec.text(spec.top)),
        element("dl", { class: "legend" }, element("div", {}, this.shown))), this.canvas);
  }

  // Who has the largest mean over time, and the least.
  describe() {
    const means = this.spec.rows.map((row) => meanOf(row));
    const by = (choose) => means.indexOf(choose(...means.filter((value) => value !== null)));
    const known = means.some((value) => value !== null);
    if (!known) return `${this.spec.title}: no values`;
    const name = (row) => `${this.rowName(row)} (mean ${this.spec.text(means[row])})`;
    return `${this.spec.title}: highest ${name(by(Math.max))}, lowest ${name(by(Math.min))}`;
  }

  rowName(row) {
    const first = row * this.workersPerRow;
    const last = Math.min(first + this.workersPerRow, this.numWorkers) - 1;
    return last > first ? `workers ${first} to ${last}` : `worker ${first}`;
  }

  colours() {
    const { empty, paper } = this.theme;
    const hot = cssColour(this.spec.colour);
    const dark = this.theme.isDark;
    const strong = mix([rgbOf(hot), dark ? [255, 255, 255] : [0, 0, 0]], [0.72, 0.28]);
    this.scale.style.setProperty("--cold", empty);
    this.scale.style.setProperty("--warm", hot);
    this.scale.style.setProperty("--hot", strong);
    return { none: rgbOf(paper), cold: rgbOf(empty), warm: rgbOf(hot), hot: strong.match(/\d+/g).map(Number) };
  }

  draw() {
    const { ctx, height, scale } = openCanvas(this.canvas);
    const { axis } = this;
    const wide = Math.max(1, Math.round(axis.width * scale));
    const high = Math.max(1, Math.round(height * scale));
    const image = ctx.createImageData(wide, high);
    const colours = this.colours();
    const columns = Array.from({ length: wide }, (_, x) => this.binsUnder(x / wide, (x + 1) / wide));
    let before = -1;
    for (let y = 0; y < high; y++) {
      const rows = this.rowsUnder(y / high, (y + 1) / high);
      const key = rows[0] * 1e5 + rows[1];
      if (key === before) { // the same row of cells: copy the line above
        image.data.copyWithin(4 * y * wide, 4 * (y - 1) * wide, 4 * y * wide);
        continue;
      }
      before = key;
      for (let x = 0; x < wide; x++)
        this.paint(image.data, 4 * (y * wide + x), this.valueOf(rows, columns[x]), colours);
    }
    ctx.putImageData(image, Math.round(axis.left * scale), 0);
    if (this.workersPerRow === 1) axis.marks.drawOff(ctx, axis, height, this.numWorkers);
    this.drawNames(ctx, height);
  }

  binsUnder(from, to) {
    const { axis } = this;
    const first = Math.min(axis.count - 1, Math.floor(from * axis.span / axis.binUs));
    return [first, Math.max(first + 1, Math.min(axis.count, Math.ceil(to * axis.span / axis.binUs - 1)))];
  }

  rowsUnder(from, to) {
    const count = this.spec.rows.length;
    const first = Math.min(count - 1, Math.floor(from * count + 1e-9));
    return [first, Math.max(first + 1, Math.min(count, Math.floor(to * count + 1e-9)))];
  }

  valueOf([row, rowEnd], [bin, binEnd]) {
    let [high, sum, count] = [null, 0, 0];
    for (let r = row; r < rowEnd; r++)
      for (let b = bin; b < binEnd; b++) {
        const value = this.spec.rows[r][b];
        if (value === null) continue;
        high = high === null ? value : Math.max(high, value);
        sum += value;
        count++;
      }
    return count === 0 ? null : this.spec.isMean ? sum / count : high;
  }

  paint(data, at, value, { none, cold, warm, hot }) {
    const share = value === null ? 0 : Math.min(1, value / this.spec.top);
    const [a, b, t] = share < 0.6 ? [cold, warm, share / 0.6] : [warm, hot, (share - 0.6) / 0.4];
    for (let k = 0; k < 3; k++)
      data[at + k] = value === null ? none[k] : Math.round(a[k] + (b[k] - a[k]) * t);
    data[at + 3] = 255;
  }

  // Numbers of some workers in the gutter.
  drawNames(ctx, height) {
    const { axis, theme, spec } = this;
    const count = spec.rows.length;
    const every = niceStep(Math.max(1, count * 16 / height));
    ctx.fillStyle = theme.muted;
    ctx.textAlign = "right";
    for (let row = 0; row < count; row += every)
      ctx.fillText(String(row * this.workersPerRow), axis.left - 8,
        Math.max(6, Math.min(height - 6, (row + 0.5) / count * height)));
  }

  rowAt(y) {
    const count = this.spec.rows.length;
    return Math.max(0, Math.min(count - 1, Math.floor(y / this.canvas.clientHeight * count)));
  }

  show(bin, row) {
    const value = bin < 0 || row < 0 ? null : this.spec.rows[row][bin];
    this.shown.textContent = value === null ? EMPTY : `${this.rowName(row)}: ${this.spec.text(value)}`;
  }

  say(bin, row) {
    const value = this.spec.rows[row][bin];
    return value === null ? "" : `${this.spec.short} ${this.spec.text(value)}`;
  }
}

function meanOf(row) {
  const known = row.filter((value) => value !== null);
  return known.length === 0 ? null : known.reduce((a, b) => a + b, 0) / known.length;
}

function heatMaps(history) {
  const top = (rows) => Math.max(1, ...rows.map(most));
  const number = (x) => exact(x, x < 10 && x % 1 !== 0 ? 1 : 0);
  return [
    { name: "map-running", title: "Running requests by worker", short: "running", rows: history.running,
      colour: "running", top: top(history.running), text: number },
    { name: "map-waiting", title: "Queue by worker", short: "waiting", rows: history.waiting, colour: "waiting",
      top: top(history.waiting), text: number },
    { name: "map-hits", title: "Hit rate by worker", short: "hit rate", rows: history.hit_rate, colour: "hit",
      top: 1, text: (x) => percent(x, 0), isMean: true },
  ];
}
