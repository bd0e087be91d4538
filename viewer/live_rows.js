// live_rows.js - the steps of a running scheduler, as rows that grow at the end.
//
//      [  64 steps  ][ 32 ][ 16 ][ 8 ][4][2][1][1][1][1][1]   now
//
// A page may stay open for a week, so rows are merged when there are too many: a row holds at
// most one part in DETAIL of the steps that came after it. Any stretch that ends now is therefore
// finer than its pixels, however long it is.

const MAX_ROWS = 49152; // some 27 MB
const DETAIL = 2048;

// A series whose rows come one by one. What is not there yet is neutral: it widens no range.
class GrowingSeries extends Series {
  constructor(points) {
    super([], [], [], points);
  }

  grow(capacity, points) {
    const { min, max, sums } = this;
    this.points = points;
    this.min = new Float64Array(capacity).fill(Infinity);
    this.max = new Float64Array(capacity).fill(-Infinity);
    this.sums = new Float64Array(capacity + 1);
    this.min.set(min);
    this.max.set(max);
    this.sums.set(sums);
    this.raise();
  }

  raise() {
    this.levels = [this];
    for (let below = this; below.min.length > FAN; below = this.levels.at(-1))
      this.levels.push(levelAbove(below.min, below.max));
  }

  put(row, value) {
    this.sums[row + 1] = this.sums[row] + value;
    for (const { min, max } of this.levels) {
      if (value < min[row]) min[row] = value;
      if (value > max[row]) max[row] = value;
      row = Math.floor(row / FAN);
    }
  }

  // Row i becomes rows firsts[i] up to firsts[i + 1].
  merge(firsts) {
    const { min, max } = this;
    const count = firsts.length - 1;
    const range = {};
    for (let i = 0; i < count; i++) {
      this.range(firsts[i], firsts[i + 1], range);
      [min[i], max[i]] = [range.low, range.high];
    }
    keepAt(this.sums, firsts);
    min.fill(Infinity, count);
    max.fill(-Infinity, count);
    this.raise();
  }

  clear() {
    this.min.fill(Infinity);
    this.max.fill(-Infinity);
    this.raise();
  }
}

function keepAt(column, places) {
  for (let i = 0; i < places.length; i++) column[i] = column[places[i]];
}

function grownCopy(column, length) {
  const made = new Float64Array(length);
  made.set(column);
  return made;
}

// Series that a row has as they come, by the name of their column.
const SERIES_COLUMNS = { running: "running", waiting: "waiting", skipped: "skipped",
  tokens: "tokens", prefill: "prefill_tokens", active: "active", cached: "cached", empty: "empty",
  schedule: "schedule_us", update: "update_us" };

// Sums from the first row on.
const SUM_COLUMNS = { queries: "query_tokens", hits: "hit_tokens", externals: "external_tokens",
  preempted: "preempted", finished: "finished" };

// lost: steps that were not received, before a row or in it.
const SUMS = ["points", "lost", ...Object.keys(SUM_COLUMNS)];

// The tiers behind the GPU, as charts want them: without the null block, and without what is now.
function tiersBehind(tiers) {
  return tiers.filter(({ name }) => name !== "gpu").map(({ name, medium, total, null: none = 0 }) =>
    ({ name, medium, total: total - none, isSwap: name === "swap" }));
}

// What a tier has in a step, beside active, cached and empty: sums from the engine's start on.
const TIER_SUMS = ["stored", "loaded", "hit_tokens", "failed"];

class LiveRun {
  constructor(meta, maxRows = MAX_ROWS) {
    this.maxRows = maxRows;
    this.meta = meta;
    this.series = {};
    this.marks = {};
    this.rows = { time: [], step: [], markTime: [], markStep: [] };
    for (const name of SUMS) this[name] = [0];
    const tiers = meta.tiers.flatMap((_, i) =>
      ["active", "cached", "empty", "used", "pinned", ...TIER_SUMS].map((name) => `${name}.${i}`));
    for (const name of [...Object.keys(SERIES_COLUMNS), "decode", "used", "work", "pinned", ...tiers])
      this.series[name] = new GrowingSeries(this.points);
    this.capacity = 0;
    this.clear();
  }

  // Another engine: nothing of what was holds.
  clear() {
    this.count = 0;
    this.marks.count = 0;
    this.marks.num = this.marks.num || [0];
    this.origin = 0; // us of the scheduler's clock, of the first row
    this.received = 0;
    Object.values(this.series).forEach((series) => series.clear());
    this.publish();
  }

  get missed() {
    return this.lost[this.count];
  }

  get lastStep() {
    return this.count > 0 ? this.rows.step[this.count - 1] : 0;
  }

  // Columns by name: a server may have more of them, in another order.
  setColumns(names) {
    this.place = Object.fromEntries(names.map((name, i) => [name, i]));
    const wanted = ["step", "time_us", ...Object.values(SERIES_COLUMNS),
      ...Object.values(SUM_COLUMNS)];
    const absent = wanted.filter((name) => !(name in this.place));
    if (absent.length > 0) throw new Error(`the steps lack the columns ${absent.join(", ")}`);
  }

