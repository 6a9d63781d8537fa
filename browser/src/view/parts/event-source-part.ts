/** `EventSource` for pages that contain it: a separate script after the runtime, which uses only `fetch`, `Request` and the browser's own `fetch`. */

import { createEventSource } from "../http/event-source";
import { createTurns } from "../turns";

if (window.parent !== window) {
  const { fetch, Request, webmcpGatewayFetch: native } = window as typeof window & { webmcpGatewayFetch?: typeof window.fetch };
  window.EventSource = createEventSource({
    fetch, native, resolve: (url) => new Request(url).url, later: setTimeout.bind(window), cancelTimer: clearTimeout.bind(window), turn: createTurns(),
  });
}
