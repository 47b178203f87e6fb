// Runs before the first paint, so that a dark page never flashes white.
const chosen = localStorage.getItem("groktime-theme");
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";

// What every first page asks is asked while its scripts still travel; api.js takes the answers.
// Not where the tab holds a token: those questions carry it.
window.groktimeEarly = new Map();
if (!sessionStorage.getItem("groktime-read-token")) {
  const routes = ["/suites"];
  if (["/", "/view/delay"].includes(location.pathname) && !location.search) routes.push("/start?of=cell");
  for (const route of routes) {
    const answer = fetch(route, { headers: { Accept: "application/json" } });
    answer.catch(() => {}); // whoever takes it hears of it
    window.groktimeEarly.set(route, answer);
  }
}
