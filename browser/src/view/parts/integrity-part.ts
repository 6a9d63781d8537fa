/** Verifies `integrity` for pages that contain it: a separate script, which the runtime calls. */

import { tellIntact } from "../http/integrity";

if (window.parent !== window) tellIntact();
