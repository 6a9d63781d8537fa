/** The chat's back end: requests, and the stream of what changes in a conversation. */

/** A request that was refused; the message is for the person. */
export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Post JSON, and return the JSON of the answer. Throws `RequestError`. */
export async function post(path, body = {}) {
  let response;
  try {
    response = await fetch(`/api/${path}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  } catch {
    throw new RequestError(0, "The chat's server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw new RequestError(response.status, (await response.text()).slice(0, 300));
  return response.json();
}

/**
 * Follow a conversation: `onChange` receives every change, first all items; after a lost connection it begins anew.
 * `onState` receives "open", "lost", or "gone" if there is no such conversation any more.
 */
export function follow(id, onChange, onState) {
  const stream = new EventSource(`/api/conversations/${id}/events`);
  stream.onopen = () => onState("open");
  stream.onmessage = ({ data }) => onChange(JSON.parse(data));
  stream.onerror = () => onState(stream.readyState === EventSource.CLOSED ? "gone" : "lost");
  return () => stream.close();
}
