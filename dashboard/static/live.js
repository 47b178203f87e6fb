// Progress as it happens, told once to the whole page.

import { forget } from "./suites.js";
import { follow } from "./stream.js";

const REST_MS = 20000;

export function live(sign, heard) {
  const revisions = new Map();
  let timer;
  const rest = () => {
    sign.removeAttribute("data-on");
    sign.textContent = "idle";
  };
  follow("/events", ({ event, data }) => {
    if (event !== "progress") return;
    const progress = JSON.parse(data);
    forget();
    if (progress.states.running) {
      sign.hidden = false;
      sign.dataset.on = "";
      sign.textContent = `training ${progress.suite}: ${progress.states.done} of ${progress.runs}`;
      clearTimeout(timer);
      timer = setTimeout(rest, REST_MS);
    } else if (sign.dataset.suite === progress.suite) {
      rest();
    }
    sign.dataset.suite = progress.suite;
    const first = !revisions.has(progress.suite);
    const changed = revisions.get(progress.suite) !== progress.revision;
    revisions.set(progress.suite, progress.revision);
    heard(progress, { first, changed });
  });
}
