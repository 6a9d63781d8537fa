/** `data:` URLs for pages that have any: a script of its own, of which the runtime's `fetch` asks. */

import { readDataUrl } from "./data-urls";
import { readsLocal } from "./local";

if (window.parent !== window) readsLocal(readDataUrl);
