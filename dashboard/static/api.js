// Asking the API. A refusal keeps what would have been accepted, so that the page can offer it.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

const key = () => sessionStorage.getItem("groktime-read-token");

// Reading is open unless the server is closed by a token, which stays in this tab.
export const isClosed = () => Boolean(key());

export const bearer = (token = key()) => (token ? { Authorization: `Bearer ${token}` } : {});

export async function ask(route, { signal, method = "GET", body, token } = {}) {
  const headers = { Accept: "application/json", ...bearer(token || key()) };
  if (body) headers["Content-Type"] = "application/json";
  const response = await answered(route, { method, headers, signal, body: body && JSON.stringify(body) });
  return response.status === 204 ? null : response.json();
}

// What is likely asked next, so that the browser has it then; an answer that comes late costs nothing.
export async function prefetch(route) {
  try {
    const response = await fetch(route, { headers: { Accept: "application/json", ...bearer() }, priority: "low" });
    await response.arrayBuffer();
  } catch {
    // It will be asked for in earnest.
  }
}

// A table or another file, as it is.
export async function file(route) {
  return (await answered(route, { headers: bearer() })).blob();
}

// The answer to a question that was asked before the scripts were here; it is taken once.
function early(route, { method = "GET", headers }) {
  const asked = window.groktimeEarly;
  const answer = method === "GET" && !headers.Authorization ? asked?.get(route) : undefined;
  asked?.set(route, null); // asked for now, by whom ever
  return answer;
}

async function answered(route, options) {
  let response;
  try {
    response = await (early(route, options) ?? fetch(route, options));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { detail: "The server cannot be reached. Is groktime serve running?" });
  }
  if (response.ok) return response;
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    problem = { title: response.statusText };
  }
  throw new Refused(response.status, problem);
}
