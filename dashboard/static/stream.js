// Server-sent events read with fetch, because EventSource cannot send a token. A stream that
// breaks is taken up again with Last-Event-ID, at first soon, then ever more patiently.

import { bearer } from "./api.js";

const LONGEST_WAIT_MS = 30000;
const SILENCE_MS = 45000; // the server says something at least every 15 s

// Wait before the n-th try in a row: doubled each time, and spread so that tabs do not come at once.
export function backOff(retry, failures, luck = Math.random()) {
  return Math.min(LONGEST_WAIT_MS, retry * 2 ** Math.min(failures - 1, 10)) * (0.5 + luck / 2);
}

// Text in pieces of any size, fields out: {event, data, id} by event, and `retry` as it is told.
export class Parser {
  constructor(onEvent, onRetry) {
    Object.assign(this, { onEvent, onRetry, rest: "", id: "" });
    this.begin();
  }

  begin() {
    this.event = "message";
    this.data = [];
  }

  feed(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    for (const line of lines) this.line(line);
  }

  line(line) {
    if (line === "") return this.dispatch();
    const [, field, value] = line.match(/^([^:]*)(?:: ?(.*))?$/s);
    if (field === "event") this.event = value;
    else if (field === "data") this.data.push(value ?? "");
    else if (field === "id") this.id = value ?? "";
    else if (field === "retry" && /^\d+$/.test(value)) this.onRetry(Number(value));
  }

  dispatch() {
    if (this.data.length) this.onEvent({ event: this.event, data: this.data.join("\n"), id: this.id });
    this.begin();
  }
}

// Follow a stream while the page can be seen: browsers have few connections to give to hidden tabs.
export function follow(route, onEvent) {
  let lastId = "";
  let retry = 1000;
  let failures = 0;
  let connection = null;
  let waiting;

  async function read(signal, giveUp) {
    const headers = { Accept: "text/event-stream", ...bearer() };
    if (lastId) headers["Last-Event-ID"] = lastId;
    const response = await fetch(route, { headers, signal, cache: "no-store" });
    if (!response.ok) return response.status;
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser((found) => {
      lastId = found.id;
      onEvent(found);
    }, (told) => (retry = told));
    for (;;) {
      const silence = setTimeout(giveUp, SILENCE_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(silence));
      if (done) return 200;
      failures = 0;
      parser.feed(value);
    }
  }

  async function open() {
    const mine = (connection = new AbortController());
    let status = 0;
    try {
      status = await read(mine.signal, () => mine.abort());
    } catch {
      // The server went away or fell silent; what is missed is sent on return.
    }
    if (mine !== connection || status === 401 || status === 403) return;
    failures += 1;
    waiting = setTimeout(open, backOff(retry, failures));
  }

  function close() {
    clearTimeout(waiting);
    const mine = connection;
    connection = null;
    mine?.abort();
  }

  const look = () => {
    close();
    if (document.visibilityState === "visible") open();
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && look());
  look();
}
