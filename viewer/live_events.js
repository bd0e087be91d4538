// live_events.js - the last events of the prefix cache, newest first. Who scrolls down reads: then
// the list holds still, and says how many came since.

const SHOWN_EVENTS = 200;
const EVENT_SIGNS = { stored: "+", removed: "−", cleared: "×" };

class EventList {
  constructor() {
    this.body = document.getElementById("events");
    this.scroll = document.getElementById("events-scroll");
    this.newer = document.getElementById("events-newer");
    this.note = document.getElementById("events-note");
    this.events = []; // newest last
    this.waiting = 0; // came while the list held still
    this.counts = { stored: 0, removed: 0, cleared: 0, skipped: 0 };
    this.isChanged = true;
    this.newer.addEventListener("click", () => {
      this.scroll.scrollTop = 0;
      this.isChanged = true;
      this.show();
    });
  }

  clear() {
    this.events = [];
    Object.keys(this.counts).forEach((key) => { this.counts[key] = 0; });
    this.isChanged = true;
  }

  // time: text, of the last step that is known
  add({ events, skipped }, time) {
    for (const event of events) {
      this.counts[event.kind] += event.kind === "cleared" ? 1 : event.blocks;
      if (!this.joins(event, time)) this.events.push({ ...event, time });
    }
    this.counts.skipped += skipped;
    this.waiting += events.length;
    if (this.events.length > 2 * SHOWN_EVENTS) this.events = this.events.slice(-SHOWN_EVENTS);
    this.isChanged = true;
  }

  // Blocks are removed one by one, in crowds: those of one moment are one line.
  joins({ kind, group, blocks, medium }, time) {
    const last = this.events.at(-1);
    const isSame = last && kind === "removed" && last.kind === kind && last.group === group
      && last.medium === medium;
    if (isSame && last.time === time) last.blocks += blocks;
    return isSame && last.time === time;
  }

  show() {
    if (!this.isChanged) return;
    this.showCounts();
    const isHeld = this.scroll.scrollTop > 4;
    this.newer.hidden = !isHeld || this.waiting === 0;
    this.newer.textContent = `${exact(this.waiting)} newer ↑`;
    if (isHeld) return;
    this.isChanged = false;
    this.waiting = 0;
    const shown = this.events.slice(-SHOWN_EVENTS).reverse();
    while (this.body.rows.length > shown.length) this.body.deleteRow(-1);
    while (this.body.rows.length < shown.length) this.addRow();
    document.getElementById("no-events").hidden = shown.length > 0;
    shown.forEach((event, i) => this.showRow(this.body.rows[i], event));
  }

  addRow() {
    const row = this.body.insertRow();
    for (const name of ["when", "kind", "number", "number", "medium", "hash"])
      row.insertCell().className = name;
  }

  showRow(row, { time, kind, group, blocks, medium, hash, parent }) {
    const isAll = kind === "cleared";
    const texts = [time, `${EVENT_SIGNS[kind] || "·"} ${kind}`, isAll ? "" : `${group}`,
      isAll ? "all" : exact(blocks), medium || "", hash || ""];
    if (row.dataset.kind !== kind) row.dataset.kind = kind;
    texts.forEach((text, i) => {
      const cell = row.cells[i];
      if (cell.textContent !== text) cell.textContent = text;
    });
    const title = parent ? `after ${parent}` : "";
    if (row.title !== title) row.title = title;
  }

  showCounts() {
    const { stored, removed, cleared, skipped } = this.counts;
    const parts = [`${rough(stored)} stored`, `${rough(removed)} removed`];
    if (cleared > 0) parts.push(`${rough(cleared)} × cleared`);
    if (skipped > 0) parts.push(`${rough(skipped)} not listed`);
    this.note.textContent = parts.join(" · ");
  }
}
