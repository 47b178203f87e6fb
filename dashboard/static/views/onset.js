// Predicted vs empirical: every cell of a suite, what is left over, and the tests.

import { el, rich } from "../dom.js";
import { go, here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { refill, select } from "../controls.js";
import { axisName, chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, intro, labelsPicker, measuring, methodPicker, suiteNote,
  suitePicker, unitsPicker,
} from "../panel.js";

const FINE = ["t_mem", "t_gen", "e_train", "e_val", "min_delay", "min_delay_share", "max_width", "level"];
const SETTINGS = ["method", "clock", "units", "labels", ...FINE];
const HEIGHT = "clamp(340px, calc(100vh - 420px), 560px)";
const TONES = { strong: "good", weak: "bad", moderate: "warn" };

// One part of the claim: what it says, its number here, and whether it holds.
const part = ({ claim, number, verdict, tone, detail }) => el("div", { class: "card claim-part" },
  el("p", { class: "claim-text" }, claim), el("p", { class: "claim-number" }, number),
  el("p", {}, el("span", { class: `badge ${tone}` }, verdict), el("small", {}, detail)));

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const claims = el("section", { class: "claims", "aria-label": "The claim, part by part" });
  const tests = el("section", { class: "card", "aria-labelledby": "tests-title" });
  const within = el("section", { class: "card", "aria-labelledby": "within-title" });
  let suite;
  let axes = [];
  const prediction = new ChartCard({
    name: "onset", title: "Predicted and empirical", height: HEIGHT,
    onMeta: (meta) => {
      claims.replaceChildren(...(meta?.claims ?? []).map(part));
      fill(meta);
    },
    onClick: (point) => point.customdata && go("delay", cellQuery(point.customdata)),
  });
  const residual = new ChartCard({
    name: "residual", title: "Residual", height: HEIGHT,
    onClick: (point) => point.customdata && go("delay", cellQuery(point.customdata)),
  });
  const cards = [prediction, residual];
  const node = el("div", { class: "view" },
    intro("Does grokking start where the speeds cross?",
      "Every cell (one prime, one setting) gives a prediction P_cross and a measured onset P_onset. On the diagonal they agree."),
    controls, claims,
    el("div", { class: "pair" }, cards.map((card) => card.node)),
    tests, within, explain("How to read this",
        "First chart: each point is a cell, with both intervals. An open marker has its onset at an edge of the measured widths, which only bounds it. Click a point to see its cell.",
        "Second chart: the residual, log₁₀ of P_onset over P_cross, with bars that combine both intervals. Zero is a perfect prediction; 0.3 is a factor of two. A trend along an axis means that the crossing misses an effect of it.",
        "The table tests the claim in several ways. A test with too few cells says so instead of giving a number. The paper's value is shown with its own n."));

  // A point carries its prime first and the values of the swept axes last.
  function cellQuery(data) {
    const kept = chartQuery(here().query, suite, SETTINGS);
    kept.set("prime", data[0]);
    for (const [axis, value] of Object.entries(data.at(-1))) if (axes.includes(axis)) kept.set(axis, value);
    return kept;
  }

  const table = (label, headings, rows) =>
    el("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": label }, el("table", { class: "tests" },
      el("thead", {}, el("tr", {}, headings.map((name) => el("th", { scope: "col", class: name.length === 1 ? "number" : "" }, name)))),
      el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((content, i) =>
        el("td", { class: headings[i].length === 1 ? "number" : "", dataset: { label: headings[i] } }, content)))))));

  function fill(meta) {
    tests.hidden = within.hidden = !meta;
    if (!meta) return;
    const paper = meta.paper ? [meta.paper.column] : [];
    const groups = Map.groupBy(meta.tests, (row) => row.group);
    const open = new Set([...tests.querySelectorAll("details[open]")].map((group) => group.dataset.group));
    tests.replaceChildren(
      el("h2", { id: "tests-title" }, "The tests, question by question"),
      meta.paper ? el("p", { class: "note" }, meta.paper.note) : "",
      ...[...groups].map(([group, rows]) => el("details", { class: "group", open: open.has(group), dataset: { group } },
        el("summary", {}, el("span", {}, group), el("span", { class: `note ${rows[0].tone}` }, ...rich(rows[0].verdict))),
        table(group, ["Test", "Value", "p", "n", "What it says", ...paper], rows.map((row) => [
          el("div", {}, ...rich(row.name), row.note && el("small", {}, ...rich(row.note))), row.value, row.p, String(row.n),
          el("span", { class: `verdict note ${row.tone}` }, ...rich(row.verdict)), ...(meta.paper ? [row.paper] : []),
        ])))),
      el("ul", { class: "notes" }, meta.test_notes.map((text) => el("li", { class: "note" }, text))));
    within.hidden = !meta.settings.length;
    within.replaceChildren(
      el("h2", { id: "within-title" }, "Within each setting"),
      table("Residuals within each setting", ["Setting", "Cells", "Median residual", "Standard deviation", "Verdict (spread)", ...paper],
        meta.settings.map((row) => [
          row.setting, row.n, row.median, row.std, el("span", { class: `badge ${TONES[row.verdict] ?? ""}` }, row.verdict),
          ...(meta.paper ? [row.paper] : []),
        ])));
  }

  async function update(query, all) {
    suite = chosen(all, query);
    axes = Object.keys(suite.axes).filter((axis) => suite.axes[axis].length > 1);
    settle({
      suite: suite.name, prime: null, axis: query.get("axis") ?? axes[0] ?? "prime",
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    refill(controls, suitePicker(all, suite), ...axisPickers(suite, query, { any: true }),
      select("Residual against", "axis", [{ value: "prime", text: "Prime p" }, { value: "k_mem", text: "Dataset complexity" },
        { value: "last_batch", text: "Last batch" }, { value: "t_mem", text: "Threshold of memorising" },
        ...axes.map((axis) => ({ value: axis, text: axisName(axis) }))], query.get("axis")),
      measuring(query, suite, [methodPicker(query), clockPicker(query), unitsPicker(query), labelsPicker(suite, query)], FINE),
      suiteNote(suite));
    const asked = chartQuery(query, suite, SETTINGS);
    const withAxis = new URLSearchParams(asked);
    withAxis.set("axis", query.get("axis"));
    await Promise.all([prediction.load(asked), residual.load(withAxis)]);
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
