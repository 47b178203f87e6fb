// A view's address holds all its settings: a link is the view.

const listeners = new Set();

export const VIEWS = ["delay", "capacity", "memorisation", "onset", "runs", "sweeps"];

export function here() {
  const match = location.pathname.match(/^\/view\/([^/]+)/);
  const view = !match ? "start" : VIEWS.includes(match[1]) ? match[1] : "unknown";
  return { view, query: new URLSearchParams(location.search) };
}

// Changes: {name: value}; null removes a setting, a list repeats it.
export function changed(query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    if (!Array.isArray(value) && value !== null && value !== undefined) {
      next.set(name, value); // in its place, so that an address keeps its order
      continue;
    }
    next.delete(name);
    for (const one of value ?? []) next.append(name, one);
  }
  return next;
}

export function path(view, query) {
  const text = new URLSearchParams(query).toString();
  return `${view === "start" ? "/" : `/view/${view}`}${text ? `?${text}` : ""}`;
}

export function go(view, query, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"]({}, "", path(view, query));
  for (const listener of listeners) listener();
}

export function set(changes, options) {
  const { view, query } = here();
  go(view, changed(query, changes), options);
}

// Fill in what the server chose, without a new entry in the history and without drawing again.
export function settle(changes) {
  const { view, query } = here();
  history.replaceState({}, "", path(view, changed(query, changes)));
}

export function onMove(listener) {
  listeners.add(listener);
}

addEventListener("popstate", () => {
  for (const listener of listeners) listener();
});

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  history.pushState({}, "", link.getAttribute("href"));
  for (const listener of listeners) listener();
});
