// cells.js - the blocks of a pool as squares: where each cell stands, its colour, and what is said of
// the one under the pointer.

const MOST_CELL = 22; // pixels

class CellMap {
  // Elements of the page: id, id-blocks (canvas), id-note. share: height by width, at most.
  constructor(theme, id, share) {
    this.theme = theme;
    this.share = share;
    this.root = document.getElementById(id);
    this.canvas = document.getElementById(`${id}-blocks`);
    this.note = document.getElementById(`${id}-note`);
    this.hovered = -1;
    this.canvas.addEventListener("pointermove", (event) => this.describe(this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => this.describe(-1));
  }

  // What a map has: numCells, cellBlocks, numBlocks; colourOf(cell), stateText(cell, count).

  fit() {
    const width = this.canvas.clientWidth;
    let size = Math.min(MOST_CELL, Math.sqrt(width * width * this.share / this.numCells));
    this.across = Math.max(1, Math.min(this.numCells, Math.floor(width / size)));
    if (this.across > 8) this.across -= this.across % 8; // rows that are easy to count
    size = Math.min(MOST_CELL, width / this.across);
    this.size = size;
    this.canvas.style.height = `${Math.ceil(Math.ceil(this.numCells / this.across) * size)}px`;
  }

  // Returns the canvas, for what is drawn on top.
  drawCells() {
    const { ctx } = openCanvas(this.canvas);
    const gap = this.size >= 5 ? 1 : 0;
    for (let i = 0; i < this.numCells; i++) {
      ctx.fillStyle = this.colourOf(i);
      const place = this.placeOf(i);
      const [x, y] = place.map(Math.round);
      const [right, bottom] = place.map((edge) => Math.round(edge + this.size));
      ctx.fillRect(x, y, right - x - gap, bottom - y - gap);
    }
    return ctx;
  }

  placeOf(cell) {
    return [cell % this.across * this.size, Math.floor(cell / this.across) * this.size];
  }

  cellAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const cell = Math.floor((event.clientY - box.top) / this.size) * this.across + column;
    return column < this.across && cell < this.numCells ? cell : -1;
  }

  describe(cell) {
    const { cellBlocks, numBlocks } = this;
    this.hovered = cell;
    if (cell < 0) {
      const each = cellBlocks === 1 ? "a block" : `${exact(cellBlocks)} blocks`;
      this.note.textContent = `${exact(numBlocks)} blocks, a square is ${each}`;
      return;
    }
    const first = cell * cellBlocks;
    const last = Math.min(numBlocks, first + cellBlocks) - 1;
    const name = cellBlocks === 1 ? `block ${exact(first)}`
      : `blocks ${exact(first)} to ${exact(last)}`;
    this.note.textContent = `${name}: ${this.stateText(cell, last - first + 1)}`;
  }
}
