// plots.js - the charts as something to touch: pointer, wheel, pinch, and what keys and buttons
// have in common. Both pages are made of it.

const WHEEL_ZOOM = 1.0015; // for one unit of a wheel
const CLICK_PIXELS = 4;    // a pointer that moved less has clicked

class Plots {
  constructor(run, view, theme) {
    this.run = run;
    this.view = view;
    this.theme = theme;
    this.plots = document.getElementById("plots");
    this.brush = document.getElementById("brush");
    this.help = document.getElementById("help");
  }

  listen() {
    this.theme.listeners.push(() => this.layout());
    new ResizeObserver(() => this.layout()).observe(document.body);
    this.listenPointer();
    this.listenWheel();
    this.listenButtons();
    document.addEventListener("keydown", (event) => this.key(event));
    this.layout();
    this.view.tell("cursor");
  }

  // Sizes may have changed: all plots share their left and right edges.
  layout() {
    const style = getComputedStyle(this.plots);
    this.view.left = parseFloat(style.getPropertyValue("--gutter"));
    const right = parseFloat(style.getPropertyValue("--margin"));
    this.view.width = Math.max(50, this.plots.clientWidth - this.view.left - right);
    this.plots.style.setProperty("--top", `${document.querySelector(".sticky").offsetHeight}px`);
    this.layoutParts();
    this.overview.makePicture();
    this.view.tell("time", "cursor");
  }

  // What a page with more than charts does about them.
  layoutParts() {}
  hover() {}
  clickPart() { return false; }

  // ---- pointer ----------------------------------------------------------------

  xOf(event) {
    return event.clientX - this.plots.getBoundingClientRect().left;
  }

  listenPointer() {
    const { plots } = this;
    this.pointers = new Map();
    this.drag = null;
    plots.addEventListener("pointermove", (event) => this.pointerMove(event));
    plots.addEventListener("pointerdown", (event) => this.pointerDown(event));
    for (const type of ["pointerup", "pointercancel"])
      plots.addEventListener(type, (event) => this.pointerUp(event));
    plots.addEventListener("pointerleave", () => this.hover(null));
    plots.addEventListener("dblclick", (event) => {
      if (event.target.matches("canvas.plot")) this.view.reset();
    });
  }

