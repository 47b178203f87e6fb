// Taking a chart along: picture, data, the call that made it, and code that fetches the same.

import { el, toast } from "./dom.js";
import { plotly } from "./drawing.js";

export function exportMenu(card) {
  const menu = el("details", { class: "menu" },
    el("summary", { class: "quiet-button", "aria-label": `Export ${card.title}` }, "Export"));
  const panel = el("div", { class: "menu-panel" });
  menu.append(panel);
  menu.addEventListener("toggle", () => menu.open && panel.replaceChildren(...items(card, menu)));
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  return menu;
}

// A click anywhere else closes an open menu.
document.addEventListener("click", (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) {
    if (!menu.contains(event.target)) menu.open = false;
  }
});

function items(card, menu) {
  const close = (action) => async () => {
    menu.open = false;
    await action();
  };
  const sources = card.meta?.sources ?? [];
  return [
    el("button", { type: "button", onclick: close(() => picture(card, "png")) }, "PNG picture"),
    el("button", { type: "button", onclick: close(() => picture(card, "svg")) }, "SVG picture"),
    ...sources.map((source) =>
      el("a", { href: twin(source, card.query), download: `${card.fileName}-${source.label}.csv`, onclick: close(() => {}) },
        sources.length > 1 ? `CSV of ${source.label}` : "CSV table")),
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

const call = (card) => `curl '${location.origin}/charts/${card.name}?${card.query}'`;

function python(card) {
  const lines = ["import pandas as pd", ""];
  for (const source of card.meta?.sources ?? []) {
    lines.push(`${source.label.replace(/\W+/g, "_")} = pd.read_csv("${location.origin}${twin(source, card.query)}")`);
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
