// Asking the gateway. Owns who we are: the header that says it, for as long as the tab is open.

const KEY = "steplane.authorization";

/** What went wrong with a request, in the gateway's own words. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function rememberWho(authorization) {
  sessionStorage.setItem(KEY, authorization);
}

function headers(more = {}) {
  const authorization = sessionStorage.getItem(KEY);
  return authorization ? { ...more, authorization } : more;
}

/** The answer to a GET, still open: for streams. Throws ApiError. */
export async function open(path, signal) {
  return checked(await fetch(path, { headers: headers({ accept: "text/event-stream" }), signal, cache: "no-store" }));
}

export async function get(path) {
  return (await checked(await fetch(path, { headers: headers({ accept: "application/json" }), cache: "no-store" }))).json();
}

export async function post(path, body) {
  const options = { method: "POST", headers: headers({ "content-type": "application/json" }) };
  return (await checked(await fetch(path, { ...options, body: typeof body === "string" ? body : JSON.stringify(body) }))).json();
}

async function checked(response) {
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // No JSON: the status has to do.
  }
  throw new ApiError(response.status, message);
}
