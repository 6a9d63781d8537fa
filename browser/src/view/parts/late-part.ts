/** Starts held back scripts of a page with scripts of the backend: a separate script after the runtime, which uses only `fetch`. */

import { startScripts } from "../page/late-scripts";

startScripts(Promise.resolve());
