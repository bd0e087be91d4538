// tiers.js - of a run with tiers: what moved to each and back, where the prompts' tokens came from,
// as charts and as tables.

const SOURCE_COLOURS = ["cached", "hit", "waiting", "prefill"]; // of tier 0, 1, ...

// What a chart sums in a window around each column: single steps would be a fence.
function windowSums(columns, add) {
  const half = Math.round(HIT_WINDOW / columns.size / 2);
  for (let i = 0; i < columns.count; i++) {
    const first = Math.max(0, columns.first[Math.max(0, i - half)]);
    add(i, first, columns.end[Math.min(columns.count - 1, i + half)]);
  }
}

// ---- traffic ----------------------------------------------------------------

const rateText = (bytes) => (bytes > 0 ? `${rough(bytes)}B/s` : "0"); // 1.5GB/s

// Bytes a second; where nothing says how large a block is, blocks.
function trafficChart(run, tier) {
  const { name } = run.meta.tiers[tier];
  const unit = run.meta.bytes_per_block || 1;
  const write = run.meta.bytes_per_block ? rateText : (blocks) => `${short(blocks)}/s`;
  const lines = [{ key: "in", label: "in", colour: "running" },
    { key: "out", label: "out", colour: "prefill" }]
    .map((line) => ({ ...line, series: run.series[`${line.key}.${tier}`] }));
  const timeAt = (row) => (row < run.count ? run.time[row] : run.end);
  const rate = (series, first, end) => {
    const seconds = (timeAt(end) - timeAt(first)) / 1e6;
    return seconds > 0 ? (series.sums[end] - series.sums[first]) * unit / seconds : 0;
  };
  let rates = null; // of the columns last drawn
  return {
    name: `traffic.${tier}`,
    title: `${name} traffic`,
    height: 58,
    legend: lines,
    describe: () => `Blocks that moved to ${name} and back, over time`,
    most(columns) {
      rates = lines.map(() => new Float64Array(columns.count));
      windowSums(columns, (i, first, end) => lines.forEach(({ series }, k) => {
        rates[k][i] = rate(series, first, end);
      }));
      return 1.02 * rates.reduce((most, line) => line.reduce((a, b) => Math.max(a, b), most), unit);
    },
    label: write,
    draw({ ctx, columns, y, theme }) {
      lines.forEach(({ colour }, k) => {
        fillBetween(ctx, columns, 0, rates[k], y, theme[colour], 0.15);
        strokeLine(ctx, columns, rates[k], y, theme[colour]);
      });
    },
    values: (row) => Object.fromEntries(lines.map(({ key, series }) =>
      [key, `${exact(series.sumAt(row))} blocks · ${write(rate(series, row, row + 1))}`])),
  };
}

// ---- where tokens came from -------------------------------------------------

// Shares of what was looked up, one band on the other: GPU, then the tiers; what is left was
// computed.
function sourceChart(run) {
  const sources = [{ key: "gpu", label: "GPU", colour: "active", sums: run.hits },
    ...run.meta.tiers.map(({ name }, i) => ({ key: `tier${i}`, label: name,
      colour: SOURCE_COLOURS[i], sums: run.series[`hits.${i}`].sums }))];
  const between = (sums, first, end) => sums[end] - sums[first];
  return {
    name: "sources",
    title: "Prompt tokens from",
    height: 92,
    isFull: true,
    legend: [...sources, { key: "computed", label: "computed", colour: "empty" }],
    describe: () => "Where prompt tokens came from: GPU, tiers, computed, over time",
    most: () => 1,
    label: (share) => `${Math.round(100 * share)}%`,
    draw({ ctx, columns, y, theme }) {
      const edges = sources.map(() => new Float64Array(columns.count));
      windowSums(columns, (i, first, end) => {
        const queries = between(run.queries, first, end);
        let edge = 0;
        sources.forEach(({ sums }, k) => { // without an admission it is as it was before
          edge += queries > 0 ? between(sums, first, end) / queries : 0;
          edges[k][i] = queries > 0 ? edge : i > 0 ? edges[k][i - 1] : 0;
        });
      });
      fillBetween(ctx, columns, 0, 1, y, theme.empty);
      sources.forEach(({ colour }, k) =>
        fillBetween(ctx, columns, k > 0 ? edges[k - 1] : 0, edges[k], y, theme[colour]));
    },
    values(row) {
      const queries = between(run.queries, row, row + 1);
      const found = sources.map(({ sums }) => between(sums, row, row + 1));
      const write = (tokens) => (queries > 0 ? `${exact(tokens)} · ${percent(tokens / queries)}` : "–");
      const texts = Object.fromEntries(sources.map(({ key }, k) => [key, write(found[k])]));
      texts.computed = write(queries - found.reduce((a, b) => a + b, 0));
      return texts;
    },
  };
}

// Behind the charts of memory; none where there are no tiers.
function tierCharts(run) {
  const { tiers } = run.meta;
  return tiers.length === 0 ? [] : [...tiers.map((_, i) => trafficChart(run, i)), sourceChart(run)];
}

// ---- tables -----------------------------------------------------------------

const TIER_FIGURES = [["blocks", "Blocks", exact], ["cached", "Cached at the end", exact],
  ["mean_cached", "Cached, mean", (n) => exact(Math.round(n))],
  ["mean_active", "Active, mean", (n) => exact(Math.round(n))],
  ["max_active", "Active at most", exact], ["hit_tokens", "Hit tokens", exact],
  ["in_bytes", "In", bytesText], ["out_bytes", "Out", bytesText],
  ["skipped_tokens", "Tokens recomputed (faster than loading)", exact],
  ["late_blocks", "Blocks too late", exact], ["failed_blocks", "Blocks failed", exact],
  ["refused_blocks", "Blocks not admitted", exact]];

// A column for each tier; then where tokens came from, with their shares.
function tierTables({ tiers, hits_by_tier: hits, prompt_tokens: all, tier_time: time }) {
  if (!tiers) return [];
  const rows = TIER_FIGURES.map(([key, name, write]) =>
    [name, `tiers.${key}`, ...tiers.map((tier) => write(tier[key]))]);
  const sources = Object.entries(hits).map(([name, tokens]) =>
    [name === "gpu" || name === "cpu" ? name.toUpperCase() : sentence(name), `hits_by_tier.${name}`,
      exact(tokens), percent(all > 0 ? tokens / all : 0, 2)]);
  return [table("Tiers", rows, ["", ...tiers.map(({ tier }) => tier)]),
    table("Prompt tokens from", sources, ["", "tokens", "share"]),
    table("Time saved", otherRows(time, "", []))];
}
