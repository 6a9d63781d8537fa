/** What rules of style sheets name, where scripts write them: a script of its own, after the runtime, of which it needs `fetch` and `Request` alone. */

import { createFiles } from "./page-files";
import { watchSheets } from "./sheets";

if (window.parent !== window) {
  const { fetch, Request } = window;
  watchSheets(createFiles(fetch, (url) => new Request(url).url));
}
