// Progress as it happens, told once to the whole page.

import { forget } from "./suites.js";

export function live(sign, heard) {
  const source = new EventSource("/events");
  const revisions = new Map();
  let timer;
  const rest = () => {
    sign.removeAttribute("data-on");
    sign.textContent = "idle";
  };
  const tell = (event) => {
    const data = JSON.parse(event.data);
    forget();
    if (data.states.running) {
      sign.hidden = false;
      sign.dataset.on = "";
      sign.textContent = `training ${data.suite}: ${data.states.done} of ${data.runs}`;
      clearTimeout(timer);
      timer = setTimeout(rest, 20000);
    } else if (sign.dataset.suite === data.suite) {
      rest();
    }
    sign.dataset.suite = data.suite;
    // The first events tell where each suite stands; only later ones are news.
    const news = revisions.has(data.suite);
    revisions.set(data.suite, data.revision);
    if (news) heard(data);
  };
  source.addEventListener("progress", tell);
  addEventListener("pagehide", () => source.close());
}
