// Drawing a figure with Plotly, which first-paint.js loads beside the data rather than before it.

import { themed } from "./palette.js";

export const plotly = () => window.groktimePlotly;

// A plot that leaves the page stops listening to its size.
export function forgetPlots(node) {
  for (const plot of node.querySelectorAll(".js-plotly-plot")) window.Plotly?.purge(plot);
}

const CONFIG = {
  responsive: true,
  displaylogo: false,
  displayModeBar: "hover",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"],
};

const PHONE = 430;

export async function draw(node, figure, { adapt = (f) => f, config = {} } = {}) {
  const Plotly = await plotly();
  const shown = themed(fitted(adapt(structuredClone(figure)), node.clientWidth));
  // A finger cannot hover, and the bar of buttons would cover what stands above the plot.
  const touched = matchMedia("(hover: none)").matches ? { displayModeBar: false } : {};
  await Plotly.react(node, shown.data, shown.layout, { ...CONFIG, ...touched, ...config });
  return shown;
}

const LETTER = 6.3; // px of a letter in the name of a regime

// A name that its stretch of the axis has no room for is left out; the legend below tells it.
function named(layout, width) {
  const [low, high] = layout.xaxis?.range ?? [];
  const room = width - (layout.margin?.l ?? 0) - (layout.margin?.r ?? 0);
  for (const shape of layout.shapes ?? []) {
    if (!shape.label || layout.xaxis.type !== "log") continue;
    const share = (Math.log10(shape.x1) - Math.log10(shape.x0)) / (high - low);
    if (share * room < shape.label.text.length * LETTER) delete shape.label;
  }
}

// A narrow screen has no room for the legend beside the colour bar.
function fitted(figure, width) {
  if (width) named(figure.layout, width);
  if (!width || width > PHONE) return figure;
  const { layout, data } = figure;
  stacked(layout);
  layout.margin = { ...layout.margin, l: 48, r: layout.yaxis2?.side === "right" ? 48 : 12 };
  for (const trace of data) if (trace.marker?.colorbar) trace.marker.showscale = false;
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis/.test(name) && layout[name].title) layout[name].title.font = { ...layout[name].title.font, size: 11 };
  }
  return figure;
}

// Two plots beside each other become two above each other.
function stacked(layout) {
  if (!layout.xaxis2?.domain || !layout.yaxis2) return;
  for (const name of ["xaxis", "xaxis2"]) layout[name].domain = [0, 1];
  layout.yaxis.domain = [0.56, 1];
  layout.yaxis2.domain = [0, 0.44];
  layout.xaxis.title = { text: "" };
  layout.xaxis2.anchor = "y2";
}

// Delays are often exactly 0, which a log axis cannot show: zeros get a place of their own.
export function logDelay(figure) {
  const floor = 0.5;
  let largest = 1;
  for (const trace of figure.data) {
    if (trace.yaxis === "y2") continue;
    trace.y = trace.y.map((value) => {
      largest = Math.max(largest, value);
      return value === 0 ? floor : value;
    });
  }
  const top = Math.log10(largest) + 0.15;
  const ticks = [1, 10, 100, 1000, 10000].filter((tick) => Math.log10(tick) <= top);
  Object.assign(figure.layout.yaxis, {
    type: "log",
    range: [Math.log10(floor) - 0.08, top],
    tickvals: [floor, ...ticks],
    ticktext: ["0", ...ticks.map((tick) => tick.toLocaleString("en"))],
  });
  return figure;
}

const FEW = 4;

// Few labels, all of them upright.
function thinned(axis) {
  axis.nticks = FEW;
  axis.tickangle = 0;
  if (!axis.tickvals) return;
  const every = Math.ceil(axis.tickvals.length / FEW);
  const kept = (_, i) => i % every === 0;
  axis.ticktext = axis.ticktext.filter(kept);
  axis.tickvals = axis.tickvals.filter(kept);
}

// Small multiples keep the minimum, the curves and the crosshair.
export function compact(figure) {
  for (const trace of figure.data) {
    trace.showlegend = false;
    if (!trace.marker) continue;
    trace.marker.showscale = false;
    trace.marker.size = Math.min(trace.marker.size ?? 5, 6);
  }
  const { layout } = figure;
  layout.margin = { l: 46, r: 46, t: 8, b: 30 };
  layout.annotations = [];
  for (const shape of layout.shapes) delete shape.label;
  for (const name of ["xaxis", "yaxis", "yaxis2"]) {
    layout[name].title = { text: "" };
    layout[name].automargin = false; // the margins have room, and measuring it takes half of the drawing
    layout[name].tickfont = { ...layout[name].tickfont, size: 10 };
    thinned(layout[name]);
  }
  return figure;
}
