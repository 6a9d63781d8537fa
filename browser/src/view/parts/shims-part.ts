/** Replaces features that opaque origins refuse, for pages that contain them: a separate script, independent of the runtime. */

import { installShims } from "../page/shims";

if (window.parent !== window) installShims();
