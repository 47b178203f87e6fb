// The law of memorisation: one curve for all primes, once size is counted against the data.

import { el } from "../dom.js";
import { here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, firstSetting, intro, methodPicker, readings,
  suiteNote, suitePicker, thresholds, unitsPicker,
} from "../panel.js";

const SETTINGS = ["method", "clock", "units", "labels", "max_width", "t_mem", "f_min", "f_max"];

export async function view(all) {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the charts" });
  const inverse = new ChartCard({ name: "memorisation_inverse", title: "Against inverse capacity", height: 460 });
  const collapse = new ChartCard({
    name: "memorisation", title: "Against capacity fraction", height: 460,
    onMeta: (meta) => numbers.replaceChildren(...(meta ? [readings(meta)] : [])),
  });
  const cards = [inverse, collapse];
  const node = el("div", { class: "view" },
    intro("What sets the time to memorise?",
      "Larger models memorise faster. Measured against the share f of their capacity that the data fill, models trained on different primes should fall on one curve."),
    controls,
    el("div", { class: "columns" },
      el("div", { class: "pair" }, cards.map((card) => card.node)),
      el("div", { class: "stack" }, numbers, explain("How to read this",
        "Left: time to memorise T_mem against 1/(C·P). Each prime has its own curve, because larger primes mean more bits to memorise.",
        "Right: the same points against f = K_mem/(C·P). If only the filled share matters, the curves collapse onto one, and T_mem grows as e to the a·f inside the shaded window.",
        "Lines are the exponential law and its rivals, fitted on the window; the panel says which of them AIC prefers and whether anything but f still matters. Pale points lie outside the window."))));

  async function update(query) {
    const suite = chosen(all, query);
    settle({
      suite: suite.name, ...firstSetting(suite, query),
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    if (document.activeElement?.type !== "range") {
      controls.replaceChildren(suitePicker(all, suite), ...axisPickers(suite, query), methodPicker(query), clockPicker(query), unitsPicker(query), suiteNote(suite), thresholds(query, ["t_mem"], suite));
    }
    await Promise.all(cards.map((card) => card.load(chartQuery(query, suite, SETTINGS))));
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
