// Runs before the first paint, so that a dark page never flashes white.
const chosen = localStorage.getItem("groktime-theme");
const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
document.documentElement.dataset.theme = dark ? "dark" : "light";
