// sweep.js - the page of a sweep: a few figures over the axis that changes the memory, one line for
// each combination of the other axes, and all figures as a table.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [480, 240, 58, 14, 8, 40];
const SERIES_COLOURS = 8;
const DASH = 7; // of lines that lie on each other, in pixels

function shape(name, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// By the unit of a figure: as exact text, and as a tick of an axis.
const WRITERS = {
  ms: [ms, (value) => shortTime(1000 * value)],
  percent: [(value) => percent(value / 100, 2), (value) => `${short(value)}${THIN}%`],
  number: [(value, digits) => exact(value, digits), short],
};

// Steps of an axis of time are such that people count in: of the unit that fits.
function tickStep(most, unit) {
  if (unit !== "ms") return niceStep(most / 4);
  const scale = most >= 3600e3 ? 3600e3 : most >= 60e3 ? 60e3 : most >= 1e3 ? 1e3 : 1;
  return niceStep(most / scale / 4) * scale;
}

class Sweep {
  constructor(data) {
    this.data = data;
    this.series = [...new Set(data.rows.filter((row) => !row.error).map((row) => row.series))];
    this.order = data.rows.map((_, i) => i);
    this.by = -1;
    this.isUp = true;
    this.tip = document.getElementById("tip");
    this.showHeader();
    data.plots.filter((plot) => plot.front || data.x_name).forEach((plot) => this.drawPlot(plot));
    this.showTable();
  }

  colour(series) {
    return `var(--series${Math.max(0, this.series.indexOf(series)) % SERIES_COLOURS})`;
  }

  showHeader() {
    const { trace, rows, fixed } = this.data;
    const name = trace.split("/").pop() || trace;
    document.title = `${name} · Quire sweep`;
    document.getElementById("title").textContent = name;
    document.getElementById("title").title = trace;
    const facts = ["sweep", `${exact(rows.length)} runs`, ...(fixed ? [fixed] : [])];
    document.getElementById("facts").textContent = facts.join(" · ");
    if (this.series.length < 2) return;
    for (const series of this.series) {
      const swatch = element("i", { class: "swatch thin" });
      swatch.style.setProperty("--swatch", this.colour(series));
      document.getElementById("series").append(element("div", {}, element("dt", {}, swatch, series)));
    }
  }

  // ---- plots ------------------------------------------------------------------

  drawPlot(plot) {
    const xOf = (row) => (plot.front ? row.v[plot.x] : row.x);
    const points = this.data.rows.map((row, i) =>
      ({ x: xOf(row), y: row.v[plot.i], series: row.series, row: i }))
      .filter(({ x, y }) => x !== null && y !== null);
    if (points.length === 0) return;
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": plot.title });
    const scale = this.drawAxes(svg, plot, points);
    for (const point of points) point.at = `${scale.x(point.x).toFixed(1)},${scale.y(point.y).toFixed(1)}`;
    if (plot.front) this.drawFront(svg, plot, points);
    else this.drawLines(svg, points);
    this.drawPoints(svg, plot, points);
    document.getElementById("plots").append(element("section", { "data-plot": plot.title },
      element("h2", {}, plot.title), svg));
  }

  drawAxes(svg, plot, points) {
    const xs = points.map(({ x }) => x);
    const [least, most] = [Math.min(0, ...xs), Math.max(...xs, 1e-9)];
    const high = Math.max(...points.map(({ y }) => y), plot.unit === "ms" ? 1e-3 : 1);
    const step = tickStep(high, plot.unit);
    const top = step * Math.ceil(high / step - 1e-9);
    const x = (value) => LEFT + (value - least) / (most - least) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP);
    for (let value = 0; value <= top * 1.0001; value += step)
      svg.append(shape("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "tick" }),
        shape("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" },
          value === 0 ? "0" : WRITERS[plot.unit][1](+value.toPrecision(6))));
    const across = niceStep((most - least) / 6);
    for (let value = Math.ceil(least / across) * across; value <= most * 1.0001; value += across)
      svg.append(shape("text", { x: x(value), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" },
        short(+value.toPrecision(6))));
    svg.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" },
      this.xName(plot)));
    return { x, y };
  }

  xName(plot) {
    return plot.front ? plot.x_name : this.data.x_name;
  }

  // Steps: up to the next point of the front, more GPUs do not help.
  drawFront(svg, plot, points) {
    const places = plot.front.map((row) => points.find((point) => point.row === row).at.split(","));
    const steps = places.flatMap(([x, y], k) => (k === 0 ? [] : [`${x},${places[k - 1][1]}`]).concat(`${x},${y}`));
    svg.append(shape("polyline", { points: steps.join(" "), class: "front" }));
  }

  // Lines with the same points take turns in dashes, so that none hides another.
  drawLines(svg, points) {
    const lines = new Map(); // from the places of a line to the series that have it
    for (const series of this.series) {
      const places = points.filter((point) => point.series === series)
        .sort((a, b) => a.x - b.x).map(({ at }) => at).join(" ");
      if (places !== "") lines.set(places, [...(lines.get(places) || []), series]);
    }
    for (const [places, equal] of lines)
      equal.forEach((series, k) => {
        const line = shape("polyline", { points: places, fill: "none", "stroke-width": 2, "data-series": series });
        line.style.stroke = this.colour(series);
        if (equal.length > 1) {
          line.setAttribute("stroke-dasharray", `${DASH} ${DASH * (equal.length - 1)}`);
          line.setAttribute("stroke-dashoffset", -DASH * k);
        }
        svg.append(line);
      });
  }

  // Points at the same place are rings around each other; the tip names them all.
  drawPoints(svg, plot, points) {
    const places = new Map();
    for (const point of points) places.set(point.at, [...(places.get(point.at) || []), point]);
    for (const [at, equal] of places) {
      const [cx, cy] = at.split(",");
      equal.forEach((point, k) => {
        const dot = shape("circle", { cx, cy, r: 3.5 + 2 * (equal.length - 1 - k) });
        dot.style.fill = this.colour(point.series);
        svg.append(dot);
      });
      const place = shape("circle", { cx, cy, r: 12, class: "place", tabindex: 0 });
      const show = () => this.showTip(place, plot, equal);
      for (const type of ["pointerenter", "focus"]) place.addEventListener(type, show);
      for (const type of ["pointerleave", "blur"]) place.addEventListener(type, () => this.hideTip());
      svg.append(place);
    }
  }

  showTip(place, plot, points) {
    const write = WRITERS[plot.unit][0];
    const lines = points.map(({ series, y }) => `${series ? `${series}: ` : ""}${write(y, plot.d)}`);
    this.tip.textContent = [`${this.xName(plot)}: ${exact(points[0].x, 2)}`, ...lines].join("\n");
    this.tip.hidden = false;
    const box = place.getBoundingClientRect();
    const left = Math.min(box.right, innerWidth - this.tip.offsetWidth - 8);
    this.tip.style.left = `${Math.max(8, left)}px`;
    this.tip.style.top = `${Math.max(4, box.top - this.tip.offsetHeight)}px`;
    this.mark(new Set(points.map(({ row }) => row)));
  }

  hideTip() {
    this.tip.hidden = true;
    this.mark(new Set());
  }

  mark(rows) {
    for (const row of document.querySelectorAll("#table tbody tr"))
      row.classList.toggle("on", rows.has(+row.dataset.row));
  }

  // ---- table ------------------------------------------------------------------

  showTable() {
    const { axes, columns } = this.data;
    const head = element("tr");
    [...axes, ...columns.map((column) => column.head)].forEach((name, i) => {
      const sign = this.by === i ? (this.isUp ? " ↑" : " ↓") : "";
      const button = element("button", { type: "button", class: "link" }, name + sign);
      button.addEventListener("click", () => this.sort(i));
      head.append(element("th", { scope: "col" }, button));
    });
    const body = element("tbody", {}, ...this.order.map((row) => this.tableRow(row)));
    document.getElementById("table").replaceChildren(element("thead", {}, head), body);
  }

  tableRow(index) {
    const { columns, rows } = this.data;
    const row = rows[index];
    const made = element("tr", { "data-row": index }, ...row.axes.map((value) => element("td", {}, value)));
    if (row.error) {
      made.append(element("td", { class: "failed", colspan: columns.length }, row.error));
      return made;
    }
    row.v.forEach((value, k) => {
      const { unit, decimals } = columns[k];
      const text = value === null ? "–" : unit === "ms" ? ms(value) : exact(value, decimals);
      made.append(element("td", {}, text));
    });
    return made;
  }

  sort(column) {
    const { axes, rows } = this.data;
    this.isUp = this.by === column ? !this.isUp : true;
    this.by = column;
    const numberOf = (text) => (Number.isNaN(parseFloat(text)) ? text : parseFloat(text));
    const key = (row) => (column < axes.length ? numberOf(row.axes[column]) : row.v[column - axes.length]);
    this.order.sort((a, b) => {
      const [p, q] = [key(rows[a]), key(rows[b])];
      return (p < q ? -1 : p > q ? 1 : a - b) * (this.isUp ? 1 : -1);
    });
    this.showTable();
  }
}

const theme = new Theme();
document.getElementById("theme").addEventListener("click", () => theme.toggle());
window.quireSweep = new Sweep(JSON.parse(document.getElementById("data").textContent));
