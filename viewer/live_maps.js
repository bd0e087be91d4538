// live_maps.js - the block maps of a running scheduler: the GPU's pool and the host's, as the server
// draws them (/blocks).

const MAP_STATES = ["pinned", "active", "cached", "empty"];
const LEAST_MAP_MS = 200;  // between two questions; the server may draw more often
const QUIET_MAP_MS = 2000; // while no step is made
const MAP_IDS = ["map", "host-map"];

class LiveMap extends CellMap {
  // Elements of the page: those of a CellMap, id-title, id-step, id-legend.
  constructor(theme, id) {
    super(theme, id, 0.45);
    this.map = null;
    this.title = document.getElementById(`${id}-title`);
    this.step = document.getElementById(`${id}-step`);
    this.counts = {};
    const legend = document.getElementById(`${id}-legend`);
    for (const state of MAP_STATES) {
      const swatch = element("i", { class: "swatch" });
      swatch.style.setProperty("--swatch", `var(--${state})`);
      this.counts[state] = element("dd", { "data-value": state });
      legend.append(element("div", {}, element("dt", {}, swatch, state), this.counts[state]));
    }
  }

  // map: one of the server's, or null: there is none.
  show(map) {
    const isAnother = !map || !this.map || map.total !== this.map.total || map.name !== this.map.name;
    this.map = map;
    this.root.hidden = !map;
    if (!map) return;
    this.numBlocks = map.total;
    this.cellBlocks = map.cell_blocks;
    this.numCells = map.cells.active.length;
    this.title.textContent = map.name === "gpu" ? "Block map, GPU" : `Block map, ${map.name}`;
    const { first_step: first, last_step: last } = map;
    this.step.textContent = first === last ? `step ${exact(last)}`
      : `steps ${exact(first)} to ${exact(last)}`;
    for (const state of MAP_STATES) this.counts[state].textContent = exact(map[state]);
    if (isAnother) this.layout();
    else this.draw();
  }

  layout() {
    if (!this.map || this.canvas.clientWidth === 0) return;
    this.fit();
    this.draw();
  }

  draw() {
    this.colours = MAP_STATES.map((state) => rgbOf(this.theme[state]));
    this.drawCells();
    this.describe(this.hovered < this.numCells ? this.hovered : -1);
  }

  // By state, in the order of MAP_STATES; what is pinned is not counted as active again, and the null
  // block is none.
  countsOf(cell) {
    const { cells: { pinned, active, cached } } = this.map;
    const blocks = Math.min(this.cellBlocks, this.numBlocks - cell * this.cellBlocks);
    const empty = blocks - (cell === 0 ? 1 : 0) - active[cell] - cached[cell];
    return [pinned[cell], active[cell] - pinned[cell], cached[cell], empty];
  }

  colourOf(cell) {
    const counts = this.countsOf(cell);
    const all = counts.reduce((sum, count) => sum + count, 0);
    return all === 0 ? this.theme.line : mix(this.colours, counts.map((count) => count / all));
  }

  stateText(cell) {
    const counts = this.countsOf(cell);
    const named = MAP_STATES.map((state, i) => [state, counts[i]]).filter(([, count]) => count > 0);
    if (named.length === 0) return "the null block";
    if (this.cellBlocks === 1) return named[0][0] === "pinned" ? "active, pinned" : named[0][0];
    return named.map(([state, count]) => `${exact(count)} ${state}`).join(", ");
  }
}

class LiveMaps {
  constructor(live) {
    this.live = live;
    this.feed = live.feed;
    this.maps = MAP_IDS.map((id) => new LiveMap(live.theme, id));
    this.none = document.getElementById("no-map");
    this.forget();
  }

  // Another engine: nothing is known of it.
  forget() {
    this.isOff = false; // the server draws none
    this.isAsking = false;
    this.periodMs = LEAST_MAP_MS;
    this.askedAt = -Infinity;
    this.show([], "No block map yet.");
  }

  layout() {
    for (const map of this.maps) map.layout();
  }

  tick(now) {
    const period = this.feed.isQuiet ? QUIET_MAP_MS : this.periodMs;
    const isDue = now - this.askedAt >= period && !this.isAsking && !this.isOff;
    if (isDue && this.feed.state === "live") this.ask(now);
  }

  async ask(now) {
    const { source } = this.feed;
    this.askedAt = now;
    this.isAsking = true;
    try {
      const answer = await this.feed.fetch("blocks");
      const isKnown = answer.status !== 404;
      const told = isKnown ? await answer.json() : null;
      if (this.feed.source === source && !this.live.page.isPaused) this.take(told);
    } catch { /* the feed finds out whether the server is gone */ }
    this.isAsking = false;
  }

  // told: null where the server knows no maps.
  take(told) {
    this.isOff = !told || told.map_ms === 0;
    if (this.isOff) {
      this.show([], told ? "This scheduler draws no block map. To see one, set map_ms of its monitor "
        + "(quire serve: --map-ms)." : "This server has no block map.");
      return;
    }
    this.periodMs = Math.max(LEAST_MAP_MS, told.map_ms);
    this.show(told.maps, "No block map is drawn yet.");
  }

  show(maps, excuse) {
    this.none.hidden = maps.length > 0;
    this.none.textContent = excuse;
    this.maps.forEach((map, i) => map.show(maps[i] || null));
  }
}
