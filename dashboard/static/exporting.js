// Taking a chart along: picture, data, the call that made it, and code that fetches the same.

import { file, isClosed } from "./api.js";
import { el, toast } from "./dom.js";
import { plotly } from "./drawing.js";

export function exportMenu(card) {
  const panel = el("div", { class: "menu-panel" });
  // Filled before it opens (`toggle` comes later), so that nobody sees it empty. Keys click, too.
  const button = el("summary", {
    class: "quiet-button", "aria-label": `Export ${card.title}`,
    onclick: () => menu.open || panel.replaceChildren(...items(card, menu)),
  }, "Export");
  const menu = el("details", { class: "menu" }, button, panel);
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    button.focus();
  });
  return menu;
}

// A click anywhere else, or Escape, closes what is folded out over the page.
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll(".menu[open], .pop[open]")) {
    if (event.target.isConnected && !open.contains(event.target)) open.open = false;
  }
});
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && document.querySelector(".pop[open]");
  if (!open) return;
  open.open = false;
  open.querySelector("summary").focus();
});

function items(card, menu) {
  const close = (action) => async () => {
    menu.open = false;
    await action();
  };
  const sources = card.meta?.sources ?? [];
  const pictures = card.node.dataset.state === "ready" ? ["png", "svg"] : [];
  return [
    ...pictures.map((format) =>
      el("button", { type: "button", onclick: close(() => picture(card, format)) }, `${format.toUpperCase()} picture`)),
    ...sources.map((source) =>
      tableLink(twin(source, card.query), `${card.fileName}-${source.label}.csv`,
        sources.length > 1 ? `CSV of ${source.label}` : "CSV table", close(() => {}))),
    el("button", { type: "button", onclick: close(() => copy(call(card), "API call")) }, "Copy API call"),
    el("button", { type: "button", onclick: close(() => copy(python(card), "Python snippet")) }, "Copy Python snippet"),
  ];
}

function twin(source, query) {
  const all = new URLSearchParams(query);
  for (const name of source.without ?? []) all.delete(name);
  all.set("format", "csv");
  return `${source.route}?${all}`;
}

// A link that saves a table. A closed server wants a header, which a plain link cannot send.
export function tableLink(route, name, text, done = () => {}, attributes = {}) {
  return el("a", { href: route, download: name, ...attributes, onclick: async (event) => {
    done();
    if (!isClosed()) return;
    event.preventDefault();
    try {
      const url = URL.createObjectURL(await file(route));
      el("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
    } catch (error) {
      toast(error.message);
    }
  } }, text);
}

function call(card) {
  const header = isClosed() ? '-H "Authorization: Bearer $GROKTIME_READ_TOKEN" ' : "";
  return `curl ${header}'${location.origin}/charts/${card.name}?${card.query}'`;
}

function python(card) {
  const closed = isClosed();
  const lines = closed
    ? ["import os", "", "import pandas as pd", "", 'token = {"Authorization": f"Bearer {os.environ[\'GROKTIME_READ_TOKEN\']}"}']
    : ["import pandas as pd", ""];
  for (const source of card.meta?.sources ?? []) {
    const url = `${location.origin}${twin(source, card.query)}`;
    lines.push(`${source.label.replace(/\W+/g, "_")} = pd.read_csv("${url}"${closed ? ", storage_options=token" : ""})`);
  }
  return `${lines.join("\n")}\n`;
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied.`);
  } catch {
    window.prompt(`${what}:`, text); // a page that is not served from loopback or https
  }
}

// The picture carries its caption, so that it can be cited where it ends up.
async function picture(card, format) {
  const Plotly = await plotly();
  const { data, layout } = card.drawn;
  const width = Math.max(card.plot.clientWidth, 720);
  const height = card.plot.clientHeight + 30;
  const bottom = (layout.margin?.b ?? 60) + 30;
  const caption = {
    xref: "paper", yref: "paper", x: 0, y: 0, xanchor: "left", yanchor: "top",
    yshift: -bottom + 18, showarrow: false, align: "left",
    text: wrapped(card.meta.caption, width / 6.2),
    font: { size: 10, color: layout.xaxis?.tickfont?.color },
  };
  const url = await Plotly.toImage({
    data,
    layout: {
      ...layout, width, height, autosize: false,
      margin: { ...layout.margin, b: bottom },
      annotations: [...(layout.annotations ?? []), caption],
    },
  }, { format, width, height, scale: format === "png" ? 2 : 1 });
  el("a", { href: url, download: `${card.fileName}.${format}` }).click();
}

function wrapped(text, most) {
  const lines = [""];
  for (const part of text.split(" · ")) {
    const line = lines.at(-1);
    if (line && line.length + part.length > most) lines.push(part);
    else lines[lines.length - 1] = line ? `${line} · ${part}` : part;
  }
  return lines.join("<br>");
}
