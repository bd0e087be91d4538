// timeline.js - requests as bars: waiting, prefill, decode, preempted.
//
//      lanes    a request takes the first lane that is free: how many there are at one time is seen
//      list     one row for each that is looked for, with its name
//
// Only rows in sight are drawn; a tall empty element behind the canvas gives the scroll bar.

const LANE_HEIGHT = 9;
const ROW_HEIGHT = 18;
const END_NAMES = ["finished", "length limit reached", "aborted", "failed", "not finished"];

// lanes[k]: indices of requests, by time. The free lane with the smallest number is taken.
function lanesOf(requests, starts, end) {
  const lanes = [];
  const lane = new Int32Array(requests.count);
  const free = []; // a heap of numbers of free lanes
  const busy = []; // a heap of [end, lane]
  for (const i of Uint32Array.from(starts.keys()).sort((a, b) => starts[a] - starts[b] || a - b)) {
    while (busy.length > 0 && busy[0][0] <= starts[i])
      heapPut(free, heapTake(busy, (a, b) => a[0] - b[0])[1], (a, b) => a - b);
    const taken = free.length > 0 ? heapTake(free, (a, b) => a - b) : lanes.push([]) - 1;
    lanes[taken].push(i);
    lane[i] = taken;
    const until = requests.ended[i] === NEVER ? end : requests.ended[i];
    heapPut(busy, [until, taken], (a, b) => a[0] - b[0]);
  }
  return { lanes, lane };
}

function heapPut(heap, item, order) {
  let i = heap.push(item) - 1;
  while (i > 0) {
    const parent = (i - 1) >> 1;
    if (order(heap[parent], heap[i]) <= 0) return;
    [heap[parent], heap[i]] = [heap[i], heap[parent]];
    i = parent;
  }
}

function heapTake(heap, order) {
  const top = heap[0];
  const last = heap.pop();
  if (heap.length === 0) return top;
  heap[0] = last;
  for (let i = 0;;) {
    let least = i;
    for (const child of [2 * i + 1, 2 * i + 2])
      if (child < heap.length && order(heap[child], heap[least]) < 0) least = child;
    if (least === i) return top;
    [heap[least], heap[i]] = [heap[i], heap[least]];
    i = least;
  }
}

