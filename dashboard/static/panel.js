// What stands around the charts: headings, numbers, explanations, the controls shared by views.

import { el, rich } from "./dom.js";
import { path, set } from "./address.js";
import { chips, numberField, segmented, select, thresholdSlider } from "./controls.js";
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
      suite: name, prime: null, run: null, cursor: null, page: null, axis: null, labels: null, max_width: null,
      ...Object.fromEntries(Object.keys(suite.axes).map((axis) => [axis, null])),
    }),
  });
}

// What the suite says of itself, in its file, and where its runs came from if not from here.
export function suiteNote(suite) {
  return el("div", { class: "suite-note" },
    suite.description && el("p", {}, suite.description), suite.recorded && recording(suite.recorded));
}

function recording(made) {
  const at = new Date(made.trained_until ?? made.dumped_at);
  const date = at.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric", timeZone: "UTC" });
  const versions = Object.entries(made.versions ?? {}).map(([name, version]) => `${name} ${version}`);
  const main = versions.filter((text) => /^(groktime|torch) /.test(text));
  const facts = [
    ...(made.fingerprints ?? []).map((text) => `trained by ${text}`),
    versions.length && `versions: ${versions.join(", ")}`,
    made.git_commit && `commit ${made.git_commit.slice(0, 12)}`,
    made.thinning && `curves keep ${made.thinning}`,
  ];
  return el("details", { class: "recorded" },
    el("summary", {}, el("span", { class: "badge" }, "recorded"),
      [` on ${date}`, ...(made.devices ?? []), ...(made.engines ?? []).map((name) => `${name} engine`), ...main].join(" · ")),
    el("ul", {}, facts.filter(Boolean).map((text) => el("li", {}, text))));
}

export function axisPickers(suite, query, { any = false, onChange } = {}) {
  return Object.entries(suite.axes).filter(([, values]) => values.length > 1).map(([axis, values]) =>
    select(axisName(axis), axis,
      [...(any ? [{ value: "", text: "all" }] : []), ...values.map((v) => ({ value: v, text: axisValue(axis, v) }))],
      query.get(axis) ?? (any ? "" : values[0]), { onChange: onChange && ((value) => onChange(axis, value)) }));
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

const THRESHOLDS = {
  t_mem: "T_mem: memorised at", t_gen: "T_gen: generalised at",
  e_train: "ΔE starts: train at", e_val: "ΔE ends: validation at",
};
const LEVELS = [0.8, 0.9, 0.95, 0.99];

// What few visitors change: thresholds, widths, intervals. `more` adds fields of one view.
export function fineSettings(query, suite, names, more = {}) {
  const own = suite.analysis?.thresholds ?? {};
  const usual = { t_mem: 0.99, t_gen: 0.99, e_train: 0.99, e_val: 0.98, ...own };
  const widest = suite.analysis?.max_width;
  const level = Number(query.get("level") ?? 0.95);
  const fields = {
    max_width: () => numberField("Widths up to", "max_width", query.get("max_width"), { min: 2, step: 1, placeholder: widest ?? "all" }),
    level: () => select("Intervals", "level",
      [...new Set([...LEVELS, level])].sort().map((value) => ({ value, text: `${value * 100} %` })), level),
    ...more,
  };
  const sliders = names.filter((name) => name in THRESHOLDS);
  const others = names.filter((name) => name in fields);
  const changed = names.some((name) => query.has(name));
  const reset = el("button", { type: "button", class: "button", hidden: !changed,
    onclick: () => set(Object.fromEntries(names.map((name) => [name, null]))) }, "Back to the suite's own");
  return el("details", { class: "more", open: changed },
    el("summary", {}, "Thresholds, widths, intervals"),
    el("p", { class: "hint" }, "Accuracies are rungs of the stored ladder, 50 % to 99.9 %. Runs that stopped at an accuracy cannot tell what came after it; a chart that would need it says so."),
    el("div", { class: "sliders" }, sliders.map((name) =>
      thresholdSlider(rich(THRESHOLDS[name]), name, Number(query.get(name) ?? usual[name]), { onMove: () => (reset.hidden = false) }))),
    el("div", { class: "inline-form" }, others.map((name) => fields[name]()), reset));
}

// Speed runs with random labels, or with the task's own labels shuffled, where a suite has both.
export const labelsPicker = (suite, query) => (suite.labels.length < 2 ? null : segmented("Labels", "labels",
  suite.labels.map((value) => ({ value, text: value.charAt(0).toUpperCase() + value.slice(1) })), query.get("labels") ?? "random"));

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

// The demonstration, explained with the numbers that its chart shows.
export function guide(suite, meta, all) {
  if (suite.name !== "demo" || !meta || localStorage.getItem("groktime-guided")) return null;
  const [cross, onset] = meta.readings;
  const found = cross.value === "–"
    ? "Here the two curves do not cross within the widths that were trained."
    : `Here they cross at P_cross = ${cross.value} (${cross.detail}).`;
  const started = onset.value === "–" ? `Onset: ${onset.detail}.` : `Delays start at P_onset = ${onset.value}.`;
  const recorded = all.filter((other) => other.recorded && other.name !== suite.name);
  const box = el("aside", { class: "guide", "aria-label": "About the demonstration data" },
    el("div", {},
      el("p", {}, el("strong", {}, "You are looking at the demonstration: "), `${suite.states.done} small models, trained on this machine.`),
      el("ol", {},
        el("li", {}, ...rich("Start at the left. Where the purple curve T_mem lies above the orange T_gen, generalising is the quicker way: training and validation rise together, and the delay is zero.")),
        el("li", {}, ...rich(`Follow both to the right. Memorising speeds up faster with size. ${found}`)),
        el("li", {}, ...rich(`Beyond it a model can fit its data before it generalises: the points leave zero, and that is grokking. ${started} The claim is that both sizes agree.`)),
        el("li", {}, "Click a point to see the training and validation curves behind it."),
        recorded.length > 0 && el("li", {}, "Results that were trained longer, over more primes, are recorded in ",
          recorded.map((other, i) => [i ? ", " : "", el("a", { "data-link": true, href: path("delay", { suite: other.name, prime: "all" }) }, other.name)]), "."))),
    el("button", { type: "button", onclick: () => { localStorage.setItem("groktime-guided", "1"); box.remove(); } }, "Got it"));
  return box;
}
