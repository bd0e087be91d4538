// tables.js - the figures of the report: the few that matter first as a strip, all of them as
// tables.

const seconds = (value) => duration(1e6 * value);

// Keys of the report that have a name and a unit here; any other is shown as it is.
const FIGURES = [
  ["Work", [["requests", "Requests", exact], ["errors", "Errors", exact], ["steps", "Steps", exact],
    ["prompt_tokens", "Prompt tokens", exact], ["output_tokens", "Output tokens", exact],
    ["simulated_s", "Simulated time", seconds], ["wall_s", "Wall time", seconds],
    ["speed_factor", "Times real time", (x) => `${three(x)}${THIN}×`]]],
  ["Cache", [["hit_rate", "Hit rate, by token", (x) => percent(x, 2)],
    ["ideal_hit_rate", "Ideal hit rate", (x) => percent(x, 2)], ["hit_tokens", "Hit tokens", exact],
    ["hit_blocks", "Hit blocks", exact], ["query_blocks", "Looked-up blocks", exact],
    ["preemptions", "Preemptions", exact], ["recomputed_tokens", "Recomputed tokens", exact]]],
];
const TABLED = new Set(["verdict", "comparison", "losses", "made_by", "has_contents", "ttft_ms", "tpot_ms", "e2e_ms", "queue_ms", "blocks", "tiers",
  "hits_by_tier", "tier_hit_rate", "tier_time"]);

function table(caption, rows, head) {
  const made = element("table", {}, element("caption", {}, caption));
  if (head) made.append(element("thead", {}, element("tr", {}, ...head.map((text, i) =>
    element("th", { scope: "col", class: i > 0 ? "number" : "" }, text)))));
  const body = element("tbody", {});
  for (const [name, key, ...values] of rows) {
    const cells = values.map((value, i) => element("td", { "data-figure": key + (i || ""),
      class: value.length > 24 ? "number long" : "number" }, value)); // a text, or a button
    body.append(element("tr", {}, element("th", { scope: "row" }, name), ...cells));
  }
  made.append(body);
  return made;
}

const HIT_FIGURES = ["hit_rate", "ideal_hit_rate", "hit_tokens", "hit_blocks", "query_blocks"];

// A trace without contents tells nothing of hits: its zeros are not results.
const knowsHits = (report) => report.has_contents !== false;

function figureTables(report) {
  const known = new Set(TABLED);
  const tables = [];
  for (const [caption, figures] of FIGURES) {
    const isShown = (key) => knowsHits(report) || !HIT_FIGURES.includes(key);
    const rows = figures.filter(([key]) => typeof report[key] === "number" && isShown(key))
      .map(([key, name, write]) => [name, key, write(report[key])]);
    figures.forEach(([key]) => known.add(key));
    if (rows.length > 0) tables.push(table(caption, rows));
  }
  return { tables, known };
}

function latencyTable(report) {
  const rows = LATENCIES.filter(([name]) => report[`${name}_ms`]).map(([name, title]) => {
    const stated = report[`${name}_ms`];
    const values = latencyColumns(stated).map((key) => ms(stated[key]));
    return [title.replace("Time to first", "First"), `${name}_ms`, ...values];
  });
  if (rows.length === 0) return [];
  return [table("Latency", rows, ["", ...latencyColumns(report[rows[0][1]])])];
}

// Reports of earlier versions have no p95.
function latencyColumns(stated) {
  return ["mean", "p50", "p90", "p95", "p99"].filter((key) => typeof stated[key] === "number");
}

// A figure that has no name here: its key as a name, and a unit where the key tells one.
const UNITS = [[/_per_s$/, (x) => `${three(x)}${THIN}/s`], [/_ms$/, ms], [/_s$/, seconds],
  [/^bytes_|_bytes$/, bytesText], [/_rate$/, (x) => percent(x, 2)]];

function otherRow(key, value, path) {
  const [suffix, write] = UNITS.find(([pattern]) => pattern.test(key)) || [/$^/, plainNumber];
  const name = `${path} ${key.replace(/_(per_)?m?s$/, "")}`.trim();
  const text = typeof value === "number" ? write(value) : String(value);
  return [sentence(suffix ? name : key), `${path} ${key}`.trim(), text];
}

