/** Verifies `integrity` for pages that contain it: a separate script, which the runtime calls. */

import { installIntegrityCheck } from "../http/integrity";

if (window.parent !== window) installIntegrityCheck();
