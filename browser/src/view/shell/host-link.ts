/** The shell's conversation with its host, through the view runtime: its own requests, and those of its page. */

import { isAnswer, isMessage, notification, objectOf, request, type Answer, type Message, type Params } from "../host/json-rpc";

export interface HostLink {
  /** The result of a request. Rejects with the host's error. */
  ask(method: string, params: Params): Promise<Params>;
  /** Sends a request for which `answered` is called once; returns the function that cancels it. */
  send(method: string, params: Params, answered: (answer: Answer) => void): () => void;
  notify(method: string, params?: Params): void;
}

/** `heard` receives the host's requests and notifications. */
export function createHostLink(heard: (message: Message) => void): HostLink {
  const host = window.parent;
  const prefix = `shell-${Math.random().toString(36).slice(2)}-`;
  const waiting = new Map<string, (answer: Answer) => void>();
  let count = 0;

  addEventListener("message", (event: MessageEvent<unknown>) => {
    const { source, data } = event;
    if (source !== host || !isMessage(data)) return;
    if (!isAnswer(data)) return heard(data);
    const answered = waiting.get(String(data.id));
    if (!answered) return;
    // No script of a packed page asked for it.
    event.stopImmediatePropagation();
    waiting.delete(String(data.id));
    answered(data);
  }, true);

  function send(method: string, params: Params, answered: (answer: Answer) => void): () => void {
    const id = prefix + ++count;
    waiting.set(id, answered);
    host.postMessage(request(id, method, params), "*");
    return () => {
      if (waiting.delete(id)) host.postMessage(notification("notifications/cancelled", { requestId: id, reason: "The page has gone." }), "*");
    };
  }

  return {
    send,
    ask: (method, params) =>
      new Promise((resolve, reject) => send(method, params, ({ result, error }) => (result ? resolve(objectOf(result)) : reject(new Error(error?.message ?? "no result"))))),
    notify: (method, params) => host.postMessage(notification(method, params), "*"),
  };
}
