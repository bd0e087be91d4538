// main.js - puts the parts of a replay's page together.

class Page extends Plots {
  constructor(run) {
    super(run, new View(run), new Theme());
    const { view, theme } = this;
    showHeader(run);
    showTables(run);
    this.charts = new Charts(view, theme, [...memoryCharts(run), ...tierCharts(run),
      queueChart(run), tokensChart(run), stepTimeChart(run),
      ...(run.report && !knowsHits(run.report) ? [] : [hitChart(run)]), preemptionChart(run)]);
    this.overview = new Overview(view, theme);
    this.timeline = new Timeline(view, theme);
    this.map = new BlockMap(view, theme, view.run.frames, "map");
    this.hostMap = new BlockMap(view, theme, view.run.hostFrames, "host-map");
    this.latencies = new Latencies(view, theme);
    const comparison = run.report && run.report.comparison;
    this.comparison = comparison ? new Comparison(theme, comparison) : null;
    this.listen();
  }

  layoutParts() {
    this.timeline.layout();
    this.map.layout();
    this.hostMap.layout();
    this.latencies.layout();
    if (this.comparison) this.comparison.layout();
    this.layoutSide();
  }

  // The side stays in sight and scrolls by itself, unless the charts beside it are shorter: then
  // it is as high as it needs to be.
  layoutSide() {
    const columns = document.querySelector(".columns");
    const side = document.querySelector(".side");
    columns.classList.toggle("short", this.plots.offsetHeight < side.scrollHeight);
  }

  hover(event) {
    this.timeline.hover(event && event.target.id === "lanes" && !this.drag ? event : null);
  }

  clickPart(event, target) {
    if (target.id !== "lanes") return false;
    const box = target.getBoundingClientRect();
    const found = this.timeline.requestAt(event.clientX - box.left, event.clientY - box.top);
    this.view.selectRequest(found);
    return true;
  }

  listenButtons() {
    super.listenButtons();
    document.getElementById("tables").addEventListener("click",
      (event) => this.toStep(event.target.dataset.step));
    for (const id of ["previous-mark", "next-mark"])
      document.getElementById(id).disabled = this.run.marks.count === 0;
  }

  // From a table: the cursor there, and the charts into sight.
  toStep(step) {
    const { view } = this;
    if (step === undefined) return;
    view.setRow(lastAtMost(this.run.step, +step));
    view.setPinned(true);
    view.follow(view.cursorTime);
    this.plots.scrollIntoView({ behavior: "smooth" });
  }

  keys(event) {
    const { view } = this;
    return { ...super.keys(event), "/": () => this.timeline.search.focus(),
      " ": () => this.map.play(),
      Escape: () => { view.setPinned(false); view.selectRequest(-1); } };
  }
}

function start() {
  const run = decodeRun(JSON.parse(document.getElementById("data").textContent));
  if (run.count === 0) {
    document.getElementById("empty").hidden = false;
    document.getElementById("content").hidden = true;
    new Theme();
    showHeader(run);
    return;
  }
  window.quirePage = new Page(run);
}

try {
  start();
} catch (error) {
  const note = document.getElementById("empty");
  note.hidden = false;
  note.textContent = `The data of this page cannot be read: ${error.message}`;
  throw error;
}
