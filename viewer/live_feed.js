// live_feed.js - what the server sends, and what becomes of the connection.
//
//      connecting ──hello──► live ──error, or no answer──► lost ──wait──► connecting
//
// Each try is a new EventSource, so that a server that was started again tells its steps from the
// first one on. Steps that a hello leaves out are asked for.

const WAITS_S = [1, 2, 4, 8];
const QUIET_MS = 2000;  // without a step: looks whether the server is there
const ASK_MS = 5000;    // between two looks at its metrics
const ANSWER_MS = 5000; // the time it has to answer
const SNAPSHOT_STEPS = 1000;

class Feed {
  // listener: hello(message) -> whether to go on, steps(rows), events(message), metrics(text),
  // lastStep()
  constructor(listener) {
    this.listener = listener;
    this.state = "connecting";
    this.detail = "";
    this.tries = 0;
    this.token = new URLSearchParams(location.search).get("token");
    this.lastStepAt = performance.now();
    this.askedAt = -Infinity; // when a question was sent that was answered, or may be
    setInterval(() => this.tick(), 500);
    addEventListener("online", () => this.retry());
    this.open();
  }

  url(path, query = {}) {
    const url = new URL(path, location.href);
    url.search = "";
    if (this.token !== null) url.searchParams.set("token", this.token);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return url;
  }

  fetch(path, query) {
    const signal = AbortSignal.timeout(ANSWER_MS);
    return fetch(this.url(path, query), { signal, cache: "no-store" });
  }

  // ---- the stream -------------------------------------------------------------

  open() {
    this.state = "connecting";
    const source = new EventSource(this.url("events"));
    this.source = source;
    this.held = null; // what is to be done when older steps are there
    this.openedAt = performance.now();
    const on = (name, act) => source.addEventListener(name, (event) => {
      if (this.source === source) this.read(event, act);
    });
    on("hello", (message) => this.hello(source, message));
    on("steps", (message) => this.inOrder(() => this.steps(message)));
    on("kv", (message) => this.inOrder(() => this.listener.events(message)));
    source.onerror = () => {
      if (this.source === source) this.lose();
    };
  }

  read(event, act) {
    try {
      act(JSON.parse(event.data));
    } catch (error) {
      this.source.close();
      this.state = "broken";
      this.detail = error.message;
    }
  }

  hello(source, message) {
    if (!this.listener.hello(message)) {
      source.close();
      return;
    }
    this.state = "live";
    this.tries = 0;
    this.lastStepAt = performance.now();
    this.askedAt = -Infinity;
    this.held = [];
    this.begin(source, message);
  }

  // First what is older, then what the hello has, then what came meanwhile.
  async begin(source, message) {
    const place = message.columns.indexOf("step");
    await this.fill(source, place, message.steps.length > 0 ? message.steps[0][place] : 0);
    if (this.source !== source) return;
    const held = this.held;
    this.held = null;
    this.steps(message);
    held.forEach((act) => act());
  }

  inOrder(act) {
    if (this.held) this.held.push(act);
    else act();
  }

  // Steps before `until`, oldest first, as far back as the server has them.
  async fill(source, place, until) {
    let after = this.listener.lastStep();
    while (after + 1 < until && this.source === source) {
      try {
        const answer = await this.fetch("snapshot", { after, limit: SNAPSHOT_STEPS });
        const older = (await answer.json()).steps.filter((step) => step[place] < until);
        if (older.length === 0 || this.source !== source) return;
        this.listener.steps(older);
        after = older.at(-1)[place];
      } catch {
        return; // then there is a gap, which is counted
      }
    }
  }

  steps(message) {
    if (message.steps.length > 0) this.lastStepAt = performance.now();
    this.listener.steps(message.steps);
  }

  // ---- lost, and found again --------------------------------------------------

  async lose() {
    this.source.close();
    this.source = null;
    this.state = "lost";
    const wait = WAITS_S[Math.min(this.tries++, WAITS_S.length - 1)];
    this.retryAt = performance.now() + 1000 * wait;
    this.detail = "";
    try {
      const answer = await this.fetch("healthz");
      const reasons = { 401: "invalid token", 403: "invalid token",
        421: "host name not allowed" };
      if (this.state === "lost") this.detail = reasons[answer.status] || "the server is busy";
    } catch { /* no answer: that is what "lost" says */ }
  }

  retry() {
    if (this.state === "lost") this.open();
  }

  get retrySeconds() {
    return Math.max(0, Math.ceil((this.retryAt - performance.now()) / 1000));
  }

  get quietMs() {
    return performance.now() - this.lastStepAt;
  }

  get isQuiet() {
    return this.quietMs > QUIET_MS;
  }

  tick() {
    const now = performance.now();
    if (this.state === "lost" && now >= this.retryAt) this.open();
    if (this.state === "connecting" && now - this.openedAt > 2 * ANSWER_MS) this.lose();
    // When it becomes quiet at once, for what is now; else every now and then.
    const isDue = now - this.askedAt > ASK_MS || (this.isQuiet && this.askedAt < this.lastStepAt);
    if (this.state === "live" && isDue && (!document.hidden || this.isQuiet)) this.ask(now);
  }

  // A connection may be gone without a sign, so that silence alone proves nothing.
  async ask(now) {
    const source = this.source;
    this.askedAt = now;
    try {
      const text = await (await this.fetch("metrics")).text();
      if (this.source === source) this.listener.metrics(text);
    } catch {
      if (this.source === source) this.lose();
    }
  }
}
