/** The script that runs first in a document on an origin of its own; the gateway names the origin of the proxy around it. */

import { BLOCKED, shieldParent } from "./first-script";
import { notice } from "./sandbox/rules";

const script = document.currentScript as HTMLScriptElement;
const proxy = script.dataset["proxy"]!;
script.remove();
// Before a script of the page runs: only the gateway's document begins with this.
window.parent.postMessage(notice("document", {}), proxy);
shieldParent(BLOCKED, proxy);
