/** Scripts of the backend in a page, and with them all others: a script of its own, after the runtime, of which it needs `fetch` alone. */

import { startScripts } from "./late-scripts";

startScripts(Promise.resolve());
