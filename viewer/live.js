// live.js - puts the parts of the live page together: what comes goes into rows at once, and is
// drawn some times a second while somebody may look.

const DRAW_MS = 100;
const CALM_MS = 1000;     // for who asked for less motion
const WHOLE_MS = 1000;    // the strip of the whole run
const LIST_MS = 500;      // the list of events

class LivePage extends Plots {
  constructor(run, theme, maps) {
    super(run, new LiveView(run), theme);
    this.maps = maps;
    const { view } = this;
    this.isPaused = false;
    this.charts = new Charts(view, theme, liveCharts(run));
    this.overview = new Overview(view, theme);
    view.on("follow", () => this.showFollow());
    view.on("whole", () => this.overview.draw());
    this.listen();
    this.showFollow();
  }

  layoutParts() {
    this.maps.layout();
  }

  hover(event) {
    const isOver = event !== null && event.pointerType !== "touch"
      && event.target.matches("canvas.plot");
    this.view.setPointer(isOver ? this.xOf(event) : null);
  }

  // New rows have come.
  advance(now) {
    if (!(now - this.wholeAt < WHOLE_MS)) {
      this.overview.makePicture();
      this.wholeAt = now;
    }
    this.view.advance();
    for (const id of ["previous-mark", "next-mark"])
      document.getElementById(id).disabled = this.run.marks.count === 0;
  }

  showFollow() {
    const { view } = this;
    document.getElementById("follow").disabled = view.isFollowing;
    for (const button of document.querySelectorAll("#windows [data-seconds], #zoom-reset")) {
      const window = 1e6 * button.dataset.seconds || Infinity;
      button.setAttribute("aria-pressed", view.isFollowing && view.window === window);
    }
  }

  follow(window = this.view.window) {
    this.setPaused(false);
    this.view.followWindow(window);
  }

  setPaused(isPaused) {
    const button = document.getElementById("pause");
    this.isPaused = isPaused;
    button.setAttribute("aria-pressed", isPaused);
    button.textContent = isPaused ? "Go on" : "Pause";
  }

  listenButtons() {
    super.listenButtons();
    const pause = document.getElementById("pause");
    pause.addEventListener("click", () => this.setPaused(!this.isPaused));
    document.getElementById("follow").addEventListener("click", () => this.follow());
    for (const button of document.querySelectorAll("#windows [data-seconds]"))
      button.addEventListener("click", () => this.follow(1e6 * button.dataset.seconds));
  }

  keys(event) {
    return { ...super.keys(event), " ": () => this.setPaused(!this.isPaused),
      f: () => this.follow(), 1: () => this.follow(60e6), 2: () => this.follow(300e6),
      3: () => this.follow(900e6) };
  }
}

class Live {
  constructor() {
    this.run = null;  // until the server has said what it watches
    this.page = null; // until there is a step
    this.theme = new Theme();
    this.list = new EventList();
    this.isChanged = false;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.feed = new Feed(this);
    this.sign = new Sign(this);
    this.maps = new LiveMaps(this);
    setInterval(() => this.tick(performance.now()), DRAW_MS);
  }

  // ---- from the feed ----------------------------------------------------------

  // False: there is nothing to be done with what follows.
  hello({ version, meta, columns, steps }) {
    if (version !== 1) throw new Error("version mismatch with the server: reload the page");
    meta = { ...meta, tiers: tiersBehind(meta.tiers) };
    if (this.run && !this.isSameEngine(meta, columns, steps) && !this.startOver(meta)) return false;
    if (!this.run) {
      this.run = new LiveRun(meta);
      this.now = new Now(this.run);
      this.figures = new Figures(this.run, this.now);
    }
    this.run.meta = meta;
    this.run.setColumns(columns);
    showLiveHeader(meta);
    this.isChanged = true;
    return true;
  }

  isSameEngine(meta, columns, steps) {
    if (meta.started !== this.run.meta.started) return false;
    const last = steps.length > 0 ? steps.at(-1)[columns.indexOf("step")] : 0;
    return last >= this.run.lastStep;
  }

  // Charts know how much memory there is: an engine with another amount needs another page.
  startOver(meta) {
    const shape = ({ total_blocks: total, tiers }) => JSON.stringify([total, tiers]);
    if (shape(meta) !== shape(this.run.meta)) {
      location.reload();
      return false;
    }
    this.run.clear();
    this.now.told = null;
    this.list.clear();
    this.maps.forget();
    return true;
  }

  steps(steps) {
    this.run.append(steps);
    this.isChanged = true;
  }

  events(message) {
    const { count, end, origin } = this.run;
    this.list.add(message, count > 0 ? clock(origin + end, 1e5) : "");
  }

  metrics(text) {
    this.now.told = readMetrics(text);
    this.isChanged = true;
  }

  lastStep() {
    return this.run.lastStep;
  }

  // ---- to the screen ----------------------------------------------------------

  tick(now) {
    this.sign.show();
    if (document.hidden) return;
    if (!this.showsSteps() || this.page.isPaused) return;
    if (now - this.drawnAt < (this.calm.matches ? CALM_MS : 0)) return;
    this.maps.tick(now);
    if (!(now - this.listedAt < LIST_MS)) {
      this.list.show();
      this.listedAt = now;
    }
    const mood = `${this.feed.state} ${this.feed.isQuiet}`;
    if (!this.isChanged && mood === this.mood) return;
    this.drawnAt = now;
    this.isChanged = false;
    this.mood = mood;
    this.page.advance(now);
    this.figures.show(this.feed);
    showReceived(this.run);
  }

  // An engine that has made no step, perhaps in the place of one that had, has no charts.
  showsSteps() {
    const has = this.run !== null && this.run.count > 0;
    const content = document.getElementById("content");
    if (content.hidden !== has) return has;
    content.hidden = !has;
    document.getElementById("empty").hidden = has;
    if (has && this.page) this.page.layout();
    else if (has) this.page = new LivePage(this.run, this.theme, this.maps);
    return has;
  }
}

window.quireLive = new Live();
