// Predicted vs empirical: every cell of a suite, what is left over, and the tests.

import { el, rich } from "../dom.js";
import { go, here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { refill, select } from "../controls.js";
import { axisName, chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, fineSettings, intro, labelsPicker, methodPicker, readings, suiteNote,
  suitePicker, unitsPicker,
} from "../panel.js";

const FINE = ["t_mem", "t_gen", "e_train", "e_val", "max_width", "level"];
const SETTINGS = ["method", "clock", "units", "labels", ...FINE];
const TONES = { strong: "good", weak: "bad", moderate: "warn" };

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the charts" });
  const tests = el("section", { class: "card", "aria-labelledby": "tests-title" });
  const within = el("section", { class: "card", "aria-labelledby": "within-title" });
  let suite;
  let axes = [];
  const prediction = new ChartCard({
    name: "onset", title: "Predicted and empirical", height: 500,
    onMeta: (meta) => {
      numbers.replaceChildren(...(meta ? [readings(meta)] : []));
      fill(meta);
    },
    onClick: (point) => point.customdata && go("delay", cellQuery(point.customdata)),
  });
  const residual = new ChartCard({
    name: "residual", title: "Residual", height: 500,
    onClick: (point) => point.customdata && go("delay", cellQuery(point.customdata)),
  });
  const cards = [prediction, residual];
  const node = el("div", { class: "view" },
    intro("Does grokking start where the speeds cross?",
      "Every cell (one prime at one setting) gives a prediction P_cross and a measured onset P_onset. On the diagonal the claim holds exactly."),
    controls,
    el("div", { class: "columns" },
      el("div", { class: "pair" }, cards.map((card) => card.node)),
      el("div", { class: "stack" }, numbers, explain("How to read this",
        "First: a point a cell, with intervals of both. Open markers have their onset at an edge of the measured widths and only bound it. Click a point to see its cell.",
        "Second: the residual, log₁₀ of P_onset over P_cross. Zero is a perfect prediction; 0.3 is a factor of two. A trend along an axis means that the crossing misses something that depends on it.",
        "The table asks the claim in several ways. A test that these cells cannot carry says so, rather than showing a number; the paper's printed value stands beside ours with its own n."))),
    tests, within);

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
    let last;
    tests.replaceChildren(
      el("h2", { id: "tests-title" }, "The claim, put to the test"),
      meta.paper ? el("p", { class: "note" }, meta.paper.note) : "",
      table("Tests", ["Question", "Test", "Value", "p", "n", "What it says", ...paper], meta.tests.map((row) => {
        const group = row.group === last ? "" : row.group;
        last = row.group;
        return [
          group, el("div", {}, ...rich(row.name), row.note && el("small", {}, row.note)), row.value, row.p, String(row.n),
          el("span", { class: `verdict note ${row.tone}` }, ...rich(row.verdict)), ...(meta.paper ? [row.paper] : []),
        ];
      })),
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
        { value: "last_batch", text: "Last batch" },
        ...axes.map((axis) => ({ value: axis, text: axisName(axis) }))], query.get("axis")),
      methodPicker(query), clockPicker(query), unitsPicker(query), labelsPicker(suite, query),
      suiteNote(suite), fineSettings(query, suite, FINE));
    const asked = chartQuery(query, suite, SETTINGS);
    const withAxis = new URLSearchParams(asked);
    withAxis.set("axis", query.get("axis"));
    await Promise.all([prediction.load(asked), residual.load(withAxis)]);
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
