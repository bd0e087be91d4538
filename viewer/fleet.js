// fleet.js - puts the page of a fleet together: its data, charts, heat maps, tables; the cursor.

class FleetPage {
  constructor(json) {
    if (json.format !== "quire-fleet" || json.version !== 1)
      throw new Error("version mismatch between this page and its data");
    this.meta = json.meta;
    this.report = json.report;
    this.fleet = this.report.fleet;
    this.history = this.fleet.history;
    this.end = this.history.end_s * US;
    this.gpusPerWorker = this.fleet.cost.gpus / this.fleet.num_workers;
    this.theme = new Theme();
    this.axis = new FleetAxis(this.history);
    this.axis.marks = new FleetMarks(this.fleet, this.axis.to);
    this.bin = -1;
    this.row = -1;
    this.showHeader();
    this.makeCharts();
    this.showTables();
    this.listen();
    this.layout();
  }

  showHeader() {
    const { meta, report, fleet } = this;
    const name = meta.trace.split("/").pop() || meta.trace;
    document.title = `${name} · Quire fleet`;
    document.getElementById("title").textContent = name;
    document.getElementById("title").title = meta.trace;
    const facts = [`${exact(fleet.num_workers)} workers`, `router ${fleet.router}`, meta.model, meta.gpu && `${meta.gpu} each`,
      `${exact(report.requests)} requests`, duration(this.end)];
    document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
    const version = report.made_by ? ` · Quire ${report.made_by.version}` : "";
    document.getElementById("made-by").textContent =
      `Quire fleet${version} · a column of the charts is ${duration(this.axis.binUs)}`;
    showVerdict(report.verdict);
    showLosses(report);
    document.getElementById("tiles").append(...fleetTiles(this));
  }

  makeCharts() {
    const { history, axis, theme, fleet, report } = this;
    const specs = [requestsChart(history, fleet, axis)];
    if (fleet.seconds) {
      const hasCrashes = Boolean(fleet.failures) && fleet.failures.crashes.length > 0;
      specs.push(firstTokenChart(fleet.seconds, hasCrashes, axis), readyChart(fleet.seconds, axis));
    }
    if (knowsHits(report)) specs.push(tokensChart(history, axis), hitChart(history, fleet.believed_tokens > 0));
    if (history.bins.good) specs.push(goodChart(history));
    specs.push(copiesChart(history, this.meta, this.gpusPerWorker, axis));
    this.charts = specs.map((spec) => new FleetChart(axis, theme, spec));
    this.maps = heatMaps(history).filter(({ name }) => name !== "map-hits" || knowsHits(report))
      .map((spec) => new HeatMap(axis, theme, spec, history.workers_per_row, fleet.num_workers));
    document.getElementById("charts").append(...[...this.maps, ...this.charts].map(({ root }) => root));
    const latency = { ...history.latency, binsPerOctave: history.latency.bins_per_octave };
    this.latencies = new Latencies({ run: { latency, report } }, theme);
  }

  showTables() {
    const { report, history, fleet, meta } = this;
    new WorkerTable(fleet.workers);
    showClasses(history.slo_classes);
    showPrefixes(history.prefixes, fleet.num_workers);
    document.getElementById("prefixes").hidden = !knowsHits(report);
    this.decisions = new Decisions(history.decisions, report.requests);
    const tables = [...figureTables(report).tables, ...latencyTable(report)];
    const spread = Object.entries(fleet.spread).map(([key, { min, mean, max, variation }]) => {
      const write = key === "requests" ? (x) => exact(x, 1) : (x) => percent(x);
      return [sentence(key), `spread.${key}`, write(min), write(mean), write(max), exact(variation, 2)];
    });
    tables.push(table("Workers compared", spread, ["", "least", "mean", "most", "variation"]));
    if (fleet.failures && fleet.failures.crashes.length > 0) tables.push(crashTable(fleet.failures.crashes));
    const settings = meta.options.map(([name, value]) => [name, `option.${name}`, value]);
    tables.push(table("Options", settings));
    document.getElementById("tables").append(...tables);
  }

