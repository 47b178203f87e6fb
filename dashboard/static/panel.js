// What stands around the charts: headings, numbers, explanations, the controls shared by views.

import { el, rich } from "./dom.js";
import { set } from "./address.js";
import { chips, numberField, segmented, select, thresholdSlider } from "./controls.js";
import { axisName, axisValue } from "./suites.js";

export function intro(title, text) {
  return el("div", { class: "intro" }, el("h1", {}, ...rich(title)), el("p", {}, ...rich(text)));
}

export function readings(meta, most = Infinity) {
  return el("dl", { class: "readings" }, (meta?.readings ?? []).slice(0, most).map((reading) => {
    const node = el("div", { class: "reading", dataset: { term: reading.term } },
      el("dt", {}, ...rich(reading.term)),
      el("dd", { class: "value" }, reading.value),
      el("dd", { class: "detail" }, ...rich(reading.detail)));
    node.style.setProperty("--role", `var(--${reading.role}, var(--line-strong))`);
    return node;
  }));
}

// Does the claim hold in what is shown? In the colour of the answer.
export const verdict = (note) => note && el("p", { class: `verdict-line ${note.tone}` }, ...rich(note.text));

export function explain(title, ...paragraphs) {
  return el("section", { class: "card explain" }, el("h2", {}, title),
    el("div", { class: "reading-matter" }, paragraphs.map((text) => (typeof text === "string" ? el("p", {}, ...rich(text)) : text))));
}

export function legend(entries) {
  return el("ul", { class: "legend" }, entries.map(([colour, text]) => {
    const item = el("li", {}, ...[rich(text)].flat());
    item.style.setProperty("--swatch", `var(--${colour})`);
    return item;
  }));
}

export function suitePicker(all, suite) {
  return select("Suite", "suite", all.map((s) => ({ value: s.name, text: s.states.done || s.inherited ? s.name : `${s.name} · untrained` })), suite.name, {
    // Another suite has other primes and axes: only conventions stay.
    onChange: (name) => set({
      suite: name, prime: null, run: null, cursor: null, page: null, axis: null, labels: null, max_width: null,
      ...Object.fromEntries(Object.keys(suite.axes).map((axis) => [axis, null])),
    }),
  });
}

