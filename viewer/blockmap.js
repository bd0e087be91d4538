// blockmap.js - a pool at one step, block by block: the GPU's, or the host's. Frames are recorded at some steps; the one
// nearest to the cursor is shown, and says of which step it is.

const EXACT_CELL = 15; // blocks of a cell up to which its counts are exact
const NULL_CELL = 255;
const PLAY_MS = 80;

class BlockMap extends CellMap {
  // Elements of the page: those of a CellMap, id-step; id-play where it can be played.
  constructor(view, theme, frames, id) {
    super(theme, id, 0.8);
    this.view = view;
    this.frames = frames;
    this.root.hidden = this.frames.count === 0;
    this.title = document.getElementById(`${id}-step`);
    this.playButton = document.getElementById(`${id}-play`);
    this.index = -1;
    this.cells = null;
    this.timer = null;
    if (this.root.hidden) return;
    view.on("cursor", () => this.show());
    view.on("request", () => this.draw());
    if (this.playButton) this.playButton.addEventListener("click", () => this.play());
    this.canvas.addEventListener("click", (event) => this.selectOwner(event));
  }

  get numCells() {
    return this.frames.cells;
  }

  get cellBlocks() {
    return this.frames.cellBlocks;
  }

  get numBlocks() {
    return this.frames.numBlocks;
  }

  // Colours of all 256 cells that there can be: shares of empty, cached and active mixed.
  makeColours() {
    const colours = ["empty", "cached", "active"].map((name) => rgbOf(this.theme[name]));
    const all = Math.min(this.frames.cellBlocks, EXACT_CELL);
    this.colours = [];
    for (let cell = 0; cell < 256; cell++) {
      const active = Math.min(1, (cell >> 4) / all);
      const cached = Math.min(1 - active, (cell & 15) / all);
      this.colours.push(mix(colours, [1 - active - cached, cached, active]));
    }
    this.colours[NULL_CELL] = this.theme.line;
  }

  colourOf(cell) {
    return this.colours[this.cells[cell]];
  }

  layout() {
    if (this.root.hidden) return;
    this.makeColours();
    this.fit();
    this.draw();
  }

  nearestFrame() {
    const step = this.view.run.step[this.view.row];
    const before = lastAtMost(this.frames.step, step);
    if (before < 0) return 0;
    const after = Math.min(before + 1, this.frames.count - 1);
    return this.frames.step[after] - step < step - this.frames.step[before] ? after : before;
  }

  show() {
    const index = this.nearestFrame();
    if (index === this.index) return;
    this.index = index;
    this.cells = unpackFrame(this.frames, index);
    this.draw();
  }

  draw() {
    if (this.root.hidden) return;
    if (!this.cells) this.show();
    this.drawOwned(this.drawCells());
    const step = this.frames.step[this.index];
    const asked = this.view.run.step[this.view.row];
    this.title.textContent = `step ${exact(step)}${step === asked ? "" : ", the nearest recorded"}`;
    this.describe(-1);
  }

  ownerOf(cell) {
    return this.frames.owners ? this.frames.owners[this.index * this.frames.numBlocks + cell] : 0;
  }

  // Blocks of the selected request.
  drawOwned(ctx) {
    const selected = this.view.request < 0 ? 0 : this.view.run.requests.id[this.view.request];
    if (!this.frames.owners || selected === 0) return;
    ctx.strokeStyle = this.theme.text;
    ctx.lineWidth = 1.5;
    for (let i = 0; i < this.frames.cells; i++) {
      if (this.ownerOf(i) !== selected) continue;
      const [x, y] = this.placeOf(i);
      ctx.strokeRect(x + 0.75, y + 0.75, this.size - 2.5, this.size - 2.5);
    }
  }

  stateText(cell, count) {
    const code = this.cells[cell];
    if (this.frames.cellBlocks === 1) {
      if (code === NULL_CELL) return "the null block";
      const owner = this.ownerOf(cell);
      const state = code >> 4 ? "active" : code & 15 ? "cached" : "empty";
      return owner > 0 ? `${state}, of request ${exact(owner)}` : state;
    }
    const [active, cached] = [code >> 4, code & 15];
    if (this.frames.cellBlocks <= EXACT_CELL)
      return `${active} active, ${cached} cached, ${count - active - cached} empty`;
    const about = (share) => `${Math.round(100 * share / EXACT_CELL)}${THIN}%`;
    return `about ${about(active)} active, ${about(cached)} cached`;
  }

  selectOwner(event) {
    const cell = this.cellAt(event);
    const owner = cell < 0 ? 0 : this.ownerOf(cell);
    if (owner > 0) this.view.selectRequest(this.view.run.requests.id.indexOf(owner));
  }

  // From the cursor on to the end, or stops.
  play() {
    if (this.root.hidden) return;
    const isPlaying = this.timer !== null;
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = isPlaying ? "Play" : "Stop";
    this.playButton.setAttribute("aria-pressed", String(!isPlaying));
    if (isPlaying) return;
    let index = this.index + 1 < this.frames.count ? this.index : -1;
    this.timer = setInterval(() => {
      index++;
      if (index >= this.frames.count) {
        this.play();
        return;
      }
      const { run } = this.view;
      this.view.setRow(lastAtMost(run.step, this.frames.step[index]));
      this.view.follow(this.view.cursorTime);
    }, PLAY_MS);
  }
}
