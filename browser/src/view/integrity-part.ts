/** Whether what is fetched is what the page says it is, for pages that name `integrity`: a script of its own, which the runtime asks. */

import { tellIntact } from "./integrity";

if (window.parent !== window) tellIntact();
