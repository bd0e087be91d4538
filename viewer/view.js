// view.js - what is shown: the stretch of time, the cursor, the request that is selected. All
// that draws listens here; all that happens between two frames of the screen is drawn once.

class View {
  constructor(run) {
    this.run = run;
    this.from = 0;
    this.to = run.end;
    this.left = 0; // of the plots, in CSS pixels from the left edge of their column
    this.width = 1;
    this.row = Math.max(0, lastAtMost(run.time, run.end / 2)); // under the cursor
    this.isPinned = false;
    this.request = -1;
    this.listeners = { time: [], cursor: [], request: [] };
    this.changed = new Set();
    this.shortest = Math.min(run.end, 50); // us: no zoom beyond
  }

  on(what, listener) {
    this.listeners[what].push(listener);
  }

  tell(...whats) {
    if (this.changed.size === 0) requestAnimationFrame(() => this.flush());
    whats.forEach((what) => this.changed.add(what));
  }

  flush() {
    const changed = this.changed;
    this.changed = new Set();
    const called = new Set(); // a listener to two changes is called once
    for (const what of changed)
      for (const listener of this.listeners[what]) {
        if (!called.has(listener)) listener();
        called.add(listener);
      }
  }

  get span() {
    return this.to - this.from;
  }

  get isWhole() {
    return this.from <= 0 && this.to >= this.run.end;
  }

  xOf(time) {
    return this.left + (time - this.from) / this.span * this.width;
  }

  timeOf(x) {
    return this.from + (x - this.left) / this.width * this.span;
  }

  // What a clock shows at a time: times of a run count from its first row, whose own may not be 0.
  clock(time, stepUs) {
    return clock(time + this.run.origin, stepUs);
  }

  // Left, top and width of what is drawn: where the run has not begun yet, nothing is.
  get extent() {
    const left = Math.max(this.left, this.xOf(0));
    return [left, 0, this.left + this.width - left];
  }

  setWindow(from, to) {
    const span = Math.max(this.shortest, Math.min(to - from, this.run.end));
    const middle = (from + to) / 2;
    from = Math.max(0, Math.min(middle - span / 2, this.run.end - span));
    if (from === this.from && from + span === this.to) return;
    this.from = from;
    this.to = from + span;
    this.tell("time");
  }

  // factor < 1: closer; what is at `time` stays where it is
  zoom(factor, time) {
    const span = Math.max(this.shortest, Math.min(this.span * factor, this.run.end));
    const share = (time - this.from) / this.span;
    const from = Math.max(0, Math.min(time - share * span, this.run.end - span));
    this.setWindow(from, from + span);
  }

  pan(us) {
    const from = Math.max(0, Math.min(this.from + us, this.run.end - this.span));
    this.setWindow(from, from + this.span);
  }

  reset() {
    this.setWindow(0, this.run.end);
  }

  setRow(row) {
    row = Math.max(0, Math.min(row, this.run.count - 1));
    if (row === this.row) return;
    this.row = row;
    this.tell("cursor");
  }

  // The row that holds at a time.
  setCursorTime(time) {
    this.setRow(Math.max(0, lastAtMost(this.run.time, time)));
  }

  get cursorTime() {
    return this.run.count > 0 ? this.run.time[this.row] : 0;
  }

  setPinned(isPinned) {
    this.isPinned = isPinned;
    this.tell("cursor");
  }

  // Brings a time into sight.
  follow(time) {
    if (time < this.from || time > this.to) this.pan(time - (this.from + this.to) / 2);
  }

  selectRequest(index) {
    this.request = index;
    this.tell("request");
  }
}
