/** What rules of style sheets name, where scripts write them, and what sheets import: a script of its own, after the runtime, of which it needs `fetch` and `Request` alone. */

import { watchImports } from "./imports";
import { createFiles } from "./page-files";
import { watchSheets } from "./sheets";

if (window.parent !== window) {
  const { fetch, Request } = window;
  const resolve = (url: string): string => new Request(url).url;
  const files = createFiles(fetch, resolve);
  watchSheets(files);
  watchImports(files, resolve);
}
