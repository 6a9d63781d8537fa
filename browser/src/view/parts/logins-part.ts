/** An app's own login: for pages that contain `password` or `authorization`, or whose policy has secret routes. */

import { tellDropped } from "../http/dropped";
import { tellSecrets } from "../host/secrets";

if (window.parent !== window) {
  window.fetch = tellDropped(window.fetch);
  tellSecrets();
}
