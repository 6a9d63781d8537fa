/** `EventSource` for pages that name it: a script of its own, after the runtime, of which it needs `fetch` and `Request` alone. */

import { createEventSource } from "./event-source";
import { createTurns } from "./turns";

if (window.parent !== window) {
  const { fetch, Request } = window;
  window.EventSource = createEventSource({
    fetch, resolve: (url) => new Request(url).url, later: setTimeout.bind(window), cancel: clearTimeout.bind(window), turn: createTurns(),
  });
}
