// Runs: every run there is, page by page, or cells with means over seeds; curves on click.

import { ask } from "../api.js";
import { el } from "../dom.js";
import { here, set, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { numberField, refill, segmented, select } from "../controls.js";
import { tableLink } from "../exporting.js";
import { human, whole } from "../numbers.js";
import { axisName, axisValue, chosen } from "../suites.js";
import { axisPickers, intro, suiteNote, suitePicker } from "../panel.js";
import { CellTable } from "../cell-table.js";

const MOST_CURVES = 40;
const PAGE = 100;

// name, heading, is a number, how to show it
const COLUMNS = [
  ["id", "Run", true, String],
  ["kind", "Kind", false, String],
  ["prime", "p", true, String],
  ["width", "Width d", true, String],
  ["params", "P", true, (value) => human(value)],
  ["seed", "Seed", true, String],
  ["state", "State", false, (value) => el("span", { class: `badge ${value}` }, value.replace("_", " "))],
  ["last_epoch", "Epochs", true, (value) => whole(value)],
  ["e_train", "Train 99 %", true, reached],
  ["e_val", "Val 98 %", true, reachedVal],
  ["t_gen", "Val 99 %", true, reachedVal],
  ["bits", "Bits", true, (value) => human(value)],
  ["stopped_by", "Stopped by", false, (value, run) => run.reason ?? value ?? "–"],
];

function reached(value, run) {
  if (value !== null && value !== undefined) return whole(value);
  return run.state === "done" ? `> ${whole(run.last_epoch)}` : "–";
}

// A full batch is another number of examples at every prime, so runs cannot be filtered by it.
function filterable(suite) {
  const keep = ([axis, values]) => [axis, axis === "batch_size" ? values.filter((value) => value !== "full") : values];
  return { ...suite, axes: Object.fromEntries(Object.entries(suite.axes).map(keep)) };
}

function reachedVal(value, run) {
  return run.n_val ? reached(value, run) : "–";
}

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Filters of the table", onsubmit: (e) => e.preventDefault() });
  const head = el("h2", { id: "runs-title" }, "Runs");
  const picked = el("div", { class: "pager" });
  const body = el("div", { class: "table-frame tall", tabindex: 0, role: "region", "aria-labelledby": "runs-title" });
  const pager = el("div", { class: "pager" });
  const table = el("section", { class: "card", dataset: { state: "loading", table: "runs" } },
    el("div", { class: "card-head" }, head, picked), body, pager);
  const curves = new ChartCard({ name: "curves", title: "Training and validation accuracy", height: 430 });
  const node = el("div", { class: "view" },
    intro("Every run, every epoch",
      "Choose runs to compare their curves. Small models rise in training and validation together; larger ones fit first and generalise later."),
    controls, curves.node, table);
  const cellTable = new CellTable({ head, picked, body, pager });
  const before = new Map(); // cursor of a page -> cursor of the one before it
  let suite;
  let asking;

  async function update(query, all) {
    suite = chosen(all, query);
    settle({ suite: suite.name, group: query.get("group") ?? "runs", sort: query.get("sort") ?? "id" });
    query = here().query;
    drawControls(query, all);
    const cells = query.get("group") === "cells";
    curves.node.hidden = cells;
    if (curves.node.hidden) curves.show("idle");
    await Promise.all([load(query, cells), drawCurves(query)]);
  }

  function drawControls(query, all) {
    const any = { value: "", text: "all" };
    const keep = (name, value) => set({ [name]: value || null, cursor: null, page: null });
    const pick = (label, name, values) => select(label, name, [any, ...values.map((v) => ({ value: v, text: String(v).replace("_", " ") }))],
      query.get(name) ?? "", { onChange: (value) => keep(name, value) });
    const number = (label, name) => numberField(label, name, query.get(name), { min: 0, onChange: (value) => keep(name, value) });
    refill(controls,
      suitePicker(all, suite),
      segmented("Show", "group", [{ value: "runs", text: "Runs" }, { value: "cells", text: "Means over seeds" }], query.get("group"),
        { onChange: (group) => set({ group, sort: null, cursor: null, page: null }) }),
      pick("Kind", "kind", ["grok", "speed", "capacity"]),
      select("Prime p", "prime", [any, ...suite.primes.map((p) => ({ value: p, text: suite.untrained.includes(p) ? `${p} · untrained` : String(p) }))],
        query.get("prime") ?? "", { onChange: (value) => keep("prime", value) }),
      number("Width d", "width"),
      ...(query.get("group") === "cells" ? [] : [
        number("Seed", "seed"),
        pick("State", "state", ["done", "set_aside", "running", "pending", "stale", "failed"]),
      ]),
      ...axisPickers(query.get("group") === "cells" ? suite : filterable(suite), query, { any: true, onChange: keep }), suiteNote(suite));
  }

  async function load(query, cells) {
    asking?.abort();
    asking = new AbortController();
    table.dataset.state = "loading";
    try {
      const shown = await (cells ? cellTable.load(suite, query, asking.signal) : loadRuns(query, asking.signal));
      table.dataset.state = shown ? "ready" : "empty";
      if (!shown) message("No run matches", "Remove a filter to see runs.");
    } catch (error) {
      if (error.name === "AbortError") return;
      message("The runs could not be read", error.message);
      table.dataset.state = "refused";
    }
  }

  function message(title, text) {
    body.replaceChildren(el("div", { class: "overlay-text table-message" }, el("strong", {}, title), el("p", {}, text)));
    pager.replaceChildren();
    picked.replaceChildren();
  }

  async function loadRuns(query, signal) {
    const asked = new URLSearchParams({ suite: suite.name, limit: PAGE });
    const sort = query.get("sort");
    asked.set("sort", sort.replace(/^-/, ""));
    asked.set("order", sort.startsWith("-") ? "desc" : "asc");
    for (const name of ["kind", "prime", "width", "seed", "state", "cursor", ...Object.keys(suite.axes)]) {
      if (query.get(name) && query.get(name) !== "full") asked.set(name, query.get(name));
    }
    const page = await ask(`/runs?${asked}`, { signal });
    head.textContent = `${whole(page.total)} ${page.total === 1 ? "run" : "runs"}`;
    if (page.items.length) fillRuns(page, query, asked);
    return page.items.length;
  }

  function fillRuns(page, query, asked) {
    const shown = new Set(query.getAll("run").map(Number));
    const toggle = (id) => {
      const now = new Set(here().query.getAll("run").map(Number));
      if (!now.delete(id)) now.add(id);
      set({ run: [...now].slice(-MOST_CURVES) });
    };
    const axes = Object.keys(suite.axes).map((axis) => [axis, axisName(axis), typeof suite.axes[axis][0] === "number", (value) => axisValue(axis, value)]);
    const columns = [...COLUMNS.slice(0, 5), ...axes, ...COLUMNS.slice(5)];
    const sorted = query.get("sort");
    const headings = columns.map(([name, text, isNumber]) => {
      const direction = sorted === name ? "ascending" : sorted === `-${name}` ? "descending" : null;
      return el("th", { scope: "col", class: isNumber ? "number" : "", "aria-sort": direction },
        el("button", { type: "button", onclick: () => set({ sort: direction === "ascending" ? `-${name}` : name, cursor: null }) }, text));
    });
    const rows = page.items.map((run) => {
      const tick = el("input", { type: "checkbox", checked: shown.has(run.id), "aria-label": `Show the curves of run ${run.id}`,
        onclick: (event) => event.stopPropagation(), onchange: () => toggle(run.id) });
      return el("tr", { "aria-selected": String(shown.has(run.id)), dataset: { run: run.id }, onclick: () => toggle(run.id) },
        el("td", {}, tick), columns.map(([name, , isNumber, show]) => el("td", { class: isNumber ? "number" : "" }, show(run[name], run))));
    });
    const focus = body.contains(document.activeElement) && document.activeElement.getAttribute("aria-label");
    body.replaceChildren(el("table", { class: "rows" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "Shown")), headings)), el("tbody", {}, rows)));
    if (focus) body.querySelector(`[aria-label="${focus}"]`)?.focus({ preventScroll: true });
    const first = page.items.map((run) => run.id).slice(0, MOST_CURVES);
    const twin = new URLSearchParams(asked);
    twin.set("format", "csv");
    picked.replaceChildren(el("div", {},
      el("button", { type: "button", class: "button", onclick: () => set({ run: first }) }, `Show first ${first.length}`),
      el("button", { type: "button", class: "button", disabled: !shown.size, onclick: () => set({ run: null }) }, "Clear"),
      tableLink(`/runs?${twin}`, `groktime-runs-${suite.name}.csv`, "CSV", undefined, { class: "button", "aria-label": "CSV of this page of runs" }),
      tableLink(`/export/${suite.name}.csv`, `groktime-${suite.name}.csv`, "CSV of all", undefined, { class: "button", "aria-label": `CSV of all runs of ${suite.name}` })));
    const { next } = page;
    const cursor = query.get("cursor");
    if (next) before.set(next, cursor);
    pager.replaceChildren(
      el("span", {}, `${page.items.length} on this page${shown.size ? `, ${shown.size} in the chart` : ""}`),
      el("div", {},
        el("button", { type: "button", class: "button", disabled: !cursor, onclick: () => set({ cursor: before.get(cursor) ?? null }) }, "Back"),
        el("button", { type: "button", class: "button", disabled: !next, onclick: () => set({ cursor: next }) }, "Next")));
  }

  async function drawCurves(query) {
    const runs = query.getAll("run");
    if (query.get("group") === "cells") return;
    // Where no run is chosen the server shows some that tell the story of a cell.
    const asked = new URLSearchParams([["suite", suite.name], ...runs.map((run) => ["run", run])]);
    if (!runs.length && suite.primes.includes(Number(query.get("prime")))) asked.set("prime", query.get("prime"));
    asked.set("points", 400);
    await curves.load(asked);
  }

  return { node, update, redraw: () => curves.redraw() };
}
