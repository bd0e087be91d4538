// fleet_failures.js - crashes of workers and what followed, over time: marks in all charts, and charts of the
// time to first token and of the workers that are ready.

const MARKED_CRASHES = 40; // with more, only the crashes are marked, not the recoveries

// What happened when: {us, kind: "crash" | "resumed" | "back", worker}; and times in which a worker was off.
class FleetMarks {
  constructor(fleet, endUs) {
    const crashes = fleet.failures ? fleet.failures.crashes : [];
    this.lines = [];
    this.off = [];
    for (const crash of crashes) {
      const us = crash.at_s * US;
      const after = (key, kind) => {
        if (crash[key] !== null && crashes.length <= MARKED_CRASHES)
          this.lines.push({ us: us + crash[key] * US, kind, worker: crash.worker });
      };
      this.lines.push({ us, kind: "crash", worker: crash.worker });
      after("resumed_after_s", "resumed");
      after("ttft_back_after_s", "back");
      this.off.push({ worker: crash.worker, from: us, to: crash.ready_s === null ? endUs : crash.ready_s * US });
    }
  }

  draw(ctx, axis, height) {
    const dashes = { crash: [], resumed: [5, 3], back: [1.5, 2.5] };
    ctx.strokeStyle = cssColour("wrong");
    ctx.lineWidth = 1.25;
    for (const { us, kind } of this.lines) {
      if (us > axis.to) continue;
      const x = axis.xOf(us);
      ctx.setLineDash(dashes[kind]);
      ctx.beginPath();
      ctx.moveTo(x, 0);
      ctx.lineTo(x, height);
      ctx.stroke();
    }
    ctx.setLineDash([]);
  }

  // In a map with a row for each worker: the time in which it was off.
  drawOff(ctx, axis, height, numWorkers) {
    const row = height / numWorkers;
    ctx.fillStyle = cssColour("wrong");
    for (const { worker, from, to } of this.off) {
      const x = axis.xOf(from);
      const width = Math.max(2, axis.xOf(Math.min(to, axis.to)) - x);
      ctx.fillRect(x, (worker + 0.35) * row, width, Math.max(1.5, row * 0.3));
    }
  }
}

// Values of each second as sums of the bins: each second counts by its part in the bin.
function overSeconds(axis, values, weights) {
  const parts = new Array(axis.count).fill(0);
  const alls = new Array(axis.count).fill(0);
  values.forEach((value, second) => {
    if (value === null) return;
    const first = Math.floor(second * US / axis.binUs);
    for (let bin = first; bin < axis.count && axis.begin(bin) < (second + 1) * US; bin++) {
      const both = Math.min(axis.end(bin), (second + 1) * US) - Math.max(axis.begin(bin), second * US);
      if (both <= 0) continue;
      parts[bin] += value * weights[second] * both;
      alls[bin] += weights[second] * both;
    }
  });
  return new Ratio(parts, alls);
}

function firstTokenChart(seconds, hasCrashes, axis) {
  const spec = { name: "ttft", title: "Time to first token", height: 96, label: (x) => shortTime(x * 1000), text: ms, series: [
    { key: "ttft", label: "mean", colour: "waiting", ratio: overSeconds(axis, seconds.ttft_ms, seconds.first_tokens) }] };
  if (hasCrashes)
    spec.note = "Line: a worker crashes; a bar in the maps: it is off. Dashes: all of its requests have a token again. " +
      "Dots: the time to first token is back.";
  return spec;
}

function readyChart(seconds, axis) {
  const ones = seconds.ready.map(() => 1);
  return { name: "ready", title: "Workers that are ready", height: 64, label: short, text: (x) => exact(x, 1), isFine: true,
    isStacked: true, series: [
      { key: "ready", label: "ready", colour: "running", ratio: overSeconds(axis, seconds.ready, ones) },
      { key: "starting", label: "starting", colour: "waiting", ratio: overSeconds(axis, seconds.starting, ones) },
      { key: "draining", label: "draining", colour: "empty", ratio: overSeconds(axis, seconds.draining, ones) }] };
}

function crashTable(crashes) {
  const since = (value) => (value === null ? "not in this run" : duration(value * US));
  const rows = crashes.slice(0, LISTED).map((crash, i) => [`worker ${crash.worker}`, `crash.${i}`, duration(crash.at_s * US),
    crash.ready_s === null ? "never" : duration(crash.ready_s * US), exact(crash.interrupted), exact(crash.queued),
    exact(crash.lost_tokens), since(crash.resumed_after_s), since(crash.ttft_back_after_s)]);
  const made = table("Crashes", rows, ["", "at", "ready again", "interrupted", "queued", "tokens lost",
    "all had a token again after", "TTFT back after"]);
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of the crashes" }, made);
}
