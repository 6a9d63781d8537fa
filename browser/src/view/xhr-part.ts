/** `XMLHttpRequest` for pages that name it: a script of its own, after the runtime, of which it needs `fetch` and `Request` alone. */

import { createXhr, Progressing, Upload } from "./xhr";

if (window.parent !== window) {
  const { fetch, Request } = window;
  const XMLHttpRequest = createXhr({ fetch, resolve: (url) => new Request(url).url, later: setTimeout.bind(window), cancel: clearTimeout.bind(window) });
  Object.assign(window, { XMLHttpRequest, XMLHttpRequestEventTarget: Progressing, XMLHttpRequestUpload: Upload });
}
