// Capacity: how many bits fit into a model, and into a parameter.

import { el, rich } from "../dom.js";
import { here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { refill } from "../controls.js";
import { chosen } from "../suites.js";
import {
  axisPickers, chartQuery, explain, intro, measuring, methodPicker, readings, suiteNote, suitePicker,
} from "../panel.js";

const SETTINGS = ["method", "level"];
// Random labels know no task: axes of the data do not tell capacity runs apart.
const DATA_AXES = ["task", "operation", "train_fraction", "split"];

const modelAxes = (suite) => ({
  ...suite, axes: Object.fromEntries(Object.entries(suite.axes).filter(([axis]) => !DATA_AXES.includes(axis))),
});

const HEIGHT = "clamp(360px, calc(100vh - 320px), 560px)";

// From which size the data of each prime fit into the weights at all.
function thresholds(rows) {
  if (!rows?.length) return "";
  return el("div", { class: "table-frame" }, el("table", { class: "small" },
    el("caption", { class: "visually-hidden" }, "P_mem by prime"),
    el("thead", {}, el("tr", {}, ["p", "n", "K_mem", "P_mem"].map((name) => el("th", { scope: "col", class: "number" }, ...rich(name))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, [row.prime, row.n, row.k_mem, row.p_mem].map((value) =>
      el("td", { class: "number" }, String(value))))))));
}

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the charts", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the charts" });
  const curves = new ChartCard({ name: "capacity", title: "Memorised bits", height: HEIGHT });
  const fit = new ChartCard({
    name: "capacity_fit", title: "Capacity", height: HEIGHT,
    onMeta: (meta) => numbers.replaceChildren(...(meta ? [readings(meta), thresholds(meta.thresholds)] : [])),
  });
  const cards = [curves, fit];
  const node = el("div", { class: "view" },
    intro("How much can a model memorise?",
      "Random labels have no rule to find, so every bit a model gets right is a bit stored in its weights. Where the curve of memorised bits M_T flattens, the model is full."),
    controls,
    el("div", { class: "columns" },
      el("div", { class: "pair" }, cards.map((card) => card.node)),
      numbers), explain("How to read this",
        "First chart: bits memorised against bits in the dataset. On the dashed line everything is memorised; the level at which a curve flattens is that model's capacity (dotted).",
        "Second chart: capacity grows in proportion to parameters. The slope is C_model, in bits per parameter; the paper reports 2.16.",
        "Dividing a dataset's complexity K_mem by C_model gives P_mem, the size from which memorising it is possible at all. Grokking starts at larger sizes: a model that can memorise need not do it quickly.",
        "An open marker is a width whose curve never flattened, or fell past its maximum; its capacity is less certain."));

  async function update(query, all) {
    const suite = chosen(all, query);
    settle({ suite: suite.name, method: query.get("method") ?? suite.analysis?.method ?? "robust" });
    query = here().query;
    refill(controls, suitePicker(all, suite), ...axisPickers(modelAxes(suite), query, { any: true }),
      measuring(query, suite, [methodPicker(query)], ["level"]), suiteNote(suite));
    await Promise.all(cards.map((card) => card.load(chartQuery(query, modelAxes(suite), SETTINGS))));
  }
  return { node, update, redraw: () => cards.forEach((card) => card.redraw()) };
}
