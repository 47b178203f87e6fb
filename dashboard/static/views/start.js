// The first page: the claim, one figure, three numbers with their intervals, and where to go next.

import { el, rich } from "../dom.js";
import { here, path } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { chosen } from "../suites.js";
import { chartQuery, readings, story, verdict } from "../panel.js";

const SETTINGS = ["prime", "method", "clock"];

export function view() {
  const answer = el("section", { class: "card answer", "aria-label": "The answer" });
  const next = el("section", { class: "card next", "aria-labelledby": "next-title" });
  const told = el("div", {});
  let suite;
  let known = [];
  const chart = new ChartCard({
    name: "delay", title: "Delay and speeds", height: "clamp(380px, calc(100vh - 270px), 640px)",
    onMeta: (meta) => {
      answer.replaceChildren(...(meta ? [verdict(meta.verdict), readings(meta, 3)] : []));
      told.replaceChildren(...[story(meta)].filter(Boolean));
      if (meta) chart.heading.replaceChildren(...rich(`${meta.title}, suite ${suite.name}`));
    },
  });
  const node = el("div", { class: "view start" },
    el("div", { class: "intro claim" },
      el("h1", {}, "Does grokking start where memorising becomes faster than generalising?"),
      el("p", {}, ...rich("The claim: a network starts to grok (fit its training data long before it generalises) at the size P_cross where the two speeds cross. "),
        el("a", { href: "https://arxiv.org/abs/2605.09724" }, "arXiv 2605.09724"))),
    el("div", { class: "columns" }, chart.node, el("div", { class: "stack" }, answer, next)), told);

  async function update(query, all) {
    known = all;
    suite = chosen(all, query);
    query = here().query;
    leads(query);
    await chart.load(chartQuery(query, suite, SETTINGS));
  }

  // Where to go next, each with what is there.
  function leads(query) {
    const kept = chartQuery(query, suite, SETTINGS);
    const of = { suite: suite.name };
    const lead = (name, asked, text, more) => el("li", {}, el("a", { "data-link": true, href: path(name, asked) }, text), ` ${more}`);
    const others = known.filter((other) => other.name !== suite.name && other.states.done);
    next.replaceChildren(
      el("h2", { id: "next-title" }, "Where to go next"),
      el("ul", {},
        suite.primes.length > 1 && lead("onset", of, `All ${suite.primes.length} primes`, "and the tests: does it hold everywhere?"),
        lead("delay", kept, "This chart", "with its settings and thresholds."),
        lead("memorisation", of, "Time to memorise", "and what sets it."),
        lead("runs", of, "Every run", "and its curves."),
        others.length > 0 && el("li", {}, el("details", { class: "others" }, el("summary", {}, `Other suites (${others.length})`),
          others.map((other, i) => [i ? ", " : "", el("a", { "data-link": true, href: path("onset", { suite: other.name }) }, other.name)]))),
        el("li", {}, "The same answer in a shell: ", el("code", {}, `curl '${location.origin}/crossing?suite=${suite.name}&prime=${query.get("prime") ?? ""}'`))));
  }

  return { node, update, heard: (event) => event.suite === suite?.name && chart.load(chart.query), redraw: () => chart.redraw() };
}
