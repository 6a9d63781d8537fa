/**
 * Files in style rules that scripts write, and imports of sheets: a separate script after the runtime, which uses only
 * `fetch` and `Request`.
 */

import { watchImports } from "../page/imports";
import { createFiles } from "../page/page-files";
import { watchSheets } from "../page/sheets";

if (window.parent !== window) {
  const { fetch, Request } = window;
  const resolve = (url: string): string => new Request(url).url;
  const files = createFiles(fetch, resolve);
  watchSheets(files);
  watchImports(files, resolve);
}