// What the suite says of itself, in its file, and where its runs came from: folded behind one line.
export function suiteNote(suite) {
  return el("details", { class: "pop about" },
    el("summary", { class: "quiet-button" }, "About ", el("span", { class: "wide" }, "this suite")),
    el("div", { class: "pop-panel suite-note" },
      suite.description && el("p", {}, suite.description), suite.recorded && recording(suite.recorded),
      el("p", {}, el("a", { href: `/suites/${suite.name}/report` }, "Its report"), " has every number, test and table.")));
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
  return el("div", { class: "recorded" },
    el("p", {}, el("span", { class: "badge" }, "recorded"),
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
  const untrained = new Set(suite.untrained);
  const options = suite.primes.map((prime) => ({ value: prime, text: untrained.has(prime) ? `${prime} · untrained` : String(prime) }));
  if (all && suite.primes.length > 1) options.push({ value: "all", text: "All" });
  return chips("Prime p", "prime", options, query.get("prime"));
}

// What the words of the choices mean: nobody should have to know our language.
const MEANINGS = {
  robust: "Robust: medians over all seeds, runs stopped early included, with intervals.",
  paper: "Paper: the released code's rules, means over the seeds that reached the threshold and the closest approach of the curves.",
  online: "Online: training accuracy is read during the epoch, with dropout, as the paper does.",
  eval: "Eval: training accuracy is read after the epoch, without dropout.",
};

// A choice between words, each explained on hover, and both beneath.
const worded = (label, name, values, chosen) => explained(
  segmented(label, name, values.map((value) => ({ value, text: value.charAt(0).toUpperCase() + value.slice(1), title: MEANINGS[value] })), chosen),
  values.map((value) => MEANINGS[value]).join(" "));

export const methodPicker = (query) => worded("Method", "method", ["robust", "paper"], query.get("method") ?? "robust");

export const clockPicker = (query) => worded("Training clock", "clock", ["online", "eval"], query.get("clock") ?? "online");

export const unitsPicker = (query) => explained(segmented("Time in", "units", [
  { value: "epochs", text: "Epochs" }, { value: "steps", text: "Steps" },
], query.get("units") ?? "epochs"), "An epoch sees every example once; a step is one batch.");

// A choice with what it means beneath it: nobody should have to know our words.
export function explained(control, text) {
  if (!control) return null;
  const id = `about-${control.querySelector("input").name}`;
  control.querySelector(".segments").setAttribute("aria-describedby", id);
  control.append(el("p", { class: "hint", id }, text));
  return control;
}

const THRESHOLDS = {
  t_mem: "T_mem: memorised at", t_gen: "T_gen: generalised at",
  e_train: "ΔE starts: train at", e_val: "ΔE ends: validation at",
};
const LEVELS = [0.8, 0.9, 0.95, 0.99];

// How the numbers are made, folded behind a line that says it: choices first, then what few change
// (thresholds, widths, intervals). `more` adds fields of one view.
export function measuring(query, suite, choices, names, more = {}) {
  const own = suite.analysis?.thresholds ?? {};
  const usual = { t_mem: 0.99, t_gen: 0.99, e_train: 0.99, e_val: 0.98, ...own };
  const widest = suite.analysis?.max_width;
  const least = suite.analysis ?? {};
  const level = Number(query.get("level") ?? 0.95);
  const fields = {
    max_width: () => numberField("Widths up to", "max_width", query.get("max_width"), { min: 2, step: 1, placeholder: widest ?? "all" }),
    min_delay: () => numberField("Delayed from, epochs", "min_delay", query.get("min_delay"), { min: 1, step: 1, placeholder: least.min_delay ?? 1 }),
    min_delay_share: () => numberField("and from, share of E_train", "min_delay_share", query.get("min_delay_share"), { min: 0, step: "any", placeholder: least.min_delay_share ?? 0 }),
    level: () => select("Intervals", "level",
      [...new Set([...LEVELS, level])].sort().map((value) => ({ value, text: `${value * 100} %` })), level),
    ...more,
  };
  const sliders = names.filter((name) => name in THRESHOLDS);
  const others = names.filter((name) => name in fields);
  const changed = names.some((name) => query.has(name));
  const reset = el("button", { type: "button", class: "button", hidden: !changed,
    onclick: () => set(Object.fromEntries(names.map((name) => [name, null]))) }, "Reset to the suite's defaults");
  const said = [query.get("method"), query.get("clock"), query.get("units"), changed && "changed"].filter(Boolean).join(", ");
  const meant = [query.get("method"), query.get("clock")].map((word) => MEANINGS[word]).filter(Boolean).join(" ");
  return el("details", { class: "pop more" },
    el("summary", { class: "quiet-button", "data-about": meant || null, "aria-describedby": meant ? "measured-words" : null },
      el("span", { class: "wide" }, "How it is measured"), el("span", { class: "brief" }, "Measured"), said && el("span", { class: "said" }, said)),
    el("div", { class: "pop-panel" },
      meant && el("p", { id: "measured-words", hidden: true }, meant),
      el("div", { class: "choices" }, choices),
      sliders.length > 0 && el("p", { class: "hint" }, "Thresholds lie between 50 % and 99.9 %, at most at the accuracy where the runs stopped."),
      el("div", { class: "sliders" }, sliders.map((name) =>
        thresholdSlider(rich(THRESHOLDS[name]), name, Number(query.get(name) ?? usual[name]), { onMove: () => (reset.hidden = false) }))),
      el("div", { class: "inline-form" }, others.map((name) => fields[name]()), reset)));
}

// Speed runs with random labels, or with the task's own labels shuffled, where a suite has both.
export const labelsPicker = (suite, query) => (suite.labels.length < 2 ? null : explained(segmented("Labels", "labels",
  suite.labels.map((value) => ({ value, text: value.charAt(0).toUpperCase() + value.slice(1) })), query.get("labels") ?? "random"),
"What is memorised: labels drawn at random, or the task's own labels shuffled."));

// The parameters of a chart: what the view's address says, limited to names the route knows.
export function chartQuery(query, suite, names) {
  const kept = new URLSearchParams();
  kept.set("suite", suite.name);
  for (const [name, value] of query) {
    if (value !== "" && (names.includes(name) || name in suite.axes)) kept.set(name, value);
  }
  return kept;
}

// What the chart shows, told from left to right with its own numbers.
export function story(meta) {
  if (!meta?.story?.length) return null;
  return el("section", { class: "card story", "aria-label": "What the chart shows" },
    el("h2", {}, "What you see"), el("ol", {}, meta.story.map((text) => el("li", {}, ...rich(text)))));
}
