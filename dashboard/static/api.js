// Asking the API. A refusal keeps what would have been accepted, so that the page can offer it.

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The server answered ${status}.`);
    this.status = status;
    this.problem = problem;
  }
}

const key = () => sessionStorage.getItem("groktime-read-token");

export async function ask(route, { signal, method = "GET", body, token } = {}) {
  const headers = { Accept: "application/json" };
  const bearer = token || key();
  if (bearer) headers.Authorization = `Bearer ${bearer}`;
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(route, {
      method, headers, signal, body: body && JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, { title: "The server cannot be reached.", detail: "The server cannot be reached. Is groktime serve running?" });
  }
  if (response.ok) return response.status === 204 ? null : response.json();
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    problem = { title: response.statusText };
  }
  throw new Refused(response.status, problem);
}
