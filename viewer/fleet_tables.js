// fleet_tables.js - figures and tables of a fleet: workers, classes of the SLO, hot prefixes,
// routing decisions.

const WORKER_COLUMNS = [["worker", "Worker", exact], ["routed", "Routed", exact], ["requests", "Ended", exact],
  ["prompt_tokens", "Prompt tokens", exact], ["output_tokens", "Output tokens", exact],
  ["hit_rate", "Hit rate", (x) => percent(x, 2)], ["busy_s", "Busy", seconds], ["preemptions", "Preemptions", exact],
  ["max_running", "Most running", exact], ["max_waiting", "Most waiting", exact]];

const LISTED = 200; // decisions

function fleetTiles({ report, history, fleet, gpusPerWorker, meta, end }) {
  const { bins } = history;
  const { cost } = fleet;
  const tiles = reportTiles(report, { end }).filter((made) =>
    !["preemptions", "simulated"].includes(made.querySelector("dd").dataset.tile));
  if (report.goodput) // --slo
    tiles.push(tile("SLO kept", percent(report.goodput.share),
      `${three(report.goodput.requests_per_s)}${THIN}requests/s`, "slo"));
  if (fleet.believed_tokens > 0)
    tiles.push(tile("Believed hits", percent(fleet.believed_tokens / report.prompt_tokens),
      `found ${percent(report.hit_tokens / report.prompt_tokens)}`, "believed"));
  const spare = bins.copies.map((n, i) => n - bins.blocks[i]);
  const last = spare[spare.length - 1];
  const held = bins.copies[bins.copies.length - 1];
  const bytes = last * meta.bytes_per_block * gpusPerWorker;
  tiles.push(tile("Duplicate KV", bytes > 0 ? bytesText(bytes) : `${exact(last)} blocks`,
    held > 0 ? `${percent(last / held)} of what caches have at the end` : "", "duplicates"));
  tiles.push(tile("Cost", `${three(cost.gpu_hours)}${THIN}GPU h`,
    `${exact(cost.gpus)} GPUs, ${percent(cost.gpu_hours > 0 ? cost.busy_gpu_hours / cost.gpu_hours : 0)} busy`, "cost"));
  return tiles;
}

// ---- workers ----------------------------------------------------------------------

class WorkerTable {
  constructor(workers) {
    this.workers = workers.map((worker) => worker);
    this.by = 0;
    this.isUp = true;
    this.show();
  }

  show() {
    const head = element("tr");
    WORKER_COLUMNS.forEach(([, name], i) => {
      const sign = this.by === i ? (this.isUp ? " ↑" : " ↓") : "";
      const button = element("button", { type: "button", class: "link" }, name + sign);
      button.addEventListener("click", () => this.sort(i));
      const sorted = this.by === i ? { "aria-sort": this.isUp ? "ascending" : "descending" } : {};
      head.append(element("th", { scope: "col", class: i > 0 ? "number" : "", ...sorted }, button));
    });
    const rows = this.workers.map((worker) => element("tr", { "data-worker": worker.worker },
      ...WORKER_COLUMNS.map(([key, , write], i) =>
        element(i === 0 ? "th" : "td", i === 0 ? { scope: "row" } : { class: "number", "data-key": key }, write(worker[key])))));
    const made = element("table", {}, element("caption", { class: "unseen" }, "Workers"),
      element("thead", {}, head), element("tbody", {}, ...rows));
    document.getElementById("worker-list").replaceChildren(made);
  }

  sort(column) {
    const [key] = WORKER_COLUMNS[column];
    this.isUp = this.by === column ? !this.isUp : column === 0; // the most first, else
    this.by = column;
    this.workers.sort((a, b) => ((a[key] - b[key]) || (a.worker - b.worker)) * (this.isUp ? 1 : -1));
    this.show();
    document.querySelectorAll("#worker-list thead button")[column].focus();
  }
}

// ---- SLO, prefixes -------------------------------------------------------------------

const CLASS_GROUPS = { prompt: "Prompt tokens", turn: "Turn of the session", priority: "Priority" };

