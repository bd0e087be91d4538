// data.js - from the JSON text in the page to arrays of numbers; docs/page-data.md says what is
// what.

function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// The next number of 7 bits a byte, low ones first, each time it is called.
function readerOf(text) {
  const bytes = bytesOf(text);
  let at = 0;
  return () => {
    let byte = bytes[at++];
    let value = byte & 127;
    for (let weight = 128; byte & 128; weight *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * weight;
    }
    return value;
  };
}

// Differences: lowest bit: how often it comes again follows; next bit: the sign.
function differencesOf(text, count) {
  const next = readerOf(text);
  const column = new Float64Array(count);
  for (let i = 0; i < count;) {
    const coded = next();
    const value = Math.floor(coded / 2);
    const difference = value % 2 ? -(value + 1) / 2 : value / 2;
    const end = coded % 2 ? i + 1 + next() : i + 1;
    for (; i < end; i++) column[i] = difference;
  }
  return column;
}

function columnOf(text, count) {
  const column = differencesOf(text, count);
  for (let i = 1; i < count; i++) column[i] += column[i - 1];
  return column;
}

// When rows begin: mostly where the one before ended.
function timesOf(gaps, durations) {
  let end = 0;
  for (let i = 0; i < gaps.length; i++) {
    gaps[i] += end;
    end = gaps[i] + durations.sumAt(i);
  }
  return gaps;
}

function plainColumnOf(text, count) {
  const next = readerOf(text);
  return Float64Array.from({ length: count }, next);
}

function decodeRows(rows) {
  const count = rows.count;
  const run = {
    count,
    pointsPerRow: rows.points_per_row,
    step: columnOf(rows.step, count),
    points: sumsOf(columnOf(rows.points, count)),
    steps: sumsOf(columnOf(rows.steps, count)),
    hits: sumsOf(columnOf(rows.hit_tokens, count)),
    externals: sumsOf(columnOf(rows.external_tokens, count)),
    queries: sumsOf(columnOf(rows.query_tokens, count)),
    series: {},
  };
  for (const [name, coded] of Object.entries(rows)) {
    if (typeof coded !== "object") continue;
    const min = columnOf(coded.min, count);
    const max = coded.max === undefined ? min : columnOf(coded.max, count);
    const sum = coded.sum === undefined ? min : columnOf(coded.sum, count);
    run.series[name] = new Series(min, max, sum, run.points);
  }
  run.time = timesOf(differencesOf(rows.gap_us, count), run.series.duration_us);
  return run;
}

// What is used of `total` blocks: the upper edge of the cached band.
function usedSeries(empty, total, points) {
  const count = empty.min.length;
  const min = new Float64Array(count);
  const max = new Float64Array(count);
  const sum = new Float64Array(count);
  for (let i = 0; i < count; i++) {
    min[i] = total - empty.max[i];
    max[i] = total - empty.min[i];
    sum[i] = total * (points[i + 1] - points[i]) - empty.sumAt(i);
  }
  return new Series(min, max, sum, points);
}

function decodeMarks(marks) {
  return {
    count: marks.count,
    stepsPerMark: marks.steps_per_mark,
    step: columnOf(marks.step, marks.count),
    time: columnOf(marks.time_us, marks.count),
    num: sumsOf(columnOf(marks.num, marks.count)),
  };
}

// Frames stay packed until one is shown: starts[i] is where frame i begins.
function decodeFrames(frames) {
  const bytes = bytesOf(frames.data);
  const starts = new Uint32Array(frames.count + 1);
  let at = 0;
  for (let i = 0; i < frames.count; i++) {
    starts[i] = at;
    for (let cells = 0; cells < frames.cells;) {
      const control = bytes[at];
      cells += control < 128 ? control + 1 : control - 126;
      at += control < 128 ? control + 2 : 2;
    }
  }
  starts[frames.count] = at;
  return {
    count: frames.count,
    numBlocks: frames.num_blocks,
    cellBlocks: frames.cell_blocks,
    cells: frames.cells,
    step: columnOf(frames.step, frames.count),
    owners: frames.owners ? columnOf(frames.owners, frames.count * frames.num_blocks) : null,
    bytes,
    starts,
  };
}

function unpackFrame(frames, index) {
  const cells = new Uint8Array(frames.cells);
  let at = frames.starts[index];
  let cell = 0;
  while (at < frames.starts[index + 1]) {
    const control = frames.bytes[at++];
    if (control < 128) {
      cells.set(frames.bytes.subarray(at, at + control + 1), cell);
      cell += control + 1;
      at += control + 1;
    } else {
      cells.fill(frames.bytes[at++], cell, cell + control - 126);
      cell += control - 126;
    }
  }
  return cells;
}

const NEVER = -1;

function decodeRequests(requests) {
  const count = requests.count;
  const get = (name) => columnOf(requests[name], count);
  const arrival = get("arrival_us");
  const later = (name) => {
    const column = get(name);
    return column.map((after, i) => (after === 0 ? NEVER : arrival[i] + after - 1));
  };
  const preempted = get("preempted");
  const kept = preempted.map((n) => Math.min(n, requests.max_intervals));
  const first = sumsOf(kept);
  const intervals = plainColumnOf(requests.intervals, 2 * first[count]);
  for (let i = 0; i < count; i++)
    for (let k = 2 * first[i]; k < 2 * first[i + 1]; k++)
      intervals[k] = intervals[k] === 0 ? Infinity : arrival[i] + intervals[k] - 1;
  return {
    count, total: requests.total, id: get("id"), session: get("session"), turn: get("turn"),
    arrival, scheduled: later("scheduled"), firstToken: later("first_token"), ended: later("ended"),
    prompt: get("prompt"), output: get("output"), hit: get("hit"), end: get("end"),
    preempted, firstInterval: first, intervals,
  };
}

function decodeLatencies(latency) {
  const found = { binsPerOctave: latency.bins_per_octave };
  for (const name of ["queue", "ttft", "tpot", "e2e"])
    found[name] = { count: latency[name].count, bins: plainColumnOf(latency[name].bins, 384) };
  return found;
}

function decodeRun(json) {
  if (json.format !== "quire-page" || json.version !== 1)
    throw new Error("version mismatch between this page and its data");
  const run = decodeRows(json.rows);
  run.meta = json.meta;
  run.report = json.report;
  run.end = Math.max(json.meta.end_us, 1);
  run.origin = 0;
  run.marks = decodeMarks(json.marks);
  run.frames = decodeFrames(json.frames);
  run.hostFrames = decodeFrames(json.host_frames);
  run.requests = decodeRequests(json.requests);
  run.latency = decodeLatencies(json.latency);
  run.series.used = usedSeries(run.series.empty, json.meta.total_blocks, run.points);
  json.meta.tiers.forEach((tier, i) => {
    run.series[`used.${i}`] = usedSeries(run.series[`empty.${i}`], tier.total, run.points);
  });
  return run;
}
