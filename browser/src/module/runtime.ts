/** `webmcp-gateway-view/runtime`: the whole view runtime, for a page that no gateway packed. Import it before anything else. */

import "../view/model-context-part";
import "../view/index";
import "../view/buffers-part";
import "../view/event-source-part";
import "../view/form-tools";
import "../view/integrity-part";
import "../view/seldom-part";
import "../view/sheets-part";
import "../view/shims-part";
import "../view/sockets";
import "../view/xhr-part";
