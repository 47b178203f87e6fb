// Delay vs P: the paper's first figure, for one prime or for all.

import { el, rich } from "../dom.js";
import { changed, here, path, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { segmented } from "../controls.js";
import { compact, forgetPlots, logDelay } from "../drawing.js";
import { chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, firstSetting, guide, intro, legend, methodPicker,
  primePicker, readings, suiteNote, suitePicker, thresholds, unitsPicker,
} from "../panel.js";

const SETTINGS = ["prime", "method", "clock", "units", "labels", "max_width", "level", "t_mem", "t_gen", "e_train", "e_val"];
const THRESHOLDS = ["t_mem", "t_gen", "e_train", "e_val"];

export async function view(all) {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the chart", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the chart" });
  const place = el("div", { class: "stack" });
  const side = el("div", { class: "stack" }, numbers, words());
  const note = el("div", {});
  const node = el("div", { class: "view" },
    intro("Where does grokking start?",
      "A model groks when it fits its training data long before it generalises. The claim: that begins at the size P_cross where memorising becomes faster than generalising."),
    note, controls, el("div", { class: "columns" }, place, side));

  let cards = [];
  const single = new ChartCard({
    name: "delay", title: "Delay and speeds", height: 600,
    adapt: (figure) => (here().query.get("scale") === "log" ? logDelay(figure) : figure),
    onMeta: (meta) => numbers.replaceChildren(...(meta ? [readings(meta)] : [])),
    onClick: (point) => point.customdata?.length === 4 && location.assign(path("runs", { run: point.customdata[0], suite: here().query.get("suite") })),
  });

  async function update(query) {
    const suite = chosen(all, query);
    const prime = query.get("prime") ?? middle(suite.primes);
    settle({
      suite: suite.name, ...firstSetting(suite, query), prime,
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    drawControls(suite, query);
    note.replaceChildren(...[guide(suite)].filter(Boolean));
    side.hidden = prime === "all";
    side.parentElement.style.gridTemplateColumns = prime === "all" ? "minmax(0, 1fr)" : "";
    if (prime === "all") return multiples(suite, query);
    cards = [single];
    place.replaceChildren(single.node);
    await single.load(chartQuery(query, suite, SETTINGS));
  }

  function drawControls(suite, query) {
    const active = document.activeElement;
    if (controls.contains(active) && active.type === "range") return; // a slider being moved
    const focus = active?.dataset?.setting && [active.dataset.setting, active.value];
    const open = controls.querySelector("details")?.open;
    controls.replaceChildren(
      suitePicker(all, suite), ...axisPickers(suite, query), primePicker(suite, query, { all: true }),
      methodPicker(query), clockPicker(query), unitsPicker(query),
      segmented("Delay axis", "scale", [{ value: "linear", text: "Linear" }, { value: "log", text: "Log" }], query.get("scale") ?? "linear"),
      suiteNote(suite), thresholds(query, THRESHOLDS, suite));
    if (open) controls.querySelector("details").open = true;
    if (focus) controls.querySelector(`[data-setting="${focus[0]}"][value="${focus[1]}"]`)?.focus();
  }

  async function multiples(suite, query) {
    cards = suite.primes.map((prime) => {
      const aside = el("span", { class: "aside" });
      const card = new ChartCard({
        name: "delay", title: `p = ${prime}`, height: 236, level: "h3",
        config: { displayModeBar: false },
        adapt: (figure) => compact(here().query.get("scale") === "log" ? logDelay(figure) : figure),
        onMeta: (meta) => {
          card.heading.replaceChildren(el("a", { href: path("delay", changed(query, { prime })), "data-link": true }, `p = ${prime}`));
          aside.replaceChildren(...(meta ? rich(`P_cross ${meta.readings[0].value} · P_onset ${meta.readings[1].value}`) : []));
        },
      });
      card.node.classList.add("multiple");
      card.node.querySelector(".card-head").append(aside);
      return card;
    });
    for (const panel of place.querySelectorAll(".multiples")) forgetPlots(panel);
    place.replaceChildren(el("div", { class: "multiples" }, cards.map((card) => card.node)));
    await Promise.all(cards.map((card, i) => card.load(changed(chartQuery(query, suite, SETTINGS), { prime: suite.primes[i] }))));
  }

  return { node, update, redraw: () => cards.forEach((card) => card.redraw()), heard: refresh };

  function refresh(event) {
    const query = here().query;
    if (event.suite && event.suite !== query.get("suite")) return;
    clearTimeout(refresh.timer);
    refresh.timer = setTimeout(() => cards.forEach((card) => card.load(card.query)), 2500);
  }
}

const middle = (values) => values[Math.floor((values.length - 1) / 2)];

function words() {
  return explain("How to read this",
    el("p", {}, "Each point is a model. Its height (left axis) is the ", el("strong", {}, "delay ΔE"),
      ": epochs between fitting the training set and generalising. Faint points are single seeds, strong ones the least delay over seeds; colour is the width."),
    el("p", {}, "The curves (right axis) are two speeds: ", el("span", { class: "gen" }, ...rich("T_gen")), ", the time to generalise, and ",
      el("span", { class: "mem" }, ...rich("T_mem")), ", the time to memorise random labels worth as many bits. Bands reach from the fastest to the slowest seed; an arrow means not reached."),
    "The dashed crosshair is P_cross with its confidence band, the green line P_onset. P_mem, where the data would first fit into the weights, lies well below.",
    legend([
      ["under_capacity", "under capacity: training never fitted"],
      ["immediate", "generalises at once: no delay"],
      ["grokking", "grokking: fits first, generalises later"],
      ["memorised_only", "memorised only: never generalised in time"],
    ]));
}
