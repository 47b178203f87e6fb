// Predicted vs empirical: every cell of a suite, what is left over, and the tests.

import { el, rich } from "../dom.js";
import { go, here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { select } from "../controls.js";
import { axisName, chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, intro, methodPicker, readings, suiteNote, suitePicker,
  thresholds, unitsPicker,
} from "../panel.js";

const SETTINGS = ["method", "clock", "units", "labels", "max_width", "level", "t_mem", "t_gen", "e_train", "e_val"];

export async function view(all) {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the charts" });
  const tests = el("section", { class: "card", "aria-labelledby": "tests-title" });
  const within = el("section", { class: "card", "aria-labelledby": "within-title" });
  let suite;
  const prediction = new ChartCard({
    name: "onset", title: "Predicted and empirical", height: 500,
    onMeta: (meta) => {
      numbers.replaceChildren(...(meta ? [readings(meta)] : []));
      fill(meta);
    },
    onClick: (point) => point.customdata && go("delay", { suite: suite.name, prime: point.customdata[0] }),
  });
  const residual = new ChartCard({ name: "residual", title: "Residual", height: 500 });
  const cards = [prediction, residual];
  const node = el("div", { class: "view" },
    intro("Does grokking start where the speeds cross?",
      "Every cell (one prime at one setting) gives a prediction P_cross and a measured onset P_onset. On the diagonal the claim holds exactly."),
    controls,
    el("div", { class: "columns" },
      el("div", { class: "stack" }, el("div", { class: "pair" }, cards.map((card) => card.node)), tests, within),
      el("div", { class: "stack" }, numbers, explain("How to read this",
        "Left: a point a cell, with intervals of both. Open markers have their onset at an edge of the measured widths and only bound it.",
        "Right: the residual, log₁₀ of P_onset over P_cross. Zero is a perfect prediction; 0.3 is a factor of two. A trend along an axis means that the crossing misses something that depends on it.",
        "The table asks the claim in several ways. A test that these cells cannot carry says so, rather than showing a number; the paper's printed value stands beside ours with its own n."))));

  function fill(meta) {
    const printed = meta?.tests?.some((row) => row.paper);
    tests.hidden = within.hidden = !meta;
    if (!meta) return;
    let last;
    tests.replaceChildren(
      el("h2", { id: "tests-title" }, "The claim, put to the test"),
      printed && !suite.name.endsWith("-released")
        ? el("p", { class: "note" }, `The paper's numbers belong to a model without positions; compare them with suite ${suite.name}-released.`) : "",
      el("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Tests" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Question", "Test", "Value", "p", "n", "What it says", printed && "Paper"].filter(Boolean)
          .map((name) => el("th", { scope: "col", class: ["p", "n"].includes(name) ? "number" : "" }, name)))),
        el("tbody", {}, meta.tests.map((row) => {
          const group = row.group === last ? "" : row.group;
          last = row.group;
          return el("tr", {},
            el("td", {}, group), el("td", { title: row.note }, ...rich(row.name)), el("td", {}, row.value),
            el("td", { class: "number" }, row.p), el("td", { class: "number" }, String(row.n)),
            el("td", { class: "verdict" }, el("span", { class: `note ${row.tone}` }, ...rich(row.verdict))),
            printed && el("td", {}, row.paper));
        })))));
    within.hidden = !meta.settings.length;
    within.replaceChildren(
      el("h2", { id: "within-title" }, "Within each setting"),
      el("div", { class: "table-frame", tabindex: 0, role: "region", "aria-label": "Residuals within each setting" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Setting", "Cells", "Median residual", "Standard deviation", "Verdict"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, meta.settings.map((row) => el("tr", {},
          el("td", {}, row.setting), el("td", {}, row.n), el("td", {}, row.median), el("td", {}, row.std),
          el("td", {}, el("span", { class: `badge ${{ strong: "good", weak: "bad", moderate: "warn" }[row.verdict] ?? ""}` }, row.verdict))))))));
  }

  async function update(query) {
    suite = chosen(all, query);
    const axes = Object.keys(suite.axes).filter((axis) => suite.axes[axis].length > 1);
    settle({
      suite: suite.name, prime: null, axis: query.get("axis") ?? axes[0] ?? "prime",
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    if (document.activeElement?.type !== "range") {
      controls.replaceChildren(suitePicker(all, suite), ...axisPickers(suite, query, { any: true }),
        select("Residual against", "axis", [{ value: "prime", text: "Prime p" }, { value: "k_mem", text: "Dataset complexity" },
          ...axes.map((axis) => ({ value: axis, text: axisName(axis) }))], query.get("axis")),
        methodPicker(query), clockPicker(query), unitsPicker(query),
        suiteNote(suite), thresholds(query, ["t_mem", "t_gen", "e_train", "e_val"], suite));
    }
    const asked = chartQuery(query, suite, SETTINGS);
    const withAxis = new URLSearchParams(asked);
    withAxis.set("axis", query.get("axis"));
    await Promise.all([prediction.load(asked), residual.load(withAxis)]);
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
