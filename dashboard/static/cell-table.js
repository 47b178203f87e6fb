// Runs grouped over seeds: means with intervals, filtered, sorted and paged here, for one answer
// holds all groups of a suite.

import { ask } from "./api.js";
import { changed, path, set } from "./address.js";
import { el } from "./dom.js";
import { tableLink } from "./exporting.js";
import { human, whole } from "./numbers.js";
import { axisName, axisValue } from "./suites.js";

const PAGE = 100;

export class CellTable {
  // Where the table goes: its heading, the buttons beside it, its body and its pager.
  constructor(places) {
    Object.assign(this, places);
  }

  // Number of groups shown.
  async load(suite, query, signal) {
    const asked = new URLSearchParams();
    for (const name of ["kind", "prime"]) if (query.get(name)) asked.set(name, query.get(name));
    const answer = await ask(`/suites/${suite.name}/cells?${asked}`, { signal });
    const cells = answer.items.filter((cell) => matches(cell, suite, query));
    this.head.textContent = `${whole(cells.length)} ${cells.length === 1 ? "group" : "groups"} of seeds`;
    if (cells.length) this.fill(suite, query, cells, answer.level, asked);
    return cells.length;
  }

  fill(suite, query, cells, level, asked) {
    const columns = columnsOf(suite, level);
    const sorted = query.get("sort") ?? "id";
    const by = columns.find(([name]) => name === sorted.replace(/^-/, ""));
    const ordered = by ? [...cells].sort((a, b) => compared(by[3](a), by[3](b)) * (sorted.startsWith("-") ? -1 : 1)) : cells;
    const page = Math.min(Number(query.get("page") ?? 1), Math.ceil(cells.length / PAGE));
    const shown = ordered.slice((page - 1) * PAGE, page * PAGE);
    const headings = columns.map(([name, text, isNumber]) => {
      const direction = sorted === name ? "ascending" : sorted === `-${name}` ? "descending" : null;
      return el("th", { scope: "col", class: isNumber ? "number" : "", "aria-sort": direction },
        el("button", { type: "button", onclick: () => set({ sort: direction === "ascending" ? `-${name}` : name, page: null }) }, text));
    });
    this.body.replaceChildren(el("table", {},
      el("thead", {}, el("tr", {}, headings, el("th", { scope: "col" }, "Curves"))),
      el("tbody", {}, shown.map((cell) => el("tr", {},
        columns.map(([, , isNumber, value, show]) => el("td", { class: isNumber ? "number" : "" }, show ? show(cell) : String(value(cell)))),
        el("td", {}, el("a", { "data-link": true, href: runsOf(suite, cell) }, "runs")))))));
    const twin = new URLSearchParams(asked);
    twin.set("format", "csv");
    this.picked.replaceChildren(el("div", {}, tableLink(`/suites/${suite.name}/cells?${twin}`, `groktime-cells-${suite.name}.csv`, "CSV", undefined,
      { class: "button", "aria-label": "CSV of the means over seeds" })));
    const pages = Math.ceil(cells.length / PAGE);
    this.pager.replaceChildren(
      el("span", {}, pages > 1 ? `page ${page} of ${pages}` : "Means are over the seeds that reached the threshold; the others are counted."),
      el("div", {},
        el("button", { type: "button", class: "button", disabled: page < 2, onclick: () => set({ page: page - 1 }) }, "Back"),
        el("button", { type: "button", class: "button", disabled: page >= pages, onclick: () => set({ page: page + 1 }) }, "Next")));
  }
}

function matches(cell, suite, query) {
  if (query.get("width") && String(cell.width) !== query.get("width")) return false;
  return Object.keys(suite.axes).every((axis) => {
    const wanted = query.get(axis);
    if (!wanted) return true;
    const value = axis === "batch_size" && cell.setting[axis] >= cell.n_train ? "full" : cell.setting[axis];
    return String(value) === wanted;
  });
}

// name, heading, is a number, its value for sorting, how to show it
function columnsOf(suite, level) {
  const ci = `${Math.round(level * 1000) / 10} % CI`;
  return [
    ["kind", "Kind", false, (cell) => cell.kind],
    ["prime", "p", true, (cell) => cell.prime],
    ...Object.keys(suite.axes).map((axis) => [axis, axisName(axis), typeof suite.axes[axis][0] === "number",
      (cell) => cell.setting[axis], (cell) => axisValue(axis, cell.setting[axis] ?? "–")]),
    ["width", "Width d", true, (cell) => cell.width],
    ["params", "P", true, (cell) => cell.params, (cell) => human(cell.params)],
    ["done", "Seeds done", true, (cell) => cell.done, (cell) => `${cell.done} of ${cell.runs}`],
    ["train", `Train 99 %, mean (${ci})`, false, (cell) => cell.e_train_99.mean, (cell) => mean(cell.e_train_99, cell.kind === "capacity" ? 0 : cell.done)],
    ["val", `Val 99 %, mean (${ci})`, false, (cell) => cell.e_val_99.mean, (cell) => mean(cell.e_val_99, cell.kind === "grok" ? cell.done : 0)],
    ["bits", "Bits", false, (cell) => cell.bits.mean, (cell) => mean(cell.bits, 0)],
  ];
}

// What has no value comes last in ascending order.
function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return a < b ? -1 : 1;
}

function mean({ mean: centre, low, high, reached }, of) {
  if (!reached) return of ? `not reached (0 of ${of})` : "–";
  const interval = low === null ? "" : ` (${human(low)}–${human(high)})`;
  return `${human(centre)}${interval}${of && reached < of ? `, ${reached} of ${of} reached` : ""}`;
}

function runsOf(suite, cell) {
  return path("runs", changed(new URLSearchParams({ suite: suite.name, group: "runs" }),
    { kind: cell.kind, prime: cell.prime, width: cell.width, ...cell.setting }));
}