// Numbers and texts; objects by path.
function otherRows(value, path, rows) {
  for (const [key, inner] of Object.entries(value)) {
    if (Array.isArray(inner) || inner === null) continue;
    if (typeof inner === "object") otherRows(inner, `${path} ${key}`.trim(), rows);
    else rows.push(otherRow(key, inner, path));
  }
  return rows;
}

// Objects of figures have tables of their own, single ones share one.
function otherTables(rest) {
  const isTable = ([, value]) => value && typeof value === "object" && !Array.isArray(value);
  const entries = Object.entries(rest);
  const single = otherRows(Object.fromEntries(entries.filter((entry) => !isTable(entry))), "", []);
  const tables = entries.filter(isTable)
    .map(([key, value]) => table(sentence(key), otherRows(value, "", [])));
  if (single.length > 0) tables.push(table("Further figures", single));
  return tables;
}

function sentence(key) {
  const words = key.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

function plainNumber(number) {
  return Number.isInteger(number) ? exact(number) : exact(number, Math.abs(number) < 1 ? 4 : 2);
}

// Lists of objects with the same keys. A step in them leads to it.
function listTables(report) {
  const tables = [];
  for (const [key, list] of Object.entries(report)) {
    if (!Array.isArray(list) || list.length === 0 || typeof list[0] !== "object") continue;
    const keys = Object.keys(list[0]);
    const rows = list.slice(0, 20).map((item, i) => {
      const [first, ...others] = keys.map((k) => listCell(k, item[k]));
      return [first, `${key}.${i}`, ...others];
    });
    tables.push(table(sentence(key), rows, keys.map((k) => otherRow(k, "", "")[0])));
  }
  return tables;
}

function listCell(key, value) {
  const text = otherRow(key, value, "")[2];
  if (key !== "step") return text;
  return element("button", { type: "button", class: "link", "data-step": value }, text);
}

function showTables(run) {
  const host = document.getElementById("tables");
  const { meta, report } = run;
  const tables = [];
  if (report) {
    const figures = figureTables(report);
    const isNew = ([key]) => !figures.known.has(key);
    const rest = Object.fromEntries(Object.entries(report).filter(isNew));
    tables.push(...figures.tables, ...latencyTable(report));
    if (report.blocks) tables.push(table("Blocks", otherRows(report.blocks, "", [])));
    tables.push(...tierTables(report), ...listTables(rest), ...otherTables(rest));
  }
  const settings = meta.options.map(([name, value]) => [name, `option.${name}`, value]);
  if (settings.length > 0) tables.push(table("Options", settings));
  host.append(...tables);
  host.parentElement.hidden = tables.length === 0;
}

// ---- verdict and losses -----------------------------------------------------

function showVerdict(verdict) {
  const host = document.getElementById("verdict");
  if (!verdict || !verdict.text) return;
  const end = verdict.text.indexOf(":") + 1; // "Overloaded: 3.3 requests/s arrive, ..."
  host.dataset.state = verdict.state;
  host.replaceChildren(element("strong", {}, verdict.text.slice(0, end)), verdict.text.slice(end));
  host.hidden = false;
}

// Where prompt tokens came from or why they were computed, as one bar: its parts add up to all.
const LOSSES = [["evicted_tokens", "evicted", "preempted", "were in the cache before and were evicted: more memory, or a tier, would keep them"],
  ["not_ready_tokens", "not ready", "waiting", "another request was still computing them"],
  ["wrong_worker_tokens", "wrong worker", "wrong", "another worker of the fleet had computed them"],
  ["stale_view_tokens", "stale view", "stale", "the router believed them to be at this worker, and they were not"],
  ["last_token_tokens", "last token", "time", "the last token of a prompt is always computed, and with it its block"],
  ["partial_tokens", "partial block", "prefill", "the repeated text ends inside a block, and only full blocks are cached"]];

function lossParts(report) {
  const { losses, prompt_tokens: all, hit_tokens: hits } = report;
  const parts = [["hit_tokens", "found", "hit", "found in the cache, on the GPU or in a tier", hits]];
  let rest = all - hits;
  for (const [key, ...others] of LOSSES) {
    if (!(losses[key] > 0)) continue;
    parts.push([key, ...others, losses[key]]);
    rest -= losses[key];
  }
  parts.push(["new_tokens", "new", "empty", "never seen before: no cache could have them",
    Math.max(0, rest)]);
  return parts;
}

function showLosses(report) {
  const { losses, prompt_tokens: all } = report;
  if (!losses || !knowsHits(report) || !(all > 0)) return;
  const parts = lossParts(report);
  const bar = element("div", { class: "share-bar", "aria-hidden": "true" });
  const list = element("dl", { class: "reasons" });
  for (const [key, name, colour, reason, tokens] of parts) {
    const piece = element("i", { title: `${name}: ${reason}` });
    piece.style.setProperty("--swatch", `var(--${colour})`);
    piece.style.flexGrow = tokens / all;
    bar.append(piece);
    const swatch = element("i", { class: "swatch" });
    swatch.style.setProperty("--swatch", `var(--${colour})`);
    list.append(element("div", {}, element("dt", {}, swatch, name),
      element("dd", { "data-loss": key }, `${percent(tokens / all)} · ${rough(tokens)} tokens`),
      element("dd", { class: "note" }, reason)));
  }
  document.getElementById("reasons").append(bar, list);
  document.getElementById("losses").hidden = false;
}

// ---- the strip --------------------------------------------------------------

// The median, named as such, and what it hides: the slow end and the mean.
function latencyTile(title, stated, key) {
  const others = latencyColumns(stated).filter((name) => name !== "p50" && name !== "p90").reverse();
  const notes = others.map((name) => `${name} ${ms(stated[name])}`).join(" · ");
  return tile(`${title}, p50`, ms(stated.p50), notes, key);
}

function reportTiles(report, run) {
  const tiles = [];
  const has = (...keys) => keys.every((key) => typeof report[key] === "number");
  if (!knowsHits(report))
    tiles.push(tile("Hit rate", "–", "unknown: the trace has no contents", "hit_rate"));
  else if (has("hit_rate"))
    tiles.push(tile("Hit rate", percent(report.hit_rate),
      has("ideal_hit_rate") ? `ideal ${percent(report.ideal_hit_rate)}` : "", "hit_rate"));
  const titles = { ttft: "First token", tpot: "Per output token", e2e: "End to end" };
  for (const [name, title] of Object.entries(titles)) {
    const stated = report[`${name}_ms`];
    if (stated) tiles.push(latencyTile(title, stated, `${name}_ms`));
  }
  if (has("output_tokens", "prompt_tokens", "simulated_s") && report.simulated_s > 0)
    tiles.push(tile("Output", `${rough(report.output_tokens / report.simulated_s)}${THIN}tok/s`,
      `${rough(report.prompt_tokens / report.simulated_s)}${THIN}tok/s prompt`, "throughput"));
  if (has("preemptions"))
    tiles.push(tile("Preemptions", exact(report.preemptions), has("recomputed_tokens")
      ? `${rough(report.recomputed_tokens)} tokens again` : "", "preemptions"));
  if (has("simulated_s", "wall_s", "speed_factor"))
    tiles.push(tile("Simulated", duration(run.end),
      `in ${seconds(report.wall_s)}, ${rough(report.speed_factor)}${THIN}×`, "simulated"));
  return tiles;
}

function showHeader(run) {
  const { meta, report } = run;
  const name = meta.trace && (meta.trace.split("/").pop() || meta.trace);
  document.title = name ? `${name} · ${meta.title}` : meta.title;
  document.getElementById("title").textContent = name || meta.title;
  document.getElementById("title").title = meta.trace || "";
  const of = meta.block_size ? ` of ${exact(meta.block_size)} tokens` : "";
  const facts = [meta.model, meta.gpu,
    meta.num_requests > 0 && `${exact(meta.num_requests)} requests`,
    `${exact(meta.num_steps)} steps`, `${exact(meta.total_blocks)} blocks${of}`, duration(run.end)];
  document.getElementById("facts").textContent = facts.filter(Boolean).join(" · ");
  const merged = run.pointsPerRow > 1
    ? ` · the charts have ${exact(run.pointsPerRow)} steps in one, with their extremes` : "";
  const madeBy = `${meta.title} · Quire ${meta.version}${merged}`;
  document.getElementById("made-by").textContent = madeBy;
  if (report) {
    showVerdict(report.verdict);
    showLosses(report);
  }
  const tiles = report ? reportTiles(report, run) : [];
  const host = document.getElementById("tiles");
  host.append(...tiles);
  host.hidden = tiles.length === 0;
}
