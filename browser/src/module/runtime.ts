/** `webmcp-gateway-view/runtime`: the whole view runtime, for a page that no gateway packed. Import it before anything else. */

import "../view/parts/model-context-part";
import "../view/index";
import "../view/parts/buffers-part";
import "../view/parts/event-source-part";
import "../view/tools/form-tools";
import "../view/parts/integrity-part";
import "../view/parts/seldom-part";
import "../view/parts/sheets-part";
import "../view/parts/shims-part";
import "../view/parts/sockets-part";
import "../view/parts/xhr-part";
