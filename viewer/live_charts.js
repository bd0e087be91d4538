// live_charts.js - charts that only the live page has, and those of both in its order.

// A scale for nearly all: one step that the system held up must not flatten the others.
function mostOfNearly(sampled, least) {
  const sorted = sampled.high.slice().sort();
  const most = sorted[Math.floor(0.98 * (sorted.length - 1))];
  return Math.max(least, Math.min(sorted.at(-1), 1.5 * most)) * 1.02;
}

// What the scheduler itself took: the step's own schedule, and the update before it.
function workChart(run) {
  const { schedule, update, work } = run.series;
  const microseconds = (us) => (us < 10 ? `${us.toFixed(1)}${THIN}µs` : duration(us));
  const write = (series, row) => {
    const [low, high] = [series.min[row], series.max[row]];
    const mean = microseconds(series.mean(row, row + 1));
    return low === high ? mean : `${mean} (${microseconds(low)} to ${microseconds(high)})`;
  };
  let all = null; // of the columns last drawn
  return {
    name: "work",
    title: "Scheduler time",
    legend: [{ key: "schedule", label: "schedule", colour: "time" },
      { key: "update", label: "update", colour: "accent" },
      { key: "most", label: "highest in view" }],
    describe: () => "What schedule and update took in a step, over time",
    most(columns) {
      all = sample(work, columns);
      return mostOfNearly(all, 10);
    },
    label: shortTime,
    draw({ ctx, columns, y, theme }) {
      const lower = sample(schedule, columns);
      fillBetween(ctx, columns, all.mean, all.high, y, theme.accent, 0.25);
      fillBetween(ctx, columns, lower.mean, all.mean, y, theme.accent, 0.85);
      fillBetween(ctx, columns, 0, lower.mean, y, theme.time);
    },
    values: (row) => ({ schedule: write(schedule, row), update: write(update, row),
      most: all ? microseconds(Math.max(...all.high)) : "" }),
  };
}

// Blocks that moved to a tier and back, and tokens found in it: sums since the engine's start, drawn
// as rates of a second.
function tierMovesChart(run, tier) {
  const { name } = run.meta.tiers[tier];
  const lines = [{ key: "stored", label: "stored", colour: "running" },
    { key: "loaded", label: "loaded", colour: "prefill" }]
    .map((line) => ({ ...line, series: run.series[`${line.key}.${tier}`] }));
  const [hits, failed] = ["hit_tokens", "failed"].map((key) => run.series[`${key}.${tier}`]);
  const rate = (series, first, end) => {
    const seconds = (run.time[end] - run.time[first]) / 1e6;
    return seconds > 0 ? Math.max(0, series.max[end] - series.max[first]) / seconds : 0;
  };
  let rates = null; // of the columns last drawn
  return {
    name: `moves.${tier}`,
    title: `${name}, blocks a second`,
    legend: [...lines, { key: "hits", label: "hit tokens" }, { key: "failed", label: "failed" }],
    describe: () => `Blocks stored to ${name} and loaded from it, over time`,
    most(columns) {
      const half = Math.round(HIT_WINDOW / columns.size / 2);
      rates = lines.map(() => new Float64Array(columns.count));
      for (let i = 0; i < columns.count; i++) {
        const first = Math.max(0, columns.first[Math.max(0, i - half)]);
        const end = columns.end[Math.min(columns.count - 1, i + half)] - 1;
        lines.forEach(({ series }, k) => { rates[k][i] = end > first ? rate(series, first, end) : 0; });
      }
      return 1.02 * rates.reduce((most, line) => line.reduce((a, b) => Math.max(a, b), most), 1);
    },
    label: short,
    draw({ ctx, columns, y, theme }) {
      lines.forEach(({ colour }, k) => {
        fillBetween(ctx, columns, 0, rates[k], y, theme[colour], 0.15);
        strokeLine(ctx, columns, rates[k], y, theme[colour]);
      });
    },
    values: (row) => ({ ...Object.fromEntries(lines.map(({ key, series }) =>
      [key, `${exact(series.max[row])} since start`])),
      hits: exact(hits.max[row]), failed: exact(failed.max[row]) }),
  };
}

function tierMoveCharts(run) {
  return run.meta.tiers.flatMap(({ isSwap }, i) => (isSwap ? [] : [tierMovesChart(run, i)]));
}

// Pale where the steps after a row were not received: nobody knows what held there.
function paleGaps(run, { ctx, columns, height, view, theme }) {
  if (run.missed === 0) return;
  ctx.fillStyle = theme.paper;
  ctx.globalAlpha = 0.8;
  for (let i = 0; i < columns.count; i++) {
    const row = columns.end[i] - 1;
    const isHeld = row >= 0 && run.time[row] < view.timeOf(columns.x(i)) && row + 1 < run.count;
    if (isHeld && run.lost[row + 2] > run.lost[row + 1])
      ctx.fillRect(columns.x(i), 0, columns.size, height);
  }
  ctx.globalAlpha = 1;
}

// Lower than in a report, so that all are on one screen.
const LIVE_HEIGHTS = { memory: 140, queue: 82, hits: 66, tokens: 82, work: 60, preemptions: 20 };

function liveCharts(run) {
  const specs = [...memoryCharts(run), ...tierMoveCharts(run), queueChart(run), hitChart(run), tokensChart(run),
    workChart(run), preemptionChart(run)];
  return specs.map((spec) => ({ ...spec, height: LIVE_HEIGHTS[spec.name] || 58,
    draw(all) {
      spec.draw(all);
      paleGaps(run, all);
    } }));
}
