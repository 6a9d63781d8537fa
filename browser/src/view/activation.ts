/** What a click on an element of the page leads to, where the browser's own way out of the view stands behind it. */

import type { Find } from "./default";

type Leads = (() => void) | false | null | undefined;

/** These have their own use of a click, and the link around them none. */
const OWN = "[type=checkbox],[type=radio],[type=file]:enabled,[type=color]:enabled";

/** The link that is clicked itself comes first, then the buttons around what is clicked, then labels and other links, from the inside. */
export function activated(submission: (one: Element) => Leads, link: (one: Element, stopped?: boolean) => Leads): Find {
  return (path, event, stopped) => {
    if (!(event instanceof MouseEvent)) return undefined;
    // A shadow root is none.
    const all = (event.bubbles ? path : path.slice(0, 1)).filter((one) => one instanceof Element);
    const first = (find: (one: Element) => Leads): Leads => all.map(find).find((run) => run);
    // As browsers do: with the middle button, too.
    const leads = (one: Element): Leads => event.button < 2 && link(one, stopped);
    if (event.type === "auxclick") return first(leads);
    const [target] = all;
    if (!target || target.matches(OWN)) return undefined;
    return leads(target) || first(submission) || first((one) => {
      const { control } = one as HTMLLabelElement;
      return control && !("labels" in target) && !all.includes(control) && first(leads) ? () => control.click() : leads(one);
    });
  };
}
