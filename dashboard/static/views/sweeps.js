// Sweeps: how far each suite is, as it happens; starting and stopping with a token.

import { ask } from "../api.js";
import { el, toast } from "../dom.js";
import { here, settle } from "../address.js";
import { ChartCard } from "../chart-card.js";
import { field, refill, segmented } from "../controls.js";
import { duration, human, whole } from "../numbers.js";
import { chosen } from "../suites.js";
import { explain, intro, legend, suiteNote, suitePicker } from "../panel.js";

const STATES = ["done", "running", "stale", "failed", "pending"];
const REDRAW_MS = 2000;

function left(complete, running, seconds) {
  if (complete) return ["done", "nothing is missing"];
  return running ? [duration(seconds), "at this pace"] : ["–", "nothing is running"];
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
      // Squares stay squares: the map is as high as it has primes.
      const rows = figure.data[0].y.length;
      coverage.plot.style.height = `${Math.min(620, 90 + 36 * Math.max(rows, 3))}px`;
      return figure;
    },
  });
  const node = el("div", { class: "view" },
    intro("How far are the sweeps?",
      "A sweep trains what a suite still misses. Everything here updates by itself while workers record epochs; finished work is never lost or repeated."),
    controls,
    el("section", { class: "card stack" }, tiles, bar),
    el("div", { class: "columns" },
      el("div", { class: "stack" }, coverage.node, failures, jobs),
      el("div", { class: "stack" }, explain("How to read this",
        "Each square is a prime and a width. It deepens as seeds finish, over all settings of the suite.",
        legend([["pending", "waiting"], ["done", "all seeds done"], ["running", "being trained"], ["failed", "at least one failed"], ["stale", "in the bar: lost their worker; the next sweep takes them up"]]),
        "Time left is what remains at the pace of the last ten minutes."))));
  let suite;
  let timer;
  let drawn = 0;

  async function update(query, all) {
    suite = chosen(all, query);
    names.replaceChildren(...all.map((one) => el("option", { value: one.name })));
    if (!suite) return nothing();
    settle({ suite: suite.name, kind: query.get("kind") ?? "grok" });
    query = here().query;
    refill(controls, suitePicker(all, suite),
      segmented("Kind of run", "kind", [{ value: "grok", text: "Grok" }, { value: "speed", text: "Speed" }, { value: "capacity", text: "Capacity" }], query.get("kind")), suiteNote(suite));
    await Promise.all([progress(), coverage.load({ suite: suite.name, kind: query.get("kind") }), listJobs()]);
    drawn = Date.now();
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
    const closed = states.done + states.failed;
    const tile = (name, value, detail) => el("div", { class: "tile", dataset: { tile: name } },
      el("div", { class: "name" }, name), el("div", { class: "value" }, value), el("div", { class: "detail" }, detail));
    tiles.replaceChildren(
      tile("Runs done", `${whole(states.done)} of ${whole(total)}`, `${total ? Math.floor((100 * states.done) / total) : 0} %, revision ${answer.revision}`),
      tile("Running now", whole(states.running), states.stale ? `${whole(states.stale)} lost their worker` : `${whole(states.pending)} waiting`),
      tile("Throughput", answer.runs_per_minute === null ? "–" : `${human(answer.runs_per_minute)} / min`, "runs closed, last ten minutes"),
      tile("Time left", ...left(closed === total, states.running > 0, answer.seconds_left)),
      tile("Epochs recorded", human(answer.epochs_recorded), answer.inherited ? `${whole(answer.inherited)} runs inherited` : "every one in the database"),
      tile("Failed", whole(states.failed), states.failed ? "see the reasons below" : "none"));
    bar.setAttribute("aria-label", STATES.map((name) => `${states[name]} ${name}`).join(", "));
    bar.replaceChildren(...STATES.filter((name) => name !== "pending" && states[name]).map((name) => {
      const part = el("span", { title: `${whole(states[name])} ${name}` });
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
      await Promise.all([progress(), coverage.load(coverage.query)]);
    }, wait);
  }

  return { node, update, heard, redraw: () => coverage.redraw(), leave: () => clearTimeout(timer) };
}
