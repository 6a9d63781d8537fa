/** What opaque origins refuse, for pages that name it: a script of its own, which needs nothing of the runtime. */

import { installShims } from "./shims";

if (window.parent !== window) installShims();
