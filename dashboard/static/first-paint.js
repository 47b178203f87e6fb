// Runs before the first paint and before all other scripts.

// What every first page asks is asked while its scripts still travel; api.js takes the answers.
// Not where the tab holds a token: those questions carry it.
window.groktimeEarly = new Map();
if (!sessionStorage.getItem("groktime-read-token")) {
  const ask = (route) => {
    if (window.groktimeEarly.has(route)) return null; // the page was faster
    const answer = fetch(route, { headers: { Accept: "application/json" } });
    answer.catch(() => {}); // whoever takes it hears of it
    window.groktimeEarly.set(route, answer);
    return answer;
  };
  const chart = (query, route = "/charts/delay") => ask(`${route}?${new URLSearchParams(query)}`);
  // Called before the page waits for the answer, so that this copy is made first.
  const read = (answer) => answer.then((response) => response.clone().json());
  const query = new URLSearchParams(location.search);
  const suites = ask("/suites");
  if (["/", "/view/delay"].includes(location.pathname) && !location.search) {
    // The first chart is that of the cell chosen; the delay view names the suite's conventions, too.
    Promise.all([read(ask("/start?of=cell")), read(suites)]).then(([{ suite, prime, setting }, { items }]) => {
      const cell = { suite, ...setting, prime };
      if (location.pathname === "/") return chart(cell);
      const { analysis } = items.find((one) => one.name === suite);
      return chart({ ...cell, method: analysis?.method ?? "robust", clock: analysis?.clock ?? "online" });
    }).catch(() => {}); // the page asks for itself and tells what is the matter
  } else if (location.pathname === "/view/delay" && ["suite", "prime", "method", "clock"].every((name) => query.get(name))) {
    query.delete("scale"); // the page's own
    chart([["suite", query.get("suite")], ...[...query].filter(([name, value]) => name !== "suite" && value !== "")],
      query.get("prime") === "all" ? "/charts/delay/primes" : undefined);
  }
}

// A dark page never flashes white.
const chosen = localStorage.getItem("groktime-theme");
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";

// The drawing library is parsed as it arrives, not when the first chart is there; but it measures
// the page when it starts, so that it waits for the body.
window.groktimePlotly = new Promise((resolve, reject) => {
  const script = document.createElement("script");
  const failed = () => reject(new Error("The drawing library could not be loaded."));
  script.src = new URL("vendor/plotly/plotly.min.js", document.currentScript.src);
  script.onload = () => (window.Plotly ? resolve(window.Plotly) : failed());
  script.onerror = failed;
  new MutationObserver((_, observer) => {
    if (!document.body) return;
    observer.disconnect();
    document.head.append(script);
  }).observe(document.documentElement, { childList: true });
});
window.groktimePlotly.catch(() => {}); // whoever draws hears of it
