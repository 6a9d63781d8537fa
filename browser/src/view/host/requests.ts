/** The runtime's own requests to the host, distinguished from the page's by their ids. */

import { attempt } from "../attempt";
import { notification, PeerError, request, type Message, type Params } from "./json-rpc";

export interface Options<Value> {
  signal?: AbortSignal | undefined;
  /** In milliseconds; without it, there is no limit. */
  timeout?: number | undefined;
  /** Receives progress notifications until the answer. */
  onProgress?: ((params: Params) => void) | undefined;
  /** Reads the result before any promise carries it, so that a page that replaced `Promise.prototype` sees no secret. */
  read?: (result: Params) => Value;
}

export interface Requests {
  send<Value = Params>(method: string, params: Params, options?: Options<Value>): Promise<Value>;
  notify(method: string, params?: Params): void;
  /** Takes the answer to an own request, or its progress; false if `message` is neither. */
  receive(message: Message): boolean;
}

interface RequestDependencies {
  prefix: string;
  post(message: Message): void;
  later(run: () => void, milliseconds: number): number;
  cancelTimer(timer: number | undefined): void;
}

export function createRequests({ prefix, post, later, cancelTimer }: RequestDependencies): Requests {
  // No Map: a page that replaced `Map.prototype.get` would receive the answers.
  const waiting: { [id: string]: (message: Message) => void } = Object.create(null);
  let count = 0;

  function send<Value>(method: string, params: Params, { signal, timeout, read, onProgress }: Options<Value> = {}): Promise<Value> {
    return new Promise<Value>((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      const id = `${prefix}${++count}`;
      const end = (): void => {
        delete waiting[id];
        signal?.removeEventListener("abort", abort);
        cancelTimer(timer);
      };
      const cancelRequest = (reason: unknown, why: string): void => {
        end();
        // `ui/initialize` must not be cancelled, and has no signal.
        post(notification("notifications/cancelled", { requestId: id, reason: why }));
        reject(reason);
      };
      const abort = (): void => cancelRequest(signal?.reason, "aborted");
      const timer = timeout && later(() => cancelRequest(new Error(`No answer to ${method}`), "timeout"), timeout);
      signal?.addEventListener("abort", abort, { once: true });
      waiting[id] = ({ result, error, params: progress }) => {
        // Hosts may send notifications that are no part of an answer.
        if (progress) return attempt(() => onProgress?.(progress));
        end();
        if (error || !result) return reject(new PeerError(error ?? { code: 0, message: "no result" }));
        try {
          resolve(read ? read(result) : (result as Value));
        } catch (problem) {
          reject(problem);
        }
      };
      post(request(id, method, onProgress ? { ...params, _meta: { progressToken: id } } : params));
    });
  }

  return {
    send,
    notify: (method, params) => post(notification(method, params)),
    receive(message) {
      const { id, params } = message;
      const own = String(id ?? params?.["progressToken"]);
      if (!own.startsWith(prefix)) return false;
      // Even without its request (cancelled, timed out) it is ours: the page does not see it.
      waiting[own]?.(message);
      return true;
    },
  };
}
