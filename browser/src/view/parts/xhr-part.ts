/**
 * `XMLHttpRequest` for pages that contain it, with what libraries around it read: a separate script after the runtime,
 * which uses only `fetch` and `Request`.
 */

import { defineOriginForLibraries } from "../page/library-origin";
import { createXhr, XhrEventTarget, Upload } from "../http/xhr";

if (window.parent !== window) {
  const { fetch, Request } = window;
  // User name and password in it, which no request accepts, are the gateway's to add.
  const resolve = (url: string): string => new Request(url.replace(/^((?:https?:)?\/\/)[^/?#]*@/i, "$1")).url;
  const XMLHttpRequest = createXhr({ fetch, resolve, later: setTimeout.bind(window), cancelTimer: clearTimeout.bind(window) });
  Object.assign(window, { XMLHttpRequest, XMLHttpRequestEventTarget: XhrEventTarget, XMLHttpRequestUpload: Upload });
  if (origin === "null") defineOriginForLibraries(resolve);
}
