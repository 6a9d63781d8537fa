/** Rarely used features: a separate script after the runtime, which uses only `fetch`, `Request` and `URL`. */

import { createBeacon, withKeepalive } from "../http/beacon";
import { keepBlobs, watchBlobs, withRanges } from "../http/blobs";
import { awaitClicks } from "../page/clicks";
import { tellDeclared } from "../page/declared-roots";
import { awaitNear, tellWritten } from "../page/pictures";
import { watchRefreshes } from "../page/refresh";
import { untilStop } from "../http/fetch-stop";
import { tellMember } from "../page/event-members";
import { keepReferrers } from "../referrer";
import { showRefused } from "../page/refused-blobs";
import { allowTools, awaitPictures, soundsOf, withParse } from "../page/statics";
import { named } from "../wrapped";
import { writeAsWritten } from "../page/written";

if (window.parent !== window) {
  const { fetch, Request } = window;
  const resolve = (url: string): string => new Request(url).url;
  Navigator.prototype.sendBeacon = named(Navigator.prototype.sendBeacon, createBeacon(fetch, resolve));
  const blobOf = watchBlobs(URL);
  keepBlobs(window, blobOf);
  keepReferrers(window, resolve);
  window.fetch = untilStop(withKeepalive(withRanges(window.fetch)));
  window.Audio = soundsOf(Audio);
  withParse(URL);
  awaitPictures();
  showRefused(blobOf);
  awaitNear();
  tellWritten(resolve);
  allowTools();
  awaitClicks();
  watchRefreshes();
  tellMember<MessageEvent>("MessageEvent", "source", "initMessageEvent", 6, window.parent);
  tellDeclared();
  for (const { prototype } of [Element, ShadowRoot]) writeAsWritten(prototype, "getHTML");
  writeAsWritten(XMLSerializer.prototype, "serializeToString");
}
