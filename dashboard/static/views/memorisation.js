// The law of memorisation: one curve for all primes, once size is counted against the data.

import { el } from "../dom.js";
import { here, set, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { numberField, refill } from "../controls.js";
import { chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, intro, labelsPicker, measuring, methodPicker, readings,
  suiteNote, suitePicker, unitsPicker,
} from "../panel.js";

const FINE = ["t_mem", "max_width", "f_min", "f_max"];
const SETTINGS = ["method", "clock", "units", "labels", ...FINE];

// The window of f that the fits use; both ends go together.
function windowFields(query, suite) {
  const usual = suite.analysis?.fraction_window ?? [0, 0.25];
  const end = (label, name, i) => () => numberField(label, name, query.get(name) ?? usual[i], {
    min: 0, step: "any",
    onChange: (value) => set({ f_min: query.get("f_min") ?? usual[0], f_max: query.get("f_max") ?? usual[1], [name]: value || usual[i] }),
  });
  return { f_min: end("Fit from f =", "f_min", 0), f_max: end("to f =", "f_max", 1) };
}

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the charts" });
  const inverse = new ChartCard({ name: "memorisation_inverse", title: "Against inverse capacity", height: "clamp(360px, calc(100vh - 320px), 560px)" });
  const collapse = new ChartCard({
    name: "memorisation", title: "Against capacity fraction", height: "clamp(360px, calc(100vh - 320px), 560px)",
    onMeta: (meta) => numbers.replaceChildren(...(meta ? [readings(meta)] : [])),
  });
  const cards = [inverse, collapse];
  const node = el("div", { class: "view" },
    intro("What sets the time to memorise?",
      "Larger models memorise faster. Measured against the share f of their capacity that the data fill, models trained on different primes should fall on one curve."),
    controls,
    el("div", { class: "columns" },
      el("div", { class: "pair" }, cards.map((card) => card.node)),
      numbers), explain("How to read this",
        "First chart: time to memorise T_mem against 1/(C·P). Each prime has its own curve, because larger primes mean more bits to memorise; lines are the exponential law fitted to each.",
        "Second chart: the same points against f = K_mem/(C·P). If only the filled share matters, the curves collapse onto one, and T_mem grows as e to the a·f inside the shaded window.",
        "Lines are the exponential law and its rivals, fitted on the window; the panel says which of them AICc prefers, and whether P matters beyond f. Pale points lie outside the window. Primes are coloured from yellow (small) to blue (large)."));

  async function update(query, all) {
    const suite = chosen(all, query);
    settle({
      suite: suite.name,
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    refill(controls, suitePicker(all, suite), ...axisPickers(suite, query),
      measuring(query, suite, [methodPicker(query), clockPicker(query), unitsPicker(query), labelsPicker(suite, query)],
        FINE, windowFields(query, suite)),
      suiteNote(suite));
    await Promise.all(cards.map((card) => card.load(chartQuery(query, suite, SETTINGS))));
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
