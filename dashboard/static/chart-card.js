// One chart with its title, states, caption and exports. It knows four states besides drawn:
// loading, empty, partial (a note above the chart) and refused.

import { ask, Refused } from "./api.js";
import { el, rich } from "./dom.js";
import { draw } from "./drawing.js";
import { exportMenu } from "./exporting.js";
import { changed, here, path } from "./address.js";

const MOST_OFFERS = 24;
// Which cell a file is of, beside its suite and prime.
const SETTINGS = ["weight_decay", "lr", "init_scale", "train_fraction", "depth", "operation", "batch_size", "positions"];

export class ChartCard {
  // `adapt` may change the figure before it is drawn; `onMeta` hears what the figure says.
  constructor({ name, title, height = 480, adapt, onMeta, onClick, config, level = "h2" }) {
    Object.assign(this, { name, title, adapt, onMeta, onClick, config });
    this.query = "";
    this.heading = el(level, {}, ...rich(title));
    this.plot = el("div", { class: "plot", role: "group", "aria-label": title });
    this.plot.style.height = typeof height === "number" ? `${height}px` : height;
    this.notes = el("ul", { class: "notes", hidden: true });
    this.caption = el("p", { class: "caption" });
    this.summary = el("p", { class: "visually-hidden" });
    this.overlay = el("div", { class: "overlay", role: "status" });
    this.node = el("section", { class: "card chart", dataset: { state: "loading", chart: name } },
      el("div", { class: "card-head" }, this.heading, exportMenu(this)),
      el("div", { class: "plot-frame" }, this.plot, this.overlay),
      this.summary,
      this.notes,
      this.caption);
    this.show("loading");
  }

  get fileName() {
    const chosen = new URLSearchParams(this.query);
    const setting = [...chosen].filter(([name]) => SETTINGS.includes(name)).map(([name, value]) => `${name}-${value}`);
    return ["groktime", this.name, chosen.get("suite"), chosen.get("prime") && `p${chosen.get("prime")}`, ...setting]
      .filter(Boolean).join("-").replace(/[^\w.-]+/g, "_");
  }

  async load(query) {
    const running = this.wait(query);
    try {
      const figure = await ask(`/charts/${this.name}?${this.query}`, { signal: running.signal });
      if (!running.signal.aborted) await this.take({ figure });
    } catch (error) {
      if (error.name !== "AbortError") this.refuse(error);
    }
  }

  // Loading, for the answer to this query; what was asked before is given up.
  wait(query) {
    this.query = new URLSearchParams(query).toString();
    this.running?.abort();
    this.running = new AbortController();
    this.show("loading");
    return this.running;
  }

  // What was asked for: a figure, or the problem that there is none.
  async take(found) {
    this.tell(found);
    await this.redraw();
  }

  // All of it but the drawing. Of several charts this comes first: to draw one the browser must
  // know where everything is, and would find it out for each again.
  tell({ figure, problem }) {
    if (problem) return this.refuse(new Refused(problem.status, problem));
    this.figure = figure;
    this.meta = figure.layout.meta;
    const { meta } = this;
    if (meta.title) this.heading.replaceChildren(...rich(meta.title));
    this.caption.replaceChildren(...rich(meta.caption));
    this.summary.textContent = meta.summary;
    this.plot.setAttribute("aria-label", `Chart. ${meta.summary}`);
    this.notes.hidden = !meta.notes.length;
    this.notes.replaceChildren(...meta.notes.map((note) =>
      el("li", { class: `note ${note.tone}` }, ...rich(note.text))));
    this.onMeta?.(meta);
    if (meta.empty) this.show("empty", meta.empty);
  }

  async redraw() {
    if (!this.figure || this.meta.empty) return;
    this.drawn = await draw(this.plot, this.figure, { adapt: this.adapt, config: this.config });
    if (this.onClick && !this.listens) {
      this.plot.on("plotly_click", (event) => this.onClick(event.points[0]));
      this.listens = true;
    }
    this.show("ready");
  }

  refuse(error) {
    this.figure = this.meta = undefined;
    this.notes.hidden = true;
    this.caption.textContent = this.summary.textContent = "";
    this.plot.setAttribute("aria-label", `Chart. ${error.message}`);
    this.onMeta?.(null);
    // Runs that are not there yet are news about the suite, not a fault.
    const text = error.message.replace(`${error.problem?.parameter}: `, ""); // a visitor sees no parameters
    this.show(error.status === 409 ? "empty" : "refused", error.status === 409 ? text : error.message, offers(error.problem));
  }

  show(state, text = "", more = []) {
    this.node.dataset.state = state;
    this.node.dataset.shown = state === "loading" ? "" : this.query;
    this.node.setAttribute("aria-busy", String(state === "loading"));
    if (state === "ready") return this.overlay.replaceChildren();
    const first = !this.drawn;
    const words = { loading: first ? "Loading…" : "", empty: text, refused: text }[state];
    const title = { empty: "Nothing to draw", refused: "This chart cannot be drawn" }[state];
    this.overlay.replaceChildren(
      ...(state === "loading" ? [el("div", { class: "skeleton", "aria-hidden": "true" })] : []),
      el("div", { class: "overlay-text" },
        title && el("strong", {}, title), words && el("p", {}, ...rich(words)), ...more));
  }
}

// Small multiples: what all captions say is said once, under each stays what is its own.
export function sharedCaption(cards) {
  const captions = cards.filter((card) => card.meta).map((card) => [card, card.meta.caption.split(" · ")]);
  if (!captions.length) return "";
  const common = captions[0][1].filter((part) => captions.every(([, parts]) => parts.includes(part)));
  for (const [card, parts] of captions) {
    const own = parts.filter((part) => !common.includes(part) && !part.startsWith("p = ")); // its title says p
    card.caption.replaceChildren(...(own.length ? rich(own.join(" · ")) : []));
  }
  return common.join(" · ");
}

// What the server would have accepted, as links that lead there.
function offers(problem = {}) {
  const { parameter, accepted } = problem;
  if (!parameter) return [];
  const { view, query } = here();
  const chip = (changes, text) =>
    el("a", { class: "chip", "data-link": true, href: path(view, changed(query, changes)) }, text);
  const choices = Array.isArray(accepted) ? { [parameter]: accepted }
    : accepted && typeof accepted === "object" ? accepted : {};
  const rows = Object.entries(choices).map(([name, values]) =>
    values.slice(0, MOST_OFFERS).map((value) => chip({ [name]: value }, `${name.replace(/_/g, " ")} ${value}`)));
  // Words such as "at most 0.99" are no links, but leaving the parameter out is.
  if (!rows.length && query.has(parameter)) rows.push([chip({ [parameter]: null }, parameter === "suite" ? "another suite" : `without ${parameter} = ${query.get(parameter)}`)]);
  return rows.map((row) => el("div", { class: "chips" }, row));
}