  // Those that are new; what came before is told again after a lost connection.
  append(steps) {
    for (const step of steps)
      if (step[this.place.step] > this.lastStep) this.appendOne(step);
    this.publish();
  }

  appendOne(values) {
    if (this.count === this.capacity) this.makeRoom();
    const { place, rows, count } = this;
    const step = values[place.step];
    if (count === 0) this.origin = values[place.time_us];
    const lost = count > 0 ? step - this.lastStep - 1 : 0; // the last row is never a merged one
    const time = values[place.time_us] - this.origin;
    rows.time[count] = count > 0 ? Math.max(time, rows.time[count - 1]) : 0;
    rows.step[count] = step;
    this.points[count + 1] = this.points[count] + 1;
    this.lost[count + 1] = this.lost[count] + lost;
    for (const [name, column] of Object.entries(SUM_COLUMNS))
      this[name][count + 1] = this[name][count] + values[place[column]];
    this.putSeries(count, (name) => values[place[name]]);
    this.count++;
    this.received++;
    if (values[place.preempted] > 0) this.mark(count);
  }

  putSeries(row, get) {
    const { series, meta } = this;
    for (const [name, column] of Object.entries(SERIES_COLUMNS)) series[name].put(row, get(column));
    series.decode.put(row, get("tokens") - get("prefill_tokens"));
    series.used.put(row, meta.total_blocks - get("empty"));
    series.work.put(row, get("schedule_us") + get("update_us"));
    series.pinned.put(row, get("pinned") ?? 0);
    meta.tiers.forEach((tier, i) => this.putTier(row, i, tier, get));
  }

  // A tier has columns of its own; the swap buffer, which only has slots in use, has one.
  putTier(row, i, { name, total, isSwap }, get) {
    const { series } = this;
    const of = (column) => get(`${name}_${column}`) ?? 0;
    const active = isSwap ? get("swap_slots") : of("active");
    const cached = of("cached");
    series[`active.${i}`].put(row, active);
    series[`cached.${i}`].put(row, cached);
    series[`used.${i}`].put(row, active + cached);
    series[`empty.${i}`].put(row, isSwap ? total - active : of("empty"));
    series[`pinned.${i}`].put(row, of("pinned"));
    for (const column of TIER_SUMS) series[`${column}.${i}`].put(row, of(column));
  }

  mark(row) {
    const { marks, rows } = this;
    const at = marks.count++;
    rows.markTime[at] = rows.time[row];
    rows.markStep[at] = rows.step[row];
    marks.num[at + 1] = marks.num[at] + this.preempted[row + 1] - this.preempted[row];
  }

  // As others see it: as long as there are rows.
  publish() {
    const { rows, count, marks } = this;
    const upTo = (column, end) => (column.subarray ? column.subarray(0, end) : []);
    this.time = upTo(rows.time, count);
    this.step = upTo(rows.step, count);
    marks.time = upTo(rows.markTime, marks.count);
    marks.step = upTo(rows.markStep, marks.count);
    this.end = Math.max(1, count > 0 ? this.time[count - 1] : 0);
  }

  // ---- room -------------------------------------------------------------------

  makeRoom() {
    if (this.capacity < this.maxRows) {
      this.grow(Math.min(this.maxRows, Math.max(1024, 2 * this.capacity)));
      return;
    }
    let detail = DETAIL;
    do this.merge(detail);
    while (this.count > 0.75 * this.maxRows && (detail *= 0.75));
  }

  grow(capacity) {
    const { rows, marks } = this;
    this.capacity = capacity;
    for (const name of Object.keys(rows)) rows[name] = grownCopy(rows[name], capacity);
    for (const name of SUMS) this[name] = grownCopy(this[name], capacity + 1);
    marks.num = grownCopy(marks.num, capacity + 1);
    Object.values(this.series).forEach((series) => series.grow(capacity, this.points));
  }

  // Where the rows begin that are left, and where the last one ends.
  mergedFirsts(detail) {
    const { points, count } = this;
    const firsts = [count];
    for (let end = count; end > 0; end = firsts.at(-1)) {
      const newer = points[count] - points[end];
      let first = end - 1;
      while (first > 0 && (points[end] - points[first - 1]) * detail <= newer) first--;
      firsts.push(first);
    }
    return firsts.reverse();
  }

  merge(detail) {
    const firsts = this.mergedFirsts(detail);
    const { rows } = this;
    Object.values(this.series).forEach((series) => series.merge(firsts));
    for (const name of SUMS) keepAt(this[name], firsts);
    keepAt(rows.time, firsts.slice(0, -1));
    keepAt(rows.step, firsts.slice(0, -1));
    this.count = firsts.length - 1;
    this.marks.count = 0;
    for (let row = 0; row < this.count; row++)
      if (this.preempted[row + 1] > this.preempted[row]) this.mark(row);
  }
}
