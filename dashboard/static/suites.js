// The suites there are, read once and again when one of them changes.

import { ask } from "./api.js";

let reading;

export function suites() {
  reading ??= ask("/suites").then((answer) => answer.items);
  reading.catch(() => (reading = undefined));
  return reading;
}

export function forget() {
  reading = undefined;
}

export const chosen = (all, query) => all.find((suite) => suite.name === query.get("suite"));

// What a view needs before it can draw: a cell, one setting for all primes, a suite, capacity runs.
const NEEDS = { start: "cell", delay: "cell", memorisation: "law", capacity: "capacity" };

// What the address leaves open is chosen by the server, by the rule that all its answers follow.
export async function start(view, query, all) {
  const of = NEEDS[view] ?? "suite";
  const suite = chosen(all, query);
  const open = [
    ...(of === "cell" ? ["prime"] : []),
    ...(of === "cell" || of === "law" ? Object.keys(suite?.axes ?? {}).filter((axis) => suite.axes[axis].length > 1) : []),
  ];
  if (suite && open.every((name) => query.get(name))) return {};
  const asked = new URLSearchParams({ of });
  if (suite) asked.set("suite", suite.name);
  for (const name of ["prime", ...open]) {
    const value = query.get(name);
    if (value && value !== "all" && (of !== "law" || name !== "prime")) asked.set(name, value);
  }
  const found = await ask(`/start?${asked}`);
  const settled = { suite: found.suite, ...found.setting };
  if (of === "cell") settled.prime = query.get("prime") ?? found.prime;
  return settled;
}

const AXIS_NAMES = {
  lr: "Learning rate", weight_decay: "Weight decay", init_scale: "Initialisation scale",
  train_fraction: "Training fraction", batch_size: "Batch size", operation: "Operation",
};
const OPERATIONS = { "+": "addition", "-": "subtraction", "*": "multiplication", "/": "division" };

export const axisName = (axis) =>
  AXIS_NAMES[axis] ?? axis.charAt(0).toUpperCase() + axis.slice(1).replace(/_/g, " ");

export const axisValue = (axis, value) => (axis === "operation" ? OPERATIONS[value] ?? value : String(value));
