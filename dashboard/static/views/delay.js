// Delay vs P: the paper's first figure, for one prime or for all.

import { ask, prefetch } from "../api.js";
import { el, rich } from "../dom.js";
import { changed, go, here, path, settle } from "../address.js";
import { ChartCard, sharedCaption } from "../chart-card.js";
import { refill, segmented } from "../controls.js";
import { compact, forgetPlots, logDelay } from "../drawing.js";
import { chosen } from "../suites.js";
import {
  axisPickers, chartQuery, clockPicker, explain, explained, intro, labelsPicker, legend, measuring,
  methodPicker, primePicker, readings, story, suiteNote, suitePicker, unitsPicker, verdict,
} from "../panel.js";

const FINE = ["t_mem", "t_gen", "e_train", "e_val", "min_delay", "min_delay_share", "max_width", "level"];
const SETTINGS = ["prime", "method", "clock", "units", "labels", "arrangement", ...FINE];
const REFRESH_MS = 2500;
const PAINT_MS = 400; // of small multiples: painted so often, not after each, because it takes as long
const whenIdle = window.requestIdleCallback ?? setTimeout;

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Settings of the chart", onsubmit: (e) => e.preventDefault() });
  const numbers = el("section", { class: "card", "aria-label": "Numbers of the chart" });
  const place = el("div", { class: "stack" });
  const told = el("div", {});
  const caption = el("p", { class: "caption" });
  const node = el("div", { class: "view" },
    intro("Where does grokking start?",
      "A model groks when it fits its data long before it generalises. The claim: this starts at P_cross, where memorising becomes the faster way."),
    controls, el("div", { class: "columns" }, place, numbers), told, words());

  let suite;
  let cards = [];
  let timer;
  let asking; // for the charts of all primes
  const scaled = (figure) => (here().query.get("scale") === "log" ? logDelay(figure) : figure);
  const single = new ChartCard({
    name: "delay", title: "Delay and speeds", height: "clamp(400px, calc(100vh - 300px), 680px)", adapt: scaled,
    onMeta: (meta) => {
      numbers.replaceChildren(...(meta ? [verdict(meta.verdict), readings(meta)] : []));
      told.replaceChildren(...[story(meta)].filter(Boolean));
    },
    onClick: ({ data, customdata }) => {
      // A faint point is one run, a strong one all seeds of its width; the curves are no runs.
      const runs = data.meta === "detail" ? customdata[0] : customdata?.[3];
      if (runs) go("runs", changed({ suite: suite.name, kind: "grok", prime: here().query.get("prime") }, { run: runs }));
    },
  });

  async function update(query, all) {
    suite = chosen(all, query);
    settle({
      suite: suite.name,
      method: query.get("method") ?? suite.analysis?.method ?? "robust",
      clock: query.get("clock") ?? suite.analysis?.clock ?? "online",
    });
    query = here().query;
    refill(controls,
      suitePicker(all, suite), ...axisPickers(suite, query), primePicker(suite, query, { all: true }),
      measuring(query, suite, [
        methodPicker(query), clockPicker(query), unitsPicker(query), labelsPicker(suite, query),
        explained(segmented("Delay axis", "scale", [{ value: "linear", text: "Linear" }, { value: "log", text: "Log" }], query.get("scale") ?? "linear"),
          "On a log axis a delay of zero has a place of its own below 1."),
        explained(segmented("Figure", "arrangement", [{ value: "panels", text: "Two panels" }, { value: "twin", text: "Paper's" }], query.get("arrangement") ?? "panels"),
          "Delays above speeds over one axis of P, or both in one plot with two axes as in the paper."),
      ], FINE), suiteNote(suite));
    asking?.abort();
    const several = query.get("prime") === "all";
    numbers.hidden = several;
    place.parentNode.classList.toggle("alone", several);
    if (several) return multiples(query);
    cards = [single];
    if (single.node.parentNode !== place) place.replaceChildren(single.node); // taken out, it would be laid out anew
    await single.load(chartQuery(query, suite, SETTINGS));
    neighbours(query);
  }

  // The primes beside the one that is shown are asked for when there is nothing else to do.
  function neighbours(query) {
    const at = suite.primes.indexOf(Number(query.get("prime")));
    for (const prime of [suite.primes[at + 1], suite.primes[at - 1]].filter((one) => one && !suite.untrained.includes(one))) {
      const route = `/charts/delay?${changed(chartQuery(query, suite, SETTINGS), { prime })}`;
      whenIdle(() => here().query.get("prime") === query.get("prime") && prefetch(route));
    }
  }

  async function multiples(query) {
    told.replaceChildren();
    cards = suite.primes.map((prime) => {
      const aside = el("span", { class: "aside" });
      const card = new ChartCard({
        name: "delay", title: `p = ${prime}`, height: 280, level: "h3",
        config: { displayModeBar: false },
        adapt: (figure) => compact(scaled(figure)),
        onMeta: (meta) => {
          card.heading.replaceChildren(el("a", { href: path("delay", changed(query, { prime })), "data-link": true }, `p = ${prime}`));
          aside.replaceChildren(...(meta ? rich(`P_cross ${meta.readings[0].value} · P_onset ${meta.readings[1].value}`) : []));
        },
      });
      card.node.classList.add("multiple");
      card.heading.after(aside);
      return card;
    });
    for (const panel of place.querySelectorAll(".multiples")) forgetPlots(panel);
    place.replaceChildren(el("div", { class: "multiples" }, cards.map((card) => card.node)), caption);
    await fill(chartQuery(query, suite, SETTINGS));
  }

  // One question for all primes. What is on the screen is drawn first; the rest when that is seen.
  async function fill(query) {
    asking?.abort();
    const { signal } = (asking = new AbortController());
    const mine = cards;
    mine.forEach((card, i) => card.wait(changed(query, { prime: suite.primes[i] })));
    try {
      const { charts } = await ask(`/charts/delay/primes?${query}`, { signal });
      const missing = { problem: { status: 409, detail: "It has no runs yet." } };
      const found = mine.map((card, i) => [card, charts.find(({ prime }) => prime === suite.primes[i]) ?? missing]);
      const seen = mine.filter((card) => card.node.getBoundingClientRect().top < innerHeight);
      for (const [card, chart] of found) card.tell(chart);
      caption.replaceChildren(...rich(sharedCaption(mine)));
      await drawn(seen, signal);
      if (seen.length < mine.length) whenIdle(() => drawn(mine.filter((card) => !seen.includes(card)), signal));
    } catch (error) {
      if (error.name !== "AbortError") for (const card of mine) card.refuse(error);
    }
  }

  // Charts are drawn one after the other and seen as they come.
  async function drawn(some, signal) {
    let painted = performance.now();
    for (const card of some) {
      if (signal.aborted) return;
      await card.redraw();
      if (performance.now() - painted > PAINT_MS) {
        await new Promise((resolve) => setTimeout(resolve)); // the browser paints
        painted = performance.now();
      }
    }
  }

  async function redraw() {
    await Promise.all(cards.map((card) => card.redraw()));
  }

  function heard(event) {
    if (event.suite !== here().query.get("suite")) return;
    clearTimeout(timer);
    const again = () => (cards[0] === single ? single.load(single.query) : fill(changed(cards[0].query, { prime: "all" })));
    timer = setTimeout(again, REFRESH_MS);
  }

  const leave = () => {
    clearTimeout(timer);
    asking?.abort();
  };
  return { node, update, heard, redraw, leave };
}

function words() {
  return explain("How to read this",
    el("p", {}, "Each point is a model. Its height is the ", el("strong", {}, "delay ΔE"),
      ": epochs between fitting the training set and generalising. Faint points are single seeds, strong ones the least delay over seeds; colour is the width."),
    el("p", {}, "The curves are two speeds: ", el("span", { class: "gen" }, ...rich("T_gen")), ", the time to generalise, and ",
      el("span", { class: "mem" }, ...rich("T_mem")), ", the time to memorise random labels worth as many bits. Bands reach from the fastest to the slowest seed; an arrow means not reached, a cross that a seed diverged."),
    "The dashed line is P_cross with its confidence band, the green line P_onset. The dotted line is P_mem, where the data would first fit into the weights; the paper finds it well below.",
    legend([
      ["under_capacity", "under capacity: training never fitted"],
      ["immediate", "generalises at once: no delay"],
      ["grokking", "grokking: fits first, generalises later"],
      ["memorised_only", "memorised only: never generalised in time"],
    ]));
}
