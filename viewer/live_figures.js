// live_figures.js - the strip of figures: what is now, and of the last minute.

const MINUTE_US = 60e6;
const RATE_US = 10e6; // speeds are those of this last stretch

// The server's own numbers, from the text of /metrics: totals since the engine began, which may be
// long before this page, and what is now, which steps do not tell when none is made.
function readMetrics(text) {
  const value = (name, labels = "") => {
    const found = new RegExp(`^${name}(?:\\{.*${labels}.*\\})? (\\S+)$`, "m").exec(text);
    return found ? +found[1] : NaN;
  };
  const waiting = (reason) => value("quire_requests_waiting_by_reason", `reason="${reason}"`);
  const blocks = (state) => value("quire_blocks", `tier="gpu",medium="GPU",state="${state}"`);
  return { step: value("quire_steps_total"), preempted: value("quire_preemptions_total"),
    queries: value("quire_prefix_cache_queries_total"),
    hits: value("quire_prefix_cache_hits_total"), running: value("quire_requests_running"),
    waiting: waiting("capacity"), skipped: waiting("deferred"), active: blocks("active"),
    cached: blocks("cached") };
}

// What a run is now: as its last step says, unless the server was asked after that.
class Now {
  constructor(run) {
    this.run = run;
    this.told = null; // by the server, see readMetrics
  }

  // isQuiet: no step is made
  get(name, isQuiet) {
    const { run, told } = this;
    const isNewer = isQuiet && told && told.step >= run.lastStep;
    return isNewer && !Number.isNaN(told[name]) ? told[name] : run.series[name].max[run.count - 1];
  }

  get isBusy() {
    return ["running", "waiting", "skipped"].some((name) => this.get(name, true) > 0);
  }

  // Those that the server has counted, and what came since.
  get preempted() {
    const { run: { preempted, step, count }, told } = this;
    if (!told || Number.isNaN(told.preempted)) return preempted[count];
    const row = lastAtMost(step, told.step);
    return told.preempted + (row < 0 ? 0 : preempted[count] - preempted[row + 1]);
  }

  // Since the engine began: tokens that were looked up, and those of them that were found.
  get lookups() {
    const { run: { queries, hits, count }, told } = this;
    if (!told || Number.isNaN(told.queries)) return [queries[count], hits[count]];
    return [told.queries, told.hits];
  }
}

class Figures {
  constructor(run, now) {
    this.run = run;
    this.now = now;
    this.host = document.getElementById("tiles");
    this.places = {};
    for (const [key, label] of [["running", "Running"], ["waiting", "Waiting"],
      ["memory", "Memory in use"], ["hit_minute", "Hit rate, last minute"],
      ["hit_total", "Hit rate, since start"], ["preemptions", "Preemptions"],
      ["steps", "Steps a second"], ["tokens", "Tokens a second"]]) {
      const made = tile(label, "–", "", key);
      this.places[key] = made.querySelectorAll("dd");
      this.host.append(made);
    }
  }

  set(key, value, note = "") {
    const [big, small] = this.places[key];
    if (big.textContent !== value) big.textContent = value;
    if (small.textContent !== note) small.textContent = note;
  }

  show({ isQuiet, state }) {
    const last = this.run.count - 1;
    this.showState(isQuiet);
    this.showHits(last);
    if (isQuiet) ["steps", "tokens"].forEach((key) => this.set(key, state === "live" ? "0" : "–"));
    else this.showSpeeds(last);
  }

  showState(isQuiet) {
    const { run, now } = this;
    const get = (name) => now.get(name, isQuiet);
    const seqs = run.meta.max_num_seqs;
    this.set("running", exact(get("running")), seqs ? `of ${exact(seqs)}` : "");
    this.set("waiting", exact(get("waiting")), `${exact(get("skipped"))} held up`);
    const total = Math.max(1, run.meta.total_blocks);
    this.set("memory", percent(get("active") / total), `${percent(get("cached") / total)} cached`);
  }

  showHits(last) {
    const { run, now } = this;
    const first = lastAtMost(run.time, run.end - MINUTE_US) + 1;
    const rate = rateBetween(run, first, last + 1);
    const queries = run.queries[last + 1] - run.queries[first];
    this.set("hit_minute", Number.isNaN(rate) ? "–" : percent(rate),
      queries > 0 ? `of ${rough(queries)} tokens` : "nothing admitted");
    const [all, found] = now.lookups;
    this.set("hit_total", all > 0 ? percent(found / all) : "–",
      all > 0 ? `of ${rough(all)} tokens` : "nothing looked up");
    const recent = run.preempted[last + 1] - run.preempted[first];
    this.set("preemptions", exact(now.preempted), `${exact(recent)} in the last minute`);
  }

  // Steps by their numbers, tokens by the mean: some of either may not have been received.
  showSpeeds(last) {
    const { run } = this;
    const first = Math.max(0, lastAtMost(run.time, run.end - RATE_US));
    const time = (run.time[last] - run.time[first]) / 1e6;
    if (time <= 0) return;
    const steps = (run.step[last] - run.step[first]) / time;
    const speed = (series) => rough(steps * series.mean(first + 1, last + 1));
    this.set("steps", rough(steps), `${shortTime(1e6 / steps)} each`);
    this.set("tokens", speed(run.series.tokens), `${speed(run.series.prefill)} of them prefill`);
  }
}
