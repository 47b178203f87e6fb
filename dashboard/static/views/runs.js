// Runs: every run there is, page by page, or cells with means over seeds; curves on click.

import { ask } from "../api.js";
import { el } from "../dom.js";
import { changed, here, path, set, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { field, segmented, select } from "../controls.js";
import { people, whole } from "../numbers.js";
import { axisName, axisValue, chosen } from "../suites.js";
import { axisPickers, intro, suiteNote, suitePicker } from "../panel.js";

const MOST_CURVES = 40;
const PAGE = 100;

// name, heading, is a number, how to show it
const COLUMNS = [
  ["id", "Run", true, String],
  ["kind", "Kind", false, String],
  ["prime", "p", true, String],
  ["width", "Width d", true, String],
  ["params", "P", true, (value) => people(value)],
  ["seed", "Seed", true, String],
  ["state", "State", false, (value) => el("span", { class: `badge ${value}` }, value)],
  ["last_epoch", "Epochs", true, (value) => whole(value)],
  ["e_train", "Train 99 %", true, reached],
  ["e_val", "Val 98 %", true, reached],
  ["t_gen", "Val 99 %", true, reached],
  ["bits", "Bits", true, (value) => people(value)],
  ["stopped_by", "Stopped by", false, (value, run) => run.reason ?? value ?? "–"],
];

function reached(value, run) {
  if (value !== null && value !== undefined) return whole(value);
  return run.state === "done" ? `> ${whole(run.last_epoch)}` : "–";
}

export async function view(all) {
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
      "Choose runs to lay their curves over each other. Small models rise in training and validation together; larger ones fit first and generalise later."),
    controls, curves.node, table);
  let suite;
  let asking;

  async function update(query) {
    suite = chosen(all, query);
    settle({ suite: suite.name, group: query.get("group") ?? "runs", sort: query.get("sort") ?? "id" });
    query = here().query;
    drawControls(query);
    const cells = query.get("group") === "cells";
    curves.node.hidden = cells || !query.getAll("run").length;
    if (curves.node.hidden) curves.show("idle");
    await Promise.all([cells ? loadCells(query) : loadRuns(query), drawCurves(query)]);
  }

  function drawControls(query) {
    const any = { value: "", text: "all" };
    const keep = (name, value) => set({ [name]: value || null, cursor: null });
    const pick = (label, name, values) => select(label, name, [any, ...values.map((v) => ({ value: v, text: String(v) }))],
      query.get(name) ?? "", { onChange: (value) => keep(name, value) });
    const number = (label, name) => {
      const box = el("input", { type: "number", id: `filter-${name}`, name, min: 0, value: query.get(name) ?? "", class: "narrow",
        onchange: (event) => keep(name, event.target.value) });
      return field(label, box);
    };
    if (controls.contains(document.activeElement) && document.activeElement.type === "number") return;
    controls.replaceChildren(
      suitePicker(all, suite),
      segmented("Show", "group", [{ value: "runs", text: "Runs" }, { value: "cells", text: "Means over seeds" }], query.get("group")),
      pick("Kind", "kind", ["grok", "speed", "capacity"]),
      pick("Prime p", "prime", suite.primes),
      ...(query.get("group") === "cells" ? [] : [
        number("Width d", "width"), number("Seed", "seed"),
        pick("State", "state", ["done", "running", "pending", "stale", "failed"]),
        ...axisPickers(suite, query, { any: true }),
      ]), suiteNote(suite));
  }

  async function loadRuns(query) {
    asking?.abort();
    asking = new AbortController();
    table.dataset.state = "loading";
    const asked = new URLSearchParams({ suite: suite.name, limit: PAGE });
    const sort = query.get("sort");
    asked.set("sort", sort.replace(/^-/, ""));
    asked.set("order", sort.startsWith("-") ? "desc" : "asc");
    for (const name of ["kind", "prime", "width", "seed", "state", "cursor", ...Object.keys(suite.axes)]) {
      if (query.get(name)) asked.set(name, query.get(name));
    }
    try {
      const page = await ask(`/runs?${asked}`, { signal: asking.signal });
      head.textContent = `${whole(page.total)} runs`;
      fillRuns(page, query);
      table.dataset.state = page.items.length ? "ready" : "empty";
    } catch (error) {
      if (error.name === "AbortError") return;
      message("The runs could not be read", error.message);
      table.dataset.state = "refused";
    }
  }

  function message(title, text) {
    body.replaceChildren(el("div", { class: "overlay-text table-message" }, el("strong", {}, title), el("p", {}, text)));
    pager.replaceChildren();
  }

  function fillRuns(page, query) {
    const shown = new Set(query.getAll("run").map(Number));
    const toggle = (id) => {
      const now = new Set(here().query.getAll("run").map(Number));
      if (!now.delete(id)) now.add(id);
      set({ run: [...now].slice(-MOST_CURVES) });
    };
    if (!page.items.length) return message("No run matches", "Loosen a filter to see runs.");
    const axes = Object.keys(suite.axes).map((axis) => [axis, axisName(axis), typeof suite.axes[axis][0] === "number", (value) => axisValue(axis, value)]);
    const columns = [...COLUMNS.slice(0, 5), ...axes, ...COLUMNS.slice(5)];
    const sorted = query.get("sort") ?? "id";
    const head = columns.map(([name, text, isNumber]) => {
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
    body.replaceChildren(el("table", { class: "rows" },
      el("thead", {}, el("tr", {}, el("th", { scope: "col" }, el("span", { class: "visually-hidden" }, "Shown")), head)), el("tbody", {}, rows)));
    const all = page.items.map((run) => run.id).slice(0, MOST_CURVES);
    picked.replaceChildren(el("div", {},
      el("button", { type: "button", class: "button", onclick: () => set({ run: all }) }, `Show first ${all.length}`),
      el("button", { type: "button", class: "button", disabled: !shown.size, onclick: () => set({ run: null }) }, "Clear")));
    const { next } = page;
    pager.replaceChildren(
      el("span", {}, `${page.items.length} shown${shown.size ? `, ${shown.size} in the chart` : ""}`),
      el("div", {},
        el("button", { type: "button", class: "button", disabled: !query.get("cursor"), onclick: () => history.back() }, "Back"),
        el("button", { type: "button", class: "button", disabled: !next, onclick: () => set({ cursor: next }) }, "Next")));
  }

  async function loadCells(query) {
    table.dataset.state = "loading";
    picked.replaceChildren();
    const asked = new URLSearchParams();
    for (const name of ["kind", "prime"]) if (query.get(name)) asked.set(name, query.get(name));
    try {
      const answer = await ask(`/suites/${suite.name}/cells?${asked}`);
      head.textContent = `${whole(answer.items.length)} groups of seeds`;
      fillCells(answer);
      table.dataset.state = answer.items.length ? "ready" : "empty";
    } catch (error) {
      message("The cells could not be read", error.message);
      table.dataset.state = "refused";
    }
  }

  function fillCells(answer) {
    const axes = Object.keys(suite.axes);
    const percent = `${Math.round(answer.level * 100)} % CI`;
    const headings = ["Kind", "p", ...axes.map(axisName), "Width d", "P", "Seeds done", `Train 99 % (${percent})`, `Val 99 % (${percent})`, "Bits"];
    const numeric = new Set([1, headings.indexOf("Width d"), headings.indexOf("P"), headings.indexOf("Seeds done")]);
    body.replaceChildren(el("table", { class: "rows" },
      el("thead", {}, el("tr", {}, headings.map((text, i) => el("th", { scope: "col", class: numeric.has(i) ? "number" : "" }, text)), el("th", { scope: "col" }, "Curves"))),
      el("tbody", {}, answer.items.slice(0, 600).map((cell) => el("tr", {},
        [cell.kind, String(cell.prime), ...axes.map((axis) => axisValue(axis, cell.setting[axis] ?? "–")), String(cell.width), people(cell.params),
          `${cell.done} of ${cell.runs}`, mean(cell.e_train_99, cell.done), mean(cell.e_val_99, cell.kind === "grok" ? cell.done : 0), mean(cell.bits, 0)]
          .map((text, i) => el("td", { class: numeric.has(i) ? "number" : "" }, text)),
        el("td", {}, el("a", { "data-link": true, href: path("runs", changed(new URLSearchParams({ suite: suite.name, group: "runs" }),
          { kind: cell.kind, prime: cell.prime, width: cell.width, ...cell.setting })) }, "runs")))))));
    pager.replaceChildren(el("span", {}, answer.items.length > 600 ? `600 of ${whole(answer.items.length)} shown: choose a kind or a prime to see the others.` : ""));
  }

  async function drawCurves(query) {
    const runs = query.getAll("run");
    if (!runs.length || query.get("group") === "cells") return;
    const asked = new URLSearchParams(runs.map((run) => ["run", run]));
    asked.set("points", 400);
    await curves.load(asked);
  }

  return { node, update, redraw: () => curves.redraw() };
}

function mean({ mean: centre, low, high, reached: count }, of) {
  if (!count) return of ? `not reached (0 of ${of})` : "–";
  const interval = low === null ? "" : ` (${people(low)}–${people(high)})`;
  return `${people(centre)}${interval}${of && count < of ? `, ${count} of ${of} reached` : ""}`;
}