// Indices of the requests that a text asks for: an id, "s12" or "session 12", "preempted".
function findRequests(requests, text) {
  const asked = text.trim().toLowerCase();
  const session = asked.match(/^(?:s|session)[\s:=#]*(\d+)$/);
  const number = asked.match(/^#?(\d+)$/);
  const found = [];
  for (let i = 0; i < requests.count; i++) {
    const isFound = session ? requests.session[i] === +session[1]
      : number ? String(requests.id[i]).startsWith(number[1]) || requests.session[i] === +number[1]
        : asked.length > 0 && "preempted".startsWith(asked) ? requests.preempted[i] > 0 : false;
    if (isFound) found.push(i);
  }
  const isIt = (i) => number && requests.id[i] === +number[1];
  found.sort((a, b) => isIt(b) - isIt(a)); // the very number first
  return found;
}

class Timeline {
  constructor(view, theme) {
    this.view = view;
    this.theme = theme;
    this.requests = view.run.requests;
    this.root = document.getElementById("timeline");
    this.root.hidden = this.requests.count === 0;
    this.canvas = document.getElementById("lanes");
    this.scroller = document.getElementById("lane-scroll");
    this.spacer = document.getElementById("lane-space");
    this.search = document.getElementById("search");
    this.note = document.getElementById("requests-note");
    this.tip = document.getElementById("tip");
    this.details = document.getElementById("request");
    this.waitingButton = document.getElementById("show-waiting");
    this.found = null; // what is looked for: then a list
    this.makeLanes(this.waitsLittle());
    this.waitingButton.addEventListener("click", () => {
      this.makeLanes(!this.showsWaiting);
      this.layout();
      this.view.tell("time");
    });
    view.on("time", () => this.draw());
    view.on("request", () => this.showRequest());
    this.scroller.addEventListener("scroll", () => view.tell("time"));
    this.search.addEventListener("input", () => this.lookFor(this.search.value));
    this.search.addEventListener("keydown", (event) => this.searchKey(event));
    this.showNote();
  }

  // Whether requests ran for longer than they waited: lanes of an overload would be queues alone.
  waitsLittle() {
    const { requests: r } = this;
    let balance = 0;
    for (let i = 0; i < r.count; i++)
      if (r.scheduled[i] !== NEVER)
        balance += this.endOf(i) - r.scheduled[i] - (r.scheduled[i] - r.arrival[i]);
    return balance >= 0;
  }

  // A lane is taken from the arrival on, or from the first step on.
  makeLanes(showsWaiting) {
    const { requests: r, view } = this;
    this.showsWaiting = showsWaiting;
    this.waitingButton.setAttribute("aria-pressed", String(showsWaiting));
    this.starts = r.arrival.map((arrival, i) =>
      (showsWaiting || r.scheduled[i] === NEVER ? arrival : r.scheduled[i]));
    const { lanes, lane } = lanesOf(r, this.starts, view.run.end);
    this.lanes = lanes;
    this.lane = lane;
  }

  get rowHeight() {
    return this.found ? ROW_HEIGHT : LANE_HEIGHT;
  }

  get rowCount() {
    return this.found ? this.found.length : this.lanes.length;
  }

  lookFor(text) {
    this.found = text.trim() === "" ? null : findRequests(this.requests, text);
    this.scroller.scrollTop = 0;
    this.showNote();
    this.layout();
    this.view.selectRequest(this.found && this.found.length > 0 ? this.found[0] : -1);
    this.view.tell("time");
  }

  searchKey(event) {
    if (event.key === "Escape") {
      this.search.value = "";
      this.lookFor("");
      this.search.blur();
    } else if (event.key === "Enter" && this.found && this.found.length > 0) {
      this.zoomTo(this.view.request);
    }
    event.stopPropagation();
  }

  showNote() {
    const { count, total } = this.requests;
    const shown = count < total ? `${exact(count)} of ${exact(total)} requests, chosen evenly` +
      ", preempted requests first" : `${exact(count)} requests`;
    this.note.textContent = this.found ? `${exact(this.found.length)} found in ${shown}` : shown;
  }

  layout() {
    const rows = Math.min(this.found ? 14 : 34, Math.max(4, this.rowCount));
    this.scroller.style.height = `${rows * this.rowHeight + 2}px`;
    this.spacer.style.height = `${this.rowCount * this.rowHeight}px`;
  }

  draw() {
    if (this.root.hidden) return;
    const { ctx, height } = openCanvas(this.canvas);
    const { view, theme } = this;
    drawTimeLines(ctx, view, theme, height);
    const top = this.scroller.scrollTop;
    const first = Math.floor(top / this.rowHeight);
    const end = Math.min(this.rowCount, Math.ceil((top + height) / this.rowHeight));
    const bars = { waiting: [], prefill: [], decode: [], preempted: [], selected: [] };
    for (let row = first; row < end; row++) {
      const y = row * this.rowHeight - top;
      if (this.found) this.placeListRow(ctx, bars, this.found[row], y);
      else this.placeLane(bars, this.lanes[row], y);
    }
    this.drawBars(ctx, bars, height);
  }

  // One colour after the other: changing it for each bar would take longer than the bars.
  drawBars(ctx, bars, height) {
    const { view, theme } = this;
    ctx.save();
    ctx.beginPath();
    ctx.rect(view.left, 0, view.width, height);
    ctx.clip();
    for (const phase of ["waiting", "prefill", "decode", "preempted"]) {
      ctx.fillStyle = theme[phase];
      const list = bars[phase];
      for (let k = 0; k < list.length; k += 4)
        ctx.fillRect(list[k], list[k + 1], list[k + 2], list[k + 3]);
    }
    ctx.restore();
    ctx.strokeStyle = theme.text;
    ctx.lineWidth = 1.5;
    if (bars.selected.length > 0) ctx.strokeRect(...bars.selected);
  }

  placeListRow(ctx, bars, i, y) {
    const { view, theme } = this;
    ctx.textAlign = "right";
    ctx.fillStyle = i === view.request ? theme.text : theme.muted;
    ctx.fillText(String(this.requests.id[i]), view.left - 8, y + ROW_HEIGHT / 2);
    this.placeBar(bars, i, y + 4, ROW_HEIGHT - 8);
  }

  placeLane(bars, lane, y) {
    const { view } = this;
    let last = -Infinity; // where the bar before ended: those within one pixel are one
    for (let k = this.firstInLane(lane); k < lane.length; k++) {
      const i = lane[k];
      if (this.starts[i] > view.to) break;
      const end = view.xOf(this.endOf(i));
      if (end - last < 1 && i !== view.request) continue;
      last = end;
      this.placeBar(bars, i, y + 1, LANE_HEIGHT - 2);
    }
  }

  endOf(i) {
    return this.requests.ended[i] === NEVER ? this.view.run.end : this.requests.ended[i];
  }

  firstInLane(lane) {
    let low = 0;
    let high = lane.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.endOf(lane[middle]) < this.view.from) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The parts of a request's life.
  placeBar(bars, i, y, height) {
    const { view, requests } = this;
    const end = this.endOf(i);
    const scheduled = requests.scheduled[i] === NEVER ? end : requests.scheduled[i];
    const token = requests.firstToken[i] === NEVER ? end : requests.firstToken[i];
    const start = this.found ? requests.arrival[i] : this.starts[i];
    if (view.xOf(end) - view.xOf(start) < 1.5 && i !== view.request) { // what most of it was
      const phase = end - token > token - start ? "decode"
        : token - scheduled > scheduled - start ? "prefill" : "waiting";
      this.placePart(bars[phase], start, end, y, height);
      return;
    }
    const inset = height * 0.3; // thinner: nothing is computed
    this.placePart(bars.waiting, start, scheduled, y + inset, height - 2 * inset);
    this.placePart(bars.prefill, scheduled, token, y, height);
    this.placePart(bars.decode, token, end, y, height);
    for (let k = 2 * requests.firstInterval[i]; k < 2 * requests.firstInterval[i + 1]; k += 2) {
      const until = Math.min(end, requests.intervals[k + 1]);
      this.placePart(bars.preempted, requests.intervals[k], until, y, height);
    }
    if (i !== view.request) return;
    const x0 = Math.max(view.left, view.xOf(start));
    const x1 = Math.min(view.left + view.width, view.xOf(end));
    bars.selected.push(x0 - 1.5, y - 1.5, Math.max(3, x1 - x0 + 3), height + 3);
  }

  placePart(list, from, to, y, height) {
    const { view } = this;
    const x0 = Math.max(view.left - 2, view.xOf(from));
    const x1 = Math.min(view.left + view.width + 2, view.xOf(to));
    if (x1 > x0) list.push(x0, y, Math.max(x1 - x0, 0.6), height);
  }

  // The request at a place of the canvas; -1: none. Bars of less than a pixel count as a few.
  requestAt(x, y) {
    const row = Math.floor((y + this.scroller.scrollTop) / this.rowHeight);
    if (row < 0 || row >= this.rowCount) return -1;
    if (this.found) return this.found[row];
    let best = -1;
    let distance = 4;
    for (let k = this.firstInLane(this.lanes[row]); k < this.lanes[row].length; k++) {
      const i = this.lanes[row][k];
      const from = this.view.xOf(this.starts[i]);
      if (from > x + 4) break;
      const away = Math.max(from - x, x - this.view.xOf(this.endOf(i)), 0);
      if (away < distance) {
        best = i;
        distance = away;
      }
    }
    return best;
  }

  // What the bar under the pointer is, beside the pointer.
  hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const i = event ? this.requestAt(event.clientX - box.left, event.clientY - box.top) : -1;
    this.tip.hidden = i < 0;
    if (i < 0) return;
    const { requests: r } = this;
    const after = (time) => duration(time - r.arrival[i]);
    const parts = [`request ${exact(r.id[i])}`];
    if (r.firstToken[i] !== NEVER) parts.push(`first token ${after(r.firstToken[i])}`);
    if (r.ended[i] !== NEVER) parts.push(`in all ${after(r.ended[i])}`);
    parts.push(`${exact(r.prompt[i])} → ${exact(r.output[i])} tokens`);
    this.tip.textContent = parts.join(" · ");
    const plots = this.tip.parentElement.getBoundingClientRect();
    const most = plots.width - this.tip.offsetWidth - 4;
    const x = Math.max(0, Math.min(event.clientX - plots.left + 12, most));
    this.tip.style.transform = `translate(${x}px, ${event.clientY - plots.top + 16}px)`;
  }

  zoomTo(i) {
    if (i < 0) return;
    const length = Math.max(this.endOf(i) - this.requests.arrival[i], 1000);
    const from = this.requests.arrival[i] - length * 0.25;
    this.view.setWindow(from, from + 1.5 * length);
    if (!this.found) this.scroller.scrollTop = (this.lane[i] - 8) * LANE_HEIGHT;
  }

  showRequest() {
    const i = this.view.request;
    this.details.hidden = i < 0;
    this.view.tell("time");
    if (i < 0) return;
    const list = element("dl", {}, ...this.factsOf(i).map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", { "data-fact": name }, value))));
    const session = this.requests.session[i];
    this.details.replaceChildren(list, this.button("Zoom to it", () => this.zoomTo(i)),
      ...(session > 0 ? [this.button("Its session", () => this.showSession(session))] : []),
      this.button("Close", () => this.view.selectRequest(-1)));
  }

  factsOf(i) {
    const { requests: r } = this;
    const after = (time) => (time === NEVER ? "–" : duration(time - r.arrival[i]));
    const turn = `${exact(r.session[i])}, turn ${exact(r.turn[i] + 1)}`;
    return [["request", exact(r.id[i])],
      ...(r.session[i] > 0 ? [["session", turn]] : []),
      ["arrival", clock(r.arrival[i], 1000)], ["queue", after(r.scheduled[i])],
      ["first token", after(r.firstToken[i])], ["in all", after(r.ended[i])],
      ["prompt", exact(r.prompt[i])],
      ["of it cached", `${exact(r.hit[i])} · ${percent(r.hit[i] / Math.max(1, r.prompt[i]))}`],
      ["output", exact(r.output[i])], ["preempted", exact(r.preempted[i])],
      ["end", END_NAMES[r.end[i]]]];
  }

  button(name, act) {
    const made = element("button", { type: "button" }, name);
    made.addEventListener("click", act);
    return made;
  }

  showSession(session) {
    this.search.value = `s${session}`;
    this.lookFor(this.search.value);
  }
}
