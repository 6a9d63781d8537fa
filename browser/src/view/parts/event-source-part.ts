/** `EventSource` for pages that contain it: a separate script after the runtime, which uses only `fetch` and `Request`. */

import { createEventSource } from "../http/event-source";
import { createTurns } from "../turns";

if (window.parent !== window) {
  const { fetch, Request } = window;
  window.EventSource = createEventSource({
    fetch, resolve: (url) => new Request(url).url, later: setTimeout.bind(window), cancelTimer: clearTimeout.bind(window), turn: createTurns(),
  });
}
