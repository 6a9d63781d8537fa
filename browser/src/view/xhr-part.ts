/** `XMLHttpRequest` for pages that name it, with what libraries around it ask: a script of its own, after the runtime, of which it needs `fetch` and `Request` alone. */

import { tellOrigin } from "./whereabouts";
import { createXhr, Progressing, Upload } from "./xhr";

if (window.parent !== window) {
  const { fetch, Request } = window;
  // A name and a password in it, which no request takes, are the gateway's to give.
  const resolve = (url: string): string => new Request(url.replace(/^((?:https?:)?\/\/)[^/?#]*@/i, "$1")).url;
  const XMLHttpRequest = createXhr({ fetch, resolve, later: setTimeout.bind(window), cancel: clearTimeout.bind(window) });
  Object.assign(window, { XMLHttpRequest, XMLHttpRequestEventTarget: Progressing, XMLHttpRequestUpload: Upload });
  if (origin === "null") tellOrigin(resolve);
}
