// live_sign.js - the heading of the live page, and the sign that says whether it is live: by
// word, shape and colour.

const STALLED_MS = 5000; // without a step while requests run or wait

const SIGNS = { connecting: "Connecting", live: "Live", paused: "Paused", stalled: "Stalled",
  lost: "Lost", broken: "Not readable" };

class Sign {
  constructor(live) {
    this.live = live;
    this.place = document.getElementById("sign");
    this.state = document.getElementById("state");
    this.detail = document.getElementById("detail");
    this.empty = document.getElementById("empty");
  }

  show() {
    const [state, detail] = this.judge();
    const set = (place, text) => {
      if (place.textContent !== text) place.textContent = text;
    };
    if (this.place.dataset.state !== state) {
      this.place.dataset.state = state;
      document.documentElement.dataset.feed = state;
    }
    set(this.state, SIGNS[state]);
    set(this.detail, detail);
    this.showTitle(state);
    if (!this.empty.hidden) set(this.empty, this.excuse(state, detail));
  }

  showTitle(state) {
    const name = document.getElementById("title").textContent;
    const isFine = state === "live" || state === "connecting";
    const title = isFine ? `${name} · live` : `${SIGNS[state]} · ${name}`;
    if (document.title !== title) document.title = title;
  }

  // State and what there is to say of it.
  judge() {
    const { feed, page } = this.live;
    if (feed.state === "broken") return ["broken", feed.detail];
    if (feed.state === "lost" || (feed.state === "connecting" && feed.tries > 0)) {
      const seconds = feed.state === "lost" ? feed.retrySeconds : 0;
      const when = seconds > 0 ? `again in ${seconds}${THIN}s` : "trying again";
      return ["lost", feed.detail ? `${feed.detail} · ${when}` : when];
    }
    if (feed.state === "connecting") return ["connecting", ""];
    if (page && page.isPaused) return ["paused", "still receiving"];
    return this.judgeSteps();
  }

  judgeSteps() {
    const { feed, run, now } = this.live;
    if (run.count === 0) return ["live", "no step yet"];
    const seconds = Math.floor(feed.quietMs / 1000);
    const since = seconds < 60 ? `${seconds}${THIN}s` : duration(1e6 * seconds);
    if (now.isBusy && feed.quietMs > STALLED_MS) return ["stalled", `no step for ${since}`];
    return ["live", feed.isQuiet && !now.isBusy ? `idle for ${since}` : ""];
  }

  // Instead of the charts, as long as there are none.
  excuse(state, detail) {
    if (state === "live") return "The scheduler has made no step yet.";
    if (state === "lost") return `The server cannot be reached: ${detail}.`;
    return state === "connecting" ? "Connecting to the server." : `${SIGNS[state]}: ${detail}.`;
  }
}

function showLiveHeader(meta) {
  document.getElementById("title").textContent = meta.title || meta.model || "Quire";
  const of = meta.block_size ? ` of ${exact(meta.block_size)} tokens` : "";
  const facts = [meta.title && meta.model, meta.gpu, meta.engine && `engine ${meta.engine}`,
    `${exact(meta.total_blocks)} blocks${of}`,
    meta.max_num_seqs && `at most ${exact(meta.max_num_seqs)} requests at once`];
  document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
}

// What the charts are made of.
function showReceived(run) {
  const facts = [`Quire ${run.meta.version}`, `${exact(run.received)} steps received`];
  if (run.missed > 0) facts.push(`${exact(run.missed)} made faster than they could be sent`);
  if (run.count < run.received) facts.push(`the older ones merged into ${exact(run.count)} rows`);
  const text = facts.join(" · ");
  const place = document.getElementById("made-by");
  if (place.textContent !== text) place.textContent = text;
}
