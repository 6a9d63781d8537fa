/** A small notice over the page while calls wait for a person's approval; out of reach of the page's styles. */

import type { Approval } from "./pending";

const STYLE = `
:host { all: initial; position: fixed; inset: auto 0 0 0; z-index: 2147483647; color-scheme: light dark; }
div { display: flex; flex-direction: column; gap: 8px; margin: 12px; padding: 12px 16px; border-radius: 8px;
  font: 14px/1.4 system-ui, sans-serif; color: CanvasText; background: Canvas; border: 1px solid GrayText;
  box-shadow: 0 4px 16px rgb(0 0 0 / 25%); }
p { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: center; justify-content: space-between; margin: 0; overflow-wrap: anywhere; }
button { font: inherit; padding: 4px 12px; cursor: pointer; }
`;

/** Shows `approval` until the function that this gives is called. */
export type ShowNotice = (approval: Approval) => () => void;

/** `open` leads the person to a URL; it gives false where the host cannot. */
export function createNotice(open: (url: string) => Promise<boolean>): ShowNotice {
  let box: HTMLElement | undefined;
  let list: HTMLElement | undefined;

  function place(): HTMLElement {
    if (box && list) return list;
    box = document.createElement("webmcp-gateway-notice");
    const root = box.attachShadow({ mode: "closed" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    list = document.createElement("div");
    list.setAttribute("role", "status");
    root.append(list);
    document.documentElement.append(box);
    return list;
  }

  function line({ message, url }: Approval): HTMLElement {
    const row = document.createElement("p");
    const words = document.createElement("span");
    words.textContent = `Waiting for approval: ${message || "a request of this app"}`;
    const button = document.createElement("button");
    button.textContent = "Review";
    button.onclick = async () => {
      if (!(await open(url))) words.textContent = `Approve this at ${url}`;
    };
    row.append(words, ...(url ? [button] : []));
    return row;
  }

  return (approval) => {
    const row = line(approval);
    place().append(row);
    return () => {
      row.remove();
      if (list?.childElementCount) return;
      box?.remove();
      box = list = undefined;
    };
  };
}
