/** Rarely used features: a separate script after the runtime, which uses only `fetch`, `Request` and `URL`. */

import { createBeacon, withKeepalive } from "../http/beacon";
import { keepBlobs, watchBlobs, withRanges } from "../http/blobs";
import { watchClickEnds } from "../page/clicks";
import { attachDeclaredRoots } from "../page/declarative-roots";
import { delayLazyImages, restoreOriginalValues } from "../page/pictures";
import { watchRefreshes } from "../page/refresh";
import { withStop } from "../http/with-stop";
import { overrideMember } from "../page/event-members";
import { keepReferrers } from "../referrer";
import { showRefusedBlobs } from "../page/refused-blobs";
import { allowTools, awaitDecodedImages, withSoundUrls, withParse } from "../page/static-methods";
import { withIdentityOf } from "../wrap";
import { restoreOriginalMarkup } from "../page/original-markup";

if (window.parent !== window) {
  const { fetch, Request } = window;
  const resolve = (url: string): string => new Request(url).url;
  Navigator.prototype.sendBeacon = withIdentityOf(Navigator.prototype.sendBeacon, createBeacon(fetch, resolve));
  const blobOf = watchBlobs(URL);
  keepBlobs(window, blobOf);
  keepReferrers(window, resolve);
  window.fetch = withStop(withKeepalive(withRanges(window.fetch)));
  window.Audio = withSoundUrls(Audio);
  withParse(URL);
  awaitDecodedImages();
  showRefusedBlobs(blobOf);
  delayLazyImages();
  restoreOriginalValues(resolve);
  allowTools();
  watchClickEnds();
  watchRefreshes();
  overrideMember<MessageEvent>("MessageEvent", "source", "initMessageEvent", 6, window.parent);
  attachDeclaredRoots();
  for (const { prototype } of [Element, ShadowRoot]) restoreOriginalMarkup(prototype, "getHTML");
  restoreOriginalMarkup(XMLSerializer.prototype, "serializeToString");
}
