/** The effect of a click on an element of the page, where the browser would otherwise navigate out of the view. */

import type { Find } from "./default";

type Leads = (() => void) | false | null | undefined;

/** These handle a click themselves; a link around them has no effect. */
const OWN = "[type=checkbox],[type=radio],[type=file]:enabled,[type=color]:enabled";

/** In order: a clicked link itself, buttons around the target, then labels and other links, from the inside. */
export function activated(submission: (one: Element) => Leads, link: (one: Element, stopped?: boolean) => Leads): Find {
  return (path, event, stopped) => {
    if (!(event instanceof MouseEvent)) return undefined;
    // Without shadow roots.
    const all = (event.bubbles ? path : path.slice(0, 1)).filter((one) => one instanceof Element);
    const first = (find: (one: Element) => Leads): Leads => all.map(find).find((run) => run);
    // Like browsers, also for the middle button.
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
