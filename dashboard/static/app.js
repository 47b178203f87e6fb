// The frame around the views: which one is shown, the theme, and what is live.

import { el, rich } from "./dom.js";
import { VIEWS, here, onMove, path, settle } from "./address.js";
import { themeButton } from "./palette.js";
import { field } from "./controls.js";
import { forgetPlots } from "./drawing.js";
import { chosen, forget, start, suites } from "./suites.js";
import { live } from "./live.js";

const NAMES = {
  delay: "Delay", capacity: "Capacity", memorisation: "Memorisation",
  onset: "Prediction", runs: "Runs", sweeps: "Sweeps",
};
// Settings that mean the same in every view travel along.
const SHARED = ["suite", "prime", "method", "clock", "units", "labels", "max_width", "level", "t_mem", "t_gen", "e_train", "e_val", "min_delay", "min_delay_share"];

const main = document.getElementById("main");
const news = document.getElementById("news");
let current;
let known = [];

function navigation(view, query, axes) {
  const kept = new URLSearchParams([...query].filter(([name]) => SHARED.includes(name) || axes.includes(name)));
  document.getElementById("views").replaceChildren(...VIEWS.map((name) =>
    el("a", { href: path(name, kept), "data-link": true, "aria-current": name === view ? "page" : null }, NAMES[name])));
  // With the next frame, which lays the page out anyway.
  requestAnimationFrame(() => document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }));
}

let latest = 0;

// Draw what the address says; `data-state` of the page tells when all of it is there.
async function show() {
  const mine = (latest += 1);
  main.dataset.state = "busy";
  news.hidden = true;
  try {
    await arrive(() => mine === latest);
  } finally {
    window.groktimeEarly.clear(); // what was asked for the first page is old now
    if (mine === latest) main.dataset.state = "settled";
  }
}

async function arrive(stillWanted) {
  const { view } = here();
  const arriving = view === "unknown" ? null : import(`./views/${view}.js`);
  try {
    known = await suites();
  } catch (error) {
    return error.status === 401 ? unlock(error.message) : message("The suites could not be read",
      el("p", {}, error.message), el("button", { type: "button", class: "button", onclick: show }, "Try again"));
  }
  if (!stillWanted()) return;
  document.title = NAMES[view] ? `${NAMES[view]} · groktime` : "groktime";
  if (!known.length && view !== "sweeps") {
    navigation(view, here().query, []);
    return welcome();
  }
  if (view === "unknown") return lost();
  const named = here().query.get("suite");
  if (named && !chosen(known, here().query)) {
    forget(); // it may have been registered since
    known = await suites();
    if (!stillWanted()) return;
    if (!chosen(known, here().query)) return absent(view, named);
  }
  try {
    const begin = known.length ? await start(view, here().query, known) : {};
    if (!stillWanted()) return;
    settle(begin);
  } catch (error) {
    if (!named) return message("Nothing could be chosen", el("p", {}, error.message));
    // The charts say what is refused and offer what is there.
  }
  if (current?.name !== view) {
    const module = await arriving;
    if (!stillWanted()) return;
    current?.leave?.();
    forgetPlots(main);
    current = { name: view, ...module.view() };
    main.replaceChildren(current.node);
    main.dataset.view = view;
  }
  const drawn = current.update(here().query, known); // settles the address before it waits for data
  const suite = known.find((one) => one.name === here().query.get("suite"));
  navigation(view, here().query, suite ? Object.keys(suite.axes) : []);
  await drawn;
}

// A page without charts: what is the matter, and what to do next.
function message(title, ...parts) {
  current?.leave?.();
  forgetPlots(main);
  current = undefined;
  main.dataset.view = "message";
  main.replaceChildren(el("section", { class: "card message" }, el("h1", {}, title), ...parts));
}

// A link that names a suite which is not there shows no other one's data.
function absent(view, name) {
  navigation(view, new URLSearchParams(), []);
  message(`There is no suite ${name} here`,
    el("p", {}, "The link names a suite that this database does not have. These are there:"),
    el("div", { class: "chips" }, known.map((one) =>
      el("a", { class: "chip", "data-link": true, href: path(view, { suite: one.name }) }, one.name))));
}

// An address that names no view: say so, and lead back.
function lost() {
  navigation("", new URLSearchParams(), []);
  message("There is no such view", el("p", {}, `${location.pathname} names none of the views above.`),
    el("p", {}, el("a", { href: "/", "data-link": true }, "To the first page")));
}

// Reading may be closed by a token; it stays in this tab only.
function unlock(text) {
  const token = el("input", { type: "password", id: "read-token", autocomplete: "off" });
  message("This server asks for a token", el("p", {}, text),
    el("form", { class: "inline-form", onsubmit: (event) => {
      event.preventDefault();
      sessionStorage.setItem("groktime-read-token", token.value);
      location.reload();
    } }, field("Token", token), el("button", { class: "button primary", type: "submit" }, "Read")));
}

function welcome() {
  message("No suite has been trained yet",
    el("p", {}, ...rich("groktime trains thousands of tiny transformers and finds the size at which memorising becomes faster than generalising. Where the two speeds cross, grokking should start.")),
    el("p", {}, "Train the demonstration, which takes a few minutes on a laptop:"),
    el("pre", {}, "scripts/demo"),
    el("p", {}, "or any suite of the paper:"),
    el("pre", {}, "groktime sweep central"),
    el("p", {}, "This page goes on by itself as soon as there is something to see."));
}

// Views that are cheap to draw follow by themselves; the others say that there is something new.
function heard(progress, { first, changed }) {
  const suite = known.find((one) => one.name === progress.suite);
  if (main.dataset.state === "settled" && (!current || !suite)) return show();
  // The first event of a suite tells where it stands: news only to a page that is older.
  if (!current || (first && suite?.revision === progress.revision)) return;
  if (current.heard) return current.heard(progress);
  if (changed && progress.suite === here().query.get("suite")) news.hidden = false;
}

news.addEventListener("click", show);
themeButton(document.getElementById("theme"), () => current?.redraw?.());
live(document.getElementById("live"), heard);
onMove(() => show());
show();
