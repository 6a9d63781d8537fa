/** `Request` for pages that send forms with files: a separate script, before the runtime, which builds on it. */

import { withSerializedForms } from "../http/form-data";

if (window.parent !== window) window.Request = withSerializedForms(Request);
