/** The effect of a click on an element of the page, where the browser would otherwise navigate out of the view. */

import type { FindAction } from "./default-actions";

type ClickAction = (() => void) | false | null | undefined;

/** These handle a click themselves; a link around them has no effect. */
const SELF_HANDLING = "[type=checkbox],[type=radio],[type=file]:enabled,[type=color]:enabled";

/** In order: a clicked link itself, buttons around the target, then labels and other links, from the inside. */
export function createClickFinder(submission: (one: Element) => ClickAction, link: (one: Element, stopped?: boolean) => ClickAction): FindAction {
  return (path, event, stopped) => {
    if (!(event instanceof MouseEvent)) return undefined;
    // Without shadow roots.
    const all = (event.bubbles ? path : path.slice(0, 1)).filter((one) => one instanceof Element);
    const first = (find: (one: Element) => ClickAction): ClickAction => all.map(find).find((run) => run);
    // Like browsers, also for the middle button.
    const linkAction = (one: Element): ClickAction => event.button < 2 && link(one, stopped);
    if (event.type === "auxclick") return first(linkAction);
    const [target] = all;
    if (!target || target.matches(SELF_HANDLING)) return undefined;
    return linkAction(target) || first(submission) || first((one) => {
      const { control } = one as HTMLLabelElement;
      return control && !("labels" in target) && !all.includes(control) && first(linkAction) ? () => control.click() : linkAction(one);
    });
  };
}