function className({ group, from, to }) {
  if (group === "turn") return from === 0 ? "first" : "later";
  if (group === "priority") return from === null ? "others" : String(from);
  return to === null ? `${exact(from)} and more` : `${exact(from)} to ${exact(to)}`;
}

function showClasses(classes) {
  if (!classes) return;
  const host = document.getElementById("class-list");
  for (const [group, title] of Object.entries(CLASS_GROUPS)) {
    const mine = classes.filter((one) => one.group === group);
    if (mine.length < 2 && group !== "prompt") continue; // one class is all requests
    const rows = mine.map((one) => [className(one), `slo.${group}.${one.from}`,
      exact(one.requests), percent(one.good / one.requests)]);
    host.append(table(title, rows, ["", "requests", "kept"]));
  }
  document.getElementById("classes").hidden = false;
}

function showPrefixes(prefixes, numWorkers) {
  const rows = prefixes.map(({ tokens, requests, first_request: first, copies }) =>
    [`${exact(tokens)} tokens`, `prefix.${first}.${tokens}`, exact(requests), `${exact(copies)} of ${exact(numWorkers)}`]);
  const host = document.getElementById("prefix-list");
  if (rows.length === 0) {
    host.append(element("p", { class: "note" }, "No two prompts begin with the same block."));
    return;
  }
  host.append(table("At least this long", rows, ["", "requests", "copies"]));
}

// ---- decisions -----------------------------------------------------------------------

class Decisions {
  constructor({ every, list }, total) {
    this.every = every;
    this.list = list;
    this.total = total;
    this.input = document.getElementById("search");
    this.input.addEventListener("input", () => this.show());
    this.show();
  }

  // The requests that are asked for; of a number that is not on the page, the next one that is.
  find() {
    const text = this.input.value.trim().toLowerCase();
    const worker = /^w(?:orker)?\s*(\d+)$/.exec(text);
    if (worker) return { found: this.list.filter((one) => one.worker === +worker[1]), what: `to worker ${worker[1]}` };
    if (text === "") return { found: this.list, what: "" };
    const number = Number(text.replaceAll(",", "").replace(/^#/, ""));
    if (!Number.isInteger(number)) return { found: [], what: "Expected a number of a request, or worker and a number" };
    const exactly = this.list.filter((one) => one.request === number);
    if (exactly.length > 0) return { found: exactly, what: `of request ${exact(number)}` };
    const near = this.list.filter((one) => one.request > number).sort((a, b) => a.request - b.request).slice(0, 1);
    return { found: near, what: `Request ${exact(number)} is not on the page${near.length > 0 ? "; the next one is" : ""}` };
  }

  show() {
    const { found, what } = this.find();
    const of = this.every > 1 ? ` The page has one request in ${exact(this.every)}; --why FILE has all.` : "";
    const shown = Math.min(found.length, LISTED);
    document.getElementById("decisions-note").textContent = what !== "" && !what.startsWith("of") && !what.startsWith("to")
      ? `${what}.` : `${exact(shown)} of ${exact(found.length)} decisions ${what}`.trimEnd() + `.${of}`;
    const rows = found.slice(0, LISTED).map((one) => element("tr", { "data-request": one.request },
      element("th", { scope: "row" }, exact(one.request)), element("td", { class: "number" }, clock(one.time_s * US, 1e5)),
      element("td", { class: "number" }, one.worker === null ? "–" : exact(one.worker)),
      element("td", { class: "number" }, exact(one.prompt_tokens)),
      element("td", { class: "number" }, exact(one.believed_tokens)),
      element("td", { class: "number" }, one.hit_tokens === null ? "–" : exact(one.hit_tokens)),
      element("td", {}, one.why)));
    const heads = ["Request", "Time", "Worker", "Prompt", "Believed", "Found", "Why"];
    const head = element("tr", {}, ...heads.map((text, i) =>
      element("th", { scope: "col", class: i > 0 && i < 6 ? "number" : "" }, text)));
    document.getElementById("decision-list").replaceChildren(element("table", {},
      element("caption", { class: "unseen" }, "Routing decisions"), element("thead", {}, head), element("tbody", {}, ...rows)));
  }
}
