// Sweeps: how far each suite is, as it happens; starting and stopping with a token.

import { ask } from "../api.js";
import { el, rich, toast } from "../dom.js";
import { changed, here, path, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { field, refill, segmented } from "../controls.js";
import { duration, human, whole } from "../numbers.js";
import { axisName, axisValue, chosen } from "../suites.js";
import { explain, intro, legend, readings, suiteNote, suitePicker } from "../panel.js";

const STATES = ["done", "set_aside", "running", "stale", "failed", "pending"];
const POINTS = { crossing: "P_cross", onset: "P_onset" };
const REDRAW_MS = 2000;

function left(complete, running, seconds) {
  if (complete) return ["done", "nothing is missing"];
  return running ? [duration(seconds), "at this pace"] : ["–", "nothing is running"];
}

// `speed d = 40, seed 42: halves the bracket`, or why nothing is wanted.
const nextRun = (cell) => (cell.next.length
  ? `${cell.next[0].kind} d = ${cell.next[0].width}, seed ${cell.next[0].seed}: ${cell.next[0].why}`
  : cell.ended ?? `waits for ${cell.open} open run${cell.open === 1 ? "" : "s"}`);

// Where the sizes on both sides overlap, seeds differ from each other there.
function between([low, high]) {
  if (low < high) return `in ${human(low)}–${human(high)}`;
  return low === high ? `seeds differ at ${human(low)}` : `seeds differ in ${human(high)}–${human(low)}`;
}

// Estimate ± and the sizes on both sides of it, as far as they are known.
function point(found) {
  if (!found) return el("td", {}, "–");
  if (found.estimate === null) return el("td", {}, found.status);
  const half = found.half_width === null ? "" : ` ± ${found.half_width.toFixed(3)} dex`;
  return el("td", {}, el("span", { class: "value" }, `${human(found.estimate)}${half}`),
    found.bracket && el("small", {}, `${between(found.bracket)} · ${found.status}`));
}

export function view() {
  const controls = el("form", { class: "card controls", "aria-label": "Which suite is shown", onsubmit: (e) => e.preventDefault() });
  const tiles = el("section", { class: "tiles", "aria-label": "Progress", "aria-live": "polite" });
  const bar = el("div", { class: "progress", role: "img" });
  const failures = el("section", { class: "card", "aria-labelledby": "failures-title" });
  const jobs = el("section", { class: "card stack", "aria-labelledby": "jobs-title" });
  const coverage = new ChartCard({
    name: "coverage", title: "Coverage", height: 300,
    adapt: (figure) => {
      // The map is as high as it has primes, but ends above the fold.
      const rows = figure.data[0].y.length;
      coverage.plot.style.height = `min(${Math.min(620, 90 + 36 * Math.max(rows, 3))}px, max(${90 + 18 * rows}px, 100vh - 435px))`;
      return figure;
    },
  });
  const placing = new ChartCard({ name: "placement", title: "Where both points are, run by run", height: 340,
    onMeta: (meta) => numbers.replaceChildren(...(meta?.readings.length ? [readings(meta)] : [])) });
  const numbers = el("div", { class: "placed-points" });
  const cells = el("section", { class: "card stack", "aria-labelledby": "cells-title" });
  const progressOfCells = el("div", { class: "stack" }); // of a suite that is located; otherwise empty
  placing.heading.after(numbers);
  const node = el("div", { class: "view" },
    intro("How far are the sweeps?",
      "A sweep trains the missing runs of a suite. This page updates by itself while workers record epochs."),
    controls,
    el("section", { class: "card stack" }, tiles, bar),
    el("div", { class: "columns" },
      el("div", { class: "stack" }, progressOfCells, coverage.node, failures, jobs),
      el("div", { class: "stack" }, explain("How to read this",
        "Each square is a prime and a width. It deepens as seeds finish, over all settings of the suite.",
        legend([["pending", "waiting"], ["done", "all seeds done"], ["running", "being trained"], ["failed", "at least one failed"], ["set_aside", "in the bar: set aside: stopped early, because they can no longer matter"], ["stale", "in the bar: lost their worker; the next sweep takes them up"]]),
        "Time left is what remains at the pace of the last ten minutes.",
        "A located suite chooses its runs one by one, until the standard deviations of P_cross and P_onset reach its target. ± is half the 95 % interval of the model that chooses runs."))));
  let suite;
  let timer;
  let drawn = 0;

  async function update(query, all) {
    suite = chosen(all, query);
    names.replaceChildren(...all.map((one) => el("option", { value: one.name })));
    if (!suite) return nothing();
    settle({ suite: suite.name, kind: query.get("kind") ?? suite.trains[0] ?? "grok" });
    query = here().query;
    refill(controls, suitePicker(all, suite),
      segmented("Kind of run", "kind", [{ value: "grok", text: "Grok" }, { value: "speed", text: "Speed" }, { value: "capacity", text: "Capacity" }], query.get("kind")), suiteNote(suite));
    const located = suite.design === "locate";
    progressOfCells.hidden = !located;
    if (located !== Boolean(placing.node.parentNode)) progressOfCells.replaceChildren(...(located ? [cells, placing.node] : []));
    await Promise.all([progress(), coverage.load({ suite: suite.name, kind: query.get("kind") }), listJobs(), located && place()]);
    drawn = Date.now();
  }

  // Every cell that is being located, and one of them run by run.
  async function place() {
    const { query } = here();
    const asked = Object.fromEntries(["prime", ...Object.keys(suite.axes)].map((name) => [name, query.get(name)]));
    const chart = placing.load(changed({ suite: suite.name }, asked));
    try {
      showCells(await ask(`/suites/${suite.name}/placement`), query);
    } catch (error) {
      cells.replaceChildren(el("p", { class: "note" }, error.message));
    }
    await chart;
  }

  function showCells(answer, query) {
    const wanted = Object.entries(POINTS).filter(([field]) => answer.place.includes(field));
    const placed = answer.cells.filter((cell) => cell.ended === "placed").length;
    const named = (cell) => [`p = ${cell.prime}`, ...Object.entries(cell.setting).map(([axis, value]) => `${axisName(axis).toLowerCase()} ${axisValue(axis, value)}`)].join(", ");
    cells.replaceChildren(
      el("div", { class: "cells-head" },
        el("h2", { id: "cells-title" }, `${placed} of ${answer.cells.length} cell${answer.cells.length === 1 ? "" : "s"} placed`),
        el("p", { class: "hint" }, `${whole(answer.runs)} runs and ${duration(answer.core_seconds)} of one core so far. Target: ${answer.precision} dex for each point, with at most ${whole(answer.max_runs)} runs per cell.`)),
      el("div", { class: "table-frame" }, el("table", { class: "located" },
        el("thead", {}, el("tr", {}, ["Cell", ...wanted.map(([, name]) => name), "Runs", "Core time", "Next, and why"].map((name) => el("th", { scope: "col" }, ...rich(name))))),
        el("tbody", {}, answer.cells.map((cell) => el("tr", { dataset: { cell: cell.prime } },
          el("td", {}, el("a", { "data-link": true, href: path("sweeps", changed(query, { prime: cell.prime, ...cell.setting })) }, named(cell))),
          wanted.map(([field]) => point(cell[field])),
          el("td", {}, whole(cell.runs), cell.open > 0 && el("small", {}, `${cell.open} open`)),
          el("td", {}, duration(cell.core_seconds)),
          el("td", { class: "next" }, nextRun(cell))))))));
  }

  function nothing() {
    coverage.show("empty", "No suite has been registered yet. Start one below or with groktime sweep.");
    return listJobs();
  }

  async function progress() {
    try {
      show(await ask(`/suites/${suite.name}/coverage`));
    } catch (error) {
      tiles.replaceChildren(el("p", {}, error.message));
    }
  }

  function show(answer) {
    const { states } = answer;
    const total = STATES.reduce((sum, name) => sum + states[name], 0);
    const located = suite.design === "locate";
    const closed = states.done + states.failed;
    const tile = (name, value, detail) => el("div", { class: "tile", dataset: { tile: name } },
      el("div", { class: "name" }, name), el("div", { class: "value" }, value), el("div", { class: "detail" }, detail));
    tiles.replaceChildren(
      tile("Runs done", `${whole(states.done)} of ${whole(total)}`, [
        located ? "chosen so far" : `${total ? Math.floor((100 * states.done) / total) : 0} %`,
        states.set_aside && `${whole(states.set_aside)} set aside`, `revision ${answer.revision}`].filter(Boolean).join(", ")),
      tile("Running now", whole(states.running), states.stale ? `${whole(states.stale)} lost their worker` : `${whole(states.pending)} waiting`),
      tile("Throughput", answer.runs_per_minute === null ? "–" : `${human(answer.runs_per_minute)} / min`, "runs closed, last ten minutes"),
      tile("Time left", ...(located ? [states.running ? "open" : "–", states.running ? "until every cell is placed" : "nothing is running"] : left(closed === total, states.running > 0, answer.seconds_left))),
      tile("Epochs recorded", human(answer.epochs_recorded), answer.inherited ? `${whole(answer.inherited)} runs inherited` : "all in the database"),
      tile("Failed", whole(states.failed), states.failed ? "see the reasons below" : "none"));
    bar.setAttribute("aria-label", STATES.map((name) => `${states[name]} ${name.replace("_", " ")}`).join(", "));
    bar.replaceChildren(...STATES.filter((name) => name !== "pending" && states[name]).map((name) => {
      const part = el("span", { title: `${whole(states[name])} ${name.replace("_", " ")}` });
      part.style.width = `${(100 * states[name]) / total}%`;
      part.style.background = `var(--${name})`;
      return part;
    }));
    failures.hidden = !answer.failures.length;
    failures.replaceChildren(el("h2", { id: "failures-title" }, "Failures"),
      el("div", { class: "table-frame" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Reason", "Runs", "Example"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, answer.failures.map((failure) => el("tr", {},
          el("td", {}, failure.reason), el("td", {}, whole(failure.runs)),
          el("td", {}, el("a", { "data-link": true, href: `/view/runs?suite=${suite.name}&state=failed&run=${failure.example}` }, `run ${failure.example}`))))))));
  }

  const token = el("input", { type: "password", id: "token", autocomplete: "off", value: sessionStorage.getItem("groktime-token") ?? "",
    onchange: (event) => sessionStorage.setItem("groktime-token", event.target.value) });
  const name = el("input", { type: "text", id: "sweep-suite", list: "suite-names", autocomplete: "off", spellcheck: "false" });
  const status = el("p", { class: "note", role: "status", hidden: true });
  const list = el("div", {});
  const names = el("datalist", { id: "suite-names" });
  const log = el("pre", { class: "log", tabindex: 0, "aria-label": "End of the log", hidden: true });
  const form = el("form", { class: "inline-form", onsubmit: start }, field("Suite", name), field("Token", token),
    el("button", { class: "button primary", type: "submit" }, "Start a sweep"));
  jobs.replaceChildren(el("h2", { id: "jobs-title" }, "Start and stop"), form, status, list, log,
    names);

  function say(text, tone = "plain") {
    status.hidden = !text;
    status.className = `note ${tone}`;
    status.textContent = text;
  }

  async function start(event) {
    event.preventDefault();
    try {
      const sweep = await ask("/sweeps", { method: "POST", body: { suite: name.value || suite?.name }, token: token.value });
      say(`Sweep ${sweep.id} was submitted.`, "good");
      await listJobs();
    } catch (error) {
      say(error.message, "bad");
    }
  }

  async function stop(id) {
    try {
      await ask(`/sweeps/${id}`, { method: "DELETE", token: token.value });
      toast(`Sweep ${id} is being stopped.`);
      await listJobs();
    } catch (error) {
      say(error.message, "bad");
    }
  }

  async function listJobs() {
    try {
      const sweeps = (await ask("/sweeps?limit=20")).items;
      list.replaceChildren(sweeps.length ? el("div", { class: "table-frame" }, el("table", {},
        el("thead", {}, el("tr", {}, ["Sweep", "Suite", "State", "Said last", ""].map((text) => el("th", { scope: "col" }, text)))),
        el("tbody", {}, sweeps.map((sweep) => el("tr", {},
          el("td", {}, String(sweep.id)), el("td", {}, sweep.suite), el("td", {}, el("span", { class: `badge ${sweep.state}` }, sweep.state)), el("td", {}, sweep.message ?? "–"),
          el("td", {}, el("div", { class: "chips" },
            el("button", { type: "button", class: "button", "aria-label": `Log of sweep ${sweep.id}`, onclick: () => showLog(sweep.id) }, "Log"),
            ["submitted", "running"].includes(sweep.state) && el("button", { type: "button", class: "button danger", "aria-label": `Stop sweep ${sweep.id}`, onclick: () => stop(sweep.id) }, "Stop")))))))) : el("p", { class: "note" }, "No sweep has been submitted through this server; groktime sweep trains without it."));
    } catch (error) {
      list.replaceChildren(el("p", { class: "note" }, error.message));
    }
  }

  async function showLog(id) {
    try {
      const sweep = await ask(`/sweeps/${id}`);
      log.hidden = false;
      log.textContent = sweep.log.join("\n") || "The log is empty so far.";
      log.scrollTop = log.scrollHeight;
    } catch (error) {
      say(error.message, "bad");
    }
  }

  // Numbers follow every event; the heat map is drawn at most every two seconds.
  function heard(event) {
    if (!suite || event.suite !== suite.name) return;
    clearTimeout(timer);
    const wait = Math.max(0, drawn + REDRAW_MS - Date.now());
    timer = setTimeout(async () => {
      drawn = Date.now();
      await Promise.all([progress(), coverage.load(coverage.query), suite.design === "locate" && place()]);
    }, wait);
  }

  return { node, update, heard, redraw: () => Promise.all([coverage.redraw(), placing.redraw()]), leave: () => clearTimeout(timer) };
}
