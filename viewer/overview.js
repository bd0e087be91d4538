// overview.js - the whole run in one strip with the stretch that is shown, the time axis under it,
// and the line that says where the cursor is.

class Overview {
  constructor(view, theme) {
    this.view = view;
    this.theme = theme;
    this.canvas = document.getElementById("overview");
    this.axis = document.getElementById("axis");
    this.readout = document.getElementById("readout");
    this.spoken = document.getElementById("spoken");
    this.picture = document.createElement("canvas"); // the strip without the window
    this.cursor = document.getElementById("cursor");
    view.on("time", () => this.draw());
    view.on("cursor", () => this.showCursor());
    this.listen();
  }

  // The whole run, whatever is shown: needed again when size or colours change.
  makePicture() {
    const { view, theme } = this;
    const { run } = view;
    const whole = { run, from: 0, to: run.end, span: run.end, left: view.left, width: view.width };
    const columns = new Columns(whole);
    const scale = devicePixelRatio || 1;
    this.picture.width = this.canvas.clientWidth * scale;
    this.picture.height = this.canvas.clientHeight * scale;
    const ctx = this.picture.getContext("2d");
    ctx.scale(scale, scale);
    const height = this.canvas.clientHeight;
    const y = (value) => height - value / Math.max(1, run.meta.total_blocks) * height;
    fillBetween(ctx, columns, 0, run.meta.total_blocks, y, theme.empty);
    fillBand(ctx, columns, sample(run.series.used, columns), y, theme.cached);
    fillBand(ctx, columns, sample(run.series.active, columns), y, theme.active);
    ctx.fillStyle = theme.preempted;
    for (let i = 0; i < run.marks.count;) {
      const x = Math.round(run.marks.time[i] / run.end * view.width);
      ctx.fillRect(view.left + x - 0.5, 0, 1, 4);
      i = Math.max(i, lastAtMost(run.marks.time, (x + 0.5) / view.width * run.end)) + 1;
    }
  }

  xOf(time) {
    return this.view.left + time / this.view.run.end * this.view.width;
  }

  draw() {
    const { ctx, width, height } = openCanvas(this.canvas);
    const { view, theme } = this;
    if (this.picture.width * this.picture.height > 0) // off the screen it has no size
      ctx.drawImage(this.picture, 0, 0, width, height);
    const [from, to] = [this.xOf(view.from), this.xOf(view.to)];
    if (!view.isWhole) {
      ctx.fillStyle = theme.paper;
      ctx.globalAlpha = 0.65;
      ctx.fillRect(view.left - 1, 0, from - view.left + 1, height);
      ctx.fillRect(to, 0, view.left + view.width + 1 - to, height);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = theme.text;
      ctx.lineWidth = 1;
      ctx.strokeRect(from - 0.5, 0.5, Math.max(2, to - from + 1), height - 1);
    }
    this.drawAxis();
    this.showCursor();
  }

  drawAxis() {
    const { ctx, height } = openCanvas(this.axis);
    const { view, theme } = this;
    const { step, ticks } = timeTicks(view);
    ctx.fillStyle = theme.muted;
    for (const tick of ticks) {
      const x = view.xOf(tick);
      hairline(ctx, sharp(x), height - 4, sharp(x), height, theme.faint);
      const isLast = x > view.left + view.width - 20;
      ctx.textAlign = x < view.left + 20 ? "left" : isLast ? "right" : "center";
      ctx.fillText(view.clock(tick, step), x, height / 2 - 2);
    }
  }

  showCursor() {
    const { view } = this;
    const { run, row } = view;
    const next = row + 1 < run.count ? run.time[row + 1] : run.end;
    const x = view.xOf(Math.max(view.cursorTime, Math.min(view.from, next)));
    const isInside = x >= view.left - 0.5 && x <= view.left + view.width + 0.5;
    this.cursor.hidden = !isInside;
    this.cursor.style.transform = `translateX(${Math.round(x)}px)`;
    this.cursor.classList.toggle("pinned", view.isPinned);
    const counts = run.steps || run.points; // the live page has no rows of idle time
    const steps = counts[row + 1] - counts[row];
    const first = exact(run.step[row]);
    const name = steps > 1 ? `steps ${first} to ${exact(run.step[row] + steps - 1)}`
      : steps === 0 ? `idle after step ${first}` : `step ${first}`;
    const digits = view.width < 400 ? 1e5 : 1000; // a phone has no room for milliseconds
    const text = `${name} · ${view.clock(view.cursorTime, digits)}${view.isPinned ? " · pinned" : ""}`;
    this.readout.textContent = text;
    clearTimeout(this.saying); // spoken when the cursor rests, not on its way
    this.saying = setTimeout(() => { this.spoken.textContent = text; }, 600);
  }

  // Drag the window, or draw a new one by starting outside of it.
  listen() {
    const { canvas, view } = this;
    const timeOf = (event) => {
      const x = event.clientX - canvas.getBoundingClientRect().left;
      return (x - view.left) / view.width * view.run.end;
    };
    let start = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      const time = timeOf(event);
      const isInside = !view.isWhole && time >= view.from && time <= view.to;
      start = { time, from: view.from, isInside };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!start) return;
      const time = timeOf(event);
      if (start.isInside) {
        view.pan(start.from + time - start.time - view.from);
      } else if (Math.abs(time - start.time) > view.run.end * 0.002) {
        view.setWindow(Math.min(time, start.time), Math.max(time, start.time));
      }
    });
    canvas.addEventListener("pointerup", () => { start = null; });
    canvas.addEventListener("dblclick", () => view.reset());
  }
}
