// Figures come in the light colours; the dark theme exchanges them one for one.

import palette from "./palette.json" with { type: "json" };

const toDark = new Map(Object.entries(palette.light).map(([name, colour]) => [colour, palette.dark[name]]));

const theme = () => document.documentElement.dataset.theme;

export function themed(part) {
  if (theme() === "light") return part;
  return exchange(part);
}

function exchange(part) {
  if (typeof part === "string") return toDark.get(part) ?? part;
  if (Array.isArray(part)) {
    return part.length > 2 && typeof part[0] === "number" ? part : part.map(exchange);
  }
  if (part && typeof part === "object") {
    return Object.fromEntries(Object.entries(part).map(([name, value]) => [name, exchange(value)]));
  }
  return part;
}

const SUN = "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.4M4.9 19.1l1.4-1.4m0-11.4L4.9 4.9m14.2 14.2-1.4-1.4M12 17a5 5 0 1 0 0-10 5 5 0 0 0 0 10Z";
const MOON = "M20 14.5A8.5 8.5 0 1 1 9.5 4a7 7 0 0 0 10.5 10.5Z";

export function themeButton(button, onChange) {
  const show = () => {
    const dark = theme() === "dark";
    button.setAttribute("aria-label", dark ? "Use the light theme" : "Use the dark theme");
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("d", dark ? SUN : MOON);
    svg.append(line);
    button.replaceChildren(svg);
  };
  button.addEventListener("click", () => {
    const next = theme() === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("groktime-theme", next);
    show();
    onChange();
  });
  show();
}
