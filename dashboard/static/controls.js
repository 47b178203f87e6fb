// Form controls that write to the address; the address is the only state.

import { el, debounce } from "./dom.js";
import { set } from "./address.js";

let serial = 0;
const fresh = (name) => `${name}-${(serial += 1)}`;

export function field(label, control) {
  return el("div", { class: "field" }, el("label", { for: control.id }, label), control);
}

export function select(label, name, options, value, { onChange } = {}) {
  const id = fresh(name);
  const box = el("select", { id, name, onchange: (event) => (onChange ?? ((v) => set({ [name]: v || null })))(event.target.value) },
    options.map(({ value: v, text }) => el("option", { value: v, selected: String(v) === String(value ?? "") }, text)));
  return field(label, box);
}

// One choice of a few, as a row of buttons.
export function segmented(label, name, options, value, { onChange } = {}) {
  const group = fresh(name);
  return el("fieldset", { class: "field segmented" },
    el("legend", {}, label),
    el("div", { class: "segments" }, options.map(({ value: v, text, title }) => {
      const id = fresh(group);
      return [
        el("input", {
          type: "radio", id, name: group, value: v, checked: String(v) === String(value), "data-setting": name,
          onchange: () => (onChange ?? ((chosen) => set({ [name]: chosen })))(v),
        }),
        el("label", { for: id, title }, text),
      ];
    })));
}

export function chips(label, name, options, value, config) {
  const node = segmented(label, name, options, value, config);
  node.classList.replace("segmented", "chip-row");
  return node;
}

// The ladder of thresholds whose first passages are stored with every run.
const LADDER = [
  ...Array.from({ length: 49 }, (_, i) => (50 + i) / 100),
  ...Array.from({ length: 10 }, (_, i) => (990 + i) / 1000),
];

const shown = (value) => `${Math.round(value * 1000) / 10} %`;

export function thresholdSlider(label, name, value, { onMove } = {}) {
  const id = fresh(name);
  const distance = LADDER.map((rung) => Math.abs(rung - value));
  const at = distance.indexOf(Math.min(...distance)); // a link may hold a value between the rungs
  const output = el("output", { for: id }, shown(value));
  const send = debounce((chosen) => set({ [name]: chosen }, { replace: true }));
  const range = el("input", {
    type: "range", id, name, min: 0, max: LADDER.length - 1, step: 1, value: at,
    "aria-valuetext": shown(value),
    oninput: (event) => {
      const chosen = LADDER[Number(event.target.value)];
      output.textContent = shown(chosen);
      range.setAttribute("aria-valuetext", shown(chosen));
      onMove?.();
      send(chosen);
    },
  });
  return el("div", { class: "field slider" }, el("label", { for: id }, ...[label].flat()), range, output);
}

export function numberField(label, name, value, { onChange, ...attributes } = {}) {
  const box = el("input", {
    type: "number", id: fresh(name), name, value: value ?? "", class: "narrow", ...attributes,
    onchange: (event) => (onChange ?? ((chosen) => set({ [name]: chosen || null })))(event.target.value),
  });
  return field(label, box);
}

// Fill a form anew without losing the place of the keyboard, what is folded out, or a slider's grip.
export function refill(form, ...children) {
  const active = form.contains(document.activeElement) ? document.activeElement : null;
  if (active?.type === "range") return;
  const open = form.querySelector("details.more")?.open;
  const place = active?.dataset.setting ? `[data-setting="${active.dataset.setting}"]:checked` : active?.name && `[name="${active.name}"]`;
  form.replaceChildren(...children.flat().filter(Boolean));
  if (open) form.querySelector("details.more")?.setAttribute("open", "");
  if (place) form.querySelector(place)?.focus();
}
