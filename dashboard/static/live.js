// Progress as it happens, told once to the whole page.

import { forget } from "./suites.js";

const EVENTS = ["progress", "run", "suite", "sweep"];

export function live(sign, heard) {
  const source = new EventSource("/events");
  let timer;
  const rest = () => {
    sign.removeAttribute("data-on");
    sign.textContent = "idle";
  };
  const tell = (event) => {
    let data = {};
    try {
      data = JSON.parse(event.data);
    } catch {
      return; // a comment or a keep-alive
    }
    forget();
    sign.hidden = false;
    sign.dataset.on = "";
    sign.textContent = data.suite ? `training ${data.suite}` : "training";
    clearTimeout(timer);
    timer = setTimeout(rest, 20000);
    heard(data);
  };
  source.onmessage = tell;
  for (const name of EVENTS) source.addEventListener(name, tell);
  addEventListener("pagehide", () => source.close());
}
