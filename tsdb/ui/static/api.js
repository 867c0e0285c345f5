// Requests to the server. A failure is a Problem: plain words, the place in the expression, and the next step.

export class Problem extends Error {
  constructor({ error, next, line = null, column = null, errorType = "", isAway = false }) {
    super(error);
    this.next = next;
    this.line = line;
    this.column = column;
    this.errorType = errorType;
    this.isAway = isAway; // The server did not answer, so nothing is known of the expression.
  }
}

const AWAY = {
  isAway: true,
  error: "The server does not answer.",
  next: "It may be restarting, or the network is down. Run it again in a moment; the rest of the page works on.",
};

async function request(path, options) {
  let got;
  try {
    got = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(AWAY);
  }
  let data = null;
  try {
    data = await got.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(got.ok ? { ...AWAY, error: "The answer of the server was cut off." } : { ...AWAY, error: `The server answered ${got.status}.` });
  }
  if (!got.ok || data.status === "error") {
    throw new Problem({ error: data.error ?? `The server answered ${got.status}.`, ...data, next: data.next ?? AWAY.next });
  }
  return data;
}

export function ask(path, parameters, signal) {
  return request(path, { method: "POST", body: new URLSearchParams(parameters), signal });
}

export function get(path, parameters, signal) {
  return request(`${path}?${new URLSearchParams(parameters)}`, { signal });
}
