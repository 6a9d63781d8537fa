/** Pictures and sheets of the backend outside of a host: a script of its own, which needs nothing of the runtime. */

import { restorePage } from "./alone";

if (window.parent === window) restorePage();
