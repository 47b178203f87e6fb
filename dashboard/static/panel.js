// What stands around the charts: headings, numbers, explanations, the controls shared by views.

import { el, rich } from "./dom.js";
import { set } from "./address.js";
import { chips, segmented, select, thresholdSlider } from "./controls.js";
import { axisName, axisValue } from "./suites.js";

export function intro(title, text) {
  return el("div", { class: "intro" }, el("h1", {}, ...rich(title)), el("p", {}, ...rich(text)));
}

export function readings(meta) {
  return el("dl", { class: meta?.readings.length > 5 ? "readings many" : "readings" }, (meta?.readings ?? []).map((reading) => {
    const node = el("div", { class: "reading" },
      el("dt", {}, ...rich(reading.term)),
      el("dd", { class: "value" }, reading.value),
      el("dd", { class: "detail" }, ...rich(reading.detail)));
    node.style.setProperty("--role", `var(--${reading.role}, var(--line-strong))`);
    return node;
  }));
}

export function explain(title, ...paragraphs) {
  return el("section", { class: "card explain" }, el("h2", {}, title),
    paragraphs.map((text) => (typeof text === "string" ? el("p", {}, ...rich(text)) : text)));
}

export function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([colour, text]) => {
    const item = el("li", {}, ...[rich(text)].flat());
    item.style.setProperty("--swatch", `var(--${colour})`);
    return item;
  }));
}

export function suitePicker(all, suite) {
  return select("Suite", "suite", all.map((s) => ({ value: s.name, text: s.name })), suite.name, {
    // Another suite has other primes and axes: only conventions stay.
    onChange: (name) => set({
      suite: name, prime: null, run: null, cursor: null,
      ...Object.fromEntries(Object.keys(suite.axes).map((axis) => [axis, null])),
    }),
  });
}

// What the suite says of itself, in its file.
export function suiteNote(suite) {
  return el("p", { class: "suite-note" }, suite.description);
}

export function axisPickers(suite, query, { any = false } = {}) {
  return Object.entries(suite.axes).filter(([, values]) => values.length > 1).map(([axis, values]) =>
    select(axisName(axis), axis,
      [...(any ? [{ value: "", text: "all" }] : []), ...values.map((v) => ({ value: v, text: axisValue(axis, v) }))],
      query.get(axis) ?? (any ? "" : values[0])));
}

export function primePicker(suite, query, { all = false } = {}) {
  const options = suite.primes.map((prime) => ({ value: prime, text: String(prime) }));
  if (all && suite.primes.length > 1) options.push({ value: "all", text: "All" });
  return chips("Prime p", "prime", options, query.get("prime"));
}

export const methodPicker = (query) => segmented("Method", "method", [
  { value: "robust", text: "Robust", title: "Kaplan–Meier medians, censoring counted, intervals" },
  { value: "paper", text: "Paper", title: "Means over seeds that got there, closest approach" },
], query.get("method") ?? "robust");

export const clockPicker = (query) => segmented("Training clock", "clock", [
  { value: "online", text: "Online", title: "Counted during the epoch, dropout on" },
  { value: "eval", text: "Eval", title: "Counted after the epoch, dropout off" },
], query.get("clock") ?? "online");

export const unitsPicker = (query) => segmented("Time in", "units", [
  { value: "epochs", text: "Epochs" }, { value: "steps", text: "Steps" },
], query.get("units") ?? "epochs");

export function thresholds(query, names, suite) {
  const labels = {
    t_mem: rich("T_mem: memorised at"), t_gen: rich("T_gen: generalised at"),
    e_train: rich("ΔE starts: train at"), e_val: rich("ΔE ends: validation at"),
  };
  const written = suite.analysis?.thresholds ?? {};
  const usual = { t_mem: 0.99, t_gen: 0.99, e_train: 0.99, e_val: 0.98, ...written };
  const changed = names.some((name) => query.has(name));
  const reset = el("button", { type: "button", class: "button", hidden: !changed,
    onclick: () => set(Object.fromEntries(names.map((name) => [name, null]))) }, "Back to the suite's own");
  return el("details", { class: "more", open: changed },
    el("summary", {}, "Accuracy thresholds"),
    el("div", { class: "sliders" }, names.map((name) =>
      thresholdSlider(labels[name], name, Number(query.get(name) ?? usual[name]), suite.max_threshold ?? 0.99)), reset));
}

// The parameters of a chart: what the view's address says, limited to names the route knows.
export function chartQuery(query, suite, names) {
  const kept = new URLSearchParams();
  kept.set("suite", suite.name);
  for (const [name, value] of query) {
    if (value !== "" && (names.includes(name) || name in suite.axes)) kept.set(name, value);
  }
  return kept;
}

// Axes a link leaves out take their first value, so that one cell is meant.
export function firstSetting(suite, query) {
  return Object.fromEntries(Object.entries(suite.axes)
    .filter(([axis, values]) => values.length > 1 && !query.get(axis))
    .map(([axis, values]) => [axis, values[0]]));
}

export function guide(suite) {
  if (suite.name !== "demo" || localStorage.getItem("groktime-guided")) return null;
  const box = el("aside", { class: "guide", "aria-label": "About the demonstration data" },
    el("p", {}, ...rich("You are looking at the demonstration: models of a few sizes, a few seeds each, trained on this machine. Read the chart from left to right: small models generalise before they could memorise (purple above orange), so training and validation rise together and the delay is zero. Where the purple curve falls below the orange one, memorising becomes the faster way, and delays appear. That is P_cross, and the claim is that grokking starts there.")),
    el("button", { type: "button", onclick: () => { localStorage.setItem("groktime-guided", "1"); box.remove(); } }, "Got it"));
  return box;
}
