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


// Where a link names no suite, the server's default comes first.
export function chosen(all, query) {
  return all.find((suite) => suite.name === query.get("suite"))
    ?? all.find((suite) => suite.default)
    ?? all.find((suite) => suite.primes.length)
    ?? all[0];
}

const AXIS_NAMES = {
  lr: "Learning rate", weight_decay: "Weight decay", init_scale: "Initialisation scale",
  train_fraction: "Training fraction", batch_size: "Batch size", operation: "Operation",
};
const OPERATIONS = { "+": "addition", "-": "subtraction", "*": "multiplication", "/": "division" };

export const axisName = (axis) =>
  AXIS_NAMES[axis] ?? axis.charAt(0).toUpperCase() + axis.slice(1).replace(/_/g, " ");

export const axisValue = (axis, value) => (axis === "operation" ? OPERATIONS[value] ?? value : String(value));
