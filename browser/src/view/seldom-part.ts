/** What few pages name: a script of its own, after the runtime, of which it needs `fetch`, `Request` and `URL` alone. */

import { createBeacon } from "./beacon";
import { awaitClicks } from "./clicks";
import { tellDeclared } from "./declared-roots";
import { withRanges } from "./ranges";
import { allowTools, awaitPictures, soundsOf, withParse } from "./statics";
import { writeAsWritten } from "./written";

if (window.parent !== window) {
  const { fetch, Request } = window;
  Navigator.prototype.sendBeacon = createBeacon(fetch, (url) => new Request(url).url);
  window.fetch = withRanges(fetch);
  window.Audio = soundsOf(Audio);
  withParse(URL);
  awaitPictures();
  allowTools();
  awaitClicks();
  tellDeclared();
  for (const { prototype } of [Element, ShadowRoot]) writeAsWritten(prototype, "getHTML");
  writeAsWritten(XMLSerializer.prototype, "serializeToString");
}
