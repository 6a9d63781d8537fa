/** Long bodies as one buffer, for pages that name `arrayBuffer` or `bytes()`: a script of its own, after the runtime. */

import { withPieces } from "./buffers";

if (window.parent !== window) window.fetch = withPieces(window.fetch);
