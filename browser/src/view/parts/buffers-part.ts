/** Long bodies as one buffer, for pages that contain `arrayBuffer` or `bytes()`: a separate script, after the runtime. */

import { withJoinedBuffers } from "../http/buffers";

if (window.parent !== window) window.fetch = withJoinedBuffers(window.fetch);
