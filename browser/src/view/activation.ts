/** What a click on an element of the page leads to, where the browser's own way out of the view stands behind it. */

import type { Find } from "./default";

/** These have their own use of a click, and the link around them none. */
const OWN = "input:is([type=checkbox],[type=radio],[type=file]:enabled,[type=color]:enabled)";

/** The first in the path of a click that is a button or a link counts, as `submission` and `link` say. */
export function activated(submission: (one: Element, event: Event) => ReturnType<Find>, link: (one: Element, stopped?: boolean) => ReturnType<Find>): Find {
  return (path, event, stopped) => {
    for (const one of path) {
      // A shadow root is none.
      if (!(one instanceof Element)) continue;
      if (one.matches(OWN)) return undefined;
      // As browsers do: with the middle button, too.
      const run = submission(one, event) || ((event as MouseEvent).button !== 2 && link(one, stopped));
      if (run) return run;
    }
    return undefined;
  };
}
