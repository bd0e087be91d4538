// live_figures.js - the strip of figures: what is now, and of the last minute.

const MINUTE_US = 60e6;
const RATE_US = 10e6; // speeds are those of this last stretch

// Totals since the engine began, which may be long before this page: the server's own, at a step
// that this page has, and what came after it.
class Totals {
  constructor(run) {
    this.run = run;
    this.base = null; // {step, ...}
  }

  // The page's own rows tell all when it has seen every step.
  get isNeeded() {
    return this.run.count > 0 && (this.run.step[0] > 1 || this.run.missed > 0);
  }

  // From the text of /metrics.
  read(text) {
    const value = (name) => {
      const found = new RegExp(`^${name}(?:\\{[^}]*\\})? ([0-9.e+]+)`, "m").exec(text);
      return found ? +found[1] : NaN;
    };
    this.base = { step: value("quire_steps_total"), preempted: value("quire_preemptions_total"),
      queries: value("quire_prefix_cache_queries_total"),
      hits: value("quire_prefix_cache_hits_total") };
  }

  // Sum of a column since the engine's start; NaN: not known.
  get(name) {
    const { run, base } = this;
    const sum = run[name];
    if (run.count === 0) return NaN;
    if (!this.isNeeded) return sum[run.count];
    const row = base ? lastAtMost(run.step, base.step) : -1;
    return row < 0 ? NaN : base[name] + sum[run.count] - sum[row + 1];
  }
}

class Figures {
  constructor(run, totals) {
    this.run = run;
    this.totals = totals;
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

  // isQuiet: no steps are made, so that nothing has a speed
  show(isQuiet) {
    const { run } = this;
    const last = run.count - 1;
    if (last < 0) return;
    this.showState(last);
    this.showHits(last);
    this.showSpeeds(last, isQuiet);
  }

  showState(last) {
    const { run } = this;
    const { running, waiting, skipped, active, cached } = run.series;
    const seqs = run.meta.max_num_seqs;
    this.set("running", exact(running.max[last]), seqs ? `of ${exact(seqs)}` : "");
    this.set("waiting", exact(waiting.max[last]), `${exact(skipped.max[last])} held up`);
    const total = Math.max(1, run.meta.total_blocks);
    this.set("memory", percent(active.max[last] / total),
      `${percent(cached.max[last] / total)} cached`);
  }

  showHits(last) {
    const { run, totals } = this;
    const first = lastAtMost(run.time, run.end - MINUTE_US) + 1;
    const near = rateBetween(run, first, last + 1);
    const queries = run.queries[last + 1] - run.queries[first];
    this.set("hit_minute", Number.isNaN(near) ? "–" : percent(near),
      queries > 0 ? `of ${rough(queries)} tokens` : "nothing admitted");
    const [all, found] = [totals.get("queries"), totals.get("hits")];
    if (all > 0) this.set("hit_total", percent(found / all), `of ${rough(all)} tokens`);
    else if (all === 0) this.set("hit_total", "–", "nothing admitted");
    else this.set("hit_total", percent(rateBetween(run, 0, last + 1) || 0), "as far as seen");
    const preempted = totals.get("preempted");
    const recent = run.preempted[last + 1] - run.preempted[first];
    this.set("preemptions", exact(Number.isNaN(preempted) ? run.preempted[last + 1] : preempted),
      `${exact(recent)} in the last minute`);
  }

  // Steps by their numbers, tokens by the mean: some of either may not have been received.
  showSpeeds(last, isQuiet) {
    const { run } = this;
    const first = Math.max(0, lastAtMost(run.time, run.end - RATE_US));
    const time = (run.time[last] - run.time[first]) / 1e6;
    if (isQuiet || time <= 0) {
      this.set("steps", "0", "");
      this.set("tokens", "0", "");
      return;
    }
    const steps = (run.step[last] - run.step[first]) / time;
    const speed = (series) => rough(steps * series.mean(first + 1, last + 1));
    this.set("steps", rough(steps), `${shortTime(1e6 / steps)} each`);
    this.set("tokens", speed(run.series.tokens), `${speed(run.series.prefill)} of them prefill`);
  }
}
