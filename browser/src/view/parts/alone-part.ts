/** Images and sheets of the backend outside of a host: a separate script, independent of the runtime. */

import { restorePage } from "../page/outside-host";

if (window.parent === window) restorePage();