  // ---- drawing ----------------------------------------------------------------------

  layout() {
    this.axis.layout(document.getElementById("axis").clientWidth);
    this.drawAxis();
    for (const chart of [...this.maps, ...this.charts]) chart.draw();
    this.latencies.layout();
    this.placeCursor();
  }

  drawAxis() {
    const { ctx } = openCanvas(document.getElementById("axis"));
    const { axis, theme } = this;
    const { step, ticks } = timeTicks(axis);
    ctx.fillStyle = theme.muted;
    for (const tick of ticks) {
      const text = clock(tick, step);
      const half = ctx.measureText(text).width / 2;
      const x = Math.min(axis.left + axis.width - half, Math.max(axis.left + half, axis.xOf(tick)));
      ctx.textAlign = "center";
      ctx.fillText(text, x, 11);
    }
  }

  // ---- the cursor -------------------------------------------------------------------

  listen() {
    addEventListener("resize", () => this.layout());
    this.theme.listeners.push(() => this.layout());
    document.getElementById("theme").addEventListener("click", () => this.theme.toggle());
    const plots = document.getElementById("plots");
    for (const chart of [...this.maps, ...this.charts])
      for (const type of ["pointermove", "pointerdown"])
        chart.canvas.addEventListener(type, (event) =>
          this.moveTo(this.axis.binAt(event.offsetX), chart.rowAt ? chart.rowAt(event.offsetY) : this.row));
    plots.addEventListener("pointerleave", () => this.moveTo(-1, -1));
    plots.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const { bin, row, axis } = this;
    const rows = this.history.running.length;
    const far = event.shiftKey ? 10 : 1;
    const at = Math.max(0, bin);
    const inside = (value, count) => Math.max(0, Math.min(count - 1, value));
    const moves = { ArrowLeft: [at - far, row], ArrowRight: [bin < 0 ? 0 : at + far, row], Home: [0, row],
      End: [axis.count - 1, row], ArrowUp: [at, row < 0 ? rows - 1 : row - far],
      ArrowDown: [at, row < 0 ? 0 : row + far] };
    if (event.key === "Escape") this.moveTo(-1, -1);
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const isOfRow = event.key === "ArrowUp" || event.key === "ArrowDown";
    this.moveTo(inside(move[0], axis.count), row < 0 && !isOfRow ? -1 : inside(move[1], rows));
    document.getElementById("spoken").textContent = this.sentence();
  }

  moveTo(bin, row) {
    this.bin = bin;
    this.row = row;
    this.charts.forEach((chart) => chart.show(bin));
    this.maps.forEach((map) => map.show(bin, row));
    const { axis } = this;
    document.getElementById("readout").textContent = bin < 0 ? ""
      : `${clock(axis.begin(bin), axis.binUs)} to ${clock(axis.end(bin), axis.binUs)}`;
    this.placeCursor();
  }

  sentence() {
    const { bin, row, maps, charts } = this;
    const time = document.getElementById("readout").textContent;
    if (row >= 0)
      return `${maps[0].rowName(row)}, ${time}: ${maps.map((map) => map.say(bin, row)).filter(Boolean).join(", ")}`;
    return `${time}: ${charts.map((chart) => chart.say(bin)).join("; ")}`;
  }

  placeCursor() {
    const cursor = document.getElementById("cursor");
    const { axis, bin } = this;
    cursor.hidden = bin < 0;
    if (bin < 0) return;
    const top = document.getElementById("charts").offsetTop;
    cursor.style.setProperty("--top", `${top}px`);
    cursor.style.transform = `translateX(${axis.xOf((axis.begin(bin) + axis.end(bin)) / 2)}px)`;
  }
}

window.quireFleet = new FleetPage(JSON.parse(document.getElementById("data").textContent));