  pointerDown(event) {
    if (!event.target.matches("canvas.plot") || event.button > 1) return;
    event.target.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.xOf(event));
    const isPan = event.pointerType === "touch" || event.shiftKey || event.button === 1;
    this.drag = { x: this.xOf(event), last: this.xOf(event), isPan, isMoved: false,
      target: event.target };
  }

  pointerMove(event) {
    this.isEngaged = event.target.matches("canvas.plot");
    const x = this.xOf(event);
    this.hover(event);
    if (this.pointers.size === 2 && this.pointers.has(event.pointerId)) {
      this.pinch(event.pointerId, x);
      return;
    }
    if (this.drag) this.dragTo(x);
    else if (this.isEngaged && !this.view.isPinned) this.view.setCursorTime(this.view.timeOf(x));
    if (this.drag && this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, x);
  }

  pinch(id, x) {
    const [a, b] = [...this.pointers.values()];
    this.pointers.set(id, x);
    const [c, d] = [...this.pointers.values()];
    const before = Math.max(10, Math.abs(a - b));
    const now = Math.max(10, Math.abs(c - d));
    this.view.pan(-((c + d) - (a + b)) / 2 / this.view.width * this.view.span);
    this.view.zoom(before / now, this.view.timeOf((c + d) / 2));
    if (this.drag) this.drag.isMoved = true;
  }

  dragTo(x) {
    const { drag, view, brush } = this;
    if (Math.abs(x - drag.x) > CLICK_PIXELS) drag.isMoved = true;
    if (!drag.isMoved) return;
    if (drag.isPan) {
      view.pan((drag.last - x) / view.width * view.span);
      drag.last = x;
      return;
    }
    const inside = (place) => Math.max(view.left, Math.min(place, view.left + view.width));
    const [from, to] = [inside(Math.min(x, drag.x)), inside(Math.max(x, drag.x))];
    drag.range = [view.timeOf(from), view.timeOf(to)];
    brush.hidden = false;
    brush.style.left = `${from}px`;
    brush.style.width = `${to - from}px`;
  }

  pointerUp(event) {
    const { drag, view } = this;
    this.pointers.delete(event.pointerId);
    if (!drag || this.pointers.size > 0) return;
    this.drag = null;
    this.brush.hidden = true;
    if (event.type === "pointercancel") return;
    if (drag.range && drag.isMoved) view.setWindow(...drag.range);
    else if (!drag.isMoved) this.click(event, drag.target);
  }

  click(event, target) {
    const { view } = this;
    if (this.clickPart(event, target)) return;
    if (event.pointerType === "touch") {
      view.setCursorTime(view.timeOf(this.xOf(event)));
      return;
    }
    view.setPinned(!view.isPinned);
    if (view.isPinned) view.setCursorTime(view.timeOf(this.xOf(event)));
  }

  // ---- wheel ------------------------------------------------------------------

  // A wheel zooms where the pointer was moved onto a plot; a page that is being scrolled scrolls
  // on, though plots pass under the pointer.
  listenWheel() {
    this.isEngaged = false;
    addEventListener("scroll", () => { this.isEngaged = false; }, { passive: true });
    this.plots.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
  }

  wheel(event) {
    const { view } = this;
    const isPinch = event.ctrlKey || event.metaKey;
    if (!event.target.matches("canvas.plot") || (!this.isEngaged && !isPinch)) return;
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (event.target.id === "lanes" && !isPinch && !isSideways) return; // scrolls
    const unit = event.deltaMode === 1 ? 32 : 1;
    if (isSideways) {
      event.preventDefault();
      view.pan(event.deltaX * unit / view.width * view.span);
      return;
    }
    if (event.deltaY > 0 && view.isWhole && !isPinch) return;
    event.preventDefault();
    const factor = (isPinch ? 1.01 : WHEEL_ZOOM) ** (event.deltaY * unit);
    view.zoom(Math.max(0.2, Math.min(5, factor)), view.timeOf(this.xOf(event)));
    if (!view.isPinned) view.setCursorTime(view.timeOf(this.xOf(event)));
  }

  // ---- buttons and keys -------------------------------------------------------

  listenButtons() {
    const on = (id, act) => document.getElementById(id).addEventListener("click", act);
    on("theme", () => this.theme.toggle());
    on("show-help", () => this.help.showModal());
    on("zoom-in", () => this.zoomKey(0.5));
    on("zoom-out", () => this.zoomKey(2));
    on("zoom-reset", () => this.view.reset());
    on("previous-mark", () => this.toMark(-1));
    on("next-mark", () => this.toMark(1));
  }

  zoomKey(factor) {
    const { view } = this;
    const at = view.cursorTime >= view.from && view.cursorTime <= view.to
      ? view.cursorTime : (view.from + view.to) / 2;
    view.zoom(factor, at);
  }

  moveKey(event, direction) {
    const { view } = this;
    if (event.shiftKey) {
      view.pan(direction * view.span / 10);
      return;
    }
    if (event.altKey) return;
    view.setRow(view.row + direction);
    view.follow(view.cursorTime);
  }

  // The next step with a preemption, or the one before.
  toMark(direction) {
    const { view } = this;
    const { marks } = this.run;
    const at = direction > 0 ? lastAtMost(marks.time, view.cursorTime) + 1
      : lastAtMost(marks.time, view.cursorTime - 0.5);
    if (at < 0 || at >= marks.count) return;
    view.setRow(lastAtMost(this.run.step, marks.step[at]));
    view.follow(view.cursorTime);
  }

  // By the name of the key.
  keys(event) {
    const { view } = this;
    return {
      ArrowLeft: () => this.moveKey(event, -1), ArrowRight: () => this.moveKey(event, 1),
      Home: () => { view.setRow(0); view.follow(view.cursorTime); },
      End: () => { view.setRow(this.run.count - 1); view.follow(view.cursorTime); },
      "+": () => this.zoomKey(0.5), "=": () => this.zoomKey(0.5), "-": () => this.zoomKey(2),
      0: () => view.reset(), "?": () => this.help.showModal(), t: () => this.theme.toggle(),
      n: () => this.toMark(1), p: () => this.toMark(-1), Escape: () => view.setPinned(false),
    };
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    const act = this.keys(event)[event.key];
    if (!act || this.help.open || (event.key === " " && event.target.matches("button"))) return;
    event.preventDefault();
    act();
  }
}
