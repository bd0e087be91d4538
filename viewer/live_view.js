// live_view.js - a view whose right edge is now. Whoever zooms or pans stops it; whoever follows
// again brings it back.
//
//      from                          to = now
//        |‹------- window -------›|
//
// The cursor is at the last step, unless the pointer is over a plot or the reader put it elsewhere.

class LiveView extends View {
  constructor(run) {
    super(run);
    this.listeners.follow = [];
    this.listeners.whole = []; // the run has grown, what is shown has not changed
    this.shortest = 50;
    this.window = 60e6; // us; Infinity: all there is
    this.isFollowing = true;
    this.pointerX = null; // of the pointer over the plots
    this.heldTime = null; // of a cursor that was put somewhere
    this.place();
  }

  // The stretch that ends now, which may begin before the first step.
  place() {
    const span = Math.max(this.shortest, Math.min(this.window, this.run.end));
    this.to = this.run.end;
    this.from = this.to - (this.window === Infinity ? span : this.window);
  }

  followWindow(window) {
    this.window = window;
    this.isFollowing = true;
    this.heldTime = null;
    this.isPinned = false;
    this.place();
    this.advanceCursor();
    this.tell("time", "cursor", "follow");
  }

  reset() {
    this.followWindow(Infinity);
  }

  setWindow(from, to) {
    if (this.isFollowing) this.tell("follow");
    this.isFollowing = false;
    super.setWindow(from, to);
  }

  // New rows have come.
  advance() {
    if (this.isFollowing) this.place();
    this.advanceCursor();
    this.tell(this.isFollowing || this.to >= this.seenEnd ? "time" : "whole", "cursor");
    this.seenEnd = this.run.end;
  }

  advanceCursor() {
    const time = this.heldTime ?? (this.pointerX === null ? this.run.end
      : this.timeOf(this.pointerX));
    this.row = Math.max(0, lastAtMost(this.run.time, time));
  }

  // Put somewhere by a key, a touch or a click, it stays; under a pointer it moves with that.
  setRow(row) {
    super.setRow(row);
    this.heldTime = this.cursorTime;
  }

  setCursorTime(time) {
    super.setCursorTime(time);
    if (this.pointerX !== null && !this.isPinned) this.heldTime = null;
  }

  setPinned(isPinned) {
    super.setPinned(isPinned);
    this.heldTime = isPinned ? this.cursorTime : null;
    this.advanceCursor();
  }

  setPointer(x) {
    this.pointerX = x;
    if (x !== null && !this.isPinned) this.heldTime = null;
    this.advanceCursor();
    this.tell("cursor");
  }
}
